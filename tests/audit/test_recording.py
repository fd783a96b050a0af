"""The one writer: in the transaction of the change, for registered kinds, and never a flood."""

import hashlib
import hmac
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from audit.canonical import PayloadError
from audit.context import set_request_id
from audit.kinds import CAPPED_KINDS, TERMINAL_KINDS, UNKNOWN_AGENT_BUCKET, Kind
from audit.models import Event
from audit.recording import SYSTEM, Actor, record, record_capped
from audit.summaries import find_counted
from tests.audit.making import AGENT, make_event


def count_rows(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


def test_an_event_has_the_database_s_time_its_own_id_and_what_was_said(database: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        before = cursor.fetchone()[0]
    recorded = make_event(
        Kind.PLAN_RECEIVED, agent="a", target="t", plan_id="p", plan_seq=1, task_id="k", operation="o"
    )
    event = Event.objects.get(pk=recorded.id)
    assert before <= recorded.at <= before + timedelta(seconds=10)
    assert (event.kind, event.at, event.actor_type, event.actor_id) == (
        "plan.received",
        recorded.at,
        "agent",
        "refund-bot",
    )
    assert (event.agent, event.target, event.plan_id, event.plan_seq) == ("a", "t", "p", 1)
    assert (event.task_id, event.operation, event.request_id, event.on_behalf_of) == ("k", "o", None, None)
    assert UUID(recorded.id).version == 7


def test_an_event_s_id_holds_its_millisecond(database: None) -> None:
    recorded = make_event()
    since_1970 = recorded.at - datetime.fromtimestamp(0, UTC)
    assert UUID(recorded.id).int >> 80 == since_1970 // timedelta(milliseconds=1)


def test_an_id_holds_its_microsecond_and_its_chance(owner_connection: psycopg.Connection[Any]) -> None:
    rows = owner_connection.execute(
        "SELECT at, audit_new_id(at, '\\xff11223344556677')"
        " FROM (SELECT timestamptz '2026-01-01' + random() * interval '200 years' FROM generate_series(1, 2000)) t (at)"
    ).fetchall()
    for at, made in rows:
        since_1970 = (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        assert made.int >> 64 == since_1970 // 1000 << 16 | 0x7000 | since_1970 % 1000 * 4096 // 1000
        assert made.int & (1 << 64) - 1 == 0xBF11223344556677


def test_what_a_writer_s_search_path_names_is_not_what_the_log_calls(
    owner_connection: psycopg.Connection[Any],
) -> None:
    """Functions and operators of the same names before PostgreSQL's own, as whoever may make a schema could have."""
    mine = (
        "FUNCTION mine.{}(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'",
        "FUNCTION mine.{}(bytea, integer, integer) RETURNS bytea LANGUAGE sql AS 'SELECT $1'",
        "FUNCTION mine.{}(text, name) RETURNS bytea LANGUAGE sql AS $$ SELECT '\\x00'::bytea $$",
        "FUNCTION mine.{}(bytea, text) RETURNS text LANGUAGE sql AS $$ SELECT '00' $$",
        "FUNCTION mine.{}(timestamp, text) RETURNS text LANGUAGE sql AS $$ SELECT '190001' $$",
        "FUNCTION mine.{}(uuid) RETURNS bytea LANGUAGE sql AS $$ SELECT '\\x00'::bytea $$",
        "FUNCTION mine.{}() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '1900-01-01' $$",
    )
    names = (
        ("sha256", "sha512"),
        ("substr",),
        ("convert_to",),
        ("encode",),
        ("to_char",),
        ("uuid_send",),
        ("clock_timestamp",),
    )
    with owner_connection.transaction(force_rollback=True):
        owner_connection.execute("CREATE SCHEMA mine")
        for form, called in zip(mine, names, strict=True):
            for name in called:
                owner_connection.execute("CREATE " + form.format(name))
        owner_connection.execute(
            "CREATE FUNCTION mine.glue(bytea, bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1';"
            "CREATE OPERATOR mine.|| (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = mine.glue);"
            "SET LOCAL search_path = mine, pg_catalog, public"
        )
        assert owner_connection.execute("SELECT clock_timestamp()").fetchone() == (datetime(1900, 1, 1, tzinfo=UTC),)
        event_id, at = owner_connection.execute(
            "SELECT * FROM audit_record('plan.viewed', 'system', 'x', '{}')"
        ).fetchall()[0]
        owner_connection.execute("SET LOCAL search_path = public")
        rows = owner_connection.execute(
            "SELECT e.leaf, p.salt, now() FROM audit_event e JOIN audit_payload p ON p.event_id = e.id WHERE e.id = %s",
            [event_id],
        ).fetchall()
        leaf, salt, now = rows[0]
        told = json.loads(leaf)
        assert told["id"] == str(event_id)
        assert told["commitment"] == hmac.new(salt, b"{}", hashlib.sha256).hexdigest()
        assert len(salt) == 32
        assert abs(at - now) < timedelta(minutes=1)


def test_l123_a_rollback_takes_the_event_its_payload_and_its_place_along(database: None) -> None:
    with transaction.atomic():
        record(Kind.COMMIT_SUCCEEDED, actor=AGENT, data={"a": 1})
        assert count_rows("audit_event") == 1
        transaction.set_rollback(True)
    assert [count_rows(table) for table in ("audit_event", "audit_payload", "audit_pending")] == [0, 0, 0]


def test_outside_a_transaction_nothing_is_recorded(database: None) -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        record(Kind.PLAN_VIEWED, actor=AGENT)
    with pytest.raises(RuntimeError, match="transaction"):
        record_capped(Kind.LOGIN_FAILED, bucket="x", actor=AGENT)
    assert count_rows("audit_event") == 0


def test_a_kind_that_is_not_registered_is_refused(database: None) -> None:
    unregistered: Any = "plan.invented"
    with pytest.raises(ValueError, match=r"plan\.invented"):
        make_event(unregistered)


def test_l127_data_named_like_a_secret_is_refused(database: None) -> None:
    with pytest.raises(PayloadError):
        make_event(data={"plan_token": "pt_1"})
    assert count_rows("audit_event") == 0


def test_one_event_is_one_round_trip(database: None) -> None:
    statements = []

    def note(execute: Any, sql: Any, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with transaction.atomic(), connection.execute_wrapper(note):
        record(Kind.PLAN_VIEWED, actor=AGENT, data={"a": 1})
    assert len(statements) == 1


def test_the_request_under_way_is_named_unless_another_is_given(database: None) -> None:
    set_request_id("req-1")
    try:
        assert Event.objects.get(pk=make_event().id).request_id == "req-1"
        assert Event.objects.get(pk=make_event(request_id="req-2").id).request_id == "req-2"
    finally:
        set_request_id(None)


def test_l121_concurrent_writers_are_each_named_as_themselves(database: None) -> None:
    def write(number: int) -> None:
        try:
            for _ in range(10):
                make_event(actor=Actor("person", str(number), f"Person {number}"), task_id=f"task-{number}")
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = Event.objects.select_related("payload")
    assert len(events) == 80
    for event in events:
        assert event.task_id == f"task-{event.actor_id}"
        assert f'"actor_name":"Person {event.actor_id}"' in event.payload.body


def test_every_capped_kind_is_refused_by_record_and_no_other_by_record_capped(database: None) -> None:
    with transaction.atomic():
        for kind in CAPPED_KINDS:
            with pytest.raises(ValueError, match="record_capped"):
                record(kind, actor=SYSTEM)
        for kind in set(Kind) - CAPPED_KINDS:
            with pytest.raises(ValueError, match="listed"):
                record_capped(kind, bucket="b", actor=SYSTEM)
    assert not TERMINAL_KINDS & CAPPED_KINDS


def test_beyond_the_cap_of_a_minute_a_bucket_is_counted_and_not_listed(database: None, settings: Any) -> None:
    settings.EVENT_CAP_PER_MINUTE = 3
    listed = []
    for _ in range(5):
        with transaction.atomic():
            listed.append(record_capped(Kind.WEBHOOK_REJECTED, bucket=UNKNOWN_AGENT_BUCKET, actor=SYSTEM) is not None)
    with transaction.atomic():
        assert record_capped(Kind.WEBHOOK_REJECTED, bucket="a-known-agent", actor=SYSTEM) is not None
    now = datetime.now(UTC)
    counted = find_counted(since=now - timedelta(minutes=5), until=now + timedelta(minutes=5))
    # A minute may turn between two of the five.
    assert len(listed) == 5
    assert listed[:3] == [True] * 3
    assert sum(listed) == 5 - sum(row.unlisted for row in counted)
    assert {row.bucket for row in counted} <= {UNKNOWN_AGENT_BUCKET}
    assert (
        find_counted(since=now - timedelta(minutes=5), until=now + timedelta(minutes=5), kinds=[Kind.LOGIN_FAILED])
        == []
    )


def test_a_flood_from_many_connections_lists_exactly_the_cap(database: None, settings: Any) -> None:
    settings.EVENT_CAP_PER_MINUTE = 7

    def flood() -> None:
        try:
            for _ in range(10):
                with transaction.atomic():
                    record_capped(Kind.LOGIN_FAILED, bucket="203.0.113.9", actor=SYSTEM)
        finally:
            connection.close()

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), sum(counted), sum(least(counted, 7)) FROM audit_counter")
        _, counted, expected = cursor.fetchone()
    assert counted == 40
    assert count_rows("audit_event") == expected


def test_counters_that_stayed_below_the_cap_are_tidied_and_others_kept(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    owner_connection.execute(
        "INSERT INTO audit_counter SELECT 'login.failed', b, now() - interval '2 hours', n"
        " FROM (VALUES ('few', 60), ('many', 61)) AS v (b, n)"
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT audit_tidy_counters(60)")
        cursor.execute("SELECT bucket FROM audit_counter")
        assert cursor.fetchall() == [("many",)]


def test_an_address_beyond_the_cap_is_forgotten_after_thirty_days_and_its_number_is_not(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    owner_connection.execute(
        "INSERT INTO audit_counter SELECT kind, bucket, date_trunc('minute', now()) - days * interval '1 day', n FROM"
        " (VALUES ('login.failed', '203.0.113.7', 31, 70), ('login.failed', '203.0.113.8', 31, 65),"
        "  ('login.failed', '203.0.113.9', 29, 80), ('feed.refused', 'bot', 31, 90)) AS v (kind, bucket, days, n)"
    )

    def kept() -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT audit_tidy_counters(60)")
            cursor.execute("SELECT kind, bucket, counted - 60 FROM audit_counter ORDER BY kind, bucket")
            return cursor.fetchall()

    rest = [("feed.refused", "bot", 30), ("login.failed", "", 15), ("login.failed", "203.0.113.9", 20)]
    assert kept() == rest
    assert kept() == rest
    owner_connection.execute(
        "INSERT INTO audit_counter SELECT 'login.failed', '203.0.113.10', minute, 64 FROM audit_counter"
        " WHERE bucket = ''"
    )
    assert kept() == [rest[0], ("login.failed", "", 19), rest[2]]
