"""What a person decides: approve (and commit in the same request), reject, settle what stayed unknown, ask again."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction

from audit.kinds import Kind
from plans import callbacks, clock, decision_sql, ending, plan_sql, policies
from plans.bulkhead import place_at
from plans.chronicle import SWEEP, person_actor, tell
from plans.commit import Call, attempt_that_arrived, carry_out, claim, settle_overdue
from plans.confirm import confirm_plan
from plans.decision_sql import Standing
from plans.errors import DecisionRefused, Fenced, Sentence, TargetBusy, Unavailable
from plans.faultpoints import reach
from plans.hosted_commit import apply_hosted
from plans.instants import format_instant, format_instant_exact
from plans.locks import LockTimeout, lock_plan
from plans.models import Approval, Plan, Target
from plans.ownership import NEVER_DECIDES, has_owned, is_own
from plans.schema import shown_digest
from plans.states import AbandonReason, State

MAX_REASON = 2_000


def approve_plan(*, plan_pk: int, person: Any, seen_digest: str, fact: str = "", reason: str = "") -> Plan:
    """Approve exactly what `seen_digest` names and, where that was the last approval needed, commit it.

    The state of what is returned is the outcome: committed, conflicted, refused, abandoned, unknown, or pending where
    more people have to approve. Locks the plan, and nothing while a remote target is called. Raises `DecisionRefused`,
    which is recorded, where the decision was not taken. A second press finds the plan decided and changes nothing.
    """

    def decide(plan: Plan) -> Call | DecisionRefused | None:
        return _approve(plan, person, seen_digest, fact, reason, claimed)

    with _told(plan_pk, person), _place(plan_pk):
        _confirm(plan_pk, person)
        claimed = time.monotonic()
        call = _decided(plan_pk, person, "approve", decide)
        if call is None:
            return _read(plan_pk)
        plan = carry_out(call)
    if plan.state == State.PENDING.value:
        raise _nothing_sent(plan)
    return plan


def reject_plan(*, plan_pk: int, person: Any, seen_digest: str, reason: str) -> Plan:
    """End a pending plan with a reason the agent gets. One rejection is enough. Raises `DecisionRefused`."""

    def decide(plan: Plan) -> DecisionRefused | None:
        known = decision_sql.look(plan, person.pk)
        if (refused := _may_not(plan, person, seen_digest, known)) is not None:
            return refused
        if (refused := _bad_reason(reason)) is not None:
            return refused
        ending.reject(
            plan, reviewer=person, actor=person_actor(person), seen_digest=seen_digest, reason=reason.strip(),
            at=known.at, data=_time_on_page(known),
        )  # fmt: skip
        return None

    _decided(plan_pk, person, "reject", decide)
    return _read(plan_pk)


def settle_unknown(*, plan_pk: int, person: Any, was_made: bool | None, reason: str) -> Plan:
    """Say by hand what became of an unknown commit, from 60 s after the plan's expiry, with a written reason.

    Made: committed, with no result known. Not made: abandoned (`not_applied`). None, where it was not said which, is
    refused like a missing reason. Raises `DecisionRefused`.
    """

    def decide(plan: Plan) -> DecisionRefused | None:
        at = clock.now()
        if (refused := _has_no_right(plan, person)) is not None:
            return refused
        if plan.state != State.UNKNOWN.value:
            return DecisionRefused(
                "not-unknown",
                409,
                Sentence("The outcome of this plan is known: it is %(state)s.", state=Sentence(plan.state)),
            )
        if at < plan.expires_at + settings.STATE_TRUSTED_AFTER:
            when = format_instant(plan.expires_at + settings.STATE_TRUSTED_AFTER)
            return DecisionRefused(
                "too-early", 409, Sentence("The desk still finds out by itself. Settle it from %(when)s.", when=when)
            )
        if was_made is None:
            return DecisionRefused("what-missing", 422, Sentence("Say whether it was made or not."), field="was_made")
        if (refused := _bad_reason(reason)) is not None:
            return refused
        actor = person_actor(person)
        state = State.COMMITTED if was_made else State.ABANDONED
        data = {"how": "person", "state": state.value, "reason": reason.strip()}
        tell(plan, Kind.COMMIT_RESOLVED, actor=actor, data=data)
        if was_made:
            attempt = attempt_that_arrived(plan, actor=actor, at=at)
            attempt.detail = "Settled by a person."
            ending.commit(plan, attempt, None, actor=actor, at=at)
        else:
            ending.abandon(plan, AbandonReason.NOT_APPLIED, actor=actor, at=at)
        return None

    _decided(plan_pk, person, "settle", decide)
    return _read(plan_pk)


def request_replan(*, plan_pk: int, person: Any) -> Plan:
    """Ask the agent, by its callback, for a new plan in place of one that ended without writing. May be repeated.

    Any reviewer may, of their own agents too: nothing is decided by it. Raises `DecisionRefused`.
    """

    def decide(plan: Plan) -> DecisionRefused | None:
        verdict = policies.is_reviewer(get_user_model().objects.get(pk=person.pk))
        if not verdict.is_allowed:
            return DecisionRefused(verdict.code, 403, verdict.sentence)
        if plan.state not in (State.CONFLICTED.value, State.ABANDONED.value, State.REFUSED.value):
            return DecisionRefused(
                "not-ended", 409, Sentence("Only a plan that ended without writing can be planned again.")
            )
        tell(plan, Kind.PLAN_REPLAN_REQUESTED, actor=person_actor(person))
        callbacks.queue(plan, "plan.replan_requested", at=clock.now())
        return None

    _decided(plan_pk, person, "replan", decide)
    return _read(plan_pk)


# --- one decision, from the lock to its event -----------------------------------------------------------------------

NOTHING_SENT, BUSY, TARGET_BUSY, TARGET_DOWN = "nothing-sent", "busy", "target-busy", "target-down"
BEING_COMMITTED = Sentence("This plan is being committed by somebody else right now.")
Decide = Callable[[Plan], Call | DecisionRefused | None]


def _decided(plan_pk: int, person: Any, decision: str, decide: Decide) -> Call | None:
    """Run `decide` on the locked plan in one transaction; a refusal is recorded and raised."""
    settle_overdue(plan_pk)
    try:
        with transaction.atomic(durable=True):
            plan = lock_plan(plan_pk)
            reach("decision-locked", plan_pk)
            outcome = decide(plan)
    except LockTimeout:
        outcome = DecisionRefused(BUSY, 409, BEING_COMMITTED)
    except Fenced as error:
        outcome = DecisionRefused("fenced", 423, error.sentence)
    except IntegrityError as error:
        outcome = _made_owner_meanwhile(error)
    if isinstance(outcome, DecisionRefused):
        if outcome.code != NOTHING_SENT:  # taken, and told as `commit.unsent`
            _record_refusal(plan_pk, person, decision, outcome)
        raise outcome
    return outcome


def _made_owner_meanwhile(error: IntegrityError) -> DecisionRefused:
    """Who was given the agent between our look and their decision; any other violation is a bug, and raised."""
    if getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) != NEVER_DECIDES:
        raise error
    return DecisionRefused("own-agent", 403, policies.OWN_AGENT)


@transaction.atomic(durable=True)
def _record_refusal(plan_pk: int, person: Any, decision: str, refused: DecisionRefused) -> None:
    plan = Plan.objects.select_related("agent", "target", "task").get(pk=plan_pk)
    data = {"decision": decision, "code": refused.code, "reason": str(refused.sentence), "state": plan.state}
    # One that gave up waiting for the plan's row must not wait for it again to say so.
    tell(plan, Kind.DECISION_REFUSED, actor=person_actor(person), data=data, is_numbered=refused.code != BUSY)


def _approve(
    plan: Plan, person: Any, seen_digest: str, fact: str, reason: str, claimed: float
) -> Call | DecisionRefused | None:
    known = decision_sql.look(plan, person.pk)
    at = known.at
    if (refused := _may_not(plan, person, seen_digest, known)) is not None:
        return refused
    guard = policies.guard_of(plan.actions, is_always=plan.policy.is_guarded)
    if guard is not None and not guard.is_met_by(fact):
        wrong = Sentence("That is not the fact in this plan. It is shown in change %(change)d.", change=guard.change)
        missing = Sentence("%(what)s.", what=guard.label)
        return DecisionRefused("wrong-fact", 422, wrong if fact.strip() else missing, field="fact")
    if plan.is_held_back:
        return DecisionRefused(
            "unconfirmed", 403, Sentence("Its target has not confirmed this plan, and the policy asks for that.")
        )
    standing = _void_lost_rights(plan, at) if known.approval_count else []
    if any(approval.reviewer_id == person.pk for approval in standing):
        return DecisionRefused(
            "approved-already", 409, Sentence("You approved this plan already. Somebody else has to, too.")
        )
    given = len(standing) + 1
    actor = person_actor(person)
    said = reason.strip()[:MAX_REASON]
    written = decision_sql.approval(
        plan, reviewer_pk=person.pk, seen_digest=seen_digest, reason=said, at=at, opened_at=known.opened_at
    )
    tell(plan, Kind.PLAN_APPROVED, actor=actor, change=written, data={
        "digest": seen_digest, "approval": given, "approvals_required": plan.approvals_required,
        **_time_on_page(known), "reason": said,
    })  # fmt: skip
    callbacks.queue(plan, "plan.approved", at=at)
    if given < plan.approvals_required:
        return None
    attempt = claim(plan, actor=actor, at=at, attempt_count=known.attempt_count)
    if attempt is None:
        return _decided_already(plan)
    if plan.is_hosted:
        apply_hosted(plan, attempt)
        return _nothing_sent(plan) if plan.state == State.PENDING.value else None
    return Call(plan.pk, attempt.pk, claimed)


def _time_on_page(known: Standing) -> dict[str, Any]:
    """When the person opened the page last, and from then to the decision; None where it was never opened."""
    if known.opened_at is None:
        return {"opened_at": None, "milliseconds_on_page": None}
    took = (known.at - known.opened_at) // timedelta(milliseconds=1)
    return {"opened_at": format_instant_exact(known.opened_at), "milliseconds_on_page": None if took < 0 else took}


def _may_not(plan: Plan, person: Any, seen_digest: str, known: Standing) -> DecisionRefused | None:
    """Why this person's decision on this plan is not taken, read under the lock; expires a plan that is due."""
    at = known.at
    if (refused := _refused_by(policies.may_decide(known.person, is_own=known.is_own))) is not None:
        return refused
    if plan.state != State.PENDING.value:
        return _decided_already(plan)
    if at >= plan.expires_at:
        ending.expire(plan, at=at, actor=person_actor(person))
        when = format_instant(plan.expires_at)
        return DecisionRefused(
            "expired", 410, Sentence("This plan expired at %(when)s. Nothing was written.", when=when)
        )
    if (overtaken := ending.overtaken_by(plan, known.overtaken)) is not None:
        ending.abandon(plan, overtaken, actor=SWEEP, at=at)
        return _decided_already(plan)
    if shown_digest(plan) != seen_digest:
        return DecisionRefused("out-of-date", 409, Sentence("This plan is not the one that was shown to you any more."))
    return None


def _has_no_right(plan: Plan, person: Any) -> DecisionRefused | None:
    now_person = get_user_model().objects.annotate(has_owned=has_owned(plan)).get(pk=person.pk)
    return _refused_by(policies.may_decide(now_person, is_own=is_own(plan, now_person)))


def _refused_by(verdict: policies.Verdict) -> DecisionRefused | None:
    return None if verdict.is_allowed else DecisionRefused(verdict.code, 403, verdict.sentence)


def _decided_already(plan: Plan) -> DecisionRefused:
    """The refusal for a plan that is not pending: who decided, or is committing, and since when."""
    since = format_instant(plan.state_changed_at)
    attempt = plan.commits.order_by("-number").first()
    who = attempt.started_by_name if attempt is not None else ""
    match State(plan.state):
        case State.COMMITTING:
            return DecisionRefused(
                "committing",
                409,
                Sentence("This plan is being committed by %(who)s since %(since)s.", who=who, since=since),
            )
        case State.UNKNOWN:
            return DecisionRefused(
                "unknown", 409, Sentence("%(who)s approved this plan, and its outcome is not known yet.", who=who)
            )
        case State.COMMITTED:
            return DecisionRefused(
                "committed", 409, Sentence("This plan was committed by %(who)s at %(since)s.", who=who, since=since)
            )
        case State.REJECTED:
            name = person_actor(plan.rejection.reviewer).name
            return DecisionRefused(
                "rejected", 409, Sentence("This plan was rejected by %(name)s at %(since)s.", name=name, since=since)
            )
        case State.ABANDONED:
            return DecisionRefused(
                "abandoned",
                410,
                Sentence(
                    "This plan was abandoned (%(reason)s) at %(since)s.",
                    reason=ending.ABANDONED_BECAUSE[AbandonReason(plan.abandonment.reason)],
                    since=since,
                ),
            )
        case _:
            return DecisionRefused(
                plan.state,
                409,
                Sentence("This plan is %(state)s since %(since)s.", state=Sentence(plan.state), since=since),
            )


def _void_lost_rights(plan: Plan, at: Any) -> list[Approval]:
    """An approval by somebody who has since lost the right is void. Returns those that stand, under the plan's lock."""
    standing: list[Approval] = []
    given = Approval.objects.filter(plan=plan, voided_at=None).select_related("reviewer")
    for approval in given.annotate(has_owned=has_owned(plan, "reviewer_id")):
        own = approval.reviewer_id == plan.agent.owner_id or approval.has_owned
        if not policies.may_decide(approval.reviewer, is_own=own).is_allowed:
            approval.voided_at, approval.void_reason = at, "right-lost"
            approval.save(update_fields=["voided_at", "void_reason"])
        else:
            standing.append(approval)
    return standing


def _nothing_sent(plan: Plan) -> DecisionRefused:
    last = plan.commits.order_by("-number")[0]
    return DecisionRefused(
        NOTHING_SENT,
        503,
        Sentence("Nothing was sent and nothing was written. %(detail)s", detail=Sentence(last.detail)),
    )


def _bad_reason(reason: str) -> DecisionRefused | None:
    if not reason.strip() or "\x00" in reason:
        return DecisionRefused("reason-missing", 422, Sentence("Write the reason: the agent gets it."), field="reason")
    if len(reason) > MAX_REASON:
        return DecisionRefused(
            "reason-too-long",
            422,
            Sentence("At most %(max_reason)s characters.", max_reason=MAX_REASON),
            field="reason",
        )
    return None


@contextmanager
def _told(plan_pk: int, person: Any) -> Iterator[None]:
    """Record an approval that was refused before its plan was locked; the others tell of themselves.

    Who may not decide hears that, whatever became of the question to the target.
    """
    try:
        yield
    except DecisionRefused as refused:
        if refused.code not in (TARGET_BUSY, TARGET_DOWN):
            raise
        refused = _has_no_right(plan_sql.get_plan(plan_pk), person) or refused
        _record_refusal(plan_pk, person, "approve", refused)
        raise refused from None


@contextmanager
def _place(plan_pk: int) -> Iterator[None]:
    """A place at the plan's target for all that an approval asks of it, from before anything is sent or claimed."""
    target_pk, kind, state = plan_sql.get_target_and_state(plan_pk)
    with ExitStack() as places:
        if kind == Target.REMOTE and state == State.PENDING.value:
            try:
                places.enter_context(place_at(target_pk))
            except TargetBusy as error:
                sentence = Sentence("Nothing was sent. %(detail)s Approve again in a moment.", detail=error.sentence)
                raise DecisionRefused(TARGET_BUSY, 503, sentence) from None
        yield


def _confirm(plan_pk: int, person: Any) -> None:
    """Ask a remote target about the plan before an approval is accepted; one that is down: nothing is sent."""
    assert not connection.in_atomic_block
    try:
        confirm_plan(plan_pk=plan_pk)
    except Unavailable as error:
        raise DecisionRefused(
            TARGET_DOWN, 503, Sentence("Nothing was sent. %(detail)s", detail=error.sentence)
        ) from None
    except LockTimeout:
        refused = DecisionRefused(BUSY, 409, BEING_COMMITTED)
        _record_refusal(plan_pk, person, "approve", refused)
        raise refused from None


def _read(plan_pk: int) -> Plan:
    return plan_sql.get_plan(plan_pk)
