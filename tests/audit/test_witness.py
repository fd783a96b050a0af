"""Witnesses over real HTTP: they cosign what continues what they saw, and see what nobody else can."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from audit.connections import open_connection
from audit.notes import read_cosignature
from audit.proofs import ask_django, read_checkpoint
from audit.recording import SYSTEM
from audit.signing import read_signer
from audit.verification import verify_log
from audit.witness import Published, Round, WitnessRefused, WitnessUnreachable, cosign
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.audit.stub_witness import StubWitness, witnessing
from tests.audit.test_verification import delete_tail, re_sign


@pytest.fixture
def witness(database: None, settings: Any, tmp_path: Path) -> Iterator[StubWitness]:
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")
    with witnessing(read_signer().verifier) as witness:
        settings.AUDIT_WITNESSES = [(witness.address, str(witness.verifier))]
        yield witness


def grow(folder: Path, count: int) -> list[str]:
    made = [make_event(data={"n": n}).id for n in range(count)]
    sequence(folder)
    return made


def ask_round() -> None:
    with open_connection() as connection:
        Round(connection).run()


def test_each_checkpoint_is_cosigned_as_a_continuation_of_the_last(witness: StubWitness, tmp_path: Path) -> None:
    ask_round()
    assert witness.asked == []
    for count in (1, 4, 2):
        grow(tmp_path, count)
        ask_round()
        ask_round()
    assert witness.asked == [0, 1, 5]
    checkpoint = read_checkpoint()
    assert checkpoint is not None
    assert read_cosignature(checkpoint.note, witness.verifier) > 1_700_000_000
    report = verify_log(actor=SYSTEM, via="test")
    assert any("witness.example.test/w1 cosigned the checkpoint of 7 events" in line for line in report.proven)
    assert not any("rewrote" in line for line in report.not_proven)


def test_a_witness_that_knows_more_than_we_remember_is_asked_again(witness: StubWitness, tmp_path: Path) -> None:
    grow(tmp_path, 3)
    ask_round()
    grow(tmp_path, 2)
    published = newest()
    with open_connection() as connection:
        lines = cosign(witness.address, witness.verifier, published, old=0, ask=Round(connection).ask)
    assert read_cosignature(published.note + lines, witness.verifier)
    assert witness.asked == [0, 0, 3]


def newest() -> Published:
    checkpoint = read_checkpoint()
    assert checkpoint is not None
    ((note,),) = ask_django("SELECT note FROM audit_checkpoint ORDER BY size DESC, signed_at DESC LIMIT 1", [])
    return Published(django_settings.AUDIT_ORIGIN, checkpoint.size, note)


def test_everything_re_signed_with_the_stolen_key_is_seen_by_the_witness_alone(
    witness: StubWitness, owner_connection: Any, tmp_path: Path
) -> None:
    made = grow(tmp_path, 5)
    ask_round()
    owner_connection.execute("SET session_replication_role = replica")
    re_sign(owner_connection, made[2], tmp_path)
    owner_connection.execute("DELETE FROM audit_cosignature")
    report = verify_log(actor=SYSTEM, via="test")
    assert report.is_whole
    assert "The witness witness.example.test/w1 has cosigned nothing of this." in report.not_proven
    grow(tmp_path, 2)
    with open_connection() as connection:
        again = Round(connection)
        for _ in range(2):
            again.run()
    (change,) = told("log.changed")
    assert change["change"] == "witness_refused"
    assert "not the beginning of this log" in change["reason"]


def test_a_log_that_became_shorter_is_seen_by_the_witness(
    witness: StubWitness, owner_connection: Any, tmp_path: Path
) -> None:
    grow(tmp_path, 3)
    grow(tmp_path, 2)
    ask_round()
    owner_connection.execute("SET session_replication_role = replica")
    delete_tail(owner_connection, 3)
    with (
        open_connection() as connection,
        pytest.raises(WitnessRefused, match="cosigned 5 events of this log, which now has 3"),
    ):
        cosign(witness.address, witness.verifier, newest(), old=3, ask=Round(connection).ask)


@pytest.mark.parametrize(
    ("mode", "refusal"),
    [(500, WitnessUnreachable), (302, WitnessUnreachable), (404, WitnessRefused), (422, WitnessRefused)],
)
def test_other_answers_are_a_refusal_or_worth_another_try(
    witness: StubWitness, tmp_path: Path, mode: int, refusal: type[Exception]
) -> None:
    grow(tmp_path, 1)
    witness.mode = mode
    with open_connection() as connection, pytest.raises(refusal, match=r"^.+\.$"):
        cosign(witness.address, witness.verifier, newest(), old=0, ask=Round(connection).ask)


def test_a_witness_that_is_down_or_signs_with_another_key_stops_nothing(
    witness: StubWitness, settings: Any, tmp_path: Path
) -> None:
    grow(tmp_path, 1)
    address = witness.address
    settings.AUDIT_WITNESSES = [
        ("http://127.0.0.1:1", str(witness.verifier)),
        (address, str(type(witness.verifier)("another.test/w2", witness.verifier.type, witness.verifier.public_key))),
    ]
    ask_round()
    assert ask_django("SELECT count(*) FROM audit_cosignature", []) == [(0,)]
    assert told("log.changed") == []
