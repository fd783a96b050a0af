"""The drills: whatever a superuser does to the log is found and named, and nothing else ever is."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.test import Client
from psycopg.errors import InsufficientPrivilege

from audit.canonical import commit_to
from audit.checking import GrowingTree, Report
from audit.kinds import Kind
from audit.merkle import hash_leaf
from audit.notes import NoteError
from audit.proofs import advance, ask_django, read_checkpoint
from audit.recording import SYSTEM
from audit.signing import read_signer
from audit.tiles import TILE_WIDTH
from audit.verification import verify_log
from tests.audit.auditing import assert_problem, told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence, sequencing
from tests.audit.test_sequencer import make_many

AUDIT = "/api/v1/audit"


@pytest.fixture(autouse=True)
def _settings(settings: Any, tmp_path: Path) -> None:
    settings.ROOT_URLCONF = "tests.audit.urls"
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")


@pytest.fixture
def superuser(owner_connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """Somebody whom no trigger stops."""
    owner_connection.execute("SET session_replication_role = replica")
    return owner_connection


@pytest.fixture
def log(database: None, tmp_path: Path) -> list[str]:
    """Ids of nine sequenced events; the checkpoints are of 4 and of 9."""
    made = [make_event(data={"n": n}, agent="a").id for n in range(4)]
    sequence(tmp_path)
    made += [make_event(data={"n": n}, agent="a").id for n in range(4, 9)]
    sequence(tmp_path)
    return made


def verify(**options: Any) -> Report:
    return verify_log(actor=SYSTEM, via="test", **options)


def found(report: Report) -> list[tuple[int | None, str]]:
    return [(damage.index, damage.what) for damage in report.damage]


def test_a_whole_log_is_proven_and_what_is_not_is_said(log: list[str]) -> None:
    report = verify()
    assert report.is_whole
    assert (report.damage, report.first_bad_index) == ([], None)
    assert report.against is not None
    assert report.against.size == 9
    text = " ".join(report.proven)
    assert "9 events" in text
    assert "9 payloads" in text
    assert "2 checkpoints" in text
    assert "(kept outside the database) is a beginning" in text
    assert any("witness" in sentence for sentence in report.not_proven)
    make_event()
    assert any("newest 2 events" in sentence for sentence in verify().not_proven)


def test_one_verification_does_not_wait_for_the_server_to_part_with_the_one_before(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving: list[psycopg.Connection[Any]] = []
    with monkeypatch.context() as patched:
        # The lambda is a method and is given its connection; the bare `leaving.append` would be called without one.
        patched.setattr(psycopg.Connection, "close", lambda self: leaving.append(self))  # noqa: PLW0108 - see above
        assert verify().is_whole
        assert verify().is_whole
    assert leaving
    for one in leaving:
        one.close()


def test_an_empty_log_and_one_without_a_checkpoint_are_whole(database: None) -> None:
    assert verify().is_whole
    make_event()
    report = verify()
    assert report.is_whole
    assert any("no checkpoint" in sentence for sentence in report.not_proven)


def test_a_verification_is_an_event(log: list[str]) -> None:
    verify()
    (data,) = told("audit.verified")
    assert (data["via"], data["whole"], data["size"], data["damage_count"]) == ("test", True, 9, 0)


def test_l126_a_changed_payload_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute(
        "UPDATE audit_payload SET body = replace(body, '\"n\":5', '\"n\":6') WHERE event_id = %s", [log[5]]
    )
    report = verify()
    assert found(report) == [(5, "Its payload is not the one that its leaf commits to.")]
    assert (report.first_bad_index, report.damage[0].event_id) == (5, log[5])


def test_a_payload_that_vanished_is_named_and_one_that_was_erased_is_not(
    log: list[str], superuser: psycopg.Connection[Any], tmp_path: Path
) -> None:
    superuser.execute("DELETE FROM audit_payload WHERE event_id = ANY(%s)", [[log[2], log[6]]])
    make_event(Kind.AUDIT_ERASED, actor=SYSTEM, data={"events": [log[2]], "reason": "a person's right"})
    sequence(tmp_path)
    assert found(verify()) == [(6, "Its payload is gone, and no event tells of an erasure.")]
    make_event(Kind.AUDIT_ERASED, actor=SYSTEM, data={"events": [log[6]]})
    sequence(tmp_path)
    report = verify()
    assert report.is_whole
    assert any("2 of the events said" in sentence for sentence in report.not_proven)


def test_a_changed_leaf_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute(
        "UPDATE audit_event SET leaf ="
        " convert_to(replace(convert_from(leaf, 'UTF8'), 'refund-bot', 'somebody'), 'UTF8') WHERE id = %s",
        [log[3]],
    )
    assert found(verify()) == [(3, "Its leaf is not the one in the tree.")]


@pytest.mark.parametrize(
    "change", ["kind = 'plan.approved'", "actor_id = 'somebody'", "agent = NULL", "plan_seq = 7", "request_id = ''"]
)
def test_a_changed_column_is_named_though_the_leaf_stayed(
    change: str, log: list[str], superuser: psycopg.Connection[Any]
) -> None:
    superuser.execute(f"UPDATE audit_event SET {change} WHERE id = %s", [log[3]])
    assert found(verify()) == [(3, "What is shown of it is not what its leaf says.")]


def test_a_payload_changed_together_with_its_leaf_and_its_tile_is_found_by_the_signature(
    log: list[str], superuser: psycopg.Connection[Any]
) -> None:
    """As thorough as it gets without the signing key."""
    rewrite(superuser, log[5])
    report = verify()
    assert found(report) == [
        (4, "From here to 8, the tree is not the one of the last signed checkpoint (kept outside the database)."),
        (4, "From here to 8, the tree is not the one of the checkpoint of 9 events."),
    ]
    assert report.first_bad_index == 4


def rewrite(superuser: psycopg.Connection[Any], event_id: str) -> None:
    """Another payload, with the commitment in the leaf and the hash in the tile to match."""
    row = superuser.execute(
        "SELECT e.leaf, p.salt, p.body, s.index FROM audit_event e JOIN audit_payload p ON p.event_id = e.id"
        " JOIN audit_sequence s ON s.event_id = e.id WHERE e.id = %s",
        [event_id],
    ).fetchone()
    assert row is not None
    leaf, salt, body, index = row
    forged = body.replace('"n":', '"n":1')
    new = leaf.replace(commit_to(salt, body.encode()).hex().encode(), commit_to(salt, forged.encode()).hex().encode())
    assert new != leaf
    superuser.execute("UPDATE audit_payload SET body = %s WHERE event_id = %s", [forged, event_id])
    superuser.execute("UPDATE audit_event SET leaf = %s WHERE id = %s", [new, event_id])
    superuser.execute(
        "UPDATE audit_tile SET hashes = overlay(hashes PLACING"
        " (SELECT leaf_hash FROM audit_event WHERE id = %s) FROM %s) WHERE level = 0",
        [event_id, index * 32 + 1],
    )


def test_a_deletion_in_the_middle_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute("DELETE FROM audit_event WHERE id = %s", [log[4]])
    assert found(verify()) == [(4, "The event at this place is gone.")]
    superuser.execute("DELETE FROM audit_sequence WHERE index = 4")
    assert (4, "No event has this place any more.") in found(verify())


def test_a_deleted_tail_is_named_even_where_everything_about_it_is_gone(
    log: list[str], superuser: psycopg.Connection[Any]
) -> None:
    delete_tail(superuser, 4)
    report = verify()
    assert found(report) == [
        (4, "The tree has 4 places; the last signed checkpoint (kept outside the database) has 9. The end is missing.")
    ]
    assert report.first_bad_index == 4


def delete_tail(superuser: psycopg.Connection[Any], size: int) -> None:
    superuser.execute(
        "DELETE FROM audit_event e USING audit_sequence s WHERE s.event_id = e.id AND s.index >= %s", [size]
    )
    superuser.execute("DELETE FROM audit_sequence WHERE index >= %s", [size])
    superuser.execute("UPDATE audit_tile SET hashes = substr(hashes, 1, %s)", [size * 32])
    superuser.execute("DELETE FROM audit_checkpoint WHERE size > %s", [size])


def test_a_checkpoint_that_an_auditor_kept_shows_a_deleted_tail_too(
    log: list[str], superuser: psycopg.Connection[Any], settings: Any
) -> None:
    settings.AUDIT_STATE_FILE = ""
    kept = read_checkpoint()
    assert kept is not None
    report = verify(known=kept.note)
    assert report.is_whole
    assert "The checkpoint that you kept is a beginning of this log." in report.proven
    delete_tail(superuser, 4)
    assert verify().is_whole
    assert verify(known=kept.note).first_bad_index == 4
    with pytest.raises(NoteError):
        verify(known="a note\n")


def test_two_events_swapped_are_both_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute("ALTER TABLE audit_sequence DROP CONSTRAINT audit_sequence_once")
    try:
        superuser.execute(
            "UPDATE audit_sequence s SET event_id = o.event_id, at = o.at FROM audit_sequence o"
            " WHERE s.index IN (2, 6) AND o.index = 8 - s.index"
        )
    finally:
        superuser.execute("ALTER TABLE audit_sequence ADD CONSTRAINT audit_sequence_once UNIQUE (event_id)")
    report = verify()
    assert found(report) == [(index, "Its leaf is not the one in the tree.") for index in (2, 6)]
    assert report.first_bad_index == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_payload SET body = '{}'",
        "UPDATE audit_event SET leaf = 'x'",
        "DELETE FROM audit_event WHERE id = (SELECT id FROM audit_event LIMIT 1)",
        "DELETE FROM audit_sequence WHERE index > 4",
        "UPDATE audit_tile SET hashes = substr(hashes, 1, 128)",
        "DELETE FROM audit_checkpoint WHERE size > 4",
        "DROP TABLE {month}",
        "ALTER TABLE audit_event DETACH PARTITION {month}",
        "UPDATE audit_sequence SET index = 8 - index WHERE index IN (2, 6)",
        "DELETE FROM audit_cosignature",
        "DELETE FROM audit_pending",
        "SELECT audit_make_partition(now())",
        "SELECT audit_extend_tiles(9, sha256('x'))",
    ],
)
def test_no_drill_is_open_to_the_application_s_role(log: list[str], statement: str) -> None:
    month = ask_django("SELECT min(tableoid::regclass::text) FROM audit_event", [])[0][0]
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as refused:
        cursor.execute(statement.replace("{month}", month))
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)
    assert verify().is_whole


def test_a_dropped_partition_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    month = superuser.execute("SELECT min(tableoid::regclass::text) FROM audit_event").fetchone()
    assert month is not None
    superuser.execute(f"DROP TABLE {month[0]}")
    try:
        report = verify()
        assert (report.damage_count, report.first_bad_index) == (9, 0)
        assert {what for _, what in found(report)} == {"The event at this place is gone."}
    finally:
        advance()
        superuser.execute("SELECT audit_ensure_partitions(12)")


def test_an_event_slipped_in_past_the_writer_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute(
        "INSERT INTO audit_event (id, at, kind, actor_type, actor_id, leaf)"
        " SELECT audit_new_id(now()), now(), 'plan.approved', 'person', '7', 'x'"
    )
    assert found(verify()) == [(None, "It was put into the log past its writer: it has and awaits no place.")]


def test_an_event_gone_before_it_got_a_place_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    gone = make_event().id
    superuser.execute("DELETE FROM audit_event WHERE id = %s", [gone])
    (damage,) = verify().damage
    assert (damage.event_id, damage.what) == (gone, "It was recorded, and is gone before it got a place.")


def test_a_changed_checkpoint_and_a_changed_upper_tile_are_named(
    database: None, superuser: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make_many(superuser, 300)
    sequence(tmp_path)
    assert verify().is_whole
    superuser.execute("UPDATE audit_tile SET hashes = sha256('x') WHERE level = 1")
    assert found(verify()) == [(0, "Tile 0 of level 1 is not made of those below.")]
    superuser.execute("DELETE FROM audit_tile WHERE level = 1")
    assert not verify().is_whole


def test_a_forged_checkpoint_is_named(log: list[str], superuser: psycopg.Connection[Any]) -> None:
    superuser.execute("UPDATE audit_checkpoint SET note = replace(note, E'\\n4\\n', E'\\n3\\n')")
    assert [what.split(".")[0] for _, what in found(verify())] == ["A checkpoint in the database does not verify"]


def test_everything_re_signed_with_the_stolen_key_is_whole_to_us(
    log: list[str], superuser: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """And is the reason for witnesses: see test_witness.py."""
    re_sign(superuser, log[5], tmp_path)
    assert verify().is_whole


def re_sign(superuser: psycopg.Connection[Any], event_id: str, folder: Path) -> None:
    """Who has the key, the database and the data folder rewrites an event and everything that follows from it."""
    rewrite(superuser, event_id)
    superuser.execute("DELETE FROM audit_checkpoint")
    (folder / "signed").unlink()
    with sequencing(folder) as sequencer:
        sequencer.turn(heartbeat=0)


_TURN_A_BIT = (
    "UPDATE audit_tile SET hashes = set_byte(hashes, 44 * 32, get_byte(hashes, 44 * 32) # 1)"
    " WHERE level = 0 AND number = 1 AND %s::uuid IS NOT NULL"
)


@pytest.mark.parametrize("upset", ["payload", "column", "leaf", "gone", "tile", "erased"])
def test_damage_in_a_whole_tile_is_named_where_it_is(
    database: None, tmp_path: Path, superuser: psycopg.Connection[Any], upset: str
) -> None:
    """The log above has no whole tile: such are checked in one go."""
    make_many(superuser, 700)
    assert sequence(tmp_path) == 700
    assert verify().is_whole
    event_id = ask_django("SELECT event_id FROM audit_sequence WHERE index = 300", [])[0][0]
    statement, sentence = {
        "payload": ("UPDATE audit_payload SET body = '{}' WHERE event_id = %s", "Its payload is not the one"),
        "column": ("UPDATE audit_event SET actor_id = 'x' WHERE id = %s", "What is shown of it is not what"),
        "leaf": ("UPDATE audit_event SET leaf = '\\x00' WHERE id = %s", "Its leaf is not the one in the tree."),
        "gone": ("DELETE FROM audit_event WHERE id = %s", "The event at this place is gone."),
        "tile": (_TURN_A_BIT, "Its leaf is not the one in the tree."),
        "erased": ("DELETE FROM audit_payload WHERE event_id = %s", "Its payload is gone, and no event tells"),
    }[upset]
    superuser.execute(statement, [event_id])
    report = verify()
    assert report.first_bad_index == (0 if upset == "tile" else 300)
    assert (300, True) in [(damage.index, damage.what.startswith(sentence)) for damage in report.damage]


def test_a_checkpoint_inside_of_a_whole_tile_counts(
    database: None, tmp_path: Path, superuser: psycopg.Connection[Any]
) -> None:
    make_many(superuser, 300)
    sequence(tmp_path)
    make_many(superuser, 400)
    sequence(tmp_path)
    assert verify().is_whole
    superuser.execute("UPDATE audit_checkpoint SET root = sha256('x') WHERE size = 300")
    assert not verify().is_whole


def test_a_whole_tile_grows_the_tree_as_its_hashes_one_by_one_do() -> None:
    hashes = [hash_leaf(number.to_bytes(4)) for number in range(3 * TILE_WIDTH + 7)]
    one_by_one, by_tiles = GrowingTree(), GrowingTree()
    for leaf_hash in hashes:
        one_by_one.push(leaf_hash)
    for first in range(0, 3 * TILE_WIDTH, TILE_WIDTH):
        by_tiles.push_tile(hashes[first : first + TILE_WIDTH])
    for leaf_hash in hashes[3 * TILE_WIDTH :]:
        by_tiles.push(leaf_hash)
    assert (by_tiles.root(), by_tiles.size, by_tiles.levels) == (one_by_one.root(), len(hashes), one_by_one.levels)


@pytest.mark.slow
def test_l125_sixteen_writers_raise_no_false_alarm(database: None, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        try:
            while not stop.wait(0.002):
                make_event(data={"n": 1})
        finally:
            connection.close()

    threads = [threading.Thread(target=write) for _ in range(16)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            sequence(tmp_path)
            report = verify()
            assert report.is_whole, list(report.lines())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    sequence(tmp_path)
    assert verify().is_whole


def test_over_http_an_auditor_gets_the_verdict(client: Client, log: list[str], superuser: Any, settings: Any) -> None:
    response = client.get(f"{AUDIT}/verify")
    document = json.loads(response.content)
    assert (response.status_code, document["whole"], document["checkpoint"]["size"]) == (200, True, 9)
    superuser.execute("DELETE FROM audit_event WHERE id = %s", [log[4]])
    document = json.loads(client.get(f"{AUDIT}/verify").content)
    assert (document["whole"], document["first_bad_index"]) == (False, 4)
    superuser.execute("SELECT pg_advisory_lock(hashtext('audit_verification'))")
    assert_problem(client.get(f"{AUDIT}/verify"), 503, "unavailable")
    settings.AUDIT_SIGNING_KEY = ""
    assert_problem(client.get(f"{AUDIT}/verify"), 503, "unavailable")


@pytest.mark.slow
def test_the_command_says_it_and_ends_accordingly(
    manage: Callable[..., Any], log: list[str], superuser: psycopg.Connection[Any], tmp_path: Path, ground: Any
) -> None:
    environ = {"AUDIT_STATE_FILE": str(tmp_path / "signed")}
    done = manage("audit", "verify", environ=environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Checkpoint: {read_signer().origin}, 9 events")
    assert done.stdout.endswith("Whole: nothing is damaged.\n")
    superuser.execute("DELETE FROM audit_event WHERE id = %s", [log[4]])
    done = manage("audit", "verify", environ=environ)
    assert done.returncode == 1
    assert "the first bad index is 4" in done.stdout
    done = manage("audit", "verify", "--json", environ=environ)
    assert (done.returncode, json.loads(done.stdout)["first_bad_index"]) == (1, 4)
    done = manage("audit", "verify", "--key", "nonsense", environ=environ)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert ask_django("SELECT count(*) FROM audit_event WHERE kind = 'audit.verified'", []) == [(3,)]
