"""What a preset is asked for beside its events: conflicts by field, who may decide since when, what was counted."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from django.conf import settings

from audit.filters import Filters
from audit.kinds import Kind
from audit.queries import COUNT_CAP
from audit.windows import fetch, patience, window

UNTOLD: Final = ""
"""The field of a conflict whose target did not say what changed."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted and not listed: `unlisted` events of `kind` from `bucket` in the minute that began then."""

    kind: str
    bucket: str
    minute: datetime
    unlisted: int


class _Change(msgspec.Struct):
    field: str | None = None


class _Conflict(msgspec.Struct):
    changed: list[_Change] = []


class _ConflictBody(msgspec.Struct):
    data: _Conflict


class _Person(msgspec.Struct):
    person: str = ""
    email: str = ""
    change: str = ""
    roles: list[str] = []
    to: list[str] = []


class _PersonBody(msgspec.Struct):
    data: _Person


@dataclass(frozen=True, slots=True)
class ByField:
    """In how many conflicts each field had moved, the most frequent first; of `seen` conflicts in all."""

    fields: list[tuple[str, int]]
    seen: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Decider:
    """Somebody who is or was a reviewer, as the log tells it: since which event, and until when."""

    person_id: str
    email: str
    since: datetime
    by: str
    event_id: str
    until: datetime | None = None


def count_conflicts_by_field(filters: Filters) -> ByField:
    """Of the newest COUNT_CAP conflicts that match; one that names a field twice counts once. TakesTooLongError."""
    asked = replace(filters, kinds=(Kind.COMMIT_CONFLICTED,), preset=None)
    with patience():
        newest = window(asked, "e.kind", COUNT_CAP + 1)
        rows = fetch(
            f"WITH seen AS MATERIALIZED ({newest.statement}) SELECT p.body FROM seen"
            " LEFT JOIN audit_payload p ON p.event_id = seen.id",
            newest.parameters,
        )
    counted: Counter[str] = Counter()
    for (body,) in rows[:COUNT_CAP]:
        changed = [] if body is None else msgspec.json.decode(body, type=_ConflictBody).data.changed
        counted.update({one.field or UNTOLD for one in changed} or {UNTOLD})
    fields = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ByField(fields, min(len(rows), COUNT_CAP), is_exact=len(rows) <= COUNT_CAP and not newest.is_cut)


def find_deciders() -> list[Decider]:
    """Every span in which somebody was a reviewer, by the log alone, oldest first. Raises TakesTooLongError.

    One whose beginning or end was erased from the log is not told rightly any more.
    """
    with patience():
        rows = fetch(
            "SELECT e.id, e.at, e.actor_id, p.body FROM audit_event e JOIN audit_payload p ON p.event_id = e.id"
            " WHERE e.kind = %s ORDER BY e.at, e.id",
            [Kind.PERSON_CHANGED.value],
        )
    open_spans: dict[str, Decider] = {}
    closed: list[Decider] = []
    for event_id, at, by, body in rows:
        told = msgspec.json.decode(body, type=_PersonBody).data
        if told.change not in ("created", "roles_changed", "disabled"):
            continue
        holds = "reviewer" in (*told.roles, *told.to)
        if holds and told.person not in open_spans:
            open_spans[told.person] = Decider(told.person, told.email, at, by, str(event_id))
        elif not holds and told.person in open_spans:
            closed.append(replace(open_spans.pop(told.person), until=at))
    return sorted([*closed, *open_spans.values()], key=lambda one: (one.since, one.person_id))


def count_unlisted(filters: Filters, *, now: datetime) -> int:
    """How many events of the search's kinds were only counted, in whole minutes of its time, whoever sent them.

    A bucket is an agent or an address, so a search that names anything else cannot tell: then 0.
    """
    narrowing = (filters.target, filters.plan_id, filters.operation, filters.task_id, filters.actor, *filters.words)
    if any(narrowing):
        return 0
    since = filters.from_at or datetime(2000, 1, 1, tzinfo=UTC)
    until = filters.to_at or now + timedelta(minutes=1)
    counted = find_counted(since=since, until=until, kinds=filters.kinds)
    return sum(one.unlisted for one in counted if filters.agent in (None, one.bucket))


def find_counted(*, since: datetime, until: datetime, kinds: Sequence[Kind] = ()) -> list[Counted]:
    """What was only counted (beyond the cap of a minute) from `since` to before `until`: newest first, 500 at most."""
    rows = fetch(
        "SELECT kind, bucket, minute, counted - %s FROM audit_counter"
        " WHERE counted > %s AND minute >= %s AND minute < %s AND (kind = ANY(%s) OR %s)"
        " ORDER BY minute DESC, kind, bucket LIMIT 500",
        [settings.EVENT_CAP_PER_MINUTE] * 2 + [since, until, [kind.value for kind in kinds], not kinds],
    )
    return [Counted(*row) for row in rows]
