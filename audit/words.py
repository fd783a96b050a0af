"""Events by the words in them, through the index of words, which has blocks of 256 places: the newest first.

The index tells in which blocks a word is, and at which places of each. Where that does not tell whether an event has
what was asked, the payload is read, as it was asked (audit.filters.build_words). What else is asked for, an agent, say,
is words of the event too: so it leads past the events of others. Who asks for something that few events have is
answered by that, without the index.
"""
# ruff: noqa: S608 - statements are put together from constants; every value is a parameter.

import json
import math
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import chain, islice, pairwise
from typing import Any, Final, TypeAlias

from audit.cursors import ByIndex
from audit.filters import (
    KEPT,
    UUID_SHAPE,
    Filters,
    Search,
    build_matching,
    build_words,
    find_escapes,
    may_go_on,
    split_actor,
)
from audit.placed import Row, find_placed
from audit.proofs import ask_django, read_size

WIDTH: Final = 256
"""Places of a block, as the database's audit_read_words() has them."""
LOOKED_THROUGH: Final = 10_000
"""Events that may have the words and are counted, at most."""
UNPLACED: Final = 4096
"""Events that wait for their place and are looked through beside the index, at most."""
LISTED: Final = 512
"""Events that are looked through by lists of their keys, at most: of more, one statement costs less."""
WIDEST_STEP: Final = 8192
WIDEST_SPAN: Final = 4096
"""Blocks that the index is asked for in one statement at most: as many as a part of it has."""
NARROWING_KINDS: Final = 4
"""Kinds that a search may ask for at most, for the index to be asked for each of them."""
NARROWING_WORDS: Final = 3
"""Words of such a value that the index is asked for, at most."""
# What has such a word at its beginning has it: nothing of it is left out of the index, or spelled in another way there.
_PLAIN: Final = re.compile(rf"[0-9A-Za-z]{{1,{KEPT}}}")
# What is behind every word that goes on, and before all of them.
_ANY, _NOTHING = "\U0010ffff", "\x01"


Place: TypeAlias = tuple[int, bool]
"""A place whose event may have all the words; and whether it has them, so that its payload need not be read."""

_Looked: TypeAlias = dict[Filters, tuple[int, list[Place], bool]]
_looked: ContextVar[_Looked | None] = ContextVar("looked", default=None)
_deadline: ContextVar[float] = ContextVar("deadline", default=math.inf)


class TimeIsUpError(Exception):
    """The events that may have the words are too many to read them all in the time that there was."""


@contextmanager
def limited(length: timedelta) -> Iterator[None]:
    """Readings inside end after `length`, and the statement that is running then (TimeIsUpError)."""
    token = _deadline.set(time.monotonic() + length.total_seconds())
    try:
        yield
    finally:
        _deadline.reset(token)


def select_places(filters: Filters, columns: str, places: Sequence[Place]) -> tuple[str, list[Any]]:
    """A SELECT of what matches at some places, and its parameters: `columns` of event `e`, place `s.index`.

    An array of one is expected to have few elements, so that each place's event is looked up by its key; and a payload
    is looked at only where the index does not tell.
    """
    sure = _select_at(filters, columns, [place for place, is_sure in places if is_sure], "true", [])
    words, patterns = build_words(filters.words)
    told = f"EXISTS (SELECT FROM (SELECT) AS o LEFT JOIN audit_payload p ON p.event_id = s.event_id WHERE {words})"
    doubtful = _select_at(filters, columns, [place for place, is_sure in places if not is_sure], told, patterns)
    return f"{sure[0]} UNION ALL {doubtful[0]}", [*sure[1], *doubtful[1]]


def _select_at(
    filters: Filters, columns: str, places: list[int], condition: str, of_condition: list[Any]
) -> tuple[str, list[Any]]:
    conditions, parameters = build_matching(filters)
    conditions += [condition, "s.index = ANY(ARRAY(SELECT unnest(%s::bigint[])))"]
    source = "audit_sequence s JOIN audit_event e ON e.at = s.at AND e.id = s.event_id"
    statement = f"SELECT {columns} FROM {source} WHERE {' AND '.join(conditions)}"
    return statement, [*parameters, *of_condition, places]


def select_beyond(filters: Filters, columns: str, size: int) -> tuple[str, list[Any]]:
    """As select_places(), of what was not among the first `size` places: it has a later one by now, or awaits one."""
    conditions, parameters = build_matching(filters)
    words, patterns = build_words(filters.words)
    statement = (
        f"SELECT {columns} FROM (SELECT index, at, event_id FROM audit_sequence WHERE index >= %s"
        " UNION ALL SELECT NULL, at, event_id FROM audit_pending) AS s"
        " JOIN audit_event e ON e.at = s.at AND e.id = s.event_id"
        f" LEFT JOIN audit_payload p ON p.event_id = e.id WHERE {' AND '.join([*conditions, words])}"
    )
    return statement, [size, *parameters, *patterns]


def select_newest(filters: Filters, columns: str) -> tuple[str, list[Any], bool]:
    """A SELECT of the newest that match, its parameters, and whether there may be more than it looks through."""
    size, places, is_cut = _look_through(filters)
    statement, parameters = _select_both(filters, columns, places, size)
    return statement, parameters, is_cut


def count_newest(filters: Filters) -> tuple[int, bool]:
    """How many select_newest() finds, and its sign. Where words are all that is asked, the index itself tells most."""
    size, places, is_cut = _look_through(filters)
    read = [place for place in places if not place[1]] if filters == Filters(words=filters.words) else places
    beyond, of_beyond = select_beyond(filters, "e.id", size)
    ((found,),) = ask_django(f"SELECT count(*) FROM ({beyond}) AS counted", of_beyond)
    return len(places) - len(read) + len(_match(filters, read)) + found, is_cut


def _match(filters: Filters, places: Sequence[Place]) -> Collection[int]:
    """Those of the places whose events match."""
    if len(places) > LISTED:
        return {index for (index,) in ask_django(*select_places(filters, "s.index", places))}
    return {index for index, _ in _find_at(filters, "e.id", places)} if places else ()


@contextmanager
def looking_once() -> Iterator[None]:
    """What is asked inside about one search looks through its payloads once, and agrees on what there is."""
    token = _looked.set({})
    try:
        yield
    finally:
        _looked.reset(token)


def _look_through(filters: Filters) -> tuple[int, list[Place], bool]:
    """The size of the tree, the newest places in it that may have what matches, and whether there may be more."""
    looked = _looked.get()
    if looked is not None and filters in looked:
        return looked[filters]
    size = read_size()
    places = list(islice(find_places(filters, below=size), LOOKED_THROUGH + 1))
    is_cut = len(places) > LOOKED_THROUGH
    del places[LOOKED_THROUGH:]
    if looked is not None:
        doubtful = [place for place in places if not place[1]]
        found = _match(filters, doubtful)
        places = [(place, True) for place, is_sure in places if is_sure or place in found]
        looked[filters] = size, places, is_cut
    return size, places, is_cut


def _select_both(filters: Filters, columns: str, places: Sequence[Place], size: int) -> tuple[str, list[Any]]:
    placed, of_placed = select_places(filters, columns, places)
    beyond, of_beyond = select_beyond(filters, columns, size)
    return f"{placed} UNION ALL {beyond}", [*of_placed, *of_beyond]


def find_down(search: Search, cursor: ByIndex | None, columns: str) -> tuple[Sequence[Row], ByIndex | None] | None:
    """What matches below the cursor's place, the highest place first, and the cursor below it (None at the end).

    Without a cursor, what awaits its place comes first, the newest of it first. None where that alone is more than a
    page: there is no place to go on from. `columns` begin with the event's id and time.
    """
    found: list[Row] = []
    if cursor is None:
        below = read_size()
        rows = ask_django(*select_beyond(search.filters, f"s.index, {columns}", below))
        found += sorted(rows, key=lambda row: (row[0] is None, row[0] or 0, row[2], row[1]), reverse=True)
    else:
        below = cursor.index
    for places in _growing(find_places(search.filters, below=below), search.limit + 1):
        if len(found) > search.limit:
            break
        found += [(index, *row) for index, row in reversed(_find_at(search.filters, columns, places))]
    if len(found) <= search.limit:
        return [row[1:] for row in found], None
    last = found[search.limit - 1]
    return None if last[0] is None else ([row[1:] for row in found[: search.limit]], ByIndex(last[0], last[1]))


def find_up(filters: Filters, start: int, size: int, limit: int, columns: str) -> list[tuple[int, Row]]:
    """What matches at the places from `start` to before `size`, in their order: more than `limit`, or all."""
    found: list[tuple[int, Row]] = []
    for places in _growing(find_places(filters, below=size, above=start, upwards=True), limit + 1):
        found += _find_at(filters, columns, places)
        if len(found) > limit:
            break
    return found


def _find_at(filters: Filters, columns: str, places: Sequence[Place]) -> list[tuple[int, Row]]:
    placed = ask_django(
        "SELECT index, at, event_id FROM audit_sequence WHERE index = ANY(%s)", [[place for place, _ in places]]
    )
    return find_placed(filters, columns, placed, sure={place for place, is_sure in places if is_sure})


def are_indexed(words: Sequence[str]) -> bool:
    """Whether the index can lead to one of these words at least: it has letters and digits alone."""
    return bool(words and _ways(words))


def are_few_beyond() -> bool:
    """Whether so few events await their place that all of them can be looked through beside the index."""
    ((waiting,),) = ask_django(f"SELECT count(*) FROM (SELECT FROM audit_pending LIMIT {UNPLACED + 1}) AS n", [])
    return bool(waiting <= UNPLACED)


def find_places(filters: Filters, *, below: int, above: int = 0, upwards: bool = False) -> Iterator[Place]:
    """The places from `above` to before `below` that may have what matches: the highest first, or the lowest.

    Among them all those that the index does not know yet, whatever their words are.
    """
    ((known,),) = ask_django("SELECT coalesce(max(block) + 1, 0) * %s FROM audit_word_block", [WIDTH])
    unread = range(max(known, above), below)
    unknown = ((place, False) for place in (unread if upwards else reversed(unread)))
    found = _find_known(filters, above, min(known, below), upwards=upwards)
    return chain(found, unknown) if upwards else chain(unknown, found)


def _find_known(filters: Filters, above: int, below: int, *, upwards: bool) -> Iterator[Place]:
    times, of_times = "", []
    if filters.from_at is not None:
        times += " AND b.newest >= %s"
        of_times.append(filters.from_at)
    if filters.to_at is not None:
        times += " AND b.oldest < %s"
        of_times.append(filters.to_at)
    lowest, highest = above // WIDTH, -(-below // WIDTH) - 1
    if times:
        ((lowest, highest),) = ask_django(
            f"SELECT min(b.block), max(b.block) FROM audit_word_block b WHERE b.block BETWEEN %s AND %s{times}",
            [lowest, highest, *of_times],
        )
        if lowest is None:
            return
    asked, ranges = _spell_words([*_ways(filters.words), *_ways_of_values(filters)])
    statement = (
        f"SELECT b.block, f.places::text, f.is_sure FROM ({asked}) AS f JOIN audit_word_block b ON b.block = f.block"
        f" WHERE bit_count(f.places) > 0 AND NOT b.is_due{times}"
        f" UNION ALL SELECT b.block, {_ALL}, false FROM audit_word_block b"
        f" WHERE b.is_due AND b.block BETWEEN %s AND %s{times} ORDER BY block {'ASC' if upwards else 'DESC'}"
    )
    can_tell = all(map(_PLAIN.fullmatch, filters.words))
    for first, last in _spans(lowest, highest, upwards=upwards):
        _check_time()
        bounds = [value for between in ranges for value in (*between, first, last)]
        for block, bits, is_sure in ask_django(statement, [*bounds, *of_times, first, last, *of_times]):
            places = [block * WIDTH + one.start() for one in re.finditer("1", bits)]
            for place in places if upwards else reversed(places):
                if above <= place < below:
                    yield place, can_tell and is_sure


def _spans(lowest: int, highest: int, *, upwards: bool) -> Iterator[tuple[int, int]]:
    """Spans of blocks from one end to the other, each wider than the one before: few, and the first is soon there."""
    width = 4
    while lowest <= highest:
        if upwards:
            first, last = lowest, min(lowest + width - 1, highest)
            lowest = last + 1
        else:
            first, last = max(highest - width + 1, lowest), highest
            highest = first - 1
        yield first, last
        width = min(width * 4, WIDEST_SPAN)


Part: TypeAlias = tuple[tuple[str, str], ...]
"""From where to before where the index has a word that was asked for, or a piece of it: any of these."""
Word: TypeAlias = tuple[tuple[Part, ...], ...]
"""The ways in which a word may stand in the index: as its letters, or as the escapes that JSON has for them."""


_ALL: Final = f"repeat('1', {WIDTH})"


def _spell_words(words: Sequence[Word]) -> tuple[str, list[tuple[str, str]]]:
    """A SELECT of blocks and their places with all the words, and the ranges of the index that it asks for in turn.

    `is_sure`: the index knows those places. A word is there in one of its ways: with all parts of that, each in one of
    its cases. Each range takes four parameters: its ends, and the first and the last block.
    """
    one = (
        f"SELECT block, bit_or(coalesce(places, {_ALL}::bit({WIDTH}))) AS places,"
        " bool_and(places IS NOT NULL) AS is_sure FROM audit_word"
        " WHERE word >= %s AND word < %s AND block BETWEEN %s AND %s GROUP BY block"
    )

    def spell(way: tuple[Part, ...]) -> str:
        return _all_of([_any_of([one] * len(part)) for part in way])

    asked = _all_of([_any_of([spell(way) for way in word]) for word in words])
    return asked, [bounds for word in words for way in word for part in way for bounds in part]


def _any_of(selects: Sequence[str]) -> str:
    if len(selects) == 1:
        return selects[0]
    return (
        "SELECT block, bit_or(places) AS places, bool_and(is_sure) AS is_sure"
        f" FROM ({' UNION ALL '.join(selects)}) AS o GROUP BY block"
    )


def _all_of(selects: Sequence[str]) -> str:
    if len(selects) == 1:
        return selects[0]
    return (
        "SELECT block, bit_and(places) AS places, bool_and(is_sure) AS is_sure"
        f" FROM ({' UNION ALL '.join(selects)}) AS a GROUP BY block HAVING count(*) = {len(selects)}"
    )


def _ways(words: Iterable[str]) -> list[Word]:
    """Of each word asked for that the index has letters and digits of: the ways in which it may stand there.

    A word's last part may go on, where audit.filters.may_go_on says so.
    """
    spelled: list[list[tuple[str, Sequence[str]]]] = []
    starts: list[int] = []
    for word in dict.fromkeys(words):
        # Of an id the index knows the last part alone.
        told = match[2] if (match := UUID_SHAPE.fullmatch(word)) else json.dumps(word, ensure_ascii=False)[1:-1]
        starts.append(len(spelled))
        spelled += [[(told, ())]] if word.isascii() else [[(told, ())], _pieces(word)]
    rows = ask_django(
        "SELECT ARRAY(SELECT audit_words(a.told)), a.told ~ '[[:alnum:]]$'"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS a (told, place) ORDER BY a.place",
        [[told for pieces in spelled for told, _ in pieces]],
    )
    read = iter(rows)
    ways = [_parts([(cases, *next(read)) for _, cases in pieces]) for pieces in spelled]
    found = (tuple(ways[start:end]) for start, end in pairwise([*starts, len(ways)]))
    return [word for word in found if word[0]]


def _ways_of_values(filters: Filters) -> list[Word]:
    """What the index has of every event with the values that are asked for, and of some other events too."""
    actor = None if filters.actor is None else split_actor(filters.actor)[1]
    named = (filters.agent, filters.target, filters.plan_id, filters.operation, filters.task_id, actor)
    alternatives = [[value] for value in named if value is not None]
    if 0 < len(filters.kinds) <= NARROWING_KINDS:
        alternatives.append([kind.value for kind in filters.kinds])
    values = [value for either in alternatives for value in either]
    told = dict(ask_django("SELECT a, ARRAY(SELECT audit_words(a)) FROM unnest(%s::text[]) AS a", [values]))
    ways = [[_whole(told[value]) for value in either] for either in alternatives]
    return [tuple(way) for way in ways if all(way)]


def _whole(words: Sequence[str]) -> tuple[Part, ...]:
    """Words that are meant whole: the longest of them, for those tell the most."""
    longest = sorted(dict.fromkeys(words), key=len, reverse=True)[:NARROWING_WORDS]
    return tuple(((word, word + _NOTHING),) for word in longest)


def _pieces(word: str) -> list[tuple[str, Sequence[str]]]:
    """The word as ASCII alone: what is before its first escape, then each escape with what follows it.

    In an index of words each of these begins a word of its own. Beside it: the escape in either case of its letter.
    """
    pieces: list[tuple[str, Sequence[str]]] = [("", ())]
    for character in word:
        if character.isascii():
            told, cases = pieces[-1]
            pieces[-1] = (told + json.dumps(character)[1:-1], cases)
        else:
            units = zip(*(re.findall(r"u[0-9a-f]{4}", escape) for escape in find_escapes(character)), strict=True)
            pieces += [(f"\\{cases[0]}", cases) for cases in units]
    return pieces


def _parts(pieces: Sequence[tuple[Sequence[str], Sequence[str], bool]]) -> tuple[Part, ...]:
    """What the index has of a word's pieces: the cases of its escape, its words, whether it ends within one."""
    parts = []
    for place, (cases, words, is_open) in enumerate(pieces):
        for number, word in enumerate(words):
            is_last = is_open and place == len(pieces) - 1 and number == len(words) - 1
            either = [case + word[len(case) :] for case in cases] if cases and number == 0 else [word]
            parts.append(tuple((one, one + _end_of(one, is_last=is_last)) for one in either))
    return tuple(dict.fromkeys(parts))


def _end_of(word: str, *, is_last: bool) -> str:
    return _ANY if len(word) >= KEPT or (is_last and may_go_on(word)) else _NOTHING


def _growing(places: Iterable[Place], size: int) -> Iterator[list[Place]]:
    """The places in groups, each twice as large as the one before: what is near, and what is far."""
    rest = iter(places)
    while group := list(islice(rest, size)):
        _check_time()
        yield group
        size = min(size * 2, WIDEST_STEP)


def _check_time() -> None:
    if time.monotonic() > _deadline.get():
        raise TimeIsUpError
