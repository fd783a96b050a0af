"""A plan arrives, fed or made here: on record with its task, set against its rivals and what is known already."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from django.conf import settings
from django.db import IntegrityError
from django.db.models import Q

from audit.canonical import RawJson
from audit.kinds import Kind
from audit.recording import Actor, record
from plans import callbacks, clock, ending, feed_sql, policies, schema, vault
from plans.chronicle import SWEEP, named_agent, tell
from plans.deliveries import Received
from plans.errors import (
    IntentTaken,
    Invalid,
    NotReplaceable,
    PlanIdTaken,
    Refused,
    TokenTaken,
)
from plans.faultpoints import reach
from plans.feed_sql import Known, Question
from plans.locks import lock_plan
from plans.models import Abandonment, Plan, Task, Wish
from plans.states import BUSY, AbandonReason, State


class Feeder(Protocol):
    """What an arrival needs of an agent."""

    @property
    def pk(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def owner_id(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything of a plan to be recorded, whichever door it came through."""

    target: str
    operation: str
    task_id: str
    plan_id: str
    token: str = field(repr=False)
    input_fingerprint: str
    inputs: str
    inputs_hash: bytes
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

    def question(self, agent: Feeder, delivery: Received | None = None) -> Question:
        """What has to be known before `record_plan`, once the agent is locked."""
        return Question(
            agent.pk, None if delivery is None else delivery.webhook_id, self.target, self.plan_id, self.operation,
            self.task_id, self.intent, self.replaces, self.inputs_hash, self.created_at, self.action_targets,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arrived:
    """A plan that was just recorded, as its agent is told of it."""

    pk: int
    state: State
    idempotency_key: str


def record_plan(agent: Feeder, draft: Draft, known: Known, delivery: Received | None = None) -> Arrived:
    """Insert the plan with its event; end at once what it supersedes, or the plan itself where something newer did.

    In the caller's transaction, which has locked the agent and then asked `feed_sql.look`. Binds the delivery. Raises
    what a unique constraint says (`refusal_for`).
    """
    at, created_at = known.at, draft.created_at or known.at
    if draft.expires_at <= created_at:
        raise Invalid("This plan was dead when it was made.", [("/data/plan/expires_at", "must be after created_at")])
    actor = named_agent(agent.name)
    rivals: list[Plan] = []
    if known.has_rivals:
        known = known._replace(task_pk=known.task_pk or _make_task(agent, draft.task_id, at))
        rivals = _living(_rivals(agent, draft, known), actor)
        known = feed_sql.look(draft.question(agent, delivery))._replace(at=at)  # their locks were waited for
    newer = next((one for one in rivals if one.created_at > created_at and not _is_named(one, draft, known)), None)
    still = _stillborn(known, newer, at)
    if still is None:
        for rival in rivals:
            ending.abandon(rival, AbandonReason.SUPERSEDED, actor=actor, at=at, data={"superseded_by": draft.plan_id})
    arrived = _insert(agent, draft, known, delivery, actor, is_alive=still is None)
    if still is not None:
        _end_stillborn(Plan.objects.select_related("agent", "target", "task").get(pk=arrived.pk), still, newer, at)
    elif rivals or draft.replaces is not None:
        named = Q(target_id=known.target_pk, plan_id=draft.replaces or "")
        replaced = Plan.objects.filter(named | Q(pk__in=[rival.pk for rival in rivals]), agent_id=agent.pk)
        replaced.filter(replaced_by=None).exclude(pk=arrived.pk).update(replaced_by=arrived.pk)
    reach("plan-written", arrived.pk)
    return arrived


def _make_task(agent: Feeder, task_id: str, at: datetime) -> int:
    """A new task, before any plan is locked: only who has locked the agent makes one, so nobody is in between."""
    return Task.objects.create(agent_id=agent.pk, task_id=task_id, created_at=at).pk


def _insert(
    agent: Feeder, draft: Draft, known: Known, delivery: Received | None, actor: Actor, *, is_alive: bool
) -> Arrived:
    """The plan, its task where it is new, its delivery and its event, in one statement."""
    plan = _columns(agent, draft, known, is_alive)
    change = feed_sql.insertion(
        plan,
        task_pk=known.task_pk,
        task_id=draft.task_id,
        webhook_id=None if delivery is None else delivery.webhook_id,
        body_hash=None if delivery is None else delivery.body_hash,
    )
    try:
        recorded = record(
            Kind.PLAN_RECEIVED,
            actor=actor,
            on_behalf_of=str(agent.owner_id),
            agent=agent.name,
            target=draft.target,
            plan_id=draft.plan_id,
            plan_seq=change,
            operation=draft.operation,
            task_id=draft.task_id,
            data=told_of(_shown(agent, draft, known, plan)),
        )
    except IntegrityError as error:  # an id or a token that is taken: the constraint knows, without a look before
        raise refusal_for(error) from None
    return Arrived(recorded.returned[0], State(plan["state"]), plan["idempotency_key"])


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


def _columns(agent: Feeder, draft: Draft, known: Known, is_alive: bool) -> dict[str, Any]:
    """The plan's row, column by column, but for what the statement makes."""
    return {
        "agent_id": agent.pk,
        "target_id": known.target_pk,
        "policy_id": known.policy_pk,
        "address_id": known.address_pk,
        "plan_id": draft.plan_id,
        "operation": draft.operation,
        "intent": draft.intent,
        "replaces": draft.replaces,
        "target_address": known.base_url,
        "inputs": draft.inputs,
        "actions": draft.actions,
        "action_targets": draft.action_targets,
        "evidence": draft.evidence,
        "summary": draft.summary,
        "planned_state": draft.planned_state,
        "input_fingerprint": draft.input_fingerprint,
        "inputs_hash": draft.inputs_hash,
        "data_hash": draft.data_hash,
        "has_confirmed_actions": known.is_hosted,
        "has_been_known_to_target": known.is_hosted,
        "approvals_required": policies.approvals_needed(
            of_policy=known.policy_approvals, of_operation=draft.approvals_of_operation
        ),
        "token_hash": vault.token_hash(draft.token),
        "token_sealed": vault.seal_token(draft.token) if is_alive else None,
        "idempotency_key": make_key(),
        "created_at": draft.created_at or known.at,
        "received_at": known.at,
        "expires_at": draft.expires_at,
        "state": State.PENDING.value if is_alive else State.ABANDONED.value,
        "mark_count": known.others_writes,
    }


def _shown(agent: Feeder, draft: Draft, known: Known, plan: dict[str, Any]) -> schema.Shown:
    return schema.Shown(
        agent.name, draft.target, known.base_url, draft.plan_id, draft.operation, draft.task_id, draft.intent,
        draft.replaces, draft.inputs, draft.actions, draft.evidence, draft.summary, draft.input_fingerprint,
        schema.as_shown(plan["created_at"]), schema.as_shown(draft.expires_at), known.policy_version,
        plan["approvals_required"], plan["mark_count"],
    )  # fmt: skip


def told_of(shown: schema.Shown, digest: str | None = None) -> dict[str, Any]:
    """What was planned and what a reviewer is shown of it, whole: with the event's own members, all that the digest is
    made of, so that the log alone can prove what was approved. The token is in none of it."""
    return {
        "input_fingerprint": shown.input_fingerprint,
        "expires_at": shown.expires_at,
        "created_at": shown.created_at,
        "digest": schema.digest_of(shown) if digest is None else digest,
        "intent": shown.intent,
        "replaces": shown.replaces,
        "target_address": shown.target_address,
        "approvals_required": shown.approvals_required,
        "policy_version": shown.policy_version,
        "mark_count": shown.mark_count,
        "summary": shown.summary,
        "evidence": RawJson(shown.evidence) if shown.evidence else None,
        "inputs": RawJson(shown.inputs),
        "actions": RawJson(shown.actions),
    }


def make_key() -> str:
    """The one idempotency key of a new plan, towards its target."""
    return f"pdk_{secrets.token_hex(16)}"


def _rivals(agent: Feeder, draft: Draft, known: Known) -> list[Plan]:
    """The agent's pending plans, locked in order, that this one supersedes or is superseded by.

    Raises `NotReplaceable` and `IntentTaken` where what is in the way may have been written.
    """
    assert known.target_pk is not None
    assert known.task_pk is not None
    candidates = Plan.objects.filter(agent_id=agent.pk)
    found: set[int] = set()
    if draft.replaces is not None:
        for named in candidates.filter(target_id=known.target_pk, plan_id=draft.replaces):
            if State(named.state) in BUSY or named.state == State.COMMITTED.value:
                raise NotReplaceable("The plan to replace is being written, may have been, or was.")
            found.add(named.pk)
    if draft.intent is not None:
        for holder in candidates.filter(intent=draft.intent):
            if State(holder.state) in BUSY or holder.state == State.COMMITTED.value:
                raise IntentTaken(f"Plan {holder.plan_id} of this intent is {holder.state}.", plan_id=holder.plan_id)
            found.add(holder.pk)
    else:
        same = candidates.filter(task_id=known.task_pk, target_id=known.target_pk, operation=draft.operation)
        same = same.pending().filter(intent=None, inputs_hash=draft.inputs_hash)
        found.update(same.values_list("pk", flat=True))
    rivals = [lock_plan(pk) for pk in sorted(found)]
    for rival in rivals:  # decided while we waited for its lock
        if State(rival.state) in BUSY or rival.state == State.COMMITTED.value:
            taken = IntentTaken if rival.intent is not None and rival.intent == draft.intent else NotReplaceable
            raise taken(f"Plan {rival.plan_id} is {rival.state}.", plan_id=rival.plan_id)
    return [rival for rival in rivals if rival.state == State.PENDING.value]


def _is_named(rival: Plan, draft: Draft, known: Known) -> bool:
    """Whether the draft says that it replaces this plan: its word counts, whatever the clocks say of the two."""
    return rival.plan_id == draft.replaces and rival.target_id == known.target_pk


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


def _stillborn(known: Known, newer: Plan | None, at: datetime) -> AbandonReason | None:
    """Why this plan ends on arrival: a newer one, a kept wish, an ended task, or a write since it was made."""
    if newer is not None or known.has_replacer:
        return AbandonReason.SUPERSEDED
    if known.wished is not None:
        return AbandonReason(known.wished)
    if known.task_ended_at is not None and known.task_ended_at >= at - settings.WISHES_KEPT_FOR:
        return AbandonReason.TASK_ENDED
    return AbandonReason.INPUTS_CHANGED if known.own_writes else None


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
