"""A task: an agent's unit of work, which owns plans, and abandons at its end what is left of them."""

import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Self

from plans.agent import committing, json_text, planning, telling, waiting
from plans.agent.errors import DeskError, ForeignPlan, NotJson, TaskEnded
from plans.agent.feeding import read_dry_run
from plans.agent.json_text import compose
from plans.agent.line import Line
from plans.agent.outcomes import Abandoned, Ended, Outcome, Unavailable
from plans.agent.plan import Plan, StoredPlan
from plans.agent.planning import Request
from plans.agent.store import Untold
from plans.identifiers import is_identifier
from plans.states import State

MAX_WRITTEN = 1_000
"""Records that one write may name (CONTRACT section 4 on actions)."""

MAX_EVIDENCE = 50
"""Pieces of evidence that go with a plan (CONTRACT section 4); of more reads, the latest."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the agent looked at before it planned: shown to the reviewer as text, never fetched."""

    tool: str
    note: str | None = None
    url: str | None = None


class Known(NamedTuple):
    """A plan of the task, and the state it was last known in."""

    plan: Plan
    state: str


class EndedPlan(NamedTuple):
    """What became of a plan that was still in flight when the task ended, in the desk's words."""

    plan_id: str
    state: str


class Task:
    """Owns the plans made in it. Made by `Desk.task`; a context manager.

    Leaving the context by return, exception, cancellation or Ctrl-C ends the task: plans that are not decided are
    abandoned, and the desk is told. A killed process ends nothing: the same task id, with the same store, goes on where
    it was. A task ends once. Safe with threads; a forked child never ends its parent's task.
    """

    def __init__(self, line: Line, task_id: str) -> None:
        if not is_identifier(task_id):
            raise ValueError("A task id is 1 to 128 of letters, digits, _ . : - and starts with a letter or digit.")
        self.task_id = task_id
        self.ended: list[EndedPlan] = []
        self._line = line
        self._run = line.store.open_task(line.name, task_id)
        self._pid = os.getpid()
        self._reads: list[Evidence] = []
        self._locks: dict[tuple[int, str], threading.Lock] = {}

    def __repr__(self) -> str:
        return f"Task({self.task_id!r})"

    # plan

    def dry_run(
        self, operation: str, inputs: Mapping[str, object], *, intent: str | None = None,
        replaces: Plan | str | None = None, summary: str | None = None,
        evidence: Iterable[Evidence] | None = None,
    ) -> Plan:  # fmt: skip
        """Asks the desk what this operation would write; nothing is written.

        The inputs are frozen here. The same operation, inputs and intent again give the same plan while it is in
        flight; and, so that a task run anew from its start does nothing twice, the plan an earlier run committed. With
        an intent that holds in this run too. `replaces` names an earlier plan that this one stands in for. `evidence`
        defaults to what was noted by `read`.

        Raises PlanRefused (the desk said no), DeskUnavailable, NotADryRun, PlanInFlight (a plan of the same thing may
        be written at this moment), TaskEnded, NotJson. May be repeated after any of them.
        """
        request = self._request(None, operation, inputs, intent, replaces, summary, evidence)
        with self._lock(request):
            if known := self._find_same(request):
                return known
            return planning.dry_run(self._line, request)

    def submit(
        self, target: str, operation: str, inputs: Mapping[str, object], answer: str | bytes | Mapping[str, object], *,
        intent: str | None = None, replaces: Plan | str | None = None, summary: str | None = None,
        evidence: Iterable[Evidence] | None = None,
    ) -> Plan:  # fmt: skip
        """Feeds the desk a plan that a remote target answered to a dry run.

        `answer` is the target's JSON, best as the text or bytes received, so that numbers stay as written: the plan's
        members, or an object that holds them as `plan`. An answer without them, or one that says it has written, is
        refused with NotADryRun and nothing is sent. Once the desk has a plan of the same target, operation, inputs and
        intent, that one is returned and this answer is dropped, as with `dry_run`.
        """
        found = read_dry_run(answer)
        request = self._request(target, operation, inputs, intent, replaces, summary, evidence)
        with self._lock(request):
            if known := self._find_same(request):
                return known
            return planning.submit(self._line, request, found)

    def read(self, tool: str, note: str | None = None, *, url: str | None = None) -> Evidence:
        """Notes what a tool was asked and what it said; it goes as evidence with the plans made after it."""
        if url is not None and not url.startswith("https://"):
            raise ValueError("The address of a piece of evidence must be https.")
        piece = Evidence(tool, note, url)
        json_text.freeze([tool, note, url])
        self._reads.append(piece)
        return piece

    # act

    def commit(self, plan: Plan) -> Outcome:
        """Commits the plan, once, with its own key; or says what stands against it. Takes nothing but the plan.

        May be repeated: it finishes the same attempt, and an end is told again without asking. Raises ForeignPlan for
        a plan that is not this task's, and DeskError for an answer that no outcome stands for.
        """
        stored = self._own(plan)
        if stored.outcome is None:
            telling.tell_rest(self._line)
        return self._tell(plan, committing.commit_plan(self._line, stored))

    def wait(self, plan: Plan, timeout: float | None = None) -> Outcome:
        """Waits for the plan's end, at most this many seconds (without: until its expiry). Sends nothing that writes.

        Gives Waiting or Unknown when the time is over; from then on nothing asks any more.
        """
        return self._tell(plan, waiting.wait_for(self._line, self._own(plan), timeout))

    def abandon(
        self, plan: Plan, reason: Literal["task_ended", "intent_changed", "inputs_changed"] = "intent_changed"
    ) -> Outcome:
        """Withdraws the plan, and says what the desk says became of it: it may have been committed a moment ago.

        Unavailable where the desk could not be told yet; it will be, and the plan is not committed here meanwhile.
        """
        stored = self._own(plan)
        if stored.outcome is not None:
            return self._tell(plan, waiting.look(self._line, stored))
        path = f"{waiting.path_of(plan)}/abandon?target={plan.target}"
        body = compose({"reason": reason}).decode()
        what = f"abandonment of plan {plan.plan_id}"
        line = self._line
        line.store.withdraw(line.name, plan)
        kept = line.store.keep_untold(line.name, Untold(0, self.task_id, what, path, body, telling.now(line)))
        if telling.tell(line, kept, line.patience()) is None:
            return Unavailable(plan.plan_id)
        return self._tell(plan, waiting.look(line, self._own(plan)))

    def write(self, target: str, targets: Iterable[str]) -> list[str]:
        """Marks what the agent itself wrote, or is about to: plans that touch it are stale, here and at the desk.

        Call it before the write, from any thread. Returns the ids of this agent's plans that are stale now: they are
        never sent again. Where the desk cannot be told it warns, keeps it, and tells it later.
        """
        written = sorted(set(targets))
        if not 1 <= len(written) <= MAX_WRITTEN or not all(name.strip() for name in written):
            raise ValueError(f"Name 1 to {MAX_WRITTEN} written records.")
        line = self._line
        stale = line.store.touch(line.name, target, written)
        what = f"write to {', '.join(written[:3])}{' ...' if len(written) > 3 else ''}"
        path = f"/api/v1/tasks/{self.task_id}/writes"
        body = compose({"target": target, "targets": written}).decode()
        kept = line.store.keep_untold(line.name, Untold(0, self.task_id, what, path, body, telling.now(line)))
        telling.tell(line, kept, line.patience(line.pace.farewell))
        return stale

    # look, and end

    def plans(self) -> list[Known]:
        """The task's plans, of earlier runs too, in the order they were made, as last known here."""
        return [Known(stored.plan, stored.state) for stored in self._stored()]

    def end(self) -> list[EndedPlan]:
        """Ends the task and tells the desk: its plans that are not decided are abandoned. May be repeated.

        Returns, and keeps in `ended`, what became of each plan that was in flight, in the desk's own words. Where the
        desk cannot be told it warns, and the next run of the store tells it. Raises nothing that would hide why the
        context was left.
        """
        line = self._line
        if line.store.is_ended(line.name, self.task_id):
            return self.ended
        open_plans = [stored for stored in self._stored() if stored.is_in_flight]
        path = f"/api/v1/tasks/{self.task_id}/end"
        kept = line.store.end_task(line.name, self.task_id, at=telling.now(line), path=path)
        told = {}
        try:
            if answer := telling.tell(line, kept, line.patience(line.pace.farewell)):
                told = _states(answer.members().get("plans"))
        except DeskError as error:
            telling.warn(f"The desk refused the {kept.what}: {error}")
        self.ended = [EndedPlan(stored.plan.plan_id, self._fate(stored, told)) for stored in open_plans]
        return self.ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:
            self.end()

    # its own

    def _fate(self, stored: StoredPlan, told: dict[tuple[str, str], str]) -> str:
        plan = stored.plan
        state = told.get((plan.target, plan.plan_id))
        if state is None:
            return stored.state
        self._line.store.note_state(self._line.name, plan, state)
        if state == State.ABANDONED and not stored.may_be_written:
            self._line.store.settle(self._line.name, plan, Abandoned(plan.plan_id, "task_ended"))
        return state

    def _tell(self, plan: Plan, outcome: Outcome) -> Outcome:
        """The outcome, noted as told: an end that is told again is a replay."""
        if isinstance(outcome, Ended):
            self._line.store.note_told(self._line.name, plan)
        return outcome

    def _stored(self) -> list[StoredPlan]:
        return self._line.store.find_plans(self._line.name, self.task_id)

    def _own(self, plan: Plan) -> StoredPlan:
        try:
            stored = self._line.store.get_plan(self._line.name, plan.target, plan.plan_id)
        except LookupError:
            raise ForeignPlan(f"Plan {plan.plan_id} is not in this store.") from None
        same = (plan.task_id, plan.input_fingerprint, plan.inputs_json)
        if stored.plan.task_id != self.task_id:
            raise ForeignPlan(f"Plan {plan.plan_id} belongs to task {stored.plan.task_id}, not to {self.task_id}.")
        if same != (stored.plan.task_id, stored.plan.input_fingerprint, stored.plan.inputs_json):
            raise ForeignPlan(f"This is not plan {plan.plan_id} as it was made.")
        return stored

    def _find_same(self, request: Request) -> Plan | None:
        if known := planning.find_same(self._line, request):
            return known
        if self._line.store.is_ended(self._line.name, self.task_id):
            raise TaskEnded(f"Task {self.task_id} has ended; a new piece of work needs a new task id.")
        return None

    def _request(
        self, target: str | None, operation: str, inputs: Mapping[str, object], intent: str | None,
        replaces: Plan | str | None, summary: str | None, evidence: Iterable[Evidence] | None,
    ) -> Request:  # fmt: skip
        if not isinstance(inputs, Mapping):
            raise NotJson("The inputs must be an object.")
        for name in (operation, *(name for name in (target, intent) if name is not None)):
            if not is_identifier(name):
                raise ValueError("Names of operations, targets and intents are 1 to 128 of letters, digits, _ . : -")
        pieces = list(self._reads if evidence is None else evidence)[-MAX_EVIDENCE:]
        inputs_json = json_text.freeze(inputs)
        return Request(
            task_id=self.task_id,
            run=self._run,
            target=target,
            operation=operation,
            inputs_json=inputs_json,
            inputs_sorted=json_text.sorted_text(inputs_json),
            intent=intent,
            replaces=replaces.plan_id if isinstance(replaces, Plan) else replaces,
            summary=summary,
            evidence_json=json_text.freeze([_piece(piece) for piece in pieces]) if pieces else None,
            delivery_id=f"msg_{uuid.uuid4().hex}",
            idempotency_key=uuid.uuid4().hex,
        )

    def _lock(self, request: Request) -> threading.Lock:
        """One dry run of one thing at a time, so that two threads make one plan. A forked child has its own."""
        name = f"{request.target}\n{request.operation}\n{request.intent}\n{request.inputs_sorted}"
        return self._locks.setdefault((os.getpid(), name), threading.Lock())


def _piece(piece: Evidence) -> dict[str, str]:
    members = {"tool": piece.tool, "note": piece.note, "url": piece.url}
    return {name: value for name, value in members.items() if value is not None}


def _states(plans: json_text.JsonValue) -> dict[tuple[str, str], str]:
    """What the desk answered about plans: state by target and id."""
    told = {}
    for plan in plans if isinstance(plans, list) else []:
        if isinstance(plan, dict):
            told[str(plan.get("target")), str(plan.get("plan_id"))] = str(plan.get("state"))
    return told
