"""The tree over HTTP: a proof, a checkpoint, a key and tiles, enough for somebody else's program to check all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from audit.merkle import compute_root, hash_leaf
from audit.notes import Verifier, check_proof, open_checkpoint
from audit.proofs import advance, ask_django
from audit.signing import read_signer
from audit.tiles import tiles_of
from tests.audit.auditing import assert_problem, told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.audit.test_sequencer import make_many

AUDIT = "/api/v1/audit"


@pytest.fixture(autouse=True)
def _addresses(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.audit.urls"


def read_verifier(client: Client) -> Verifier:
    return Verifier.parse(client.get(f"{AUDIT}/key").content.decode().strip())


def test_an_event_s_proof_leads_from_its_leaf_to_the_signed_root(client: Client, tmp_path: Path) -> None:
    made = [make_event().id for _ in range(6)]
    sequence(tmp_path)
    verifier = read_verifier(client)
    for index, event_id in enumerate(made):
        response = client.get(f"{AUDIT}/events/{event_id}/proof")
        assert (response.status_code, response["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert f'"{event_id}.tlog-proof"' in response["Content-Disposition"]
        event = json.loads(client.get(f"{AUDIT}/events/{event_id}").content)
        assert event["index"] == index
        proven, checkpoint = check_proof(
            response.content.decode(), leaf_hash=bytes.fromhex(event["leaf_hash"]), verifier=verifier
        )
        assert (proven, checkpoint.size) == (index, 6)
    assert {"via": "api", "proof_of": made[0]} in told("audit.read")


def test_an_event_not_sequenced_yet_has_no_index_and_its_proof_comes_later(client: Client, tmp_path: Path) -> None:
    event_id = make_event().id
    assert "index" not in json.loads(client.get(f"{AUDIT}/events/{event_id}").content)
    for _ in range(2):
        response = client.get(f"{AUDIT}/events/{event_id}/proof")
        assert_problem(response, 503, "unavailable")
        assert response["Retry-After"] == "2"
        advance()
    sequence(tmp_path)
    assert client.get(f"{AUDIT}/events/{event_id}/proof").status_code == 200


@pytest.mark.parametrize("event_id", ["1", "%00", "6f0c1b1e-7c1d-4f6e-9a53-0d3b8f1e2a44"])
def test_an_id_of_no_event_has_no_proof(event_id: str, client: Client) -> None:
    assert_problem(client.get(f"{AUDIT}/events/{event_id}/proof"), 404, "not-found")


def test_before_the_first_checkpoint_there_is_none(client: Client) -> None:
    assert_problem(client.get(f"{AUDIT}/checkpoint"), 503, "unavailable")


def test_the_key_is_the_public_half_and_can_be_set_without_the_other(client: Client, settings: Any) -> None:
    verifier = read_verifier(client)
    assert verifier == read_signer().verifier
    settings.AUDIT_SIGNING_KEY = ""
    assert_problem(client.get(f"{AUDIT}/key"), 503, "unavailable")
    settings.AUDIT_VERIFIER_KEY = str(verifier)
    assert read_verifier(client) == verifier
    settings.AUDIT_VERIFIER_KEY = "nonsense"
    assert_problem(client.get(f"{AUDIT}/key"), 503, "unavailable")


def test_tiles_give_a_mirror_the_whole_tree(client: Client, owner_connection: Any, tmp_path: Path) -> None:
    make_many(owner_connection, 600)
    sequence(tmp_path)
    checkpoint = open_checkpoint(client.get(f"{AUDIT}/checkpoint").content.decode(), read_verifier(client))
    assert checkpoint.size == 600
    leaves: list[bytes] = []
    hashes: list[bytes] = []
    for path in tiles_of(checkpoint.size):
        response = client.get(f"{AUDIT}/{path}")
        assert (response.status_code, response["Content-Type"]) == (200, "application/octet-stream")
        if path.level == 0:
            hashes += [response.content[at : at + 32] for at in range(0, len(response.content), 32)]
            entries = client.get(f"{AUDIT}/{str(path).replace('tile/0/', 'tile/entries/')}").content
            while entries:
                length = int.from_bytes(entries[:2])
                leaves.append(entries[2 : 2 + length])
                entries = entries[2 + length :]
    assert [hash_leaf(leaf) for leaf in leaves] == hashes
    assert compute_root(hashes) == checkpoint.root
    assert client.get(f"{AUDIT}/tile/0/002.p/10").content == b"".join(hashes[512:522])
    assert len(told("audit.read")) == 3


def test_no_tile_reaches_beyond_the_signed_checkpoint(client: Client, tmp_path: Path) -> None:
    make_event()
    sequence(tmp_path)
    make_event()
    advance()
    assert ask_django("SELECT octet_length(hashes) FROM audit_tile", []) == [(64,)]
    assert client.get(f"{AUDIT}/tile/0/000.p/1").status_code == 200
    for path in ("0/000.p/2", "0/000", "1/000.p/1", "entries/000.p/2", "0/0", "colour/000", "0/000.p/0", "%00"):
        assert_problem(client.get(f"{AUDIT}/tile/{path}"), 404, "not-found")


@pytest.mark.parametrize("path", ["checkpoint", "key", "tile/0/000", "events/1/proof"])
def test_the_tree_is_for_auditors(path: str, client: Client, auditor: Any) -> None:
    assert_problem(Client().get(f"{AUDIT}/{path}"), 401, "unauthenticated")
    assert_problem(client.post(f"{AUDIT}/{path}"), 405, "method-not-allowed")
    auditor.is_auditor, auditor.is_reviewer = False, True
    auditor.save()
    assert_problem(client.get(f"{AUDIT}/{path}"), 403, "forbidden")
