"""The same task, awaited: nothing holds up the loop, a cancelled call stops, and its outcome is found again."""

import asyncio
import contextvars
import inspect
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from plans.agent import (
    Abandoned,
    AsyncTask,
    Committed,
    Conflict,
    Desk,
    Evidence,
    ForeignPlan,
    Outcome,
    Pace,
    Plan,
    Stale,
    Task,
    TaskEnded,
    UntoldWarning,
    Waiting,
)
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk, Step, drop, problem

ROOT = Path(__file__).parents[3]
ADDRESS = {"customer_id": "77", "address": "2 Harbour Street"}


def run(work: Callable[[], Awaitable[None]]) -> None:
    """In a thread of its own: this one may be a browser test's, which has a loop running for good."""

    async def main() -> None:
        await work()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, main()).result(60)


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(500):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def make_plan(task: AsyncTask) -> Plan:
    return await task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent=f"refund:{task.task_id}")


async def cancel(working: "asyncio.Task[Any]") -> float:
    """Cancels it, and returns how many seconds it took to end."""
    started = time.monotonic()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    return time.monotonic() - started


def test_every_call_of_a_task_can_be_awaited_and_takes_the_same() -> None:
    for name, call in inspect.getmembers(Task, inspect.isfunction):
        if name.startswith("_"):
            continue
        awaited = inspect.signature(getattr(AsyncTask, name))
        assert awaited == inspect.signature(call), name
        assert inspect.iscoroutinefunction(getattr(AsyncTask, name)) == (name != "read")


def test_a_task_is_planned_read_written_committed_and_ended(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            found = task.read("shipping.lookup", "delivery exception", url="https://carrier.example/track/77")
            plan = await task.dry_run("address.update", ADDRESS)
            assert found == Evidence("shipping.lookup", "delivery exception", "https://carrier.example/track/77")
            assert server.plans[plan.plan_id]["evidence"][0]["tool"] == "shipping.lookup"
            first = await task.commit(plan)
            assert first == Committed(plan.plan_id, {"customer_id": "77"})
            assert await task.commit(plan) == Committed(plan.plan_id, {"customer_id": "77"}, replayed=True)
            stale = await task.dry_run("address.update", {"customer_id": "78"})
            assert await task.write("billing", ["customer/78"]) == [stale.plan_id]
            assert await task.commit(stale) == Stale(stale.plan_id, ("customer/78",))
            withdrawn = await make_plan(task)
            assert await task.abandon(withdrawn) == Abandoned(withdrawn.plan_id, "intent_changed")
            left = await make_plan(task)
            assert await task.wait(left, timeout=0) == Waiting(left.plan_id, left.review_url)
            assert [known.state for known in await task.plans()] == ["committed", "pending", "abandoned", "pending"]
        assert task.ended[-1] == (left.plan_id, "abandoned")
        with pytest.raises(TaskEnded):
            await make_plan(task)

    run(work)
    assert server.ended_tasks == ["t1"]


def test_a_decision_is_told_while_other_tasks_go_on(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task, desk.async_task("t2") as other:
            plan = await make_plan(task)
            waiting = asyncio.create_task(task.wait(plan, timeout=30))
            await until(lambda: server.at("state"))
            for customer in range(5):
                plan_of_other = await other.dry_run("address.update", {"customer_id": str(customer)})
                assert isinstance(await other.commit(plan_of_other), Committed)
            with pytest.raises(ForeignPlan):
                await other.commit(plan)
            server.approve(plan.plan_id)
            assert isinstance(await waiting, Committed)

    run(work)


def test_nothing_holds_up_the_loop_while_store_and_desk_are_slow(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            plan = await task.dry_run("address.update", ADDRESS)
            server.next("commit", Step(delay=0.5))
            committing = asyncio.create_task(task.commit(plan))
            longest, before = 0.0, time.monotonic()
            with desk._line.ledger.store.writing():  # another process writes to the file for a while
                while time.monotonic() - before < 0.3:
                    at = time.monotonic()
                    await asyncio.sleep(0.01)
                    longest = max(longest, time.monotonic() - at)
            assert isinstance(await committing, Committed)
            assert longest < 0.25

    run(work)


def test_o96_a_cancelled_wait_stops_at_once_and_nothing_asks_any_more(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            plan = await make_plan(task)
            waiting = asyncio.create_task(task.wait(plan, timeout=30))
            await until(lambda: server.at("state"))
            await asyncio.sleep(0.1)
            assert await cancel(waiting) < 1
            asked = len(server.heard)
            await asyncio.sleep(1)
            assert len(server.heard) == asked
            server.approve(plan.plan_id)
            assert isinstance(await task.wait(plan, timeout=1), Committed)

    run(work)


@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
def test_a_cancelled_commit_is_cut_off_and_finished_later_with_the_same_key(
    desk: Desk, server: ScriptedDesk, is_applied: bool
) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            plan = await task.dry_run("address.update", ADDRESS)
            server.next("commit", Step(delay=5, is_applied=is_applied, is_dropped=True))
            committing = asyncio.create_task(task.commit(plan))
            await until(lambda: server.at("commit"))
            assert await cancel(committing) < 1
            assert (await task.plans())[0].state == "committing"
            assert isinstance(await task.commit(plan), Committed)

    run(work)
    assert len(server.at("commit")) == 2
    assert len({heard.headers["idempotency-key"] for heard in server.at("commit")}) == 1
    assert len(server.applied) == 1


def test_a_cancelled_pause_between_attempts_ends_at_once(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    pace = Pace(patience=60, first_delay=30, longest_delay=30)

    async def work() -> None:
        with make_desk(server, base_url, folder, pace) as desk:
            async with desk.async_task("t1") as task:
                plan = await task.dry_run("address.update", ADDRESS)
                server.next("commit", problem(503, "unavailable"))
                committing = asyncio.create_task(task.commit(plan))
                await until(lambda: server.at("commit"))
                await asyncio.sleep(0.1)
                assert await cancel(committing) < 1
                assert isinstance(await task.commit(plan), Committed)

    run(work)
    assert len(server.at("commit")) == 2


def test_a_call_cancelled_while_it_connects_sends_nothing(server: ScriptedDesk, folder: Path) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = full.getsockname()
            crowd = [socket.socket() for _ in range(4)]  # so that nobody else is let in
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(address)
            desk = make_desk(server, f"http://127.0.0.1:{address[1]}", folder)
            planning = asyncio.create_task(make_plan(desk.async_task("t1")))
            await asyncio.sleep(0.3)
            assert await cancel(planning) < 3
            for one in crowd:
                one.close()

    run(work)
    assert server.heard == []


def test_an_outcome_that_came_with_the_cancellation_is_not_lost_and_is_told_once(
    desk: Desk, server: ScriptedDesk
) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            for round_ in range(20):
                plan = await task.dry_run("address.update", {"customer_id": f"c{round_}"})
                committing = asyncio.create_task(task.commit(plan))
                await asyncio.sleep(round_ / 1000)
                committing.cancel()
                told: Outcome | None = None
                try:
                    told = await committing
                except asyncio.CancelledError:
                    told = await task.commit(plan)
                assert isinstance(told, Committed)
                assert await task.commit(plan) == Committed(plan.plan_id, told.result, replayed=True)

    run(work)
    assert len(server.applied) == len(set(server.applied)) == 20


@pytest.mark.parametrize("how", ["return", "exception", "cancellation", "timeout", "sibling"])
def test_o89_however_it_is_left_what_is_pending_is_abandoned_and_the_desk_is_told(
    desk: Desk, server: ScriptedDesk, how: str
) -> None:
    made: list[tuple[AsyncTask, Plan]] = []

    async def in_task() -> None:
        async with desk.async_task("t1") as task:
            made.append((task, await make_plan(task)))
            if how == "exception":
                _ = 1 / 0
            if how != "return":
                await task.wait(made[0][1], timeout=30)

    async def fail() -> None:
        await until(lambda: made)
        raise LookupError

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(in_task())
            group.create_task(fail())

    async def work() -> None:
        match how:
            case "return":
                await in_task()
            case "exception":
                with pytest.raises(ZeroDivisionError):
                    await in_task()
            case "cancellation":
                working = asyncio.create_task(in_task())
                await until(lambda: server.at("state"))
                await cancel(working)
            case "timeout":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await in_task()
            case "sibling":
                with pytest.raises(ExceptionGroup):
                    await both()

    run(work)
    task, plan = made[0]
    assert task.ended == [(plan.plan_id, "abandoned")]
    assert server.plans[plan.plan_id]["abandonment"] == {"reason": "task_ended"}
    assert server.ended_tasks == ["t1"]


def test_o89_a_second_cancellation_does_not_cut_the_end_short(desk: Desk, server: ScriptedDesk) -> None:
    async def in_task() -> None:
        async with desk.async_task("t1") as task:
            await make_plan(task)
            await asyncio.sleep(30)

    async def work() -> None:
        working = asyncio.create_task(in_task())
        await until(lambda: server.plans)
        await asyncio.sleep(0.1)
        server.next("end", Step(delay=0.5))
        working.cancel()
        await until(lambda: server.at("end"))
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert server.ended_tasks == ["t1"]

    run(work)


def test_a_cancellation_during_the_end_of_a_task_that_returned_is_not_swallowed(
    desk: Desk, server: ScriptedDesk
) -> None:
    async def in_task() -> None:
        async with desk.async_task("t1") as task:
            await make_plan(task)
            server.next("end", Step(delay=0.5))

    async def work() -> None:
        working = asyncio.create_task(in_task())
        await until(lambda: server.at("end"))
        await cancel(working)

    run(work)
    assert server.ended_tasks == ["t1"]


CTRL_C = """
import asyncio, signal, sys, warnings
from plans.agent import Desk, FileStore

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background

async def main():
    desk = Desk(sys.argv[1], sys.argv[2], agent="refund-bot", store=FileStore(sys.argv[3]))
    async with desk.async_task("t1") as task:
        plan = await task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 1}, intent="refund:t1")
        print(plan.plan_id, flush=True)
        await task.wait(plan, timeout=60)

asyncio.run(main())
"""


def test_o89_ctrl_c_in_the_middle_of_an_awaited_wait_abandons_what_is_pending(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    command = [sys.executable, "-c", CTRL_C, base_url, API_KEY, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None and agent.stderr is not None
        plan_id = agent.stdout.readline().strip()
        deadline = time.monotonic() + 10
        while not server.at("state") and time.monotonic() < deadline:
            time.sleep(0.02)
        started = time.monotonic()
        agent.send_signal(signal.SIGINT)
        said = agent.stderr.read()
    assert "KeyboardInterrupt" in said
    assert API_KEY not in said
    assert time.monotonic() - started < 5
    assert server.plans[plan_id]["abandonment"] == {"reason": "task_ended"}


def test_a_desk_that_cannot_be_told_of_the_end_is_said_aloud(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        server.next("end", *[drop()] * 500)
        with pytest.warns(UntoldWarning, match="end of task t1"):
            async with desk.async_task("t1") as task:
                await make_plan(task)

    run(work)
    server.script.clear()
    with pytest.warns(UntoldWarning, match="it knows now"):
        desk.task("t2").end()
    assert server.ended_tasks == ["t1", "t2"]


def test_what_was_planned_in_one_way_goes_on_in_the_other(desk: Desk, server: ScriptedDesk) -> None:
    plan = desk.task("t1").dry_run("address.update", ADDRESS)

    async def work() -> None:
        async with desk.async_task("t1") as task:
            assert await task.dry_run("address.update", ADDRESS) == plan
            assert isinstance(await task.commit(plan), Committed)
            server.next("commit", problem(409, "conflict", changed=[]))
            other = await task.dry_run("address.update", {"customer_id": "78"})
            assert isinstance(await task.commit(other), Conflict)
            again = await task.replan(other)
            assert again.plan.replaces == other.plan_id

    run(work)
    assert len(server.applied) == 1


def test_many_tasks_plan_and_commit_at_once(desk: Desk, server: ScriptedDesk) -> None:
    async def one(number: int) -> Outcome:
        async with desk.async_task(f"t{number}") as task:
            return await task.commit(await task.dry_run("address.update", {"customer_id": str(number)}))

    async def work() -> None:
        outcomes = await asyncio.gather(*(one(number) for number in range(40)))
        assert all(isinstance(outcome, Committed) for outcome in outcomes)

    run(work)
    assert len(set(server.applied)) == len(server.applied) == 40


def test_coroutines_that_ask_for_one_plan_get_one(desk: Desk, server: ScriptedDesk) -> None:
    async def work() -> None:
        async with desk.async_task("t1") as task:
            made = await asyncio.gather(*(make_plan(task) for _ in range(8)))
            assert len({plan.plan_id for plan in made}) == 1
            await task.abandon(made[0])

    run(work)
    assert len(server.plans) == 1


def test_a_callers_context_goes_with_the_call(desk: Desk, server: ScriptedDesk) -> None:
    request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id")
    seen: list[str] = []
    add_plan = type(desk._line.ledger).add_plan

    def look(*args: Any, **options: Any) -> Any:
        seen.append(f"{request_id.get()} {threading.current_thread().name[:8]}")
        return add_plan(*args, **options)

    async def work() -> None:
        request_id.set("r-1")
        async with desk.async_task("t1") as task:
            await make_plan(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(desk._line.ledger), "add_plan", look)
        run(work)
    assert seen == ["r-1 plandesk"]


@pytest.mark.parametrize("task_id", ["", "a b", "../x"])
def test_a_task_id_that_is_no_identifier_is_refused_at_once(desk: Desk, task_id: str) -> None:
    with pytest.raises(ValueError, match="task id"):
        desk.async_task(task_id)
