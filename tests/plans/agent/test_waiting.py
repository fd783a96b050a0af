"""Waiting asks until its time is over, and then nothing asks any more."""

import threading
import time

import pytest

from plans.agent import Committed, Desk, DeskError, Plan, Rejected, Task, Unavailable, Waiting
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, drop, problem


def make_plan(task: Task) -> Plan:
    return task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent="refund:t1")


@pytest.mark.slow
def test_o96_after_the_timeout_nothing_asks_any_more_and_a_late_decision_harms_nothing(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        started = time.monotonic()
        assert task.wait(plan, timeout=1.5) == Waiting(plan.plan_id, plan.review_url)
        assert 1.4 < time.monotonic() - started < 3
        asked, threads = len(server.heard), threading.active_count()
        server.approve(plan.plan_id)
        time.sleep(2)
        assert len(server.heard) == asked
        assert threading.active_count() <= threads
        assert isinstance(task.wait(plan, timeout=1), Committed)


def test_a_decision_during_the_wait_is_told_at_once(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        decide = threading.Timer(
            0.3, server.set_state, (plan.plan_id, "rejected"), {"rejection": {"reason": "wrong invoice"}}
        )
        decide.start()
        started = time.monotonic()
        assert task.wait(plan, timeout=20.5) == Rejected(plan.plan_id, "wrong invoice")
        assert time.monotonic() - started < 3
        assert len(server.at("state")) == 1
        assert server.at("state")[0].query == {"target": "billing", "wait": "20"}


def test_one_question_is_held_for_thirty_seconds_at_most(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("state", Step(then=lambda: server.approve(plan.plan_id)))
        task.wait(plan, timeout=3600)
        assert server.at("state")[0].query["wait"] == "30"


def test_a_wait_outlives_a_desk_that_stumbles(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("state", drop(), problem(503, "unavailable"), problem(429, "too-many"))
        threading.Timer(0.5, server.approve, (plan.plan_id,)).start()
        assert isinstance(task.wait(plan, timeout=10), Committed)


def test_a_desk_that_cannot_be_asked_at_all_is_unavailable(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("state", *[drop()] * 500)
        assert task.wait(plan, timeout=0.5) == Unavailable(plan.plan_id)
        assert 1 < len(server.at("state")) < 20
        server.script.clear()


def test_a_desk_that_does_not_hold_its_answers_is_not_asked_in_a_tight_loop(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        members = {"plan_id": plan.plan_id, "target": "billing", "state": "pending"}
        server.next("state", *[Step(status=200, members=members)] * 500)
        assert task.wait(plan, timeout=1) == Waiting(plan.plan_id, plan.review_url)
        assert len(server.at("state")) < 25
        server.script.clear()


@pytest.mark.parametrize("members", [{}, {"plan_id": "plan_other", "state": "committed"}, {"state": "committed"}])
def test_an_answer_about_another_plan_is_raised(desk: Desk, server: ScriptedDesk, members: dict[str, str]) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("state", Step(status=200, members=members))
        with pytest.raises(DeskError):
            task.wait(plan, timeout=1)


def test_a_plan_the_desk_does_not_know_is_raised(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("state", problem(404, "not-found"))
        with pytest.raises(DeskError) as caught:
            task.wait(plan, timeout=1)
        assert (caught.value.slug, caught.value.plan_id) == ("not-found", plan.plan_id)


def test_a_wait_without_a_timeout_is_bounded_by_the_plans_expiry(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        threading.Timer(0.3, server.approve, (plan.plan_id,)).start()
        assert isinstance(task.wait(plan), Committed)
