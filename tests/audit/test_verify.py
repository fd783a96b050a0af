"""The offline verifier says what it looked at, and no more: of whole files, of damaged ones, and of others."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.canonical import RawJson
from audit.closing import Asked
from audit.evidence import README, write_pack
from audit.export import begin_export, parse_export
from audit.filters import split_actor
from audit.notes import Checkpoint, Verifier, append_signature, cosign_checkpoint, sign_checkpoint
from audit.recording import SYSTEM, Actor
from audit.signing import read_signer
from audit.verify import main, verify_file
from reviewer.installation import PROJECT
from tests.audit.making import make_event
from tests.audit.sequencing import sequence

SEED = bytes(range(32))
SAME = bytes.fromhex("00" * 32)
Members = dict[str, bytes]


@pytest.fixture
def log(database: None, tmp_path: Path) -> None:
    """Seven signed events: 1, 3 and 5 of agent a, the others of b."""
    for number in range(7):
        agent = "a" if number % 2 else "b"
        make_event(agent=agent, actor=Actor("agent", agent, agent), data={"n": RawJson(f"{number}.10")})
    sequence(tmp_path)


def export(form: str = "jsonl", **query: str) -> bytes:
    chosen, request = parse_export([("format", [form]), *((name, [value]) for name, value in query.items())])
    return b"".join(begin_export(request, actor=SYSTEM, via="test", form=chosen).stream())


def make_pack(path: Path, **query: str) -> Members:
    """Writes the pack, and returns its files."""
    form, request = parse_export([("format", ["jsonl"]), *((name, [value]) for name, value in query.items())])
    with path.open("wb") as file:
        write_pack(begin_export(request, actor=SYSTEM, via="test", form=form), file)
    with zipfile.ZipFile(path) as pack:
        return {name: pack.read(name) for name in pack.namelist()}


def write(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return path


def key() -> str:
    return str(read_signer().verifier)


def verify(path: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The return code, and what was printed."""
    code = main([str(path), *arguments])
    told = capsys.readouterr()
    return code, told.out + told.err


Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    return lambda path, *arguments: verify(path, *arguments, capsys=capsys)


@pytest.fixture
def pack(log: None, tmp_path: Path) -> tuple[Path, Members]:
    path = tmp_path / "pack.zip"
    return path, make_pack(path, agent="a")


def test_a_whole_pack_says_what_is_proven_by_which_key(pack: tuple[Path, Members], check: Check) -> None:
    path, _ = pack
    code, said = check(path, "--key", key())
    assert (code, said.splitlines()[-1]) == (0, "Whole: nothing is damaged.")
    assert f"signed by the key that you named: {key()}" in said
    assert "3 events with their payloads are in the log" in said
    assert "Those events meet these filters of the manifest: agent." in said
    assert "What was asked for, and when: manifest.json says it, and no signature covers it." in said
    assert "What README.md says: of it only the zip's checksum was checked." in said
    code, said = check(path)
    assert (code, said.splitlines()[-1]) == (
        0,
        "Whole, if the key that came in the file is the log's: nothing is damaged.",
    )
    assert f"signed by the key that came in the file: {key()}" in said


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("leaves/3", lambda leaf: leaf + b" ", "3: leaves/3 is not its leaf."),
        ("leaves/3", None, "3: leaves/3 is missing."),
        ("proofs/3.tlog-proof", None, "3: proofs/3.tlog-proof is missing."),
        ("README.md", None, "README.md is missing."),
        ("manifest.json", None, "manifest.json is missing."),
        ("checkpoint.txt", None, "checkpoint.txt is missing."),
        ("key.txt", None, "key.txt is missing."),
        ("events.jsonl", None, "events.jsonl is missing."),
        ("key.txt", lambda key: key.replace(b"+", b"-"), "The manifest names another checkpoint or key"),
        ("manifest.json", lambda told: told[:-3], "manifest.json: "),
        ("manifest.json", lambda told: told.replace(b'"agent": "a"', b'"agent": "a", "agent": "b"'), "there twice"),
        ("manifest.json", lambda told: told.replace(b'"agent": "a"', b'"from": "noon"'), "The filter from is no time"),
        ("events.jsonl", lambda lines: lines.replace(b'"payload":', b'"payload":"x","payload":', 1), "Line 1 of"),
        ("events.jsonl", lambda lines: lines.replace(b'"payload":', b'"note":"x","payload":', 1), "Line 1 of"),
        ("events.jsonl", lambda lines: b"\n" + lines, "Line 1 of events.jsonl is no event."),
        ("events.jsonl", lambda lines: b"\xff\n" + lines, "Line 1 of events.jsonl is no event."),
    ],
)
def test_what_is_changed_or_missing_in_a_pack_is_damage(
    pack: tuple[Path, Members], check: Check, name: str, change: Callable[[bytes], bytes] | None, says: str
) -> None:
    path, members = pack
    if change is None:
        del members[name]
    else:
        assert change(members[name]) != members[name]
        members[name] = change(members[name])
    code, said = check(write(path, members), "--key", key())
    assert code == 1, said
    assert says in said
    if change is None and name != "events.jsonl":
        assert "DAMAGED in 1 place" in said


def test_a_salt_is_what_it_was_to_the_last_digit(pack: tuple[Path, Members], check: Check) -> None:
    """HMAC takes a key with zeros behind it for the same key."""
    path, members = pack
    lines = members["events.jsonl"]
    salt = json.loads(lines.splitlines()[0])["salt"].encode()
    for other in (salt + b"00", salt[:2] + b" " + salt[2:], b"x" + salt[1:], b""):
        code, said = check(write(path, {**members, "events.jsonl": lines.replace(salt, other)}))
        assert (code, "1: Its payload is not the one" in said) == (1, True)


@pytest.mark.parametrize("name", ["README.md", "leaves/3", "events.jsonl", "note.txt"])
def test_a_file_whose_checksum_does_not_hold_is_damage(pack: tuple[Path, Members], check: Check, name: str) -> None:
    path, members = pack
    members["note.txt"] = b"a note that no pack has"
    with zipfile.ZipFile(path, "w") as opened:
        for member, content in members.items():
            opened.writestr(member, content)
        start = opened.getinfo(name).header_offset + 30 + len(name)
    assert members[name]
    content = bytearray(path.read_bytes())
    content[start + len(members[name]) - 1] ^= 1
    path.write_bytes(content)
    code, said = check(path)
    assert code == 1
    assert said.count(f"{name} cannot be read: Bad CRC-32") == 1


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.99])
def test_a_pack_that_was_cut_is_damage(pack: tuple[Path, Members], check: Check, kept: float) -> None:
    path, _ = pack
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    code, said = check(path)
    assert (code, "it was cut or damaged" in said) == (1, True)


def test_every_file_is_checked_or_named_as_not_checked(pack: tuple[Path, Members], check: Check) -> None:
    path, members = pack
    code, said = check(write(path, {**members, "approved.txt": b"", "a\x1b[2J.txt": b"", "leaves/03": b""}))
    assert code == 0
    assert "What other files say, which no pack has: approved.txt, 'a\\x1b[2J.txt', leaves/03. Not checked." in said
    code, said = check(write(path, {**members, "leaves/": b"", "proofs/": b""}))
    assert (code, "no pack has" in said) == (0, False)
    code, said = check(write(path, {**members, "leaves/2": b"x"}))
    assert (code, "2: leaves/2 is there, and its event is not in events.jsonl." in said) == (1, True)
    with zipfile.ZipFile(write(path, members), "a") as opened:
        opened.comment = b"All of this is approved."
    assert "What the zip's comment says" in check(path)[1]
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    code, said = check(path)
    assert (code, "begins with something that is no part of the zip" in said) == (1, True)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["events.jsonl", "KEY.TXT", "leaves/3"])
def test_two_files_of_one_name_prove_nothing(pack: tuple[Path, Members], check: Check, name: str) -> None:
    path, members = pack
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(name, members[name.casefold() if name.isupper() else name])
    code, said = check(path)
    assert code == 1
    assert "more than one file of a name" in said
    assert "Proven:" not in said


@pytest.mark.parametrize(
    ("filters", "unmet"),
    [
        ({"agent": "b"}, "agent"),
        ({"kind": ["plan.approved", "plan.rejected"]}, "kind"),
        ({"from": "2999-01-01T00:00:00.000000Z"}, "from"),
        ({"to": "1999-01-01T00:00:00.000000Z"}, "to"),
        ({"target": "t"}, "target"),
        ({"plan_id": "p"}, "plan_id"),
        ({"operation": "o"}, "operation"),
        ({"task_id": "k"}, "task_id"),
        ({"actor": "b"}, "actor"),
        ({"actor": "person:a"}, "actor"),
    ],
)
def test_an_event_that_was_not_asked_for_is_damage_in_a_pack_and_in_an_export(
    pack: tuple[Path, Members], check: Check, filters: dict[str, Any], unmet: str, tmp_path: Path
) -> None:
    path, members = pack
    manifest = json.loads(members["manifest.json"]) | {"filters": filters}
    code, said = check(write(path, {**members, "manifest.json": json.dumps(manifest).encode()}))
    assert code == 1
    assert f"1: It is in the log, and not what the manifest asks for: {unmet}." in said
    assert "Any event: none of the pack's is proven." in said
    *records, last = export(agent="a").splitlines(keepends=True)
    closing = json.dumps({"export": json.loads(last)["export"] | {"filters": filters}}).encode()
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"".join([*records, closing]))
    code, said = check(file)
    assert (code, f"1: It is not what the closing line asks for: {unmet}." in said) == (1, True)


def test_what_only_the_log_can_answer_is_named(log: None, tmp_path: Path, check: Check) -> None:
    pack, file = tmp_path / "pack.zip", tmp_path / "export.jsonl"
    query = {"agent": "a", "kind": "plan.viewed", "actor": "agent:a", "from": "2020-01-01T00:00:00+02:00", "q": "10"}
    make_pack(pack, **query)
    code, said = check(pack)
    assert code == 0
    assert "meet these filters of the manifest: kind, agent, actor, from." in said
    assert "meet these filters, which only the log can answer: q." in said
    file.write_bytes(export(**query))
    assert "places, their number, kind, agent, actor, from. Not compared: q." in check(file)[1]


def test_an_actor_is_asked_for_as_the_log_takes_it() -> None:
    class Told:
        kind, at = "plan.viewed", None

        def __init__(self, actor_type: str, actor_id: str) -> None:
            self.actor_type, self.actor_id = actor_type, actor_id

    for asked in ("person:7", "robot:7", "7", ":7", "target:", "person:a:b"):
        actor_type, actor_id = split_actor(asked)
        for told in (Told(kind, name) for kind in ("person", "target") for name in ("7", "", "robot:7", ":7", "a:b")):
            is_met = told.actor_id == actor_id and actor_type in (None, told.actor_type)
            assert (Asked({"actor": asked}).find_unmet(told) is None) is is_met  # type: ignore[arg-type]


def test_only_what_is_proven_is_counted_and_once(pack: tuple[Path, Members], check: Check) -> None:
    path, members = pack
    first, second, third = members["events.jsonl"].splitlines(keepends=True)
    for lines, count in (
        ([first, second.replace(b"3.10", b"4.10"), third], 2),
        ([first, second, second, third], 3),
        ([first, third, second], 2),
        ([second.replace(b"plan.viewed", b"plan.voided")], 0),
    ):
        code, said = check(write(path, {**members, "events.jsonl": b"".join(lines)}))
        assert code == 1
        assert (f"{count} events with their payloads" if count else "Any event: none of the pack's is proven.") in said


def test_a_missing_payload_is_not_said_to_be_erased(pack: tuple[Path, Members], check: Check) -> None:
    """Whoever hands on the pack can take one out."""
    path, members = pack
    first, *rest = members["events.jsonl"].splitlines(keepends=True)
    event = json.loads(first)
    bare = json.dumps(event | {"salt": None, "payload": None}).encode() + b"\n"
    code, said = check(write(path, {**members, "events.jsonl": b"".join([bare, *rest])}))
    assert code == 0
    assert "2 events with their payloads are in the log" in said
    assert "1 events without payloads are in the log" in said
    assert "That they were erased only the log can tell" in said
    half = json.dumps(event | {"payload": None}).encode() + b"\n"
    assert check(write(path, {**members, "events.jsonl": b"".join([half, *rest])}))[0] == 1


def test_a_pack_of_nothing_proves_nothing(log: None, tmp_path: Path, check: Check) -> None:
    path = tmp_path / "pack.zip"
    members = make_pack(path, agent="nobody")
    code, said = check(path)
    assert (code, said.splitlines()[-1]) == (3, "NOT PROVEN: no damage can be seen, and no event is proven.")
    assert json.loads(check(path, "--json")[1])["whole"] is False
    code, said = check(write(path, {"note.txt": members["README.md"]}))
    assert (code, "This is no evidence pack" in said) == (2, True)


def test_a_pack_of_everything_says_so(log: None, tmp_path: Path, check: Check) -> None:
    path = tmp_path / "pack.zip"
    make_pack(path)
    code, said = check(path)
    assert (code, "These are all the events that the log held at the checkpoint." in said) == (0, True)


@pytest.mark.parametrize("option", ["--key", "--witness"])
@pytest.mark.parametrize("wrong", ["", "x", "name+00000000+AQ==", "other"])
def test_a_key_that_is_none_is_no_damage_of_the_file(
    pack: tuple[Path, Members], check: Check, option: str, wrong: str
) -> None:
    witness, _ = cosign_checkpoint(Checkpoint("x", 0, SAME), name="w.example", seed=SEED, at=1)
    other = str(witness) if option == "--key" else key()
    code, said = check(pack[0], option, other if wrong == "other" else wrong)
    assert (code, option in said) == (2, True)
    assert len(said.splitlines()) == 1


def test_a_key_of_another_length_is_refused_as_a_key(pack: tuple[Path, Members], check: Check) -> None:
    path, members = pack
    name = key().split("+")[0]
    short = str(Verifier(name, 1, bytes(31)))
    manifest = json.loads(members["manifest.json"]) | {"key": short}
    changed = {"key.txt": f"{short}\n".encode(), "manifest.json": json.dumps(manifest).encode()}
    code, said = check(write(path, {**members, **changed}))
    assert (code, "The checkpoint does not verify. An Ed25519 key has 32 bytes." in said) == (1, True)


def test_a_pack_made_with_a_key_of_its_own_is_only_as_good_as_that_key(
    pack: tuple[Path, Members], check: Check
) -> None:
    path, members = pack
    true, name = key(), key().split("+")[0]
    against = verify_file(path).against
    assert against is not None
    note = sign_checkpoint(against, SEED)
    forged = str(Verifier(name, 1, _public(SEED)))
    old = members["checkpoint.txt"]
    for member in members:
        members[member] = members[member].replace(old, note.encode())
    manifest = json.loads(members["manifest.json"]) | {"key": forged, "checkpoint": note}
    members |= {"key.txt": f"{forged}\n".encode(), "manifest.json": json.dumps(manifest).encode()}
    code, said = check(write(path, members))
    assert (code, said.splitlines()[-1].startswith("Whole, if the key that came in the file is")) == (0, True)
    assert check(path, "--key", true)[0] == 1


def _public(seed: bytes) -> bytes:
    verifier, _ = cosign_checkpoint(Checkpoint("x", 0, SAME), name="x", seed=seed, at=0)
    return verifier.public_key


def test_signatures_of_others_are_checked_by_their_keys_or_named(pack: tuple[Path, Members], check: Check) -> None:
    path, members = pack
    against = verify_file(path).against
    assert against is not None
    witness, signature = cosign_checkpoint(against, name="w.example", seed=SEED, at=1_700_000_000)
    old = members["checkpoint.txt"]
    note = append_signature(old.decode(), witness, signature)
    manifest = json.loads(members["manifest.json"]) | {"checkpoint": note}
    members |= {"checkpoint.txt": note.encode(), "manifest.json": json.dumps(manifest).encode()}
    code, said = check(write(path, members))
    assert code == 0
    assert f"Whose these signatures under the checkpoint are: w.example+{witness.key_id.hex()}." in said
    assert "That nobody rewrote the whole log" in said
    code, said = check(path, "--witness", str(witness), "--witness", str(witness))
    assert said.count("w.example cosigned the checkpoint of 7 events") == 1
    assert "Whose these signatures" not in said
    assert "That nobody rewrote the whole log" not in said


@pytest.mark.parametrize(("form", "name"), [("csv", "a CSV export"), ("ocsf", "an OCSF export")])
@pytest.mark.parametrize("agent", ["a", "nobody"])
def test_other_exports_are_not_called_damaged(
    log: None, tmp_path: Path, check: Check, form: str, name: str, agent: str
) -> None:
    file = tmp_path / "export"
    file.write_bytes(export(form, agent=agent))
    code, said = check(file)
    assert (code, len(said.splitlines())) == (2, 1)
    assert f"This is {name}; only evidence packs and JSONL exports are checked here. Export the same" in said


@pytest.mark.parametrize("content", [b"", b"no\n", b"{}\nno\n", b"\x00\xff", b"[1]\n", b"c2sp.org/tlog-proof@v1\n"])
def test_what_is_no_file_of_ours_is_not_called_damaged(tmp_path: Path, check: Check, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    code, said = check(file)
    assert (code, "only evidence packs and JSONL exports are checked here" in said) == (2, True)


def test_of_a_filtered_export_nothing_is_proven_and_that_is_said(log: None, tmp_path: Path, check: Check) -> None:
    file = tmp_path / "export.jsonl"
    for query in ({"agent": "a"}, {"from_index": "2"}, {"agent": "nobody"}):
        file.write_bytes(export(**query))
        code, said = check(file, "--key", key())
        assert (code, said.splitlines()[-1]) == (3, "NOT PROVEN: no damage can be seen, and no event is proven.")
        assert "and that they are all that match: such an export has no proofs." in said
        assert "The checkpoint of 7 events is signed by the key that you named" in said
        told = json.loads(check(file, "--key", key(), "--json")[1])
        assert (told["whole"], told["damage_count"]) == (False, 0)


def test_of_an_export_of_everything_the_leaf_hashes_are_proven_and_no_more(
    log: None, tmp_path: Path, check: Check
) -> None:
    file = tmp_path / "export.jsonl"
    file.write_bytes(export().replace(b"3.10", b"4.10"))
    code, said = check(file, "--key", key())
    assert code == 0
    assert said.splitlines()[-1] == "Whole as to leaf hashes: what the records say is not proven."
    code, said = check(file)
    assert said.splitlines()[-1].startswith("Whole as to leaf hashes, if the key that came in the file is the log's")


def test_an_export_without_a_signature_or_a_key_proves_nothing(database: None, tmp_path: Path, check: Check) -> None:
    make_event()
    file = tmp_path / "export.jsonl"
    file.write_bytes(export())
    code, said = check(file)
    assert (code, "Anything by signature: no checkpoint" in said) == (3, True)
    sequence(tmp_path)
    *records, last = export().splitlines(keepends=True)
    closing = json.dumps({"export": json.loads(last)["export"] | {"key": None}}).encode()
    file.write_bytes(b"".join([*records, closing]))
    code, said = check(file)
    assert (code, "Anything by signature: the export has no key" in said) == (3, True)
    assert check(file, "--key", key())[0] == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [lines[0].replace(b'"leaf_hash":"', b'"leaf_hash":"x'), *lines[1:]], "1: Line 1 has no leaf"),
        (lambda lines: [lines[0].replace(b'"leaf_hash":"', b'"leaf_hash":"00'), *lines[1:]], "1: Line 1 has no leaf"),
        (lambda lines: [lines[0].replace(b'"leaf_hash":', b'"hash":'), *lines[1:]], "1: Line 1 has no leaf hash"),
        (lambda lines: [lines[0], lines[0], *lines[2:]], "1: It stands there twice"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "1: It stands there twice, or not in the order"),
        (lambda lines: [lines[0], *lines[2:]], "holds 2 events and was made with 3"),
        (lambda lines: lines[:-1], "it was cut"),
        (lambda lines: [*lines, lines[0]], "goes on behind its closing line"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "Line 2 is no record of an export."),
        (lambda lines: [lines[0], b"{\n", *lines[1:]], "Line 2 is no record of an export."),
        (lambda lines: [*lines[:-1], b'{"export":{}}\n'], "Line 4 is no closing line of an export."),
        (lambda lines: [lines[0].replace(b'"index":1', b'"index":-1'), *lines[1:]], "Line 1 is no record"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"index":5', b'"index":9'), lines[3]], "9: The export is said"),
        (lambda lines: [lines[0].replace(b'"kind":', b'"sort":'), *lines[1:]], "A record lacks what every event has."),
        (lambda lines: [*lines[:3], lines[3].replace(b'"from_index": 0', b'"from_index": 2')], "said to be from 2 on"),
        (lambda lines: [*lines[:3], lines[3].replace(b'{"agent": "a"}', b'{"from": "x"}')], "filter from is no time"),
        (lambda lines: [lines[0].replace(b'"index":', b'"index":3,"index":'), *lines[1:]], "twice"),
        (lambda lines: [lines[0].replace(b'"leaf_hash":', b'"leaf_hash":"0","leaf_hash":'), *lines[1:]], "twice"),
        (lambda lines: [lines[0].replace(b'"leaf_hash":', b'"leaf\\u005fhash":"0","leaf_hash":'), *lines[1:]], "twice"),
        (lambda lines: [*lines[:3], lines[3].replace(b"\\n7\\n", b"\\n8\\n")], "The checkpoint does not verify."),
    ],
)
def test_damage_in_the_form_of_a_filtered_export_is_damage(
    log: None, tmp_path: Path, check: Check, change: Callable[[list[bytes]], list[bytes]], says: str
) -> None:
    lines = export(agent="a").splitlines(keepends=True)
    assert change(lines) != lines
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"".join(change(lines)))
    code, said = check(file)
    assert (code, says in said) == (1, True), said


def test_an_export_from_a_place_on_has_every_place(log: None, tmp_path: Path, check: Check) -> None:
    lines = export(from_index="2").splitlines(keepends=True)
    file = tmp_path / "export.jsonl"
    for lost in (0, 2):
        closing = lines[-1].replace(b'"rows": 5', b'"rows": 4')
        file.write_bytes(b"".join([*lines[:lost], *lines[lost + 1 : -1], closing]))
        code, said = check(file)
        assert (code, f"{lost + 2}: It is missing" in said) == (1, True)


def test_help_tells_what_is_returned(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.partition("returns:")[2].splitlines() if line.strip()] == list("0123")


@pytest.mark.slow
def test_a_copy_of_the_package_needs_what_the_readme_says_and_nothing_else(
    pack: tuple[Path, Members], tmp_path: Path
) -> None:
    import cryptography
    import msgspec

    assert "pip install cryptography msgspec" in " ".join(README.split())
    bare = tmp_path / "bare"
    shutil.copytree(PROJECT / "audit", bare / "audit")
    for module in (cryptography, msgspec):
        folder = Path(module.__file__).parent
        (bare / folder.name).symlink_to(folder)
    # A part of cffi, which cryptography brings.
    (compiled,) = Path(cryptography.__file__).parents[1].glob("_cffi_backend*.so")
    (bare / compiled.name).symlink_to(compiled)
    program = (
        "import sys; sys.path = [path for path in sys.path if 'site-packages' not in path]; sys.path.insert(0, '.')\n"
        "import runpy; sys.argv[0] = 'verify'; runpy.run_module('audit.verify', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, str(pack[0])], cwd=bare, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
