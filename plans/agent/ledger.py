"""What is known here of an agent's tasks and plans: every change is one transaction of the store."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from urllib.parse import quote

import msgspec

from plans.agent import outcomes
from plans.agent.errors import NotADryRun
from plans.agent.kept import PlanRow, TaskRow, Untold, is_superseded, open_attempts_of, read_row
from plans.agent.plan import FEEDING, Plan, StoredPlan
from plans.agent.sealing import Seal
from plans.agent.secrets import Secret
from plans.agent.store import Records, Store
from plans.states import State


class Ledger:
    """The tasks and plans of one agent at one desk, in a store that may hold others' too.

    A token is kept only while this agent may still have to send it: sealed, and not at all where people approve, for
    there the desk commits. It is erased when its plan or its task ends.
    """

    def __init__(self, store: Store, desk: str, seal: Seal) -> None:
        self.store = store
        self._at = f"{quote(desk, safe='')}/"
        self._seal = seal

    # tasks

    def open_task(self, task_id: str) -> int:
        """Begins one more run of the task, and returns its number, from 1."""
        with self.store.writing() as records:
            task = self._task(records, task_id)
            self._put(records, self._task_key(task_id), TaskRow(task.runs + 1, task.is_ended))
        return task.runs + 1

    def is_ended(self, task_id: str) -> bool:
        """Whether the task has ended; it never opens again."""
        with self.store.reading() as records:
            return self._task(records, task_id).is_ended

    def end_task(self, untold: Untold) -> Untold:
        """Ends the task, erases its tokens, and keeps that the desk is to be told, all at once. Returns the latter."""
        task_id = untold.task_id
        with self.store.writing() as records:
            task = self._task(records, task_id)
            self._put(records, self._task_key(task_id), TaskRow(task.runs, is_ended=True))
            for row in self._rows_of(records, task_id):
                if row.token or row.delivery:
                    self._change(records, row, token=None, delivery=None)
            return self._keep(records, untold)

    # plans

    def add_plan(
        self, plan: Plan, *, inputs_sorted: str, run: int, token: Secret,
        delivery_id: str | None = None, delivery: Secret | None = None,
    ) -> StoredPlan:  # fmt: skip
        """Keeps a new plan with its key. A fed plan begins as `feeding`, with the delivery that is repeated byte for
        byte until the desk has it. Refuses, with NotADryRun, the id of another plan of this task. In a task that ended
        meanwhile it is kept without its token: the desk has dropped it, or will."""
        key = self._key(plan)
        with self.store.writing() as records:
            is_kept = not plan.needs_approval and not self._task(records, plan.task_id).is_ended
            text = records.get(key)
            if text is not None and read_row(text, PlanRow).state != FEEDING:
                raise NotADryRun(f"There is a plan {plan.plan_id} of target {plan.target} in this task already.")
            row = PlanRow(
                number=self._next(records),
                plan=plan,
                inputs_sorted=inputs_sorted,
                state=FEEDING if delivery else State.PENDING.value,
                run=run,
                token=self._seal.seal(token, key) if is_kept else None,
                delivery_id=delivery_id,
                delivery=self._seal.seal(delivery, key) if delivery else None,
            )
            self._put(records, key, row)
            records.put(self._open_key(plan), f'"{plan.task_id}"')
        return row.stored

    def receive_plan(self, plan: Plan, state: str) -> StoredPlan:
        """The desk has the plan: its key and address are known, the delivery is no longer needed."""
        with self.store.writing() as records:
            row = self._row(records, plan)
            if row.outcome is not None:
                return row.stored
            token = None if plan.needs_approval else row.token
            return self._change(records, row, plan=plan, state=state, delivery=None, token=token).stored

    def supersede(self, newer: Plan) -> None:
        """Ends here what the desk ended when it took this plan: its agent's pending plans that it stands in for."""
        with self.store.writing() as records:
            new = self._row(records, newer)
            for row in self._open_rows(records):
                if row.number != new.number and is_superseded(row, new):
                    self._settle(records, row, outcomes.Abandoned(row.plan.plan_id, "superseded"))

    def get_plan(self, plan: Plan) -> StoredPlan:
        """The plan as it is known here. LookupError where it is not."""
        with self.store.reading() as records:
            return self._row(records, plan).stored

    def find_plans(self, task_id: str) -> list[StoredPlan]:
        """Every plan of the task, in the order they were made."""
        with self.store.reading() as records:
            return [row.stored for row in self._rows_of(records, task_id)]

    def find_same(
        self, task_id: str, target: str | None, operation: str, inputs_sorted: str, intent: str | None
    ) -> list[StoredPlan]:
        """The task's plans of the same operation, inputs and intent, in the order they were made."""
        asked = ("hosted" if target is None else "fed", operation, intent, inputs_sorted)
        with self.store.reading() as records:
            rows = self._rows_of(records, task_id)
        return [
            row.stored
            for row in rows
            if (row.plan.origin, row.plan.operation, row.plan.intent, row.inputs_sorted) == asked
            and target in (None, row.plan.target)
        ]

    def find_in_flight(self) -> list[StoredPlan]:
        """The agent's plans, of any task, that may still be written."""
        with self.store.reading() as records:
            stored = [row.stored for row in self._open_rows(records)]
        return [one for one in stored if one.is_in_flight]

    def take_up(self, plan: Plan, run: int) -> None:
        """Notes that this run was given this plan."""
        with self.store.writing() as records:
            self._change(records, self._row(records, plan), run=run)

    def token(self, plan: Plan) -> Secret | None:
        """The plan's token, while there is one that opens."""
        return self._open(plan, "token")

    def delivery(self, plan: Plan) -> Secret | None:
        """The body of the feed, while the desk does not have it."""
        return self._open(plan, "delivery")

    def begin_attempt(self, plan: Plan) -> bool:
        """On disk before the first byte of a commit: an attempt may arrive. False where the plan may not be sent now.

        A plan whose end is known, whose token is gone, or that one of the agent's writes touched, is never sent.
        """
        with self.store.writing() as records:
            row = self._row(records, plan)
            if row.outcome is not None or row.token is None or row.touched_by:
                return False
            count = open_attempts_of(row) + 1
            self._change(records, row, may_have_arrived=True, open_attempts=count, state=State.COMMITTING.value)
            return True

    def note_unsent(self, plan: Plan, *, is_every: bool = False) -> None:
        """An attempt is proven to have written nothing; or every one so far, of other processes too."""
        with self.store.writing() as records:
            row = self._row(records, plan)
            count = 0 if is_every else max(open_attempts_of(row) - 1, 0)
            if row.outcome is None:
                state = row.state if count else State.PENDING.value
                self._change(records, row, may_have_arrived=count > 0, open_attempts=count, state=state)

    def note_state(self, plan: Plan, state: str) -> None:
        """What the desk calls the plan's state; pending is unknown here while an attempt may still be on its way."""
        with self.store.writing() as records:
            row = self._row(records, plan)
            if row.outcome is None:
                is_unsure = row.may_have_arrived and state == State.PENDING
                self._change(records, row, state=State.UNKNOWN.value if is_unsure else state)

    def withdraw(self, plan: Plan) -> None:
        """Erases the token of a plan its agent no longer wants: it cannot be sent any more."""
        with self.store.writing() as records:
            self._change(records, self._row(records, plan), token=None)

    def forget_plan(self, plan: Plan) -> None:
        """Drops a plan that the desk refused to take, with its token."""
        with self.store.writing() as records:
            records.delete(self._key(plan))
            records.delete(self._open_key(plan))

    def settle(self, plan: Plan, outcome: outcomes.Ended, at: datetime | None = None) -> None:
        """Keeps how the plan ended, and erases its token. The first end that is known stays.

        A commit is a write like any other, and ends the promise of the agent's other plans, in the same transaction.
        `at`: when it was applied, by the desk's clock; plans made after that saw it already.
        """
        with self.store.writing() as records:
            self._settle(records, self._row(records, plan), outcome)
            if isinstance(outcome, outcomes.Committed):
                self._touch(records, plan.target, plan.touches, besides=plan.plan_id, made_before=at)

    def note_told(self, plan: Plan) -> None:
        """A call is about to tell how the plan ended."""
        with self.store.writing() as records:
            self._change(records, self._row(records, plan), is_told=True)

    def touch(
        self, target: str, targets: Iterable[str], *, besides: str | None = None, made_before: datetime | None = None
    ) -> list[str]:
        """Marks the agent's plans in flight, of any task, that touch one of these; returns their ids.

        A plan made after the write (`made_before`, by the desk's clock) saw it, and is not marked.
        """
        with self.store.writing() as records:
            return self._touch(records, target, targets, besides=besides, made_before=made_before)

    # what the desk is still to be told

    def keep_untold(self, untold: Untold) -> Untold:
        """Keeps that the desk is to be told this, until `drop_untold`; returns it with its key."""
        with self.store.writing() as records:
            return self._keep(records, untold)

    def drop_untold(self, untold: Untold) -> None:
        """The desk has been told, or will never listen."""
        with self.store.writing() as records:
            records.delete(untold.key)

    def give_up(self, untold: Untold) -> None:
        """The call that was to tell it has stopped trying: anybody may."""
        with self.store.writing() as records:
            if records.get(untold.key) is not None:
                self._put(records, untold.key, msgspec.structs.replace(untold, is_given_up=True))

    def find_untold(self, *, before: str) -> list[Untold]:
        """What nobody is trying to tell any more, oldest first: given up, or left by a process killed before."""
        with self.store.reading() as records:
            found = [read_row(text, Untold) for _, text in records.find(f"{self._at}untold/")]
        return [untold for untold in found if untold.is_given_up or untold.at < before]

    # records

    def _task_key(self, task_id: str) -> str:
        return f"{self._at}tasks/{task_id}"

    def _key(self, plan: Plan) -> str:
        return f"{self._at}plans/{plan.task_id}/{plan.target}/{plan.plan_id}"

    def _open_key(self, plan: Plan) -> str:
        return f"{self._at}open/{plan.target}/{plan.plan_id}/{plan.task_id}"

    def _task(self, records: Records, task_id: str) -> TaskRow:
        text = records.get(self._task_key(task_id))
        return read_row(text, TaskRow) if text is not None else TaskRow()

    def _row(self, records: Records, plan: Plan) -> PlanRow:
        text = records.get(self._key(plan))
        if text is None:
            raise LookupError(plan.plan_id)
        return read_row(text, PlanRow)

    def _rows_of(self, records: Records, task_id: str) -> list[PlanRow]:
        rows = [read_row(text, PlanRow) for _, text in records.find(f"{self._at}plans/{task_id}/")]
        return sorted(rows, key=lambda row: row.number)

    def _open_rows(self, records: Records) -> list[PlanRow]:
        """The agent's plans whose end is not known here, of any task, in the order they were made."""
        rows = []
        for key, _ in records.find(f"{self._at}open/"):
            target, plan_id, task_id = key.removeprefix(f"{self._at}open/").split("/")
            text = records.get(f"{self._at}plans/{task_id}/{target}/{plan_id}")
            if text is not None:
                rows.append(read_row(text, PlanRow))
        return sorted(rows, key=lambda row: row.number)

    def _change(self, records: Records, row: PlanRow, **changes: object) -> PlanRow:
        row = msgspec.structs.replace(row, **changes)
        self._put(records, self._key(row.plan), row)
        return row

    def _touch(
        self, records: Records, target: str, targets: Iterable[str], *, besides: str | None,
        made_before: datetime | None,
    ) -> list[str]:  # fmt: skip
        written = set(targets)
        ids = []
        for row in self._open_rows(records):
            plan = row.plan
            touched = written & plan.touches if plan.target == target and plan.plan_id != besides else set()
            if touched and (made_before is None or plan.created_at <= made_before) and row.stored.is_in_flight:
                self._change(records, row, touched_by=tuple(sorted({*row.touched_by, *touched})))
                ids.append(plan.plan_id)
        return ids

    def _settle(self, records: Records, row: PlanRow, outcome: outcomes.Ended) -> None:
        if row.outcome is None:
            state, text = _STATES[type(outcome)], outcomes.to_text(outcome)
            self._change(records, row, state=state, outcome=text, token=None, delivery=None)
            records.delete(self._open_key(row.plan))

    def _keep(self, records: Records, untold: Untold) -> Untold:
        kept = msgspec.structs.replace(untold, key=f"{self._at}untold/{self._next(records):020d}")
        self._put(records, kept.key, kept)
        return kept

    def _next(self, records: Records) -> int:
        number = int(records.get(f"{self._at}count") or 0) + 1
        records.put(f"{self._at}count", str(number))
        return number

    def _open(self, plan: Plan, what: str) -> Secret | None:
        with self.store.reading() as records:
            text = records.get(self._key(plan))
        sealed = getattr(read_row(text, PlanRow), what) if text is not None else None
        return self._seal.open(sealed, self._key(plan)) if sealed else None

    def _put(self, records: Records, key: str, members: msgspec.Struct) -> None:
        records.put(key, msgspec.json.encode(members).decode())


_STATES: Final[dict[type[outcomes.Ended], str]] = {
    outcomes.Committed: State.COMMITTED.value,
    outcomes.Conflict: State.CONFLICTED.value,
    outcomes.Expired: State.ABANDONED.value,
    outcomes.Abandoned: State.ABANDONED.value,
    outcomes.Rejected: State.REJECTED.value,
    outcomes.Refused: State.REFUSED.value,
}
