"""Exports against COPY of the same rows, and a verification against merely hashing the same bytes."""

import hashlib
import hmac
import os
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.log_fill import EVENTS
from tests.benchmarks.measuring import ROUNDS, Series, note, tell

EXPORTED = min(EVENTS, int(os.environ.get("BENCH_EXPORTED", "200000")))
"""The newest so many events are exported in each round."""

_SAME_ROWS = """
COPY (SELECT s.index, e.leaf_hash, e.id, e.kind, e.at, e.actor_type, e.actor_id, e.on_behalf_of, e.agent, e.target,
    e.plan_id, e.operation, e.task_id, e.request_id, e.plan_seq, p.body
FROM audit_sequence s JOIN audit_event e ON e.at = s.at AND e.id = s.event_id
LEFT JOIN audit_payload p ON p.event_id = s.event_id
WHERE s.index >= {first} AND s.index < {last}
    AND e.at >= (SELECT min(at) FROM audit_sequence WHERE index >= {first} AND index < {last})
ORDER BY s.index) TO STDOUT (FORMAT csv)
"""


def run_bulk() -> None:
    """Print the rates of exports and of the verification as ratios of their baselines."""
    from audit.proofs import read_size

    size = read_size()
    first = size - EXPORTED
    taken = {name: Series() for name in ("COPY", "csv", "jsonl", "ocsf")}
    for turn in range(ROUNDS + 1):
        for name, series in taken.items():
            seconds = _took(lambda name=name: _copy(first, size) if name == "COPY" else _export(name, first))  # type: ignore[misc]
            if turn > 0:
                series.add(seconds)
    for name, goal in (("csv", "0.8"), ("jsonl", "0.5"), ("ocsf", "none")):
        told = (f"{EXPORTED / taken[one].middle:,.0f} events/s" for one in (name, "COPY"))
        tell(
            f"export of {EXPORTED:,} events, {name}: rate against COPY", taken["COPY"].against(taken[name]), *told, goal
        )
    _run_verification(size)


def _took(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _copy(first: int, last: int) -> None:
    from audit.connections import one_snapshot

    with (
        one_snapshot("benchmark") as connection,
        connection.cursor().copy(_SAME_ROWS.format(first=first, last=last).encode()) as copied,
    ):
        for _ in copied:
            pass


def _export(form: Any, first: int) -> None:
    from audit.export import Request, begin_export
    from audit.filters import Filters
    from audit.recording import Actor

    for _ in begin_export(
        Request(form, Filters(), first), actor=Actor("system", "benchmark", None), via="cli"
    ).stream():
        pass


def _run_verification(size: int) -> None:
    """Once: it reads the whole log. The baseline reads leaves and payloads, and hashes each in the same way."""
    from audit.recording import Actor
    from audit.verification import verify_log

    reading, hashing = _hash_all(size)
    began = time.perf_counter()
    report = verify_log(actor=Actor("system", "benchmark", None), via="cli")
    seconds = time.perf_counter() - began
    if not report.is_whole:
        raise RuntimeError("\n".join(report.lines()))
    measured = f"{size / seconds:,.0f} events/s"
    tell(
        f"verification of {size:,} events: rate against reading and hashing",
        [(reading + hashing) / seconds],
        measured,
        f"{size / (reading + hashing):,.0f}",
        "0.3",
    )
    tell("verification: rate against hashing alone", [hashing / seconds], measured, f"{size / hashing:,.0f}", "0.3")


def _hash_all(size: int) -> tuple[float, float]:
    """Seconds to read leaves, salts and payloads in the order of places, and seconds to hash them."""
    from audit.connections import one_snapshot

    step, reading, hashing = 5000, 0.0, 0.0
    with one_snapshot("benchmark") as connection:
        for first in range(0, size, step):
            began = time.perf_counter()
            ((since, until),) = connection.execute(
                "SELECT min(at), max(at) FROM audit_sequence WHERE index >= %s AND index < %s", [first, first + step]
            ).fetchall()
            rows = connection.execute(
                "SELECT e.leaf, p.salt, convert_to(p.body, 'UTF8') FROM audit_sequence s"
                " JOIN audit_event e ON e.at = s.at AND e.id = s.event_id AND e.at >= %s AND e.at <= %s"
                " JOIN audit_payload p ON p.event_id = s.event_id"
                " WHERE s.index >= %s AND s.index < %s ORDER BY s.index",
                [since, until, first, first + step],
                binary=True,
            ).fetchall()
            read = time.perf_counter()
            for leaf, salt, body in rows:
                hashlib.sha256(b"\x00" + leaf).digest()
                hmac.digest(salt, body, "sha256")
            reading, hashing = reading + read - began, hashing + time.perf_counter() - read
    note(f"hashing {size:,} leaves and payloads: {reading:.1f} s to read them, {hashing:.1f} s to hash them")
    return reading, hashing
