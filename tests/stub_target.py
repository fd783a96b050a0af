"""A remote target under a test's thumb: a real HTTP server on loopback that counts, records, and fails as it is told.

    with StubTarget() as target:
        plan = target.new_plan()                        # what an agent feeds; known to the look-up by plan id
        target.script(DropAfterApplying(), Commit())    # the next two commits; afterwards `target.otherwise`
        ...
        assert target.applied == 1 and {call.key for call in target.commits} == {key}

A commit is applied at most once per idempotency key, as a good target does it; everything else is up to the script.
"""

import contextlib
import json
import secrets
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import pytest

from tests.stub_behaviour import (
    Answer,
    ApplyLater,
    Behaviour,
    Commit,
    Delay,
    DropAfterApplying,
    DropAfterReading,
    DropBeforeReading,
    Hold,
    Received,
    conflict,
    in_progress,
    problem,
)

# fmt: off
__all__ = [  # one import for a test
    "Answer", "ApplyLater", "Behaviour", "Commit", "Delay", "DropAfterApplying", "DropAfterReading",
    "DropBeforeReading", "Hold", "Received", "StubTarget", "conflict", "in_progress", "problem", "refusing_url",
    "stub_target",
]
# fmt: on

LOOPBACK = "127.0.0.1"


class StubTarget:
    """The server. Every attribute may be read while it runs; scripts may be changed between requests.

    `otherwise` is what a commit gets when the script is used up. `received` lists every request that was read,
    `commits` and `look_ups` the two kinds of it. `applications` counts per key, `applied` in all.
    """

    def __init__(self, *, bearer: str | None = None) -> None:
        self.bearer = bearer
        self.otherwise: Behaviour = Commit()
        self.received: list[Received] = []
        self.applications: Counter[str] = Counter()
        self.connections = 0
        self._lock = threading.RLock()
        self._script: deque[Behaviour] = deque()
        self._changed: list[dict[str, Any]] | None = None
        self._plans: dict[str, dict[str, Any]] = {}
        self._look_ups: dict[str, deque[Behaviour]] = {}
        self._tokens: dict[str, str] = {}  # plan token: the key that was applied for it
        self._stored: dict[str, tuple[bytes, Answer]] = {}
        self._under_way: set[str] = set()
        self._sockets: set[socket.socket] = set()
        self._timers: list[threading.Timer] = []
        self._server: _Server | None = None
        self._reservation: socket.socket | None = None
        self.port = 0

    # --- life ---

    def __enter__(self) -> "StubTarget":
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        self.refuse_connections()
        if self._reservation is not None:
            self._reservation.close()

    @property
    def base_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def listen(self) -> None:
        """Accept connections (again), at the same port as before."""
        if self._server is not None:
            return
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        self._server = _Server(self, self.port)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def refuse_connections(self) -> None:
        """From now on a connection is refused, and the open ones are cut. The port stays ours."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        with self._lock:
            open_sockets = list(self._sockets)
        for connection in open_sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._reservation = _bound(self.port)

    # --- what the test says ---

    def script(self, *behaviours: Behaviour) -> None:
        """What the next commits get, in this order, before `otherwise`."""
        with self._lock:
            self._script.extend(behaviours)

    def script_look_ups(self, plan_id: str, *behaviours: Behaviour) -> None:
        """What look-ups of this plan get, in this order; the last one stays. None: the truth again."""
        with self._lock:
            self._look_ups[plan_id] = deque(behaviours)

    def move_world(self, *changed: Mapping[str, Any]) -> None:
        """An input of every plan has changed: commits of what is not applied yet answer 409, naming `changed`."""
        with self._lock:
            self._changed = [dict(one) for one in changed]

    def restore_world(self) -> None:
        """Every plan fits again."""
        with self._lock:
            self._changed = None

    def new_plan(
        self,
        *,
        plan_id: str | None = None,
        actions: Sequence[Mapping[str, Any]] | None = None,
        lives: timedelta = timedelta(minutes=10),
        is_known: bool = True,
    ) -> dict[str, Any]:
        """The `plan` object of a feed, with a token of its own; `is_known`: the look-up by plan id tells of it."""
        default = [{"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 100, "to": 250}]
        plan: dict[str, Any] = {
            "plan_id": plan_id or f"plan_{secrets.token_hex(5)}",
            "plan_token": f"pt_{secrets.token_urlsafe(24)}",
            "expires_at": (datetime.now(UTC) + lives).isoformat().replace("+00:00", "Z"),
            "input_fingerprint": f"sha256:{secrets.token_hex(32)}",
            "actions": [dict(action) for action in (actions or default)],
        }
        if is_known:
            with self._lock:
                self._plans[plan["plan_id"]] = plan
        return dict(plan)

    def alter(self, plan_id: str, **members: Any) -> None:
        """Have the look-up tell of a known plan otherwise than what was fed: `actions`, `expires_at`, `state`, ..."""
        with self._lock:
            self._plans[plan_id] = self._plans[plan_id] | members

    # --- what the test reads ---

    @property
    def commits(self) -> list[Received]:
        return [call for call in list(self.received) if call.method == "POST"]

    @property
    def look_ups(self) -> list[Received]:
        return [call for call in list(self.received) if call.method == "GET"]

    @property
    def applied(self) -> int:
        return self.applications.total()

    def calls_per_key(self) -> Counter[str]:
        """How often each idempotency key arrived; `""` counts commits without one."""
        return Counter(call.key or "" for call in self.commits)

    def wait_for_commits(self, count: int, *, seconds: float = 10) -> None:
        """Returns once so many commits have arrived; fails the test after so many seconds."""
        deadline = time.monotonic() + seconds
        while len(self.commits) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self.commits)} of {count} commits arrived within {seconds} s")
            time.sleep(0.005)

    # --- what the server does (called by its handlers) ---

    def remember(self, call: Received) -> None:
        with self._lock:
            self.received.append(call)

    def enter(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            self._sockets.add(connection)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)

    def next_behaviour(self, method: str, path: str) -> Behaviour:
        with self._lock:
            if method == "POST":
                return self._script.popleft() if self._script else self.otherwise
            queue = self._look_ups.get(unquote(path.rpartition("/")[2]))
            if not queue:
                return Commit()  # the truth, see `settle`
            return queue.popleft() if len(queue) > 1 else queue[0]

    def settle(self, call: Received, behaviour: Behaviour) -> Answer | None:
        """Carry one behaviour out; the answer to send, or None to close the connection without a byte."""
        match behaviour:
            case Delay(seconds=seconds, then=then):
                time.sleep(seconds)
                return self.settle(call, then)
            case Hold(until=until, reached=reached, then=then):
                reached.set()
                until.wait(60)
                return self.settle(call, then)
            case ApplyLater(seconds=seconds, then=then):
                timer = threading.Timer(seconds, self._commit, (call, {"ok": True}))
                timer.daemon = True
                self._timers.append(timer)
                timer.start()
                return self.settle(call, then)
            case DropAfterApplying():
                self._commit(call, {"ok": True})
                return None
            case Answer():
                if behaviour.applies:
                    self._commit(call, {"ok": True})
                return behaviour
            case Commit(result=result):
                return self._tell(call) if call.method == "GET" else self._commit(call, result)
        return None

    def _tell(self, call: Received) -> Answer:
        with self._lock:
            plan = self._plans.get(unquote(call.path.rpartition("/")[2]))
            if plan is None:
                return problem(404, "There is no such plan.", "unknown-plan")
            told = {name: value for name, value in plan.items() if name != "plan_token"}
            return Answer(200, {"state": "committed" if plan["plan_token"] in self._tokens else "pending"} | told)

    def _commit(self, call: Received, result: Any) -> Answer:
        key = call.key or ""
        with self._lock:
            stored = self._stored.get(key)
            if stored is not None:
                same = stored[0] == call.body
                return stored[1] if same else problem(422, "This key came with another payload.", "key-reused")
            token = str(json.loads(call.body).get("plan_token"))
            if self._changed is not None:
                return conflict(*self._changed)
            if token in self._tokens:
                return problem(422, "This plan was committed under another key.", "key-reused")
            self.applications[key] += 1
            self._tokens[token] = key
            answer = Answer(200, result)
            self._stored[key] = (call.body, answer)
            return answer

    @contextlib.contextmanager
    def alone(self, call: Received) -> Iterator[bool]:
        """False while another request with the same key is being answered."""
        key = call.key if call.method == "POST" else None
        with self._lock:
            is_alone = key is None or key not in self._under_way
            if key is not None and is_alone:
                self._under_way.add(key)
        try:
            yield is_alone
        finally:
            if key is not None and is_alone:
                with self._lock:
                    self._under_way.discard(key)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, target: StubTarget, port: int) -> None:
        self.target = target
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that gives up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 70
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.target.enter(self.connection)

    def finish(self) -> None:
        self.server.target.leave(self.connection)
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Tests read what was received, not a log."""

    def do_POST(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def _handle(self) -> None:
        target = self.server.target
        behaviour = target.next_behaviour(self.command, self.path)
        if isinstance(behaviour, DropBeforeReading):
            self._drop()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Received(self.command, self.path, list(self.headers.items()), body, time.monotonic())
        target.remember(call)
        if target.bearer is not None and call.header("Authorization") != f"Bearer {target.bearer}":
            self._send(problem(401, "Who is asking?", "unauthenticated"))
            return
        with target.alone(call) as is_alone:
            answer = target.settle(call, behaviour) if is_alone else in_progress()
        if answer is None:  # the key is free again before anybody hears of it: who has the answer may ask again at once
            self._drop()
        else:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        body = answer.raw
        headers = {"Content-Length": str(len(body)), **answer.all_headers}
        self.send_response_only(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if answer.cut_after is None else body[: answer.cut_after])
        self.wfile.flush()
        if answer.cut_after is not None:
            self._drop()

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _bound(port: int) -> socket.socket:
    """A socket that holds the port without listening: whoever connects is refused."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((LOOPBACK, port))
    return holder


@contextlib.contextmanager
def refusing_url() -> Iterator[str]:
    """The address of a port that refuses every connection."""
    holder = _bound(0)
    try:
        yield f"http://{LOOPBACK}:{holder.getsockname()[1]}"
    finally:
        holder.close()


@pytest.fixture
def stub_target() -> Iterator[StubTarget]:
    """A fresh stub for one test."""
    with StubTarget() as target:
        yield target
