"""A task: an agent's unit of work, which owns plans, and abandons at its end what is left of them.

A long file, for `Task` is the whole of what an agent calls, each with what it guarantees; the work is done beside it.
"""

import os
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeAlias

from plans.agent import committing, json_text, planning, stopping, telling, waiting
from plans.agent.comparing import Replanned, compare
from plans.agent.errors import DeskError, ForeignPlan, NotJson, StoreError, TaskEnded
from plans.agent.feeding import TargetAnswer, hide_answer, read_dry_run
from plans.agent.json_text import compose
from plans.agent.kept import Untold
from plans.agent.line import Line, Patience
from plans.agent.outcomes import Abandoned, Ended, Outcome, Unavailable
from plans.agent.plan import FEEDING, Plan, StoredPlan
from plans.agent.planning import Request
from plans.agent.secrets import Secret
from plans.identifiers import is_identifier
from plans.states import State

MAX_WRITTEN = 1_000
"""Records that one write may name (CONTRACT section 4 on actions)."""

MAX_EVIDENCE = 50
"""Pieces of evidence that go with a plan (CONTRACT section 4); of more reads, the latest."""


AbandonReason: TypeAlias = Literal["task_ended", "intent_changed", "inputs_changed"]
"""Why an agent withdraws a plan (CONTRACT 5.1)."""


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
    """What became of a plan that was, as far as was known here, still in flight when the task ended.

    The state in the desk's words: `committed` where it was written meanwhile, `unknown` also where the desk could not
    be asked.
    """

    plan_id: str
    state: str


class Task:
    """Owns the plans made in it. Made by `Desk.task`; a context manager.

    Leaving the context by return, exception, cancellation or Ctrl-C ends the task: plans that are not decided are
    abandoned, and the desk is told. A killed process ends nothing: the same task id, with the same store, goes on where
    it was. A task ends once. Safe with threads; a forked child never ends its parent's task.
    """

    def __init__(self, line: Line, task_id: str, reads: list[Evidence] | None = None) -> None:
        self.task_id = checked_task_id(task_id)
        self.ended: list[EndedPlan] = []
        self._line = line
        self._run = line.ledger.open_task(task_id)
        self._pid = os.getpid()
        self._reads: list[Evidence] = [] if reads is None else reads
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
        self, target: str, operation: str, inputs: Mapping[str, object], answer: TargetAnswer, *,
        intent: str | None = None, replaces: Plan | str | None = None, summary: str | None = None,
        evidence: Iterable[Evidence] | None = None,
    ) -> Plan:  # fmt: skip
        """Feeds the desk a plan that a remote target answered to a dry run.

        `answer` is the target's JSON, best as the text or bytes received, so that numbers stay as written: the plan's
        members, or an object that holds them as `plan`. An answer without them, or one that says it has written, is
        refused with NotADryRun and nothing is sent. Once the desk has a plan of the same target, operation, inputs and
        intent, that one is returned and this answer is dropped, as with `dry_run`.
        """
        try:
            hidden = hide_answer(answer)
        finally:
            del answer  # its token stands in it: no traceback shows it
        return self._submit(target, operation, inputs, hidden, intent, replaces, summary, evidence)

    def _submit(
        self, target: str, operation: str, inputs: Mapping[str, object], answer: Secret, intent: str | None,
        replaces: Plan | str | None, summary: str | None, evidence: Iterable[Evidence] | None,
    ) -> Plan:  # fmt: skip
        found = read_dry_run(answer)
        request = self._request(target, operation, inputs, intent, replaces, summary, evidence)
        with self._lock(request):
            if known := self._find_same(request):
                return known
            return planning.submit(self._line, request, found)

    def replan(
        self, plan: Plan, inputs: Mapping[str, object] | None = None, *,
        answer: TargetAnswer | None = None, summary: str | None = None, evidence: Iterable[Evidence] | None = None,
    ) -> Replanned:  # fmt: skip
        """Plans the same thing again, after a conflict, an expiry or a write: a new dry run that replaces this plan.

        Operation, intent, summary and, unless others are given, the inputs are this plan's. Says what the new plan
        would write otherwise. A submitted plan takes the target's `answer` to a new dry run; another takes none.
        Raises as `dry_run` and `submit` do: PlanInFlight while the old plan may still be written.
        """
        try:
            hidden = hide_answer(answer) if answer is not None else None
        finally:
            del answer  # its token stands in it: no traceback shows it
        return self._replan(plan, inputs, hidden, summary, evidence)

    def _replan(
        self, plan: Plan, inputs: Mapping[str, object] | None, answer: Secret | None, summary: str | None,
        evidence: Iterable[Evidence] | None,
    ) -> Replanned:  # fmt: skip
        old = self._own(plan).plan
        if (old.origin == "fed") != (answer is not None):
            raise ValueError("A plan that was submitted, and no other, is planned again with its target's new answer.")
        named = inputs if inputs is not None else json_text.members_as_written(old.inputs_json)
        about = summary if summary is not None else old.summary
        if answer is None:
            new = self.dry_run(old.operation, named, intent=old.intent, replaces=old, summary=about, evidence=evidence)
        else:
            new = self._submit(old.target, old.operation, named, answer, old.intent, old, about, evidence)
        return Replanned(new, old, compare(old, new))

    def read(self, tool: str, note: str | None = None, *, url: str | None = None) -> Evidence:
        """Notes what a tool was asked and what it said; it goes as evidence with the plans made after it."""
        return note_read(self._reads, tool, note, url)

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

    def abandon(self, plan: Plan, reason: AbandonReason = "intent_changed") -> Outcome:
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
        line.ledger.withdraw(plan)
        kept = line.ledger.keep_untold(Untold(self.task_id, what, path, body, telling.now(line)))
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
        stale = line.ledger.touch(target, written)
        what = f"write to {', '.join(written[:3])}{' ...' if len(written) > 3 else ''}"
        path = f"/api/v1/tasks/{self.task_id}/writes"
        body = compose({"target": target, "targets": written}).decode()
        kept = line.ledger.keep_untold(Untold(self.task_id, what, path, body, telling.now(line)))
        telling.tell(line, kept, line.patience(line.pace.farewell))
        return stale

    # look, and end

    def plans(self) -> list[Known]:
        """The task's plans, of earlier runs too, in the order they were made, as last known here."""
        return [Known(stored.plan, stored.state) for stored in self._stored()]

    def find(self, plan_id: str) -> Plan | None:
        """The task's plan of this id, the first one made; None where the task has none."""
        return next((known.plan for known in self.plans() if known.plan.plan_id == plan_id), None)

    def end(self) -> list[EndedPlan]:
        """Ends the task and tells the desk: its plans that are not decided are abandoned. May be repeated.

        Returns, and keeps in `ended`, what became of each plan that was in flight, in the desk's own words, also of
        those that were decided or expired before. Where the desk cannot be told it warns, the plans are `unknown`, and
        the next run of the store tells it. Raises nothing that would hide why the
        context was left.
        """
        line = self._line
        if line.ledger.is_ended(self.task_id):
            return self.ended
        open_plans = [stored for stored in self._stored() if stored.is_in_flight]
        path = f"/api/v1/tasks/{self.task_id}/end"
        untold = Untold(self.task_id, f"end of task {self.task_id}", path, "{}", telling.now(line))
        kept = line.ledger.end_task(untold)
        patience = line.patience(line.pace.farewell)
        told = {}
        can_ask = True
        try:
            answer = telling.tell(line, kept, patience)
            can_ask = answer is not None
            told = _states(answer.members().get("plans")) if answer is not None else {}
        except DeskError as error:
            telling.warn(f"The desk refused the {kept.what}: {error}")
        for stored in open_plans:
            state = self._told_fate(stored, told) or (self._asked_fate(stored, patience) if can_ask else None)
            can_ask = can_ask and state is not None
            self.ended.append(EndedPlan(stored.plan.plan_id, state or State.UNKNOWN.value))
        return self.ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:
            self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        """Ends the task; a store that fails then is said aloud, and never hides why the context was left."""
        try:
            self.end()
        except StoreError as failure:
            if error is None:
                raise
            telling.warn(f"Task {self.task_id} was left and could not be ended: {failure}")

    # its own

    def _told_fate(self, stored: StoredPlan, told: dict[tuple[str, str], str]) -> str | None:
        """What the desk's answer to the end says of the plan; None where it does not name it."""
        plan = stored.plan
        state = told.get((plan.target, plan.plan_id))
        if state is None:
            return None
        self._line.ledger.note_state(plan, state)
        if state == State.ABANDONED and not stored.may_be_written:
            self._line.ledger.settle(plan, Abandoned(plan.plan_id, "task_ended"))
        return state

    def _asked_fate(self, stored: StoredPlan, patience: Patience) -> str | None:
        """The desk names only what was still in flight: of a plan that ended while nothing here asked, its state by
        id. None where the desk could not be asked in the time that is left."""
        plan = stored.plan
        if patience.left == 0:
            return None
        try:
            found = waiting.ask_state(self._line, plan, patience)
        except DeskError as error:
            if error.status == 404 and stored.state == FEEDING:
                return FEEDING  # it never arrived, and nothing sends it any more
            telling.warn(f"The desk does not say what became of plan {plan.plan_id}: {error}")
            return State.UNKNOWN.value
        return None if found is None else self._line.ledger.get_plan(plan).state

    def _tell(self, plan: Plan, outcome: Outcome) -> Outcome:
        """The outcome, noted as told: an end that is told again is a replay. A cancelled call tells nobody."""
        stopping.check()
        if isinstance(outcome, Ended):
            self._line.ledger.note_told(plan)
        return outcome

    def _stored(self) -> list[StoredPlan]:
        return self._line.ledger.find_plans(self.task_id)

    def _own(self, plan: Plan) -> StoredPlan:
        if plan.task_id != self.task_id:
            raise ForeignPlan(f"Plan {plan.plan_id} belongs to task {plan.task_id}, not to {self.task_id}.")
        try:
            stored = self._line.ledger.get_plan(plan)
        except LookupError:
            raise ForeignPlan(f"Plan {plan.plan_id} is not in this store.") from None
        same = (plan.operation, plan.input_fingerprint, plan.inputs_json, plan.actions_json)
        if same != (
            stored.plan.operation,
            stored.plan.input_fingerprint,
            stored.plan.inputs_json,
            stored.plan.actions_json,
        ):
            raise ForeignPlan(f"This is not plan {plan.plan_id} as it was made.")
        return stored

    def _find_same(self, request: Request) -> Plan | None:
        if known := planning.find_same(self._line, request):
            return known
        if self._line.ledger.is_ended(self.task_id):
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


def checked_task_id(task_id: str) -> str:
    """The task id. ValueError where it is none."""
    if not is_identifier(task_id):
        raise ValueError("A task id is 1 to 128 of letters, digits, _ . : - and starts with a letter or digit.")
    return task_id


def note_read(reads: list[Evidence], tool: str, note: str | None, url: str | None) -> Evidence:
    """Adds a piece of evidence to what was read. Refuses an address that is not https, and what is not JSON text."""
    if url is not None and not url.startswith("https://"):
        raise ValueError("The address of a piece of evidence must be https.")
    json_text.freeze([tool, note, url])
    piece = Evidence(tool, note, url)
    reads.append(piece)
    return piece


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
