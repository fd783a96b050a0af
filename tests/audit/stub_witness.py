"""A witness of our own for tests, over real HTTP: c2sp.org/tlog-witness with one log, checked as the text says."""

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from audit.merkle import ProofError, verify_consistency
from audit.notes import Checkpoint, NoteError, Verifier, append_signature, cosign_checkpoint, open_checkpoint

NAME, SEED = "witness.example.test/w1", bytes(range(32, 64))


class StubWitness:
    """Remembers the last checkpoint it cosigned. `mode`: None, or a status that it answers whatever is asked."""

    def __init__(self, log: Verifier) -> None:
        self.log = log
        self.last: Checkpoint | None = None
        self.mode: int | None = None
        self.asked: list[int] = []
        self.verifier = cosign_checkpoint(Checkpoint("x", 0, bytes(32)), name=NAME, seed=SEED, at=0)[0]
        self.address = ""

    def answer(self, body: str) -> tuple[int, str]:
        head, _, note = body.partition("\n\n")
        first, *lines = head.split("\n")
        old = int(first.removeprefix("old "))
        self.asked.append(old)
        if self.mode is not None:
            return self.mode, ""
        try:
            checkpoint = open_checkpoint(note, self.log)
        except NoteError:
            return 403, ""
        size = self.last.size if self.last else 0
        if old > checkpoint.size:
            return 400, ""
        if old != size:
            return 409, f"{size}\n"
        try:
            if self.last:
                verify_consistency(
                    old=old,
                    new=checkpoint.size,
                    old_root=self.last.root,
                    new_root=checkpoint.root,
                    proof=[base64.b64decode(line) for line in lines],
                )
        except ProofError:
            return 422, ""
        self.last = checkpoint
        _, signature = cosign_checkpoint(checkpoint, name=NAME, seed=SEED, at=int(time.time()))
        return 200, append_signature("", self.verifier, signature)


@contextmanager
def witnessing(log: Verifier) -> Iterator[StubWitness]:
    """A witness that serves on loopback as long as the block lasts."""
    witness = StubWitness(log)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = witness.answer(body) if self.path == "/w1/add-checkpoint" else (404, "")
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer.encode())))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        witness.address = f"http://127.0.0.1:{server.server_port}/w1"
        yield witness
        server.shutdown()
        thread.join()
