"""The sequencer: places without gaps, a tree that is the leaves', signatures that never contradict one another."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction

from audit.connections import open_connection
from audit.kinds import Kind
from audit.merkle import compute_root, hash_leaf
from audit.models import Event
from audit.notes import Checkpoint, open_checkpoint
from audit.proofs import advance, ask_django, count_pending, read_checkpoint, read_size, read_tree
from audit.sequencer import BATCH, BUSY, SequencingStopped
from audit.signing import SignedState, SigningRefused, read_signer
from tests.audit.making import make_event
from tests.audit.sequencing import sequence, sequencing
from tests.audit.test_tiles import build_tiles
from tests.racing import wait_until


def read_leaves() -> list[bytes]:
    """The leaves by place, checked to be contiguous."""
    rows = ask_django(
        "SELECT s.index, e.leaf FROM audit_sequence s JOIN audit_event e ON e.id = s.event_id ORDER BY s.index", []
    )
    assert [index for index, _ in rows] == list(range(len(rows)))
    return [bytes(leaf) for _, leaf in rows]


def make_many(owner: psycopg.Connection[Any], count: int) -> None:
    owner.execute(
        "SELECT count(audit_record('plan.viewed', 'agent', 'a', audit_payload_text('a', NULL)))"
        " FROM generate_series(1, %s)",
        [count],
    )


def test_every_committed_event_gets_one_place_and_leaves_the_outbox(database: None, tmp_path: Path) -> None:
    made = [make_event().id for _ in range(5)]
    with sequencing(tmp_path) as sequencer:
        assert sequencer.turn(heartbeat=3600).moved == 5
        made.append(make_event().id)
        assert sequencer.turn(heartbeat=3600).moved == 1
        turn = sequencer.turn(heartbeat=3600)
        assert (turn.moved, turn.signed) == (0, None)
    rows = ask_django("SELECT index, event_id::text FROM audit_sequence ORDER BY index", [])
    assert rows == list(enumerate(made))
    assert count_pending() == 0


def test_a_checkpoint_is_signed_over_the_leaves_themselves(database: None, tmp_path: Path) -> None:
    for _ in range(3):
        make_event()
    sequence(tmp_path)
    stored = read_checkpoint()
    assert stored is not None
    checkpoint = open_checkpoint(stored.note, read_signer().verifier)
    root = compute_root([hash_leaf(leaf) for leaf in read_leaves()])
    assert checkpoint == Checkpoint(settings.AUDIT_ORIGIN, 3, root)
    assert (tmp_path / "signed").read_text() == stored.note
    assert (tmp_path / "signed").stat().st_mode & 0o077 == 0


def test_tiles_grow_to_what_they_are_when_built_at_once(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    for count in (1, 254, 1, 1, 255, 300, 1100):
        make_many(owner_connection, count)
        assert advance(700) == count
    leaves = read_leaves()
    stored = ask_django("SELECT level, number, hashes FROM audit_tile", [])
    assert {(level, number): bytes(hashes) for level, number, hashes in stored} == build_tiles(
        [hash_leaf(leaf) for leaf in leaves]
    )
    assert read_tree(len(leaves)).root() == compute_root([hash_leaf(leaf) for leaf in leaves])


def test_a_long_backlog_is_drained_in_batches(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make_many(owner_connection, BATCH + 100)
    with sequencing(tmp_path) as sequencer:
        assert sequencer.turn(heartbeat=0).moved == BATCH + 100
    assert read_size() == BATCH + 100


def test_an_event_that_commits_late_comes_later_and_nobody_waits_for_it(
    database: None, ground: Any, tmp_path: Path
) -> None:
    with ground.connect_as_owner() as slow, slow.transaction():
        row = slow.execute(
            "SELECT event_id FROM audit_record('plan.viewed', 'system', 'slow', audit_payload_text('slow', NULL))"
        ).fetchone()
        make_event()
        assert sequence(tmp_path) == 1
    assert sequence(tmp_path) == 2
    assert ask_django("SELECT event_id FROM audit_sequence WHERE index = 1", []) == [row]


def test_when_idle_a_heartbeat_says_the_same_again(database: None, tmp_path: Path) -> None:
    make_event()
    with sequencing(tmp_path) as sequencer:
        first = sequencer.turn(heartbeat=0).signed
        assert sequencer.turn(heartbeat=0).signed == first
        assert sequencer.turn(heartbeat=3600).signed is None
    assert ask_django("SELECT count(*), count(DISTINCT note) FROM audit_checkpoint", []) == [(2, 1)]


def test_an_empty_log_signs_the_empty_tree(database: None, tmp_path: Path) -> None:
    assert sequence(tmp_path) == 0


def test_one_leads_and_the_other_stands_by(database: None, tmp_path: Path) -> None:
    with sequencing(tmp_path), open_connection() as other, pytest.raises(AssertionError), sequencing(tmp_path):
        other.execute("SELECT 1")
    with sequencing(tmp_path):
        pass


def test_readers_and_the_sequencer_never_give_two_places(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make_many(owner_connection, 2000)

    def push() -> None:
        try:
            while count_pending():
                advance(50)
        finally:
            connection.close()

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    sequence(tmp_path)
    for thread in threads:
        thread.join()
    assert len(read_leaves()) == 2000
    assert read_tree(2000).root() == compute_root([hash_leaf(leaf) for leaf in read_leaves()])


def test_an_event_that_is_not_what_was_recorded_stops_the_tree(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    bad, good = make_event(), make_event()
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_event WHERE id = %s", [bad.id])
    with sequencing(tmp_path) as sequencer, pytest.raises(SequencingStopped, match=bad.id):
        sequencer.turn(heartbeat=0)
    assert (read_size(), count_pending(), advance()) == (0, 2, 0)
    assert Event.objects.get().pk.hex == good.id.replace("-", "")


def test_a_leaf_whose_hash_is_another_s_stops_the_tree(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    made = make_event()
    with owner_connection.transaction(force_rollback=True):
        # What only a superuser can do: the hash is no longer computed, and then it is written.
        owner_connection.execute("SET session_replication_role = replica")
        owner_connection.execute("ALTER TABLE audit_event ALTER COLUMN leaf_hash DROP EXPRESSION")
        owner_connection.execute("UPDATE audit_event SET leaf_hash = sha256('another')")
        with pytest.raises(psycopg.errors.DataCorrupted, match=made.id), owner_connection.transaction():
            owner_connection.execute("SELECT audit_advance(10)")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_tile SET hashes = sha256('x')",
        "UPDATE audit_tile SET number = 7",
        "DELETE FROM audit_tile",
        "TRUNCATE audit_tile",
        "UPDATE audit_sequence SET index = 9",
        "DELETE FROM audit_sequence",
        "TRUNCATE audit_sequence",
        "DELETE FROM audit_checkpoint",
        "UPDATE audit_checkpoint SET note = ''",
        "TRUNCATE audit_checkpoint",
        "TRUNCATE audit_cosignature",
        "INSERT INTO audit_sequence SELECT index + 1, gen_random_uuid(), at FROM audit_sequence",
    ],
)
def test_l124_the_tree_is_append_only_too(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path, statement: str
) -> None:
    make_event()
    sequence(tmp_path)
    with open_connection() as application, pytest.raises(psycopg.errors.InsufficientPrivilege):
        application.execute(statement)
    if not statement.startswith("INSERT"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owner_connection.execute(statement)


class Backup:
    """A copy of the log's tables, and their state put back: what restoring a backup does to them."""

    TABLES = (
        "audit_event", "audit_payload", "audit_pending", "audit_sequence", "audit_tile", "audit_checkpoint",
        "audit_cosignature",
    )  # fmt: skip

    def __init__(self, owner: psycopg.Connection[Any]) -> None:
        self.owner = owner
        owner.execute("CREATE SCHEMA backup")
        for table in self.TABLES:
            owner.execute(f"CREATE TABLE backup.{table} AS TABLE {table}")

    def restore(self) -> None:
        self.owner.execute("SET session_replication_role = replica")
        for table in self.TABLES:
            columns = "id, at, kind, actor_type, actor_id, leaf" if table == "audit_event" else "*"
            into = f" ({columns})" if columns != "*" else ""
            self.owner.execute(f"DELETE FROM {table}")
            self.owner.execute(f"INSERT INTO {table}{into} SELECT {columns} FROM backup.{table}")
        self.owner.execute("SET session_replication_role = origin")


@pytest.fixture
def take_backup(owner_connection: psycopg.Connection[Any]) -> Iterator[Callable[[], Backup]]:
    yield lambda: Backup(owner_connection)
    owner_connection.execute("DROP SCHEMA IF EXISTS backup CASCADE")


def test_a_restored_backup_is_refused_a_signature_and_told_why(
    database: None, take_backup: Callable[[], Backup], tmp_path: Path
) -> None:
    make_event()
    sequence(tmp_path)
    backup = take_backup()
    make_event()
    assert sequence(tmp_path) == 2
    backup.restore()
    with sequencing(tmp_path) as sequencer, pytest.raises(SigningRefused, match=r"1 events .* 2: .*backup"):
        sequencer.turn(heartbeat=0)
    # Written on to the same size and beyond, it is another log.
    for _ in range(2):
        make_event()
        with sequencing(tmp_path) as sequencer, pytest.raises(SigningRefused, match="Nothing is signed"):
            sequencer.turn(heartbeat=0)
    assert [row[0] for row in ask_django("SELECT size FROM audit_checkpoint", [])] == [1]


def test_a_tree_rewritten_below_what_was_signed_is_refused(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for _ in range(3):
        make_event()
    sequence(tmp_path)
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("UPDATE audit_tile SET hashes = substr(hashes, 33) || sha256('x')")
    with sequencing(tmp_path) as sequencer, pytest.raises(SigningRefused, match="rewritten"):
        sequencer.turn(heartbeat=0)
    make_event()
    with sequencing(tmp_path) as sequencer, pytest.raises(SigningRefused, match="rewritten"):
        sequencer.turn(heartbeat=0)


def test_a_lost_state_file_is_refused_until_somebody_takes_the_database_s_word(database: None, tmp_path: Path) -> None:
    make_event()
    sequence(tmp_path)
    (tmp_path / "signed").unlink()
    with sequencing(tmp_path) as sequencer:
        with pytest.raises(SigningRefused, match="--trust-database"):
            sequencer.turn(heartbeat=0)
        sequencer.trust_database()
        assert sequencer.turn(heartbeat=0).signed is not None
        with pytest.raises(SigningRefused, match="it counts"):
            sequencer.trust_database()


def test_a_state_file_of_another_key_is_refused(database: None, tmp_path: Path) -> None:
    make_event()
    (tmp_path / "signed").write_text("another log's\n")
    with sequencing(tmp_path) as sequencer, pytest.raises(SigningRefused, match="does not hold a checkpoint"):
        sequencer.turn(heartbeat=0)


def test_a_crash_between_places_and_signature_is_made_good(database: None, tmp_path: Path) -> None:
    make_event()
    sequence(tmp_path)
    make_event()
    assert advance() == 1
    assert sequence(tmp_path) == 2


def test_a_crash_between_the_state_file_and_the_publication_is_made_good(database: None, tmp_path: Path) -> None:
    make_event()
    sequence(tmp_path)
    before = (tmp_path / "signed").read_text()
    make_event()
    shutil.copy(tmp_path / "signed", tmp_path / "copy")
    with sequencing(tmp_path) as sequencer:
        sequencer.drain()
        tree = read_tree(2, sequencer.ask)
        sequencer.state.write(sequencer.signer.sign(Checkpoint(settings.AUDIT_ORIGIN, 2, tree.root())))
    assert (tmp_path / "signed").read_text() != before
    assert sequence(tmp_path) == 2


def test_a_refusal_is_an_event_once_and_once_it_ends(
    database: None, take_backup: Callable[[], Backup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from audit import sequencer as module

    monkeypatch.setattr(module, "AFTER_REFUSAL", 0.05)
    monkeypatch.setattr(settings, "AUDIT_STATE_FILE", str(tmp_path / "signed"))
    SignedState(tmp_path / "signed", read_signer().verifier).write(
        read_signer().sign(Checkpoint(settings.AUDIT_ORIGIN, 500, bytes(32)))
    )
    make_event()
    stop = threading.Event()
    thread = threading.Thread(target=lambda: (module.run(stop), connection.close()))
    thread.start()
    try:
        wait_until(lambda: Event.objects.filter(kind=Kind.LOG_CHANGED.value).exists())
        time.sleep(0.3)
        told = Event.objects.filter(kind="log.changed").select_related("payload")
        assert [json.loads(event.payload.body)["data"]["change"] for event in told] == ["signing_refused"]
        assert "500" in told[0].payload.body
        (tmp_path / "signed").unlink()
        wait_until(lambda: Event.objects.filter(kind="log.changed").count() == 2)
    finally:
        stop.set()
        thread.join(10)
    assert read_checkpoint() is not None


def test_words_wait_while_writers_are_busy_and_catch_up_when_they_are_not(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    def blocks() -> int:
        return int(ask_django("SELECT count(*) FROM audit_word_block", [])[0][0])

    with sequencing(tmp_path) as sequencer:
        make_many(owner_connection, BUSY)
        sequencer.turn(heartbeat=3600)
        read_first = blocks()
        assert read_first == BUSY // 256
        # What was read took its share of the time for a while.
        sequencer._words_due = time.monotonic() + 3600
        make_many(owner_connection, BUSY)
        sequencer.turn(heartbeat=3600)
        assert blocks() == read_first
        make_many(owner_connection, 10)
        sequencer.turn(heartbeat=3600)
        assert blocks() == (2 * BUSY + 10) // 256


def test_busy_writers_leave_words_their_share_of_the_time(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[float] = []
    with sequencing(tmp_path) as sequencer:
        ask = sequencer._ask

        def ask_timed(statement: str, parameters: Any) -> Any:
            began = time.monotonic()
            answer = ask(statement, parameters)
            if "audit_read_words" in statement:
                took.append(time.monotonic() - began)
            return answer

        monkeypatch.setattr(sequencer, "_ask", ask_timed)
        make_many(owner_connection, 4 * BUSY)
        sequencer.turn(heartbeat=3600)
        left = sequencer._words_due - time.monotonic()
    (reading,) = took
    assert 8.5 * reading < left < 9.5 * reading


@pytest.mark.parametrize(
    ("damage", "refusal"),
    [
        ("DELETE FROM audit_tile WHERE level = 1", SigningRefused),
        ("UPDATE audit_tile SET hashes = substr(hashes, 1, 32) WHERE level = 0 AND number = 1", SequencingStopped),
        ("INSERT INTO audit_pending SELECT at, event_id FROM audit_sequence WHERE index = 7", SequencingStopped),
    ],
)
def test_a_damaged_tree_is_said_and_not_died_of(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path, damage: str, refusal: type[Exception]
) -> None:
    with transaction.atomic():
        for _ in range(260):
            make_event()
    with sequencing(tmp_path) as sequencer:
        sequencer.turn(heartbeat=0)
        make_event()
        owner_connection.execute("SET session_replication_role = replica")
        owner_connection.execute(damage)
        with pytest.raises(refusal):
            sequencer.turn(heartbeat=0)


def test_a_right_that_was_taken_from_the_sequencer_stops_it_with_a_sentence(
    database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make_event()
    with sequencing(tmp_path) as sequencer:
        ((role,),) = sequencer.ask("SELECT current_user", [])
        owner_connection.execute(f"REVOKE EXECUTE ON FUNCTION audit_advance(integer) FROM {role}")
        try:
            with pytest.raises(SequencingStopped, match="permission denied"):
                sequencer.turn(heartbeat=0)
        finally:
            owner_connection.execute(f"GRANT EXECUTE ON FUNCTION audit_advance(integer) TO {role}")
