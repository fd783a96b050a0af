"""Reading on, oldest first: nothing lost and nothing twice, however slow a writer is."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection

from audit.cursors import ByIndex, ByTime, seal, unseal
from audit.filters import FilterError, Search, parse_search
from audit.proofs import advance, ask_django
from audit.queries import find_events
from tests.audit.making import make_event

ASKED = parse_search([("order", ["asc"]), ("task_id", ["t"]), ("limit", ["10"])])


class Reader:
    """Somebody who keeps the cursor and all that was read by it."""

    def __init__(self, asked: Search = ASKED) -> None:
        self.asked = asked
        self.ids: list[str] = []

    def read(self) -> int:
        page = find_events(self.asked)
        assert page.next_cursor is not None
        self.asked = replace(self.asked, cursor=page.next_cursor)
        self.ids += [event.id for event in page.events]
        return len(page.events)

    def read_up(self) -> None:
        while self.read():
            pass


@pytest.fixture
def slow_writer(ground: Any, database: None) -> Iterator[psycopg.Connection[Any]]:
    with ground.connect_as_owner() as writer:
        writer.autocommit = False
        yield writer
        writer.rollback()


def write_slowly(writer: psycopg.Connection[Any]) -> str:
    row = writer.execute(
        "SELECT event_id FROM audit_record('plan.viewed', 'system', 'slow', audit_payload_text('slow', NULL),"
        " p_task_id => 't')"
    ).fetchone()
    assert row is not None
    return str(row[0])


def test_the_cursor_is_always_given_and_reads_on(database: None) -> None:
    reader = Reader()
    assert reader.read() == 0
    made = [make_event(task_id="t").id for _ in range(23)]
    make_event(task_id="another")
    assert [reader.read() for _ in range(4)] == [10, 10, 3, 0]
    made += [make_event(task_id="t").id]
    assert [reader.read(), reader.read()] == [1, 0]
    assert reader.ids == made


def test_a_writer_that_commits_late_is_neither_lost_nor_waited_for(
    database: None, slow_writer: psycopg.Connection[Any]
) -> None:
    made = [make_event(task_id="t").id for _ in range(12)]
    reader, fresh = Reader(), Reader()
    reader.read()
    slow = write_slowly(slow_writer)
    made += [make_event(task_id="t").id for _ in range(15)]
    reader.read_up()
    assert reader.ids == made
    made.append(make_event(task_id="t").id)
    reader.read_up()
    assert reader.ids == made
    slow_writer.commit()
    last = make_event(task_id="t").id
    reader.read_up()
    assert sorted(reader.ids) == sorted([*made, slow, last])
    fresh.read_up()
    assert sorted(fresh.ids) == sorted(reader.ids)


def test_a_writer_that_dies_leaves_nothing_and_stops_nobody(
    database: None, slow_writer: psycopg.Connection[Any]
) -> None:
    reader = Reader()
    write_slowly(slow_writer)
    made = [make_event(task_id="t").id]
    reader.read_up()
    slow_writer.rollback()
    made.append(make_event(task_id="t").id)
    reader.read_up()
    assert reader.ids == made


def test_late_commits_between_two_pages_of_one_window_come_once(
    database: None, slow_writer: psycopg.Connection[Any]
) -> None:
    reader = Reader()
    reader.read_up()
    slow = write_slowly(slow_writer)
    made = [make_event(task_id="t").id for _ in range(25)]
    assert reader.read() == 10
    slow_writer.commit()
    made.append(make_event(task_id="t").id)
    reader.read_up()
    assert len(reader.ids) == len(set(reader.ids)) == 27
    assert set(reader.ids) == {*made, slow}


def test_readers_lose_and_repeat_nothing_while_eight_writers_write(database: None) -> None:
    def write() -> None:
        try:
            for _ in range(40):
                make_event(task_id="t")
        finally:
            connection.close()

    threads = [threading.Thread(target=write) for _ in range(8)]
    reader = Reader()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        reader.read()
    reader.read_up()
    assert len(reader.ids) == len(set(reader.ids)) == 320


def test_kinds_and_words_are_filters_of_what_arrives_too(database: None) -> None:
    query = [("order", ["asc"]), ("kind", ["plan.viewed", "plan.approved"]), ("q", ["needle"])]
    reader = Reader(parse_search(query))
    reader.read()
    make_event(data={"word": "haystack"})
    wanted = make_event(data={"word": "needle"})
    reader.read_up()
    assert reader.ids == [wanted.id]


def test_without_filters_the_log_is_read_in_the_order_of_its_places(database: None) -> None:
    made = [make_event(task_id=str(number)).id for number in range(25)]
    reader = Reader(parse_search([("order", ["asc"]), ("limit", ["10"])]))
    reader.read_up()
    assert reader.ids == made
    page = find_events(parse_search([("order", ["asc"])]))
    assert [event.index for event in page.events] == list(range(25))


def test_what_the_sequencer_has_not_reached_is_read_all_the_same(database: None) -> None:
    reader = Reader()
    reader.read()
    made = make_event(task_id="t").id
    assert ask_django("SELECT count(*) FROM audit_pending", []) == [(1,)]
    reader.read()
    assert reader.ids == [made]


def test_a_cursor_of_before_a_restore_is_refused_rather_than_losing_something(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    for _ in range(15):
        make_event(task_id="t")
    first = find_events(ASKED)
    assert first.next_cursor is not None
    assert isinstance(unseal(first.next_cursor, ASKED, ""), ByTime)
    within = replace(ASKED, cursor=first.next_cursor)
    last = find_events(within)
    assert last.next_cursor is not None
    assert isinstance(unseal(last.next_cursor, ASKED, ""), ByIndex)
    behind = replace(ASKED, cursor=last.next_cursor)
    assert find_events(behind).events == []
    # The newest event is gone, and its place was given to another.
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_event WHERE id = (SELECT event_id FROM audit_sequence WHERE index=14)")
    owner_connection.execute("DELETE FROM audit_sequence WHERE index = 14")
    owner_connection.execute("UPDATE audit_tile SET hashes = substr(hashes, 1, 14 * 32)")
    for cursor in (within, behind):
        with pytest.raises(FilterError, match="restored"):
            find_events(cursor)
    make_event(task_id="t")
    advance()
    for cursor in (within, behind):
        with pytest.raises(FilterError, match="restored"):
            find_events(cursor)


def test_a_cursor_of_the_other_order_is_refused(database: None) -> None:
    for _ in range(3):
        make_event(task_id="t")
    down = parse_search([("task_id", ["t"]), ("limit", ["1"])])
    given = find_events(down).next_cursor
    assert given is not None
    with pytest.raises(FilterError, match="descending"):
        find_events(replace(ASKED, cursor=seal(unseal(given, down, ""), ASKED, "")))
    with pytest.raises(FilterError, match="ascending"):
        find_events(replace(down, cursor=seal(ByIndex(1), down, "")))


def test_an_event_that_was_tampered_with_stops_no_reader(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    reader = Reader()
    made = make_event(task_id="t").id
    reader.read_up()
    bad = make_event(task_id="t")
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_event WHERE id = %s", [bad.id])
    reader.read_up()
    assert reader.ids == [made]
