"""A desk that follows a script: a small real HTTP server that speaks the agents' side of the contract (section 5)."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from plans import signatures

API_KEY = "pk_live_0123456789abcdef"
AGENT = "refund-bot"
ENDS = ("committed", "conflicted", "rejected", "refused", "abandoned")


@dataclass
class Heard:
    """One request, as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Step:
    """What the desk does with the next request at a door, instead of what it should."""

    status: int | None = None
    members: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    is_dropped: bool = False
    is_applied: bool = False
    is_cut: bool = False
    delay: float = 0.0
    then: Callable[[], None] | None = None


def problem(status: int, slug: str, **members: Any) -> Step:
    """Answers with a problem document."""
    body = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": f"about {slug}", **members}
    return Step(status=status, members=body)


def drop() -> Step:
    """Closes the connection without an answer; nothing was done."""
    return Step(is_dropped=True)


def drop_after() -> Step:
    """Does what was asked, then closes the connection without an answer."""
    return Step(is_dropped=True, is_applied=True)


def instant(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


class ScriptedDesk:
    """Plans in memory. `script` lists, per door, what the next requests meet; without one, the contract."""

    def __init__(self) -> None:
        self.secret = signatures.make_secret()
        self.plans: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.applied: list[str] = []
        self.deliveries: dict[str, bytes] = {}
        self.ended_tasks: list[str] = []
        self.heard: list[Heard] = []
        self.script: dict[str, list[Step]] = {}
        self.needs_approval: set[str] = {"refund"}
        self.lifetime = timedelta(minutes=10)
        self.clock_ahead = timedelta()
        self.changed = threading.Condition()
        self._count = 0

    # what tests do to it

    def next(self, door: str, *steps: Step) -> None:
        """The next requests at this door meet these."""
        self.script.setdefault(door, []).extend(steps)

    def at(self, door: str) -> list[Heard]:
        """What was heard at a door."""
        return [heard for heard in self.heard if door_of(heard.method, heard.path) == door]

    def set_state(self, plan_id: str, state: str, **members: Any) -> None:
        """What somebody else does to a plan."""
        with self.changed:
            self.plans[plan_id].update(state=state, **members)
            self.changed.notify_all()

    def approve(self, plan_id: str) -> None:
        """A person approves: the desk commits."""
        self._apply(plan_id)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.clock_ahead

    # what it does

    def answer(self, heard: Heard) -> tuple[int, dict[str, Any], dict[str, str]]:
        door = door_of(heard.method, heard.path)
        parts = heard.path.strip("/").split("/")
        match door:
            case "dry-run":
                return self._dry_run(parts[3], heard.json)
            case "commit":
                return self._commit(heard)
            case "feed":
                return self._feed(heard)
            case "state":
                return self._state(parts[3], int(heard.query.get("wait", "0")))
            case "abandon":
                return self._abandon([parts[3]], heard.json["reason"])
            case "end":
                self.ended_tasks.append(parts[3])
                return self._abandon(
                    [p for p, plan in self.plans.items() if plan["task_id"] == parts[3] and plan["state"] not in ENDS],
                    "task_ended",
                )
            case "writes":
                body = heard.json
                hit = [
                    plan_id
                    for plan_id, plan in self.plans.items()
                    if plan["target"] == body["target"]
                    and any(action["target"] in body["targets"] for action in plan["actions"])
                ]
                return self._abandon(hit, "inputs_changed")
        return 404, {"type": "/problems/not-found", "status": 404, "title": "There is nothing here"}, {}

    def _dry_run(self, operation: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
        inputs = body["inputs"]
        subject = (
            f"invoice/{inputs['invoice_id']}" if "invoice_id" in inputs else f"customer/{inputs.get('customer_id')}"
        )
        plan = self._add(
            body,
            operation,
            "billing",
            [{"op": "update", "target": subject, "field": "value", "from": 1.10, "to": inputs}],
        )
        plan_id = plan["plan_id"]
        plan["token"] = f"pt_secret_{plan_id}_0123456789"
        self.tokens[plan["token"]] = plan_id
        answer = {name: plan[name] for name in ("plan_id", "target", "expires_at", "input_fingerprint", "created_at")}
        approval = "required" if operation in self.needs_approval else "not_required"
        return 201, {
            **answer, "plan_token": plan["token"], "actions": plan["actions"], "approval": approval,
            "review_url": plan["review_url"],
        }, {}  # fmt: skip

    def _add(self, body: dict[str, Any], operation: str, target: str, actions: list[Any]) -> dict[str, Any]:
        self._count += 1
        plan_id = body.get("plan", {}).get("plan_id") or f"plan_{self._count}"
        for old in self.plans.values():
            same = (old["task_id"], old["operation"], old["inputs"]) == (body["task_id"], operation, body["inputs"])
            same_intent = body.get("intent") is not None and old["intent"] == body.get("intent")
            is_same = same_intent or (same and body.get("intent") is None)
            if old["state"] == "pending" and (is_same or old["plan_id"] == body.get("replaces")):
                old.update(state="abandoned", abandonment={"reason": "superseded"})
        now = self.now()
        plan = {
            "plan_id": plan_id, "target": target, "operation": operation, "task_id": body["task_id"],
            "intent": body.get("intent"), "inputs": body["inputs"], "state": "pending", "created_at": instant(now),
            "expires_at": instant(now + self.lifetime), "input_fingerprint": f"sha256:{plan_id}",
            "review_url": f"https://desk.example/plans/{plan_id}/", "actions": actions,
            "idempotency_key": f"key_{plan_id}", "is_fed": "plan" in body, "evidence": body.get("evidence"),
        }  # fmt: skip
        self.plans[plan_id] = plan
        return plan

    def _commit(self, heard: Heard) -> tuple[int, dict[str, Any], dict[str, str]]:
        body = heard.json
        assert set(body) <= {"plan_token", "input_fingerprint", "plan_id"}
        plan_id = self.tokens.get(body["plan_token"])
        if plan_id is None:
            return 404, {"type": "/problems/never-planned", "status": 404, "title": "no such plan"}, {}
        plan = self.plans[plan_id]
        assert body["input_fingerprint"] == plan["input_fingerprint"]
        if plan["state"] == "committed":
            return 200, self._committed(plan), {"Idempotent-Replayed": "true"}
        if plan["state"] == "abandoned":
            return 410, {"type": "/problems/abandoned", "status": 410, **plan["abandonment"]}, {}
        if plan["operation"] in self.needs_approval:
            step = problem(403, "approval-required", review_url=plan["review_url"])
            return 403, step.members or {}, {}
        self._apply(plan_id)
        return 200, self._committed(plan), {}

    def _committed(self, plan: dict[str, Any]) -> dict[str, Any]:
        members = ("plan_id", "state", "committed_at", "result")
        return {name: plan[name] for name in members}

    def _apply(self, plan_id: str) -> None:
        with self.changed:
            plan = self.plans[plan_id]
            if plan["state"] in ENDS:
                return
            self.applied.append(plan_id)
            result = {"customer_id": plan["inputs"].get("customer_id", "77")}
            plan.update(state="committed", committed_at=instant(self.now()), result=result)
            self.changed.notify_all()

    def _feed(self, heard: Heard) -> tuple[int, dict[str, Any], dict[str, str]]:
        try:
            delivery = signatures.verify(
                [self.secret],
                webhook_id=heard.headers.get("webhook-id"),
                timestamp=heard.headers.get("webhook-timestamp"),
                signature=heard.headers.get("webhook-signature"),
                body=heard.body,
                now=self.now().timestamp(),
            )
        except signatures.BadSignature:
            return 401, {"type": "/problems/bad-signature", "status": 401}, {}
        known = self.deliveries.setdefault(delivery, heard.body)
        if known != heard.body:
            return 422, {"type": "/problems/delivery-reused", "status": 422}, {}
        data = heard.json["data"]
        plan_id = data["plan"]["plan_id"]
        is_new = plan_id not in self.plans
        if is_new:
            plan = self._add(data, data["operation"], data["target"], data["plan"]["actions"])
            plan.update({name: data["plan"][name] for name in ("expires_at", "input_fingerprint")})
            self.tokens[data["plan"]["plan_token"]] = plan_id
        plan = self.plans[plan_id]
        members = ("plan_id", "target", "state", "review_url", "idempotency_key")
        return 201 if is_new else 200, {name: plan[name] for name in members}, {}

    def _state(self, plan_id: str, wait: int) -> tuple[int, dict[str, Any], dict[str, str]]:
        with self.changed:
            if plan_id not in self.plans:
                return 404, {"type": "/problems/not-found", "status": 404}, {}
            self.changed.wait_for(lambda: self.plans[plan_id]["state"] in ENDS, wait)
            plan = dict(self.plans[plan_id])
        hidden = ("token", "inputs", "actions", "is_fed", "committed_at", "evidence")
        return 200, {name: value for name, value in plan.items() if name not in hidden}, {}

    def _abandon(self, plan_ids: list[str], reason: str) -> tuple[int, dict[str, Any], dict[str, str]]:
        with self.changed:
            for plan_id in plan_ids:
                if self.plans[plan_id]["state"] == "pending":
                    self.plans[plan_id].update(state="abandoned", abandonment={"reason": reason})
            self.changed.notify_all()
            members = ("plan_id", "target", "state")
            return 200, {"plans": [{m: self.plans[p][m] for m in members} for p in plan_ids]}, {}


def door_of(method: str, path: str) -> str:
    """Which door of the contract a request is at."""
    last = path.rsplit("/", 1)[-1]
    if path.startswith("/webhooks/"):
        return "feed"
    return last if method == "POST" else "state"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(self.server.desk.now(), usegmt=True)

    def log_message(self, *args: object) -> None:
        pass

    def _handle(self) -> None:
        desk = self.server.desk
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        heard = Heard(self.command, parts.path, query, headers, body, time.monotonic())
        desk.heard.append(heard)
        steps = desk.script.get(door_of(heard.method, heard.path))
        step = steps.pop(0) if steps else None
        if step is None:
            status, members, more = self._by_contract(heard)
            self._send(status, json.dumps(members).encode(), more)
            return
        if step.delay:
            time.sleep(step.delay)
        if step.is_applied:
            desk.answer(heard)
        if step.then:
            step.then()
        if step.is_dropped:
            self.close_connection = True
        elif step.status is None:
            status, members, more = self._by_contract(heard)
            self._send(status, json.dumps(members).encode(), {**more, **step.headers}, is_cut=step.is_cut)
        else:
            content = step.raw if step.raw is not None else json.dumps(step.members or {}).encode()
            self._send(step.status, content, step.headers, is_cut=step.is_cut)

    def _by_contract(self, heard: Heard) -> tuple[int, dict[str, Any], dict[str, str]]:
        is_feed = heard.path.startswith("/webhooks/")
        if not is_feed and heard.headers.get("authorization") != f"Bearer {API_KEY}":
            return 401, {"type": "/problems/unauthenticated", "status": 401}, {}
        return self.server.desk.answer(heard)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, is_cut: bool = False) -> None:
        kind = "application/json" if status < 400 else "application/problem+json"
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        if is_cut:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, desk: ScriptedDesk) -> None:
        self.desk = desk
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serving(desk: ScriptedDesk, port: int = 0) -> Iterator[str]:
    """Serves the desk, and gives its address."""
    server = _Server(desk)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
