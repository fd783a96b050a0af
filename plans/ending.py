"""Ends one locked plan, for good: its state, its fact, its event and the token's destruction are one change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from audit.canonical import RawJson
from audit.kinds import Kind
from audit.recording import Actor
from plans import callbacks
from plans.chronicle import SWEEP, tell
from plans.decision_sql import Overtaken, committed, look_for_overtaking
from plans.errors import Sentence
from plans.instants import format_instant_exact
from plans.models import (
    Abandonment,
    Commit,
    Conflict,
    ConflictChange,
    Fence,
    Plan,
    Refusal,
    Rejection,
    Wish,
)
from plans.states import BUSY, ENDS, AbandonReason, Outcome, State
from plans.targets.base import Change

ABANDONED_BECAUSE: Final = {
    AbandonReason.EXPIRED: Sentence("expired"),
    AbandonReason.TASK_ENDED: Sentence("its task ended"),
    AbandonReason.INTENT_CHANGED: Sentence("the request changed"),
    AbandonReason.INPUTS_CHANGED: Sentence("its record was written to"),
    AbandonReason.SUPERSEDED: Sentence("replaced"),
    AbandonReason.WITHDRAWN: Sentence("withdrawn"),
    AbandonReason.NOT_APPLIED: Sentence("found not written"),
}
"""Why a plan was abandoned, as people read it within a sentence."""

# Every function here wants `plan` locked by `locks.lock_plan` in the current transaction, and `at` read after it.


def abandon(
    plan: Plan, reason: AbandonReason, *, actor: Actor, at: datetime, data: Mapping[str, Any] | None = None
) -> None:
    """Planned and not done, for one reason."""
    _close(plan, State.ABANDONED, at)
    Abandonment.objects.create(plan=plan, reason=reason.value, at=at)
    tell(plan, Kind.PLAN_ABANDONED, actor=actor, data={"reason": reason.value, **(data or {})})
    callbacks.queue(plan, "plan.abandoned", at=at)


def give_up(
    plan: Plan, reason: AbandonReason, *, actor: Actor, at: datetime, data: Mapping[str, Any] | None = None
) -> None:
    """Abandon a pending plan for `reason`; one whose time was up before has expired, whether or not a sweep came."""
    if at >= plan.expires_at:
        expire(plan, at=at, actor=actor)
    else:
        abandon(plan, reason, actor=actor, at=at, data=data)


def overtaken_by(plan: Plan, seen: Overtaken | None = None) -> AbandonReason | None:
    """Why a pending plan has ended although nobody has written that down yet; None where it has not.

    `withdrawn` where the plan was on its way in, or being committed, when its agent or target was disabled or its
    target repointed; `inputs_changed` where a commit of its agent on its targets waits for the sweep that holds it
    against older plans. A decision ends such a plan instead. `seen` is what was seen of it just now, under the lock.
    """
    seen = seen or look_for_overtaking(plan)
    if seen.is_withdrawn:
        return AbandonReason.WITHDRAWN
    return AbandonReason.INPUTS_CHANGED if seen.is_written_to else None


def expire(plan: Plan, *, at: datetime, actor: Actor = SWEEP) -> None:
    """Past its expiry: `plan.expired` says so, `plan.abandoned` ends it."""
    tell(plan, Kind.PLAN_EXPIRED, actor=actor, data={"expires_at": format_instant_exact(plan.expires_at)})
    abandon(plan, AbandonReason.EXPIRED, actor=actor, at=at)


def reject(
    plan: Plan,
    *,
    reviewer: Any,
    actor: Actor,
    seen_digest: str,
    reason: str,
    at: datetime,
    data: Mapping[str, Any] | None = None,
) -> None:
    """A reviewer's no. `data` is told with it."""
    _close(plan, State.REJECTED, at)
    Rejection.objects.create(plan=plan, reviewer=reviewer, seen_digest=seen_digest, reason=reason, rejected_at=at)
    tell(plan, Kind.PLAN_REJECTED, actor=actor, data={"reason": reason, "digest": seen_digest, **(data or {})})
    callbacks.queue(plan, "plan.rejected", at=at)


def conflict(plan: Plan, changes: Sequence[Change], *, actor: Actor, at: datetime, detail: str = "") -> None:
    """The world moved and nothing was written; what is known of the change is kept, field by field."""
    _close(plan, State.CONFLICTED, at)
    row = Conflict.objects.create(plan=plan, at=at, detail=detail)
    ConflictChange.objects.bulk_create(
        ConflictChange(
            conflict=row,
            position=place,
            target=change.target,
            field=change.field,
            planned=change.planned,
            current=change.current,
        )
        for place, change in enumerate(changes)
    )
    tell(
        plan,
        Kind.COMMIT_CONFLICTED,
        actor=actor,
        data={"changed": [as_told(change) for change in changes], "detail": detail},
    )
    callbacks.queue(plan, "plan.conflicted", at=at)


def refuse(plan: Plan, reason: str, *, kind: Kind = Kind.COMMIT_REFUSED, actor: Actor, at: datetime) -> None:
    """The target said no, or (`plan.refused`) tells of the plan otherwise than the agent; nothing was written."""
    _close(plan, State.REFUSED, at)
    Refusal.objects.create(plan=plan, reason=reason, at=at)
    tell(plan, kind, actor=actor, data={"reason": reason})
    callbacks.queue(plan, "plan.refused", at=at)


def commit(plan: Plan, attempt: Commit, result: str | None, *, actor: Actor, at: datetime) -> None:
    """Applied. The attempt carries the result; the write counts as the agent's own for its other plans."""
    attempt.outcome, attempt.settled_at, attempt.result = Outcome.COMMITTED.value, at, result
    tell(
        plan,
        Kind.COMMIT_SUCCEEDED,
        actor=actor,
        data={"attempt": attempt.number, "result": None if result is None else RawJson(result)},
        change=committed(plan, attempt, at),
    )
    plan.state, plan.state_changed_at = State.COMMITTED.value, at
    plan.token_sealed, plan.next_check_at = None, None
    callbacks.queue(plan, "plan.committed", at=at)


def as_told(change: Change) -> dict[str, Any]:
    """A change as events and answers show it; a value that the target did not give is left out."""
    told: dict[str, Any] = {"target": change.target, "field": change.field}
    if change.planned is not None:
        told["planned"] = RawJson(change.planned)
    if change.current is not None:
        told["current"] = RawJson(change.current)
    return told


def _close(plan: Plan, state: State, at: datetime) -> None:
    """The part that all ends share. The database refuses it for a plan that ended before."""
    assert state in ENDS
    if State(plan.state) in BUSY:  # no other plan has a fence
        Fence.objects.filter(plan=plan).delete()
    plan.state, plan.state_changed_at = state.value, at
    plan.token_sealed, plan.next_check_at = None, None
    plan.save(update_fields=["state", "state_changed_at", "token_sealed", "next_check_at"])
    Wish.objects.filter(agent=plan.agent, target=plan.target, plan_id=plan.plan_id).delete()
