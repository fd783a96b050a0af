"""What became of every plan, by the target's ledger and the billing tables' book; the desk's word is held to them."""

import itertools
import json
import re
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from audit.kinds import TERMINAL_KINDS
from plans.models import Plan
from reviewer.installation import PROJECT
from tests.faults.client import Trace
from tests.faults.control import Strike
from tests.faults.product import Product
from tests.faults.timers import RECOVERED_WITHIN, SETTINGS
from tests.faults.world import SENTINEL

DECIDED_BEFORE = 1.0
"""Seconds: the clock is read before the write, and a busy machine takes a moment between the two."""

SKEWED_FOR = 60.0
"""Seconds for which a web host's clock stays off at least: until this fault comes round again."""

FAKETIME_SLEEPS = "OSError: [Errno 22]"
"""What `time.sleep` raises now and then under libfaketime; the server starts anew."""

ENDS = {"committed", "conflicted", "rejected", "refused", "abandoned"}
TRUST = SETTINGS["STATE_TRUSTED_AFTER"].total_seconds()
HOSTED_TOKEN = re.compile(rb"pt_[A-Za-z0-9_-]{43}")
AFTER_END = {"commit.replayed", "commit.contradicted", "plan.replan_requested", "callback.delivered", "callback.failed"}
DATABASE_FAULTS = ("PostgreSQL", "COMMIT", "disk full")
# What a database that is gone makes a process say; anything else at this level is a finding.
EXCUSED = re.compile(
    r"OperationalError|InterfaceError|AdminShutdown|CannotConnectNow|ConnectionTimeout|DiskFull|server closed the "
    r"connection|No space left|connection (is|was|already) (closed|lost|bad)|DatabaseError"
)
# A broker that is gone; and a scheduler or worker that says that it connects again.
EXCUSED_BROKER = re.compile(
    r"redis|Connection (refused|to broker|closed)|Cannot connect|consumer|kombu|beat|broker", re.IGNORECASE
)


@dataclass
class Row:
    """One line of the table: a kind of fault."""

    strikes: int = 0
    runs: int = 0
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    recovery: float = 0.0


@dataclass
class Verdict:
    rows: dict[str, Row]
    faulted: int
    plans: int
    committed: int
    states: Counter[str]
    otherwise: int = 0  # of the faulted ones: struck by more than a wrong clock
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.failures


@dataclass
class _Found:
    """One plan as the database has it, and what the books say."""

    plan: Plan
    trace: Trace | None
    received: float
    ended: float | None
    attempts: int
    applied: int = 0
    bad: set[str] = field(default_factory=set)


def _has_struck(strike: Strike, one: _Found) -> bool:
    said = list(one.trace.said) if one.trace else []
    if strike.kind.startswith("clock"):  # only what the host with the wrong clock has answered
        served = [answer.at - strike.at for answer in said if answer.web == 1 and answer.status]
        return any(1 < late < SKEWED_FOR for late in served)
    if any(answer.status == 0 and answer.sent_at <= strike.at <= answer.at for answer in said):
        return True
    if strike.plan_pk is not None:
        return strike.plan_pk == one.plan.pk
    return (one.ended is None or strike.at <= one.ended) and strike.until >= one.received


class Judge:
    def __init__(self, product: Product, traces: list[Trace], strikes: list[Strike], paused: dict[int, float]) -> None:
        self.product, self.traces, self.strikes, self.paused = product, traces, strikes, paused
        self.failures: list[str] = []

    def judge(self, wrongs: Iterable[str]) -> Verdict:
        """Everything the issue asks for; the product stands still meanwhile."""
        self.failures += wrongs
        found = self._read()
        self._hold_against_books(found)
        self._hold_against_answers(found)
        self._hold_against_time(found)
        self._hold_against_events(found)
        self._look_for_tokens()
        self._look_into_logs()
        self._verify_log()
        rows, faulted, otherwise = self._table(found)
        return Verdict(
            rows, faulted, len(found), sum(one.plan.state == "committed" for one in found),
            Counter(one.plan.state for one in found), otherwise, self.failures,
        )  # fmt: skip

    def _fail(self, one: _Found, what: str, sentence: str) -> None:
        one.bad.add(what)
        name = f"{one.plan.plan_id} of {one.plan.agent.name} at {one.plan.target.name}"
        mode = f" (target: {one.trace.mode})" if one.trace and one.trace.mode else ""
        struck = sorted({strike.kind for strike in self._struck(one)})
        self.failures.append(f"{what}: {name} is {one.plan.state}: {sentence}{mode}; struck by {', '.join(struck)}")

    def _read(self) -> list[_Found]:
        by_name = {(trace.desk.name, trace.target, trace.plan_id): trace for trace in self.traces if trace.plan_id}
        found = []
        for plan in Plan.objects.select_related("agent", "target", "task").prefetch_related("commits").order_by("pk"):
            is_over = plan.state in ENDS
            trace = by_name.pop((plan.agent.name, plan.target.name, plan.plan_id), None)
            ended = plan.state_changed_at.timestamp() if is_over else None
            one = _Found(plan, trace, plan.received_at.timestamp(), ended, len(plan.commits.all()))
            found.append(one)
        for name, trace in by_name.items():
            if any(said.verb in ("plan.created", "dry run") and said.status in (200, 201) for said in trace.said):
                self.failures.append(f"lost: the desk took {name} and does not know it")
        return found

    # --- the books --------------------------------------------------------------------------------------------------

    def _hold_against_books(self, found: list[_Found]) -> None:
        with sqlite3.connect(self.product.folder / "ledger") as ledger:
            applications = ledger.execute("SELECT plan_id, key, at FROM application").fetchall()
            calls = ledger.execute("SELECT plan_id, key, at FROM call").fetchall()
        with self.product.connect() as connection:
            written: Any = connection.execute(
                "SELECT record, value, extract(epoch FROM at)::float8 FROM book.written"
            ).fetchall()
        per_plan, keys = Counter(row[0] for row in applications), defaultdict(set)
        for plan_id, key, _ in calls:
            keys[plan_id].add(key)
        moments = {plan_id: at for plan_id, _, at in applications}
        book = defaultdict(list)
        for record, value, at in written:
            book[record, value].append(at)
        siblings: dict[tuple[str, str], list[_Found]] = defaultdict(list)
        for one in found:
            if one.plan.is_hosted:
                siblings[self._hosted_write(one.plan)].append(one)
                continue
            one.applied = per_plan[one.plan.plan_id]
            self._hold_one(one, [moments[one.plan.plan_id]] if one.applied else [])
            if keys[one.plan.plan_id] - {one.plan.idempotency_key}:
                self._fail(one, "doubled", "it was sent under another key than its own")
            self._hold_calls(one, [at for plan_id, _, at in calls if plan_id == one.plan.plan_id])
        for write, plans in siblings.items():
            moments_of = book.pop(write, [])
            winners = [one for one in plans if one.plan.state == "committed"]
            for one in plans:  # the same change planned twice is one intent
                one.applied = len(moments_of) if one in winners or not winners else 0
            self._hold_one((winners or plans)[0], moments_of)
            for one in winners[1:]:
                self._fail(one, "doubled", "the same change was committed twice")
        for write in book:
            if not write[1].startswith("moved"):
                self.failures.append(f"lost: {write} was written and no plan tells of it")
        self._hold_intents(found)

    @staticmethod
    def _hosted_write(plan: Plan) -> tuple[str, str]:
        inputs = json.loads(plan.inputs)
        if plan.operation == "refund":
            return f"invoice/{inputs['invoice_id']}", str(inputs["amount_cents"])
        return f"customer/{inputs['customer_id']}", inputs["address"]

    def _hold_one(self, one: _Found, moments: list[float]) -> None:
        is_committed = one.plan.state == "committed"
        if one.applied > 1:
            self._fail(one, "doubled", f"it was applied {one.applied} times")
        elif is_committed and not one.applied:
            self._fail(one, "lost", "it was never applied")
        elif one.applied and not is_committed and one.plan.state in ENDS:
            self._fail(one, "lost", "it was applied")
        expires = one.plan.expires_at.timestamp()
        for at in moments:
            if at >= expires + DECIDED_BEFORE and not (one.trace and one.trace.mode == "applies late"):
                self._fail(one, "doubled", f"it was applied {at - expires:.3f} s after its expiry")
            if one.trace and not one.trace.asked_at:
                self._fail(one, "doubled", "it was applied and nobody asked for it")
            if one.trace and one.trace.asked_at and at < one.trace.asked_at - 0.05:
                self._fail(one, "doubled", "it was applied before anybody asked for it")

    def _hold_calls(self, one: _Found, calls: list[float]) -> None:
        """At or past the expiry nothing is sent. The look at the clock and the first byte are not one moment."""
        if len(calls) > one.attempts:
            self._fail(one, "doubled", f"it was sent {len(calls)} times, and {one.attempts} attempts are on record")
        late = [at for at in calls if at > one.plan.expires_at.timestamp() + 1.5]
        if late and one.plan.pk not in self.paused and not self._slept(one):
            self._fail(one, "doubled", "it was sent after its expiry")

    def _slept(self, one: _Found) -> bool:
        """Whether some process slept while it lived: it may have slept between clock and wire."""
        return any("paused" in strike.kind for strike in self._struck(one))

    def _hold_intents(self, found: list[_Found]) -> None:
        per_intent: dict[tuple[int, str], list[_Found]] = defaultdict(list)
        for one in found:
            if one.plan.intent is not None:
                per_intent[one.plan.agent_id, one.plan.intent].append(one)
        for plans in per_intent.values():
            if sum(one.applied for one in plans) > 1:
                self._fail(plans[0], "doubled", "its intent was applied more than once")

    # --- what was said ----------------------------------------------------------------------------------------------

    def _hold_against_answers(self, found: list[_Found]) -> None:
        for one in found:
            if one.trace is None:
                continue
            told = {said.state for said in list(one.trace.said) if said.state in ENDS}
            if told and told != {one.plan.state}:
                self._fail(one, "lost", f"clients were told {', '.join(sorted(told))}")
            for said in list(one.trace.said):
                expected = {"conflict": "conflicted", "expired": "abandoned", "refused": "refused"}.get(said.slug)
                if said.verb == "commit" and expected not in (None, one.plan.state):
                    self._fail(one, "lost", f"a commit was answered {said.status} {said.slug}")

    # --- in time ----------------------------------------------------------------------------------------------------

    def _struck(self, one: _Found) -> list[Strike]:
        """The faults that struck while it lived: its own, those of all, and whatever broke one of its requests."""
        found = [strike for strike in self.strikes if _has_struck(strike, one)]
        if one.trace is not None and one.trace.mode and one.attempts and not one.plan.is_hosted:
            found.append(Strike(f"target {one.trace.mode}", one.trace.asked_at, one.trace.asked_at, one.plan.pk))
        return found

    def _hold_against_time(self, found: list[_Found]) -> None:
        for one in found:
            if one.ended is None:
                self._fail(one, "stuck", "it never ended")
                continue
            from_when = max(
                [one.plan.expires_at.timestamp() + (TRUST if one.attempts else 0)]
                + [strike.until for strike in self.strikes if strike.at <= one.ended]
            )
            if one.ended > from_when + RECOVERED_WITHIN:
                self._fail(one, "stuck", f"it ended {one.ended - from_when:.1f} s after it could")

    # --- events -----------------------------------------------------------------------------------------------------

    def _hold_against_events(self, found: list[_Found]) -> None:
        with self.product.connect() as connection:
            rows: Any = connection.execute(
                "SELECT agent, target, plan_id, plan_seq, kind, at FROM audit_event WHERE plan_seq IS NOT NULL "
                "ORDER BY agent, target, plan_id, plan_seq"
            ).fetchall()
        stories: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
        for agent, target, plan_id, seq, kind, at in rows:
            stories[agent, target, plan_id].append((seq, kind, at))
        for one in found:
            story = stories.pop((one.plan.agent.name, one.plan.target.name, one.plan.plan_id), [])
            self._hold_story(one, story)
        for name in stories:
            self.failures.append(f"lost: events of a plan that is not there: {name}")

    def _hold_story(self, one: _Found, story: list[Any]) -> None:
        kinds = [kind for _, kind, _ in story]
        if [seq for seq, _, _ in story] != list(range(1, len(story) + 1)) or len(story) != one.plan.event_count:
            self._fail(one, "lost", f"its events have gaps: {[seq for seq, _, _ in story]}")
        if any(later[2] < earlier[2] for earlier, later in itertools.pairwise(story)):
            self._fail(one, "lost", f"its events are out of order: {kinds}")
        terminal = [place for place, kind in enumerate(kinds) if kind in TERMINAL_KINDS]
        if len(terminal) != (one.plan.state in ENDS):
            self._fail(one, "lost", f"it has {len(terminal)} terminal events: {kinds}")
        elif terminal and (after := set(kinds[terminal[0] + 1 :]) - AFTER_END - {"decision.refused", "plan.viewed"}):
            self._fail(one, "lost", f"events after its end: {after}")
        if not kinds or kinds[0] != "plan.received":
            self._fail(one, "lost", f"its events do not begin with its receipt: {kinds}")
        if one.plan.state == "committed" and "commit.started" not in kinds and "commit.unapproved" not in kinds:
            self._fail(one, "lost", f"it was committed and no attempt was told: {kinds}")
        if "commit.contradicted" in kinds:
            self._fail(one, "lost", f"the target contradicted its end: {kinds}")

    # --- secrets, logs ----------------------------------------------------------------------------------------------

    def _look_for_tokens(self) -> None:
        """In every table, Redis, every log and every answer, but the one that showed it once."""
        hosted = {trace.token.encode() for trace in self.traces if trace.token.startswith("pt_")}
        places: dict[str, bytes] = {f"log {path.name}": path.read_bytes() for path in self._logs()}
        with self.product.connect() as connection:
            names: Any = connection.execute(
                "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
                "WHERE relkind = 'r' AND nspname IN ('public', 'audit', 'book')"
            ).fetchall()
            for (name,) in names:
                with connection.cursor().copy(f"COPY {name} TO STDOUT") as copy:
                    places[f"table {name}"] = b"".join(bytes(piece) for piece in copy)
        places["Redis"] = self._redis()
        said = (said for trace in self.traces for said in trace.said if said.verb != "dry run")
        places["answers"] = b"\n".join(one.body for one in said)
        for place, content in places.items():
            if SENTINEL.encode() in content or hosted.intersection(HOSTED_TOKEN.findall(content)):
                self.failures.append(f"a token stands in {place}")

    def _redis(self) -> bytes:
        import redis

        with redis.Redis(unix_socket_path=str(self.product.redis.socket_path())) as client:
            return b"\n".join(client.dump(key) or b"" for key in client.keys("*"))

    def _logs(self) -> list[Any]:
        return [*sorted(self.product.log.glob("*.log")), *sorted(self.product.installation.log.glob("*.log"))]

    def _look_into_logs(self) -> None:
        had_database = any(strike.kind.startswith(DATABASE_FAULTS) for strike in self.strikes)
        had_broker = any("Redis" in strike.kind for strike in self.strikes)
        seen: Counter[str] = Counter()
        for path in self._logs():
            lines = path.read_text(errors="replace").splitlines()
            for place, first in enumerate(lines):
                line = first
                if first.startswith("Traceback"):
                    line = first + " " + next((one for one in lines[place + 1 :] if not one.startswith(" ")), "")
                if path.name == "postgres.log":
                    is_bad = "deadlock detected" in line or re.search(r"ERROR: .*(violates|a plan does not go)", line)
                    if is_bad:
                        seen[f"{path.name}: {line.split(' UTC ')[-1][:200]}"] += 1
                    continue
                if "level=error" not in line and "level=critical" not in line and "Traceback" not in line:
                    continue
                if 'message="Gateway Timeout: ' in line or 'message="Service Unavailable: ' in line:
                    continue  # what the contract answers, noted by Django
                if FAKETIME_SLEEPS in line and path.name == "web2.log":
                    continue
                if had_database and EXCUSED.search(line):
                    continue
                if had_broker and EXCUSED_BROKER.search(line):
                    continue
                short = re.sub(r"at=\S+ |request=\S+ |plan_\w+|task-\d+|agent-\d+|req_\w+", "", line)
                seen[f"{path.name}: {short[:400]}"] += 1
        for line, count in seen.most_common(20):
            self.failures.append(f"error log ({count}x): {line}")

    def _verify_log(self) -> None:
        """The log's own proof, over everything that happened."""
        words = [sys.executable, "manage.py", "audit", "verify"]
        done = subprocess.run(
            words, cwd=PROJECT, env=self.product.environment(direct=True), capture_output=True, text=True, check=False
        )
        if done.returncode:
            self.failures.append(f"the log does not verify: {(done.stdout + done.stderr)[-400:]}")

    # --- the table --------------------------------------------------------------------------------------------------

    def _table(self, found: list[_Found]) -> tuple[dict[str, Row], int, int]:
        rows: dict[str, Row] = defaultdict(Row)
        for strike in self.strikes:
            rows[strike.kind].strikes += 1
        faulted = otherwise = 0
        for one in found:
            if not one.attempts:
                continue
            struck = self._struck(one)
            faulted += bool(struck)
            otherwise += any(not strike.kind.startswith("clock") for strike in struck)
            for kind in {strike.kind for strike in struck}:
                row = rows[kind]
                row.runs += 1
                row.lost += "lost" in one.bad
                row.doubled += "doubled" in one.bad
                row.stuck += "stuck" in one.bad
                row.survived += not one.bad
                if one.ended is not None:
                    last = max(strike.until for strike in struck if strike.kind == kind)
                    row.recovery = max(row.recovery, one.ended - last)
        for kind, row in rows.items():
            if kind.startswith("target "):
                row.strikes = row.strikes or row.runs
        return dict(sorted(rows.items())), faulted, otherwise
