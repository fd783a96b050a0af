"""Receive a plan: what an agent feeds from a remote target, and what a hosted operation plans here."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.db import transaction
from msgspec import UNSET, UnsetType

from plans import clock, schema, strict_json, vault
from plans.arrival import Draft, record_plan
from plans.commit import check_fence
from plans.deliveries import Received, bind
from plans.errors import (
    AgentPaused,
    CannotPlan,
    Forbidden,
    Invalid,
    PlanIdTaken,
    TooMany,
    UnknownOperation,
    UnknownTarget,
)
from plans.fingerprints import FingerprintRefused, fingerprint
from plans.instants import parse_instant
from plans.locks import lock_agent
from plans.models import Agent, Plan, Target
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
    return Intake(record_plan(agent, draft, at), is_new=True)


def _draft_of_feed(target: Target, data: schema.FedPlan, tree: Any, at: datetime) -> Draft:
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
    return Draft(
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
    draft = Draft(
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
    return DryRunAnswer(record_plan(agent, draft, at), draft.token)


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


def _check_accepting(agent: Agent, at: datetime) -> None:
    if agent.disabled_at is not None:  # meanwhile: its key and signature were good when it knocked
        raise Forbidden("This agent is disabled.")
    if agent.is_paused:
        raise AgentPaused("This agent is paused: no new plans are taken.")
    if Plan.objects.of_agent(agent).pending().filter(expires_at__gt=at).count() >= MAX_PENDING:
        refusal = TooMany(f"This agent has {MAX_PENDING} pending plans.", retry_after_seconds=60)
        refusal.headers["Retry-After"] = "60"
        raise refusal


def _or_none(value: str | UnsetType) -> str | None:
    return None if isinstance(value, UnsetType) else value
