"""The tree, the notes and the commitment against vectors that independent programs made and checked."""

import json
from pathlib import Path
from typing import Any

import pytest

from audit.canonical import commit_to
from audit.merkle import (
    EMPTY_ROOT,
    ProofError,
    compute_root,
    hash_leaf,
    prove_consistency,
    prove_inclusion,
    verify_consistency,
    verify_inclusion,
)
from audit.notes import (
    Checkpoint,
    NoteError,
    Verifier,
    append_signature,
    check_proof,
    cosign_checkpoint,
    open_checkpoint,
    read_cosignature,
    sign_checkpoint,
    write_proof,
    write_witness_request,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "tlog.json").read_text("utf-8"))
HASHES = [bytes.fromhex(leaf["leaf_hash"]) for leaf in VECTORS["leaves"]]
LOG = VECTORS["keys"]["log"]
WITNESS = VECTORS["keys"]["witness"]
ROOTS = {root["size"]: bytes.fromhex(root["root"]) for root in VECTORS["roots"]}
NOTES = {checkpoint["size"]: checkpoint["note"] for checkpoint in VECTORS["checkpoints"]}


def unhex(values: list[str]) -> list[bytes]:
    return [bytes.fromhex(value) for value in values]


def test_a_leaf_is_hashed_as_the_vectors_say() -> None:
    assert [hash_leaf(bytes.fromhex(leaf["data_hex"])) for leaf in VECTORS["leaves"]] == HASHES


def test_the_root_of_every_size_is_the_vectors() -> None:
    assert {size: compute_root(HASHES[:size]) for size in ROOTS} == ROOTS
    assert compute_root([]) == EMPTY_ROOT


@pytest.mark.parametrize("size", VECTORS["large_tree"]["sizes"])
def test_the_root_of_a_large_tree_is_the_vectors(size: str) -> None:
    hashes = [hash_leaf(f"event {index}".encode()) for index in range(int(size))]
    assert compute_root(hashes).hex() == VECTORS["large_tree"]["sizes"][size]["root"]


def test_every_inclusion_proof_is_made_as_in_the_vectors_and_verifies() -> None:
    for case in VECTORS["inclusion"]:
        proof = prove_inclusion(HASHES[: case["size"]], case["index"])
        assert proof == unhex(case["proof"])
        verify_inclusion(
            index=case["index"],
            size=case["size"],
            leaf_hash=HASHES[case["index"]],
            proof=proof,
            root=ROOTS[case["size"]],
        )


def test_every_consistency_proof_is_made_as_in_the_vectors_and_verifies() -> None:
    for case in VECTORS["consistency"]:
        proof = prove_consistency(HASHES[: case["new"]], case["old"])
        assert proof == unhex(case["proof"])
        verify_consistency(
            old=case["old"], new=case["new"], old_root=ROOTS[case["old"]], new_root=ROOTS[case["new"]], proof=proof
        )


def test_every_checkpoint_is_signed_byte_for_byte_and_opens() -> None:
    verifier = Verifier.parse(LOG["vkey"])
    assert str(verifier) == LOG["vkey"]
    for size, note in NOTES.items():
        checkpoint = Checkpoint(LOG["origin"], size, ROOTS[size])
        assert sign_checkpoint(checkpoint, bytes.fromhex(LOG["ed25519_seed_hex"])) == note
        assert open_checkpoint(note, verifier) == checkpoint


def test_a_witness_s_cosignature_is_made_byte_for_byte_and_read() -> None:
    case = VECTORS["cosigned_checkpoint"]
    verifier, signature = cosign_checkpoint(
        Checkpoint(LOG["origin"], case["size"], ROOTS[case["size"]]),
        name=WITNESS["name"],
        seed=bytes.fromhex(WITNESS["ed25519_seed_hex"]),
        at=case["timestamp"],
    )
    assert str(verifier) == WITNESS["vkey"]
    assert append_signature(NOTES[case["size"]], verifier, signature) == case["note"]
    assert read_cosignature(case["note"], verifier) == case["timestamp"]


def test_a_second_signature_of_a_kind_not_known_here_is_passed_over() -> None:
    checkpoint = open_checkpoint(VECTORS["dual_signed_checkpoint"]["note"], Verifier.parse(LOG["vkey"]))
    assert checkpoint.size == VECTORS["dual_signed_checkpoint"]["size"]


def test_a_proof_file_is_written_byte_for_byte_and_checks() -> None:
    case = VECTORS["tlog_proof"]
    size = VECTORS["cosigned_checkpoint"]["size"]
    proof = prove_inclusion(HASHES[:size], case["index"])
    note = VECTORS["cosigned_checkpoint"]["note"]
    assert write_proof(index=case["index"], hashes=proof, checkpoint_note=note) == case["text"]
    leaf_hash = hash_leaf(bytes.fromhex(case["leaf_data_hex"]))
    index, checkpoint = check_proof(case["text"], leaf_hash=leaf_hash, verifier=Verifier.parse(LOG["vkey"]))
    assert (index, checkpoint.size, checkpoint.root) == (case["index"], size, ROOTS[size])
    with pytest.raises(ProofError):
        check_proof(case["text"], leaf_hash=hash_leaf(b"another event"), verifier=Verifier.parse(LOG["vkey"]))


def test_a_witness_is_asked_in_the_words_of_the_vectors() -> None:
    case = VECTORS["witness_add_checkpoint_request"]
    proof = prove_consistency(HASHES[: case["new"]], case["old"])
    body = write_witness_request(old=case["old"], proof=proof, checkpoint_note=NOTES[case["new"]])
    assert body == case["body"]


@pytest.mark.parametrize("case", VECTORS["must_fail"], ids=lambda case: f"{case['type']}: {case['why']}")
def test_what_must_fail_fails(case: dict[str, Any]) -> None:
    match case["type"]:
        case "inclusion":
            with pytest.raises(ProofError):
                verify_inclusion(
                    index=case["index"],
                    size=case["size"],
                    leaf_hash=bytes.fromhex(case["leaf_hash"]),
                    proof=unhex(case["proof"]),
                    root=bytes.fromhex(case["root"]),
                )
        case "inclusion_against_checkpoint":
            # The mathematics alone verifies it: what refuses it is that size and root come from one checkpoint.
            honest = NOTES[4]
            text = write_proof(index=case["index"], hashes=unhex(case["proof"]), checkpoint_note=honest)
            with pytest.raises(ProofError):
                check_proof(text, leaf_hash=bytes.fromhex(case["leaf_hash"]), verifier=Verifier.parse(LOG["vkey"]))
        case "consistency":
            with pytest.raises(ProofError):
                verify_consistency(
                    old=case["old"],
                    new=case["new"],
                    old_root=bytes.fromhex(case["old_root"]),
                    new_root=bytes.fromhex(case["new_root"]),
                    proof=unhex(case["proof"]),
                )
        case "checkpoint":
            with pytest.raises(NoteError):
                open_checkpoint(case["note"], Verifier.parse(LOG["vkey"]))
        case "cosigned_checkpoint":
            with pytest.raises(NoteError):
                read_cosignature(case["note"], Verifier.parse(WITNESS["vkey"]))
        case other:
            pytest.fail(f"nobody checks {other}")


def test_a_payload_s_commitment_is_the_vectors() -> None:
    case = VECTORS["payload_commitment"]
    commitment = commit_to(bytes.fromhex(case["salt_hex"]), case["payload_utf8"].encode())
    assert commitment.hex() == case["commitment_hex"]
