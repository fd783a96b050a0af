"""Find out what became of a commit whose outcome is unknown: ask its target, try again with the same key."""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Q

from audit.kinds import Kind
from plans import clock, ending, vault
from plans.bulkhead import AT_ONCE, place_at
from plans.chronicle import SWEEP, target_actor, tell
from plans.commit import (
    Call,
    address,
    attempt_that_arrived,
    carry_out,
    remote_target,
    settle_lost,
    settle_overdue,
    start_attempt,
)
from plans.confirm import confirm_plan
from plans.errors import TargetBusy, Unavailable
from plans.faultpoints import reach
from plans.locks import LockTimeout, lock_plan
from plans.models import Plan
from plans.states import AbandonReason, State
from plans.targets.base import StateReply

logger = logging.getLogger(__name__)

LEASE = timedelta(minutes=1)
SOON = timedelta(seconds=5)
SLOWEST = timedelta(minutes=5)
AFTER_EXPIRY = timedelta(seconds=10)


def mark_overdue(limit: int = 100) -> int:
    """Make every claim that is 45 s old and unsettled `unknown`. Safe on many workers at once. Returns how many."""
    before = clock.now() - settings.CLAIM_OVERDUE_AFTER
    pks = Plan.objects.filter(state=State.COMMITTING.value, claimed_at__lte=before).order_by("claimed_at", "id")
    return sum(settle_overdue(pk) for pk in list(pks.values_list("pk", flat=True)[:limit]))


def find_out_unknown(limit: int = 20) -> int:
    """Look after the unknown plans that are due for it, one after the other. Returns how many were looked after.

    Each is leased for a minute by one conditional update first, so that several workers share the work; where a lease
    runs out twice, two attempts carry the same key. One that fails is logged, and comes up again when its lease has run
    out: it keeps no other waiting.
    """
    done = 0
    for _ in range(limit * 10):  # those of a busy target are passed over, so that they keep nobody else waiting
        pk = _lease() if done < limit else None
        if pk is None:
            break
        reach("unknown-leased", pk)
        try:
            find_out(plan_pk=pk)
        except TargetBusy:
            _put_off(pk)
        except LockTimeout:  # somebody is at work on it; what they leave open comes up again when the lease has run out
            continue
        except Exception:  # whatever is wrong with one plan, or with what its target says, the others are looked after
            logger.exception("The outcome of plan %d could not be looked for.", pk)
        else:
            done += 1
    return done


def _put_off(plan_pk: int) -> None:
    """Give a lease back that nothing was done with, for a sweep soon."""
    due = Plan.objects.filter(pk=plan_pk, state=State.UNKNOWN.value)
    due.update(next_check_at=clock.now() + SOON, check_count=F("check_count") - 1)


@transaction.atomic(durable=True)
def _lease() -> int | None:
    at = clock.now()
    plan = (
        Plan.objects.filter(state=State.UNKNOWN.value, next_check_at__lte=at)
        .select_for_update(no_key=True, skip_locked=True)
        .order_by("next_check_at", "id")
        .first()
    )
    if plan is None:
        return None
    plan.next_check_at, plan.check_count = at + LEASE, plan.check_count + 1
    plan.save(update_fields=["next_check_at", "check_count"])
    return plan.pk


def find_out(*, plan_pk: int) -> Plan:
    """Ask the target for the plan's state, act on it, and while the plan lives try again with its one key.

    Holds no lock while it asks. May be repeated and run twice at once: the key makes the attempts one. Raises
    `TargetBusy`, having done nothing, where the target has as many calls as it may have.
    """
    plan = Plan.objects.select_related("agent", "target", "task", "policy").get(pk=plan_pk)
    if plan.state != State.UNKNOWN.value or plan.token_sealed is None:
        return plan
    with place_at(plan.target_id, patience=AT_ONCE):
        asked_at = clock.now()
        reply = remote_target().state(address(plan), plan_id=plan.plan_id, token=vault.open_token(plan))
        reach("state-in-hand", plan_pk)
        claimed = time.monotonic()
        again = _act_on(plan_pk, reply, asked_at)
        if again is not None:
            return carry_out(Call(plan_pk, again, claimed))
    return Plan.objects.get(pk=plan_pk)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What a state proves: an end, or that an attempt more is the way to find out."""

    state: State | None
    reason: AbandonReason | None = None


@transaction.atomic(durable=True)
def _act_on(plan_pk: int, reply: StateReply, asked_at: datetime) -> int | None:
    """Write down what the state proves; the pk of a new attempt where the key is to be tried again."""
    plan = lock_plan(plan_pk)
    at = clock.now()
    if plan.state != State.UNKNOWN.value:
        return None
    if reply.state is not None and not plan.has_been_known_to_target:
        plan.has_been_known_to_target = True
        plan.save(update_fields=["has_been_known_to_target"])
    settle_lost(plan, at=at)
    finding = _finding(plan, reply, asked_at, at)
    if finding is not None:
        _end(plan, finding, reply, at)
        return None
    if at < plan.expires_at:
        return start_attempt(plan, actor=SWEEP, at=at).pk
    if reply.state in (None, "pending") and _was_never_sent(plan):
        told = {"how": "unsent", "state": State.ABANDONED.value}
        tell(plan, Kind.COMMIT_RESOLVED, actor=SWEEP, data=told)
        ending.abandon(plan, AbandonReason.NOT_APPLIED, actor=SWEEP, at=at)
        return None
    pause = min(AFTER_EXPIRY * 2 ** min(plan.check_count, 6), SLOWEST)
    trusted_from = plan.expires_at + settings.STATE_TRUSTED_AFTER
    plan.next_check_at = (
        max(min(at + pause, trusted_from), at + timedelta(seconds=1)) if at < trusted_from else at + pause
    )
    plan.save(update_fields=["next_check_at"])
    return None


def _was_never_sent(plan: Plan) -> bool:
    """Whether every attempt of a locked plan ended and is proven to have sent nothing: no target need say more."""
    return not plan.commits.filter(Q(settled_at=None) | Q(may_have_arrived=True)).exists()


def _finding(plan: Plan, reply: StateReply, asked_at: datetime, at: datetime) -> _Finding | None:
    """CONTRACT section 6, second table. A no is believed only if it was read 60 s after the last attempt ended."""
    if reply.state == "committed":
        return _Finding(State.COMMITTED)
    attempts = plan.commits.filter(may_have_arrived=True).aggregate(started=Max("started_at"), ended=Max("settled_at"))
    last = max((moment for moment in attempts.values() if moment is not None), default=plan.state_changed_at)
    if plan.commits.filter(settled_at=None).exists() or asked_at < last + settings.STATE_TRUSTED_AFTER:
        return None
    match reply.state:
        case "conflicted":
            return _Finding(State.CONFLICTED)
        case "refused" | "rejected":
            return _Finding(State.REFUSED)
        case "expired":
            return _Finding(State.ABANDONED, AbandonReason.EXPIRED)
        case "abandoned":
            return _Finding(State.ABANDONED, AbandonReason.NOT_APPLIED)
    is_not_there = reply.state == "pending" or (reply.is_missing and plan.has_been_known_to_target)
    if is_not_there and asked_at >= plan.expires_at + settings.STATE_TRUSTED_AFTER:
        return _Finding(State.ABANDONED, AbandonReason.NOT_APPLIED)
    return None


def _end(plan: Plan, finding: _Finding, reply: StateReply, at: datetime) -> None:
    actor = target_actor(plan)
    assert finding.state is not None
    data = {"how": "state", "target_says": reply.state or "404", "state": finding.state.value}
    tell(plan, Kind.COMMIT_RESOLVED, actor=actor, data=data)
    match finding.state:
        case State.COMMITTED:
            attempt = attempt_that_arrived(plan, actor=actor, at=at)
            attempt.detail = "Found out by the plan's state at its target."
            ending.commit(plan, attempt, reply.result, actor=actor, at=at)
        case State.CONFLICTED:
            ending.conflict(plan, reply.changes, actor=actor, at=at, detail=reply.detail)
        case State.REFUSED:
            ending.refuse(plan, reply.detail or "The target refused it.", actor=actor, at=at)
        case _:
            assert finding.reason is not None
            if finding.reason is AbandonReason.EXPIRED:
                ending.expire(plan, at=at, actor=actor)
            else:
                ending.abandon(plan, finding.reason, actor=actor, at=at)


def confirm_received(limit: int = 20) -> int:
    """Ask remote targets about pending plans they have not told of yet. Returns about how many they did.

    Each is put off by one conditional update first, a little longer each time: so that several workers share the work,
    and plans of which a target knows nothing, a target that is down, or a plan that fails (which is logged) keep no
    other waiting.
    """
    done = 0
    for _ in range(limit * 10):
        pk = _put_off_unconfirmed() if done < limit else None
        if pk is None:
            break
        try:
            confirm_plan(plan_pk=pk)
        except (Unavailable, LockTimeout):
            continue
        except Exception:  # as in `find_out_unknown`
            logger.exception("What its target says of plan %d could not be taken in.", pk)
            continue
        done += 1
    return done


@transaction.atomic(durable=True)
def _put_off_unconfirmed() -> int | None:
    at = clock.now()
    plan = (
        Plan.objects.pending()
        .filter(Q(next_check_at=None) | Q(next_check_at__lte=at), has_been_known_to_target=False)
        .select_for_update(no_key=True, skip_locked=True)
        .order_by(F("next_check_at").asc(nulls_first=True), "id")
        .first()
    )
    if plan is None:
        return None
    pause = min(SOON * 2 ** min(plan.check_count, 6), SLOWEST)
    plan.next_check_at, plan.check_count = at + pause, plan.check_count + 1
    plan.save(update_fields=["next_check_at", "check_count"])
    return plan.pk
