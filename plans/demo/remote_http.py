"""The billing system's HTTP server: routes, bearer tokens, and one thread a connection."""

import hmac
import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.db import connection

from plans.demo import remote
from plans.demo.remote import Answer, Refusal

MAX_BODY: Final = 1024 * 1024
"""Bytes of the largest body that is read."""

DATABASE_SLOTS: Final = 8
"""Requests that use a database connection at once; the others wait for their turn."""

IDLE_SECONDS: Final = 20
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bearers:
    """Who may ask: the desk commits; agents plan and read; either may look a plan up."""

    desk: str
    agents: str

    def __repr__(self) -> str:
        return "Bearers()"

    def check(self, header: str | None, *allowed: str) -> None:
        """Raises Refusal unless the header holds one of `allowed`."""
        given = (header or "").removeprefix("Bearer ").encode()
        if not header or not header.startswith("Bearer "):
            raise Refusal(401, "unauthenticated", "A bearer token is required.")
        if any(hmac.compare_digest(given, token.encode()) for token in allowed):
            return
        known = any(hmac.compare_digest(given, token.encode()) for token in (self.desk, self.agents))
        raise (
            Refusal(403, "forbidden", "This token may not do that.")
            if known
            else Refusal(401, "unauthenticated", "This token is not known here.")
        )


class BillingServer(ThreadingHTTPServer):
    """Serves until `shutdown()`. Port 0 takes a free one; `base_url` says which.

    A plan that was dry-run with `?answer=lost` is written when it is committed, and the first answer never arrives: so
    a demonstration can show what an unknown outcome is, and how it is found out.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, bearers: Bearers) -> None:
        self.bearers = bearers
        self.slots = threading.BoundedSemaphore(DATABASE_SLOTS)
        self.losing: set[str] = set()  # hashes of the tokens of plans whose first answer is lost
        super().__init__((host, port), _Handler)

    @property
    def base_url(self) -> str:
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong. The connection is closed without an answer: what became of the request is not known."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            logger.exception("a request to the billing server failed")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    server: BillingServer

    def do_POST(self) -> None:
        self._serve(self._post)

    def do_GET(self) -> None:
        self._serve(self._get)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        logger.debug(format, *args)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself (an unknown method, a broken request line), as JSON."""
        self.close_connection = True
        self._send(Refusal(code, "malformed", message or "The request can't be read.").answer)

    def _serve(self, route: Callable[[], Answer]) -> None:
        try:
            answer = route()
        except Refusal as refusal:
            answer = refusal.answer
        self._send(answer)

    def _post(self) -> Answer:
        body = self._body()
        found = re.fullmatch(r"/([^/]+)/(dry-run|commit)", urlsplit(self.path).path)
        if found is None:
            raise Refusal(404, "not-found", "There is nothing here.")
        bearers, operation = self.server.bearers, unquote(found[1])
        if found[2] == "dry-run":
            bearers.check(self.headers.get("Authorization"), bearers.agents)
            answer = self._with_database(lambda: remote.dry_run(operation=operation, body=body))
            if urlsplit(self.path).query == "answer=lost":
                self.server.losing.add(_token_in(answer.body))
            return answer
        bearers.check(self.headers.get("Authorization"), bearers.desk)
        key = self.headers.get("Idempotency-Key")
        answer = self._with_database(lambda: remote.commit(operation=operation, key=key, body=body))
        if answer.status == 200 and (token := _token_in(body)) in self.server.losing:
            self.server.losing.discard(token)
            self.close_connection = True
            raise ConnectionAbortedError("This answer is lost.")
        return answer

    def _get(self) -> Answer:
        found = re.fullmatch(r"/(plans|shipments)/([^/]+)", urlsplit(self.path).path)
        if found is None:
            raise Refusal(404, "not-found", "There is nothing here.")
        bearers, name = self.server.bearers, unquote(found[2])
        bearers.check(self.headers.get("Authorization"), bearers.desk, bearers.agents)
        if "\0" in name:
            raise Refusal(404, "not-found", "There is nothing here.")
        if found[1] == "plans":
            return self._with_database(lambda: remote.look_up(plan_id=name))
        return self._with_database(lambda: remote.look_up_shipments(invoice_id=name))

    def _with_database(self, act: Callable[[], Answer]) -> Answer:
        with self.server.slots:
            try:
                return act()
            finally:
                connection.close()  # the thread lives as long as its caller keeps the connection open

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise Refusal(411, "length-required", "A Content-Length is required.")
        if len(length) > len(str(MAX_BODY)) or int(length) > MAX_BODY:
            self.close_connection = True
            raise Refusal(413, "too-large", "The body is too large.")
        return self.rfile.read(int(length))

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response_only(answer.status)
        self.send_header("Date", self.date_time_string())
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _token_in(text: str | bytes) -> str:
    """The hash of the plan token in a dry run's answer, or in a commit that was taken."""
    return remote.hash_token(json.loads(text)["plan_token"])
