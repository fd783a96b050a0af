"""A witness that is not ours, over real HTTP: it cosigns what we publish, and sees a log that was rewritten."""

import base64
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import urllib3

from audit.connections import open_connection
from audit.notes import Verifier, read_cosignature
from audit.proofs import ask_django, prove_event, read_checkpoint
from audit.recording import SYSTEM
from audit.signing import read_signer
from audit.verification import verify_log
from audit.witness import Round
from tests.audit.auditing import told
from tests.audit.independent import find_foreign
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.audit.test_verification import re_sign
from tests.ground import free_port

NAME = "witness.example.test/w2"

pytestmark = pytest.mark.slow


class ForeignWitness:
    """aics-witness in a folder of its own, and aics-tlog beside it."""

    def __init__(self, folder: Path, log: Verifier) -> None:
        self.python, self.config, self.log = find_foreign("aics_witness"), folder / "witness.json", log
        self.address = f"http://127.0.0.1:{free_port()}"
        folder.mkdir()
        said = self.run("init", "--name", NAME, "--listen", self.address.removeprefix("http://"))
        self.verifier = Verifier.parse(next(word for word in said.split() if word.startswith(f"{NAME}+")))
        self.run("add-log", "--origin", log.name, "--vkey", str(log))

    def run(self, command: str, *more: str) -> str:
        return self.ask("aics_witness", command, "--config", str(self.config), *more)

    def ask(self, module: str, *arguments: str) -> str:
        done = subprocess.run(
            [self.python, "-m", module, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self) -> "subprocess.Popen[bytes]":
        command = [self.python, "-m", "aics_witness", "serve", "--config", str(self.config)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until and process.poll() is None:
            try:
                if urllib3.request("GET", f"{self.address}/healthz", retries=False).status == 200:
                    return process
            except urllib3.exceptions.HTTPError:
                time.sleep(0.05)
        process.kill()
        process.wait()
        raise AssertionError("The witness did not serve.")

    def status(self) -> Any:
        (log,) = json.loads(self.run("status", "--json"))["logs"]
        return log


@pytest.fixture
def witness(database: None, settings: Any, tmp_path: Path) -> Iterator[ForeignWitness]:
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")
    witness = ForeignWitness(tmp_path / "witness", read_signer().verifier)
    settings.AUDIT_WITNESSES = [(witness.address, str(witness.verifier))]
    process = witness.serve()
    yield witness
    process.terminate()
    process.wait(20)


def grow(folder: Path, count: int) -> list[str]:
    made = [make_event(data={"n": n}).id for n in range(count)]
    sequence(folder)
    return made


def ask_round() -> None:
    with open_connection() as connection:
        Round(connection).run()


def test_somebody_else_s_witness_cosigns_each_checkpoint_and_its_own_verifier_accepts_both_signatures(
    witness: ForeignWitness, tmp_path: Path
) -> None:
    made: list[str] = []
    for count in (1, 4, 300):
        made += grow(tmp_path, count)
        ask_round()
    assert witness.status()["size"] == 305
    checkpoint = read_checkpoint()
    assert checkpoint is not None
    assert read_cosignature(checkpoint.note, witness.verifier) > 1_700_000_000
    report = verify_log(actor=SYSTEM, via="test")
    assert any(f"{NAME} cosigned the checkpoint of 305 events" in line for line in report.proven)

    # What the witness itself serves of our log, and what we serve of it, under its verifier.
    kept = hashlib.sha256(witness.log.name.encode()).hexdigest()
    (tmp_path / "theirs").write_bytes(urllib3.request("GET", f"{witness.address}/{kept}/checkpoint").data)
    (tmp_path / "ours").write_text(checkpoint.note)
    keys = ("--origin", witness.log.name, "--log-key", str(witness.log), "--witness-key", str(witness.verifier))
    for note in ("theirs", "ours"):
        said = json.loads(
            witness.ask("aics_tlog", "verify-checkpoint", "--note", str(tmp_path / note), *keys, "--quorum", "1")
        )
        assert (said["ok"], said["witnesses"]) == (True, [NAME])


def test_the_tool_that_an_auditor_would_run_accepts_the_proof_of_an_event_and_no_other_leaf(
    witness: ForeignWitness, tmp_path: Path
) -> None:
    made = grow(tmp_path, 9)
    ask_round()
    text = prove_event(UUID(made[4]))
    assert text is not None
    head, _, note = text.partition("\n\n")
    _, index, *path = head.split("\n")
    ((leaf,),) = ask_django("SELECT leaf FROM audit_event WHERE id = %s", [made[4]])
    (tmp_path / "note").write_text(note)
    (tmp_path / "leaf").write_bytes(bytes(leaf))
    (tmp_path / "path").write_text("".join(f"{line}\n" for line in path))
    _, size, root = note.split("\n")[:3]
    proof = ("--index", index.removeprefix("index "), "--size", size, "--root", root, "--proof", str(tmp_path / "path"))
    said = witness.ask("aics_tlog", "verify-inclusion", "--leaf", str(tmp_path / "leaf"), *proof)
    assert json.loads(said)["ok"] is True
    (tmp_path / "leaf").write_bytes(bytes(leaf) + b" ")
    with pytest.raises(AssertionError, match='"ok": false'):
        witness.ask("aics_tlog", "verify-inclusion", "--leaf", str(tmp_path / "leaf"), *proof)
    assert all(len(base64.b64decode(line)) == 32 for line in path)


def test_a_log_re_signed_with_the_stolen_key_is_refused_by_somebody_else_s_witness_and_kept_as_evidence(
    witness: ForeignWitness, owner_connection: Any, tmp_path: Path
) -> None:
    made = grow(tmp_path, 5)
    ask_round()
    owner_connection.execute("SET session_replication_role = replica")
    re_sign(owner_connection, made[2], tmp_path)
    owner_connection.execute("DELETE FROM audit_cosignature")
    assert verify_log(actor=SYSTEM, via="test").is_whole  # nobody else can see it
    grow(tmp_path, 2)
    ask_round()
    (change,) = told("log.changed")
    assert change["change"] == "witness_refused"
    assert "not the beginning of this log" in change["reason"]
    assert (witness.status()["size"], ask_django("SELECT count(*) FROM audit_cosignature", [])) == (5, [(0,)])
    assert witness.log.name in witness.run("evidence")
