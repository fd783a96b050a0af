"""Hosted operations: writes that Plandesk itself plans and applies, on its own database connection."""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec
from django.db import DatabaseError, InterfaceError, connection
from psycopg.pq import TransactionStatus

logger = logging.getLogger(__name__)

JsonValue = Any
"""str, int, bool, None, list or dict of these. Never a float: a fingerprint must not depend on its spelling."""

MOST_PEOPLE: Final = 32_767
"""A plan can't be stored with more people to approve it than this, as an operation may say."""

Record = dict[str, JsonValue]
State = dict[str, Record | None]
"""Record name (`invoice/4412`) to its fields; None where the record does not exist."""


class Action(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """One change that a plan would make: `op` on `field` of `target`, from one value to another."""

    op: str
    target: str
    field: str | msgspec.UnsetType = msgspec.UNSET
    from_: JsonValue | msgspec.UnsetType = msgspec.UNSET
    to: JsonValue | msgspec.UnsetType = msgspec.UNSET
    reversible: bool | msgspec.UnsetType = msgspec.UNSET


class Operation(ABC):
    """One kind of write at a hosted target.

    The engine calls `read` and `plan` in a dry run, and at the commit `read(lock=True)`, then `apply`, then
    `read` again, all in the one transaction that also stores the result and the event. So an operation writes on
    Django's default connection and nowhere else: whatever writes elsewhere is a remote target.
    """

    name: ClassVar[str]
    target: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    Inputs: ClassVar[type[msgspec.Struct]]
    requires_intent: ClassVar[bool] = False
    """True where the operation creates or appends: without an intent a lost answer could be planned twice."""

    @abstractmethod
    def read(self, inputs: Any, *, lock: bool) -> State:
        """Everything the plan depends on, as it is now. With `lock`, rows are locked in a fixed order."""

    @abstractmethod
    def plan(self, inputs: Any, state: State) -> list[Action]:
        """The exact writes, from inputs and state alone. Raises `errors.CannotPlan` with a sentence."""

    @abstractmethod
    def apply(self, inputs: Any, actions: Sequence[Action]) -> JsonValue:
        """Write exactly `actions`; answer the result, JSON without floats. Raises to have nothing written."""

    def approvals(self, inputs: Any, actions: Sequence[Action]) -> int:
        """How many people have to approve. Zero: the agent may commit by itself."""
        return 1


_operations: dict[str, Operation] = {}


def register(operation: type[Operation]) -> type[Operation]:
    """Make an operation known by its name, which must be unique across hosted targets. May be repeated."""
    known = _operations.get(operation.name)
    if known is not None and type(known) is not operation:
        raise ValueError(f"two hosted operations are called {operation.name}")
    _operations[operation.name] = operation()
    return operation


def get_operation(name: str) -> Operation | None:
    """The hosted operation of this name, or None."""
    return _operations.get(name)


def operations() -> Iterable[Operation]:
    """All hosted operations, by name."""
    return [_operations[name] for name in sorted(_operations)]


def name_of_failure(error: Exception) -> str:
    """What is logged and said of an operation that failed: the class alone; of the database's errors, its own.

    A message or a frame of foreign code may hold what it was given.
    """
    return type(error.__cause__ if isinstance(error, DatabaseError) and error.__cause__ else error).__name__


class OperationFailed(Exception):
    """An operation's own code raised what it may not. `operation` is its name, `name` the error's class."""

    def __init__(self, operation: str, name: str) -> None:
        super().__init__(f"The operation {operation} failed: {name}.")
        self.operation, self.name = operation, name


@contextmanager
def guarded(operation: str, when: str, *, passes: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Run an operation's own code, which is anybody's: whatever it raises becomes `OperationFailed` and a line of the
    log, which know its class alone. So does an error of the database that it passed over.

    A lost connection is raised as it is, and so is what `passes`. What the code wrote is the caller's to undo.
    """
    try:
        yield
        if _is_spoiled():
            raise ValueError("an error of the database was passed over, and nothing can be read after it")
    except Exception as error:  # its code is anybody's
        if isinstance(error, passes) or is_connection_lost(error):
            raise
        name = name_of_failure(error)
        logger.error("hosted operation %s failed with %s when %s", operation, name, when)
        raise OperationFailed(operation, name) from None


def is_connection_lost(error: Exception) -> bool:
    """Whether the error says that the database is gone, which is no fault of an operation."""
    if isinstance(error, InterfaceError):
        return True
    return isinstance(error, DatabaseError) and (connection.connection is None or connection.connection.closed)


def _is_spoiled() -> bool:
    """Whether the transaction can only be rolled back."""
    if connection.needs_rollback:
        return True
    return connection.connection is not None and connection.connection.info.transaction_status == _SPOILED


_SPOILED: Final = TransactionStatus.INERROR


def people_asked(operation: Operation, inputs: Any, actions: Sequence[Action]) -> int:
    """How many people have to approve, as the operation says. Raises for what is no number that can be stored."""
    said = operation.approvals(inputs, actions)
    if not isinstance(said, int) or not 0 <= said <= MOST_PEOPLE:
        raise ValueError("no number of people")
    return int(said)


def changed_fields(planned: State, current: State) -> list[dict[str, JsonValue]]:
    """Where `current` differs from `planned`: target, field, planned and current value, in a stable order.

    `1`, `True` and `"1"` are different values. A record that came or went is one row with the field `exists`.
    """
    changed: list[dict[str, JsonValue]] = []
    for target in sorted(planned.keys() | current.keys()):
        before, after = planned.get(target), current.get(target)
        if before is None or after is None:
            if before is not after:
                changed.append(_change(target, "exists", before is not None, after is not None))
            continue
        changed += [
            _change(target, field, before.get(field), after.get(field))
            for field in sorted(before.keys() | after.keys())
            if dump(before.get(field)) != dump(after.get(field))
        ]
    return changed


def _change(target: str, field: str, planned: JsonValue, current: JsonValue) -> dict[str, JsonValue]:
    return {"target": target, "field": field, "planned": planned, "current": current}


def dump(value: JsonValue) -> str:
    """The JSON text of a value of ours; floats are refused."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)


def encode_actions(actions: Sequence[Action]) -> str:
    """The JSON text of a list of actions, members in the contract's order."""
    return msgspec.json.encode(list(actions)).decode()


def decode_actions(text: str) -> list[Action]:
    """The actions of a stored text."""
    return msgspec.json.decode(text, type=list[Action])
