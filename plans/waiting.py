"""Waiting for a plan's end: who waits, for how long, how many at once, and how the event loop is asked to do it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import connection, transaction

from plans.errors import TooMany
from plans.freshness import bring_up_to_date
from plans.models import Agent, Plan, Wait
from plans.states import ENDS, State

AT_ONCE: Final = 20
"""Waits of one agent at the same time (CONTRACT 5.3), counted in the database: the same on any number of processes."""

LOOK_EVERY: Final = 0.25  # seconds

HOLD: Final = "plandesk.hold"
"""Where a request's environment has the `Hold` of a server with an event loop; absent on a plain WSGI server."""

# A process that dies leaves its rows behind: they count no longer than this beyond the wait's own end.
_GRACE: Final = 5  # seconds
_LOCK_SPACE: Final = 0x77616974  # "wait": keeps our advisory locks from anybody else's


@dataclass(slots=True)
class Hold:
    """How a view asks the event loop to hold its answer: without a thread, until something happened.

    `plan_pk`: the answer is not final, look again when that plan ended or `seconds` have passed. `wait_pk` is the row
    that counts this wait; it stays from look to look. `listens`: keep the answer open and send hints of what changes
    in the inbox, and of `plans`, by their pk. `left` is called, in a thread, when a listener's stream has ended.
    """

    plan_pk: int | None = None
    seconds: int = 0
    wait_pk: int | None = None
    listens: bool = False
    plans: Mapping[int, str] = field(default_factory=dict)
    left: Callable[[], None] | None = None


def wait_for_end(plan: Plan, *, agent: Agent, seconds: int, environ: Mapping[str, Any]) -> Plan:
    """The plan once it has ended or the seconds have passed. Raises `TooMany` where the agent waits too often already.

    On a server with an event loop this returns at once, and the loop calls the view again; elsewhere it sleeps here,
    and holds a thread.
    """
    hold: Hold | None = environ.get(HOLD)
    if hold is not None:
        if hold.wait_pk is None:
            hold.wait_pk = begin_wait(agent, seconds)
        hold.plan_pk, hold.seconds = plan.pk, seconds
        return plan
    until = time.monotonic() + seconds
    wait_pk = begin_wait(agent, seconds)
    try:
        while State(plan.state) not in ENDS and time.monotonic() < until:
            time.sleep(LOOK_EVERY)
            rows = Plan.objects.select_related("agent", "target", "task", "policy", "replaced_by")
            plan = bring_up_to_date(rows.get(pk=plan.pk))
    finally:
        end_wait(wait_pk)
    return plan


@transaction.atomic(durable=True)
def begin_wait(agent: Agent, seconds: int) -> int:
    """Count one more wait of an agent. Raises `TooMany` for the twenty-first; rows whose time is up do not count.

    The lock lasts for this short transaction, so the count is exact, also behind a pool that shares connections.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK_SPACE, agent.pk])
        cursor.execute(
            "DELETE FROM plans_wait WHERE agent_id = %s AND ends_at <= clock_timestamp()",
            [agent.pk],
        )
        cursor.execute(
            """
            INSERT INTO plans_wait (agent_id, ends_at)
            SELECT %s, clock_timestamp() + make_interval(secs => %s)
            WHERE (SELECT count(*) FROM plans_wait WHERE agent_id = %s) < %s
            RETURNING id
            """,
            [agent.pk, seconds + _GRACE, agent.pk, AT_ONCE],
        )
        row = cursor.fetchone()
    if row is None:
        raise TooMany(f"At most {AT_ONCE} requests of an agent wait at once.", retry_after_seconds=5)
    return int(row[0])


def end_wait(wait_pk: int) -> None:
    """Stop counting a wait. May be repeated."""
    Wait.objects.filter(pk=wait_pk).delete()


def find_ended(plan_pks: Sequence[int]) -> list[int]:
    """Which of these plans have ended, or end as soon as somebody looks because their time is up. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id FROM plans_plan
            WHERE id = ANY(%s) AND (state = ANY(%s) OR (state = 'pending' AND expires_at <= clock_timestamp()))
            """,
            [list(plan_pks), sorted(state.value for state in ENDS)],
        )
        return [pk for (pk,) in cursor.fetchall()]
