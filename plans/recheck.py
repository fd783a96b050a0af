"""What has moved since the dry run, read for whoever looks at a pending plan before approving. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from plans import clock, vault
from plans.bulkhead import AT_ONCE, place_at
from plans.commit import address, remote_target
from plans.confirm import difference_of
from plans.errors import Sentence, TargetBusy
from plans.models import Plan
from plans.states import State
from plans.targets import operations
from plans.targets.base import Change


@dataclass(frozen=True, slots=True)
class Recheck:
    """What was found at `at`. `was_read` False: nothing could be read, and `sentence` says why.

    `moved` names each field that differs from what was planned, values as JSON text. `read_count` is how many values
    were compared. An approval reads everything once more, so this is a warning and never the decision.
    """

    at: datetime
    was_read: bool
    moved: tuple[Change, ...]
    read_count: int
    sentence: str


def recheck_plan(plan: Plan) -> Recheck | None:
    """Read a pending plan's inputs (hosted) or ask its target (remote). None for plans that are not pending.

    Locks nothing and holds no transaction while a target is asked. May be repeated.
    """
    if plan.state != State.PENDING.value or plan.token_sealed is None:
        return None
    return _recheck_hosted(plan) if plan.is_hosted else _recheck_remote(plan)


def _recheck_hosted(plan: Plan) -> Recheck:
    operation = operations.get_operation(plan.operation)
    at = clock.now()
    if operation is None:
        return Recheck(at, False, (), 0, Sentence("The operation is not registered any more."))
    planned: dict[str, Any] = msgspec.json.decode(plan.planned_state or "{}")
    try:
        with operations.guarded(plan.operation, "its inputs were read again"):
            current = operation.read(msgspec.json.decode(plan.inputs, type=operation.Inputs), lock=False)
            moved = _moved(operations.changed_fields(planned, current))
    except operations.OperationFailed as failed:
        return Recheck(at, False, (), 0, Sentence("The operation failed: %(name)s.", name=failed.name))
    count = sum(1 if fields is None else len(fields) for fields in planned.values())
    return Recheck(at, True, moved, count, "")


def _moved(rows: Sequence[dict[str, Any]]) -> tuple[Change, ...]:
    return tuple(
        Change(str(row["target"]), str(row["field"]), operations.dump(row["planned"]), operations.dump(row["current"]))
        for row in rows
    )


def _recheck_remote(plan: Plan) -> Recheck:
    try:
        with place_at(plan.target_id, patience=AT_ONCE):
            reply = remote_target().state(address(plan), plan_id=plan.plan_id, token=vault.open_token(plan))
    except TargetBusy as error:
        return Recheck(
            clock.now(), False, (), 0, Sentence("The target was not asked. %(detail)s", detail=error.sentence)
        )
    at = clock.now()
    if reply.state is None:
        asked = Sentence("The target was asked. %(detail)s", detail=Sentence(reply.detail))
        why = Sentence("The target does not know this plan.") if reply.is_missing else asked
        return Recheck(at, False, (), 0, why)
    if reply.state != State.PENDING.value:
        return Recheck(
            at,
            True,
            reply.changes,
            0,
            Sentence("The target says that this plan is %(state)s.", state=Sentence(reply.state)),
        )
    difference = difference_of(plan, reply)
    otherwise = Sentence("The agent told otherwise than the target: %(difference)s.", difference=difference)
    sentence = "" if difference is None else otherwise
    return Recheck(at, True, reply.changes, 0, sentence)
