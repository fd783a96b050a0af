"""Pages by key, filters that are strict, counts that say whether they are exact, and a plan's story."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection

from audit import queries
from audit.canonical import RawJson
from audit.filters import FilterError, Search, parse_search
from audit.kinds import Kind
from audit.proofs import advance
from audit.queries import EventRow, count_events, find_events, find_story, get_event
from audit.recording import SWEEP, Actor
from tests.audit.making import make_event, make_events_at

AT = datetime(2026, 3, 14, 9, 31, 12, 345678, tzinfo=UTC)


def search(**parameters: str | list[str]) -> Search:
    names = {"from_": "from"}
    return parse_search(
        (names.get(name, name), [value] if isinstance(value, str) else value) for name, value in parameters.items()
    )


def read_all(asked: Search) -> list[EventRow]:
    events: list[EventRow] = []
    page = find_events(asked)
    while True:
        events += page.events
        if page.next_cursor is None or (asked.order == "asc" and not page.events):
            return events
        page = find_events(replace(asked, cursor=page.next_cursor))


def count_buffers(run: Any) -> int:
    """How many 8 kB pages the statements of `run` touch, by EXPLAIN of each where it stands."""
    total = 0

    def explain(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        nonlocal total
        if "audit_event e" in sql and "count(*)" not in sql:
            execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters, many, context)
            plan = context["cursor"].fetchone()[0][0]["Plan"]
            total += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        run()
    assert total > 0
    return total


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_l115_events_of_one_instant_are_each_read_once_in_a_stable_order(
    database: None, owner_connection: psycopg.Connection[Any], order: str
) -> None:
    make_events_at(owner_connection, AT, 25, step=timedelta(0))
    asked = search(limit="10", order=order)
    ids = [event.id for event in read_all(asked)]
    assert len(ids) == len(set(ids)) == 25
    assert ids == [event.id for event in read_all(asked)]


def test_pages_are_newest_first_and_what_arrives_meanwhile_moves_nothing(database: None) -> None:
    made = [make_event(task_id="t").id for _ in range(7)]
    asked = search(task_id="t", limit="3")
    first = find_events(asked)
    make_event(task_id="t")
    second = find_events(replace(asked, cursor=first.next_cursor))
    third = find_events(replace(asked, cursor=second.next_cursor))
    assert [event.id for page in (first, second, third) for event in page.events] == made[::-1]
    assert third.next_cursor is None


def test_every_filter_finds_its_events_and_no_others(database: None) -> None:
    make_event(Kind.PLAN_REJECTED, agent="b", target="u", plan_id="q", operation="p", task_id="l", actor=SWEEP)
    wanted = make_event(
        Kind.PLAN_APPROVED,
        agent="a",
        target="t",
        plan_id="p",
        operation="o",
        task_id="k",
        actor=Actor("person", "7", "Zoë"),
        data={"reason": 'Rückgabe "4412" 100%'},
    )
    for parameters in (
        {"kind": "plan.approved"},
        {"kind": ["plan.approved", "plan.viewed"]},
        {"agent": "a"},
        {"target": "t"},
        {"plan_id": "p"},
        {"operation": "o"},
        {"task_id": "k"},
        {"actor": "7"},
        {"actor": "person:7"},
        {"q": "zoë rückgabe"},
        {"q": '"4412"'},
        {"q": "100%"},
        {"q": "APPROVED"},
        {"kind": "plan.approved", "agent": "a", "q": wanted.id},
    ):
        page = find_events(search(**parameters))  # type: ignore[arg-type]
        assert [event.id for event in page.events] == [wanted.id], parameters
        assert (page.count.value, page.count.is_exact) == (1, True), parameters
    for parameters in ({"q": "1%0"}, {"q": "4412_"}, {"actor": "agent:7"}, {"agent": "A"}):
        assert find_events(search(**parameters)).events == [], parameters
    assert [event.actor_id for event in find_events(search(actor="system:sweep")).events] == ["sweep"]


def test_from_is_included_and_to_is_not(database: None, owner_connection: psycopg.Connection[Any]) -> None:
    make_events_at(owner_connection, AT, 3, step=timedelta(microseconds=1))
    found = find_events(search(from_="2026-03-14T10:31:12.345679+01:00", to="2026-03-14T09:31:12.345680Z"))
    assert [event.at for event in found.events] == [AT + timedelta(microseconds=1)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("colour", ["red"]),
        ("kind", ["plan.invented"]),
        ("kind", ["plan.viewed", ""]),
        ("agent", [""]),
        ("agent", ["a", "b"]),
        ("agent", ["a\x00"]),
        ("plan_id", ["x" * 513]),
        ("from", ["2026-03-14T09:31:12"]),
        ("from", ["yesterday"]),
        ("to", [""]),
        ("limit", ["0"]),
        ("limit", ["501"]),
        ("limit", ["-1"]),
        ("limit", ["1_0"]),
        ("limit", ["١"]),
        ("limit", ["9" * 5000]),
        ("order", ["newest"]),
        ("q", [" "]),
        ("q", ["a b c d e f g h i"]),
        ("page", ["2"]),
    ],
)
def test_l130_an_unknown_filter_or_value_is_refused_with_a_sentence(name: str, values: list[str]) -> None:
    with pytest.raises(FilterError, match=r"^.+\.$"):
        parse_search([(name, values)])


@pytest.mark.parametrize("to", ["2026-03-14T09:31:11Z", "2026-03-14T09:31:12Z"])
def test_l130_reversed_dates_are_refused(to: str) -> None:
    with pytest.raises(FilterError, match="reversed"):
        search(from_="2026-03-14T09:31:12Z", to=to)


def test_a_form_s_empty_fields_mean_nothing() -> None:
    given = [("agent", [""]), ("kind", [""]), ("q", [" "]), ("target", ["billing"])]
    assert parse_search(given, is_form=True) == search(target="billing")


@pytest.mark.parametrize("forged", ["", "x", "eyJ2IjoxfQ:AAAA", "x" * 100_000, "é:ü"])
def test_a_cursor_that_nobody_gave_is_refused(database: None, forged: str) -> None:
    with pytest.raises(FilterError, match="cursor"):
        find_events(search(cursor=forged))


def test_a_cursor_belongs_to_its_search_its_order_and_its_reader(database: None) -> None:
    for _ in range(3):
        make_event(agent="a")
    given = find_events(search(agent="a", limit="1"), reader="7").next_cursor
    assert given is not None
    assert len(find_events(search(agent="a", limit="2", cursor=given), reader="7").events) == 2
    for other, reader in (
        (search(limit="1", cursor=given), "7"),
        (search(agent="a", order="asc", cursor=given), "7"),
        (search(agent="a", cursor=given), "8"),
    ):
        with pytest.raises(FilterError, match="cursor"):
            find_events(other, reader=reader)


def test_a_count_is_exact_up_to_a_cap_and_then_says_so(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "COUNT_CAP", 20)
    make_events_at(owner_connection, AT, 20, step=timedelta(seconds=1), agent="a")
    assert count_events(search(agent="a").filters) == queries.Count(20, is_exact=True)
    make_event(agent="a", data={"word": "needle"})
    assert count_events(search(agent="a").filters) == queries.Count(20, is_exact=False)
    assert count_events(search(agent="a", q="needle").filters) == queries.Count(1, is_exact=True)
    assert count_events(search(agent="b", q="needle").filters) == queries.Count(0, is_exact=True)


@pytest.mark.parametrize("limit", ["3", "5", "6", "11", "12", "100"])
def test_pages_go_on_from_the_newest_weeks_to_older_times_and_lose_nothing(
    database: None, owner_connection: psycopg.Connection[Any], limit: str
) -> None:
    make_events_at(owner_connection, AT, 7, step=timedelta(seconds=1), agent="a")
    newest = [make_event(agent="a").id for _ in range(5)]
    found = read_all(search(agent="a", limit=limit))
    assert [event.id for event in found[:5]] == newest[::-1]
    assert [event.at for event in found[5:]] == [AT + timedelta(seconds=n) for n in range(6, -1, -1)]
    assert count_events(search(agent="a").filters) == queries.Count(12, is_exact=True)
    assert read_all(search(agent="a", limit=limit, to="0001-01-02T00:00:00Z")) == []
    until = (AT + timedelta(seconds=3)).isoformat()
    assert len(read_all(search(agent="a", limit=limit, to=until))) == 3
    assert len(read_all(search(agent="a", limit=limit, from_=until))) == 9


@pytest.mark.parametrize("limit", ["2", "3", "4", "100"])
def test_what_is_older_than_the_newest_weeks_is_read_once(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Also where many events have the instant at which the rest begins."""
    make_events_at(owner_connection, AT, 6, step=timedelta(0), agent="a")
    make_events_at(owner_connection, AT + queries.RECENT, 3, step=timedelta(0), agent="a")
    for shift in (timedelta(0), timedelta(microseconds=1)):
        until = (AT + queries.RECENT + timedelta(microseconds=1) - shift).isoformat()
        found = read_all(search(agent="a", limit=limit, to=until))
        assert len({event.id for event in found}) == len(found) == (6 if shift else 9)
        assert found == sorted(found, key=lambda event: (event.at, event.id), reverse=True)
    monkeypatch.setattr(queries, "COUNT_CAP", 8)
    assert count_events(search(agent="a").filters) == queries.Count(8, is_exact=False)
    assert count_events(search(agent="a", to=until).filters) == queries.Count(6, is_exact=True)


def test_an_event_ahead_of_the_clock_is_found_by_who_asks_for_its_time(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    ahead = datetime.now(UTC) + timedelta(days=3)
    make_events_at(owner_connection, ahead, 1, step=timedelta(seconds=1), agent="a")
    make_event(agent="a")
    asked = search(agent="a", to=(ahead + timedelta(days=90)).isoformat())
    assert find_events(asked).events[0].at == ahead
    assert find_events(asked).count == queries.Count(2, is_exact=True)
    assert len(find_events(search(agent="a")).events) == 1


def test_a_page_reads_few_blocks_also_where_a_planner_expects_few_events(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    # One in a hundred has this agent and this target, and those are the same ones, each on a page of its own.
    since = datetime.now(UTC) - timedelta(days=20)
    for number in range(180):
        at = since + timedelta(hours=number)
        make_events_at(owner_connection, at, 99, step=timedelta(seconds=30), agent="a", target="t")
        make_events_at(owner_connection, at + timedelta(minutes=55), 1, step=timedelta(0), agent="seldom", target="few")
    owner_connection.execute("VACUUM ANALYZE audit_event")
    asked = search(agent="seldom", target="few", limit="50")
    assert len(find_events(asked).events) == 50
    assert count_buffers(lambda: find_events(asked)) <= 100


def test_a_deep_page_reads_as_few_blocks_as_the_first(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    # Over three months, so that pruning and the order of partitions count.
    make_events_at(owner_connection, AT, 20_000, step=timedelta(minutes=5), agent="a", task_id="t")
    advance()
    # As autovacuum does: tests before this one have left dead rows in the newest month.
    owner_connection.execute("VACUUM ANALYZE audit_event")
    owner_connection.execute("VACUUM ANALYZE audit_sequence")
    asked = search(agent="a", task_id="t", limit="50")
    first = find_events(asked)
    assert first.next_cursor is not None
    place = queries.ByTime(at=AT + timedelta(minutes=5 * 1000), id=uuid4())
    deep = replace(asked, cursor=queries.seal(place, asked, ""))
    assert len(find_events(deep).events) == 50
    assert count_buffers(lambda: find_events(deep)) <= 100
    ascending = replace(asked, order="asc")
    place = replace(place, until=AT + timedelta(minutes=5 * 20_000), edge=queries.read_place(20_000))
    deep_ascending = replace(ascending, cursor=queries.seal(place, ascending, ""))
    assert len(find_events(deep_ascending).events) == 50
    assert count_buffers(lambda: find_events(deep_ascending)) <= 100
    by_index = replace(ascending, cursor=queries.seal(queries.read_place(10_000), ascending, ""))
    assert len(find_events(by_index).events) == 50
    assert count_buffers(lambda: find_events(by_index)) <= 100
    kinds = search(kind=["plan.viewed", "plan.approved", "audit.read"], limit="50")
    assert count_buffers(lambda: find_events(kinds)) <= 100
    event_id = UUID(first.events[0].id)
    assert count_buffers(lambda: get_event(event_id)) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_page_of_a_frequent_value_is_looked_up_where_neighbours_in_time_are_far_apart_on_disk(
    database: None, owner_connection: psycopg.Connection[Any], order: str
) -> None:
    # As writers side by side leave it: eight operations by turns, each one's hundred in a row on disk.
    for block in range(20):
        for number in range(8):
            at, names = (
                AT + timedelta(seconds=block * 800 + number),
                {"operation": f"o{number}", "request_id": "r" * 600},
            )
            make_events_at(owner_connection, at, 100, step=timedelta(seconds=8), **names)
    owner_connection.execute("VACUUM ANALYZE audit_event")
    asked = search(operation="o3", limit="50", order=order)
    assert len(find_events(asked).events) == 50
    assert count_buffers(lambda: find_events(asked)) <= 100


@pytest.mark.slow
def test_a_deep_page_of_a_time_begins_at_its_cursor(database: None, owner_connection: psycopg.Connection[Any]) -> None:
    make_events_at(owner_connection, AT, 40_000, step=timedelta(seconds=1))
    owner_connection.execute("VACUUM ANALYZE audit_event")
    asked = search(from_=AT.isoformat(), to=(AT + timedelta(seconds=39_000)).isoformat(), limit="50")
    for order, at in (("desc", 1000), ("asc", 38_000)):
        place = queries.ByTime(at=AT + timedelta(seconds=at), id=uuid4())
        if order == "asc":
            place = replace(place, until=AT + timedelta(days=2), edge=queries.ByIndex(0))
        ordered = replace(asked, order=order)
        deep = replace(ordered, cursor=queries.seal(place, ordered, ""))
        assert count_buffers(lambda deep=deep: find_events(deep)) <= 100


def test_one_event_is_found_by_its_id_alone_and_another_id_finds_nothing(database: None) -> None:
    recorded = make_event(data={"inputs": RawJson('{"n": 1.10,"big":9007199254740993}')})
    event = get_event(UUID(recorded.id))
    assert event is not None
    assert event.data == '{"inputs":{"n": 1.10,"big":9007199254740993}}'
    assert (event.at, event.actor_name, event.is_erased) == (recorded.at, "refund-bot", False)
    for other in (uuid4(), UUID(int=0), UUID(int=2**128 - 1)):
        assert get_event(other) is None


def test_l119_an_erased_payload_takes_data_and_name_and_leaves_the_event(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    recorded = make_event(actor=Actor("person", "7", "Zoë"), data={"a": 1})
    owner_connection.execute("DELETE FROM audit_payload")
    event = get_event(UUID(recorded.id))
    assert event is not None
    assert (event.data, event.actor_name, event.actor_id, event.is_erased) == (None, None, "7", True)


def test_a_plan_s_story_is_in_the_plan_s_own_order(database: None) -> None:
    plan = {"agent": "a", "target": "t", "plan_id": "p"}
    make_event(Kind.PLAN_RECEIVED, plan_seq=1, **plan)
    make_event(Kind.PLAN_VIEWED, **plan)
    make_event(Kind.COMMIT_STARTED, plan_seq=3, **plan)
    make_event(Kind.PLAN_APPROVED, plan_seq=2, **plan)
    make_event(Kind.PLAN_VIEWED, **plan)
    make_event(Kind.PLAN_RECEIVED, plan_seq=1, **{**plan, "agent": "another"})
    story = find_story(**plan)
    assert [event.kind for event in story.events] == [
        "plan.received",
        "plan.viewed",
        "plan.approved",
        "commit.started",
        "plan.viewed",
    ]
    assert not story.is_cut


@pytest.mark.slow
def test_a_search_for_words_that_takes_too_long_says_so(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "WORDS_TIMEOUT", timedelta(milliseconds=20))
    make_events_at(owner_connection, AT, 60_000, step=timedelta(seconds=1))
    with pytest.raises(queries.SearchTooLongError, match="Narrow"):
        find_events(search(q="needle haystack"))
    assert len(find_events(search(limit="1")).events) == 1
