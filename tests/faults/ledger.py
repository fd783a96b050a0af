"""A remote target as a process, whose ledger outlives it: a correct two-phase target that answers as badly as told.

    python -m tests.faults.ledger PORT FILE

It keeps CONTRACT section 6: once per key, never at or past `expires_at`, in one transaction of its own. It does not
look whether a plan was written under another key: what the desk does twice stands there twice.
"""

import contextlib
import json
import socket
import sqlite3
import sys
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS plan (plan_id TEXT PRIMARY KEY, token TEXT UNIQUE, expires REAL, document TEXT, script TEXT,
    state TEXT, silent INTEGER);
CREATE TABLE IF NOT EXISTS call (plan_id TEXT, key TEXT, at REAL, how TEXT);
CREATE TABLE IF NOT EXISTS application (plan_id TEXT, key TEXT, at REAL);
CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, status INTEGER, body TEXT);
"""
SLOW, SLOWER, LATE = 1.2, 4.5, 1.5  # seconds: within the commit timeout, past it, and how late is late
MODES = (
    "slow", "too slow", "refuses", "drops before reading", "drops after applying", "applies late", "500 unapplied",
    "500 applied", "HTML", "half a body", "huge body", "redirect", "another plan's answer", "409 without details",
    "says in progress", "no, for a reason",
)  # fmt: skip
"""What a plan's first commit meets; every later one meets a target that works."""

Answer = tuple[int, bytes, dict[str, str]]


class Ledger:
    def __init__(self, path: str) -> None:
        self.lock = threading.RLock()
        self.file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.file.execute("PRAGMA journal_mode=WAL")
        self.file.execute("PRAGMA synchronous=OFF")  # the process dies, the machine does not
        self.file.executescript(TABLES)
        self.under_way: set[str] = set()

    def register(self, document: dict[str, Any]) -> None:
        expires = datetime.fromisoformat(document["expires_at"]).timestamp()
        shown = {name: value for name, value in document.items() if name not in ("plan_token", "script")}
        script = document.get("script", [])
        silent = 4 if "another plan's answer" in script else 0
        with self.lock:
            self.file.execute(
                "INSERT OR IGNORE INTO plan VALUES (?, ?, ?, ?, ?, 'pending', ?)",
                (document["plan_id"], document["plan_token"], expires, json.dumps(shown), json.dumps(script), silent),
            )

    def arrive(self, token: str, key: str) -> tuple[str, str] | None:
        """The plan of a token and how its commit is to be met; on the books before anything else happens."""
        with self.lock:
            row = self.file.execute("SELECT plan_id, script FROM plan WHERE token = ?", (token,)).fetchone()
            if row is None:
                return None
            plan_id, script = row[0], json.loads(row[1])
            how = script.pop(0) if script else "works"
            self.file.execute("UPDATE plan SET script = ? WHERE plan_id = ?", (json.dumps(script), plan_id))
            self.file.execute("INSERT INTO call VALUES (?, ?, ?, ?)", (plan_id, key, time.time(), how))
            return plan_id, how

    def apply(self, plan_id: str, key: str, *, admitted: bool = False) -> Answer:
        """Once per key, while the plan lives (`admitted`: it lived when the request came)."""
        with self.lock:
            stored = self.file.execute("SELECT status, body FROM answer WHERE key = ?", (key,)).fetchone()
            if stored is not None:
                return stored[0], stored[1].encode(), {}
            expires, state = self.file.execute(
                "SELECT expires, state FROM plan WHERE plan_id = ?", (plan_id,)
            ).fetchone()
            if state in ("conflicted", "refused"):
                return self._end(plan_id, state)
            if not admitted and time.time() >= expires:
                return self._end(plan_id, "expired")
            body = json.dumps({"entry": f"L-{plan_id}"})
            with self._transaction():
                self.file.execute("INSERT INTO application VALUES (?, ?, ?)", (plan_id, key, time.time()))
                self.file.execute("INSERT INTO answer VALUES (?, 200, ?)", (key, body))
                self.file.execute("UPDATE plan SET state = 'committed' WHERE plan_id = ?", (plan_id,))
            return 200, body.encode(), {}

    def refuse(self, plan_id: str, state: str) -> Answer:
        """End a plan that is not written."""
        with self.lock:
            (now,) = self.file.execute("SELECT state FROM plan WHERE plan_id = ?", (plan_id,)).fetchone()
            return self._end(plan_id, state if now == "pending" else now)

    def _end(self, plan_id: str, state: str) -> Answer:
        self.file.execute("UPDATE plan SET state = ? WHERE plan_id = ? AND state = 'pending'", (state, plan_id))
        status = {"conflicted": 409, "expired": 410}.get(state, 422)
        body = b"" if state == "conflicted" else json.dumps({"title": state, "detail": f"This is {state}."}).encode()
        return status, body, {"Content-Type": "application/problem+json"}

    @contextlib.contextmanager
    def _transaction(self) -> Any:
        self.file.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.file.execute("ROLLBACK")
            raise
        self.file.execute("COMMIT")

    def tell(self, plan_id: str) -> Answer:
        with self.lock:
            row = self.file.execute("SELECT document, state, silent FROM plan WHERE plan_id = ?", (plan_id,)).fetchone()
            if row is None:
                return 404, b"{}", {}
            document = json.loads(row[0]) | {"state": row[1]}
            called = self.file.execute("SELECT count(*) FROM call WHERE plan_id = ?", (plan_id,)).fetchone()[0]
            if row[2] and called:
                self.file.execute("UPDATE plan SET silent = silent - 1 WHERE plan_id = ?", (plan_id,))
                document |= {"plan_id": "somebody_elses", "state": "committed" if row[2] % 2 else "conflicted"}
            return 200, json.dumps(document).encode(), {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ledger: Ledger

    def log_message(self, *args: Any) -> None:  # the ledger is the log
        pass

    def do_GET(self) -> None:
        self._send(self.ledger.tell(self.path.rpartition("/")[2]))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        document = json.loads(self.rfile.read(length))
        if self.path == "/register":
            self.ledger.register(document)
            self._send((200, b"{}", {}))
            return
        key = self.headers.get("Idempotency-Key") or ""
        found = self.ledger.arrive(document["plan_token"], key)
        if found is None:
            self._send((404, b"{}", {}))
            return
        with self.ledger.lock:
            is_alone = key not in self.ledger.under_way
            self.ledger.under_way.add(key)
        if not is_alone:
            self._send((409, json.dumps({"type": "about:in-progress"}).encode().replace(b"about:", b"x/"), {}))
            return
        try:
            self._meet(key, *found)
        finally:
            with self.ledger.lock:
                self.ledger.under_way.discard(key)

    def _meet(self, key: str, plan_id: str, how: str) -> None:
        apply = self.ledger.apply
        match how:
            case "slow":
                time.sleep(SLOW)
            case "too slow":
                answer = apply(plan_id, key)
                time.sleep(SLOWER)
                return self._send(answer)
            case "refuses":
                return self._send((503, b"{}", {"Retry-After": "1"}))
            case "drops before reading":
                return self._drop()
            case "drops after applying" | "another plan's answer":
                apply(plan_id, key)
                return self._drop()
            case "applies late":
                timer = threading.Timer(LATE, apply, (plan_id, key), {"admitted": True})
                timer.start()
                return self._drop()
            case "500 unapplied":
                return self._send((500, b"oh", {}))
            case "500 applied":
                apply(plan_id, key)
                return self._send((500, b"oh", {}))
            case "HTML":
                apply(plan_id, key)
                return self._send((200, b"<html><body>Done</body></html>", {"Content-Type": "text/html"}))
            case "half a body":
                status, body, _ = apply(plan_id, key)
                return self._send((status, body, {}), cut=True)
            case "huge body":
                apply(plan_id, key)
                return self._send((200, b'"' + b"x" * (2 * 1024 * 1024) + b'"', {}))
            case "redirect":
                return self._send((307, b"", {"Location": self.path}))
            case "409 without details":
                return self._send(self.ledger.refuse(plan_id, "conflicted"))
            case "says in progress":
                return self._send((409, b'{"type": "https://target.example/problems/in-progress"}', {}))
            case "no, for a reason":
                return self._send(self.ledger.refuse(plan_id, "refused"))
        return self._send(apply(plan_id, key))

    def _send(self, answer: Answer, *, cut: bool = False) -> None:
        status, body, headers = answer
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.wfile.flush()
        if cut:
            self._drop()

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def handle_error(self, *args: Any) -> None:  # a caller that gives up is no news
        pass


def main(port: int, path: str) -> None:
    Handler.ledger = Ledger(path)
    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
