"""`manage.py up`: starts the whole product, keeps it running, stops all of it. Loads no app: it starts at once."""

import argparse
import contextlib
import fcntl
import hashlib
import http.client
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

from django.core.exceptions import ImproperlyConfigured

from reviewer.bundled import BundledPostgres, BundledRedis, Server
from reviewer.children import MARK, Child, end_all, end_leftovers
from reviewer.installation import PROJECT, Account, CannotStart, Installation, default_data
from reviewer.servers import check_database, check_redis

POLL = 0.1
READY_WITHIN = 60.0
STOP_WITHIN = 12.0
AGENTS = "agents"
AGENTS_STOP_WITHIN = 6.0
BILLING_READY_WITHIN = 15.0
MANAGE = [sys.executable, str(PROJECT / "manage.py")]
CELERY = [sys.executable, "-m", "celery", "--quiet", "-A", "reviewer.celery"]
WORKER = [*CELERY, "worker", "--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle"]
BEAT = [*CELERY, "beat", "--scheduler", "celery.beat:Scheduler"]


class Stopped(BaseException):
    """SIGTERM, SIGINT or SIGHUP came: unwind and stop everything."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to serve on (default 8000)")
    parser.add_argument("--data", metavar="DIR", help="data folder, made if missing (default .data in the project)")
    parser.add_argument(
        "--demo",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="with the demonstration's data and programs",
    )
    parser.add_argument(
        "--agents", action=argparse.BooleanOptionalAction, default=True, help="the demonstration's agents (with --demo)"
    )


def main(argv: list[str]) -> int:
    """Runs until it is told to stop (0), or says in one sentence why it cannot (1)."""
    parser = argparse.ArgumentParser(prog="manage.py up", description="Run the whole product.")
    add_arguments(parser)
    options = parser.parse_args(argv)
    if not 1 <= options.port <= 65535:
        parser.error("--port must be from 1 to 65535")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        with contextlib.ExitStack() as stack:
            supervisor = Supervisor(options)
            stack.callback(supervisor.stop)
            supervisor.start()
            supervisor.watch()
    except Stopped:
        say("Stopped.")
        return 0
    except CannotStart as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


class Supervisor:
    """One running product over one data folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        named = options.data or os.environ.get("PLANDESK_DATA")
        data = Path(os.path.abspath(named)) if named else default_data()
        self.installation = Installation(data, Account.needed())
        self.children: list[Child] = []
        self.servers: list[Server] = []
        self.environ: dict[str, str] = {}
        self.has_own_postgres = not os.environ.get("DATABASE_URL")
        self.has_own_redis = not os.environ.get("REDIS_URL")
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Everything up to the line that says where it serves. What can run at the same time does."""
        self.installation.create()
        self._lock = _take_lock(self.installation.data)
        end_leftovers(self.installation.data)
        _check_port(self.options.host, self.options.port)
        if self.has_own_postgres and os.environ.get("DATABASE_OWNER_URL"):
            raise CannotStart("DATABASE_OWNER_URL is set and DATABASE_URL is not: set both, or neither.")
        self.environ = self._environment()
        _check_settings(self.environ)
        _check_hosted_apps(self.environ)
        if not self.has_own_postgres:
            check_database(self.environ)
        if not self.has_own_redis:
            check_redis(self.environ["REDIS_URL"])
        postgres, initdb = self._begin_servers()
        web = self._add(Child("web", self._web_command()))
        web.start(self.environ, stdin=subprocess.PIPE)
        static = self._begin_static()
        self._finish_servers(postgres, initdb)
        wants_seed = self.options.demo and _has_command("demo_seed")
        self._run("prepare", *(["--demo"] if wants_seed else []), doing="Preparing the database")
        if static is not None:
            static.finish("Collecting static files")
            _static_stamp(self.installation).write_text(static_fingerprint())
        assert web.process is not None
        assert web.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            web.process.stdin.write(b"\n")
            web.process.stdin.close()
        web.command = [word for word in web.command if word != "--wait"]
        self._wait_until_served(web)
        self._start_others()
        say(f"Plandesk serves at {self.environ['BASE_URL']}/  (data in {self.installation.data}; Ctrl-C stops it)")
        self._start_agents()

    def watch(self) -> None:
        """Starts again whatever dies, until Stopped."""
        while True:
            time.sleep(POLL)
            for server in self.servers:
                self._keep_server(server)
            for child in self.children:
                self._keep_child(child)

    def stop(self) -> None:
        """Ends programs first, then the servers they use; SIGKILL for what does not listen. Leaves nothing behind."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The demonstration's agents tell the desk that their task ends, so the desk outlives them.
        agents = [child for child in self.children if child.name == AGENTS]
        end_all(agents, AGENTS_STOP_WITHIN)
        end_all([child for child in self.children if child not in agents], STOP_WITHIN)
        for server in reversed(self.servers):
            server.stop()
        if self._lock is not None:
            self._lock.close()

    def _begin_servers(self) -> tuple[BundledPostgres | None, "subprocess.Popen[bytes] | None"]:
        self.installation.create_server_folders()
        postgres: BundledPostgres | None = None
        initdb = None
        if self.has_own_postgres:
            postgres = BundledPostgres(self.installation)
            self.servers.append(postgres)
            if postgres.is_fresh:
                initdb = postgres.begin_initialising()
            else:
                postgres.clear_leftovers()
                postgres.start()
        if self.has_own_redis:
            redis = BundledRedis(self.installation)
            self.servers.append(redis)
            redis.clear_leftovers()
            redis.start()
        return postgres, initdb

    def _finish_servers(self, postgres: BundledPostgres | None, initdb: "subprocess.Popen[bytes] | None") -> None:
        if postgres is not None:
            if initdb is not None:
                postgres.finish_initialising(initdb)
                postgres.start()
            postgres.wait_ready()
            if initdb is not None:
                postgres.begin_syncing()
        if self.has_own_redis:
            self.servers[-1].wait_ready()

    def _environment(self) -> dict[str, str]:
        """What the programs are told: the environment we were given, and what the installation adds."""
        environ = {**os.environ, MARK: str(self.installation.data), "PYTHONUNBUFFERED": "1"}
        environ["PLANDESK_DATA"] = str(self.installation.data)
        environ["DJANGO_SETTINGS_MODULE"] = "reviewer.settings"
        environ["STATIC_ROOT"] = str(self.installation.static)
        if not environ.get("BASE_URL"):
            host = "127.0.0.1" if self.options.host in {"0.0.0.0", "::", ""} else self.options.host  # noqa: S104
            host = f"[{host}]" if ":" in host else host
            environ["BASE_URL"] = f"http://{host}:{self.options.port}"
        self.installation.remember("BASE_URL", environ["BASE_URL"])
        if "HOSTED_APPS" in environ:
            self.installation.remember("HOSTED_APPS", environ["HOSTED_APPS"])
        environ["DEMO"] = "1" if self.options.demo else "0"
        self.installation.remember("DEMO", environ["DEMO"])
        if self.options.demo:
            environ["DEMO"] = "1"
        if self.options.demo and not environ.get("DEMO_BILLING_PORT"):
            kept = self.installation.read().get("DEMO_BILLING_PORT")
            self.installation.remember("DEMO_BILLING_PORT", kept or str(_free_port()))
        if self.has_own_postgres:
            environ.update(self.installation.database_urls())
        if self.has_own_redis:
            environ["REDIS_URL"] = self.installation.redis_url()
        self.installation.complete(environ)
        return environ

    def _web_command(self) -> list[str]:
        options = self.options
        words = ["--host", options.host, "--port", str(options.port), "--wait"]
        return [sys.executable, "-m", "reviewer.web", *words]

    def _add(self, child: Child) -> Child:
        self.children.append(child)
        return child

    def _run(self, *arguments: str, doing: str) -> None:
        child = self._add(Child(arguments[0], [*MANAGE, *arguments]))
        child.start(self.environ)
        child.finish(doing)
        self.children.remove(child)

    def _begin_static(self) -> Child | None:
        stamp = _static_stamp(self.installation)
        if stamp.exists() and stamp.read_text() == static_fingerprint():
            return None
        child = Child("collectstatic", [*MANAGE, "collectstatic", "--noinput", "--verbosity", "0", "--skip-checks"])
        child.start(self.environ)
        return child

    def _start_others(self) -> None:
        others = [
            Child("worker", [*WORKER, "--loglevel", "WARNING"]),
            Child("scheduler", [*BEAT, "--loglevel", "WARNING"]),
            Child("sequencer", [*MANAGE, "audit_sequencer"]),
        ]
        if self.options.demo and _has_command("demo_billing"):
            others.append(Child("billing", [*MANAGE, "demo_billing", "--port", self.environ["DEMO_BILLING_PORT"]]))
        for child in others:
            self._add(child).start(self.environ)

    def _start_agents(self) -> None:
        """The demonstration's agents, once the billing system they work in answers, or has had time to."""
        if not (self.options.demo and self.options.agents and _has_command("demo_agents")):
            return
        deadline = time.monotonic() + BILLING_READY_WITHIN
        while not _accepts("127.0.0.1", int(self.environ["DEMO_BILLING_PORT"])) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._add(Child(AGENTS, [*MANAGE, "demo_agents"])).start(self.environ)

    def _wait_until_served(self, web: Child) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not _is_served(self.options.host, self.options.port):
            if web.has_ended():
                raise CannotStart("The web server did not start; what it said is above.")
            if time.monotonic() > deadline:
                raise CannotStart(f"The site did not answer within {READY_WITHIN:.0f} s; see {self.installation.log}.")
            time.sleep(0.02)

    def _keep_server(self, server: Server) -> None:
        server.reap()
        if server.process is not None and server.process.poll() is not None:
            say(f"{server.name} ended with code {server.process.returncode}; starting it again.")
            server.clear_leftovers()
            server.start()
            server.wait_ready()

    def _keep_child(self, child: Child) -> None:
        if child.due_at is not None:
            if time.monotonic() >= child.due_at:
                child.start(self.environ)
        elif child.has_ended():
            code = child.end_group()
            say(f"{child.name} ended with code {code}; starting it again in {child.plan_restart():.1f} s.")


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped


def _take_lock(data: Path) -> IO[str]:
    """One `up` per folder: the lock ends with the process that holds it, however that ends."""
    lock = (data / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        raise CannotStart(f"`up` already runs on {data} (process {holder}).") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _check_settings(environ: dict[str, str]) -> None:
    """Reads the settings once before anything starts: a bad value is one sentence, not one from every program."""
    os.environ.update(environ)
    try:
        importlib.import_module("reviewer.settings")
    except ImproperlyConfigured as error:
        raise CannotStart(str(error)) from None


def _check_hosted_apps(environ: dict[str, str]) -> None:
    """Loads the apps that hosted operations come from once, in a process of its own: the reason is one sentence."""
    if not environ.get("HOSTED_APPS"):
        return
    command = [sys.executable, "-c", "import django; django.setup()"]
    done = subprocess.run(command, env=environ, cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CannotStart(f"HOSTED_APPS: {environ['HOSTED_APPS']} cannot be loaded: {reason}")


def _check_port(host: str, port: int) -> None:
    try:
        family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise CannotStart(
            f"Port {port} on {host} cannot be served on: {error.strerror}; choose another with --port."
        ) from None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _accepts(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def _is_served(host: str, port: int) -> bool:
    local = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    connection = http.client.HTTPConnection(local, port, timeout=5)
    try:
        connection.request("GET", "/healthz", headers={"Host": "localhost"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _has_command(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"plans.demo.management.commands.{name}") is not None
    except ModuleNotFoundError:
        return False


def _static_stamp(installation: Installation) -> Path:
    return installation.data / "static.stamp"


def static_fingerprint() -> str:
    """Changes when a static file of ours does, or a package is installed: then they are collected again."""
    found = hashlib.sha256()
    site_packages = Path(http.client.__file__).parent if sys.prefix == sys.base_prefix else Path(sys.prefix)
    for folder in sorted(site_packages.glob("lib/python*/site-packages")):
        found.update(f"{folder} {folder.stat().st_mtime_ns}\n".encode())
    for pattern in ("*/static/**/*", "plans/demo/static/**/*"):
        for path in sorted(PROJECT.glob(pattern)):
            if path.is_file() and ".venv" not in path.parts:
                found.update(f"{path} {path.stat().st_mtime_ns} {path.stat().st_size}\n".encode())
    return found.hexdigest()
