"""What is kept here of an agent's tasks and plans: the shapes of the ledger's rows, and how they are read."""

from typing import TypeVar

import msgspec

from plans.agent import outcomes
from plans.agent.errors import StoreError
from plans.agent.plan import Plan, StoredPlan
from plans.states import State

T = TypeVar("T")


class Untold(msgspec.Struct, frozen=True):
    """Something the desk is still to be told."""

    task_id: str
    what: str
    path: str
    body: str
    at: str
    is_given_up: bool = False
    key: str = ""

    @property
    def is_write(self) -> bool:
        """Whether it is a write, the one of these that has a time."""
        return self.path.endswith("/writes")


class TaskRow(msgspec.Struct, frozen=True):
    runs: int = 0
    is_ended: bool = False


class PlanRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One plan as it is kept. `token` and `delivery` are sealed."""

    number: int
    plan: Plan
    inputs_sorted: str
    state: str
    run: int
    may_have_arrived: bool = False
    open_attempts: int = 0  # begun, of any process, and not proven to have written nothing
    touched_by: tuple[str, ...] = ()
    outcome: str | None = None
    is_told: bool = False
    token: str | None = None
    delivery_id: str | None = None
    delivery: str | None = None

    @property
    def stored(self) -> StoredPlan:
        return StoredPlan(
            plan=self.plan,
            state=self.state,
            may_have_arrived=self.may_have_arrived,
            touched_by=self.touched_by,
            run=self.run,
            outcome=outcomes.from_text(self.outcome) if self.outcome else None,
            is_told=self.is_told,
            delivery_id=self.delivery_id,
        )


def open_attempts_of(row: PlanRow) -> int:
    """A row of a version before the count holds whether there is one."""
    return row.open_attempts or int(row.may_have_arrived)


def is_superseded(old: PlanRow, new: PlanRow) -> bool:
    """Whether the desk ended the old plan when it took the new one (CONTRACT section 2)."""
    if old.state != State.PENDING or old.may_have_arrived:
        return False
    before, after = old.plan, new.plan
    if before.target == after.target and before.plan_id == after.replaces:
        return True
    if before.intent is not None or after.intent is not None:
        return before.intent == after.intent
    same = (before.task_id, before.target, before.operation, old.inputs_sorted)
    return same == (after.task_id, after.target, after.operation, new.inputs_sorted)


def read_row(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise StoreError(f"The store holds what this SDK did not write: {error}.") from None
