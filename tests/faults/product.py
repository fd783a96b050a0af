"""The product as processes of one throw-away installation: started, kept running, paused, killed, stopped."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from reviewer.bundled import BundledPostgres, BundledRedis, tie_to_parent
from reviewer.installation import PROJECT, Account, Installation
from tests.ground import free_port

SERVER = {
    # Processes die, the machine does not: what a commit wrote to the kernel stays. So fsync is off, and nothing else.
    "fsync": "off",
    "max_wal_size": "96MB",
    "min_wal_size": "32MB",
    "log_lock_waits": "off",
}
DISK = "900m"
WORKER = ["-m", "celery", "--quiet", "-A", "tests.faults.clock", "worker", "--pool", "threads", "--concurrency", "4"]
BEAT = ["-m", "celery", "--quiet", "-A", "tests.faults.clock", "beat", "--scheduler", "celery.beat:Scheduler"]


class Program:
    """One process that is started again when it is gone, unless it is held down."""

    def __init__(self, name: str, words: list[str], environ: dict[str, str], log: Path) -> None:
        self.name, self.words, self.environ, self.log = name, words, environ, log
        self.process: subprocess.Popen[bytes] | None = None
        self.down_until = 0.0
        self.starts = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.words], cwd=PROJECT, env=self.environ, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True, preexec_fn=tie_to_parent(signal.SIGKILL),
            )  # fmt: skip
        self.starts += 1

    def keep(self) -> None:
        if self.process is not None and self.process.poll() is not None and time.monotonic() >= self.down_until:
            self.start()

    def kill(self, *, down: float = 0.0) -> None:
        """SIGKILL to the process and to what it started."""
        self.down_until = time.monotonic() + down
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(8)
        except subprocess.TimeoutExpired:
            self.kill()

    def children(self) -> list[int]:
        """The processes below it: a web server's workers."""
        if self.process is None or self.process.poll() is not None:
            return []
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split()]


class Product:
    """Two of every process over one PostgreSQL and one Redis, and a remote target with a ledger of its own."""

    def __init__(self, *, is_small: bool = False, life: float = 0) -> None:
        self.is_small, self.life = is_small, life
        self.folder = Path(tempfile.mkdtemp(prefix="plandesk-faults-"))
        self.folder.chmod(0o711)
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.log.mkdir()
        self.data.mkdir(mode=0o711)
        self.has_disk = self._mount()
        self.installation = Installation(self.data, Account.needed())
        self.ports = [free_port()] * 2 if is_small else [free_port(), free_port()]
        self.target_port = free_port()
        self.control_path = str(self.folder / "control")
        self.proxy_folder = self.folder / "proxy"
        self.proxy_folder.mkdir()
        self.programs: dict[str, Program] = {}
        self._stop = threading.Event()
        self._servers = threading.RLock()
        self.postgres_down_until = self.redis_down_until = 0.0

    def _mount(self) -> bool:
        """A small disk for the data folder, where this may mount one."""
        if os.geteuid() != 0:
            return False
        words = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=711", "tmpfs", str(self.data)]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def start(self) -> None:
        self.installation.create()
        self.installation.create_server_folders()
        self.postgres = BundledPostgres(self.installation, SERVER)
        self.redis = BundledRedis(self.installation)
        initdb = self.postgres.begin_initialising()
        self.redis.start()
        self.postgres.finish_initialising(initdb)
        self.postgres.start()
        self.postgres.wait_ready()
        self.redis.wait_ready()
        self._make_programs()
        done = subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=PROJECT,
            env=self.environment(direct=True), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def environment(self, *, direct: bool = False) -> dict[str, str]:
        """What a process of the product is told; `direct`: past the proxy, with the owner's address, without a hook."""
        kept = self.installation.read()
        urls = self.installation.database_urls()
        place = str(self.installation.run).replace("/", "%2F")
        through = str(self.proxy_folder).replace("/", "%2F")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FAULTS"))}
        environ |= {
            "DATABASE_URL": urls["DATABASE_URL"] if direct else urls["DATABASE_URL"].replace(place, through),
            "DATABASE_OWNER_URL": urls["DATABASE_OWNER_URL"],
            "REDIS_URL": self.installation.redis_url(),
            "SECRET_KEY": kept["SECRET_KEY"],
            "SEAL_KEYS": kept["SEAL_KEYS"],
            "AUDIT_ORIGIN": kept["AUDIT_ORIGIN"],
            "AUDIT_SIGNING_KEY": str(self.installation.signing_key),
            "BASE_URL": f"http://127.0.0.1:{self.ports[0]}",
            "STATIC_FROM_SOURCE": "1",
            "STATIC_ROOT": str(self.folder / "static"),
            "CALLBACK_ALLOW_PRIVATE": "1",
            "DEMO": "1",
            "WEB_THREADS": "12",
            "PLAN_LIFETIME": str(int(self.life) or 22),
            "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
            "PYTHONUNBUFFERED": "1",
            "LOG_LEVEL": "INFO",
        }
        if not direct:
            environ["FAULTS_CONTROL"] = self.control_path
        return environ

    def _make_programs(self) -> None:
        environ = self.environment()
        listen = str(self.proxy_folder / ".s.PGSQL.5432")
        proxy = ["-m", "tests.faults.proxy", listen, str(self.postgres.socket_path()), f"{self.control_path}.proxy"]
        web = ["-m", "tests.faults.web", "--workers", "2", "--port"]
        quiet = ["--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
        words = {
            "proxy": proxy,
            "target": ["-m", "tests.faults.ledger", str(self.target_port), str(self.folder / "ledger")],
            "web1": [*web, str(self.ports[0])],
            "web2": [*web, str(self.ports[1])],
            "worker1": [*WORKER, *quiet, "-n", "one@here"],
            "worker2": [*WORKER, *quiet, "-n", "two@here"],
            "beat1": [*BEAT, "--loglevel", "WARNING"],
            "beat2": [*BEAT, "--loglevel", "WARNING"],
            "sequencer1": ["manage.py", "audit_sequencer"],
            "sequencer2": ["manage.py", "audit_sequencer"],
        }
        if self.is_small:
            words = {name: words[name] for name in ("proxy", "target", "web1", "worker1", "beat1", "sequencer1")}
        for name, command in words.items():
            self.programs[name] = Program(name, command, environ, self.log / f"{name}.log")

    def start_programs(self) -> None:
        for program in self.programs.values():
            program.start()
            if program.name == "proxy":
                _wait((self.proxy_folder / ".s.PGSQL.5432").exists, "the proxy")
        threading.Thread(target=self._keep, daemon=True).start()

    def _keep(self) -> None:
        """Start again whatever is gone, as `up` and systemd do."""
        while not self._stop.wait(0.1):
            for program in self.programs.values():
                program.keep()
            with self._servers:
                self._keep_servers()

    def _keep_servers(self) -> None:
        now = time.monotonic()
        if now >= self.postgres_down_until and (
            self.postgres.process is None or self.postgres.process.poll() is not None
        ):
            self.postgres.clear_leftovers()
            self.postgres.start()
        if now >= self.redis_down_until and (self.redis.process is None or self.redis.process.poll() is not None):
            self.redis.clear_leftovers()
            self.redis.start()

    def crash_postgres(self, *, down: float) -> None:
        """Stopped at once, as by a power cut; started again after so many seconds, and then it recovers."""
        with self._servers:
            self.postgres_down_until = time.monotonic() + down
            if self.postgres.process is not None and self.postgres.process.poll() is None:
                self.postgres.process.send_signal(signal.SIGQUIT)
                self.postgres.process.wait()

    def kill_redis(self, *, down: float) -> None:
        with self._servers:
            self.redis_down_until = time.monotonic() + down
            if self.redis.process is not None and self.redis.process.poll() is None:
                self.redis.process.kill()
                self.redis.process.wait()

    def is_database_up(self) -> bool:
        try:
            with self.connect() as connection:
                connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """As the owner of the tables, past the proxy."""
        return psycopg.connect(self.installation.database_urls()["DATABASE_OWNER_URL"], autocommit=True)

    def restart_web(self, name: str, extra: dict[str, str]) -> None:
        program = self.programs[name]
        program.environ = {**self.environment(), **extra}
        program.kill()

    def stop(self) -> None:
        """Everything, and the folder."""
        self._stop.set()
        time.sleep(0.15)
        for name in reversed(list(self.programs)):
            process = self.programs[name].process
            if process is not None and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGCONT)
        for name in reversed(list(self.programs)):
            self.programs[name].kill()
        with self._servers:
            for server in (self.redis, self.postgres):
                if server.process is not None:
                    server.process.send_signal(server.crash_signal)
                    server.stop()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if self.has_disk:
            subprocess.run(["umount", "-l", str(self.data)], capture_output=True, check=False)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait(is_so: object, what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come up")
        time.sleep(0.05)
