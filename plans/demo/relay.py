"""A line between an agent and the desk on which one answer can be lost, as on a bad network."""

import socket
import socketserver
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

CHUNK: Final = 64 * 1024


class NoRelay(ValueError):
    """The desk is not served in the clear, so nobody can stand in the line: a sentence for a person."""


class Relay:
    """Passes bytes on, both ways, between a port of its own and the desk's. A context manager; `url` is its address.

    After `lose_next`, the next answer of the desk is thrown away and its connection cut: the desk has done what it was
    asked, and whoever asked does not know.
    """

    def __init__(self, desk_url: str) -> None:
        parts = urlsplit(desk_url)
        if parts.scheme != "http" or parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise NoRelay("The line to the desk can be cut only where the desk is at plain http on this machine.")
        self._desk = (parts.hostname, parts.port or 80)
        self._loses = threading.Event()
        self.lost = 0
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.relay = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_next(self) -> None:
        """The desk's next answer is lost, once."""
        self._loses.set()

    def carry(self, near: socket.socket) -> None:
        """Serves one connection until either side ends it."""
        with socket.create_connection(self._desk, timeout=60) as far:
            there = threading.Thread(target=self._pass_on, args=(near, far, False), daemon=True)
            there.start()
            self._pass_on(far, near, True)
            there.join(5)

    def _pass_on(self, source: socket.socket, to: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(CHUNK):
                if is_answer and self._loses.is_set():
                    self._loses.clear()
                    self.lost += 1
                    break
                to.sendall(piece)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    relay: Relay

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is what this line is there for."""


class _Connection(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.relay.carry(self.request)
