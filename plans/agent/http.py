"""One HTTP request to the desk: no redirect, no hidden retry, nothing of it in a log or an exception."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from plans.agent import json_text, stopping
from plans.agent.clock import DeskClock, steady
from plans.agent.json_text import JsonValue
from plans.agent.secrets import Secret

if TYPE_CHECKING:
    from urllib3._base_connection import BaseHTTPConnection  # a name of type stubs only

MAX_ANSWER: Final = 8 * 1024 * 1024
"""Bytes of the longest answer that is read: a result (CONTRACT section 6: 1 MiB), escaped, with room to spare."""

CONNECT_TIMEOUT: Final = 10.0
"""Seconds to reach the desk; nothing has been sent before."""

ACCEPT: Final = "application/json, application/problem+json"

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. `problem` is empty unless it is a problem document."""

    status: int
    is_json: bool
    retry_after: float | None
    is_replayed: bool
    body: bytes = field(repr=False)

    def members(self) -> dict[str, JsonValue]:
        """The body's members; none where it is not a JSON object."""
        if not self.is_json:
            return {}
        try:
            value = json_text.read(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def slug(self) -> str:
        """The last path segment of the problem's type (CONTRACT section 4); empty where there is none."""
        kind = self.members().get("type") if self.status >= 400 else None
        return kind.rstrip("/").rsplit("/", 1)[-1] if isinstance(kind, str) else ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No complete answer came. `may_have_arrived` is False only where nothing at all had been sent."""

    may_have_arrived: bool
    why: str


class NotConnected(Exception):
    """No connection came about, so not one byte of the request was sent."""


class _Connection(HTTPConnection):
    debuglevel = 0  # whoever turns http.client's own on would have it print headers and bodies

    def connect(self) -> None:
        stopping.watch(self)
        why = ""
        try:
            super().connect()
        except (OSError, urllib3.exceptions.HTTPError) as failure:
            why = type(failure).__name__
        if why:
            raise NotConnected(why)
        stopping.check()

    def request(self, *args: Any, **options: Any) -> None:
        stopping.watch(self)
        super().request(*args, **options)


class _TlsConnection(_Connection, HTTPSConnection):
    """The same, over TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection

    def _put_conn(self, conn: "BaseHTTPConnection | None") -> None:
        stopping.unwatch()  # from here on it may be another call's
        super()._put_conn(conn)


class _TlsPool(_Pool, urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class Http:
    """Requests to one desk under one API key. Safe with threads; a forked child opens connections of its own."""

    def __init__(self, base_url: str, api_key: Secret, clock: DeskClock) -> None:
        self.base_url = checked_address(base_url)
        self._api_key = api_key
        self._clock = clock
        self._pools: dict[int, urllib3.PoolManager] = {}

    def ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Secret | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
        is_signed: bool = False,
    ) -> Answer | NoAnswer:
        """Sends once, and says truthfully what came of it; raises for nothing that the network does.

        `timeout` bounds the whole exchange, in seconds. A signed request carries no API key.
        """
        stopping.check()
        url = self.base_url + path + (f"?{urlencode(query)}" if query else "")
        sent = {"Accept": ACCEPT, "User-Agent": "plandesk-agent", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            answer = self._exchange(method, url, body, sent, timeout, is_signed=is_signed)
        except NotConnected as failure:
            answer = NoAnswer(False, str(failure))
        except (urllib3.exceptions.HTTPError, OSError) as failure:
            answer = NoAnswer(True, type(failure).__name__)
        except BaseException as interruption:
            # On its way out, but without the frames below, whose variables are the key and the token.
            interruption.__context__ = None
            raise interruption.with_traceback(None)  # noqa: B904 - a cause would bring those frames back
        if isinstance(answer, NoAnswer):
            stopping.check()
        return answer

    def _exchange(
        self, method: str, url: str, body: Secret | None, sent: dict[str, str], timeout: float, *, is_signed: bool
    ) -> Answer | NoAnswer:
        started = steady()
        response = self._pool().urlopen(
            method,
            url,
            body=None if body is None else body.reveal().encode(),
            headers=sent if is_signed else {**sent, "Authorization": f"Bearer {self._api_key.reveal()}"},
            timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        content = _read(response, started + timeout)
        self._clock.learn(response.headers.get("Date"), started, steady())
        if content is None:
            return NoAnswer(True, "the answer was too long, or too slow")
        kind = response.headers.get("Content-Type", "").split(";")[0].strip().lower()
        return Answer(
            status=response.status,
            is_json=kind in ("application/json", "application/problem+json"),
            retry_after=_seconds(response.headers.get("Retry-After")),
            is_replayed=response.headers.get("Idempotent-Replayed", "").strip().lower() == "true",
            body=content,
        )

    def close(self) -> None:
        """Closes this process's connections. Asking again opens new ones."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.clear()

    def _pool(self) -> urllib3.PoolManager:
        # No lock: one that another thread holds while a process forks would never be released in the child.
        pool = self._pools.get(os.getpid())
        if pool is None:
            pool = urllib3.PoolManager(maxsize=8)
            pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
            pool = self._pools.setdefault(os.getpid(), pool)
        return pool


def checked_address(base_url: str) -> str:
    """The desk's address without a slash at its end. Refuses what is not https (but on loopback), and credentials."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("The desk's address must be an https address.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("The desk's address must hold no credentials, query or fragment.")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ValueError("The desk's address must be https, because the API key travels there; http only on loopback.")
    return base_url.rstrip("/")


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes | None:
    """The whole body; None where it is too long or comes too slowly. The connection is kept only after a whole one."""
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(65_536):
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER or steady() > deadline:
            response.close()
            return None
    response.release_conn()
    return b"".join(chunks)


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; the form with a date (which the desk does not use) counts as absent."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
