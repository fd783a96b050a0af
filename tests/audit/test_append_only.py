"""Append-only, as the application's role and as the owner; and months that are always there."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection
from psycopg.errors import InsufficientPrivilege

from audit.canonical import format_at
from audit.models import Event
from tests.audit.making import make_event

THIS_MONTH = datetime.now(UTC).strftime("audit_event_%Y%m")
FAR_MONTH = datetime(2055, 5, 5, tzinfo=UTC)


@pytest.fixture
def far_month(owner_connection: psycopg.Connection[Any]) -> Iterator[str]:
    """A month made on demand, gone afterwards."""
    owner_connection.execute("SELECT audit_make_partition(%s)", [FAR_MONTH])
    yield "audit_event_205505"
    owner_connection.execute("DROP TABLE audit_event_205505")


@pytest.mark.parametrize("table", ["audit_event", THIS_MONTH])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET kind = 'plan.approved'",
        "DELETE FROM {}",
        "TRUNCATE {}",
        "ALTER TABLE {} DISABLE TRIGGER ALL",
        "ALTER TABLE {} DISABLE TRIGGER audit_event_keep",
        "DROP TABLE {} CASCADE",
        "INSERT INTO {} (id, at, kind, actor_type, actor_id, leaf) SELECT id, at, kind, '', '', '' FROM audit_event",
    ],
)
def test_l124_the_application_s_role_can_change_nothing(database: None, table: str, statement: str) -> None:
    make_event()
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as refused:
        cursor.execute(statement.format(table))
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)
    assert [event.kind for event in Event.objects.all()] == ["plan.viewed"]


@pytest.mark.parametrize("table", ["audit_payload", "audit_pending", "audit_counter"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "TRUNCATE {}", "INSERT INTO {} DEFAULT VALUES"])
def test_l124_nor_anything_beside_the_log(database: None, table: str, statement: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as refused:
        cursor.execute(statement.format(table))
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)


@pytest.mark.parametrize("setting", ["session_replication_role = replica", "ROLE plandesk_owner"])
def test_l124_the_application_s_role_cannot_put_itself_above_the_triggers(database: None, setting: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError):
        cursor.execute(f"SET {setting}")


@pytest.mark.parametrize("statement", ["UPDATE {} SET kind = 'plan.approved'", "DELETE FROM {}", "TRUNCATE {}"])
@pytest.mark.parametrize("table", ["audit_event", THIS_MONTH])
def test_the_owner_is_refused_too_as_long_as_the_triggers_stand(
    database: None, owner_connection: psycopg.Connection[Any], table: str, statement: str
) -> None:
    make_event()
    with pytest.raises(InsufficientPrivilege, match="append-only"):
        owner_connection.execute(statement.format(table))
    assert Event.objects.count() == 1


DERIVED = {"audit_word", "audit_word_block"}
"""Made from the rest of the log, and made again where they are lost."""


def test_l124_no_table_of_the_log_can_be_emptied_even_by_the_owner(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make_event()
    rows = owner_connection.execute(
        "SELECT relname FROM pg_class WHERE relname ^@ 'audit_' AND relkind IN ('r', 'p')"
        " AND relnamespace = 'public'::regnamespace ORDER BY 1"
    ).fetchall()
    tables = [str(name) for (name,) in rows if not str(name).startswith("audit_word_")]
    emptied = []
    for table in set(tables) - DERIVED:
        try:
            with owner_connection.transaction(force_rollback=True):
                owner_connection.execute(f"TRUNCATE {table}")
            emptied.append(table)
        except InsufficientPrivilege:
            pass
    assert emptied == []
    assert len(tables) > 20  # the partitions are among them


@pytest.mark.parametrize("statement", ["UPDATE {} SET kind = 'plan.approved'", "DELETE FROM {}", "TRUNCATE {}"])
def test_a_month_made_later_is_guarded_like_the_others(
    owner_connection: psycopg.Connection[Any], far_month: str, statement: str
) -> None:
    owner_connection.execute(
        "INSERT INTO audit_event (id, at, kind, actor_type, actor_id, leaf)"
        " VALUES (gen_random_uuid(), %s, 'plan.viewed', 'system', 'x', '')",
        [FAR_MONTH],
    )
    with pytest.raises(InsufficientPrivilege, match="append-only"):
        owner_connection.execute(statement.format(far_month))
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as refused:
        cursor.execute(statement.format(far_month))
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)


def test_a_payload_cannot_be_exchanged_even_by_the_owner(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make_event()
    with pytest.raises(InsufficientPrivilege, match="append-only"):
        owner_connection.execute("UPDATE audit_payload SET body = '{}'")
    with pytest.raises(InsufficientPrivilege, match="append-only"):
        owner_connection.execute("TRUNCATE audit_payload")


def test_the_models_refuse_to_write(database: None) -> None:
    event = Event.objects.get(pk=make_event().id)
    with pytest.raises(TypeError):
        event.save()
    with pytest.raises(TypeError):
        event.delete()


def test_the_months_of_a_year_are_there_ahead(database: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'audit_event'::regclass")
        assert cursor.fetchone()[0] >= 13
        cursor.execute("SELECT audit_ensure_partitions(12)")
        assert cursor.fetchone()[0] == 0


def test_a_missing_month_is_made_by_the_event_that_needs_it_while_others_write(
    database: None, owner_connection: psycopg.Connection[Any], ground: Any
) -> None:
    owner_connection.execute(f"DROP TABLE {THIS_MONTH}")
    with ground.connect_as_owner() as other, other.transaction():
        # Somebody who has just written into another month and has not committed.
        other.execute("SELECT audit_make_partition(%s)", [FAR_MONTH])
    with ground.connect_as_owner() as other, other.transaction():
        other.execute(
            "INSERT INTO audit_event (id, at, kind, actor_type, actor_id, leaf)"
            " VALUES (gen_random_uuid(), %s, 'plan.viewed', 'system', 'x', '')",
            [FAR_MONTH],
        )
        recorded = make_event()
        with pytest.raises(InsufficientPrivilege):
            owner_connection.execute(f"TRUNCATE {THIS_MONTH}")
    assert format_at(Event.objects.get(pk=recorded.id).at) == format_at(recorded.at)
    owner_connection.execute("DROP TABLE audit_event_205505")


def test_a_month_takes_no_rights_from_the_database_s_defaults(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        role = cursor.fetchone()[0]
    owner_connection.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO {role}, PUBLIC")
    try:
        owner_connection.execute("SELECT audit_make_partition(%s)", [FAR_MONTH])
        rights = owner_connection.execute(
            "SELECT has_table_privilege(%s, 'audit_event_205505', 'INSERT, UPDATE, DELETE, TRUNCATE, SELECT')", [role]
        ).fetchone()
    finally:
        owner_connection.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM {role}, PUBLIC")
        owner_connection.execute("DROP TABLE IF EXISTS audit_event_205505")
    assert rights == (False,)
