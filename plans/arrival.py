"""A plan arrives, fed or made here: on record with its task, set against its rivals and what is known already."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Count, Q

from audit.canonical import RawJson
from audit.kinds import Kind
from audit.recording import Actor
from plans import callbacks, clock, ending, policies, schema, strict_json, vault
from plans.chronicle import SWEEP, agent_actor, tell
from plans.errors import (
    IntentTaken,
    Invalid,
    NotReplaceable,
    PlanIdTaken,
    Refused,
    TokenTaken,
)
from plans.faultpoints import reach
from plans.instants import format_instant_exact
from plans.locks import lock_plan
from plans.models import Abandonment, Agent, ObservedWrite, Plan, Policy, Target, Task, Wish
from plans.states import BUSY, AbandonReason, State


@dataclass(frozen=True, slots=True)
class Draft:
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


def record_plan(agent: Agent, draft: Draft, at: datetime) -> Plan:
    """Insert the plan with its event; end at once what it supersedes, or the plan itself where something newer did.

    In the caller's transaction, which has locked the agent. Raises what a unique constraint says (`refusal_for`).
    """
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


def _writes_since(agent: Agent, draft: Draft, created_at: datetime) -> _Writes:
    found = ObservedWrite.objects.filter(
        target=draft.target, at__gte=created_at, action_targets__overlap=draft.action_targets
    )
    is_own = Q(agent=agent)
    return _Writes(**found.aggregate(own=Count("pk", filter=is_own), others=Count("pk", filter=~is_own)))


def _insert(
    agent: Agent,
    draft: Draft,
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
    draft: Draft,
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


def _rivals(agent: Agent, draft: Draft, task: Task, inputs_hash: bytes) -> list[Plan]:
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
    agent: Agent, draft: Draft, task: Task, newer: Plan | None, writes: _Writes, at: datetime
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
