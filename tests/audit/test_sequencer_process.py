"""The sequencer as a process: it keeps its time, takes over, and is killed without losing or repeating anything."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from audit.merkle import compute_root, hash_leaf
from audit.models import Event
from audit.proofs import ask_django, count_pending, read_checkpoint, read_size
from audit.recording import SYSTEM
from audit.verification import verify_log
from reviewer.bundled import tie_to_parent
from reviewer.installation import PROJECT
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.audit.test_sequencer import read_leaves
from tests.racing import wait_until

pytestmark = pytest.mark.slow


def start_sequencer(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "manage.py", "audit_sequencer"],
        cwd=PROJECT,
        env={**os.environ, "AUDIT_STATE_FILE": str(folder / "signed")},
        stdin=subprocess.DEVNULL,
        stderr=(folder / "said").open("ab"),
        preexec_fn=tie_to_parent(signal.SIGKILL),
    )


def end(process: "subprocess.Popen[bytes]", number: int) -> int:
    process.send_signal(number)
    return process.wait(15)


def count_sequencers() -> int:
    return int(
        ask_django(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'plandesk sequencer' AND datname = current_database()",
            [],
        )[0][0]
    )


def reaches(size: int) -> bool:
    checkpoint = read_checkpoint()
    return checkpoint is not None and checkpoint.size >= size


def test_the_process_signs_within_five_seconds_ends_on_sigterm_and_another_takes_over(
    database: None, tmp_path: Path
) -> None:
    first, second = start_sequencer(tmp_path), start_sequencer(tmp_path)
    try:
        wait_until(lambda: count_sequencers() == 2, what="both processes")
        for ended in (first, None):
            make_event()
            started = time.monotonic()
            wait_until(lambda: reaches(Event.objects.count()), what="a checkpoint over the event")
            assert ended is None or time.monotonic() - started < 5
            if ended is not None:
                assert end(ended, signal.SIGTERM) == 0
    finally:
        end(first, signal.SIGKILL)
        end(second, signal.SIGTERM)
    assert (tmp_path / "said").read_text() == ""


def test_sixteen_writers_and_a_sequencer_that_is_killed_lose_and_repeat_nothing_and_alarm_nobody(
    database: None, tmp_path: Path, settings: Any
) -> None:
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")
    stop = threading.Event()
    counts = [0] * 16

    def write(number: int) -> None:
        try:
            while not stop.wait(0.01):
                make_event(task_id=str(number))
                counts[number] += 1
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    process = start_sequencer(tmp_path)
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            assert verify_log(actor=SYSTEM, via="test").is_whole
            size = read_size()
            wait_until(lambda size=size: read_size() > size, seconds=60)
            end(process, signal.SIGKILL)
            process = start_sequencer(tmp_path)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        wait_until(lambda: count_pending() == 0, seconds=60)
        end(process, signal.SIGTERM)
    sequence(tmp_path)
    report = verify_log(actor=SYSTEM, via="test")
    assert report.is_whole, list(report.lines())
    sequence(tmp_path)
    leaves = read_leaves()
    assert Event.objects.exclude(task_id=None).count() == sum(counts)
    assert len(leaves) == Event.objects.count()
    stored = read_checkpoint()
    assert stored is not None
    assert (stored.size, stored.root) == (len(leaves), compute_root([hash_leaf(leaf) for leaf in leaves]))
    for size, root in ask_django("SELECT DISTINCT size, root FROM audit_checkpoint", []):
        assert compute_root([hash_leaf(leaf) for leaf in leaves[:size]]) == bytes(root)
    assert (tmp_path / "said").read_text() == ""
