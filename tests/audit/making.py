"""Makers of events for the tests of the log."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
from django.db import transaction

from audit.kinds import Kind
from audit.recording import Actor, Recorded, record

AGENT = Actor("agent", "refund-bot", "refund-bot")


def make_event(kind: Kind = Kind.PLAN_VIEWED, *, actor: Actor = AGENT, **members: Any) -> Recorded:
    """One event in a transaction of its own."""
    with transaction.atomic():
        return record(kind, actor=actor, **members)


def make_events_at(
    owner: psycopg.Connection[Any], at: datetime, count: int, *, step: timedelta, **columns: str
) -> None:
    """`count` bare events, `step` apart from `at` on, past the one writer: for times that a test must choose."""
    names = ["kind", "actor_type", "actor_id", *columns]
    values = ["plan.viewed", "agent", "refund-bot", *columns.values()]
    months = "SELECT audit_make_partition(month) FROM generate_series(%s::timestamptz, %s, interval '28 days') AS month"
    owner.execute(months, [at, at + count * step + timedelta(days=28)])
    owner.execute(
        f"WITH made AS (INSERT INTO audit_event (id, at, leaf, {', '.join(names)})"
        f" SELECT audit_new_id(made.at), made.at, '\\x00', {', '.join(['%s'] * len(values))}"
        " FROM generate_series(0, %s) AS n, LATERAL (SELECT %s::timestamptz + n * %s::interval) AS made (at)"
        " RETURNING at, id) INSERT INTO audit_pending (at, event_id) SELECT at, id FROM made",
        [*values, count - 1, at, step],
    )
