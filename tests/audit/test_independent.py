"""Four verifiers that are not ours: they accept the vectors and a log of this very run, and refuse what must fail."""

import base64
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from audit.evidence import write_pack
from audit.export import begin_export, parse_export
from audit.merkle import hash_leaf
from audit.proofs import ask_django, prove_event, read_checkpoint, read_tree
from audit.recording import SYSTEM
from audit.signing import read_signer
from reviewer.installation import PROJECT
from tests.audit.independent import GO_MOD, find_foreign, find_go, independent
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.audit.test_sequencer import make_many
from tests.audit.test_vectors import LOG, NOTES, ROOTS, VECTORS

Case = dict[str, Any]
Verifier = Callable[[list[Case]], list[bool]]
HERE = Path(__file__).parent


def ask_go(cases: list[Case]) -> list[bool]:
    environ = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GO_MOD.parents[5]), "GOFLAGS": ""}
    done = subprocess.run(
        [find_go(), "run", str(HERE / "independent.go")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environ,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [bool(verdict) for verdict in json.loads(done.stdout)]


def ask_metamorphic(cases: list[Case]) -> list[bool]:
    theirs = independent("metamorphic_log")

    def check(case: Case) -> None:
        proof = [bytes.fromhex(part) for part in case.get("proof", ())]
        match case["type"]:
            case "inclusion":
                theirs.verify_inclusion(
                    case["index"], case["size"], unhex(case, "leaf_hash"), proof, unhex(case, "root")
                )
            case "inclusion_against_checkpoint":
                theirs.checkpoint_verify_inclusion(
                    case["note"], [case["key"]], case["index"], unhex(case, "leaf_hash"), proof
                )
            case "consistency":
                theirs.verify_consistency(
                    case["old"], case["new"], proof, unhex(case, "old_root"), unhex(case, "new_root")
                )
            case "checkpoint":
                theirs.checkpoint_verify(case["note"], [case["key"]])

    return [accepts(check, case, Exception) for case in cases]


def ask_tlog_scales(cases: list[Case]) -> list[bool]:
    tlog, signing = independent("tlog_scales.tlog"), independent("tlog_scales.signing")

    def open_note(case: Case) -> Any:
        checkpoint = tlog.Checkpoint.from_text(case["note"])
        checkpoint.verify(signing.Vkey.from_string(case["key"]))
        return checkpoint

    def check(case: Case) -> None:
        proof = [bytes.fromhex(part) for part in case.get("proof", ())]
        match case["type"]:
            case "inclusion":
                found = tlog.InclusionProof(case["index"], case["size"], proof)
                found.check(unhex(case, "leaf_hash"), unhex(case, "root"))
            case "inclusion_against_checkpoint":
                checkpoint = open_note(case)
                found = tlog.InclusionProof(case["index"], checkpoint.size, proof)
                found.check(unhex(case, "leaf_hash"), checkpoint.root_hash)
            case "consistency":
                found = tlog.ConsistencyProof(case["old"], case["new"], proof)
                found.check(unhex(case, "old_root"), unhex(case, "new_root"))
            case "checkpoint":
                open_note(case)

    return [accepts(check, case, Exception) for case in cases]


def ask_aics(cases: list[Case]) -> list[bool]:
    done = subprocess.run(
        [find_foreign("aics_tlog"), str(HERE / "independent_aics.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [bool(verdict) for verdict in json.loads(done.stdout)]


def unhex(case: Case, name: str) -> bytes:
    return bytes.fromhex(case[name])


def accepts(check: Callable[[Case], None], case: Case, refusal: type[Exception]) -> bool:
    try:
        check(case)
    except refusal:
        return False
    return True


VERIFIERS: dict[str, Verifier] = {
    "go": ask_go,
    "metamorphic-log": ask_metamorphic,
    "tlog-scales": ask_tlog_scales,
    "aics-tlog": ask_aics,
}
# Texts that these programs are known to read more freely than the specification (vectors, `verified_by`).
READS_FREELY = {
    "tlog-scales": {"leading zero size", "CRLF line ends", "trailing newline missing"},
    "aics-tlog": {"trailing newline missing"},
}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.slow if name == "go" else ()) for name in VERIFIERS])
def verifier(request: pytest.FixtureRequest) -> Verifier:
    return VERIFIERS[request.param]


def of_vectors() -> list[Case]:
    key = LOG["vkey"]
    hashes = [leaf["leaf_hash"] for leaf in VECTORS["leaves"]]
    cases = [
        {**case, "type": "inclusion", "leaf_hash": hashes[case["index"]], "root": ROOTS[case["size"]].hex()}
        for case in VECTORS["inclusion"]
    ]
    cases += [
        {**case, "type": "consistency", "old_root": ROOTS[case["old"]].hex(), "new_root": ROOTS[case["new"]].hex()}
        for case in VECTORS["consistency"]
        # Of a beginning of nothing there is nothing to check; two of the three say so.
        if case["old"] >= 1
    ]
    return cases + [{"type": "checkpoint", "note": note, "key": key} for note in NOTES.values()]


def test_they_accept_the_vectors(verifier: Verifier) -> None:
    cases = of_vectors()
    refused = [case for case, verdict in zip(cases, verifier(cases), strict=True) if not verdict]
    assert refused == []


def must_fail() -> list[Case]:
    known = [case for case in VECTORS["must_fail"] if case["type"] != "cosigned_checkpoint"]
    return [{"note": NOTES[4], **case, "key": LOG["vkey"]} for case in known]


def test_they_refuse_what_must_fail(verifier: Verifier, request: pytest.FixtureRequest) -> None:
    cases = must_fail()
    accepted = {case["why"] for case, verdict in zip(cases, verifier(cases), strict=True) if verdict}
    assert len(cases) == 36
    assert accepted == READS_FREELY.get(request.node.callspec.id, set())


def of_this_run() -> list[Case]:
    """Proofs of a log that was written, sequenced and signed a moment ago, in its own words."""
    checkpoint = read_checkpoint()
    assert checkpoint is not None
    key, cases = str(read_signer().verifier), []
    rows = ask_django(
        "SELECT s.index, e.id, e.leaf FROM audit_sequence s JOIN audit_event e ON e.id = s.event_id"
        " WHERE s.index %% 37 = 0 OR s.index > 595 ORDER BY s.index",
        [],
    )
    for index, event_id, leaf in rows:
        text = prove_event(event_id)
        assert text is not None
        head, _, note = text.partition("\n\n")
        case = {"type": "inclusion_against_checkpoint", "key": key, "note": note, "index": index}
        proof = [base64.b64decode(line).hex() for line in head.split("\n")[2:]]
        cases.append({**case, "leaf_hash": hash_leaf(bytes(leaf)).hex(), "proof": proof})
    tree = read_tree(checkpoint.size)
    cases += [
        {
            "type": "consistency",
            "old": old,
            "new": tree.size,
            "old_root": tree.root_at(old).hex(),
            "new_root": tree.root().hex(),
            "proof": [part.hex() for part in tree.prove_consistency(old)],
        }
        for old in (1, 255, 256, 257, 512, 599, 600)
    ]
    return cases


def test_they_accept_a_log_of_this_very_run_and_no_other_leaf_of_it(
    verifier: Verifier, database: None, owner_connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make_many(owner_connection, 600)
    sequence(tmp_path)
    cases = of_this_run()
    assert len(cases) > 20
    proven = [case for case in cases if case["type"] != "consistency"]
    forged = [{**case, "leaf_hash": hash_leaf(b"another").hex()} for case in proven]
    verdicts = verifier(cases + forged)
    assert verdicts == [True] * len(cases) + [False] * len(forged)


def test_the_commands_in_an_evidence_pack_s_readme_work(database: None, tmp_path: Path) -> None:
    made = [make_event(agent="a", data={"n": number}).id for number in range(5)]
    sequence(tmp_path)
    form, request = parse_export([("format", ["jsonl"]), ("agent", ["a"])])
    with (tmp_path / "pack.zip").open("wb") as file:
        write_pack(begin_export(request, actor=SYSTEM, via="test", form=form), file)
    with zipfile.ZipFile(tmp_path / "pack.zip") as pack:
        pack.extractall(tmp_path / "pack")
        readme = pack.read("README.md").decode()
    lines = readme.partition("pip install tlog-scales`:")[2].partition("Python, `pip")[0]
    program = textwrap.dedent(lines).replace("INDEX", "3")
    independent("tlog_scales.tlog")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "pack", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    (tmp_path / "pack" / "leaves" / "3").write_text("another")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "pack", capture_output=True, check=False)
    assert b"InclusionProofInvalid" in done.stderr
    assert len(made) == 5


def test_the_offline_verifier_needs_neither_django_nor_a_server(database: None, tmp_path: Path) -> None:
    make_event()
    sequence(tmp_path)
    form, request = parse_export([("format", ["jsonl"])])
    with (tmp_path / "pack.zip").open("wb") as file:
        write_pack(begin_export(request, actor=SYSTEM, via="test", form=form), file)
    block = "import sys; sys.modules.update(django=None, psycopg=None, celery=None, reviewer=None)\n"
    program = block + "from audit.verify import main; sys.exit(main(sys.argv[1:]))"

    def verify(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=PROJECT,
            env={},
            capture_output=True,
            text=True,
            check=False,
        )

    done = verify(str(tmp_path / "pack.zip"), "--key", str(read_signer().verifier))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("Whole: nothing is damaged.\n")
    done = verify(str(tmp_path / "pack.zip"), "--key", LOG["vkey"], "--json")
    assert (done.returncode, json.loads(done.stdout)["whole"]) == (1, False)
    assert verify(str(tmp_path / "none.zip")).returncode == 2
    (tmp_path / "text").write_text("no export\n")
    done = verify(str(tmp_path / "text"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
