"""Receive a plan: what an agent feeds from a remote target, and what a hosted operation plans here."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from msgspec import UNSET, UnsetType

from audit.canonical import RawJson
from audit.kinds import Kind
from audit.recording import Actor
from plans import callbacks, clock, ending, policies, schema, strict_json, vault
from plans.chronicle import SWEEP, agent_actor, tell
from plans.commit import check_fence
from plans.deliveries import Received, bind
from plans.errors import (
    AgentPaused,
    CannotPlan,
    Forbidden,
    IntentTaken,
    Invalid,
    NotReplaceable,
    PlanIdTaken,
    Refused,
    TokenTaken,
    TooMany,
    UnknownOperation,
    UnknownTarget,
)
from plans.faultpoints import reach
from plans.fingerprints import FingerprintRefused, fingerprint
from plans.instants import format_instant_exact, parse_instant
from plans.locks import lock_agent, lock_plan
from plans.models import Abandonment, Agent, ObservedWrite, Plan, Policy, Target, Task, Wish
from plans.states import BUSY, AbandonReason, State
from plans.targets import operations

MAX_PENDING = 200  # per agent, CONTRACT section 4


@dataclass(frozen=True, slots=True)
class Intake:
    """A plan that is on record, and whether this request put it there."""

    plan: Plan
    is_new: bool


@dataclass(frozen=True, slots=True)
class DryRunAnswer:
    """A hosted plan with its token, which is shown this once. `repr` keeps it."""

    plan: Plan
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Draft:
    """Everything of a plan to be recorded, whichever door it came through."""

    target: Target
    operation: str
    task_id: str
    plan_id: str
    token: str = field(repr=False)
    input_fingerprint: str
    inputs: str
    actions: str
    action_targets: list[str]
    evidence: str
    summary: str
    intent: str | None
    replaces: str | None
    planned_state: str | None
    approvals_of_operation: int
    created_at: datetime | None
    expires_at: datetime
    data_hash: bytes


# --- the feed -------------------------------------------------------------------------------------------------------


def find_equal(*, agent: Agent, tree: Any) -> Plan | None:
    """The plan that this very `data` fed before (members in any order, numbers as written), or None.

    Raises `PlanIdTaken` where the id is known with other data. Reads only.
    """
    body = tree.get("plan") if isinstance(tree, dict) else None
    if not isinstance(body, dict):
        return None
    plan_id, target = body.get("plan_id"), tree.get("target")
    if not isinstance(plan_id, str) or not isinstance(target, str):
        return None
    rows = Plan.objects.filter(agent=agent, target__name=target, plan_id=plan_id)
    known = rows.values_list("pk", "data_hash").first()
    if known is None:  # nearly always, so no more than this is read
        return None
    if bytes(known[1]) != _data_hash(tree):
        raise PlanIdTaken("Another plan of yours has this id at this target.", plan_id=plan_id)
    return Plan.objects.select_related("agent", "target", "task", "policy").get(pk=known[0])


def _data_hash(tree: Any) -> bytes:
    return vault.hash_of(strict_json.canonical(tree), purpose="feed-data")


@transaction.atomic(durable=True)
def receive_plan(*, agent: Agent, data: schema.FedPlan, tree: Any, delivery: Received | None = None) -> Intake:
    """Record a fed plan, supersede what it replaces, and apply at once what is known of it already.

    `tree` is the same data as `strict_json` read it. The same data again answers the plan as it stands. Locks the
    agent, then the pending plans it supersedes. Raises what CONTRACT 5.1 lists; then nothing is recorded.
    """
    agent = lock_agent(agent.pk)
    bind(agent, delivery)
    known = find_equal(agent=agent, tree=tree)
    if known is not None:
        return Intake(known, is_new=False)
    at = clock.now()
    _check_accepting(agent, at)
    target = agent.targets.filter(name=data.target, disabled_at=None).first()
    if target is None:
        raise UnknownTarget("This target is not registered for this agent.")
    draft = _draft_of_feed(target, data, tree, at)
    return Intake(_record(agent, draft, at), is_new=True)


def _draft_of_feed(target: Target, data: schema.FedPlan, tree: Any, at: datetime) -> _Draft:
    if target.is_hosted:
        raise Invalid("Plans of a hosted target are made by its dry run.", [("/data/target", "is a hosted target")])
    if target.operations and data.operation not in target.operations:
        raise UnknownOperation("This target is not registered with this operation.")
    errors = schema.check_identifiers(
        data__task_id=data.task_id,
        data__target=data.target,
        data__operation=data.operation,
        data__intent=data.intent,
        data__replaces=data.replaces,
        data__plan__plan_id=data.plan.plan_id,
    )
    has_intent = isinstance(data.intent, str)
    actions, found = schema.check_actions(data.plan.actions, "/data/plan/actions", has_intent=has_intent)
    errors += [("/data/intent" if pointer == "/intent" else pointer, text) for pointer, text in found]
    errors += schema.check_prose(data.summary, data.evidence, "/data")
    created_at, expires_at, found = _instants(data, at)
    errors += found
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
    if errors:
        raise Invalid("This feed holds no valid plan.", errors)
    assert expires_at is not None
    return _Draft(
        target=target,
        operation=data.operation,
        task_id=data.task_id,
        plan_id=data.plan.plan_id,
        token=data.plan.plan_token,
        input_fingerprint=fed,
        inputs=schema.text(data.inputs),
        actions=schema.text(data.plan.actions),
        action_targets=schema.action_targets(actions),
        evidence="" if data.evidence is UNSET else schema.text(data.evidence),
        summary=_or_none(data.summary) or "",
        intent=_or_none(data.intent),
        replaces=_or_none(data.replaces),
        planned_state=None,
        approvals_of_operation=1,
        created_at=created_at,
        expires_at=expires_at,
        data_hash=_data_hash(tree),
    )


def _instants(data: schema.FedPlan, at: datetime) -> tuple[datetime | None, datetime | None, schema.Errors]:
    errors: schema.Errors = []
    created_at: datetime | None = None
    expires_at: datetime | None = None
    try:
        expires_at = parse_instant(data.plan.expires_at)
    except ValueError as error:
        errors.append(("/data/plan/expires_at", str(error)))
    else:
        if expires_at <= at:
            errors.append(("/data/plan/expires_at", "must be in the future"))
        elif expires_at - at > settings.PLAN_MAX_LIFETIME:
            most = int(settings.PLAN_MAX_LIFETIME.total_seconds())
            errors.append(("/data/plan/expires_at", f"must be at most {most} seconds ahead"))
    if isinstance(data.created_at, str):
        try:
            created_at = parse_instant(data.created_at)
        except ValueError as error:
            errors.append(("/data/created_at", str(error)))
        else:
            if created_at > at:
                errors.append(("/data/created_at", "must not be in the future"))
    return created_at, expires_at, errors


# --- the hosted dry run ---------------------------------------------------------------------------------------------


@transaction.atomic(durable=True)
def dry_run(*, agent: Agent, operation: str, request: schema.DryRun) -> DryRunAnswer:
    """Plan a hosted operation: read its inputs, say what it would write, and keep that promise on record.

    Writes nothing of the operation's own. Locks the agent, then the pending plans it supersedes. Not to be repeated
    blindly: each call is a plan of its own, and with the same intent supersedes the one before.
    """
    agent = lock_agent(agent.pk)
    _check_accepting(agent, clock.now())
    hosted = operations.get_operation(operation)
    target = None if hosted is None else agent.targets.filter(name=hosted.target, disabled_at=None).first()
    if hosted is None or target is None:
        raise UnknownOperation("No hosted operation of this name is registered for this agent.")
    inputs = _hosted_inputs(hosted, request)
    state = hosted.read(inputs, lock=False)
    actions = hosted.plan(inputs, state)
    if not actions:
        raise CannotPlan("There is nothing to do: the plan would write nothing.")
    touched = schema.action_targets(actions)
    check_fence(agent.pk, target.pk, touched)
    at = clock.now()
    draft = _Draft(
        target=target,
        operation=operation,
        task_id=request.task_id,
        plan_id=f"plan_{secrets.token_hex(8)}",
        token=f"pt_{secrets.token_urlsafe(32)}",
        input_fingerprint=fingerprint({"operation": operation, "inputs": msgspec.to_builtins(inputs), "state": state}),
        inputs=schema.text(request.inputs),
        actions=operations.encode_actions(actions),
        action_targets=touched,
        evidence="" if request.evidence is UNSET else schema.text(request.evidence),
        summary=_or_none(request.summary) or "",
        intent=_or_none(request.intent),
        replaces=_or_none(request.replaces),
        planned_state=operations.dump(state),
        approvals_of_operation=hosted.approvals(inputs, actions),
        created_at=at,
        expires_at=at + settings.PLAN_LIFETIME,
        data_hash=secrets.token_bytes(32),
    )
    return DryRunAnswer(_record(agent, draft, at), draft.token)


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


# --- one path for both ----------------------------------------------------------------------------------------------


def _check_accepting(agent: Agent, at: datetime) -> None:
    if agent.disabled_at is not None:  # meanwhile: its key and signature were good when it knocked
        raise Forbidden("This agent is disabled.")
    if agent.is_paused:
        raise AgentPaused("This agent is paused: no new plans are taken.")
    if Plan.objects.of_agent(agent).pending().filter(expires_at__gt=at).count() >= MAX_PENDING:
        refusal = TooMany(f"This agent has {MAX_PENDING} pending plans.", retry_after_seconds=60)
        refusal.headers["Retry-After"] = "60"
        raise refusal


def _record(agent: Agent, draft: _Draft, at: datetime) -> Plan:
    """Insert the plan with its event; end at once what it supersedes, or the plan itself where something newer did."""
    created_at = draft.created_at or at
    if draft.expires_at <= created_at:
        raise Invalid("This plan was dead when it was made.", [("/data/plan/expires_at", "must be after created_at")])
    task = _task(agent, draft.task_id, at)
    inputs_hash = _inputs_hash(draft.inputs)
    rivals = _living(_rivals(agent, draft, task, inputs_hash), agent_actor(agent))
    newer = next((rival for rival in rivals if rival.created_at > created_at), None)
    writes = _writes_since(agent, draft, created_at)
    still = _stillborn(agent, draft, task, newer, writes, at)
    actor = agent_actor(agent)
    if still is None:
        for rival in rivals:
            ending.abandon(rival, AbandonReason.SUPERSEDED, actor=actor, at=at, data={"superseded_by": draft.plan_id})
    plan = _insert(agent, draft, task, created_at, at, inputs_hash, writes, is_alive=still is None)
    tell(plan, Kind.PLAN_RECEIVED, actor=actor, data=_received(plan), is_first=True)
    if still is not None:
        _end_stillborn(plan, still, newer, at)
    elif rivals or draft.replaces is not None:
        named = Q(target=draft.target, plan_id=draft.replaces or "")
        replaced = Plan.objects.of_agent(agent).filter(named | Q(pk__in=[rival.pk for rival in rivals]))
        replaced.filter(replaced_by=None).exclude(pk=plan.pk).update(replaced_by=plan)
    reach("plan-written", plan.pk)
    return plan


def _task(agent: Agent, task_id: str, at: datetime) -> Task:
    """The task, made where it is new: only who has locked the agent makes one, so nobody is in between."""
    known = Task.objects.filter(agent=agent, task_id=task_id).first()
    return known or Task.objects.create(agent=agent, task_id=task_id, created_at=at)


@dataclass(frozen=True, slots=True)
class _Writes:
    """How many writes to a plan's records are known of since it was made: its own agent's, and others'."""

    own: int
    others: int


def _writes_since(agent: Agent, draft: _Draft, created_at: datetime) -> _Writes:
    found = ObservedWrite.objects.filter(
        target=draft.target, at__gte=created_at, action_targets__overlap=draft.action_targets
    )
    is_own = Q(agent=agent)
    return _Writes(**found.aggregate(own=Count("pk", filter=is_own), others=Count("pk", filter=~is_own)))


def _insert(
    agent: Agent,
    draft: _Draft,
    task: Task,
    created_at: datetime,
    at: datetime,
    inputs_hash: bytes,
    writes: _Writes,
    *,
    is_alive: bool,
) -> Plan:
    policy = Policy.objects.filter(target=draft.target).order_by("-version")[0]
    try:
        return _create(agent, draft, task, policy, created_at, at, inputs_hash, writes.others, is_alive)
    except IntegrityError as error:  # an id or a token that is taken: the constraint knows, without a look before
        raise refusal_for(error) from None


_TAKEN: Final[dict[str, tuple[type[Refused], str]]] = {
    "plans_token_is_unique_per_target": (TokenTaken, "Another plan at this target has this token."),
    "plans_plan_id_is_unique": (PlanIdTaken, "Another plan of yours has this id at this target."),
    "plans_intent_is_held_once": (IntentTaken, "Another plan of this intent is in flight or committed."),
}


def refusal_for(error: IntegrityError) -> Exception:
    """The refusal that a violated constraint stands for; the error itself where it stands for none."""
    violated = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
    kind, sentence = _TAKEN.get(violated or "", (None, ""))
    return error if kind is None else kind(sentence)


def _create(
    agent: Agent,
    draft: _Draft,
    task: Task,
    policy: Policy,
    created_at: datetime,
    at: datetime,
    inputs_hash: bytes,
    marks: int,
    is_alive: bool,
) -> Plan:
    return Plan.objects.create(
        agent=agent,
        target=draft.target,
        task=task,
        policy=policy,
        plan_id=draft.plan_id,
        operation=draft.operation,
        intent=draft.intent,
        replaces=draft.replaces,
        target_address=draft.target.base_url,
        address_id=draft.target.addresses.order_by("-id").values_list("pk", flat=True).first(),
        inputs=draft.inputs,
        actions=draft.actions,
        action_targets=draft.action_targets,
        evidence=draft.evidence,
        summary=draft.summary,
        planned_state=draft.planned_state,
        input_fingerprint=draft.input_fingerprint,
        inputs_hash=inputs_hash,
        data_hash=draft.data_hash,
        has_confirmed_actions=draft.target.is_hosted,
        has_been_known_to_target=draft.target.is_hosted,
        approvals_required=policies.approvals_needed(
            of_policy=policy.approvals, of_operation=draft.approvals_of_operation
        ),
        token_hash=vault.token_hash(draft.token),
        token_sealed=vault.seal_token(draft.token) if is_alive else None,
        idempotency_key=f"pdk_{secrets.token_hex(16)}",
        created_at=created_at,
        received_at=at,
        expires_at=draft.expires_at,
        state=State.PENDING.value if is_alive else State.ABANDONED.value,
        state_changed_at=at,
        mark_count=marks,
        event_count=1,  # `plan.received`, told in the same breath
    )


def _received(plan: Plan) -> dict[str, Any]:
    """What was planned, whole, so that the log alone can prove it; the token is in none of it."""
    return {
        "input_fingerprint": plan.input_fingerprint,
        "expires_at": format_instant_exact(plan.expires_at),
        "created_at": format_instant_exact(plan.created_at),
        "digest": schema.shown_digest(plan),
        "intent": plan.intent,
        "replaces": plan.replaces,
        "approvals_required": plan.approvals_required,
        "policy_version": plan.policy.version,
        "inputs": RawJson(plan.inputs),
        "actions": RawJson(plan.actions),
    }


def _inputs_hash(inputs: str) -> bytes:
    return vault.hash_of(strict_json.canonical(strict_json.loads(inputs.encode())), purpose="inputs")


def _rivals(agent: Agent, draft: _Draft, task: Task, inputs_hash: bytes) -> list[Plan]:
    """The agent's pending plans, locked in order, that this one supersedes or is superseded by.

    Raises `NotReplaceable` and `IntentTaken` where what is in the way may have been written.
    """
    candidates = Plan.objects.of_agent(agent)
    found: set[int] = set()
    if draft.replaces is not None:
        for named in candidates.filter(target=draft.target, plan_id=draft.replaces):
            if State(named.state) in BUSY or named.state == State.COMMITTED.value:
                raise NotReplaceable("The plan to replace is being written, may have been, or was.")
            found.add(named.pk)
    if draft.intent is not None:
        for holder in candidates.filter(intent=draft.intent):
            if State(holder.state) in BUSY or holder.state == State.COMMITTED.value:
                raise IntentTaken(f"Plan {holder.plan_id} of this intent is {holder.state}.", plan_id=holder.plan_id)
            found.add(holder.pk)
    else:
        same = candidates.filter(task=task, target=draft.target, operation=draft.operation, intent=None)
        found.update(same.pending().filter(inputs_hash=inputs_hash).values_list("pk", flat=True))
    rivals = [lock_plan(pk) for pk in sorted(found)]
    for rival in rivals:  # decided while we waited for its lock
        if State(rival.state) in BUSY or rival.state == State.COMMITTED.value:
            taken = IntentTaken if rival.intent is not None and rival.intent == draft.intent else NotReplaceable
            raise taken(f"Plan {rival.plan_id} is {rival.state}.", plan_id=rival.plan_id)
    return [rival for rival in rivals if rival.state == State.PENDING.value]


def _living(rivals: list[Plan], actor: Actor) -> list[Plan]:
    """Those of the locked, pending rivals whose time is not up; the others have expired, and stand in nobody's way."""
    living = []
    for rival in rivals:
        at = clock.now()
        if at >= rival.expires_at:
            ending.expire(rival, at=at, actor=actor)
        else:
            living.append(rival)
    return living


def _stillborn(
    agent: Agent, draft: _Draft, task: Task, newer: Plan | None, writes: _Writes, at: datetime
) -> AbandonReason | None:
    """Why this plan ends on arrival: a newer one, a kept wish, an ended task, or a write since it was made."""
    kept_since = at - settings.WISHES_KEPT_FOR
    replacer = Plan.objects.of_agent(agent).filter(
        target=draft.target, replaces=draft.plan_id, received_at__gte=kept_since
    )
    if newer is not None or replacer.exists():
        return AbandonReason.SUPERSEDED
    wish = Wish.objects.filter(
        agent=agent, target=draft.target, plan_id=draft.plan_id, wished_at__gte=kept_since
    ).first()
    if wish is not None:
        return AbandonReason(wish.reason)
    if task.ended_at is not None and task.ended_at >= kept_since:
        return AbandonReason.TASK_ENDED
    return AbandonReason.INPUTS_CHANGED if writes.own else None


def _end_stillborn(plan: Plan, reason: AbandonReason, newer: Plan | None, at: datetime) -> None:
    """The terminal fact of a plan that was inserted as ended."""
    if reason is AbandonReason.SUPERSEDED:
        replacer = (
            newer
            or Plan.objects.filter(agent=plan.agent, target=plan.target, replaces=plan.plan_id)
            .exclude(pk=plan.pk)
            .order_by("-created_at", "-id")
            .first()
        )
        Plan.objects.filter(pk=plan.pk).update(replaced_by=replacer)
        plan.replaced_by = replacer
    Abandonment.objects.create(plan=plan, reason=reason.value, at=at)
    tell(plan, Kind.PLAN_ABANDONED, actor=SWEEP, data={"reason": reason.value, "on_arrival": True})
    callbacks.queue(plan, "plan.abandoned", at=at)
    Wish.objects.filter(agent=plan.agent, target=plan.target, plan_id=plan.plan_id).delete()


def _or_none(value: str | UnsetType) -> str | None:
    return None if isinstance(value, UnsetType) else value
