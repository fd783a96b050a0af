"""Clients that keep a connection open: a waiting request, a stream of hints, a form that is pressed."""

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings

from plans.models import Plan
from plans.schema import shown_digest
from reviewer.models import Person
from tests.fixtures import Site
from tests.makers import MadeAgent, reread
from tests.reviewer.pages import client_of, url_of


class Connection:
    """One HTTP/1.1 request on a socket of its own, read when somebody wants to know."""

    def __init__(self, site: Site, path: str, headers: dict[str, str] | None = None, *, request: bytes = b"") -> None:
        parts = urlsplit(site.url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 80))
        lines = [f"GET {path} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall(request or "\r\n".join([*lines, "", ""]).encode())
        self.received = b""
        self.has_ended = False

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def read_until(self, text: str, seconds: float = 30) -> float:
        """Reads until `text` has come; when that was. Fails the test after so many seconds."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.received:
            if self.has_ended or not self._read(deadline):
                raise AssertionError(f"{text!r} did not come within {seconds} s, but {self.received!r}")
        return time.monotonic()

    def read_to_end(self, seconds: float = 30) -> bytes:
        """Everything, once the server has closed the connection or ended a chunked answer."""
        deadline = time.monotonic() + seconds
        while not self.has_ended and not self.received.endswith(b"0\r\n\r\n"):
            assert self._read(deadline), f"did not end within {seconds} s: {self.received!r}"
        return self.received

    def forget(self) -> None:
        """Takes what has come by now, also what nobody has read yet, and forgets it."""
        while self._read(time.monotonic() + 0.001):
            pass
        self.received = b""

    def has_answered(self) -> bool:
        """Whether anything has come by now."""
        return self._read(time.monotonic() + 0.001) or bool(self.received)

    @property
    def status(self) -> int:
        self.read_until("\r\n\r\n")
        return int(self.received.split(b" ", 2)[1])

    @property
    def json(self) -> Any:
        """The body of an answer that has a length."""
        self.read_until("\r\n\r\n")
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            assert self._read(time.monotonic() + 30)
            body = self.received.partition(b"\r\n\r\n")[2]
        return json.loads(body)

    def _read(self, deadline: float) -> bool:
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            piece = self.socket.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            piece = b""
        self.has_ended = not piece
        self.received += piece
        return bool(piece)


def waiting(site: Site, made: MadeAgent, plan: Plan, seconds: int = 30, **headers: str) -> Connection:
    """An agent's request that waits for the end of a plan."""
    bearer = {"Authorization": f"Bearer {made.api_key}"}
    return Connection(site, f"/api/v1/plans/{plan.plan_id}?wait={seconds}", bearer | headers)


def cookies_of(person: Person) -> dict[str, str]:
    """The headers of a browser that is signed in, and may press buttons."""
    session = client_of(person).cookies[settings.SESSION_COOKIE_NAME].value
    token = secrets.token_hex(16)
    cookie = f"{settings.SESSION_COOKIE_NAME}={session}; {settings.CSRF_COOKIE_NAME}={token}"
    return {"Cookie": cookie, "X-CSRFToken": token}


def listening(site: Site, browser: dict[str, str], *plans: Plan) -> Connection:
    """A page's stream of hints."""
    query = "&".join(f"plan={plan.agent.name}/{plan.target.name}/{plan.plan_id}" for plan in plans)
    return Connection(site, f"/live/?{query}", browser)


def press_approve(site: Site, browser: dict[str, str], plan: Plan) -> urllib3.BaseHTTPResponse:
    """A reviewer presses Approve on the page as it is now."""
    digest = shown_digest(reread(plan))
    return site.request(
        "POST", url_of(plan, "approve"), headers=browser, fields={"digest": digest}, encode_multipart=False
    )


@contextlib.contextmanager
def closing(*connections: Connection) -> Iterator[None]:
    """Close them all at the end."""
    try:
        yield
    finally:
        for connection in connections:
            connection.close()
