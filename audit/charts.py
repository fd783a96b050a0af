"""The log in numbers for people who would rather look than read: ends, times, conflicts, expiry, haste, unknowns."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final

from audit.filters import Filters, build_conditions
from audit.kinds import Kind
from audit.outcomes import UnknownOutcomes, find_unknown_outcomes
from audit.presets import PRESETS
from audit.windows import fetch, patience

PATIENCE: Final = timedelta(seconds=8)
MAX_DAYS: Final = 92
DECISIONS: Final = 20_000
"""The newest so many decisions tell how long they took."""

WRITTEN, CONFLICT, REJECTED, REFUSED, EXPIRED, DROPPED = (
    "written", "conflict", "rejected", "refused", "expired", "dropped",
)  # fmt: skip
ENDS: Final = (WRITTEN, CONFLICT, REJECTED, REFUSED, EXPIRED, DROPPED)
_END_OF: Final = {
    Kind.COMMIT_SUCCEEDED.value: WRITTEN,
    Kind.COMMIT_CONFLICTED.value: CONFLICT,
    Kind.PLAN_REJECTED.value: REJECTED,
    Kind.COMMIT_REFUSED.value: REFUSED,
    Kind.PLAN_REFUSED.value: REFUSED,
    Kind.PLAN_EXPIRED.value: EXPIRED,
    Kind.PLAN_ABANDONED.value: DROPPED,
}
BANDS: Final = tuple(timedelta(seconds=seconds) for seconds in (3, 10, 30, 60, 300, 600, 3600, 86400))
"""Upper edges of bands of time, each including its edge; the last band has none."""


@dataclass(frozen=True, slots=True)
class Day:
    """How many plans ended how on a day (UTC)."""

    day: date
    ends: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.ends.values())


@dataclass(frozen=True, slots=True)
class Durations:
    """Lengths of time by BANDS, and their middle and the one that 9 of 10 do not pass; seconds."""

    bands: list[int]
    median: float | None
    ninth: float | None
    is_exact: bool

    @property
    def total(self) -> int:
        return sum(self.bands)


@dataclass(frozen=True, slots=True)
class Rate:
    """Of `total`, `hits`; for whom or what stands in `names`."""

    names: tuple[str, ...]
    hits: int
    total: int

    @property
    def share(self) -> float:
        return self.hits / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """Everything that the charts show, of one time."""

    days: list[Day]
    decided: Durations
    conflicts: list[Rate]
    fast: list[Rate]
    unknown: UnknownOutcomes


def read_numbers(filters: Filters) -> Numbers:
    """The numbers of what matches `filters` (from_at and to_at are given; kinds and words are not looked at).

    Refuses more than MAX_DAYS (ValueError). Raises TakesTooLongError.
    """
    if filters.from_at is None or filters.to_at is None:
        raise ValueError("Charts are drawn from one time to another.")
    if filters.to_at - filters.from_at > timedelta(days=MAX_DAYS):
        raise ValueError(f"Charts are drawn over at most {MAX_DAYS} days.")
    asked = replace(filters, kinds=(), words=(), preset=None)
    with patience(PATIENCE):
        days = _count_ends(asked)
        decided = _time_decisions(asked)
        conflicts = _rate_conflicts(asked)
        fast = _rate_fast(asked)
    return Numbers(days, decided, conflicts, fast, find_unknown_outcomes(asked))


def _where(filters: Filters, kinds: tuple[Kind, ...]) -> tuple[str, list[Any]]:
    conditions, parameters = build_conditions(filters)
    return " AND ".join(["e.kind = ANY(%s)", *conditions]), [[kind.value for kind in kinds], *parameters]


def _count_ends(filters: Filters) -> list[Day]:
    """A plan that expired has two events, of which the second ends it: it is counted by the first."""
    where, parameters = _where(filters, tuple(Kind(kind) for kind in _END_OF))
    rows = fetch(
        f"SELECT (e.at AT TIME ZONE 'UTC')::date, e.kind, count(*) FROM audit_event e WHERE {where} GROUP BY 1, 2",
        parameters,
    )
    assert filters.from_at is not None
    assert filters.to_at is not None
    first, last = filters.from_at.date(), (filters.to_at - timedelta(microseconds=1)).date()
    days = {first + timedelta(days=place): dict.fromkeys(ENDS, 0) for place in range((last - first).days + 1)}
    for day, kind, count in rows:
        days[day][_END_OF[kind]] += count
    for ends in days.values():
        ends[DROPPED] = max(ends[DROPPED] - ends[EXPIRED], 0)
    return [Day(day, ends) for day, ends in days.items()]


def _time_decisions(filters: Filters) -> Durations:
    """From a plan's receipt to its first approval or rejection."""
    where, parameters = _where(filters, (Kind.PLAN_APPROVED, Kind.PLAN_REJECTED))
    rows = fetch(
        "WITH decided AS (SELECT d.agent, d.target, d.plan_id, min(d.at) AS at FROM (SELECT e.* FROM audit_event e"
        f" WHERE {where} ORDER BY e.at DESC LIMIT {DECISIONS + 1}) AS d GROUP BY 1, 2, 3)"
        " SELECT extract(epoch FROM decided.at - received.at)::float8 FROM decided CROSS JOIN LATERAL"
        " (SELECT r.at FROM audit_event r WHERE r.plan_id = decided.plan_id AND r.agent = decided.agent"
        "  AND r.target = decided.target AND r.kind = %s AND r.at <= decided.at ORDER BY r.at DESC LIMIT 1"
        " ) AS received",
        [*parameters, Kind.PLAN_RECEIVED.value],
    )
    return durations_of(sorted(row[0] for row in rows), is_exact=len(rows) <= DECISIONS)


def durations_of(seconds: list[float], *, is_exact: bool = True) -> Durations:
    """Sorted lengths in seconds, in bands."""
    edges = [edge.total_seconds() for edge in BANDS]
    bands = [0] * (len(edges) + 1)
    for length in seconds:
        bands[next((place for place, edge in enumerate(edges) if length <= edge), len(edges))] += 1
    return Durations(bands, _quantile(seconds, 0.5), _quantile(seconds, 0.9), is_exact)


def _quantile(ordered: list[float], part: float) -> float | None:
    """The smallest length that at least that part of all do not pass."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else None


def _rate_conflicts(filters: Filters) -> list[Rate]:
    """Of the plans whose write was tried and came out, how many met a world that had moved."""
    tried = (Kind.COMMIT_SUCCEEDED, Kind.COMMIT_CONFLICTED, Kind.COMMIT_REFUSED)
    where, parameters = _where(filters, tried)
    rows = fetch(
        f"SELECT coalesce(e.operation, ''), coalesce(e.agent, ''), count(*) FILTER (WHERE e.kind = %s), count(*)"
        f" FROM audit_event e WHERE {where} GROUP BY 1, 2 ORDER BY 3 DESC, 4 DESC, 1, 2 LIMIT 50",
        [Kind.COMMIT_CONFLICTED.value, *parameters],
    )
    return [Rate((operation, agent), hits, total) for operation, agent, hits, total in rows]


def _rate_fast(filters: Filters) -> list[Rate]:
    """Per person, how many of their approvals came within 3 seconds of opening the plan."""
    where, parameters = _where(filters, (Kind.PLAN_APPROVED,))
    rows = fetch(
        "SELECT e.actor_id, max(p.body::json ->> 'actor_name') FILTER (WHERE strpos(p.body, '\\u') = 0),"
        f" count(*) FILTER (WHERE {PRESETS['fast-approvals'].condition}), count(*)"
        f" FROM audit_event e LEFT JOIN audit_payload p ON p.event_id = e.id WHERE {where}"
        " GROUP BY 1 ORDER BY 3 DESC, 4 DESC, 1 LIMIT 50",
        parameters,
    )
    return [Rate((name or actor, actor), hits, total) for actor, name, hits, total in rows]


def span_of(now: datetime, days: int) -> tuple[datetime, datetime]:
    """The last `days` days in whole days of UTC, today included."""
    until = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return until - timedelta(days=days), until
