"""However a task is left, what it planned and did not do is abandoned, and the desk is told; never silently."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plans.agent import Committed, Desk, DeskUnavailable, Plan, Task, TaskEnded, UntoldWarning, Waiting
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import ScriptedDesk, drop, problem


def make_plan(task: Task) -> Plan:
    return task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent=f"refund:{task.task_id}")


def work_in(task: Task, act: Callable[[Plan], object]) -> None:
    """What an agent does: it plans, acts on the plan, and leaves."""
    with task:
        act(make_plan(task))


def is_told(server: ScriptedDesk, plan: Plan) -> bool:
    return server.plans[plan.plan_id]["abandonment"] == {"reason": "task_ended"} and "t1" in server.ended_tasks


def test_o89_a_task_that_returns_abandons_what_is_pending(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
    assert task.ended == [(plan.plan_id, "abandoned")]
    assert is_told(server, plan)


def test_o89_a_task_that_raises_abandons_what_is_pending_and_raises(desk: Desk, server: ScriptedDesk) -> None:
    task = desk.task("t1")
    with pytest.raises(ZeroDivisionError):
        work_in(task, lambda _: 1 / 0)
    plan, _ = task.plans()[0]
    assert task.ended == [(plan.plan_id, "abandoned")]
    assert is_told(server, plan)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where whoever started the tests has it ignored, as shells do for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_o89_ctrl_c_in_the_middle_of_a_wait_abandons_what_is_pending(desk: Desk, server: ScriptedDesk) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    task = desk.task("t1")
    with pytest.raises(KeyboardInterrupt):
        work_in(task, lambda plan: task.wait(plan, timeout=30))
    timer.join()
    plan, _ = task.plans()[0]
    assert task.ended == [(plan.plan_id, "abandoned")]
    assert is_told(server, plan)


def test_o89_cancellation_abandons_what_is_pending(desk: Desk, server: ScriptedDesk) -> None:
    made: list[tuple[Task, Plan]] = []

    async def work() -> None:
        with desk.task("t1") as task:
            made.append((task, make_plan(task)))
            await asyncio.sleep(30)

    async def run() -> None:
        working = asyncio.create_task(work())
        while not made:
            await asyncio.sleep(0.01)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    # In a thread of its own: this one may be a browser test's, which has a loop running for good.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, run()).result()
    task, plan = made[0]
    assert task.ended == [(plan.plan_id, "abandoned")]
    assert is_told(server, plan)


def test_a_plan_that_has_ended_is_not_among_what_the_end_abandoned(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.approve(plan.plan_id)
        assert isinstance(task.wait(plan), Committed)
    assert task.ended == []


def test_a_plan_that_is_being_committed_at_the_end_is_reported_as_such(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.set_state(plan.plan_id, "unknown")
    assert task.ended == [(plan.plan_id, "unknown")]
    server.approve(plan.plan_id)
    assert isinstance(task.wait(plan, timeout=1), Committed)


@pytest.mark.parametrize("state", ["committed", "conflicted", "rejected", "refused", "abandoned"])
def test_what_was_decided_while_nothing_asked_is_reported_as_the_desk_says(
    desk: Desk, server: ScriptedDesk, state: str
) -> None:
    with desk.task("t1") as task:
        plan, left = make_plan(task), task.dry_run("refund", {"invoice_id": "9"}, intent="other")
        assert isinstance(task.commit(plan), Waiting)
        server.set_state(plan.plan_id, state, abandonment={"reason": "expired"})
    assert task.ended == [(plan.plan_id, state), (left.plan_id, "abandoned")]
    assert [known.state for known in task.plans()] == [state, "abandoned"]


def test_what_was_decided_while_nothing_asked_is_reported_by_an_async_task_too(
    desk: Desk, server: ScriptedDesk
) -> None:
    async def work() -> list[tuple[str, str]]:
        async with desk.async_task("t1") as task:
            plan = await task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent="refund:t1")
            await task.commit(plan)
            server.approve(plan.plan_id)
        return [(one.plan_id, one.state) for one in task.ended]

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(asyncio.run, work()).result() == [("plan_1", "committed")]


def test_what_the_desk_cannot_be_asked_about_at_the_end_is_unknown_within_the_farewell(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plans = [task.dry_run("refund", {"invoice_id": str(n)}, intent=f"i{n}") for n in range(20)]
        for plan in plans:
            server.approve(plan.plan_id)
        server.next("state", *[drop()] * 5000)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert task.ended == [(plan.plan_id, "unknown") for plan in plans]


def test_a_desk_that_does_not_know_the_plan_any_more_says_so_aloud(desk: Desk, server: ScriptedDesk) -> None:
    task = desk.task("t1")
    plan = make_plan(task)
    server.set_state(plan.plan_id, "committed")
    server.next("state", problem(404, "not-found"))
    with pytest.warns(UntoldWarning, match="what became of plan plan_1"):
        task.end()
    assert task.ended == [(plan.plan_id, "unknown")]


def test_a_plan_that_never_reached_the_desk_is_reported_as_such(desk: Desk, server: ScriptedDesk) -> None:
    answer = (
        '{"plan_id": "plan_r", "plan_token": "pt_remote_1", "expires_at": "2099-01-01T00:00:00Z",'
        ' "input_fingerprint": "f", "actions": [{"op": "update", "target": "a/1", "field": "b", "to": 1}]}'
    )
    with desk.task("t1") as task:
        server.next("feed", *[drop()] * 500)
        with pytest.raises(DeskUnavailable):
            task.submit("ledger", "post", {}, answer)
    assert task.ended == [("plan_r", "feeding")]


@pytest.mark.slow
def test_o97_an_approval_at_the_instant_of_the_end_is_reported_as_the_desk_says(
    desk: Desk, server: ScriptedDesk
) -> None:
    with ThreadPoolExecutor(1) as pool:
        for round_ in range(50):
            with desk.task(f"t{round_}") as task:
                plan = make_plan(task)
                approval = pool.submit(server.approve, plan.plan_id)
            approval.result()
            assert task.ended == [(plan.plan_id, server.plans[plan.plan_id]["state"])]


def test_a_desk_that_cannot_be_reached_at_the_end_is_said_aloud_and_told_by_the_next_run(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with make_desk(server, base_url, folder) as desk:
        server.next("end", *[drop()] * 500)
        with pytest.warns(UntoldWarning, match="end of task t1"), desk.task("t1") as task:
            plan = make_plan(task)
        assert task.ended == [(plan.plan_id, "unknown")]
        assert server.at("state") == []
        assert server.ended_tasks == []
    server.script.clear()
    with make_desk(server, base_url, folder) as desk:
        with pytest.warns(UntoldWarning, match=r"had not been told of the end of task t1 .*it knows now"):
            desk.task("t2").end()
        assert server.ended_tasks == ["t1", "t2"]
        assert server.plans[plan.plan_id]["state"] == "abandoned"
    with make_desk(server, base_url, folder) as desk:
        desk.task("t3").end()
    assert server.ended_tasks == ["t1", "t2", "t3"]


def test_an_end_that_fails_does_not_hide_why_the_task_was_left(desk: Desk, server: ScriptedDesk) -> None:
    server.next("end", problem(422, "invalid"))
    with pytest.warns(UntoldWarning), pytest.raises(ZeroDivisionError), desk.task("t1"):
        _ = 1 / 0


@pytest.mark.usefixtures("ctrl_c")
def test_an_end_that_is_interrupted_is_told_by_the_next_run(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    with make_desk(server, base_url, folder) as desk:
        interrupt = drop()
        interrupt.then = lambda: os.kill(os.getpid(), signal.SIGINT)
        interrupt.delay = 0.1
        server.next("end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            work_in(desk.task("t1"), lambda _: None)
    with make_desk(server, base_url, folder) as desk, pytest.warns(UntoldWarning, match="end of task t1"):
        desk.task("t2").end()
    assert "t1" in server.ended_tasks


def test_a_task_ends_once(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
    assert task.end() == [(plan.plan_id, "abandoned")]
    assert server.ended_tasks == ["t1"]
    with pytest.raises(TaskEnded):
        make_plan(task)
    with pytest.raises(TaskEnded), desk.task("t1") as again:
        make_plan(again)
    assert server.at("commit") == []


def test_a_forked_child_does_not_end_its_parents_task(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        child = os.fork()
        if child == 0:
            try:
                with task:
                    ok = isinstance(task.commit(plan), Waiting)
            finally:
                os._exit(0 if ok else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.ended_tasks == []
        assert isinstance(task.commit(plan), Waiting)
    assert server.ended_tasks == ["t1"]


@pytest.mark.parametrize("reason", ["task_ended", "intent_changed", "inputs_changed"])
def test_a_plan_can_be_withdrawn_for_a_reason(desk: Desk, server: ScriptedDesk, reason: str) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        outcome = task.abandon(plan, reason)  # type: ignore[arg-type]
        assert (type(outcome).__name__, outcome.reason) == ("Abandoned", reason)  # type: ignore[union-attr]
        assert task.commit(plan) == outcome
    assert server.at("commit") == []


def test_a_plan_that_was_committed_a_moment_ago_is_not_withdrawn(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.approve(plan.plan_id)
        assert isinstance(task.abandon(plan), Committed)


def test_a_withdrawn_plan_is_not_committed_even_if_the_desk_could_not_be_told(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77"})
        server.next("abandon", *[drop()] * 500)
        with pytest.warns(UntoldWarning, match=plan.plan_id):
            outcome = task.abandon(plan)
        assert type(outcome).__name__ == "Unavailable"
        server.script.clear()
        outcome = task.commit(plan)
        assert (type(outcome).__name__, server.at("commit")) == ("Abandoned", [])
