"""Row locks, taken in the order that models.py writes down, never waited for longer than the contract says."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.db import OperationalError, connection
from psycopg.errors import LockNotAvailable

from plans import plan_sql
from plans.models import Agent, Plan


class LockTimeout(Exception):
    """Somebody else held the row for the whole waiting time; this transaction has done nothing."""


def lock_plan(plan_pk: int, *, is_patient: bool = False) -> Plan:
    """The plan's row, locked until the transaction ends, with agent, target, task and policy read beside it.

    Raises `LockTimeout` after LOCK_WAIT (never where `is_patient`: for what has to be written down, however long
    somebody else holds the row), `Plan.DoesNotExist` for none. Check and read the clock after this, never before.
    """
    with still_limited():
        return plan_sql.lock_plan(plan_pk, "0ms" if is_patient else wait_text())


def lock_agent(agent_pk: int) -> Agent:
    """The agent's row, locked: intake, wishes and abandonments of one agent happen one after the other.

    Decisions do not take it, so a slow intake never holds up a commit.
    """
    with limited_wait(settings.LOCK_WAIT):
        return Agent.objects.select_for_update(no_key=True).get(pk=agent_pk)


@contextmanager
def limited_wait(wait: timedelta) -> Iterator[None]:
    """Wait for any lock at most so long from here to the transaction's end (zero: without limit).

    Raises `LockTimeout` from the block; the transaction is void then, or its savepoint is.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{int(wait.total_seconds() * 1000)}ms"])
    with still_limited():
        yield


def wait_text() -> str:
    """How long a lock is waited for at most, as PostgreSQL takes it."""
    return f"{int(settings.LOCK_WAIT.total_seconds() * 1000)}ms"


@contextmanager
def still_limited() -> Iterator[None]:
    """The same for a further lock of a transaction that has its limit from `lock_plan` or `lock_agent`."""
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise LockTimeout from error
        raise
