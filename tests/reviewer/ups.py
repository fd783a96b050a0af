"""`manage.py up` as a process: started, looked into, stopped; and what a start that must fail says."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import urllib3

from reviewer.bundled import tie_to_parent
from reviewer.installation import PROJECT

OURS = {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "SEAL_KEYS", "BASE_URL", "STATIC_ROOT"}
OURS |= {"STATIC_FROM_SOURCE", "PLANDESK_DATA", "PLANDESK_OFFLINE", "LOG_LEVEL", "CALLBACK_ALLOW_PRIVATE"}
OURS |= {"AUDIT_ORIGIN", "AUDIT_SIGNING_KEY", "AUDIT_STATE_FILE"}


def clean_environ(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS} | more


class Up:
    """One `up` under test."""

    def __init__(self, data: Path, port: int, *arguments: str, **environ: str) -> None:
        self.data, self.port = data, port
        self.output = data.parent / "output"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--data", str(data), "--port", str(port), *arguments],
                cwd=PROJECT,
                env=clean_environ(**environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=tie_to_parent(signal.SIGKILL),
            )

    def cpu_seconds(self) -> float:
        """What the start has cost so far: living processes, and those that have done their part (proc(5), stat)."""
        ticks = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(int(field) for field in fields[11 : 15 if pid == self.process.pid else 13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def wait_until_served(self, seconds: float = 150) -> float:
        """Seconds until the line with the URL was printed."""
        began = time.monotonic()
        while "Plandesk serves at" not in self.output.read_text():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() - began < seconds, self.output.read_text()
            time.sleep(0.05)
        return time.monotonic() - began

    def get(self, path: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request("GET", f"http://127.0.0.1:{self.port}{path}", redirect=False, retries=False, timeout=10)

    def processes(self) -> dict[int, str]:
        """Every living process that belongs to this data folder, by command line, directory or mark."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    told = line + os.readlink(entry / "cwd") + (entry / "environ").read_bytes().decode(errors="replace")
                    if str(self.data) in told and line:
                        found[int(entry.name)] = line
        return found

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(40)


def refusal(*arguments: str, **environ: str) -> str:
    """What a start that must fail says: one sentence on standard error, no traceback, a code that is not zero."""
    done = subprocess.run(
        [sys.executable, "manage.py", "up", *arguments],
        cwd=PROJECT,
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr.strip()
