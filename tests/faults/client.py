"""An agent and a reviewer over real HTTP: every answer is noted, and held against the contract as it comes."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import psycopg
import urllib3
from django.db import Error as DatabaseError
from django.db import connections

from plans.models import Plan
from plans.policies import guard_of
from plans.schema import shown_digest
from plans.signatures import parse_secret, sign
from tests.faults.world import Desk, Reviewer

CSRF = "c" * 32
STATE = re.compile(rb'id="plan" data-state="(\w+)"')
TIMEOUT = 12.0
MAY_ANSWER = {200, 201, 202, 400, 401, 403, 404, 409, 410, 412, 422, 423, 428, 429, 503, 504}


@dataclass
class Said:
    """One answer, or (status 0) that there was none."""

    verb: str
    status: int
    state: str  # what it says the plan is
    slug: str
    body: bytes
    sent_at: float
    at: float
    web: int
    is_replayed: bool = False


@dataclass
class Trace:
    """One plan as its agent and its reviewers lived it."""

    kind: str
    number: int
    desk: Desk
    target: str
    plan_id: str = ""
    token: str = field(default="", repr=False)
    fingerprint: str = ""
    intent: str | None = None
    task_id: str = ""
    mode: str = ""
    record: str = ""
    value: str = ""
    expires: float = 0.0
    pk: int = 0
    asked_at: float = 0.0
    """When the first request was sent that could have it written; 0: never."""
    said: list[Said] = field(default_factory=list)


class Line:
    """One thread's connections to both web servers."""

    def __init__(self, ports: list[int], wrong: Callable[[str], None], timeout: float = TIMEOUT) -> None:
        self.ports = ports
        self.wrong = wrong
        self.http = urllib3.PoolManager(retries=False, maxsize=4, timeout=urllib3.Timeout(timeout, connect=2))

    def send(
        self, trace: Trace, verb: str, method: str, path: str, *, web: int, headers: dict[str, str], body: bytes | None,
    ) -> Said:  # fmt: skip
        sent_at = time.time()
        try:
            answer = self.http.request(
                method, f"http://127.0.0.1:{self.ports[web]}{path}", headers=headers, body=body, redirect=False
            )
        except (urllib3.exceptions.HTTPError, OSError):
            said = Said(verb, 0, "", "", b"", sent_at, time.time(), web)
        else:
            said = self._read(verb, answer, sent_at, web)
        trace.said.append(said)
        return said

    def _read(self, verb: str, answer: Any, sent_at: float, web: int) -> Said:
        body, kind = answer.data, answer.headers.get("Content-Type", "")
        said = Said(verb, answer.status, "", "", body, sent_at, time.time(), web)
        said.is_replayed = answer.headers.get("Idempotent-Replayed") == "true"
        if verb in ("approve", "reject"):
            found = STATE.search(body)
            said.state = found[1].decode() if found else ""
            if answer.status not in MAY_ANSWER | {500}:
                self.wrong(f"{verb} was answered {answer.status}")
            return said
        if answer.status not in MAY_ANSWER or not kind.startswith(("application/json", "application/problem+json")):
            self.wrong(f"{verb} was answered {answer.status} as {kind}: {body[:200]!r}")
            return said
        document = json.loads(body)
        if answer.status >= 400:
            said.slug = document["type"].rsplit("/", 1)[-1]
        said.state = document.get("state") or document.get("plan_state") or ""
        return said


class Caller:
    """One thread's agent."""

    def __init__(self, line: Line, target_port: int) -> None:
        self.line = line
        self.target_port = target_port

    def register(self, document: dict[str, Any]) -> bool:
        """The dry run at the remote target."""
        for _ in range(20):
            try:
                answer = self.line.http.request(
                    "POST", f"http://127.0.0.1:{self.target_port}/register", body=json.dumps(document).encode(),
                    headers={"Content-Type": "application/json"},
                )  # fmt: skip
            except (urllib3.exceptions.HTTPError, OSError):
                time.sleep(0.2)
            else:
                return bool(answer.status == 200)
        return False

    def feed(self, trace: Trace, kind: str, data: Any, *, web: int, webhook_id: str) -> Said:
        """One signed delivery."""
        body = json.dumps({"type": kind, "timestamp": "2026-03-14T09:31:12Z", "data": data}).encode()
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(parse_secret(trace.desk.secret), webhook_id, now, body),
        }
        return self.line.send(trace, kind, "POST", f"/webhooks/{trace.desk.name}", web=web, headers=headers, body=body)

    def api(
        self, trace: Trace, verb: str, path: str, document: Any = None, *, web: int, key: str = "", get: bool = False
    ) -> Said:
        headers = {"Authorization": f"Bearer {trace.desk.api_key}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        body = None if get else json.dumps(document or {}).encode()
        return self.line.send(trace, verb, "GET" if get else "POST", path, web=web, headers=headers, body=body)

    def commit(self, trace: Trace, *, web: int, key: str) -> Said:
        """Token and fingerprint, by operation or by plan id."""
        body = {"plan_token": trace.token, "input_fingerprint": trace.fingerprint}
        trace.asked_at = trace.asked_at or time.time()
        if trace.kind == "address":
            path = "/api/v1/operations/address.update/commit"
        else:
            path = f"/api/v1/plans/{trace.plan_id}/commit?target={trace.target}"
        return self.api(trace, "commit", path, body, web=web, key=key)

    def decide(self, trace: Trace, reviewer: Reviewer, action: str, digest: str, fact: str, *, web: int) -> Said:
        """A press of a button on the plan's page."""
        if action == "approve":
            trace.asked_at = trace.asked_at or time.time()
        fields = {"csrfmiddlewaretoken": CSRF, "digest": digest, "fact": fact, "reason": "Looked at it"}
        body = urlencode(fields)
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": f"plandesk_session={reviewer.cookie}; plandesk_csrf={CSRF}",
        }
        path = f"/plans/{trace.desk.name}/{trace.target}/{trace.plan_id}/{action}/"
        return self.line.send(trace, action, "POST", path, web=web, headers=headers, body=body.encode())


def look_up(trace: Trace) -> tuple[str, str] | None:
    """Digest and fact of a plan's page as it is now; None where it is not there. Waits out a database that is gone."""
    for _ in range(60):
        try:
            rows = Plan.objects.select_related("agent", "target", "task", "policy")
            plan = rows.filter(agent__name=trace.desk.name, target__name=trace.target, plan_id=trace.plan_id).first()
        except (DatabaseError, psycopg.Error):
            connections.close_all()
            time.sleep(0.2)
            continue
        if plan is None:
            return None
        trace.pk, trace.expires = plan.pk, plan.expires_at.timestamp()
        guard = guard_of(plan.actions, is_always=plan.policy.is_guarded)
        return shown_digest(plan), "" if guard is None else guard.fact
    return None
