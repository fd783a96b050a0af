"""An installation as in production, durable and with its own PostgreSQL, in a folder that is thrown away."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from reviewer.bundled import tie_to_parent
from reviewer.installation import PROJECT
from tests.benchmarks.measuring import cpu_of
from tests.ground import FOLDER_VARIABLE, Ground


class Production(Ground):
    """PostgreSQL with the settings that `up` gives it: what is answered is on disk."""

    postgres_settings: Mapping[str, str] = {}

    @property
    def postgres_cpu(self) -> float:
        """Seconds of CPU of PostgreSQL and all its backends so far."""
        process = self._servers[0].process
        assert process is not None
        return cpu_of(process.pid)

    def empty(self) -> None:
        """Nothing is left of the benchmark before."""
        from django.db import connections

        connections.close_all()
        with self.connect_as_owner() as connection:
            connection.execute("SELECT seed.clean()")
            connection.execute("VACUUM ANALYZE")


@contextlib.contextmanager
def production() -> Iterator[Production]:
    """A started installation, with Django set up on it; gone after the block."""
    os.environ.pop(FOLDER_VARIABLE, None)
    ground = Production.of_this_run()
    try:
        ground.prepare_environment()
        import django

        django.setup()
        ground.start()
        yield ground
    finally:
        ground.stop()


@contextlib.contextmanager
def program(module: str, **environ: str) -> Iterator[tuple[int, int]]:
    """`python -m tests.benchmarks.<module>`, which prints its port; yields its process id and that port."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.benchmarks.{module}"],
        cwd=PROJECT,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=tie_to_parent(signal.SIGKILL),
    )
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def session_of(person: Any) -> tuple[dict[str, str], str]:
    """A signed-in browser's headers, and the CSRF token that its forms carry."""
    from django.conf import settings
    from django.test import Client

    browser = Client(SERVER_NAME="127.0.0.1")
    browser.force_login(person, backend="reviewer.access.PersonBackend")
    session = browser.cookies[settings.SESSION_COOKIE_NAME].value
    token = secrets.token_hex(16)  # 32 letters and digits, as Django makes them
    cookies = {settings.SESSION_COOKIE_NAME: session, settings.CSRF_COOKIE_NAME: token}
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}, token
