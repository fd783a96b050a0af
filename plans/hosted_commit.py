"""A hosted plan is committed: re-read under lock, compared, applied and checked, in one transaction."""

import logging
from collections.abc import Sequence

import msgspec
from django.db import transaction

from plans import clock, ending
from plans.chronicle import target_actor
from plans.commit import settle_attempt, unsend
from plans.errors import CannotPlan
from plans.faultpoints import reach
from plans.models import Commit, Plan
from plans.states import Outcome
from plans.targets import operations
from plans.targets.base import Change

logger = logging.getLogger(__name__)


class _OperationGone(LookupError):
    """The desk runs without the app that the plan's operation came from."""


def apply_hosted(plan: Plan, attempt: Commit) -> None:
    """Re-read the inputs under lock, and write the plan, or end it with what moved. In the caller's transaction.

    An exception of the operation, a deadlock or a lock not had in time undoes the operation's own writes alone, puts
    the plan back to `pending` with `commit.unsent`, and leaves the attempt's trace. A lost connection undoes all.
    """
    try:
        with transaction.atomic():
            _apply_hosted(plan, attempt)
    except Exception as error:  # the operation's code is anybody's, and its writes are undone by the savepoint
        if operations.is_connection_lost(error):
            raise
        name = operations.name_of_failure(error)
        logger.error("hosted operation %s failed with %s", plan.operation, name)
        plan.refresh_from_db()
        attempt.refresh_from_db()
        gone = isinstance(error, _OperationGone)
        said = "The operation is not registered any more." if gone else f"The operation failed: {name}."
        unsend(plan, attempt, said, at=clock.now())


def _apply_hosted(plan: Plan, attempt: Commit) -> None:
    actor = target_actor(plan)
    operation = operations.get_operation(plan.operation)
    if operation is None:
        raise _OperationGone
    inputs = msgspec.json.decode(plan.inputs, type=operation.Inputs)
    current = operation.read(inputs, lock=True)
    reach("inputs-locked", plan.pk)
    at = clock.now()  # the row locks above may have been waited for
    if at >= plan.expires_at:
        settle_attempt(attempt, Outcome.EXPIRED, at)
        ending.expire(plan, at=at, actor=actor)
        return
    planned = msgspec.json.decode(plan.planned_state or "{}")
    moved = operations.changed_fields(planned, current)
    if moved:
        settle_attempt(attempt, Outcome.CONFLICTED, at)
        ending.conflict(plan, [_change(entry) for entry in moved], actor=actor, at=at)
        return
    actions = operations.decode_actions(plan.actions)
    try:
        with transaction.atomic():
            result = operation.apply(inputs, actions)
    except CannotPlan as error:
        settle_attempt(attempt, Outcome.REFUSED, at)
        ending.refuse(plan, error.detail, actor=actor, at=at)
        return
    reach("inputs-applied", plan.pk)
    _check_promise(actions, operation.read(inputs, lock=True))
    ending.commit(plan, attempt, operations.dump(result), actor=actor, at=clock.now())
    reach("end-written", plan.pk)


def _change(entry: dict[str, operations.JsonValue]) -> Change:
    planned, current = operations.dump(entry["planned"]), operations.dump(entry["current"])
    return Change(str(entry["target"]), str(entry["field"]), planned, current)


def _check_promise(actions: Sequence[operations.Action], state: operations.State) -> None:
    """What was approved is what is there: raises where a field that an action names does not hold its `to`."""
    for action in actions:
        if action.target not in state:
            continue
        record = state[action.target]
        if (record is None) is not (action.op == "delete"):
            raise AssertionError(f"{action.target} is not there as planned")
        if action.op != "update" or record is None or not isinstance(action.field, str) or action.field not in record:
            continue
        if operations.dump(record[action.field]) != operations.dump(action.to):
            raise AssertionError(f"{action.target} {action.field} does not hold what was planned")
