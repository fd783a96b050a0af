"""Facets: of which kinds, agents, targets, operations and actors the events of a search are, and how many each."""

from dataclasses import dataclass
from typing import Final

from audit.filters import Filters
from audit.queries import COUNT_CAP
from audit.windows import fetch, patience, window

DIMENSIONS: Final = ("kind", "agent", "target", "operation", "actor")
SHOWN: Final = 6
"""Values of a dimension, the most frequent first."""

_COLUMNS: Final = "e.kind, e.agent, e.target, e.operation, e.actor_type, e.actor_id"
_COUNT: Final = """
WITH seen AS MATERIALIZED ({window}),
named AS (SELECT kind, agent, target, operation, actor_type || ':' || actor_id AS actor FROM seen)
SELECT grouping(kind, agent, target, operation, actor), coalesce(kind, agent, target, operation, actor), count(*)
FROM named GROUP BY GROUPING SETS ((kind), (agent), (target), (operation), (actor), ()) ORDER BY 3 DESC, 2
"""
# grouping() has a 1 for each column that a row is not grouped by.
_DIMENSION: Final = {0b11111 ^ (1 << (4 - place)): name for place, name in enumerate(DIMENSIONS)}


@dataclass(frozen=True, slots=True)
class Facet:
    """One value, and how many events have it: exactly, or at least so many (Facets.is_exact)."""

    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values by dimension. `seen` events were counted: all that match, or (not `is_exact`) the newest of them."""

    values: dict[str, list[Facet]]
    more: dict[str, int]
    """How many values of a dimension are not among those given."""
    seen: int
    is_exact: bool


def count_facets(filters: Filters) -> Facets:
    """Facets of the newest COUNT_CAP events that match. Raises TakesTooLongError."""
    with patience():
        newest = window(filters, _COLUMNS, COUNT_CAP + 1)
        rows = fetch(_COUNT.format(window=newest.statement), newest.parameters)
    found: dict[str, list[Facet]] = {name: [] for name in DIMENSIONS}
    seen = 0
    for grouped, value, count in rows:
        if grouped == 0b11111:
            seen = count
        elif value is not None:
            found[_DIMENSION[grouped]].append(Facet(value, min(count, COUNT_CAP)))
    return Facets(
        values={name: values[:SHOWN] for name, values in found.items()},
        more={name: len(values) - SHOWN for name, values in found.items() if len(values) > SHOWN},
        seen=min(seen, COUNT_CAP),
        is_exact=seen <= COUNT_CAP and not newest.is_cut,
    )
