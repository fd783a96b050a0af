"""The histogram of a search: how many events when, by what they mean for a plan; each bar counted up to a cap."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from audit.filters import Filters, build_matching
from audit.kinds import Kind
from audit.queries import COUNT_CAP
from audit.windows import fetch, patience, window

BARS: Final = 60
"""At most so many, and (but for the shortest times) at least 24."""
BAR_CAP: Final = 5_000
"""A bar counts so many events at most; a search by words, those of the newest COUNT_CAP events."""

WRITTEN, ENDED, CONFLICT, UNKNOWN, OTHER = "written", "ended", "conflict", "unknown", "other"
MEANINGS: Final = (WRITTEN, ENDED, CONFLICT, UNKNOWN, OTHER)
MEANING_OF: Final = {
    Kind.COMMIT_SUCCEEDED: WRITTEN,
    Kind.PLAN_REJECTED: ENDED,
    Kind.PLAN_ABANDONED: ENDED,
    Kind.PLAN_REFUSED: ENDED,
    Kind.COMMIT_REFUSED: ENDED,
    Kind.COMMIT_CONFLICTED: CONFLICT,
    Kind.COMMIT_UNKNOWN: UNKNOWN,
}

_S, _M, _H, _D = 1, 60, 3600, 86400
WIDTHS: Final = (
    _S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S, _M, 2 * _M, 5 * _M, 10 * _M, 15 * _M, 30 * _M, _H, 2 * _H, 3 * _H,
    6 * _H, 12 * _H, _D, 2 * _D, 7 * _D, 14 * _D, 28 * _D, 56 * _D, 112 * _D, 364 * _D,
)  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Bar:
    """The events from `start` to before `end`, by meaning. `is_capped`: there are more than were counted."""

    start: datetime
    end: datetime
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEANINGS, 0))
    is_capped: bool = False

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars side by side, each `width` wide, the first and last cut where the search begins and ends."""

    bars: list[Bar]
    width: timedelta
    is_windowed: bool = False
    """A search by words, and more events than were looked through: older bars tell too little."""


def draw_histogram(filters: Filters, *, now: datetime) -> Histogram | None:
    """The histogram of what matches, up to `now` where the search has no end; None where nothing matches.

    Reads at most BARS times BAR_CAP rows. Raises TakesTooLongError.
    """
    with patience():
        edges = _find_edges(filters, now)
        if edges is None:
            return None
        bars, width = lay_out(*edges)
        is_windowed = _fill_by_window(filters, bars, width) if filters.words else _fill(filters, bars)
    return Histogram(bars, width, is_windowed)


def lay_out(since: datetime, until: datetime) -> tuple[list[Bar], timedelta]:
    """Empty bars over that time, of the smallest round width that needs no more than BARS."""
    for seconds in WIDTHS:
        first = int((since - _EPOCH).total_seconds() // seconds)
        count = -int((_EPOCH - until).total_seconds() // seconds) - first
        if count <= BARS:
            break
    width = timedelta(seconds=seconds)
    starts = [_EPOCH + (first + place) * width for place in range(max(1, min(count, BARS)))]
    return [Bar(max(start, since), min(start + width, until)) for start in starts], width


def _find_edges(filters: Filters, now: datetime) -> tuple[datetime, datetime] | None:
    since, until = filters.from_at, filters.to_at
    if since is None:
        conditions, parameters = _conditions(filters)
        ((since,),) = fetch(f"SELECT min(e.at) FROM audit_event e WHERE {conditions}", parameters)
    if since is None:
        return None
    until = until or max(now, since) + timedelta(seconds=1)
    return (since, until) if since < until else None


def _conditions(filters: Filters) -> tuple[str, list[Any]]:
    conditions, parameters = build_matching(filters)
    return " AND ".join(conditions) or "true", parameters


def _fill(filters: Filters, bars: list[Bar]) -> bool:
    conditions, parameters = _conditions(filters)
    rows = fetch(
        "SELECT bar.number, seen.kind, count(*)"
        " FROM unnest(%s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY AS bar (since, until, number)"
        f" CROSS JOIN LATERAL (SELECT e.kind FROM audit_event e WHERE e.at >= bar.since AND e.at < bar.until"
        f" AND {conditions} LIMIT {BAR_CAP + 1}) AS seen GROUP BY bar.number, seen.kind",
        [[bar.start for bar in bars], [bar.end for bar in bars], *parameters],
    )
    for number, kind, count in rows:
        bars[number - 1].counts[_meaning(kind)] += count
    for bar in bars:
        bar.is_capped = bar.total > BAR_CAP
    return False


def _fill_by_window(filters: Filters, bars: list[Bar], width: timedelta) -> bool:
    newest = window(filters, "e.kind", COUNT_CAP + 1)
    rows = fetch(newest.statement, newest.parameters)
    first = int((bars[0].start - _EPOCH) / width)
    for _, at, kind in rows:
        place = int((at - _EPOCH) / width) - first
        if 0 <= place < len(bars):
            bars[place].counts[_meaning(kind)] += 1
    return newest.is_cut


def _meaning(kind: str) -> str:
    try:
        return MEANING_OF.get(Kind(kind), OTHER)
    except ValueError:
        return OTHER
