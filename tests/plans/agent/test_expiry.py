"""Nothing is sent at or past expires_at, by the desk's clock, whatever the host's says."""

from datetime import UTC, datetime, timedelta

import pytest

from plans.agent import Committed, Desk, Expired
from plans.agent.clock import DeskClock
from tests.plans.agent.scripted_desk import ScriptedDesk

INPUTS = {"customer_id": "77", "address": "2 Harbour Street"}


class Steady:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_clock_is_on_the_cautious_side_of_a_date_header() -> None:
    steady = Steady()
    clock = DeskClock(steady)
    clock.learn("Sat, 14 Mar 2026 09:31:12 GMT", 1000.0, 1000.5)
    steady.now = 1000.5
    # Written between sending and answering, and up to a second later than it says.
    assert clock.latest() == datetime(2026, 3, 14, 9, 31, 13, 500000, tzinfo=UTC)
    assert clock.earliest() == datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)


def test_a_slow_answer_does_not_widen_what_is_known() -> None:
    steady = Steady()
    clock = DeskClock(steady)
    clock.learn("Sat, 14 Mar 2026 09:31:12 GMT", 1000.0, 1000.1)
    clock.learn("Sat, 14 Mar 2026 09:31:42 GMT", 1000.1, 1030.1)
    steady.now = 1030.1
    assert clock.latest() - clock.earliest() <= timedelta(seconds=1.2)


def test_a_clock_that_was_set_is_learnt_anew() -> None:
    steady = Steady()
    clock = DeskClock(steady)
    clock.learn("Sat, 14 Mar 2026 09:31:12 GMT", 1000.0, 1000.1)
    clock.learn("Sat, 14 Mar 2026 08:00:00 GMT", 1000.1, 1000.2)
    steady.now = 1000.2
    assert clock.latest() < datetime(2026, 3, 14, 8, 0, 2, tzinfo=UTC)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Sat, 99 Mar 2026 09:31:12 GMT"])
def test_a_date_that_cannot_be_read_says_nothing(date: str | None) -> None:
    clock = DeskClock()
    clock.learn(date, 0.0, 0.1)
    assert abs(clock.latest() - datetime.now(UTC)) < timedelta(seconds=5)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_desk_whose_clock_is_hours_away_expires_plans_by_its_own(
    desk: Desk, server: ScriptedDesk, hours: int
) -> None:
    server.clock_ahead = timedelta(hours=hours)
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", INPUTS)
        assert isinstance(task.commit(plan), Committed)


@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_a_plan_whose_time_is_over_at_the_desk_is_not_sent(desk: Desk, server: ScriptedDesk, hours: int) -> None:
    server.clock_ahead = timedelta(hours=hours)
    server.lifetime = timedelta(milliseconds=1)
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", INPUTS)
        assert task.commit(plan) == Expired(plan.plan_id, plan.expires_at)
        assert server.at("commit") == []
        server.lifetime = timedelta(minutes=10)
        again = task.dry_run("address.update", INPUTS)
        assert again.plan_id != plan.plan_id
        assert isinstance(task.commit(again), Committed)


def test_a_plan_people_decide_expires_by_the_word_of_the_desk(desk: Desk, server: ScriptedDesk) -> None:
    server.lifetime = timedelta(milliseconds=1)
    with desk.task("t1") as task:
        plan = task.dry_run("refund", {"invoice_id": "4412"}, intent="refund:t1")
        server.approve(plan.plan_id)
        assert isinstance(task.commit(plan), Committed)
