"""The scripted desk and target on loopback: one HTTP server, which keeps everything it hears and says."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from plans.conformance.evidence import Heard
from plans.conformance.scripted import Asked, Script

MAX_BODY: Final = 1024 * 1024


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    server: "_Server"

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_PATCH(self) -> None:
        self._handle()

    def log_message(self, *args: object) -> None:
        """Nothing: what came in is the judge's."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        length = self.headers.get("Content-Length") or "0"
        body = self.rfile.read(min(int(length), MAX_BODY)) if length.isdigit() else b""
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        script = self.server.script
        heard = Heard(script.turn, datetime.now(UTC), Asked(self.command, parts.path, query, headers, body))
        self.server.heard.append(heard)
        heard.told = told = script.answer(heard.asked)
        if told.is_lost:
            self.close_connection = True
            return
        content = json.dumps(told.members).encode()
        self.send_response(told.status)
        kind = "application/json" if told.status < 400 else "application/problem+json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **told.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heard: list[Heard] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: an agent that goes away in the middle is no error of ours."""


@contextmanager
def serving(script: Script) -> Iterator[tuple[str, list[Heard]]]:
    """The address while it runs, and what is heard there."""
    server = _Server(script)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.heard
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
