"""What became of a plan: the state by plan id, and waiting on it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from plans.agent import outcomes, stopping
from plans.agent.answers import Reader, committed_at
from plans.agent.clock import steady
from plans.agent.http import Answer, NoAnswer
from plans.agent.line import Line, Patience, is_worth_a_retry, retry_after
from plans.agent.outcomes import Ended, Expired, Outcome, Stale, Unavailable, Unknown, Waiting
from plans.agent.plan import Plan, StoredPlan
from plans.states import AbandonReason, State

LONGEST_HOLD: Final = 30
"""Seconds that the desk holds an answer at most (CONTRACT 5.3)."""

GRACE: Final = 3.0
"""Seconds for a held answer to travel."""

AFTER_EXPIRY: Final = timedelta(seconds=120)
"""How long past its expiry a wait without a timeout goes on: a commit's 45 s, and a sweep's 60."""


def path_of(plan: Plan) -> str:
    """Where the desk answers about this plan. Ids need no quoting in a path (CONTRACT section 4)."""
    return f"/api/v1/plans/{plan.plan_id}"


def settle(line: Line, plan: Plan, outcome: Ended, at: datetime | None = None) -> Ended:
    """Keeps how the plan ended, `at` that time by the desk's clock, and what a commit means for the agent's others."""
    line.ledger.settle(plan, outcome, at)
    return outcome


def take_in(line: Line, plan: Plan, answer: Answer) -> Ended | State:
    """Keeps what a state answer tells, and returns it. Raises DeskError for an answer that is no state of this plan."""
    reader = Reader(line, plan, line.ledger.token(plan))
    found = reader.read_state(answer.members()) if answer.status == 200 else None
    if found is None:
        raise line.error(answer, token=reader.token, plan_write="possible", plan_id=plan.plan_id)
    if isinstance(found, State):
        line.ledger.note_state(plan, found.value)
        return found
    return settle(line, plan, found, committed_at(answer))


def ask_state(line: Line, plan: Plan, patience: Patience) -> Ended | State | None:
    """The plan's state now; None where the desk could not be asked in this time."""
    answer = line.ask_patiently("GET", path_of(plan), query={"target": plan.target}, patience=patience)
    return None if isinstance(answer, NoAnswer) or is_worth_a_retry(answer) else take_in(line, plan, answer)


def look(line: Line, stored: StoredPlan, limit: float | None = None) -> Outcome:
    """What the desk says of the plan at this moment. Sends nothing that could write."""
    if stored.end is not None:
        return stored.end
    found = ask_state(line, stored.plan, line.patience(limit))
    return read(line.ledger.get_plan(stored.plan), found)


def read(stored: StoredPlan, found: Ended | State | None) -> Outcome:
    """What a state means for the agent, together with what is known here."""
    plan = stored.plan
    match found:
        case None:
            return Unknown(plan.plan_id, plan.review_url) if stored.may_have_arrived else Unavailable(plan.plan_id)
        case State.UNKNOWN:
            return Unknown(plan.plan_id, plan.review_url)
        case State.COMMITTING:
            return Waiting(plan.plan_id, plan.review_url, "committing")
        case State():
            if stored.may_have_arrived:
                return Unknown(plan.plan_id, plan.review_url)
            if stored.touched_by:
                return Stale(plan.plan_id, stored.touched_by)
            return Waiting(plan.plan_id, plan.review_url)
        case outcomes.Abandoned(reason=AbandonReason.INPUTS_CHANGED) if stored.touched_by:
            return Stale(plan.plan_id, stored.touched_by)
        case outcome:
            return outcome


@dataclass(slots=True)
class _Rest:
    """Pauses between questions that were answered at once: never a tight loop, whatever the desk does."""

    line: Line
    deadline: float
    count: int = 0

    def take(self, least: float | None) -> None:
        pace = self.line.pace
        delay = max(least or 0.0, min(pace.longest_delay, pace.first_delay * 2**self.count))
        self.count += 1
        stopping.sleep(max(0.0, min(delay, self.deadline - steady())))


def wait_for(line: Line, stored: StoredPlan, timeout: float | None) -> Outcome:
    """Asks for the state, held by the desk, until the plan ends or the time is over; then nothing asks any more.

    Without a timeout the plan's own expiry bounds it. Sends nothing that could write.
    """
    if stored.end is not None:
        return stored.end
    plan = stored.plan
    if timeout is None:
        timeout = max(0.0, (plan.expires_at + AFTER_EXPIRY - line.clock.earliest()).total_seconds())
    deadline = steady() + timeout
    rest = _Rest(line, deadline)
    found: Ended | State | None = None
    while True:
        left = max(0.0, deadline - steady())
        hold = min(LONGEST_HOLD, int(left))
        query = {"target": plan.target, "wait": str(hold)}
        asked_at = steady()
        answer = line.http.ask("GET", path_of(plan), query=query, timeout=hold + GRACE)
        if isinstance(answer, Answer) and not is_worth_a_retry(answer):
            found = take_in(line, plan, answer)
        now = line.ledger.get_plan(plan)
        if now.outcome is not None or _is_stale(now, found) or steady() >= deadline:
            return read(now, now.outcome or found)
        if is_worth_a_retry(answer) or steady() - asked_at < max(hold, 1):
            rest.take(retry_after(answer))


def has_expired(line: Line, plan: Plan) -> bool:
    """Whether it may be at or past the plan's expiry at the desk, on the cautious side by up to a second."""
    return line.clock.latest() >= plan.expires_at


def expired(plan: Plan) -> Expired:
    """The outcome of a plan that was not sent because its time was over."""
    return Expired(plan.plan_id, plan.expires_at)


def _is_stale(stored: StoredPlan, found: Ended | State | None) -> bool:
    return found is State.PENDING and bool(stored.touched_by) and not stored.may_have_arrived
