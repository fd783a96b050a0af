"""Receive a plan: what an agent feeds from a remote target, and what a hosted operation plans here."""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from msgspec import UNSET, UnsetType

from plans import clock, feed_sql, schema, strict_json, vault
from plans.arrival import Arrived, Draft, Feeder, record_plan
from plans.commit import check_fence
from plans.deliveries import Received, bind, check_same
from plans.errors import (
    AgentPaused,
    CannotPlan,
    Forbidden,
    Invalid,
    PlanIdTaken,
    Refused,
    TooMany,
    Unavailable,
    UnknownOperation,
    UnknownTarget,
)
from plans.faultpoints import listens
from plans.fingerprints import FingerprintRefused, fingerprint
from plans.instants import parse_instant
from plans.locks import lock_agent
from plans.models import Agent, Plan
from plans.plain_arrival import record_at_once
from plans.targets import operations

MAX_PENDING = 200  # per agent, CONTRACT section 4


@dataclass(frozen=True, slots=True)
class Intake:
    """A plan that is on record, and what its agent is told where this request put it there."""

    plan_pk: int
    arrived: Arrived | None

    @property
    def is_new(self) -> bool:
        """Whether this request put it there."""
        return self.arrived is not None

    @property
    def plan(self) -> Plan:
        """The plan as it stands; read when it is asked for."""
        return _read(self.plan_pk)


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """A hosted plan with its token, which is shown this once. `repr` keeps it."""

    plan: Plan
    token: str = field(repr=False)


# --- the feed -------------------------------------------------------------------------------------------------------


def find_equal(*, agent: Feeder, tree: Any) -> Plan | None:
    """The plan that this very `data` fed before (members in any order, numbers as written), or None.

    Raises `PlanIdTaken` where the id is known with other data. Reads only. For data of which no plan can be read;
    `receive_plan` looks for itself.
    """
    body = tree.get("plan") if isinstance(tree, dict) else None
    if not isinstance(body, dict):
        return None
    plan_id, target = body.get("plan_id"), tree.get("target")
    if not isinstance(plan_id, str) or not isinstance(target, str):
        return None
    rows = Plan.objects.filter(agent_id=agent.pk, target__name=target, plan_id=plan_id)
    known = rows.values_list("pk", "data_hash").first()
    if known is None:
        return None
    _check_equal(known[1], _data_hash(tree), plan_id)
    return _read(known[0])


def _check_equal(known: bytes | memoryview, data_hash: bytes, plan_id: str) -> None:
    if bytes(known) != data_hash:
        raise PlanIdTaken("Another plan of yours has this id at this target.", plan_id=plan_id)


def _data_hash(tree: Any) -> bytes:
    return vault.hash_of(strict_json.canonical(tree), purpose="feed-data")


def receive_plan(*, agent: Feeder, data: schema.FedPlan, tree: Any, delivery: Received | None = None) -> Intake:
    """Record a fed plan, supersede what it replaces, and apply at once what is known of it already.

    `tree` is the same data as `strict_json` read it. The same data again answers the plan as it stands. Locks the
    agent, then the pending plans it supersedes. Raises what CONTRACT 5.1 lists; then nothing is recorded.
    """
    draft, flaws = _draft_of_feed(data, tree)
    is_plain = not flaws and not listens("plan-written")
    if is_plain and (arrived := record_at_once(agent, draft, delivery, MAX_PENDING)) is not None:
        return Intake(arrived.pk, arrived)
    with transaction.atomic(durable=True):
        standing = feed_sql.lock_sender(agent.pk)
        known = feed_sql.look(draft.question(agent, delivery))
        if delivery is not None and known.body_hash is not None:
            check_same(known.body_hash, delivery)
        if known.same_pk is not None and known.same_hash is not None:
            _check_equal(known.same_hash, draft.data_hash, draft.plan_id)
            bind(agent.pk, delivery)
            return Intake(known.same_pk, None)
        _check_accepting(standing.is_disabled, standing.is_paused, known.pending_count)
        _check_fed(flaws, draft, known)
        arrived = record_plan(agent, draft, known, delivery)
    return Intake(arrived.pk, arrived)


@dataclass(slots=True)
class _Flaws:
    """What is wrong with a feed by itself, in the order in which it is told: before and after what its time says."""

    before: schema.Errors = field(default_factory=list)
    expires_at: str | None = None
    created_at: str | None = None
    after: schema.Errors = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.before or self.expires_at or self.created_at or self.after)


NEVER = datetime.max.replace(tzinfo=UTC)  # stands for an expiry that cannot be read, until that is told


def _draft_of_feed(data: schema.FedPlan, tree: Any) -> tuple[Draft, _Flaws]:
    """What was fed, and what is wrong with it. Neither the desk's clock nor its database is asked here."""
    flaws = _Flaws()
    flaws.before += schema.check_identifiers(
        data__task_id=data.task_id,
        data__target=data.target,
        data__operation=data.operation,
        data__intent=data.intent,
        data__replaces=data.replaces,
        data__plan__plan_id=data.plan.plan_id,
    )
    has_intent = isinstance(data.intent, str)
    actions, found = schema.check_actions(data.plan.actions, "/data/plan/actions", has_intent=has_intent)
    flaws.before += [("/data/intent" if pointer == "/intent" else pointer, text) for pointer, text in found]
    flaws.before += schema.check_prose(data.summary, data.evidence, "/data")
    expires_at, flaws.expires_at = _instant(data.plan.expires_at)
    created_at, flaws.created_at = _instant(data.created_at) if isinstance(data.created_at, str) else (None, None)
    flaws.after += _secret_flaws(data, tree)
    draft = Draft(
        target=data.target,
        operation=data.operation,
        task_id=data.task_id,
        plan_id=data.plan.plan_id,
        token=data.plan.plan_token,
        input_fingerprint=data.plan.input_fingerprint,
        inputs=schema.text(data.inputs),
        inputs_hash=vault.inputs_hash(tree["inputs"]),
        actions=schema.text(data.plan.actions),
        action_targets=schema.action_targets(actions),
        evidence="" if data.evidence is UNSET else schema.text(data.evidence),
        summary=_or_none(data.summary) or "",
        intent=_or_none(data.intent),
        replaces=_or_none(data.replaces),
        planned_state=None,
        approvals_of_operation=1,
        created_at=created_at,
        expires_at=expires_at or NEVER,
        data_hash=_data_hash(tree),
    )
    return draft, flaws


def _secret_flaws(data: schema.FedPlan, tree: Any) -> schema.Errors:
    errors: schema.Errors = []
    if (sentence := schema.check_token(data.plan.plan_token)) is not None:
        errors.append(("/data/plan/plan_token", sentence))
    elif schema.holds_text(tree, data.plan.plan_token, but=("plan", "plan_token")):
        errors.append(("/data", "holds the plan token's text outside plan_token"))
    fed = data.plan.input_fingerprint
    if not fed.strip() or len(fed) > schema.MAX_FINGERPRINT:
        sentence = f"must be 1 to {schema.MAX_FINGERPRINT} characters and not blank"
        errors.append(("/data/plan/input_fingerprint", sentence))
    if bytes(data.inputs).lstrip()[:1] != b"{":
        errors.append(("/data/inputs", "must be an object"))
    return errors


def _check_fed(flaws: _Flaws, draft: Draft, known: feed_sql.Known) -> None:
    """Raise what is wrong with a feed, known the agent's target and the time, both read under the agent's lock."""
    if known.target_pk is None or not known.is_registered:
        raise UnknownTarget("This target is not registered for this agent.")
    if known.is_hosted:
        raise Invalid("Plans of a hosted target are made by its dry run.", [("/data/target", "is a hosted target")])
    if known.operations and draft.operation not in known.operations:
        raise UnknownOperation("This target is not registered with this operation.")
    errors = [*flaws.before, *_time_errors(flaws, draft, known.at), *flaws.after]
    if errors:
        raise Invalid("This feed holds no valid plan.", errors)


def _instant(text: str) -> tuple[datetime | None, str | None]:
    """The instant, or why it is none."""
    try:
        return parse_instant(text), None
    except ValueError as error:
        return None, str(error)


def _time_errors(flaws: _Flaws, draft: Draft, at: datetime) -> schema.Errors:
    errors: schema.Errors = []
    if flaws.expires_at is not None:
        errors.append(("/data/plan/expires_at", flaws.expires_at))
    elif draft.expires_at <= at:
        errors.append(("/data/plan/expires_at", "must be in the future"))
    elif draft.expires_at - at > settings.PLAN_MAX_LIFETIME:
        most = int(settings.PLAN_MAX_LIFETIME.total_seconds())
        errors.append(("/data/plan/expires_at", f"must be at most {most} seconds ahead"))
    if flaws.created_at is not None:
        errors.append(("/data/created_at", flaws.created_at))
    elif draft.created_at is not None and draft.created_at > at:
        errors.append(("/data/created_at", "must not be in the future"))
    return errors


# --- the hosted dry run ---------------------------------------------------------------------------------------------


@transaction.atomic(durable=True)
def dry_run(*, agent: Agent, operation: str, request: schema.DryRun) -> DryRunAnswer:
    """Plan a hosted operation: read its inputs, say what it would write, and keep that promise on record.

    Writes nothing of the operation's own. Locks the agent, then the pending plans it supersedes. Not to be repeated
    blindly: each call is a plan of its own, and with the same intent supersedes the one before. Where the operation
    fails nothing is recorded, and its error is told and logged by its class alone.
    """
    agent = lock_agent(agent.pk)
    at = clock.now()
    pending = Plan.objects.of_agent(agent).pending().filter(expires_at__gt=at).count()
    _check_accepting(agent.disabled_at is not None, agent.is_paused, pending)
    hosted = operations.get_operation(operation)
    target = None if hosted is None else agent.targets.filter(name=hosted.target, disabled_at=None).first()
    if hosted is None or target is None:
        raise UnknownOperation("No hosted operation of this name is registered for this agent.")
    try:
        with operations.guarded(operation, "asked for a dry run", passes=(Refused,)):
            found = _ask(hosted, request)
    except operations.OperationFailed as failed:
        raise Unavailable(f"{failed} Nothing was planned.", retry_after_seconds=5) from None
    check_fence(agent.pk, target.pk, found.touched)
    at = clock.now()
    draft = Draft(
        target=target.name,
        operation=operation,
        task_id=request.task_id,
        plan_id=f"plan_{secrets.token_hex(8)}",
        token=f"pt_{secrets.token_urlsafe(32)}",
        input_fingerprint=found.fingerprint,
        inputs=schema.text(request.inputs),
        inputs_hash=vault.inputs_hash(strict_json.loads(bytes(request.inputs))),
        actions=found.actions,
        action_targets=found.touched,
        evidence="" if request.evidence is UNSET else schema.text(request.evidence),
        summary=_or_none(request.summary) or "",
        intent=_or_none(request.intent),
        replaces=_or_none(request.replaces),
        planned_state=found.state,
        approvals_of_operation=found.people,
        created_at=at,
        expires_at=at + settings.PLAN_LIFETIME,
        data_hash=secrets.token_bytes(32),
    )
    known = feed_sql.look(draft.question(agent))._replace(at=at)
    return DryRunAnswer(_read(record_plan(agent, draft, known).pk), draft.token)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a hosted operation says of a dry run, as it is kept."""

    fingerprint: str
    actions: str
    touched: list[str]
    state: str
    people: int


def _ask(hosted: operations.Operation, request: schema.DryRun) -> _Found:
    """All that is asked of the operation's own code, which may raise anything; and no plan that could not be kept."""
    inputs = _hosted_inputs(hosted, request)
    state = hosted.read(inputs, lock=False)
    actions = hosted.plan(inputs, state)
    if not actions:
        raise CannotPlan("There is nothing to do: the plan would write nothing.")
    text = operations.encode_actions(actions)
    strict_json.loads(text.encode())
    if schema.check_actions(msgspec.Raw(text.encode()), "", has_intent=True)[1]:
        raise ValueError("these are no actions of a plan")
    return _Found(
        fingerprint({"operation": hosted.name, "inputs": msgspec.to_builtins(inputs), "state": state}),
        text,
        schema.action_targets(actions),
        operations.dump(state),
        operations.people_asked(hosted, inputs, actions),
    )


def _hosted_inputs(hosted: operations.Operation, request: schema.DryRun) -> Any:
    errors = schema.check_identifiers(task_id=request.task_id, intent=request.intent, replaces=request.replaces)
    errors += schema.check_prose(request.summary, request.evidence, "")
    inputs = None
    try:
        inputs = strict_json.decode(bytes(request.inputs), hosted.Inputs)
        fingerprint(strict_json.loads(bytes(request.inputs)))
    except strict_json.InvalidBody as error:
        errors += [("/inputs" + pointer, detail) for pointer, detail in error.errors]
    except FingerprintRefused as error:
        errors.append(("/inputs" + error.pointer, error.detail))
    except ValueError as error:
        errors.append(("/inputs", str(error)))
    if hosted.requires_intent and request.intent is UNSET:
        errors.append(("/intent", "is required: this operation creates something"))
    if errors:
        raise Invalid("This dry run cannot be made.", errors)
    return inputs


def _check_accepting(is_disabled: bool, is_paused: bool, pending_count: int) -> None:
    if is_disabled:  # meanwhile: its key and signature were good when it knocked
        raise Forbidden("This agent is disabled.")
    if is_paused:
        raise AgentPaused("This agent is paused: no new plans are taken.")
    if pending_count >= MAX_PENDING:
        refusal = TooMany(f"This agent has {MAX_PENDING} pending plans.", retry_after_seconds=60)
        refusal.headers["Retry-After"] = "60"
        raise refusal


def _read(plan_pk: int) -> Plan:
    return Plan.objects.select_related("agent", "target", "task", "policy").get(pk=plan_pk)


def _or_none(value: str | UnsetType) -> str | None:
    return None if isinstance(value, UnsetType) else value
