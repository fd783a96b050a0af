"""Words through their index: what it finds is what is there, whole and once, and what is erased is gone from it."""

import json
import random
import re
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from audit import queries, words
from audit.canonical import RawJson
from audit.erasure import find_erasable
from audit.export import Request, begin_export
from audit.facets import count_facets
from audit.filters import Search, build_words, parse_search
from audit.histogram import draw_histogram
from audit.kinds import Kind
from audit.proofs import advance, ask_django
from audit.queries import Count, EventRow, count_events, find_events, get_event
from audit.recording import SYSTEM, Actor
from audit.windows import TakesTooLongError, patience
from tests.audit.making import make_event
from tests.audit.sequencing import sequencing


def search(**parameters: str) -> Search:
    return parse_search(({"from_": "from"}.get(name, name), [value]) for name, value in parameters.items())


def make_events(count: int, data: str, *, agent: str = "bulk") -> None:
    """`count` events in one transaction; `data` is SQL for the text of a JSON object, with a number `n`."""
    with transaction.atomic():
        ask_django(
            "SELECT count(audit_record('plan.viewed', 'agent', %s, audit_payload_text('Bulk', " + data + "),"
            " p_agent => %s)) FROM generate_series(1, %s) AS n",
            [agent, agent, count],
        )


def read_into_index() -> None:
    advance()
    while ask_django("SELECT audit_read_words(32)", [])[0][0]:
        pass


def find_places(asked: Search, **between: Any) -> list[int]:
    return [place for place, _ in words.find_places(asked.filters, **between)]


def read_all(asked: Search) -> list[EventRow]:
    events: list[EventRow] = []
    page = find_events(asked)
    while True:
        events += page.events
        if page.next_cursor is None or (asked.order == "asc" and not page.events):
            return events
        page = find_events(replace(asked, cursor=page.next_cursor))


def indexed(word: str) -> list[int]:
    return [block for (block,) in ask_django("SELECT block FROM audit_word WHERE word = %s ORDER BY 1", [word])]


def blocks_of(asked: Search, *, below: int) -> list[int]:
    return list(dict.fromkeys(place // words.WIDTH for place in find_places(asked, below=below)))


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_every_event_with_the_word_is_found_once_and_in_the_order_of_places(database: None, order: str) -> None:
    make_events(1500, """'{"note":"' || CASE WHEN mod(n, 100) = 7 THEN 'needle' ELSE 'straw' END || ' ' || n || '"}'""")
    read_into_index()
    make_event(data={"note": "a needle that the index has not read"})
    found = read_all(search(q="needle", order=order, limit="4"))
    places = [event.index for event in found]
    assert places == sorted([*(n - 1 for n in range(1, 1501) if n % 100 == 7), 1500], reverse=order == "desc")
    assert count_events(search(q="needle").filters) == Count(16, is_exact=True)


def test_a_search_reads_the_events_that_have_the_word_and_no_others(database: None) -> None:
    make_events(2048, """'{"note":"' || CASE n WHEN 301 THEN 'needle' ELSE 'straw' END || '"}'""")
    read_into_index()
    assert find_places(search(q="needle"), below=2048) == [300]
    assert indexed("needle") == [1]
    asked = search(q="straw", limit="10")
    places: list[Any] = []
    read: list[str] = []

    def note(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        if "WHERE index = ANY" in sql:
            places.append(parameters[0])
        if " ILIKE " in sql and "audit_pending" not in sql:
            read.append(sql)
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(note):
        page = find_events(asked)
        later = find_events(replace(asked, cursor=page.next_cursor))
    assert [event.index for event in (*page.events, *later.events)] == list(range(2047, 2027, -1))
    assert places == [list(range(2047, 2036, -1)), list(range(2037, 2026, -1))]
    assert not read


def test_of_words_alone_the_index_tells_how_many_have_them(database: None) -> None:
    make_events(600, """'{"note":"' || CASE WHEN mod(n, 2) = 0 THEN 'even' ELSE 'odd' END || '"}'""")
    read_into_index()
    make_event(data={"note": "even"})
    advance()
    read: list[int] = []

    def note(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        if "WHERE index = ANY" in sql:
            read.extend(parameters[0])
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(note):
        assert count_events(search(q="even").filters) == Count(301, is_exact=True)
    assert set(read) == set(range(512, 601))


def test_payloads_that_are_looked_through_are_fetched_by_one_list(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make_events(256 * 20, """'{"note":"straw ' || n || '"}'""")
    read_into_index()
    owner_connection.execute("ANALYZE audit_event, audit_payload")
    make_events(240, """'{"note":"straw ' || n || '"}'""")
    advance()
    loops: list[int] = []

    def walk(node: dict[str, Any]) -> None:
        if node.get("Relation Name") == "audit_payload":
            loops.append(node["Actual Loops"])
        for inner in node.get("Plans", ()):
            walk(inner)

    def note(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if "e.at = ANY" in sql:
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters, many, context)
            walk(context["cursor"].fetchone()[0][0]["Plan"])
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        assert len(find_events(search(q="straw 240", limit="200")).events) == 2
    assert loops
    assert set(loops) == {1}


def test_what_is_asked_together_looks_through_the_payloads_once(database: None) -> None:
    make_events(256, """'{"note":"x-y ' || n || '"}'""")
    read_into_index()
    make_event(data={"note": "x-y unread"})
    filters = search(q="x-y").filters
    looked_through: list[int] = []

    def note(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        if "WHERE index = ANY" in sql:
            looked_through.append(len(parameters[0]))
        return execute(sql, parameters, *rest)

    def ask() -> tuple[Count, int, int]:
        count = count_events(filters)
        kinds = count_facets(filters).values["kind"]
        histogram = draw_histogram(filters, now=datetime.now(UTC) + timedelta(minutes=1))
        assert histogram is not None
        return count, sum(one.count for one in kinds), sum(bar.total for bar in histogram.bars)

    expected = (Count(257, is_exact=True), 257, 257)
    assert ask() == expected
    with words.looking_once(), connection.execute_wrapper(note):
        assert ask() == expected
        make_event(data={"note": "x-y too late"})
        assert ask()[1:] == (258, 258)
    assert looked_through == [256]


def test_the_index_leads_past_the_events_that_something_else_is_asked_of(database: None) -> None:
    for agent in ("busy\\new", "other"):
        make_events(512, """'{"note":"straw ' || n || '"}'""", agent=agent)
    read_into_index()
    other, busy = list(range(1023, 511, -1)), list(range(511, -1, -1))
    assert find_places(search(q="straw", agent="other"), below=1024) == other
    assert find_places(search(q="straw", agent="busy\\new"), below=1024) == busy
    assert find_places(search(q="straw", actor="agent:other"), below=1024) == other
    assert find_places(search(q="straw", actor="person:other"), below=1024) == other
    assert find_places(search(q="straw", kind="plan.viewed"), below=1024) == other + busy
    assert find_places(search(q="straw", kind="plan.approved"), below=1024) == []
    assert find_places(search(q="straw", agent="-- ?"), below=1024) == other + busy
    either = replace(search(q="straw").filters, kinds=(Kind.PLAN_APPROVED, Kind.PLAN_VIEWED))
    assert find_places(replace(search(), filters=either), below=1024) == other + busy


@pytest.mark.parametrize("name", ["agent", "target", "plan_id", "operation", "task_id"])
def test_what_is_asked_beside_words_is_found_whatever_its_letters_are(
    database: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "COUNT_CAP", 0)
    values = ["a", "A-1", "b\\new\\", 'q"uote', "Zoë İstanbul", "ﬁne", "x" * 40, "a b c d e f", "--", "?a?", "50%_"]
    made = {}
    for value in values:
        key: dict[str, Any] = {name: value}
        if name == "plan_id":
            key |= {"agent": "someone", "target": "somewhere"}
        made[value] = make_event(data={"note": "needle"}, **key).id
    make_events(256, """'{"note":"needle"}'""")
    read_into_index()
    for value, made_id in made.items():
        asked = search(q="needle", **{name: value})
        assert queries.is_by_words(asked.filters)
        assert [event.id for event in find_events(asked).events] == [made_id]


def test_the_index_tells_places_without_its_table(database: None, owner_connection: psycopg.Connection[Any]) -> None:
    make_events(256 * 8, """'{"note":"straw"}'""")
    read_into_index()
    owner_connection.execute("VACUUM ANALYZE audit_word")
    plan = ask_django("EXPLAIN SELECT block, places FROM audit_word WHERE word = 'straw' AND block BETWEEN 0 AND 7", [])
    assert "Index Only Scan" in plan[0][0]
    told = ask_django("SELECT reloptions::text FROM pg_class WHERE relname ~ '^audit_word_[0-9]+$'", [])
    assert all("autovacuum_vacuum_insert_scale_factor=0" in options for (options,) in told)


@pytest.mark.parametrize("upwards", [False, True])
def test_the_index_leads_to_the_events_that_have_all_the_words(database: None, upwards: bool) -> None:
    """Over more than one span of blocks, from any place to any other, and at the edges of both."""
    made = 256 * 30 + 10
    make_events(
        made,
        """'{"note":"' || CASE WHEN mod(n - 1, 2) = 0 THEN 'even' ELSE 'odd' END
           || CASE WHEN mod(n - 1, 3) = 0 THEN ' third' ELSE '' END || '"}'""",
    )
    read_into_index()
    order = -1 if not upwards else 1
    known = 256 * 30

    def places(asked: str, below: int, above: int) -> list[int]:
        return find_places(search(q=asked), below=below, above=above, upwards=upwards)

    for below, above in ((made, 0), (known, 255), (5121, 5120), (6000, 1000), (700, 700), (made, known + 3)):
        unknown = list(range(max(above, known), below))
        third = [place for place in range(above, min(below, known)) if place % 6 == 3]
        assert places("odd third", below, above) == (third + unknown)[::order]
        assert places("odd even", below, above) == unknown[::order]


VOCABULARY = [
    "Refund", "refund-2041", "REFUNDED", "ref", "re", "n", "nr", "b2b", "48000", "480", "0480", "x_y", "50%",
    "internationalizati", "internationalization", "internationaliza", "Zoë", "İstanbul", "straße", "ﬁne", "x/y.z",
    "O'Brien", r"M\u00fcller", 'a"b', r"a\nb", "a\nb", r"C:\new\table", "\tTab", "1.1", "(0)", "12345678901234567890",
]  # fmt: skip


def make_texts(chance: random.Random, count: int) -> list[str]:
    texts = [
        chance.choice([" ", "-", "", "\n", '"', "\\"]).join(chance.choices(VOCABULARY, k=chance.randint(1, 4)))
        for _ in range(count)
    ]
    for text in texts:
        make_event(data={"note": text}, agent="bulk")
    return texts


def test_what_the_index_tells_of_plain_words_is_what_is_in_the_payloads(database: None) -> None:
    """Whoever believes the index reads no payload: it must tell of the events that have the words, and of no others."""
    chance = random.Random(20261203)
    texts = make_texts(chance, 256)
    read_into_index()
    runs = {run for text in texts for run in re.findall(r"[0-9A-Za-z]+", text)}
    asked = sorted({run[:length] for run in runs for length in (1, 2, 3, 4, 16)})
    believed = 0
    for word in chance.sample(asked, 20):
        for q in (word, word.swapcase(), f"{word} {chance.choice(asked)}"):
            places = dict(words.find_places(search(q=q).filters, below=256))
            assert all(places.values())
            believed += len(places)
            assert set(places) == find_in_payloads(q), q
    assert believed > 50


def find_in_payloads(q: str) -> set[int]:
    condition, parameters = build_words(tuple(q.split()))
    rows = ask_django(
        "SELECT s.index FROM audit_sequence s JOIN audit_event e ON e.id = s.event_id"
        f" JOIN audit_payload p ON p.event_id = e.id WHERE {condition}",
        parameters,
    )
    return {index for (index,) in rows}


def test_a_quotation_mark_and_a_backslash_are_no_blanks(database: None) -> None:
    texts = ["foo9 bar9", "foo9\\bar9", 'foo9"bar9', "foo9\nbar9", "foo9 \\", "é foo9"]
    made = {text: make_event(data={"note": text}, agent="bulk").id for text in texts}
    for q, found in {
        "foo9\\bar9": ["foo9\\bar9"], 'foo9"bar9': ['foo9"bar9'], "\\": ["foo9\\bar9", "foo9 \\"], '"': ['foo9"bar9'],
        "foo9\\": ["foo9\\bar9"], '9"b': [], 'é"': [], "foo9": texts,
    }.items():  # fmt: skip
        for filters in (search(q=q).filters, search(q=q, agent="bulk").filters):
            assert {event.id for event in find_events(Search(filters)).events} == {made[text] for text in found}, q
        assert {str(one) for one in find_erasable(search(q=q).filters).ids} <= {made[text] for text in found}, q


def test_every_door_means_the_same_by_a_word(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages through the index and without it, counts, exports and erasures, of parts of what events say."""
    chance = random.Random(20261204)
    texts = make_texts(chance, 300)
    read_into_index()
    for _ in range(60):
        word = chance.choice(chance.choice(texts).split() or ["ref"])
        start = chance.randrange(len(word))
        q = chance.choice([word[start:], word[start : start + 5], word.upper(), word.swapcase()[:20]])
        asked = search(q=q, agent="bulk", limit="500")
        monkeypatch.setattr(queries, "COUNT_CAP", 10_000)
        assert not queries.is_by_words(asked.filters)
        expected = {event.index for event in find_events(asked).events}
        assert count_events(asked.filters) == Count(len(expected), is_exact=True)
        with closing(begin_export(Request("csv", asked.filters), actor=SYSTEM, via="test")) as export:
            assert export.rows == len(expected), q
        assert len(find_erasable(asked.filters).ids) == len(expected), q
        monkeypatch.setattr(queries, "COUNT_CAP", 0)
        assert {event.index for event in find_events(asked).events} == expected, q
        assert count_events(asked.filters) == Count(len(expected), is_exact=True), q
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("q", "is_found"),
    [
        ("print", False),
        ("finger", True),
        ("fingerprint-2", False),
        ("fingerprint-20", True),
        ("o", False),
        ("of", True),
        ("2", False),
        ("20.5", True),
        ("20.", True),
        ("0.5", False),
        ("ü", False),
        ("über", True),
        ("ber", False),
        ("new", True),
        ("line", True),
    ],
)
def test_a_word_is_found_by_its_beginning_without_the_index_too(database: None, q: str, is_found: bool) -> None:
    make_event(data={"note": "fingerprint-20 of 20.5 überall\nnew\tlines"}, agent="bulk")
    asked = search(q=q, agent="bulk")
    advance()
    assert not queries.is_by_words(asked.filters)
    assert bool(find_events(asked).events) is is_found
    assert bool(find_in_payloads(q)) is is_found


def test_what_the_index_cannot_tell_is_read_in_the_payloads(database: None) -> None:
    make_events(512, """'{"note":"internationalization of x-y, 10' || n || '%%"}'""")
    make_events(1, """'{"note":"internationalization of x-y, unread"}'""")
    read_into_index()
    for q in ("internationalization", "x-y", "internationalizations", "unread", "x-y internationaliza"):
        doubtful = [place for place, is_sure in words.find_places(search(q=q).filters, below=513) if not is_sure]
        assert doubtful == ([512] if q == "unread" else list(range(512, -1, -1)))
    assert [
        place for place, is_sure in words.find_places(search(q="internationaliza").filters, below=513) if not is_sure
    ] == [512]
    assert len(read_all(search(q="internationalization", limit="500"))) == 513
    assert read_all(search(q="internationalizations")) == []
    assert [event.index for event in read_all(search(q="unread"))] == [512]


def test_an_index_that_was_made_without_places_leads_to_all_of_a_block(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make_events(768, """'{"note":"' || CASE n WHEN 301 THEN 'needle' ELSE 'straw' END || '"}'""")
    read_into_index()
    owner_connection.execute("UPDATE audit_word SET places = NULL")
    assert not any(is_sure for _, is_sure in words.find_places(search(q="needle straw").filters, below=768))
    assert find_places(search(q="needle"), below=768) == list(range(511, 255, -1))
    assert find_places(search(q="needle straw"), below=768) == list(range(511, 255, -1))
    assert [event.index for event in find_events(search(q="needle")).events] == [300]


@pytest.mark.parametrize(
    ("asked", "is_found"),
    [
        ("Überweisung", True),
        ("überw", True),
        ("ACC-104", True),
        ("acc-10", False),
        ("acc", True),
        ("acc-", True),
        ("ac-104", False),
        ("104", True),
        ("10", False),
        ("7f", False),
        ("quoted", True),
        ("said:\"quoted\"", True),
        ("C:\\new", True),
        ("line", True),
        ("second", True),
        ("berweisung", False),
        ("a-very-long-word-of-more-than-sixteen-characters", True),
        ("abcdefghijklmnopqrstuvwxyz", True),
        ("abcdefghijklmnopqrsX", False),
        ("Zoë plan.viewed", True),
        ("Zoë plan.approved", False),
    ],
)  # fmt: skip
def test_a_word_is_found_by_its_beginning_whatever_the_case_and_spelling(
    database: None, asked: str, is_found: bool
) -> None:
    recorded = make_event(
        actor=Actor("person", "7", "Zoë"),
        data={
            "note": 'Überweisung for ACC-104, he said:"quoted" C:\\new\nsecond line',
            "long": "a-very-long-word-of-more-than-sixteen-characters abcdefghijklmnopqrstuvwxyz",
        },
    )
    make_events(300, "'{}'")
    read_into_index()
    assert (recorded.id in {event.id for event in read_all(search(q=asked))}) is is_found


@pytest.mark.parametrize(
    ("asked", "is_found"),
    [
        ("Müller", True),
        ("MÜLLER", True),
        ("Mül Straße", True),
        ("müller-lüd", True),
        ("Lüdenscheid-Ämter", True),
        ("LÜDENSCHEID-ÄMTER", True),
        ("lüden", True),
        ("Élan", True),
        ("😀né", True),
        ("😀", True),
        ("Ætna", True),
        ("Müll", True),
        ("Mülle", True),
        ("Müllerin", False),
        ("Muller", False),
        ("ller", False),
        ("Müller plan.approved", False),
    ],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_a_word_is_found_whichever_way_its_json_spells_letters_beyond_ascii(
    database: None, asked: str, is_found: bool, escaped: bool
) -> None:
    told = json.dumps("Müller-Lüdenscheid-Ämter, élan 😀né æTNA Straße", ensure_ascii=escaped)
    make_events(255, """'{"note":"straw ' || n || '"}'""")
    make_event(data={"inputs": RawJson(told)})
    read_into_index()
    assert len(read_all(search(q=asked))) == is_found
    assert indexed("u00fcller") == ([0] if escaped else [])


def test_of_a_word_beyond_ascii_the_index_leads_to_both_spellings(database: None) -> None:
    make_events(
        512, """'{"note":"' || CASE n WHEN 300 THEN 'M\\u00fcller' WHEN 100 THEN 'müller' ELSE 'straw' END || '"}'"""
    )
    make_events(256, """'{"note":"straw"}'""")
    read_into_index()
    for asked in ("Müller", "MÜLLER", "müll straw"):
        found = [299, 99] if "straw" not in asked else []
        assert find_places(search(q=asked), below=768) == found


def test_an_event_is_found_by_its_id_and_by_an_id_in_its_payload(database: None) -> None:
    other = "0194d000-1111-7222-8333-123456789abc"
    recorded = make_event(data={"event_id": other})
    make_events(300, "'{}'")
    read_into_index()
    for asked in (recorded.id, recorded.id.upper(), other):
        assert [event.id for event in find_events(search(q=asked)).events] == [recorded.id]


def test_what_no_index_can_find_is_looked_for_all_the_same(database: None) -> None:
    recorded = make_event(data={"note": "-> (!)"})
    make_events(300, "'{}'")
    read_into_index()
    assert [event.id for event in find_events(search(q="(!)")).events] == [recorded.id]


def test_a_time_leaves_out_the_blocks_of_other_times(database: None) -> None:
    make_events(512, '\'{"note":"straw"}\'')
    middle = make_event()
    make_events(512, '\'{"note":"straw"}\'')
    read_into_index()
    at = middle.at.isoformat()
    assert blocks_of(search(q="straw", to=at), below=1025) == [4, 1, 0]
    assert blocks_of(search(q="straw", from_=at), below=1025) == [4, 3, 2]
    assert blocks_of(search(q="straw", to="2001-01-01T00:00:00Z"), below=1025) == [4]
    assert len(read_all(search(q="straw", to=at))) == 512
    assert len(read_all(search(q="straw", from_=(middle.at + timedelta(microseconds=1)).isoformat()))) == 512


def test_a_filter_that_few_events_meet_is_the_way_instead(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    make_events(600, '\'{"note":"straw"}\'')
    wanted = make_event(agent="rare", data={"note": "straw"})
    read_into_index()

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the index was asked")

    monkeypatch.setattr(words, "find_places", refuse)
    assert [event.id for event in find_events(search(q="straw", agent="rare")).events] == [wanted.id]
    with pytest.raises(AssertionError):
        find_events(search(q="straw"))


def test_a_count_and_facets_say_when_there_is_more_than_they_looked_through(
    database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_events(1024, '\'{"note":"straw"}\'')
    read_into_index()
    filters = search(q="straw").filters
    assert count_events(filters) == Count(1024, is_exact=True)
    assert (count_facets(filters).seen, count_facets(filters).is_exact) == (1024, True)
    monkeypatch.setattr(words, "LOOKED_THROUGH", 768)
    assert count_events(filters) == Count(768, is_exact=False)
    assert (count_facets(filters).seen, count_facets(filters).is_exact) == (768, False)


def test_l119_the_words_of_an_erased_payload_leave_the_index_with_it(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    gone = make_event(data={"note": "Adalbert Adalbertson owes"})
    kept = make_event(data={"note": "somebody owes"})
    make_events(300, "'{}'")
    read_into_index()
    assert indexed("adalbertson") == [0]
    owner_connection.execute("DELETE FROM audit_payload WHERE event_id = %s", [gone.id])
    assert indexed("adalbertson") == []
    # Others' words went with it: until the block is read again it is looked through in any case.
    assert indexed("owes") == []
    assert [event.id for event in find_events(search(q="owes")).events] == [kept.id]
    read_into_index()
    assert (indexed("owes"), indexed("adalbertson")) == ([0], [])
    assert [event.id for event in find_events(search(q="owes")).events] == [kept.id]
    event = get_event(UUID(gone.id))
    assert event is not None
    assert event.is_erased


def test_what_is_being_erased_is_not_read_into_the_index(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    gone = make_event(data={"note": "Adalbert"})
    make_events(300, "'{}'")
    advance()
    with owner_connection.transaction():
        owner_connection.execute("DELETE FROM audit_payload WHERE event_id = %s", [gone.id])
        assert ask_django("SELECT audit_read_words(32)", []) == [(None,)]
    read_into_index()
    assert indexed("adalbert") == []
    assert indexed("viewed") == [0]


@pytest.mark.slow
def test_the_sequencer_reads_words_behind_its_signature_and_older_logs_too(database: None, tmp_path: Path) -> None:
    make_events(256 * 40, '\'{"note":"straw"}\'')
    with sequencing(tmp_path) as sequencer:
        turn = sequencer.turn(heartbeat=0)
        assert turn.signed is not None
        assert turn.signed.size == 256 * 40
        assert len(indexed("straw")) == 32
        sequencer.turn(heartbeat=60)
    assert indexed("straw") == list(range(40))


@pytest.mark.slow
def test_two_readers_of_words_do_not_read_one_block_twice_or_leave_one_out(database: None) -> None:
    make_events(256 * 12, '\'{"note":"straw"}\'')
    advance()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while ask_django("SELECT audit_read_words(1)", [])[0][0] != 0:
                pass
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert indexed("straw") == list(range(12))
    assert all(later[0] == one[0] + 1 for one, later in pairwise(ask_django("TABLE audit_word_block ORDER BY 1", [])))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit_word",
        "INSERT INTO audit_word VALUES ('x', 0)",
        "DELETE FROM audit_word_block",
        "UPDATE audit_word_block SET is_due = false",
        "DELETE FROM audit_word_0",
        "SELECT audit_make_words(1)",
    ],
)
def test_the_application_cannot_hide_an_event_from_its_words(database: None, statement: str) -> None:
    make_events(256, "'{}'")
    read_into_index()
    with connection.cursor() as cursor, pytest.raises(Exception, match="permission denied"):
        cursor.execute(statement)


def test_words_of_a_damaged_log_are_found_all_the_same(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make_events(300, "'{}'")
    read_into_index()
    with owner_connection.transaction():
        owner_connection.execute("SET LOCAL session_replication_role = replica")
        missing = make_event(Kind.PLAN_APPROVED)
        owner_connection.execute("DELETE FROM audit_event WHERE id = %s", [missing.id])
    waiting = make_event(data={"note": "needle"})
    assert [event.id for event in find_events(search(q="needle")).events] == [waiting.id]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_search_holds_up_nobody_who_gives_places(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    make_events(600, """'{"note":"straw"}'""")
    read_into_index()
    moved: list[Any] = []

    def write_and_advance() -> None:
        owner_connection.execute("SELECT audit_record('plan.viewed', 'agent', 'a', audit_payload_text('a', NULL))")
        moved.append(owner_connection.execute("SELECT new_size - old_size FROM audit_advance(8)").fetchone())

    monkeypatch.setattr(words, "_check_time", write_and_advance)
    find_events(search(q="straw", order=order))
    count_facets(search(q="straw").filters)
    assert len(moved) > 2
    assert set(moved) == {(1,)}


@pytest.mark.slow
def test_what_awaits_its_place_is_found_before_what_has_one_and_once(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_events(600, """'{"note":"straw ' || n || '"}'""")
    read_into_index()
    with owner_connection.transaction():
        owner_connection.execute("SELECT pg_advisory_xact_lock(hashtext('audit_advance'))")
        waiting = [make_event(data={"note": "straw"}).id for _ in range(5)]
        make_event(data={"note": "hay"})
        asked = search(q="straw", limit="7")
        assert count_events(asked.filters) == Count(605, is_exact=True)
        assert count_facets(asked.filters).seen == 605
        page = find_events(asked)
        assert [event.id for event in page.events[:5]] == waiting[::-1]
        assert [event.index for event in page.events] == [None] * 5 + [599, 598]
        # More of them than a page: by time, from the beginning to the end.
        by_time = read_all(search(q="straw", limit="3"))
        assert len({event.id for event in by_time}) == len(by_time) == 605
        with monkeypatch.context() as patched:
            patched.setattr(words, "UNPLACED", 5)
            patched.setattr(words, "find_places", None)
            assert len(read_all(search(q="straw", limit="500"))) == 605
    rest = find_events(replace(asked, cursor=page.next_cursor))
    assert [event.index for event in rest.events] == list(range(597, 590, -1))
    assert [event.id for event in find_events(asked).events[:5]] == waiting[::-1]


def test_what_gets_its_place_during_a_search_is_found_once(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_events(600, """'{"note":"straw"}'""")
    read_into_index()
    read_size = words.read_size
    recorded = """SELECT audit_record('plan.viewed', 'agent', 'a', audit_payload_text('a', '{"note":"straw"}'))"""

    def read_size_and_advance() -> int:
        owner_connection.execute(recorded)
        size = read_size()
        owner_connection.execute("SELECT audit_advance(8)")
        return size

    monkeypatch.setattr(words, "read_size", read_size_and_advance)
    monkeypatch.setattr(queries, "advance", lambda: 0)
    page = find_events(search(q="straw", limit="5"))
    # One while the page was read, another while it was counted.
    assert [event.index for event in page.events] == list(range(600, 595, -1))
    assert page.count == Count(602, is_exact=True)


def test_readings_by_words_are_patient_in_all_and_not_for_each_statement(database: None) -> None:
    make_events(600, """'{"note":"straw"}'""")
    read_into_index()

    def read_late() -> None:
        with patience(timedelta(milliseconds=50)):
            time.sleep(0.1)
            find_places(search(q="straw"), below=600)

    with pytest.raises(TakesTooLongError):
        read_late()


def test_words_that_the_index_cannot_tell_apart_end_in_time_with_a_sentence(
    database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_events(1024, """'{"note":"a-word-of-many-parts internationalization"}'""")
    read_into_index()
    asked = search(q="internationalizable")  # its first sixteen letters are everywhere
    assert len(find_places(asked, below=1024)) == 1024
    assert find_events(asked).events == []
    monkeypatch.setattr(queries, "WORDS_TIMEOUT", timedelta(milliseconds=1))
    with pytest.raises(queries.SearchTooLongError, match="Narrow"):
        find_events(asked)
