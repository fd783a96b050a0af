"""An agent in raw HTTP that keeps every rule; with the name of a flaw as argument, it is wrong in that one way."""

import hashlib
import json
import os
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from plans import signatures

FLAW = sys.argv[1] if len(sys.argv) > 1 else ""
DESK = os.environ["DESK"]
KEY = os.environ["DESK_API_KEY"]
TRANSCRIPT = Path(os.environ["DESK_STATE"]) / "transcript.json"
HTTP = urllib3.PoolManager(retries=False, timeout=20)
ENDS = ("committed", "conflicted", "rejected", "refused", "abandoned")


class Agent:
    def __init__(self) -> None:
        given = json.loads(os.environ["DESK_TASK"])
        self.task_id, self.steps = given["task_id"], given["steps"]
        self.step: dict[str, Any] = {}
        self.plan: dict[str, Any] = {}
        self.key = ""
        self.commits = [step["do"] for step in self.steps].count("commit")

    def work(self) -> None:
        for step in self.steps:
            match step["do"]:
                case "plan":
                    self.step = step
                    self.make_plan()
                case "write":
                    ask("POST", step["url"], step["body"])
                    tell = {"target": step["target"], "targets": step["touches"]}
                    ask("POST", f"/api/v1/tasks/{self.task_id}/writes", tell)
                    if FLAW != "commits after its own write":
                        self.make_plan()
                case "commit":
                    self.carry_out()
        if FLAW != "ends and says nothing":
            ask("POST", f"/api/v1/tasks/{self.task_id}/end", {})
        if FLAW == "commits after the task's end" and not self.commits:
            self.send(self.key)

    def make_plan(self) -> None:
        step, members = self.step, {"task_id": self.task_id, "inputs": self.step["inputs"]}
        if step["via"] == "desk":
            self.plan = ask("POST", f"/api/v1/operations/{step['operation']}/dry-run", members)[1]
        else:
            self.plan = ask("POST", step["dry_run_url"], {"inputs": step["inputs"]})[1]
            self.feed()
        self.key = "the-one-key" if FLAW == "has one key for all plans" else f"key-{uuid.uuid4().hex}"
        if FLAW == "prints the plan":
            sys.stdout.write(f"planned: {self.plan}\n")
        if FLAW == "keeps tokens for later turns":
            if TRANSCRIPT.exists():
                self.plan = json.loads(TRANSCRIPT.read_text())
            elif not self.commits:
                TRANSCRIPT.write_text(json.dumps(self.plan))

    def feed(self) -> None:
        names = ("plan_id", "plan_token", "expires_at", "input_fingerprint", "actions")
        data = {name: self.step[name] for name in ("target", "operation", "inputs", "intent", "summary")}
        data |= {"task_id": self.task_id, "plan": {name: self.plan[name] for name in names}}
        now = datetime.now(UTC)
        body = json.dumps({"type": "plan.created", "timestamp": now.isoformat(), "data": data}).encode()
        secret, delivery = signatures.parse_secret(os.environ["DESK_WEBHOOK_SECRET"]), f"msg_{uuid.uuid4().hex}"
        headers = {
            "webhook-id": delivery,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signatures.sign(secret, delivery, int(now.timestamp()), body),
        }
        answer = HTTP.request("POST", f"{DESK}/webhooks/{os.environ['DESK_AGENT']}", body=body, headers=headers)
        assert answer.status == 201, answer.status

    def is_late(self) -> bool:
        return datetime.now(UTC) >= datetime.fromisoformat(self.plan["expires_at"])

    def carry_out(self) -> None:
        """Commits until the plan has an end that is not to be planned again; at most five plans."""
        if FLAW == "plans and ends":
            return
        for turn in range(5):
            if FLAW == "plans again and ends" and turn:
                return
            if self.is_late() and FLAW != "commits past the expiry":
                self.make_plan()
                continue
            status, told = self.insist()
            if FLAW == "commits what is done again" and status == 200:
                self.send(self.key)
            if FLAW == "does what is done again by a new plan" and status == 200:
                self.make_plan()
                self.send(self.key)
            if FLAW == "retries after a conflict" and status == 409:
                self.send(self.key)
            if FLAW == "tries what was refused again" and told.get("type", "").endswith("/refused"):
                self.send(self.key)
            if status == 403:
                status = self.wait()
            is_spoilt = status == 409 or (status == 410 and (told.get("reason") != "task_ended"))
            if not is_spoilt or FLAW == "gives up what has to be planned again":
                return
            self.make_plan()

    def insist(self) -> tuple[int, dict[str, Any]]:
        """The same commit, until it is answered; then, where nobody knows, the plan's state."""
        for attempt in range(5):
            if attempt and FLAW == "makes a fresh key for a retry":
                self.key = f"key-{uuid.uuid4().hex}"
            status, told = self.send(self.key)
            if status not in (0, 429, 502, 503, 504):
                return status, told
            if FLAW == "gives up without an answer":
                return 0, {}
            if FLAW == "plans anew while the outcome is unknown":
                self.make_plan()
            time.sleep(0.1)
        return self.wait(), {}

    def wait(self) -> int:
        """The status that the plan's end would be answered with."""
        for _ in range(100):
            if FLAW == "asks again by committing":
                self.send(self.key)
            told = ask("GET", f"/api/v1/plans/{self.plan['plan_id']}?wait=10", None)[1]
            if told.get("state") in ENDS:
                if FLAW == "commits past the expiry" and told["state"] == "abandoned":
                    time.sleep(0.5)
                    self.send(self.key)
                return {"committed": 200, "conflicted": 409, "abandoned": 410}.get(told["state"], 422)
        return 0

    def send(self, key: str) -> tuple[int, dict[str, Any]]:
        plan = self.plan
        body = {"plan_token": plan["plan_token"], "input_fingerprint": plan["input_fingerprint"]}
        if FLAW == "sends inputs with a commit":
            body["inputs"] = {**self.step["inputs"], "address": "3 Harbour Street"}
        if FLAW == "computes the fingerprint":
            body["input_fingerprint"] = "sha256:" + hashlib.sha256(json.dumps(self.step["inputs"]).encode()).hexdigest()
        where = f"operations/{self.step['operation']}" if self.step["via"] == "desk" else f"plans/{plan['plan_id']}"
        return ask("POST", f"/api/v1/{where}/commit", body, key)


def ask(method: str, where: str, body: Any, key: str | None = None) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {KEY}", **({"Idempotency-Key": key} if key else {})}
    try:
        answer = HTTP.request(method, where if "://" in where else DESK + where, json=body, headers=headers)
    except urllib3.exceptions.HTTPError:
        return 0, {}
    return answer.status, answer.json()


if __name__ == "__main__":
    Agent().work()
