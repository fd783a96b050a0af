"""Every store keeps to one contract; the SDK works the same on each; a file is safe with threads, processes, forks."""

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plans.agent import Committed, Desk, FileStore, MemoryStore, NotADryRun, Stale, Store, StoreError, Waiting
from tests.plans.agent.conftest import PACE, make_desk
from tests.plans.agent.scripted_desk import AGENT, API_KEY, ScriptedDesk

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, folder: Path) -> Store:
    return FileStore(folder) if request.param == "file" else MemoryStore()


def test_what_was_written_is_read_by_key_and_by_the_beginning_of_keys(store: Store) -> None:
    with store.writing() as records:
        for key in ("a/2", "a/10", "a/1", "ab", "a", "b/1"):
            records.put(key, f'"{key}"')
        records.put("a/2", '"\U0001f600 again"')
        records.delete("b/1")
        records.delete("never there")
        assert records.get("a/2") == '"\U0001f600 again"'
    with store.reading() as records:
        assert [key for key, _ in records.find("a/")] == ["a/1", "a/10", "a/2"]
        assert records.find("a/2") == [("a/2", '"\U0001f600 again"')]
        assert (records.get("b/1"), records.find("b"), records.get("a/")) == (None, [], None)


def test_a_transaction_left_by_an_exception_changes_nothing(store: Store) -> None:
    with store.writing() as records:
        records.put("a", "1")

    def write_half() -> None:
        with store.writing() as records:
            records.put("a", "2")
            records.put("b", "2")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    with store.writing() as records:
        assert (records.get("a"), records.get("b")) == ("1", None)


def test_writings_are_alone_whatever_the_threads(store: Store) -> None:
    def count(_: int) -> None:
        with store.writing() as records:
            records.put("n", str(int(records.get("n") or 0) + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(200)))
    with store.reading() as records:
        assert records.get("n") == "200"


def _count_in_child(store: FileStore, times: int) -> None:
    for _ in range(times):
        with store.writing() as records:
            records.put("n", str(int(records.get("n") or 0) + 1))
    os._exit(0)


def test_writings_are_alone_whatever_the_processes(folder: Path) -> None:
    store = FileStore(folder)
    with store.writing() as records:  # so that there is a connection to inherit
        records.put("n", "0")
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_count_in_child, args=(store, 25)) for _ in range(3)]
    for child in children:
        child.start()
    for _ in range(25):
        with store.writing() as records:
            records.put("n", str(int(records.get("n") or 0) + 1))
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    with store.reading() as records:
        assert records.get("n") == "100"


def test_a_fork_in_the_middle_of_a_writing_of_another_thread_locks_nobody_out(folder: Path) -> None:
    store = FileStore(folder)
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.writing() as records:
            records.put("held", "1")
            inside.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(10)
    child = multiprocessing.get_context("fork").Process(target=_count_in_child, args=(store, 1))
    threading.Timer(0.3, done.set).start()
    child.start()
    holder.join()
    child.join(20)
    assert child.exitcode == 0
    with store.reading() as records:
        assert (records.get("held"), records.get("n")) == ("1", "1")


def test_what_a_killed_process_had_written_is_there(folder: Path) -> None:
    script = (
        "import os, signal, sys\nfrom plans.agent import FileStore\nstore = FileStore(sys.argv[1])\n"
        "with store.writing() as records: records.put('done', '1')\n"
        "with store.writing() as records:\n records.put('half', '1')\n os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == -9
    with FileStore(folder).writing() as records:
        assert (records.get("done"), records.get("half")) == ("1", None)


def test_a_whole_flow_on_every_store(server: ScriptedDesk, base_url: str, store: Store) -> None:
    def desk() -> Desk:
        return Desk(base_url, API_KEY, agent=AGENT, store=store, webhook_secret=server.secret.reveal(), pace=PACE)

    with desk() as first:
        before = first.task("t1")
        plan = before.dry_run("address.update", {"customer_id": "77"})
        waiting = before.dry_run("refund", {"invoice_id": "4412"}, intent="refund:t1")
    with desk() as second, second.task("t1") as task:
        assert task.dry_run("address.update", {"customer_id": "77"}) == plan
        assert isinstance(task.commit(plan), Committed)
        assert isinstance(task.commit(waiting), Waiting)
        stale = task.dry_run("address.update", {"customer_id": "78"})
        assert task.write("billing", ["customer/78"]) == [stale.plan_id]
        assert task.commit(stale) == Stale(stale.plan_id, ("customer/78",))
        assert [known.plan for known in task.plans()] == [plan, waiting, stale]
    assert server.applied == [plan.plan_id]
    assert server.ended_tasks == ["t1"]


def test_agents_desks_and_tasks_with_names_that_begin_alike_share_a_store(
    server: ScriptedDesk, base_url: str, store: Store
) -> None:
    made = []
    for agent in ("bot", "bot.2"):
        for task_id in ("t", "t1", "t1:a"):
            task = Desk(base_url, API_KEY, agent=agent, store=store, pace=PACE).task(task_id)
            made.append((task, task.dry_run("address.update", {"customer_id": f"{agent}{task_id}"})))
    for task, plan in made:
        assert task.plans() == [(plan, "pending")]


def test_a_plan_id_that_comes_again_in_a_task_is_refused_and_the_first_plan_stays(
    desk: Desk, server: ScriptedDesk
) -> None:
    answer = {
        "plan_id": "plan_r", "plan_token": "pt_remote_0123456789", "expires_at": "2099-03-14T09:41:12Z",
        "input_fingerprint": "f", "actions": [{"op": "update", "target": "invoice/1", "field": "cents", "to": 1}],
    }  # fmt: skip
    with desk.task("t1") as task:
        plan = task.submit("ledger", "pay", {"invoice_id": "1"}, answer)
        with pytest.raises(NotADryRun, match="plan_r"):
            task.submit("ledger", "pay", {"invoice_id": "2"}, answer)
        assert task.plans() == [(plan, "pending")]


def spoil_text(folder: Path) -> None:
    with sqlite3.connect(folder / "plans.sqlite3") as db:
        db.execute("UPDATE records SET text = '{}' WHERE key LIKE '%/plans/%'")


def spoil_file(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(b"no database" * 1000)


@pytest.mark.parametrize("spoil", [spoil_text, spoil_file])
def test_a_file_that_was_spoilt_is_one_clear_error_and_nothing_is_sent(
    server: ScriptedDesk, base_url: str, folder: Path, spoil: Callable[[Path], None]
) -> None:
    with make_desk(server, base_url, folder) as desk:
        plan = desk.task("t1").dry_run("address.update", {"customer_id": "77"})
        desk._line.ledger.store.close()  # type: ignore[attr-defined]
    spoil(folder)
    with pytest.raises(StoreError):
        make_desk(server, base_url, folder).task("t1").commit(plan)
    assert server.at("commit") == []


def test_a_file_of_the_first_version_loses_its_clear_tokens(folder: Path) -> None:
    FileStore(folder).close()
    file = folder / "plans.sqlite3"
    with sqlite3.connect(file) as db:
        db.executescript("DROP TABLE records; CREATE TABLE plans (token TEXT); PRAGMA user_version = 1;")
        db.execute("INSERT INTO plans VALUES ('pt_in_clear_text')")
    db.close()
    with FileStore(folder).writing() as records:
        records.put("a", "1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"pt_in_clear_text" not in file.read_bytes()
