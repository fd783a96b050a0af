"""One plan, read by hand into Django's models, by statements put together once and prepared once a connection.

A decision reads its plan again and again; the ORM would compile the same joins each time (docs/speed.md).
"""
# ruff: noqa: S608 - statements are put together from the names of our own tables; every value is a parameter.

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.contrib.auth import get_user_model
from django.db import DEFAULT_DB_ALIAS, connection, models

from plans import clock
from plans.models import Agent, Approval, Commit, Plan, Policy, Target, TargetAddress, Task


class Reader:
    """Rows of several tables side by side, as instances of their models; the first has the others as its relations."""

    def __init__(self, **tables: type[models.Model]) -> None:
        names: list[str] = []
        self._parts: list[tuple[str, type[models.Model], list[str], slice]] = []
        start = 0
        for alias, model in tables.items():
            fields = model._meta.concrete_fields
            assert not any(hasattr(field, "from_db_value") for field in fields), model
            names += [f'{alias}."{field.column}"' for field in fields]
            self._parts.append((alias, model, [field.attname for field in fields], slice(start, start + len(fields))))
            start += len(fields)
        self.columns = ", ".join(names)
        self.width = start

    def read(self, row: Sequence[Any]) -> Any:
        """The first table's instance; relations by the names under which the tables were given."""
        first, *others = [
            (alias, model.from_db(DEFAULT_DB_ALIAS, names, row[place])) for alias, model, names, place in self._parts
        ]
        for alias, other in others:
            first[1]._state.fields_cache[alias] = other
        return first[1]


_OF_PLAN: Final = (
    "plans_plan plan JOIN plans_agent agent ON agent.id = plan.agent_id"
    " JOIN plans_target target ON target.id = plan.target_id JOIN plans_task task ON task.id = plan.task_id"
    " JOIN plans_policy policy ON policy.id = plan.policy_id"
)
_whole: Final = Reader(plan=Plan, agent=Agent, target=Target, task=Task, policy=Policy)
_GET: Final = f"SELECT {_whole.columns} FROM {_OF_PLAN} WHERE plan.id = %s"
_GET_STATE: Final = """
SELECT target.id, target.kind, plan.state FROM plans_plan plan JOIN plans_target target ON target.id = plan.target_id
WHERE plan.id = %s
"""
# The limit of the wait is set by the statement that waits: a row is locked after the conditions were looked at.
LOCK = f"{_GET} AND set_config('lock_timeout', %s, true) IS NOT NULL FOR NO KEY UPDATE OF plan"

_sent: Final = Reader(plan=Plan, target=Target, address=TargetAddress)
_GET_TO_SEND: Final = f"""
SELECT {_sent.columns}, clock_timestamp() FROM plans_plan plan JOIN plans_target target ON target.id = plan.target_id
LEFT JOIN plans_targetaddress address ON address.id = plan.address_id WHERE plan.id = %s
"""
_attempt: Final = Reader(attempt=Commit)
_ATTEMPTS: Final = f"SELECT {_attempt.columns}, clock_timestamp() FROM plans_commit attempt WHERE plan_id = %s"


def get_plan(plan_pk: int) -> Plan:
    """The plan with its agent, target, task and policy. Raises `Plan.DoesNotExist`."""
    plan: Plan = _one(_GET, [plan_pk], _whole.read)
    return plan


def get_target_and_state(plan_pk: int) -> tuple[int, str, str]:
    """The key and the kind of the plan's target, and the plan's state. Raises `Plan.DoesNotExist`."""
    found: tuple[int, str, str] = _one(_GET_STATE, [plan_pk], tuple)
    return found


def lock_plan(plan_pk: int, wait: str) -> Plan:
    """The same with the plan's row locked; `wait` is how long any lock of the transaction is waited for from here."""
    plan: Plan = _one(LOCK, [plan_pk, wait], _whole.read)
    return plan


def get_plan_to_send(plan_pk: int) -> tuple[Plan, datetime]:
    """The plan with its target and the address it was received under, and the database's clock at that moment."""

    def read(row: Sequence[Any]) -> tuple[Plan, datetime]:
        plan: Plan = _sent.read(row)
        if plan.address_id is None:
            plan._state.fields_cache["address"] = None
        else:
            plan.address._state.fields_cache["target"] = plan.target  # type: ignore[union-attr]
        return plan, clock.read(row[_sent.width])

    found: tuple[Plan, datetime] = _one(_GET_TO_SEND, [plan_pk], read)
    return found


def get_attempts(plan: Plan) -> tuple[dict[int, Commit], datetime]:
    """All attempts of a locked plan that has some, by key, and the database's clock after that lock."""
    with connection.cursor() as cursor:
        cursor.execute(_ATTEMPTS, [plan.pk])
        rows = cursor.fetchall()
    attempts = [_attempt.read(row) for row in rows]
    for attempt in attempts:
        attempt._state.fields_cache["plan"] = plan
    return {attempt.pk: attempt for attempt in attempts}, clock.read(rows[0][_attempt.width])


# --- for a page -----------------------------------------------------------------------------------------------------


@functools.cache
def _shown() -> tuple[Reader, str]:
    people = get_user_model()
    reader = Reader(plan=Plan, agent=Agent, target=Target, task=Task, policy=Policy, owner=people)
    return (
        reader,
        f"""
SELECT {reader.columns}, clock_timestamp(), EXISTS (SELECT FROM plans_plan r WHERE r.replaced_by_id = plan.id)
FROM {_OF_PLAN} JOIN {people._meta.db_table} owner ON owner.id = agent.owner_id WHERE plan.id = %s
""",
    )


class Shown(NamedTuple):
    """A plan with its agent's owner, the database's clock, and whether another plan says it was replaced by it."""

    plan: Plan
    now: datetime
    has_replaced: bool


def get_shown_plan(plan_pk: int) -> Shown:
    """What a page needs of a plan's own rows. Raises `Plan.DoesNotExist`."""
    reader, statement = _shown()

    def read(row: Sequence[Any]) -> Shown:
        plan: Plan = reader.read(row)
        plan.agent._state.fields_cache["owner"] = plan._state.fields_cache.pop("owner")
        return Shown(plan, clock.read(row[reader.width]), row[reader.width + 1])

    shown: Shown = _one(statement, [plan_pk], read)
    return shown


@functools.cache
def _approvals() -> tuple[Reader, str]:
    people = get_user_model()
    reader = Reader(approval=Approval, reviewer=people)
    return (
        reader,
        f"""
SELECT {reader.columns} FROM plans_approval approval JOIN {people._meta.db_table} reviewer
ON reviewer.id = approval.reviewer_id WHERE approval.plan_id = %s ORDER BY approval.approved_at, approval.id
""",
    )


def find_approvals(plan_pk: int) -> list[Approval]:
    """Every approval of the plan with who gave it, void ones too, the first first."""
    reader, statement = _approvals()
    return _all(statement, plan_pk, reader)


def find_attempts(plan_pk: int) -> list[Commit]:
    """Every attempt of the plan, the first first."""
    return _all(f"{_ATTEMPTS} ORDER BY number", plan_pk, _attempt)


def _all(statement: str, plan_pk: int, reader: Reader) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [plan_pk])
        return [reader.read(row) for row in cursor.fetchall()]


_PK: Final = f"SELECT plan.id FROM {_OF_PLAN} WHERE agent.name = %s AND target.name = %s AND plan.plan_id = %s"


def find_pk(agent: str, target: str, plan_id: str) -> int | None:
    """The plan's key by its public names."""
    with connection.cursor() as cursor:
        cursor.execute(_PK, [agent, target, plan_id])
        found = cursor.fetchone()
    return None if found is None else int(found[0])


def _one(statement: str, parameters: Sequence[Any], read: Callable[[Sequence[Any]], Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row = cursor.fetchone()
    if row is None:
        raise Plan.DoesNotExist
    return read(row)
