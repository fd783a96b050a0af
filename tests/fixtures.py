"""Fixtures for tests of every app: the database, the site over HTTP, a worker, a browser, people."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import urllib3
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.db import connections

from reviewer.bundled import tie_to_parent
from reviewer.installation import PROJECT
from reviewer.models import Person
from tests.audit.shown import check_shown, claimed_by
from tests.ground import Ground, free_port

CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PASSWORD = "a long enough password"
# The real hasher at its least cost: tests sign in often.
Argon2PasswordHasher.time_cost = 1
Argon2PasswordHasher.memory_cost = 8
Argon2PasswordHasher.parallelism = 1


@pytest.fixture(scope="session")
def _cleaner(ground: Ground) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with ground.connect_as_owner() as connection:
        connection.execute("SET lock_timeout = '10s'")
        yield connection


@pytest.fixture
def database(
    request: pytest.FixtureRequest,
    ground: Ground,
    _cleaner: psycopg.Connection[tuple[object, ...]],
    django_db_blocker: Any,
) -> Iterator[None]:
    """The test's database: real commits, from any thread or process, as the restricted role; emptied afterwards.

    A test that is said to show a kind of event must have left one of it in the log.
    """
    with django_db_blocker.unblock():
        yield
        for connection in connections.all(initialized_only=True):
            if connection.connection is not None and (connection.in_atomic_block or not connection.get_autocommit()):
                connection.close()
        shown = bool(claimed_by(request.node.nodeid))
        kinds = _cleaner.execute("SELECT DISTINCT kind FROM audit_event").fetchall() if shown else []
        _cleaner.execute("SELECT seed.clean()")
        check_shown(request.node.nodeid, [str(kind) for (kind,) in kinds])


@pytest.fixture
def owner_connection(ground: Ground, database: None) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection as the role that owns the tables, for what the application's role must not be able to do."""
    with ground.connect_as_owner() as connection:
        yield connection


@pytest.fixture
def manage(ground: Ground, database: None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`manage("person", "create", ...)`: the command line in a process of its own, on the test's database."""
    return ground.manage


@pytest.fixture
def make_person(database: None) -> Callable[..., Person]:
    """`make_person("reviewer", "admin", email=..., name=...)`, who signs in with `PASSWORD`."""
    made = 0

    def make(*roles: str, email: str | None = None, name: str = "", password: str = PASSWORD) -> Person:
        nonlocal made
        made += 1
        person = Person(email=email or f"person{made}@example.com", name=name or f"Person {made}")
        for role in roles or ("reviewer",):
            setattr(person, f"is_{role}", True)
        person.set_password(password)
        person.save()
        return person

    return make


class Site:
    """The real application behind the real server, on a port of its own, over the test's database."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        self.url = url
        self.process = process
        self.http = urllib3.PoolManager(timeout=60, retries=False, maxsize=64)

    def request(self, method: str, path: str, **options: Any) -> urllib3.BaseHTTPResponse:
        return self.http.request(method, self.url + path, redirect=False, **options)


def start_site(port: int, *, arguments: Sequence[str] = (), **environ: str) -> Site:
    """Starts the web server and returns once it answers."""
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "reviewer.web", "--port", str(port), *arguments],
        cwd=PROJECT,
        env={**os.environ, "BASE_URL": url, **environ},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=tie_to_parent(signal.SIGKILL),
    )
    site = Site(url, process)
    deadline = time.monotonic() + 60
    while True:
        try:
            if site.request("GET", "/healthz").status == 200:
                return site
        except urllib3.exceptions.HTTPError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            stop_process(process)
            raise RuntimeError("the site did not start")
        time.sleep(0.02)


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, and SIGKILL to its whole group after 15 s."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)


@pytest.fixture(scope="session")
def _site(ground: Ground) -> Iterator[Site]:
    site = start_site(ground.port)
    yield site
    stop_process(site.process)


@pytest.fixture
def site(_site: Site, database: None) -> Site:
    """The site at settings.BASE_URL."""
    return _site


@pytest.fixture
def make_site(ground: Ground, database: None) -> Iterator[Callable[..., Site]]:
    """`make_site(PLAN_LIFETIME="2")`: another site on the same database, with other settings."""
    made: list[Site] = []

    def make(**environ: str) -> Site:
        made.append(start_site(free_port(), **environ))
        return made[-1]

    yield make
    for site in made:
        stop_process(site.process)


@pytest.fixture(scope="session")
def _celery_worker(ground: Ground) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "celery", "-A", "reviewer.celery", "worker", "--pool", "threads"]
    process = subprocess.Popen(
        [*command, "--concurrency", "4", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=tie_to_parent(signal.SIGKILL),
    )
    yield process
    stop_process(process)


@pytest.fixture
def celery_worker(_celery_worker: "subprocess.Popen[bytes]", database: None) -> "subprocess.Popen[bytes]":
    """A real worker (no scheduler) on the test's database: `task.delay()` runs there."""
    return _celery_worker


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium. Its absence fails under CI=true, and is said aloud elsewhere."""
    if not CHROMIUM.exists():
        sentence = "/usr/bin/chromium is missing: install Debian's package chromium to run the browser tests."
        pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)
    from playwright.sync_api import sync_playwright

    # Playwright's event loop runs in this thread; the database is still used from plain functions.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=CHROMIUM_ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def browser(chromium: Any, site: Site) -> Iterator[Any]:
    """A fresh browser context on the site; the test fails if a page broke the Content-Security-Policy."""
    violations: list[str] = []
    context = chromium.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    context.expose_function("plandeskTestViolation", violations.append)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', event => "
        "window.plandeskTestViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`))"
    )
    context.set_default_timeout(15_000)
    yield context
    context.close()
    assert violations == []


@pytest.fixture
def page(browser: Any) -> Any:
    return browser.new_page()


@pytest.fixture
def sign_in(site: Site) -> Callable[..., None]:
    """`sign_in(page, person)` through the form."""

    def sign_in(page: Any, person: Person, password: str = PASSWORD) -> None:
        page.goto("/login/")
        page.fill("input[name=login]", person.email)
        page.fill("input[name=password]", password)
        page.click("form button[type=submit]")
        page.wait_for_url(lambda url: "/login/" not in url)

    return sign_in
