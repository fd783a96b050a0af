"""How many 8-kB pages a page of a search reads: every filter and every pair of them, the first page and a deep one.

Each time that a page is looked at counts, in memory or not, the upper ones of an index again for each row. Finding the
rows of a page is one statement; their payloads and places are fetched by id in two more; the count is a fourth.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from tests.benchmarks.measuring import note

LIMIT = 50
"""Events of a page, as on the auditors' page."""
DEEP = 10_000 * LIMIT
"""Events before the deep page, the ten-thousandth. Where fewer match, nine tenths of those."""
DIMENSIONS = {"kind": "kind", "agent": "agent", "target": "target", "operation": "operation", "actor": "actor_id"}
BUSY = 8
"""Of each dimension the most frequent values, among whose pairs the worst are looked for."""
TIMES = 3
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "


@dataclass
class Pages:
    """Pages that statements looked at: to find the rows, to fetch their payloads and places, to count what matches."""

    found: int = 0
    fetched: int = 0
    count: int = 0
    seconds: float = 0.0
    """What the whole page took, counting included: the best of TIMES."""


@contextmanager
def counting_pages() -> Iterator[Pages]:
    """Every SELECT through Django's connection is explained with its own parameters before it runs."""
    from django.db import connection

    from audit import queries

    pages = Pages()
    is_counting = False

    def count(*asked: Any) -> Any:
        nonlocal is_counting
        before, is_counting = is_counting, True
        try:
            return count_events(*asked)
        finally:
            is_counting = before

    def explain(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith("SELECT") and "audit_" in sql:
            execute(EXPLAIN + sql, params, many, context)
            ((told,),) = context["cursor"].fetchall()
            plan = told[0]["Plan"]
            read = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            if is_counting:
                pages.count += read
            elif "audit_event" in sql or "audit_word" in sql:
                pages.found += read
            else:
                pages.fetched += read
        return execute(sql, params, many, context)

    count_events = queries.count_events
    with mock.patch.object(queries, "count_events", count), connection.execute_wrapper(explain):
        yield pages


@dataclass(frozen=True)
class Case:
    """A search: its name, and its filters by column and value."""

    name: str
    values: dict[str, str]
    since: datetime | None = None
    until: datetime | None = None


def run_pages() -> None:
    """Print pages read, and as a ratio of what the first page without filters reads."""
    ((newest,),) = _ask("SELECT max(at) FROM audit_event", [])
    month = {"since": newest - timedelta(days=70), "until": newest - timedelta(days=40)}
    start = _measure(Case("no filter", {}))[0]
    base = start.found
    note(f"pages of 8 kB, of a page of {LIMIT} events: to find them (in brackets against {base}); to fetch the rest")
    note(f"and what the page takes, against the first without filters ({start.seconds * 1000:.1f} ms)")
    worst: dict[str, tuple[float, str]] = {}
    for case in (Case("no filter", {}), Case("time", {}, **month), *_cases(month)):
        first, deep, matches = _measure(case)
        flag = " OVER 100" if max(first.found, deep.found) > 100 else ""
        note(
            f"{case.name:<38} {matches:>10,} events: first {first.found:>5,} ({first.found / base:5.1f}),"
            f" deep {deep.found:>5,} ({deep.found / base:5.1f}); {first.fetched:>4,} and {deep.fetched:>4,};"
            f" to count {first.count:,}; time {first.seconds / start.seconds:.1f} and"
            f" {deep.seconds / start.seconds:.1f}{flag}"
        )
        for what, pages in (("first", first), ("deep", deep)):
            worst[f"{what} found"] = max(worst.get(f"{what} found", (0, "")), (pages.found, case.name))
            worst[f"{what} fetched"] = max(worst.get(f"{what} fetched", (0, "")), (pages.fetched, case.name))
            ratio = round(pages.seconds / start.seconds, 1)
            worst[f"{what} time"] = max(worst.get(f"{what} time", (0, "")), (ratio, case.name))
    note("worst: " + "; ".join(f"{what} {pages:,} ({name})" for what, (pages, name) in worst.items()))


def _cases(month: dict[str, datetime]) -> Iterator[Case]:
    columns = list(DIMENSIONS.values())
    pairs = list(itertools.combinations(columns, 2))
    sets = ", ".join(f"({one}, {other})" for one, other in pairs) + "".join(f", ({column})" for column in columns)
    rows = _ask(
        f"SELECT grouping({', '.join(columns)}), {', '.join(columns)}, count(*) FROM audit_event"
        f" GROUP BY GROUPING SETS ({sets})",
        [],
    )
    seen: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
    for mask, *values, count in rows:
        # grouping() has a 1 for each column that a row is not grouped by.
        places = [place for place in range(len(columns)) if not mask >> (len(columns) - 1 - place) & 1]
        key = tuple(values[place] for place in places)
        if None not in key:
            seen.setdefault(tuple(columns[place] for place in places), {})[key] = count
    busy: dict[str, dict[str, int]] = {}
    for column in columns:
        ordered = sorted(seen[(column,)].items(), key=lambda item: -item[1])[:BUSY]
        busy[column] = {value: count for (value,), count in ordered}
        yield Case(f"{column} (frequent)", {column: next(iter(busy[column]))})
        rarest = min(seen[(column,)].items(), key=lambda item: item[1])[0][0]
        yield Case(f"{column} (rarest)", {column: rarest})
        yield Case(f"{column} and time", {column: next(iter(busy[column]))}, **month)
    ((plan_id, task_id),) = _ask(
        "SELECT plan_id, task_id FROM audit_event WHERE plan_id IS NOT NULL ORDER BY at DESC OFFSET 5000 LIMIT 1", []
    )
    for name, value in (("plan_id", plan_id), ("task_id", task_id)):
        yield Case(name, {name: value})
        for column in columns:
            yield Case(f"{name} and {column}", {name: value, column: next(iter(busy[column]))})
    for pair in pairs:
        yield from _pair(pair, seen[pair], busy)


def _pair(pair: tuple[str, str], seen: dict[tuple[str, ...], int], busy: dict[str, dict[str, int]]) -> Iterator[Case]:
    """The most frequent pair of values; the rarest of frequent values; and two frequent ones that never met."""
    one, other = pair
    name = f"{one} and {other}"

    def dense(values: tuple[str, ...]) -> int:
        return min(busy[one][values[0]], busy[other][values[1]])

    product = list(itertools.product(busy[one], busy[other]))
    met = [values for values in product if values in seen]
    if met:
        for what, values in (
            ("frequent", max(met, key=lambda values: seen[values])),
            ("rare", min(met, key=lambda values: seen[values] / dense(values))),
        ):
            yield Case(f"{name} ({what})", dict(zip(pair, values, strict=True)))
    if never := [values for values in product if values not in seen]:
        yield Case(f"{name} (never together)", dict(zip(pair, max(never, key=dense), strict=True)))


def _measure(case: Case) -> tuple[Pages, Pages, int]:
    """Pages of the first page and of a deep one, and how many events match."""
    from audit.cursors import ByTime, seal
    from audit.filters import Filters, Search
    from audit.kinds import Kind

    values = dict(case.values)
    where = [f"{column} = %s" for column in values]
    parameters: list[Any] = list(values.values())
    if case.since is not None:
        where.append("at >= %s AND at < %s")
        parameters += [case.since, case.until]
    kinds = (Kind(values.pop("kind")),) if "kind" in values else ()
    named: dict[str, Any] = {{"actor_id": "actor"}.get(column, column): value for column, value in values.items()}
    search = Search(Filters(kinds=kinds, from_at=case.since, to_at=case.until, **named), limit=LIMIT)
    first = measure_page(search)
    condition = " AND ".join(where) or "true"
    ((matches,),) = _ask(f"SELECT count(*) FROM audit_event WHERE {condition}", parameters)
    place = min(DEEP, matches * 9 // 10)
    rows = _ask(
        f"SELECT at, id FROM audit_event WHERE {condition} ORDER BY at DESC, id DESC OFFSET {place} LIMIT 1", parameters
    )
    if not rows:
        return first, Pages(), matches
    cursor = seal(ByTime(at=rows[0][0], id=rows[0][1]), search, "bench")
    return first, measure_page(replace(search, cursor=cursor)), matches


def measure_page(search: Any) -> Pages:
    """Pages and time of one page of that search."""
    from audit.queries import find_events

    with counting_pages() as pages:
        find_events(search, reader="bench")
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        find_events(search, reader="bench")
        taken.append(time.perf_counter() - began)
    pages.seconds = min(taken)
    return pages


def _ask(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
