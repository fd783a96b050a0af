"""The read side for people, in lists: the inbox, what is unknown, and every plan there ever was."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from plans.ownership import owned_sql

PAGE: Final = 50
"""Rows of a page of a list."""

COUNT_CAP: Final = 99
"""Counts in menus and titles are exact up to this and then say "99+": nobody reads more, and counting costs."""

OVERDUE_AFTER: Final = timedelta(seconds=45)
"""A claim older than this is shown as unknown, whether or not a sweep has said so yet (CONTRACT section 2)."""

_CONTRADICTED_FOR: Final = "7 days"

# A row's facts are cut from `actions` by the database for the rows of one page only: the CTE limits first.
_ROW = f"""
SELECT p.id, p.plan_id, a.name, t.name, p.operation, p.state, p.created_at, p.received_at, p.expires_at,
       p.state_changed_at, coalesce(p.unknown_since, p.claimed_at), p.approvals_required, p.mark_count,
       a.owner_id = %(person)s OR {owned_sql("p", "%(person)s")},
       x.op, x.target, x.field, x.total, cardinality(p.action_targets),
       x.creates, x.updates, x.deletes, x.is_final, coalesce(y.given, 0), coalesce(y.has_mine, false),
       coalesce(b.reason, '')
FROM page p
JOIN plans_agent a ON a.id = p.agent_id
JOIN plans_target t ON t.id = p.target_id
LEFT JOIN plans_abandonment b ON b.plan_id = p.id
CROSS JOIN LATERAL (
    SELECT p.actions::json -> 0 ->> 'op' AS op, p.actions::json -> 0 ->> 'target' AS target,
           p.actions::json -> 0 ->> 'field' AS field, count(*) AS total,
           count(*) FILTER (WHERE e ->> 'op' NOT IN ('update', 'delete')) AS creates,
           count(*) FILTER (WHERE e ->> 'op' = 'update') AS updates,
           count(*) FILTER (WHERE e ->> 'op' = 'delete') AS deletes,
           bool_or(e ->> 'reversible' IS NOT DISTINCT FROM 'false') AS is_final
    FROM json_array_elements(p.actions::json) e
) x
LEFT JOIN LATERAL (
    SELECT count(*) AS given, bool_or(v.reviewer_id = %(person)s) AS has_mine
    FROM plans_approval v WHERE v.plan_id = p.id AND v.voided_at IS NULL
) y ON true
"""
_COLUMNS = """q.id, q.plan_id, q.agent_id, q.target_id, q.operation, q.state, q.created_at, q.received_at, q.expires_at,
    q.state_changed_at, q.unknown_since, q.claimed_at,
    q.approvals_required, q.mark_count, q.actions, q.action_targets"""


def _pending(where: str) -> str:
    return f"""
WITH page AS (
    SELECT {_COLUMNS} FROM plans_plan q
    WHERE q.state = 'pending' AND q.approvals_required > 0 AND (q.expires_at, q.id) > (%(at)s, %(pk)s) AND {where}
    ORDER BY q.expires_at, q.id LIMIT %(limit)s
) {_ROW} ORDER BY p.expires_at, p.id"""


def _unknown(where: str) -> str:
    return f"""
WITH page AS (
    SELECT {_COLUMNS} FROM plans_plan q
    WHERE (q.state = 'unknown' OR (q.state = 'committing' AND q.claimed_at < clock_timestamp() - %(overdue)s))
      AND {where}
    ORDER BY coalesce(q.unknown_since, q.claimed_at), q.id LIMIT %(limit)s
) {_ROW} ORDER BY coalesce(p.unknown_since, p.claimed_at), p.id"""


_PENDING = _pending("true")

_CONTRADICTED = f"""
WITH page AS (
    SELECT {_COLUMNS} FROM plans_plan q
    JOIN plans_agent qa ON qa.id = q.agent_id JOIN plans_target qt ON qt.id = q.target_id
    WHERE (qa.name, qt.name, q.plan_id) IN (
        SELECT v.agent, v.target, v.plan_id FROM audit_event v
        WHERE v.kind = 'commit.contradicted' AND v.at > clock_timestamp() - interval '{_CONTRADICTED_FOR}'
    )
    ORDER BY q.state_changed_at DESC, q.id DESC LIMIT %(limit)s
) {_ROW} ORDER BY p.state_changed_at DESC, p.id DESC"""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan in a list. `op`, `plan_target` and `field` are its first action's; counts are of all its actions."""

    pk: int
    plan_id: str
    agent: str
    target: str
    operation: str
    state: str
    created_at: datetime
    received_at: datetime
    expires_at: datetime
    state_changed_at: datetime
    unknown_since: datetime | None
    approvals_required: int
    mark_count: int
    is_own: bool
    op: str
    record: str
    field: str | None
    action_count: int
    record_count: int
    create_count: int
    update_count: int
    delete_count: int
    is_final: bool
    approvals_given: int
    has_approved: bool
    abandon_reason: str


@dataclass(frozen=True, slots=True)
class Inbox:
    """What needs somebody. `next_key` continues the pending plans; `newest` is what "new" is measured from."""

    now: datetime
    unknown: list[PlanRow]
    contradicted: list[PlanRow]
    pending: list[PlanRow]
    next_key: tuple[datetime, int] | None
    newest: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Plans that wait for this person and plans whose outcome is not known; at most COUNT_CAP + 1 each."""

    to_decide: int
    unknown: int


def _rows(statement: str, person: Any, **parameters: Any) -> list[PlanRow]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"person": person.pk, **parameters})
        return [PlanRow(*row) for row in cursor.fetchall()]


def get_now_and_newest() -> tuple[datetime, int]:
    """The database's clock, and the newest plan's key."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp(), coalesce((SELECT max(id) FROM plans_plan), 0)")
        now, newest = cursor.fetchone()
    return now, newest


def find_inbox(
    person: Any, *, after: tuple[datetime, int] | None = None, limit: int = PAGE, only: "HistoryFilters | None" = None
) -> Inbox:
    """Unknown and contradicted plans, then the plans that wait, soonest to expire first. Expired ones are left out.

    `after` continues a page; only the first page holds what is not pending. `only` narrows what waits and what is
    unknown; what was contradicted is always there. Reads nothing but the rows it shows.
    """
    now, newest = get_now_and_newest()
    at, pk = after or (now, 0)
    where, values = only.conditions() if only else ("true", {})
    rows = _rows(_pending(where), person, at=max(at, now), pk=pk, limit=limit + 1, **values)
    more = len(rows) > limit
    rows = rows[:limit]
    return Inbox(
        now=now,
        unknown=find_unknown(person, only=only) if after is None else [],
        contradicted=_rows(_CONTRADICTED, person, limit=PAGE) if after is None else [],
        pending=rows,
        next_key=(rows[-1].expires_at, rows[-1].pk) if more else None,
        newest=newest,
    )


def find_unknown(person: Any, *, limit: int = PAGE, only: "HistoryFilters | None" = None) -> list[PlanRow]:
    """Plans that may have been written and gave no trustworthy answer, the longest unknown first."""
    where, values = only.conditions() if only else ("true", {})
    return _rows(_unknown(where), person, overdue=OVERDUE_AFTER, limit=limit, **values)


_TO_DECIDE = f"""
    SELECT 1 FROM plans_plan p JOIN plans_agent a ON a.id = p.agent_id
    WHERE p.state = 'pending' AND p.approvals_required > 0 AND p.expires_at > clock_timestamp()
      AND a.owner_id <> %(person)s AND NOT {owned_sql("p", "%(person)s")} AND p.id > %(since)s
      AND NOT EXISTS (SELECT 1 FROM plans_approval v
                      WHERE v.plan_id = p.id AND v.reviewer_id = %(person)s AND v.voided_at IS NULL)
    LIMIT %(cap)s"""

_DOUBTFUL = """
    SELECT 1 FROM plans_plan WHERE state = 'unknown'
        OR (state = 'committing' AND claimed_at < clock_timestamp() - %(overdue)s) LIMIT %(cap)s"""


def count_waiting(person: Any, *, since: int = 0) -> Counts:
    """What waits for this person, for the menu and the title. With `since`, only plans newer than that key."""
    parameters: dict[str, Any] = {"person": person.pk, "since": since, "cap": COUNT_CAP + 1, "overdue": OVERDUE_AFTER}
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT (SELECT count(*) FROM ({_TO_DECIDE}) d),
                (SELECT count(*) FROM ({_DOUBTFUL}) u)""",
            parameters,
        )
        to_decide, unknown = cursor.fetchone()
    return Counts(to_decide if person.is_reviewer else 0, unknown)


UNASKED_LOOKED_AT: Final = 2_000
"""So many of the newest plans are looked at, at most, to say how many were written without asking anybody."""


def count_unasked(now: datetime, *, within: timedelta = timedelta(hours=24)) -> int:
    """How many of the newest plans were written within this time although nobody had to approve them."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT count(*) FROM (
                SELECT state, approvals_required FROM plans_plan WHERE received_at > %s
                ORDER BY received_at DESC, id DESC LIMIT %s
            ) n WHERE n.state = 'committed' AND n.approvals_required = 0""",
            [now - within, UNASKED_LOOKED_AT],
        )
        (count,) = cursor.fetchone()
    return int(count)


_NEXT = f"""
    SELECT a.name, t.name, p.plan_id
    FROM plans_plan p JOIN plans_agent a ON a.id = p.agent_id JOIN plans_target t ON t.id = p.target_id
    WHERE p.state = 'pending' AND p.approvals_required > 0 AND p.expires_at > %(now)s AND p.id <> %(but)s
      AND a.owner_id <> %(person)s AND NOT {owned_sql("p", "%(person)s")}
      AND NOT EXISTS (SELECT 1 FROM plans_approval v
                      WHERE v.plan_id = p.id AND v.reviewer_id = %(person)s AND v.voided_at IS NULL)
    ORDER BY p.expires_at, p.id LIMIT 1"""


def find_next_waiting(person: Any, *, but: int, now: datetime) -> tuple[str, str, str] | None:
    """Agent, target and id of the plan that is most urgent for this person, `but` one; None where none waits."""
    if not person.is_reviewer:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, {"person": person.pk, "but": but, "now": now})
        found: tuple[str, str, str] | None = cursor.fetchone()
    return found


# --- every plan -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryFilters:
    """What to list; what is empty asks for everything. `text` is a plan id, an intent, a task or a record's name."""

    state: str = ""
    reason: str = ""
    agent: str = ""
    target: str = ""
    operation: str = ""
    text: str = ""
    since: datetime | None = None  # received at or after
    until: datetime | None = None  # received before
    decided_by: int | None = None  # the key of somebody who approved or rejected

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """SQL over `q`, and its parameters."""
        parts = ["q.agent_id = (SELECT id FROM plans_agent WHERE name = %(agent)s)"] if self.agent else []
        if self.target:
            parts.append("q.target_id = (SELECT id FROM plans_target WHERE name = %(target)s)")
        if self.operation:
            parts.append("q.operation = %(operation)s")
        if self.state:
            parts.append("q.state = %(state)s")
        if self.reason:
            parts.append("EXISTS (SELECT 1 FROM plans_abandonment r WHERE r.plan_id = q.id AND r.reason = %(reason)s)")
        if self.text:
            parts.append(
                # Each of these has an index of its own, which a hashed subquery would not use.
                "(q.plan_id = %(text)s OR q.intent = %(text)s OR q.action_targets @> ARRAY[%(text)s]::text[]"
                " OR q.task_id = ANY (ARRAY(SELECT id FROM plans_task WHERE task_id = %(text)s)))"
            )
        if self.since is not None:
            parts.append("q.received_at >= %(since)s")
        if self.until is not None:
            parts.append("q.received_at < %(until)s")
        if self.decided_by is not None:
            parts.append(
                "q.id IN (SELECT plan_id FROM plans_approval WHERE reviewer_id = %(decided_by)s"
                " UNION ALL SELECT plan_id FROM plans_rejection WHERE reviewer_id = %(decided_by)s)"
            )
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return " AND ".join(["true", *parts]), values


@dataclass(frozen=True, slots=True)
class History:
    """A page of plans, the newest first, and the key that continues it."""

    now: datetime
    rows: list[PlanRow]
    next_key: tuple[datetime, int] | None


def find_history(
    person: Any, filters: HistoryFilters, *, before: tuple[datetime, int] | None = None, limit: int = PAGE
) -> History:
    """Every plan there ever was, newest receipt first, by key. Plans are never deleted, so a link to a page stays."""
    now, _newest = get_now_and_newest()
    where, values = filters.conditions()
    if before is not None:
        where += " AND (q.received_at, q.id) < (%(at)s, %(pk)s)"
        values |= {"at": before[0], "pk": before[1]}
    statement = f"""
        WITH page AS (
            SELECT {_COLUMNS} FROM plans_plan q WHERE {where}
            ORDER BY q.received_at DESC, q.id DESC LIMIT %(limit)s
        ) {_ROW} ORDER BY p.received_at DESC, p.id DESC"""
    rows = _rows(statement, person, limit=limit + 1, **values)
    more = len(rows) > limit
    rows = rows[:limit]
    return History(now, rows, (rows[-1].received_at, rows[-1].pk) if more else None)


def find_states(person: Any, pks: Sequence[int]) -> list[PlanRow]:
    """The rows of a list as they stand now for this person, to tell those that are no longer as they were shown."""
    statement = f"WITH page AS (SELECT {_COLUMNS} FROM plans_plan q WHERE q.id = ANY(%(pks)s)) {_ROW}"
    return _rows(statement, person, pks=list(pks))
