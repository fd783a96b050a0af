"""A desk and a target that follow a script: plans in memory, by CONTRACT section 5, except where the scenario says."""

import hashlib
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from plans import signatures
from plans.conformance.bodies import members_of
from plans.conformance.offered import TOOLS
from plans.conformance.scenarios import BILLING, CUSTOMER, LIFETIME, RECORDS, Scenario, Twist

APPROVED_AFTER: Final = 0.5
"""Seconds until the person approves a plan, other than the first of the scenario."""

POLL: Final = 0.02
ENDS: Final = frozenset({"committed", "conflicted", "refused", "abandoned"})
VISIBLE: Final = ("plan_id", "target", "operation", "task_id", "intent", "state", "input_fingerprint", "review_url")


@dataclass(slots=True)
class Planned:
    """One plan, as desk and target know it."""

    plan_id: str
    token: str = field(repr=False)
    turn: int
    task_id: str
    operation: str
    target: str
    intent: str | None
    inputs: dict[str, Any]
    touches: str
    was: str
    input_fingerprint: str
    created_at: datetime
    expires_at: datetime
    state: str = "pending"
    reason: str = ""
    result: dict[str, Any] | None = None
    is_at_desk: bool = True
    approved_at: datetime | None = None
    """Only where a person has to approve: when they will."""
    needs_approval: bool = False
    key: str = ""

    @property
    def review_url(self) -> str:
        return f"https://desk.example/plans/{self.plan_id}/"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, without what only HTTP is about."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def members(self) -> dict[str, Any]:
        """The JSON object in the body, or nothing."""
        return members_of(self.body)

    @property
    def door(self) -> str:
        """Which door of the contract, or of the target, it is at."""
        parts = self.path.strip("/").split("/")
        if parts[0] == "webhooks":
            return "feed"
        if parts[0] == "target":
            return "target-dry-run" if parts[-1] == "dry-run" else "target-write"
        return parts[-1] if self.method == "POST" or parts[-1] == "tools" else "state" if len(parts) == 4 else "list"


@dataclass(frozen=True, slots=True)
class Told:
    """An answer; `is_lost`: the connection is closed in its place."""

    status: int
    members: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    is_lost: bool = False
    plan: Planned | None = None

    @property
    def slug(self) -> str:
        """The last path segment of a problem's type."""
        return str(self.members.get("type", "")).rpartition("/")[2]


class Script:
    """One scenario's desk and target. Safe with threads."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.agent, self.api_key = "conformance-agent", "pk_conformance_" + secrets.token_urlsafe(24)
        self.webhook_secret = signatures.make_secret()
        self.turn = 0
        self.plans: list[Planned] = []
        self.values: dict[str, str] = {CUSTOMER: "1 Harbour Street", "invoice/4412": "0"}
        self.writes: list[str] = []
        self._twists: list[Twist] = list(scenario.commits)
        self._lock = threading.RLock()

    def answer(self, asked: Asked) -> Told:
        """What this request is answered, and does."""
        if asked.door == "state":
            return self._hold(asked)
        with self._lock:
            told = self._answer(asked)
        if asked.door in ("dry-run", "target-dry-run") and told.plan is not None and told.plan is self.plans[0]:
            time.sleep(self.scenario.held)
        return told

    def find(self, *, token: object = None, plan_id: object = None) -> Planned | None:
        """The plan of this token or id."""
        return next((one for one in self.plans if token == one.token or plan_id == one.plan_id), None)

    def advance(self) -> None:
        """Lets happen what time brings: approvals, and expiries."""
        now = datetime.now(UTC)
        with self._lock:
            for plan in self.plans:
                if plan.state != "pending" or not plan.is_at_desk:
                    continue
                if plan.approved_at is not None and plan.approved_at <= now < plan.expires_at:
                    self._carry_out(plan)
                elif now >= plan.expires_at:
                    plan.state, plan.reason = "abandoned", "expired"

    # the doors

    def _answer(self, asked: Asked) -> Told:
        self.advance()
        parts = asked.path.strip("/").split("/")
        if asked.door == "feed":
            return self._feed(asked)
        if not secrets.compare_digest(asked.headers.get("authorization", ""), f"Bearer {self.api_key}"):
            return problem(401, "unauthenticated")
        match asked.method, parts:
            case "POST", ["api", "v1", "operations", operation, "dry-run"]:
                return self._dry_run(asked, operation)
            case "POST", ["target", operation, "dry-run"]:
                return self._target_dry_run(asked, operation)
            case "POST" | "PUT" | "PATCH", ["target", "customers", "77"]:
                self.values[CUSTOMER] += ", phone changed"
                return Told(200, {"ok": True})
            case "POST", ["api", "v1", "operations" | "plans", _, "commit"]:
                return self._commit(asked)
            case "POST", ["api", "v1", "plans", plan_id, "abandon"]:
                found = [one for one in self.plans if one.plan_id == plan_id]
                return self._abandon(found, str(asked.members.get("reason", "")))
            case "POST", ["api", "v1", "tasks", task_id, "end"]:
                return self._abandon([one for one in self.plans if one.task_id == task_id], "task_ended")
            case "POST", ["api", "v1", "tasks", _, "writes"]:
                names = asked.members.get("targets")
                touched = [one for one in self.plans if isinstance(names, list) and one.touches in names]
                return self._abandon(touched, "inputs_changed")
            case "GET", ["api", "v1", "tools"]:
                return Told(200, {"tools": TOOLS})
            case "GET", ["api", "v1", "plans"]:
                return Told(200, {"plans": [_state_of(one) for one in self.plans if one.is_at_desk]})
        return problem(404, "not-found")

    def _dry_run(self, asked: Asked, operation: str) -> Told:
        members = asked.members
        if operation != "address.update" or not isinstance(members.get("inputs"), dict):
            return problem(422 if operation == "address.update" else 404, "invalid")
        plan = self._plan(members, str(members.get("task_id")), operation, RECORDS, CUSTOMER)
        return Told(201, {**_dry_of(plan), "target": RECORDS, "approval": "not_required",
                          "review_url": plan.review_url}, plan=plan)  # fmt: skip

    def _target_dry_run(self, asked: Asked, operation: str) -> Told:
        members = asked.members
        if operation != "refund":
            return problem(404, "unknown-operation")
        inputs = members.get("inputs", members)
        plan = self._plan({"inputs": inputs}, "", operation, BILLING, "invoice/4412")
        plan.is_at_desk, plan.needs_approval = False, True
        return Told(201, _dry_of(plan), plan=plan)

    def _feed(self, asked: Asked) -> Told:
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        delivery, timestamp, signature = (asked.headers.get(name) for name in names)
        try:
            signatures.verify(
                [self.webhook_secret], webhook_id=delivery, timestamp=timestamp, signature=signature,
                body=asked.body, now=time.time(),
            )  # fmt: skip
        except signatures.BadSignature:
            return problem(401, "bad-signature")
        kind, data = asked.members.get("type"), asked.members.get("data")
        if not isinstance(data, dict):
            return problem(422, "invalid")
        if kind == "plan.created" and isinstance(data.get("plan"), dict):
            return self._receive(data)
        if kind in ("plan.abandoned", "task.ended", "write.observed"):
            return self._abandon(self._named(str(kind), data), str(data.get("reason", "task_ended")))
        return problem(422, "invalid")

    def _named(self, kind: str, data: dict[str, Any]) -> list[Planned]:
        if kind == "write.observed":
            return [one for one in self.plans if one.touches in data.get("targets", [])]
        name = "task_id" if kind == "task.ended" else "plan_id"
        return [one for one in self.plans if getattr(one, name) == data.get(name)]

    def _receive(self, data: dict[str, Any]) -> Told:
        fed = data["plan"]
        plan = self.find(token=fed.get("plan_token"))
        if plan is None or plan.plan_id != fed.get("plan_id"):
            return problem(422, "invalid", detail="The target knows no such plan.")
        is_new = not plan.is_at_desk
        if is_new:
            plan.task_id, plan.intent, plan.is_at_desk = str(data.get("task_id")), data.get("intent"), True
            self._supersede(plan)
            if plan is not self.plans[0]:
                plan.approved_at = datetime.now(UTC) + timedelta(seconds=APPROVED_AFTER)
        plan.key = plan.key or f"key_{plan.plan_id}"
        told = {"plan_id": plan.plan_id, "target": plan.target, "state": plan.state, "review_url": plan.review_url}
        return Told(201 if is_new else 200, {**told, "idempotency_key": plan.key}, plan=plan)

    def _commit(self, asked: Asked) -> Told:
        """In the order of CONTRACT 5.2."""
        members, key = asked.members, asked.headers.get("idempotency-key", "").strip('"')
        plan = self.find(token=members.get("plan_token"))
        refused = self._check_form(members, key, plan)
        if refused is not None or plan is None:
            return refused or problem(404, "never-planned")
        twist: Twist = "contract"
        if plan.state == "pending" and not plan.needs_approval and datetime.now(UTC) < plan.expires_at:
            twist = self._twists.pop(0) if self._twists else "contract"
        elif plan.state == "committed" and self._twists[:1] == ["unknown"]:
            twist = self._twists.pop(0)
        if twist == "unknown":
            return problem(504, "outcome-unknown", plan, headers={"Location": f"/api/v1/plans/{plan.plan_id}"})
        if twist == "lose-before":
            return Told(0, {}, is_lost=True, plan=plan)
        told = self._apply(plan, twist)
        return Told(0, {}, is_lost=True, plan=plan) if twist == "lose-after" else told

    def _check_form(self, members: dict[str, Any], key: str, plan: Planned | None) -> Told | None:
        if not key:
            return problem(400, "key-required", plan)
        if set(members) - {"plan_token", "input_fingerprint", "plan_id"}:
            return problem(422, "invalid", plan)
        if plan is None or not plan.is_at_desk:
            return problem(404, "never-planned", plan)
        if "input_fingerprint" not in members:
            return problem(428, "fingerprint-required", plan)
        if members["input_fingerprint"] != plan.input_fingerprint:
            return problem(412, "fingerprint-mismatch", plan)
        return None

    def _apply(self, plan: Planned, twist: Twist) -> Told:
        if plan.state == "committed":
            return Told(200, _committed(plan), {"Idempotent-Replayed": "true"}, plan=plan)
        if plan.state != "pending":
            return _ended(plan)
        if plan.needs_approval:
            return problem(403, "approval-required", plan, review_url=plan.review_url)
        if twist == "refuse":
            plan.state, plan.reason = "refused", "The customer is closed."
            return _ended(plan)
        if twist == "move":
            self.values[plan.touches] += ", moved"
        self._carry_out(plan)
        return Told(200, _committed(plan), plan=plan) if plan.state == "committed" else _ended(plan)

    def _carry_out(self, plan: Planned) -> None:
        if self.values[plan.touches] != plan.was:
            plan.state, plan.reason = "conflicted", self.values[plan.touches]
            return
        self.values[plan.touches] = json.dumps(plan.inputs)
        self.writes.append(plan.plan_id)
        plan.state, plan.result = "committed", {"changed": plan.touches}

    # plans

    def _plan(self, members: dict[str, Any], task_id: str, operation: str, target: str, touches: str) -> Planned:
        was, inputs = self.values[touches], members["inputs"]
        digest = hashlib.sha256(json.dumps([inputs, was], sort_keys=True).encode()).hexdigest()
        now = datetime.now(UTC)
        seconds = LIFETIME if self.plans else self.scenario.first_lifetime
        plan = Planned(
            plan_id="plan_" + secrets.token_hex(6), token="pt_" + secrets.token_urlsafe(32), turn=self.turn,
            task_id=task_id, operation=operation, target=target, intent=members.get("intent"), inputs=inputs,
            touches=touches, was=was, input_fingerprint="sha256:" + digest, created_at=now,
            expires_at=now + timedelta(seconds=seconds),
        )  # fmt: skip
        self.plans.append(plan)
        if task_id:
            self._supersede(plan)
        return plan

    def _supersede(self, plan: Planned) -> None:
        for old in self.plans:
            same = (old.task_id, old.operation) == (plan.task_id, plan.operation)
            if old is not plan and old.state == "pending" and old.is_at_desk and same:
                old.state, old.reason = "abandoned", "superseded"

    def _abandon(self, plans: list[Planned], reason: str) -> Told:
        for plan in plans:
            if plan.state == "pending":
                plan.state, plan.reason = "abandoned", reason
        told = [{"plan_id": one.plan_id, "target": one.target, "state": one.state} for one in plans]
        return Told(200, {"plans": told}, plan=plans[0] if len(plans) == 1 else None)

    def _hold(self, asked: Asked) -> Told:
        if not secrets.compare_digest(asked.headers.get("authorization", ""), f"Bearer {self.api_key}"):
            return problem(401, "unauthenticated")
        wait = asked.query.get("wait", "0")
        until = time.monotonic() + min(30.0, float(wait) if wait.isdigit() else 0.0)
        plan = self.find(plan_id=asked.path.rpartition("/")[2])
        if plan is None or not plan.is_at_desk:
            return problem(404, "not-found")
        while True:
            self.advance()
            if plan.state in ENDS or time.monotonic() >= until:
                return Told(200, _state_of(plan), plan=plan)
            time.sleep(POLL)


def problem(
    status: int, slug: str, plan: Planned | None = None, headers: dict[str, str] | None = None, **more: Any
) -> Told:
    """A problem document (CONTRACT section 4)."""
    members = {"type": f"/problems/{slug}", "title": slug, "status": status, **more}
    if plan is not None:
        members |= {"plan_id": plan.plan_id, "plan_state": plan.state}
    return Told(status, members, headers or {}, plan=plan)


def instant(at: datetime) -> str:
    """As the contract writes instants."""
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _action(plan: Planned) -> dict[str, Any]:
    return {"op": "update", "target": plan.touches, "field": "value", "from": plan.was, "to": json.dumps(plan.inputs)}


def _dry_of(plan: Planned) -> dict[str, Any]:
    return {
        "plan_id": plan.plan_id, "plan_token": plan.token, "expires_at": instant(plan.expires_at),
        "input_fingerprint": plan.input_fingerprint, "actions": [_action(plan)], "created_at": instant(plan.created_at),
    }  # fmt: skip


def _committed(plan: Planned) -> dict[str, Any]:
    return {"plan_id": plan.plan_id, "state": "committed", "committed_at": instant(datetime.now(UTC)),
            "result": plan.result}  # fmt: skip


def _changed(plan: Planned) -> list[dict[str, str]]:
    return [{"target": plan.touches, "field": "value", "planned": plan.was, "current": plan.reason}]


def _ended(plan: Planned) -> Told:
    if plan.state == "conflicted":
        return problem(409, "conflict", plan, plan_created_at=instant(plan.created_at), changed=_changed(plan))
    if plan.state == "refused":
        return problem(422, "refused", plan, reason=plan.reason)
    if plan.reason == "expired":
        return problem(410, "expired", plan, expired_at=instant(plan.expires_at))
    return problem(410, "abandoned", plan, reason=plan.reason)


def _state_of(plan: Planned) -> dict[str, Any]:
    told = {name: getattr(plan, name) for name in VISIBLE}
    told |= {"created_at": instant(plan.created_at), "expires_at": instant(plan.expires_at)}
    if plan.state == "committed":
        told["result"] = plan.result
    if plan.state == "conflicted":
        told["conflict"] = {"changed": _changed(plan), "plan_created_at": instant(plan.created_at)}
    if plan.state in ("abandoned", "refused"):
        name = "abandonment" if plan.state == "abandoned" else "refusal"
        told[name] = {"reason": plan.reason, "at": instant(datetime.now(UTC))}
    return told
