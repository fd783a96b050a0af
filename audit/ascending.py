"""Reading on, oldest first, by an event's place in the tree: nothing lost and nothing twice while writers are slow.

An event's time says when it was written, not when its transaction committed: a reader who asks for what is later than
its last event loses for ever what a slow transaction commits afterwards. Places are given behind the commit, by one
at a time, without gaps: whatever comes later has a higher place. So a cursor is a place, and the next page is what
matches from there on.

The first reading of a filter would walk the whole log by place to find a few events. It goes by time instead, through
the filter's own index, over the events that had a place when it began; then on by place.
"""

from collections.abc import Sequence
from typing import Final

from audit.cursors import ByIndex
from audit.filters import FilterError, Search
from audit.placed import Row, find_placed
from audit.proofs import ask_django, read_size
from audit.words import are_indexed, find_up

WIDEST_STEP: Final = 8192
_BETWEEN: Final = "SELECT index, at, event_id FROM audit_sequence WHERE index >= %s AND index < %s"
RESTORED: Final = (
    "The database was restored or replaced since the cursor was given. Search again without it; from= says since when,"
    " and ids tell what you have."
)


def read_place(size: int) -> ByIndex:
    """The cursor behind the first `size` places."""
    rows = ask_django("SELECT event_id FROM audit_sequence WHERE index = %s", [size - 1])
    return ByIndex(size, rows[0][0] if rows else None)


def check_place(cursor: ByIndex) -> None:
    """Refuses a cursor whose last event has another place now (FilterError): something would be lost in silence."""
    if cursor.index and read_place(cursor.index) != cursor:
        raise FilterError(RESTORED)


def follow(search: Search, cursor: ByIndex, columns: str) -> tuple[Sequence[Row], ByIndex]:
    """The events that match from the cursor's place on, `search.limit` at most, and the cursor behind them."""
    check_place(cursor)
    size, start, step = read_size(), cursor.index, search.limit + 1
    found: list[tuple[int, Row]] = []
    if are_indexed(search.filters.words):
        found, start = find_up(search.filters, start, size, search.limit, columns), size
    while start < size and len(found) <= search.limit:
        stop = min(start + step, size)
        placed = ask_django(_BETWEEN, [start, stop])
        found += find_placed(search.filters, columns, placed)
        start, step = stop, min(step * 2, WIDEST_STEP)
    rows = [row for _, row in found[: search.limit]]
    if len(found) <= search.limit:
        return rows, read_place(size)
    return rows, ByIndex(found[search.limit - 1][0] + 1, rows[-1][0])
