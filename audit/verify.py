"""What is proven and what is not: the checks themselves, and `python -m audit.verify FILE`, offline, without Django.

One file, though a long one: an auditor who trusts nothing of ours reads it from one end to the other.
"""

import argparse
import hashlib
import hmac
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from audit.merkle import EMPTY_ROOT, ProofError, hash_leaf, hash_node
from audit.notes import Checkpoint, NoteError, Verifier, check_proof, open_checkpoint, read_cosignature

LISTED_DAMAGE: Final = 20
NEVER_PROVEN: Final = "That what was recorded is true: a log proves that nothing was changed, added or removed later."


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A leaf's members (audit.canonical.build_leaf), read out of its bytes."""

    version: int
    id: str
    kind: str
    at: datetime
    actor_type: str
    actor_id: str
    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    plan_seq: int | None
    operation: str | None
    task_id: str | None
    request_id: str | None
    commitment: str
    nonce: str


_LEAF = msgspec.json.Decoder(Leaf)


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was recorded. `index` is its place in the tree, where it has one."""

    index: int | None
    event_id: str | None
    what: str


@dataclass(slots=True)
class Report:
    """The outcome of a verification, in sentences: against which checkpoint, what holds, what stays open, what broke.

    Its first line names the checkpoint, its last one gives the verdict.
    """

    against: Checkpoint | None = None
    proven: list[str] = field(default_factory=list)
    not_proven: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    first_bad_index: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged. What is not proven is said apart."""
        return self.damage_count == 0

    def break_at(self, index: int | None, what: str, event_id: str | None = None) -> None:
        """Notes damage; the first ones are listed, all are counted, the lowest place is kept."""
        self.damage_count += 1
        if index is not None and (self.first_bad_index is None or index < self.first_bad_index):
            self.first_bad_index = index
        if len(self.damage) < LISTED_DAMAGE:
            self.damage.append(Damage(index, event_id, what))

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        against = self.against
        return {
            "whole": self.is_whole,
            "checkpoint": None
            if against is None
            else {"origin": against.origin, "size": against.size, "root": against.root.hex()},
            "proven": self.proven,
            "not_proven": self.not_proven,
            "first_bad_index": self.first_bad_index,
            "damage_count": self.damage_count,
            "damage": [{"index": one.index, "event_id": one.event_id, "what": one.what} for one in self.damage],
        }

    def lines(self) -> Iterator[str]:
        """For people: the verdict last."""
        if self.against is not None:
            yield f"Checkpoint: {self.against.origin}, {self.against.size} events, root {self.against.root.hex()}"
        yield from _titled("Proven", self.proven)
        yield from _titled("Not proven", self.not_proven)
        if self.is_whole:
            yield "Whole: nothing is damaged."
            return
        where = "" if self.first_bad_index is None else f"; the first bad index is {self.first_bad_index}"
        yield f"DAMAGED in {self.damage_count} places{where}."
        for one in self.damage:
            yield f"  {'-' if one.index is None else one.index}: {one.what}" + (
                f" (event {one.event_id})" if one.event_id else ""
            )
        if self.damage_count > len(self.damage):
            yield f"  and {self.damage_count - len(self.damage)} more."


def _titled(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield f"{title}:"
        yield from (f"  {sentence}" for sentence in sentences)


class GrowingTree:
    """The tree, leaf hash by leaf hash, as deep in memory as it is high; and the nodes that tiles hold."""

    def __init__(self) -> None:
        self.size = 0
        self.levels: dict[int, bytearray] = {}
        """Per tile level from 1 on: the hashes of all its tiles, side by side."""
        self._peaks: list[bytes] = []

    def push(self, leaf_hash: bytes) -> None:
        self._join(leaf_hash, 0)
        self.size += 1

    def push_tile(self, leaf_hashes: Sequence[bytes]) -> None:
        """The 256 hashes of a whole tile, where the size is a multiple of 256: as if pushed one after the other."""
        nodes, sha256 = leaf_hashes, hashlib.sha256
        while len(nodes) > 1:
            nodes = [
                sha256(b"\x01" + left + right).digest() for left, right in zip(nodes[::2], nodes[1::2], strict=True)
            ]
        self.levels.setdefault(1, bytearray()).extend(nodes[0])
        self._join(nodes[0], 8)
        self.size += len(leaf_hashes)

    def _join(self, node: bytes, height: int) -> None:
        """A node of that height at the right edge, with those that it completes."""
        index, sha256 = self.size >> height, hashlib.sha256
        while index & 1:
            node = sha256(b"\x01" + self._peaks.pop() + node).digest()
            index >>= 1
            height += 1
            if height & 7 == 0:
                self.levels.setdefault(height >> 3, bytearray()).extend(node)
        self._peaks.append(node)

    def root(self) -> bytes:
        """The root over what was pushed so far."""
        if not self._peaks:
            return EMPTY_ROOT
        node = self._peaks[-1]
        for peak in self._peaks[-2::-1]:
            node = hash_node(peak, node)
        return node


def check_leaf(leaf: bytes, told: tuple[Any, ...], salt: bytes | None, body: str | bytes | None) -> str | None:
    """What is wrong with an event whose leaf has the right hash, or None.

    `told`: what is shown of it, in the order of Leaf from `id` to `request_id`. No payload: nothing to compare.
    """
    try:
        read = _LEAF.decode(leaf)
    except msgspec.DecodeError:
        return "Its leaf is no leaf of this log."
    members = (read.id, read.kind, read.at, read.actor_type, read.actor_id, read.on_behalf_of, read.agent, read.target,
               read.plan_id, read.plan_seq, read.operation, read.task_id, read.request_id)  # fmt: skip
    if members != told:
        return "What is shown of it is not what its leaf says."
    if salt is None or body is None:
        return None
    message = body.encode() if isinstance(body, str) else body
    if hmac.digest(salt, message, "sha256").hex() != read.commitment:
        return "Its payload is not the one that its leaf commits to."
    return None


def check_witnesses(report: Report, notes: Iterable[tuple[Verifier, str]]) -> None:
    """Says of each witness whether it cosigned the note given with it, and what it means that nobody did."""
    seen = []
    for witness, note in notes:
        try:
            at = read_cosignature(note, witness)
        except NoteError:
            report.not_proven.append(f"The witness {witness.name} has cosigned nothing of this.")
        else:
            seen.append(witness.name)
            when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            size = note.split("\n")[1]
            report.proven.append(f"The witness {witness.name} cosigned the checkpoint of {size} events at {when}.")
    if not seen:
        report.not_proven.append(
            "That nobody rewrote the whole log with its own signing key: a witness would show that, or a checkpoint"
            " kept elsewhere."
        )


class PackEvent(msgspec.Struct):
    """A line of an evidence pack's events.jsonl: the bytes that are hashed, and where they stand."""

    index: int
    leaf_hash: str
    leaf: str
    salt: str | None
    payload: str | None


class Closing(msgspec.Struct):
    """An export's last record, or a pack's manifest: what was asked for, and the checkpoint over it."""

    rows: int
    filters: dict[str, Any]
    from_index: int
    checkpoint: str | None
    key: str | None

    @property
    def is_of_everything(self) -> bool:
        """Whether nothing was left out: no filter, and from the first place on."""
        return not self.filters and not self.from_index


class ExportRecord(msgspec.Struct):
    """A line of a JSONL export. What the event says is not read: its numbers may be such as Python cannot hold."""

    index: int | None = None
    leaf_hash: str | None = None
    export: msgspec.Raw = msgspec.Raw()


_RECORD = msgspec.json.Decoder(ExportRecord)


def verify_file(path: Path, *, key: str | None = None, witnesses: Sequence[str] = ()) -> Report:
    """Verifies an evidence pack (.zip) or a JSONL export. Raises ValueError where the file is neither."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as pack:
            return _verify_pack(pack, key, witnesses)
    return _verify_export(path, key, witnesses)


def _verify_pack(pack: zipfile.ZipFile, key: str | None, witnesses: Sequence[str]) -> Report:
    report = Report()
    try:
        note = pack.read("checkpoint.txt").decode()
        manifest = msgspec.json.decode(pack.read("manifest.json"), type=Closing)
        verifier = _choose_key(report, key, pack.read("key.txt").decode().strip())
        report.against = open_checkpoint(note, verifier)
    except KeyError as missing:
        raise ValueError(f"This is no evidence pack: {missing.args[0]}") from None
    except NoteError as error:
        report.break_at(None, f"The checkpoint does not verify. {error}")
        return report
    count = erased = 0
    after = -1
    with pack.open("events.jsonl") as lines:
        for line in lines:
            event = msgspec.json.decode(line, type=PackEvent)
            count += 1
            erased += event.payload is None
            if event.index <= after:
                report.break_at(event.index, "It is not where it belongs: a pack is in the order of places.")
            after = event.index
            _check_pack_event(report, pack, event, verifier)
    if count != manifest.rows:
        report.break_at(None, f"The pack holds {count} events and was made with {manifest.rows}.")
    if manifest.is_of_everything and count != report.against.size:
        report.break_at(None, f"The pack is of everything and holds {count} of {report.against.size} events.")
    report.proven.append(f"{count - erased} events with their payloads are in the log at the places they name.")
    if erased:
        report.not_proven.append(f"What {erased} of the events said: their payloads were erased. Their places stand.")
    if not manifest.is_of_everything:
        report.not_proven.append("That these are all the events that match: a pack proves what is in it.")
    check_witnesses(report, [(Verifier.parse(witness), note) for witness in witnesses])
    report.not_proven.append(NEVER_PROVEN)
    return report


def _check_pack_event(report: Report, pack: zipfile.ZipFile, event: PackEvent, verifier: Verifier) -> None:
    leaf = event.leaf.encode()
    found = hash_leaf(leaf)
    try:
        read = _LEAF.decode(leaf)
        index, checkpoint = check_proof(
            pack.read(f"proofs/{event.index}.tlog-proof").decode(), leaf_hash=found, verifier=verifier
        )
    except KeyError:
        report.break_at(event.index, "It has no proof in the pack.")
        return
    except (NoteError, ProofError, msgspec.DecodeError) as error:
        report.break_at(event.index, f"It is not proven. {error}")
        return
    if index != event.index or checkpoint != report.against or found.hex() != event.leaf_hash:
        report.break_at(event.index, "Its proof is another event's, or under another checkpoint.", read.id)
    elif event.payload is not None:
        commitment = hmac.digest(bytes.fromhex(event.salt or ""), event.payload.encode(), "sha256").hex()
        if commitment != read.commitment:
            report.break_at(event.index, "Its payload is not the one that its leaf commits to.", read.id)


def _verify_export(path: Path, key: str | None, witnesses: Sequence[str]) -> Report:
    """Of an export of everything, the root over its leaf hashes; of any other, that none is missing at its end."""
    report, tree, count, closing = Report(), GrowingTree(), 0, None
    for record in _read_records(path):
        if closing is not None:
            report.break_at(None, "The export goes on behind its closing line.")
            break
        if record.export:
            closing = msgspec.json.decode(record.export, type=Closing)
            continue
        if record.index == count == tree.size and (leaf_hash := _read_hash(record)) is not None:
            tree.push(leaf_hash)
        count += 1
    if closing is None:
        report.break_at(None, "The export has no closing line: it was cut.")
        return report
    if closing.rows != count:
        report.break_at(None, f"The export holds {count} events and was made with {closing.rows}.")
    report.not_proven.append(
        "What the records say: an export has leaf hashes, and not what they are of. Only an evidence pack shows that."
    )
    if closing.checkpoint is None:
        report.not_proven.append("Anything by signature: no checkpoint was signed when the export was made.")
        return report
    try:
        verifier = _choose_key(report, key, closing.key or "")
        report.against = open_checkpoint(closing.checkpoint, verifier)
    except NoteError as error:
        report.break_at(None, f"The checkpoint does not verify. {error}")
        return report
    if closing.is_of_everything:
        _check_everything(report, report.against, path, tree, count)
    else:
        report.not_proven.append(
            "That the records are in the log, and that they are all that match: an export of everything shows which"
            " leaf hashes the checkpoint signs, an evidence pack proves each event that is in it."
        )
    check_witnesses(report, [(Verifier.parse(witness), closing.checkpoint) for witness in witnesses])
    report.not_proven.append(NEVER_PROVEN)
    return report


def _check_everything(report: Report, against: Checkpoint, path: Path, tree: GrowingTree, count: int) -> None:
    """Holds the leaf hashes of an export of everything, which never has fewer than its checkpoint, against that."""
    if tree.size < count:
        report.break_at(tree.size, "The export goes on with another place: a record is missing, or was moved.")
    elif tree.size < against.size:
        report.break_at(
            tree.size, f"The export holds {count} events, and its checkpoint signs {against.size}: it was cut."
        )
    elif (tree if tree.size == against.size else _grow(path, against.size)).root() != against.root:
        report.break_at(None, "The leaf hashes are not those that the checkpoint signs.")
    elif tree.size == against.size:
        report.proven.append(f"The leaf hashes of all {count} events are those that the checkpoint signs.")
    else:
        report.proven.append(f"The leaf hashes of the first {against.size} events are those that the checkpoint signs.")
        report.not_proven.append(
            f"The {count - against.size} events behind those: the checkpoint was signed before they had their places."
        )


def _read_records(path: Path) -> Iterator[ExportRecord]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _RECORD.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"Line {number} is no record of an export. {error}") from None


def _read_hash(record: ExportRecord) -> bytes | None:
    """The record's leaf hash; None where it is none."""
    try:
        leaf_hash = bytes.fromhex(record.leaf_hash or "")
    except ValueError:
        return None
    return leaf_hash if len(leaf_hash) == hashlib.sha256().digest_size else None


def _grow(path: Path, size: int) -> GrowingTree:
    """The tree over the first `size` records, which were seen to be in their places."""
    tree = GrowingTree()
    for record in islice(_read_records(path), size):
        tree.push(bytes.fromhex(record.leaf_hash or ""))
    return tree


def _choose_key(report: Report, given: str | None, enclosed: str) -> Verifier:
    if given is None:
        report.not_proven.append("That the key is the log's: it came in the file. Name the one you know with --key.")
    return Verifier.parse(given or enclosed)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: whole. 1: damaged. 2: no such file, or not one of ours."""
    parser = argparse.ArgumentParser(
        prog="python -m audit.verify", description="Verify an evidence pack or a JSONL export."
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--key", help="the log's verifier key, as you know it")
    parser.add_argument("--witness", action="append", default=[], metavar="KEY", help="a witness's verifier key")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        report = verify_file(options.file, key=options.key, witnesses=options.witness)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{options.file}: {error}\n")
        return 2
    sys.stdout.write((json.dumps(report.as_data()) if options.json else "\n".join(report.lines())) + "\n")
    return 0 if report.is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
