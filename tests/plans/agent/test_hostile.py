"""Signals at any moment, a full disk, a store that is taken away, two processes on one plan: nothing is done twice."""

import asyncio
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from plans.agent import Abandoned, Committed, Desk, FileStore, ForeignPlan, Records, StoreError, UntoldWarning
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk, Step

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def start(base_url: str, folder: Path, how: str, task_id: str = "t1") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.plans.agent.hostile_agent", base_url, API_KEY, str(folder), how, task_id]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def line(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def is_sound(server: ScriptedDesk) -> None:
    """Every plan was applied at most once, and no plan was ever sent under two keys."""
    assert not [plan_id for plan_id, times in Counter(server.applied).items() if times > 1]
    keys: dict[str, set[str]] = {}
    for heard in server.at("commit"):
        keys.setdefault(heard.json["plan_id"], set()).add(heard.headers["idempotency-key"])
    assert not {plan_id: found for plan_id, found in keys.items() if len(found) > 1}


def test_sigterm_kills_outright_and_ends_nothing_so_the_next_run_goes_on_with_the_same_plan(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with start(base_url, folder, "waits") as first:
        done, _, made = line(first), line(first), line(first)
        first.terminate()
    assert first.returncode == -signal.SIGTERM
    assert server.ended_tasks == []
    with start(base_url, folder, "waits") as second:
        assert (line(second), line(second), line(second)) == (done, ["Committed", done[0]], made)
        server.approve(made[0])
        second.communicate(timeout=30)
    assert second.returncode == 0
    assert sorted(server.applied) == sorted([done[0], made[0]])
    assert server.ended_tasks == ["t1"]


def test_sigterm_that_is_made_an_exit_leaves_the_task_like_any_other_exit(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with start(base_url, folder, "exits") as agent:
        _, _, made = line(agent), line(agent), line(agent)
        time.sleep(0.2)
        agent.terminate()
        _, said = agent.communicate(timeout=30)
    assert (agent.returncode, said) == (143, "")
    assert server.plans[made[0]]["abandonment"] == {"reason": "task_ended"}
    assert server.ended_tasks == ["t1"]


@pytest.mark.slow
def test_ctrl_c_at_any_moment_ends_the_task_and_writes_nothing_twice(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    chance = random.Random(7)
    for number in range(12):
        with start(base_url, folder, "endless", f"t{number}") as agent:
            line(agent)
            time.sleep(chance.uniform(0, 0.15))
            agent.send_signal(signal.SIGINT)
            _, said = agent.communicate(timeout=30)
        assert said.rstrip().endswith("KeyboardInterrupt"), said
        is_sound(server)
    with make_desk(server, base_url, folder) as desk:  # what an interrupted end could not tell, the next run does
        before = [f"t{number}" for number in range(12)]
        with pytest.warns(UntoldWarning) if set(before) - set(server.ended_tasks) else none():
            desk.task("last").end()
    assert set(before) <= set(server.ended_tasks)
    assert {plan["state"] for plan in server.plans.values()} <= {"committed", "abandoned"}


@contextmanager
def none() -> Iterator[None]:
    yield


def test_two_processes_that_commit_one_plan_at_once_write_it_once_under_one_key(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with start(base_url, folder, "together") as first:
        made = line(first)
        with start(base_url, folder, "together") as second:
            assert line(second) == made
            for agent in (first, second):
                assert agent.stdin is not None
                agent.stdin.write("go\n")
                agent.stdin.flush()
            assert (line(first), line(second)) == (["Committed", made[0]], ["Committed", made[0]])
    assert server.applied == [made[0]]
    is_sound(server)


def test_a_disk_that_is_full_before_a_commit_stops_it_and_the_next_run_makes_it(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with start(base_url, folder, "full") as agent:
        made = line(agent)
        _, said = agent.communicate(timeout=30)
    assert agent.returncode == 1
    assert "plans.agent.errors.StoreError" in said
    assert server.at("commit") == []
    assert server.ended_tasks == []
    with start(base_url, folder, "plain") as agent:
        assert (line(agent), line(agent)) == (made, ["Committed", made[0]])
    assert server.applied == [made[0]]


class Failing(FileStore):
    """A store whose disk fails when it is told to."""

    is_broken = False

    @contextmanager
    def writing(self) -> Iterator[Records]:
        if self.is_broken:
            raise StoreError("The disk is gone.")
        with super().writing() as records:
            yield records


@pytest.fixture
def failing(server: ScriptedDesk, base_url: str, folder: Path) -> tuple[Desk, Failing]:
    store = Failing(folder)
    return Desk(base_url, API_KEY, agent="refund-bot", store=store), store


def test_a_store_that_fails_never_hides_why_a_task_was_left(failing: tuple[Desk, Failing]) -> None:
    desk, store = failing

    def work() -> None:
        with desk.task("t1"):
            store.is_broken = True
            _ = 1 / 0

    with pytest.warns(UntoldWarning, match="The disk is gone"), pytest.raises(ZeroDivisionError):
        work()
    store.is_broken = False
    task = desk.task("t2")
    store.is_broken = True
    with pytest.raises(StoreError):  # but a task that returns says so
        task.__exit__(None, None, None)


def test_a_store_that_fails_never_hides_why_an_awaited_task_was_left(failing: tuple[Desk, Failing]) -> None:
    desk, store = failing

    async def work() -> None:
        async with desk.async_task("t1"):
            store.is_broken = True
            _ = 1 / 0

    with ThreadPoolExecutor(1) as threads, pytest.warns(UntoldWarning, match="The disk is gone"):
        left = threads.submit(asyncio.run, work()).exception()
    assert isinstance(left, ZeroDivisionError)


def test_a_store_that_fails_after_the_answer_tells_the_end_from_the_desk_once_it_works(
    failing: tuple[Desk, Failing], server: ScriptedDesk
) -> None:
    desk, store = failing
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77"})
        server.next("commit", Step(then=lambda: setattr(store, "is_broken", True)))
        with pytest.raises(StoreError):
            task.commit(plan)
        store.is_broken = False
        assert isinstance(task.commit(plan), Committed)
    assert server.applied == [plan.plan_id]
    is_sound(server)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_store_that_is_taken_away_in_use_stops_the_agent_before_it_sends(
    desk: Desk, server: ScriptedDesk, folder: Path, how: str
) -> None:
    task = desk.task("t1")
    plan = task.dry_run("address.update", {"customer_id": "77"})
    file = folder / "plans.sqlite3"
    file.rename(folder / "away")
    if how == "replaced":
        shutil.copy(folder / "away", file)
    with pytest.raises(StoreError, match="removed or replaced"):
        task.commit(plan)
    assert server.at("commit") == []
    if how == "removed":
        with pytest.raises(StoreError):
            task.commit(plan)
        assert not file.exists()  # it was not made anew, empty
    (folder / "away").rename(file)
    assert isinstance(task.commit(plan), Committed)


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """For root no file is read-only."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_store_that_became_read_only_is_one_clear_error_and_nothing_is_sent(
    server: ScriptedDesk, base_url: str
) -> None:
    base = Path("/tmp") / f"plandesk-read-only-{os.getpid()}-{time.monotonic_ns()}"
    base.mkdir(mode=0o700)
    try:
        with as_nobody(base):
            with make_desk(server, base_url, base / "agent") as desk:
                plan = desk.task("t1").dry_run("address.update", {"customer_id": "77"})
            for file in (base / "agent").iterdir():
                file.chmod(0o400)
            (base / "agent").chmod(0o500)
            with pytest.raises(StoreError, match="Permission denied"):
                make_desk(server, base_url, base / "agent").task("t1").commit(plan)
    finally:
        (base / "agent").chmod(0o700)
        shutil.rmtree(base)
    assert server.at("commit") == []


def test_a_plan_kept_from_an_earlier_run_is_nothing_to_another_task_and_over_with_its_own(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with make_desk(server, base_url, folder) as desk, desk.task("t1") as task:
        kept = pickle.dumps(task.dry_run("address.update", {"customer_id": "77"}))
    plan = pickle.loads(kept)
    with make_desk(server, base_url, folder) as desk, desk.task("t2") as task:
        with pytest.raises(ForeignPlan):
            task.commit(plan)
        with pytest.raises(ForeignPlan):
            task.replan(plan)
        assert desk.task("t1").commit(plan) == Abandoned(plan.plan_id, "task_ended")
    assert server.at("commit") == []
    assert server.applied == []
