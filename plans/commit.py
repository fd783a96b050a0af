"""The commit engine: claim, call, settle. Whatever dies or repeats, a plan is applied at most once."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from audit.kinds import Kind
from audit.recording import Actor
from plans import callbacks, clock, decision_sql, ending, plan_sql, vault
from plans.chronicle import SWEEP, target_actor, tell
from plans.errors import Fenced, Sentence, Unavailable
from plans.faultpoints import reach
from plans.locks import LockTimeout, lock_plan, still_limited
from plans.models import Approval, Commit, Fence, Plan, Wish
from plans.states import BUSY, AbandonReason, Outcome, State
from plans.targets.base import (
    Address,
    Applied,
    CommitReply,
    Declined,
    Lapsed,
    Moved,
    RemoteTarget,
    Unclear,
    Unsent,
)
from plans.targets.http import HttpTarget, address_of

logger = logging.getLogger(__name__)

FIRST_CHECK_AFTER = timedelta(seconds=2)
LOST = "No answer was written down in time: whoever made the attempt may have died."


@dataclass(frozen=True, slots=True)
class Call:
    """An attempt that is on disk and has yet to be made. `claimed` is `time.monotonic()` from before the claim."""

    plan_pk: int
    attempt_pk: int
    claimed: float


# --- claim ----------------------------------------------------------------------------------------------------------


def claim(plan: Plan, *, actor: Actor, at: datetime, attempt_count: int | None = None) -> Commit | None:
    """Move a locked, pending, living, approved plan to `committing` and write down the attempt.

    Raises `Fenced` where another plan may be writing to one of its action targets. None where a write of its agent has
    overtaken it, which is looked for behind the fence, where no other can be under way: then it is abandoned. The
    caller's transaction must be committed before a remote target is called. `attempt_count`: attempts so far, where
    the caller read it under the lock.
    """
    if plan.is_hosted:
        check_fence(plan.agent_id, plan.target_id, plan.action_targets)
    else:
        _take_fence(plan)
    if (overtaken := ending.overtaken_by(plan)) is not None:
        ending.abandon(plan, overtaken, actor=SWEEP, at=at)
        return None
    attempt = _start(plan, actor, at, attempt_count, is_claim=True)
    plan.state, plan.state_changed_at, plan.claimed_at = State.COMMITTING.value, at, at
    reach("claim-written", plan.pk)
    return attempt


def start_attempt(plan: Plan, *, actor: Actor, at: datetime) -> Commit:
    """Write down one more attempt of a locked plan, under the plan's one key, and tell it."""
    return _start(plan, actor, at, None, is_claim=False)


def _start(plan: Plan, actor: Actor, at: datetime, attempt_count: int | None, *, is_claim: bool) -> Commit:
    """The attempt, the plan's move and the event, in one statement. `attempt_count` was read under the plan's lock."""
    number = (plan.commits.count() if attempt_count is None else attempt_count) + 1
    change = decision_sql.attempt(plan, number, actor, at, is_claim=is_claim)
    told = tell(plan, Kind.COMMIT_STARTED, actor=actor, data={"attempt": number}, change=change)
    attempt = Commit(
        pk=told.returned[0],
        plan=plan,
        number=number,
        started_by=actor.type,
        started_by_id=actor.id,
        started_by_name=actor.name,
        started_at=at,
    )
    attempt._state.adding, attempt._state.db = False, plan._state.db
    return attempt


def _take_fence(plan: Plan) -> None:
    """Insert the plan's fence rows, sorted, so that two claims never wait for each other crosswise.

    The unique constraint decides who is first; an unconfirmed plan, which has no row for everybody, looks for those
    of others besides. How long it waits, `lock_plan` said.
    """
    scopes = [str(plan.agent_id)] + ([Fence.EVERYBODY] if plan.has_confirmed_actions else [])
    with still_limited(), connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO plans_fence (plan_id, target_id, action_target, scope)
            SELECT %s, %s, touched, scope FROM unnest(%s::text[]) AS touched, unnest(%s::text[]) AS scope
            ORDER BY touched, scope
            ON CONFLICT ON CONSTRAINT plans_fence_one_plan_per_action_target DO NOTHING
            """,
            [plan.pk, plan.target_id, plan.action_targets, scopes],
        )
        if cursor.rowcount != len(plan.action_targets) * len(scopes):
            raise _fenced(plan.agent_id, plan.target_id, plan.action_targets, but=plan.pk)
    if not plan.has_confirmed_actions:
        check_fence(plan.agent_id, plan.target_id, plan.action_targets, but=plan.pk)


def check_fence(agent_pk: int, target_pk: int, action_targets: Sequence[str], *, but: int | None = None) -> None:
    """Raise `Fenced` where a plan that may be writing to one of these targets keeps this agent out."""
    if _fences(agent_pk, target_pk, action_targets, but).exists():
        raise _fenced(agent_pk, target_pk, action_targets, but)


def _fences(agent_pk: int, target_pk: int, action_targets: Sequence[str], but: int | None) -> "QuerySet[Fence]":
    return Fence.objects.filter(
        Q(scope=Fence.EVERYBODY) | Q(scope=str(agent_pk)), target_id=target_pk, action_target__in=action_targets
    ).exclude(plan_id__in=[but] if but else [])


def _fenced(agent_pk: int, target_pk: int, action_targets: Sequence[str], but: int | None) -> Fenced:
    """The refusal; it names the plan in the way only to that plan's own agent."""
    held = _fences(agent_pk, target_pk, action_targets, but).select_related("plan").order_by("id").first()
    own = held.plan.plan_id if held is not None and held.plan.agent_id == agent_pk else None
    touched = held.action_target if held is not None else action_targets[0]
    members = {"fenced_by": own} if own is not None else {}
    sentence = "Another plan that touches %(touched)s is being written, or its outcome is not known yet."
    return Fenced(Sentence(sentence, touched=touched), **members)


# --- remote: call outside any transaction, settle afterwards --------------------------------------------------------


def remote_target() -> RemoteTarget:
    """How remote targets are spoken to."""
    return HttpTarget(timeout=settings.COMMIT_TIMEOUT)


def address(plan: Plan) -> Address:
    """Where this plan commits: the address it was received under, never one that came later."""
    assert plan.address is not None, "a hosted plan has no address"
    where = plan.address
    return address_of(
        base_url=where.base_url,
        commit_path=where.commit_path,
        status_path=where.status_path,
        operation=plan.operation,
        plan_id=plan.plan_id,
        credentials=vault.open_credentials(where),
    )


def carry_out(call: Call) -> Plan:
    """Make the attempt that a claim wrote down, once, and settle it. Holds no transaction while it waits.

    A worker that slept too long between claim and call sends nothing: its claim may be taken for lost by now.
    """
    assert not connection.in_atomic_block, "a target is never called inside a transaction"
    reach("claim-on-disk", call.plan_pk)
    read_from = time.monotonic()  # before `at` is read: what passes in between only makes less of the time that is left
    plan, at = plan_sql.get_plan_to_send(call.plan_pk)
    if plan.token_sealed is None:
        return settle(call.attempt_pk, Unsent("Nothing was sent: the plan had ended."))
    token, where = vault.open_token(plan), address(plan)
    spare = settings.CLAIM_OVERDUE_AFTER - settings.COMMIT_TIMEOUT
    left = plan.expires_at - at
    send_before = min(call.claimed + spare.total_seconds(), read_from + left.total_seconds())
    if time.monotonic() >= send_before:
        return settle(call.attempt_pk, Unsent("Nothing was sent: the time for it had passed."))
    reply = remote_target().commit(
        where,
        token=token,
        fingerprint=plan.input_fingerprint,
        key=plan.idempotency_key,
        send_before=send_before,
    )
    reach("answer-in-hand", call.plan_pk)
    settled = settle(call.attempt_pk, reply, call.plan_pk)
    reach("answer-on-disk", call.plan_pk)
    return settled


@transaction.atomic(durable=True)
def settle(attempt_pk: int, reply: CommitReply, plan_pk: int | None = None) -> Plan:
    """Write down how an attempt came out. A late answer counts too; one against an end is told, and changes nothing.

    A no decides only where no other attempt of the plan may have arrived (CONTRACT section 6). `plan_pk` is the
    attempt's plan, where the caller knows it.
    """
    if plan_pk is None:
        plan_pk = Commit.objects.values_list("plan_id", flat=True).get(pk=attempt_pk)
    plan = lock_plan(plan_pk, is_patient=True)
    attempts, at = plan_sql.get_attempts(plan)
    attempt = attempts.pop(attempt_pk)
    attempt.http_status, attempt.detail = reply.status, getattr(reply, "detail", "")
    if State(plan.state) not in BUSY:
        _settle_late(plan, attempt, reply, at)
        return plan
    others = any(other.may_have_arrived for other in attempts.values())
    match reply:
        case Applied(result=result):
            _resolved(plan, attempt, State.COMMITTED)
            ending.commit(plan, attempt, result, actor=target_actor(plan), at=at)
        case Unsent(detail=detail) if not others and plan.state == State.COMMITTING.value:
            unsend(plan, attempt, detail, at=at)
        case Unsent():  # this attempt, but not one before it; or the plan was taken for lost by now
            settle_attempt(attempt, Outcome.UNSENT, at)
            mark_unknown(plan, at=at, detail=attempt.detail)
        case Moved() | Declined() | Lapsed() if not others:
            _resolved(plan, attempt, _END_BY_NO[type(reply)])
            _end_by_no(plan, attempt, reply, at)
        case Moved() | Declined() | Lapsed() | Unclear():
            settle_attempt(attempt, Outcome.UNKNOWN, at)
            mark_unknown(plan, at=at, detail=attempt.detail, retry_after=getattr(reply, "retry_after", None))
    reach("answer-written", plan.pk)
    return plan


_END_BY_NO: dict[type[CommitReply], State] = {
    Moved: State.CONFLICTED,
    Declined: State.REFUSED,
    Lapsed: State.ABANDONED,
}


def _end_by_no(plan: Plan, attempt: Commit, reply: Moved | Declined | Lapsed, at: datetime) -> None:
    actor = target_actor(plan)
    match reply:
        case Moved(changes=changes, detail=detail):
            settle_attempt(attempt, Outcome.CONFLICTED, at)
            ending.conflict(plan, changes, actor=actor, at=at, detail=detail)
        case Declined(detail=detail):
            settle_attempt(attempt, Outcome.REFUSED, at)
            ending.refuse(plan, detail, actor=actor, at=at)
        case Lapsed():
            settle_attempt(attempt, Outcome.EXPIRED, at)
            ending.expire(plan, at=at, actor=actor)


def _settle_late(plan: Plan, attempt: Commit, reply: CommitReply, at: datetime) -> None:
    """An answer for a plan that ended meanwhile, or whose attempt was found unsent: news, never a change."""
    if attempt.outcome is None:
        settle_attempt(attempt, Outcome.UNSENT if isinstance(reply, Unsent) else Outcome.UNKNOWN, at)
    if isinstance(reply, Applied) and plan.state != State.COMMITTED.value:
        tell(
            plan,
            Kind.COMMIT_CONTRADICTED,
            actor=target_actor(plan),
            data={"state": plan.state, "attempt": attempt.number, "target_says": "committed"},
        )


def settle_attempt(attempt: Commit, outcome: Outcome, at: datetime) -> None:
    """Write down how an attempt ended. In the caller's transaction, with the plan locked."""
    attempt.outcome, attempt.settled_at = outcome.value, at
    attempt.may_have_arrived = outcome is not Outcome.UNSENT
    attempt.save(update_fields=["outcome", "settled_at", "may_have_arrived", "http_status", "detail"])


def unsend(plan: Plan, attempt: Commit, detail: str, *, at: datetime) -> None:
    """Provably nothing was sent: pending again, the approval that started it void, a kept wish carried out."""
    attempt.detail = detail
    settle_attempt(attempt, Outcome.UNSENT, at)
    plan.state, plan.state_changed_at, plan.claimed_at = State.PENDING.value, at, None
    plan.save(update_fields=["state", "state_changed_at", "claimed_at"])
    Fence.objects.filter(plan=plan).delete()
    voided = 0
    if attempt.started_by == "person":
        approvals = Approval.objects.filter(plan=plan, voided_at=None, reviewer_id=int(attempt.started_by_id))
        voided = approvals.update(voided_at=at, void_reason="unsent")
    tell(plan, Kind.COMMIT_UNSENT, actor=target_actor(plan), data={
        "attempt": attempt.number, "detail": detail, "approvals_voided": voided,
    })  # fmt: skip
    wish = Wish.objects.filter(agent=plan.agent, target=plan.target, plan_id=plan.plan_id).first()
    if wish is not None:
        ending.abandon(plan, AbandonReason(wish.reason), actor=SWEEP, at=at, data={"wished_at_commit": True})
    elif (overtaken := ending.overtaken_by(plan)) is not None:  # while it could not be ended
        ending.give_up(plan, overtaken, actor=SWEEP, at=at)


def mark_unknown(plan: Plan, *, at: datetime, detail: str, retry_after: timedelta | None = None) -> None:
    """An attempt may have arrived and nothing trustworthy is known: say so, and plan when to look again."""
    is_news = plan.state == State.COMMITTING.value
    if is_news:
        plan.state, plan.state_changed_at, plan.unknown_since = State.UNKNOWN.value, at, at
        plan.check_count = 0
    pause = min(FIRST_CHECK_AFTER * 2 ** min(plan.check_count, 5), timedelta(minutes=1))
    plan.next_check_at = at + max(pause, min(retry_after or pause, timedelta(minutes=5)))
    plan.save(update_fields=["state", "state_changed_at", "unknown_since", "next_check_at", "check_count"])
    tell(plan, Kind.COMMIT_UNKNOWN, actor=SWEEP, data={"detail": detail})
    if is_news:
        callbacks.queue(plan, "plan.unknown", at=at)


def _resolved(plan: Plan, attempt: Commit, state: State) -> None:
    """Where an outcome was unknown before, tell first how it was found out."""
    if plan.state == State.UNKNOWN.value:
        data = {"how": "answer", "attempt": attempt.number, "state": state.value}
        tell(plan, Kind.COMMIT_RESOLVED, actor=target_actor(plan), data=data)


def settle_overdue(plan_pk: int) -> bool:
    """Make a plan whose claim is 45 s old and unsettled `unknown`. True where it did; may be repeated.

    Looks before it locks: nobody waits here for a row in which there is nothing to settle, and somebody who holds the
    row for long settles it.
    """
    if not decision_sql.is_overdue(plan_pk, settings.CLAIM_OVERDUE_AFTER):
        return False
    try:
        return _settle_overdue(plan_pk)
    except LockTimeout:
        return False


@transaction.atomic(durable=True)
def _settle_overdue(plan_pk: int) -> bool:
    plan = lock_plan(plan_pk)
    at = clock.now()
    if plan.state != State.COMMITTING.value or plan.claimed_at is None:
        return False
    if at < plan.claimed_at + settings.CLAIM_OVERDUE_AFTER:
        return False
    if not settle_lost(plan, at=at):
        mark_unknown(plan, at=at, detail=LOST)
    return True


def settle_lost(plan: Plan, *, at: datetime) -> bool:
    """Call the attempts of a locked, busy plan that nobody settled in 45 s unknown. True where there were any."""
    lost = list(plan.commits.filter(settled_at=None, started_at__lte=at - settings.CLAIM_OVERDUE_AFTER))
    for attempt in lost:
        attempt.detail = LOST
        settle_attempt(attempt, Outcome.UNKNOWN, at)
    if lost:
        mark_unknown(plan, at=at, detail=LOST)
    return bool(lost)


def attempt_that_arrived(plan: Plan, *, actor: Actor, at: datetime) -> Commit:
    """The newest attempt of a locked plan that may have arrived, to carry the result of a commit found out later.

    Where none may have, the target wrote it without us, and gets a row that says so.
    """
    arrived = plan.commits.filter(may_have_arrived=True).order_by("-number").first()
    return arrived or Commit.objects.create(
        plan=plan,
        number=plan.commits.count() + 1,
        started_by=actor.type,
        started_by_id=actor.id,
        started_by_name=actor.name,
        started_at=at,
        detail="Not sent by the desk: the target says that it was committed.",
    )


def unavailable(plan: Plan) -> Unavailable:
    """The refusal for an attempt that sent nothing."""
    last = plan.commits.order_by("-number").first()
    refusal = Unavailable(last.detail if last is not None else "Nothing was sent.", retry_after_seconds=5)
    refusal.headers["Retry-After"] = "5"
    return refusal
