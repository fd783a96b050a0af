"""A mail server, and an HTTP server that stands for chat and push services: real sockets, kept words."""

import contextlib
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class MailServer(socketserver.ThreadingTCPServer):
    """SMTP enough for one client: what was accepted is in `mails`. `answer` is given to the recipient."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.answer = "250 ok"
        self.holds = threading.Event()  # set: whatever was sent, the end of DATA is not answered
        self.arrived = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Mail(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        self.say("220 double")
        for raw in self.rfile:
            command = raw.decode("latin-1").strip()
            verb = command[:4].upper()
            if verb in ("EHLO", "HELO"):
                self.say("250 double")
            elif verb == "MAIL" or verb == "RSET":
                self.say("250 ok")
            elif verb == "RCPT":
                self.server.recipients.append(command)
                self.say(self.server.answer)
            elif verb == "DATA":
                self.say("354 go on")
                self.take()
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("500 what")

    def take(self) -> None:
        lines: list[bytes] = []
        for line in self.rfile:
            if line == b".\r\n":
                break
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        else:
            return
        self.server.arrived.set()
        while self.server.holds.is_set():
            time.sleep(0.02)
            self.connection.setblocking(False)
            try:
                if self.connection.recv(1) == b"":
                    return  # whoever sent it is gone, and it was never accepted
            except BlockingIOError:
                continue
            except OSError:
                return
            finally:
                self.connection.setblocking(True)
        self.server.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))  # type: ignore[arg-type]
        self.say("250 taken")

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self.wfile.write(text.encode() + b"\r\n")


class WebServer(ThreadingHTTPServer):
    """Takes every POST, keeps it, and answers `status`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Web)
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 201
        self.refuses: Callable[[bytes], bool] = lambda body: False
        self.location = ""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Web(BaseHTTPRequestHandler):
    server: WebServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.taken.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(500 if self.server.refuses(body) else self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@contextlib.contextmanager
def running(server: Any) -> Iterator[Any]:
    """The server in a thread, until the end."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def eventually(holds: Callable[[], Any], *, within: float = 20.0) -> Any:
    """What `holds` gives once it is true; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
    return found
