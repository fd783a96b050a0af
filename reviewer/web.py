"""The web server: granian around the application, loaded before it is asked to serve."""

import argparse
import contextlib
import importlib
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server

import plans.mcp.http  # noqa: F401 - here, so that workers share it and the first request need not wait for it
from reviewer.bundled import die_with_parent

CONNECTIONS = 4_000
"""Of one worker at once: who waits costs memory (some 15 kB), and no thread."""


def main(argv: list[str] | None = None) -> None:
    """Serves until SIGTERM. With --wait it loads everything, then waits for a line on standard input."""
    parser = argparse.ArgumentParser(prog="reviewer.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, help="per worker (default: the setting WEB_THREADS)")
    parser.add_argument("--wsgi", action="store_true", help="without an event loop: whoever waits holds a thread")
    parser.add_argument("--wait", action="store_true", help="serve only after a line on standard input")
    options = parser.parse_args(argv)
    if options.wait and not _wait():
        return
    application, threads = _load(options)
    _allow_files(CONNECTIONS + 200)
    server = Server(
        "reviewer.wsgi:application" if options.wsgi else "reviewer.asgi:application",
        address=options.host,
        port=options.port,
        interface=Interfaces.WSGI if options.wsgi else Interfaces.ASGI,
        workers=options.workers,
        blocking_threads=threads if options.wsgi else 1,  # under ASGI the threads are the application's own
        backpressure=CONNECTIONS,
        http=HTTPModes.http1,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=35,
        log_level=LogLevels.error,
        websockets=False,
    )

    def load(*_: Any) -> Callable[..., Any]:
        die_with_parent()
        return application

    server.serve(target_loader=load, wrap_loader=False)


def _wait() -> bool:
    """Loads the apps and the addresses, then waits to be told that static files lie ready; False where told nothing.

    Only then is the application made: it reads the list of static files once.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "reviewer.settings")
    django.setup()
    importlib.import_module(settings.ROOT_URLCONF)
    return bool(sys.stdin.readline())


def _load(options: argparse.Namespace) -> tuple[Callable[..., Any], int]:
    """The application of the chosen interface, and how many threads it gets."""
    from reviewer import asgi, wsgi  # isort: skip  # loads the apps

    from django.conf import settings

    if options.threads:
        settings.WEB_THREADS = options.threads
    return wsgi.application if options.wsgi else asgi.application, settings.WEB_THREADS


def _allow_files(count: int) -> None:
    """Room for the connections, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    main()
