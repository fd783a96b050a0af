"""The programs that `up` keeps running: started with a tie to their parent and a mark, ended with all they started."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

from reviewer.bundled import tie_to_parent
from reviewer.installation import PROJECT, CannotStart

# Every program carries this variable with the data folder as its value, so that the next `up` finds what a crash left.
MARK = "PLANDESK_SUPERVISED"
FIRST_DELAY, LONGEST_DELAY, CALM_AFTER = 0.5, 30.0, 60.0


class Child:
    """A program of ours that runs as long as the product does."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.delay = FIRST_DELAY
        self.due_at: float | None = None

    def start(self, environ: dict[str, str], stdin: int = subprocess.DEVNULL, stdout: IO[bytes] | None = None) -> None:
        self.process = subprocess.Popen(
            self.command,
            env=environ,
            cwd=PROJECT,
            stdin=stdin,
            stdout=stdout,
            start_new_session=True,
            preexec_fn=tie_to_parent(signal.SIGKILL),
        )
        self.started_at = time.monotonic()
        self.due_at = None

    def finish(self, doing: str) -> None:
        """Waits for a program that ends by itself."""
        assert self.process is not None
        if self.process.wait() != 0:
            raise CannotStart(f"{doing} failed; what it said is above.")

    def has_ended(self) -> bool:
        """Whether the program is gone. It stays in the process table, so that its number, its group's, stays taken."""
        if self.process is None or self.process.returncode is not None:
            return self.process is not None
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end_group(self) -> int:
        """SIGKILL to all that is left of the program and of what it started; returns its exit code."""
        assert self.process is not None
        self.signal_group(signal.SIGKILL)
        return self.process.wait()

    def plan_restart(self) -> float:
        """Waits longer each time it dies young."""
        lived = time.monotonic() - self.started_at
        self.delay = FIRST_DELAY if lived > CALM_AFTER else min(self.delay * 2, LONGEST_DELAY)
        self.due_at = time.monotonic() + self.delay
        return self.delay

    def signal_group(self, number: int) -> None:
        """Signals the program and what it started; never a stranger that got its number after it was reaped."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


def end_all(children: list[Child], seconds: float) -> None:
    """SIGTERM to all, SIGKILL after `seconds` to what does not listen, and to what it left behind."""
    for child in children:
        if child.process is not None and child.process.stdin is not None:
            with contextlib.suppress(OSError):
                child.process.stdin.close()
        child.signal_group(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for child in children:
        if child.process is not None:
            while not child.has_ended() and time.monotonic() < deadline:
                time.sleep(0.02)
            child.end_group()


def end_leftovers(data: Path) -> None:
    """Ends programs that an earlier `up` on this folder left behind: they carry its mark in their environment."""
    mark = f"\0{MARK}={data}\0".encode()
    for pid in (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()):
        try:
            environ = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environ and pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
