"""The read side: pages of events by key, one event, and a plan's story."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from audit.ascending import check_place, follow, read_place
from audit.canonical import Payload
from audit.cursors import ByIndex, ByTime, Cursor, seal, unseal
from audit.filters import FilterError, Filters, Search, build_conditions, build_matching, build_words
from audit.kinds import Kind
from audit.proofs import advance, read_indexes, read_size
from audit.recording import Actor, record
from audit.words import TimeIsUpError, are_few_beyond, are_indexed, count_newest, find_down, limited

COUNT_CAP: Final = 10_000
STORY_CAP: Final = 2_000
# Most pages, and most counts that end at COUNT_CAP, are full of events of so short a time.
RECENT: Final = timedelta(days=40)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
WORDS_TIMEOUT: Final = timedelta(seconds=20)
_NOT_IN_TIME: Final = "The words were not found in time. Narrow the search, by time for instance."

COLUMNS: Final = (
    "e.id, e.at, e.kind, e.actor_type, e.actor_id, e.on_behalf_of, e.agent, e.target, e.plan_id, e.plan_seq, "
    "e.operation, e.task_id, e.request_id, e.leaf_hash"
)


Rows = Sequence[tuple[Any, ...]]


class SearchTooLongError(Exception):
    """The words asked for are so rare, or the log so long, that the answer was not found in time."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event to show or send. `data` is JSON text, spelled as stored; None, like the actor's name, once erased."""

    id: str
    at: datetime
    kind: str
    actor_type: str
    actor_id: str
    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    plan_seq: int | None
    operation: str | None
    task_id: str | None
    request_id: str | None
    leaf_hash: bytes
    actor_name: str | None
    data: str | None
    is_erased: bool
    index: int | None
    """Its place in the tree; None for the seconds until the sequencer has given one."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many events match: exactly, or at least so many."""

    value: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a search. `next_cursor` is None at the end of a descending reading, and never of an ascending one."""

    events: list[EventRow]
    next_cursor: str | None
    count: Count


@dataclass(frozen=True, slots=True)
class Story:
    """A plan's events in the plan's own order. `is_cut`: there are more than STORY_CAP, and the rest is not here."""

    events: list[EventRow]
    is_cut: bool


class _Body(msgspec.Struct):
    actor_name: str | None
    data: msgspec.Raw


def search_events(*, reader: Actor, search: Search, via: str) -> Page:
    """find_events() for a person, recorded: one audit.read per search, when its first page is asked for.

    The page is read first and given only once the reading is recorded. `via` says through which door ("api", "page").
    """
    page = find_events(search, reader=reader.id)
    if search.cursor is None:
        _record_read(reader, via, {"filters": search.filters.as_data(), "order": search.order})
    return page


def read_event(*, reader: Actor, event_id: UUID, via: str) -> EventRow | None:
    """get_event() for a person, recorded, whether or not there is such an event."""
    event = get_event(event_id)
    _record_read(reader, via, {"event_id": str(event_id), "found": event is not None})
    return event


def _record_read(reader: Actor, via: str, data: dict[str, Payload]) -> None:
    with transaction.atomic():
        record(Kind.AUDIT_READ, actor=reader, data={"via": via, **data})


def find_events(search: Search, *, reader: str = "") -> Page:
    """One page of the events that match, and how many do; records nothing.

    Descending: newest first, ties by id; `next_cursor` continues behind the last event however many arrive meanwhile.
    Ascending: for reading incrementally; see audit.ascending for what its cursor promises. Pages are found by key: the
    ten-thousandth costs what the first does. Refuses a cursor of another search or reader (FilterError). Words are
    found by their index (audit.words), the highest place first; where that takes too long, SearchTooLongError.
    """
    cursor = None if search.cursor is None else unseal(search.cursor, search, reader)
    if search.order == "asc" or search.filters.words:
        advance()  # before the transaction: until its end nobody else could give a place
    if not search.filters.words and search.filters.preset is None:
        return _find_page(search, cursor, reader)
    try:
        with transaction.atomic(), connection.cursor() as statement:
            milliseconds = WORDS_TIMEOUT // timedelta(milliseconds=1)
            statement.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
            with limited(WORDS_TIMEOUT):
                return _find_page(search, cursor, reader)
    except TimeIsUpError as error:
        raise SearchTooLongError(_NOT_IN_TIME) from error
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise SearchTooLongError(_NOT_IN_TIME) from error
        raise


def _find_page(search: Search, cursor: Cursor | None, reader: str) -> Page:
    found, following = _find_ascending(search, cursor) if search.order == "asc" else _find_descending(search, cursor)
    return Page(
        events=_with_payloads(found),
        next_cursor=None if following is None else seal(following, search, reader),
        count=count_events(search.filters),
    )


def _find_descending(search: Search, cursor: Cursor | None) -> tuple[Rows, Cursor | None]:
    if isinstance(cursor, ByIndex) and not search.filters.words:
        raise FilterError("The cursor is one of an ascending reading.")
    if isinstance(cursor, ByIndex) or (cursor is None and is_by_words(search.filters)):
        found = find_down(search, cursor, COLUMNS)
        if found is not None:
            return found
        cursor = None
    with _in_order(search.filters):
        rows = _find_spans(search, cursor)
    if len(rows) <= search.limit:
        return rows, None
    last = rows[search.limit - 1]
    return rows[: search.limit], ByTime(at=last[1], id=last[0])


def _find_spans(search: Search, cursor: ByTime | None) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    end = _end(search.filters) if cursor is None else cursor.at
    for span in _spans(search.filters, end):
        wanted = search.limit + 1 - len(rows)
        if cursor is not None and span.to_at == end:
            # The row comparison finds the place in the index, the plain one the partitions that are not needed. Both
            # stand for the end: told of it too, a scan would begin there.
            place, parameters = "(e.at, e.id) < (%s, %s) AND e.at <= %s", [cursor.at, cursor.id, cursor.at]
            rows += _select(replace(span, to_at=None), place, parameters, "DESC", wanted)
        else:
            rows += _select(span, "", [], "DESC", wanted)
        if len(rows) > search.limit:
            break
    return rows


@contextmanager
def _in_order(filters: Filters) -> Iterator[None]:
    """Statements inside read along an index that has their order and their values, and end where they have enough.

    Of a short time a planner expects few events, fetches all of them and sorts them: too many pages, where it is wrong.
    And it takes neighbours in time for neighbours on disk, which writers side by side do not leave: it would go through
    the events of that time and leave out what does not match, a page each, rather than look up the few that do. Of a
    preset it knows better.
    """
    if filters.preset is not None:
        yield
        return
    setting = (
        "SELECT set_config('enable_bitmapscan', %s, true), set_config('enable_sort', %s, true),"
        " set_config('random_page_cost', %s, true)"
    )
    with transaction.atomic():
        _fetch(setting, ["off", "off", "0.1"])
        yield
        _fetch(setting, [None, None, None])  # what the session began with, for a transaction around this one


def _end(filters: Filters) -> datetime:
    """Before when to look: tomorrow, where nobody asked for a time, since the months ahead are there and empty.

    A value, so that they are left out of the plan too. Who asks for a time ahead gets what a wrong clock left there.
    """
    if filters.to_at is not None:
        return filters.to_at
    tomorrow: datetime = _fetch("SELECT statement_timestamp() + interval '1 day'", [])[0][0]
    return tomorrow


def _spans(filters: Filters, end: datetime) -> Iterator[Filters]:
    """What matches before `end`: the newest of it, then the rest. A preset is looked for once, in all.

    To plan a statement over a year of months takes longer than to read a page of one.
    """
    recent = max(end, _FIRST + RECENT) - RECENT
    if filters.preset is None and (filters.from_at is None or filters.from_at < recent):
        yield replace(filters, from_at=recent, to_at=end)
        end = recent
    yield replace(filters, to_at=end)


def _find_ascending(search: Search, cursor: Cursor | None) -> tuple[Rows, Cursor]:
    from_start = not search.filters.as_data() or is_by_words(search.filters)
    if isinstance(cursor, ByIndex) or (cursor is None and from_start):
        return follow(search, cursor or ByIndex(0), COLUMNS)
    if cursor is not None:
        if cursor.until is None or cursor.edge is None:
            raise FilterError("The cursor is one of a descending reading.")
        check_place(cursor.edge)
        return _find_known(search, cursor.edge, cursor.until, cursor)
    edge = read_place(read_size())
    # Behind the places, so that no event that has one is later: not by the clock, which may have been set back.
    ((until,),) = _fetch("SELECT coalesce(max(at), clock_timestamp()) FROM audit_event", [])
    return _find_known(search, edge, until, None)


def _find_known(search: Search, edge: ByIndex, until: datetime, cursor: ByTime | None) -> tuple[Rows, Cursor]:
    """By time, of the events that had a place below `edge`, none of them after `until`; the others come by place."""
    found: list[tuple[Any, ...]] = []
    while True:
        place = "e.at <= %s"
        parameters: list[Any] = [until]
        filters = search.filters
        if cursor is not None:
            filters = replace(filters, from_at=None)
            place += " AND (e.at, e.id) > (%s, %s) AND e.at >= %s"
            parameters += [cursor.at, cursor.id, cursor.at]
        with _in_order(filters):
            rows = _select(filters, place, parameters, "ASC", search.limit + 1)
        indexes = read_indexes([row[0] for row in rows])
        found += [row for row in rows if indexes.get(row[0], edge.index) < edge.index]
        if len(found) > search.limit:
            last = found[search.limit - 1]
            return found[: search.limit], ByTime(at=last[1], id=last[0], until=until, edge=edge)
        if len(rows) <= search.limit:
            return found, edge
        cursor = ByTime(at=rows[-1][1], id=rows[-1][0])


def _select(filters: Filters, place: str, place_parameters: list[Any], direction: str, limit: int) -> Rows:
    """The narrow rows, ordered by (at, id): wide columns read before the LIMIT are what makes logs slow."""
    conditions, parameters = build_conditions(filters)
    if place:
        conditions.append(place)
        parameters += place_parameters
    source = "audit_event e"
    if filters.words:
        source += " LEFT JOIN audit_payload p ON p.event_id = e.id"
        words, patterns = build_words(filters.words)
        conditions.append(words)
        parameters += patterns
    order = f"ORDER BY e.at {direction}, e.id {direction} LIMIT {limit:d}"
    where = " AND ".join(conditions) or "true"
    if not filters.kinds:
        return _fetch(f"SELECT {COLUMNS} FROM {source} WHERE {where} {order}", parameters)
    # A page of each kind, merged: an index on (kind, at, id) gives no order across several kinds.
    page = f"(SELECT {COLUMNS} FROM {source} WHERE e.kind = %s AND {where} {order})"
    return _fetch(
        f"SELECT {COLUMNS} FROM ({' UNION ALL '.join([page] * len(filters.kinds))}) AS e {order}",
        [parameter for kind in filters.kinds for parameter in (kind.value, *parameters)],
    )


def _fetch(statement: str, parameters: Sequence[Any]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: Rows = cursor.fetchall()
        return rows


def count_events(filters: Filters) -> Count:
    """How many events match: exact up to COUNT_CAP, else at least that many.

    Of words, how many of the newest events have them of those that may: exact where there are no more.
    """
    if is_by_words(filters):
        found, is_cut = count_newest(filters)
        return Count(found, is_exact=not is_cut)
    end, count = _end(filters), 0
    if not filters.words:
        for span in _spans(filters, end):
            conditions, parameters = build_matching(span)
            some = f"SELECT FROM audit_event e WHERE {' AND '.join(conditions)} LIMIT {COUNT_CAP + 1 - count:d}"
            count += _fetch(f"SELECT count(*) FROM ({some}) AS counted", parameters)[0][0]
            if count > COUNT_CAP:
                break
        return Count(min(count, COUNT_CAP), is_exact=count <= COUNT_CAP)
    conditions, parameters = build_matching(replace(filters, to_at=end))
    where = " AND ".join(conditions)
    words, patterns = build_words(filters.words)
    row = _fetch(
        f"SELECT count(*) FILTER (WHERE {words}), count(*) FROM (SELECT * FROM audit_event e WHERE {where}"
        f" ORDER BY e.at DESC, e.id DESC LIMIT {COUNT_CAP + 1}) AS e LEFT JOIN audit_payload p ON p.event_id = e.id",
        [*patterns, *parameters],
    )[0]
    return Count(row[0], is_exact=row[1] <= COUNT_CAP)


def is_by_words(filters: Filters) -> bool:
    """Whether what matches is found by the index of words: not, where the other filters leave COUNT_CAP at most."""
    others = replace(filters, words=())
    if not filters.words or (others.as_data() and count_events(others).is_exact):
        return False
    return are_indexed(filters.words) and are_few_beyond()


def get_event(event_id: UUID) -> EventRow | None:
    """The event of that id, or None. Its id (UUIDv7) tells its month, so that one partition is looked at."""
    try:
        since = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=event_id.int >> 80)
        until = since + timedelta(milliseconds=1)
    except OverflowError:
        return None
    rows = _fetch(
        f"SELECT {COLUMNS} FROM audit_event e WHERE e.id = %s AND e.at >= %s AND e.at < %s", [event_id, since, until]
    )
    return next(iter(_with_payloads(rows)), None)


def find_story(*, agent: str, target: str, plan_id: str) -> Story:
    """A plan's events: those counted on the plan in that order, the others (a view, say) where their time puts them."""
    rows = _fetch(
        f"SELECT {COLUMNS} FROM audit_event e WHERE e.plan_id = %s AND e.agent = %s AND e.target = %s"
        f" ORDER BY e.at, e.id LIMIT {STORY_CAP + 1}",
        [plan_id, agent, target],
    )
    events = _with_payloads(rows[:STORY_CAP])
    uncounted = [event for event in events if event.plan_seq is None]
    story: list[EventRow] = []
    counted = (event for event in events if event.plan_seq is not None)
    for event in sorted(counted, key=lambda event: event.plan_seq or 0):
        while uncounted and uncounted[0].at < event.at:
            story.append(uncounted.pop(0))
        story.append(event)
    return Story(story + uncounted, is_cut=len(rows) > STORY_CAP)


def _with_payloads(rows: Rows) -> list[EventRow]:
    bodies: dict[UUID, str] = {}
    indexes: Mapping[UUID, int] = {}
    if rows:
        ids = [row[0] for row in rows]
        bodies = dict(_fetch("SELECT event_id, body FROM audit_payload WHERE event_id = ANY(%s)", [ids]))
        indexes = read_indexes(ids)
    return [_event(row, bodies.get(row[0]), indexes.get(row[0])) for row in rows]


def _event(row: tuple[Any, ...], body: str | None, index: int | None) -> EventRow:
    name, data = None, None
    if body is not None:
        decoded = msgspec.json.decode(body, type=_Body)
        name, data = decoded.actor_name, bytes(decoded.data).decode()
    members: tuple[Any, ...] = (str(row[0]), *row[1:13], bytes(row[13]), name, data, body is None, index)
    return EventRow(*members)
