"""The work that goes on while things break: agents and reviewers, duplicates, wrong order, double clicks, races."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from tests.faults.client import Caller, Line, Said, Trace, look_up
from tests.faults.ledger import MODES
from tests.faults.product import Product
from tests.faults.timers import LIVES
from tests.faults.world import APPROVED, CUSTOMERS, SENTINEL, UNAPPROVED, World

KINDS = {"approved": 4, "open": 7, "address": 8, "refund": 2}
RIVALS = ("none",) * 10 + ("abandon", "end task", "reject", "deadline", "newer", "write", "moved")
HARD = frozenset({0, 500, 503, 504})
OTHERWISE_DECIDED = frozenset({"cannot-plan", "fenced", "not-replaceable", "intent-taken"})
"""What a dry run is answered while its rival is being written, or was."""


class Workload:
    """So many threads that each live one plan after another until they are told to stop."""

    def __init__(self, product: Product, world: World, seed: str, *, threads: int, only: str = "") -> None:
        self.product, self.world, self.seed, self.only = product, world, seed, only
        self.traces: list[Trace] = []
        self.wrongs: list[str] = []
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(place,), daemon=True) for place in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)
        if any(thread.is_alive() for thread in self._threads):
            self.wrongs.append("a client of the workload still waits for an answer")

    def wrong(self, sentence: str) -> None:
        self.wrongs.append(sentence)

    def _work(self, place: int) -> None:
        actor = Actor(self, random.Random(f"{self.seed}:actor:{place}"))
        while not self.stopping.is_set():
            try:
                actor.live_one()
            except Exception as error:  # a broken harness must not pass for a product that holds
                self.wrong(f"the workload itself failed: {type(error).__name__}: {error}")
                raise
        actor.close()


class Actor:
    """One thread of the workload."""

    def __init__(self, workload: Workload, chance: random.Random) -> None:
        self.workload, self.world, self.chance = workload, workload.world, chance
        self.caller = Caller(Line(workload.product.ports, workload.wrong), workload.product.target_port)
        self.hands = ThreadPoolExecutor(4)

    def close(self) -> None:
        self.hands.shutdown()
        connections.close_all()

    def live_one(self) -> None:
        """One plan, from its dry run until its client gives up or knows."""
        number = self.world.number()
        if number > CUSTOMERS:
            self.workload.stopping.set()
            return
        kinds = [kind for kind in KINDS if self.workload.only in ("", kind)]
        kind = self.chance.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        desk = self.chance.choice(self.world.desks)
        target = {"approved": APPROVED, "open": UNAPPROVED}.get(kind, "billing")
        trace = Trace(kind, number, desk, target, task_id=f"task-{number}")
        rival = self.chance.choice(RIVALS)
        made = self._feed(trace, rival) if target != "billing" else self._dry_run(trace)
        self.workload.traces.append(trace)
        if not made:
            return
        if rival == "moved" and kind == "address":
            self._move_world(trace)
        jobs: list[Any] = self._presses(trace, rival)
        if rival not in ("none", "moved", "deadline"):
            jobs.append(self._rival(trace, rival))
        self.chance.shuffle(jobs)
        for waiting in [self.hands.submit(job) for job in jobs]:
            waiting.result()

    # --- plans ------------------------------------------------------------------------------------------------------

    def _feed(self, trace: Trace, rival: str) -> bool:
        """A plan of the remote target, fed once, twice or after what ends it."""
        number = trace.number
        life = self.workload.product.life or self.chance.uniform(*LIVES)
        trace.plan_id, trace.token = f"plan_{number}", f"pt-{number}-{SENTINEL}-{self.chance.getrandbits(64):x}"
        trace.fingerprint, trace.record = f"sha256:{number:064x}", f"ledger/{number}"
        trace.mode = self.chance.choice(MODES) if self.chance.random() < 0.45 else ""
        trace.intent = f"limit:{number}" if self.chance.random() < 0.5 else None
        trace.expires = time.time() + life
        plan = {
            "plan_id": trace.plan_id,
            "expires_at": datetime.fromtimestamp(trace.expires, UTC).isoformat().replace("+00:00", "Z"),
            "input_fingerprint": trace.fingerprint,
            "actions": [{"op": "update", "target": trace.record, "field": "limit", "from": 1, "to": number}],
        }
        known = {**plan, "plan_token": trace.token, "script": [trace.mode] if trace.mode else []}
        if not self.caller.register(known):
            return False
        data = {
            "task_id": trace.task_id, "target": trace.target, "operation": "limit.update",
            "inputs": {"account": str(number)}, "plan": {**plan, "plan_token": trace.token},
            **({"intent": trace.intent} if trace.intent else {}),
        }  # fmt: skip
        if rival == "abandon" and self.chance.random() < 0.3:  # before the plan it abandons
            self._tell_abandoned(trace)
        copies = self.chance.choice((1, 1, 1, 2, 3))
        webhook_id = f"msg_{number}"
        feeds = [
            self.hands.submit(self._feed_until_heard, trace, data, webhook_id if same else f"{webhook_id}_{place}")
            for place, same in enumerate(self.chance.choices((True, False), k=copies))
        ]
        return any(feed.result() for feed in feeds)

    def _feed_until_heard(self, trace: Trace, data: Any, webhook_id: str) -> bool:
        for turn in range(6):
            web = (turn + trace.number) % 2
            said = self.caller.feed(trace, "plan.created", data, web=web, webhook_id=webhook_id)
            if said.status in (200, 201):
                return True
            if said.status not in HARD | {429}:
                # Fed again after a feed whose answer was lost, it may have died meanwhile; a dead one is refused.
                if not (said.status == 422 and time.time() > trace.expires - 1):
                    self.workload.wrong(f"a feed was answered {said.status} {said.slug}: {said.body[:300]!r}")
                return False
            time.sleep(0.3)
        return False

    def _dry_run(self, trace: Trace) -> bool:
        """A plan of the hosted target. A dry run is not repeated blindly: a lost answer is a plan nobody has."""
        if trace.kind == "address":
            trace.record, trace.value = f"customer/{trace.number}", f"new {trace.number}"
            inputs: dict[str, Any] = {"customer_id": str(trace.number), "address": trace.value}
            operation, more = "address.update", {}
        else:
            trace.record, trace.value = f"invoice/{trace.number}", str(1_000 + trace.number)
            inputs = {"invoice_id": str(trace.number), "amount_cents": 1_000 + trace.number}
            trace.intent = f"refund:{trace.number}"
            operation, more = "refund", {"intent": trace.intent}
        body = {"task_id": trace.task_id, "inputs": inputs, **more}
        path = f"/api/v1/operations/{operation}/dry-run"
        said = self.caller.api(trace, "dry run", path, body, web=self.chance.randrange(2))
        if said.status != 201:
            if said.status not in HARD | {429} and said.slug not in OTHERWISE_DECIDED:
                self.workload.wrong(f"a dry run was answered {said.status} {said.slug}")
            return False
        document = json.loads(said.body)
        trace.plan_id, trace.token = document["plan_id"], document["plan_token"]
        trace.fingerprint = document["input_fingerprint"]
        trace.expires = datetime.fromisoformat(document["expires_at"]).timestamp()
        return True

    # --- having it written ------------------------------------------------------------------------------------------

    def _presses(self, trace: Trace, rival: str) -> list[Any]:
        """One press or several at the same moment; at the deadline, all around it."""
        count = self.chance.choice((1, 1, 2, 2, 3))
        start = time.time() + self.chance.uniform(0, 0.4)
        if rival == "deadline":
            start = trace.expires
        pauses = [start - time.time() + self.chance.uniform(-0.02, 0.005) for _ in range(count)]
        webs = [self.chance.randrange(2) for _ in range(count)]
        if trace.kind in ("approved", "refund"):
            reviewers = self.chance.choices(self.world.reviewers, k=count)
            return [
                lambda who=who, pause=pause, web=web: self._approve(trace, who, pause, web)
                for who, pause, web in zip(reviewers, pauses, webs, strict=True)
            ]
        keys = [f"key-{trace.number}-{self.chance.choice('aab')}" for _ in range(count)]
        return [
            lambda key=key, pause=pause, web=web: self._commit(trace, key, pause, web)
            for key, pause, web in zip(keys, pauses, webs, strict=True)
        ]

    def _approve(self, trace: Trace, reviewer: Any, pause: float, web: int) -> None:
        shown = look_up(trace)
        if shown is None:
            return
        time.sleep(max(0.0, pause))
        for turn in range(5):
            said = self.caller.decide(trace, reviewer, "approve", *shown, web=(web + turn) % 2)
            if said.status not in HARD or time.time() > trace.expires + 1 or self.workload.stopping.is_set():
                return
            time.sleep(0.5)

    def _commit(self, trace: Trace, key: str, pause: float, web: int) -> None:
        """CONTRACT section 7: after a timeout, 429 or 5xx the same key again; 202, 423: wait."""
        time.sleep(max(0.0, pause))
        for turn in range(5):
            said = self.caller.commit(trace, web=(web + turn) % 2, key=key)
            if said.status not in HARD | {202, 423, 429}:
                self._check_commit(trace, said)
                return
            if time.time() > trace.expires + 2 or self.workload.stopping.is_set():
                return
            time.sleep(1.2)

    def _check_commit(self, trace: Trace, said: Said) -> None:
        if said.status == 200:
            bodies = {one.body for one in list(trace.said) if one.verb == "commit" and one.status == 200}
            if len(bodies) != 1:
                self.workload.wrong(f"plan {trace.plan_id}: two different answers to one commit")
        elif said.status not in (409, 410, 422) and said.slug != "rejected":
            self.workload.wrong(f"a commit of {trace.plan_id} was answered {said.status} {said.slug}")

    # --- what races with it -----------------------------------------------------------------------------------------

    def _rival(self, trace: Trace, rival: str) -> Any:
        pause = self.chance.uniform(0, 0.5)
        web = self.chance.randrange(2)
        reviewer = self.chance.choice(self.world.reviewers)

        def act() -> None:
            time.sleep(pause)
            match rival:
                case "abandon":
                    self._tell_abandoned(trace)
                case "end task":
                    self.caller.api(trace, "end task", f"/api/v1/tasks/{trace.task_id}/end", web=web)
                case "reject":
                    shown = look_up(trace)
                    if shown is not None:
                        self.caller.decide(trace, reviewer, "reject", shown[0], "", web=web)
                case "newer":
                    if trace.kind == "address":
                        other = Trace("address", trace.number, trace.desk, trace.target, task_id=trace.task_id)
                        if self._dry_run(other):
                            self.workload.traces.append(other)
                case "write":
                    body = {"target": trace.target, "targets": [trace.record]}
                    self.caller.api(trace, "write", f"/api/v1/tasks/{trace.task_id}/writes", body, web=web)

        return act

    def _tell_abandoned(self, trace: Trace) -> None:
        data = {"plan_id": trace.plan_id, "target": trace.target, "reason": "intent_changed"}
        webhook_id = f"msg_{trace.number}_gone"
        for turn in range(3):
            said = self.caller.feed(trace, "plan.abandoned", data, web=turn % 2, webhook_id=webhook_id)
            if said.status not in HARD:
                return
            time.sleep(0.3)

    def _move_world(self, trace: Trace) -> None:
        """Somebody else writes to the plan's record, past the desk."""
        for _ in range(30):
            try:
                with self.workload.product.connect() as connection:
                    connection.execute(
                        "UPDATE demo_customer SET address = %s WHERE customer_id = %s",
                        [f"moved {trace.number}", str(trace.number)],
                    )
            except Exception:  # the database is gone: the world moves when it is back
                time.sleep(0.2)
            else:
                trace.mode = "world moved"
                return
