"""JSONL exports, checked offline: of an export of everything its leaf hashes are proven, of any other only its form."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from audit.checking import NEVER_PROVEN, At, GrowingTree, Report
from audit.closing import Asked, Closing, Trust, check_signatures
from audit.notes import Checkpoint

HASH: Final = re.compile(r"[0-9a-f]{64}")


class ExportRecord(msgspec.Struct):
    """A line of a JSONL export. What the event says is not read: its numbers may be such as Python cannot hold."""

    index: int | None = None
    leaf_hash: str | None = None
    export: msgspec.Raw = msgspec.Raw()


class _Actor(msgspec.Struct):
    type: str
    id: str


class ToldRecord(msgspec.Struct):
    """What filters ask of a record."""

    index: int
    kind: str
    at: At
    actor: _Actor
    agent: str | None
    target: str | None
    plan_id: str | None
    operation: str | None
    task_id: str | None

    @property
    def actor_type(self) -> str:
        return self.actor.type

    @property
    def actor_id(self) -> str:
        return self.actor.id


# Spelled twice, or perhaps by escapes, they are looked for with more care.
_READ: Final = (b'"index"', b'"leaf_hash"', b'"export"')
_RECORD = msgspec.json.Decoder(ExportRecord)
_TOLD = msgspec.json.Decoder(ToldRecord)


def verify_export(path: Path, trust: Trust) -> Report:
    """Of an export of everything, the root over its leaf hashes; of any other, whether it is as it says of itself."""
    scan = _Scan(path)
    report, closing = scan.report, scan.closing
    report.covers = "nothing"
    if closing is None:
        return report
    against = _check_checkpoint(report, trust, closing)
    scan.check_bounds(closing)
    if closing.is_of_everything and against is not None:
        _check_everything(report, against, path, scan)
    if report.covers == "nothing":
        _check_form(report, closing, path)
    report.not_proven += [
        "What the records say: an export has leaf hashes, and not what they are of. Only an evidence pack shows that.",
        "What was asked for, and when: the closing line says it, and no signature covers it.",
        NEVER_PROVEN,
    ]
    return report


class _Scan:
    """The lines of an export, read once: places that ascend, a leaf hash each, and a closing line as the last."""

    def __init__(self, path: Path) -> None:
        self.report = Report()
        self.tree = GrowingTree()
        """Over the records up to the first that is not in the place it has in a whole log."""
        self.closing: Closing | None = None
        self.count = 0
        self.first: int | None = None
        self.last: int | None = None
        self.gap: int | None = None
        """The first place that is passed over between two records."""
        is_closed = False
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if is_closed:
                    self.report.break_at(None, "The export goes on behind its closing line.")
                    break
                try:
                    record = _RECORD.decode(line)
                    if b"\\u" in line or any(line.count(name) > 1 for name in _READ):
                        _refuse_twins(line)
                    if record.export:
                        is_closed = True
                        self.closing = msgspec.json.decode(record.export, type=Closing)
                    else:
                        self._take(record, number)
                except (ValueError, RecursionError) as error:
                    what = "closing line of an export" if is_closed else "record of an export"
                    self.report.break_at(None, f"Line {number} is no {what}. {error}")
                    self.count += not is_closed
        if not is_closed:
            self.report.break_at(None, "The export has no closing line: it was cut.")

    def _take(self, record: ExportRecord, number: int) -> None:
        index = record.index
        if index is None or index < 0:
            raise ValueError("It has no place.")
        if record.leaf_hash is None or not HASH.fullmatch(record.leaf_hash):
            self.report.break_at(index, f"Line {number} has no leaf hash: that is 64 hexadecimal digits.")
        elif index == self.count == self.tree.size:
            self.tree.push(bytes.fromhex(record.leaf_hash))
        self.count += 1
        if self.last is not None and index <= self.last:
            self.report.break_at(index, "It stands there twice, or not in the order of places.")
            return
        if self.first is None:
            self.first = index
        elif self.gap is None and self.last is not None and index != self.last + 1:
            self.gap = self.last + 1
        self.last = index

    def check_bounds(self, closing: Closing) -> None:
        """Holds the number of records and their places against what the closing line says."""
        if closing.rows != self.count:
            self.report.break_at(None, f"The export holds {self.count} events and was made with {closing.rows}.")
        if self.first is None or self.last is None:
            return
        if self.first < closing.from_index:
            self.report.break_at(self.first, f"The export is said to be from {closing.from_index} on.")
        if closing.next_index is not None and self.last >= closing.next_index:
            self.report.break_at(self.last, f"The export is said to go on at {closing.next_index}.")
        if closing.filters:
            return
        missing = closing.from_index if self.first > closing.from_index else self.gap
        if missing is not None:
            self.report.break_at(missing, "It is missing: an export without a filter has every place.")


def _check_checkpoint(report: Report, trust: Trust, closing: Closing) -> Checkpoint | None:
    if closing.checkpoint is None:
        report.not_proven.append("Anything by signature: no checkpoint was signed when the export was made.")
    elif closing.key is None and trust.key is None:
        report.not_proven.append("Anything by signature: the export has no key. Name the one you know with --key.")
    else:
        enclosed = closing.key if closing.key is not None else str(trust.key)
        check_signatures(report, trust, closing.checkpoint, enclosed)
    return report.against


def _check_everything(report: Report, against: Checkpoint, path: Path, scan: _Scan) -> None:
    """Holds the leaf hashes of an export of everything, which never has fewer than its checkpoint, against that."""
    tree, count = scan.tree, scan.count
    if not report.is_whole:
        return
    if tree.size < against.size:
        report.break_at(
            tree.size, f"The export holds {count} events, and its checkpoint signs {against.size}: it was cut."
        )
    elif (tree if tree.size == against.size else _grow(path, against.size)).root() != against.root:
        report.break_at(None, "The leaf hashes are not those that the checkpoint signs.")
    elif tree.size == against.size:
        report.covers = "hashes"
        report.proven.append(f"The leaf hashes of all {count} events are those that the checkpoint signs.")
    else:
        report.covers = "hashes" if against.size else "nothing"
        report.proven.append(f"The leaf hashes of the first {against.size} events are those that the checkpoint signs.")
        report.not_proven.append(
            f"The {count - against.size} events behind those: the checkpoint was signed before they had their places."
        )


def _check_form(report: Report, closing: Closing, path: Path) -> None:
    """Holds records that nothing proves against the filters of the closing line, and says what that is worth."""
    try:
        asked = Asked(closing.filters)
    except ValueError as error:
        report.break_at(None, f"The closing line cannot be read. {error}")
        return
    if asked.checked:
        for line in _read_lines(path):
            try:
                record = _TOLD.decode(line)
            except (ValueError, RecursionError):
                if not _is_closing(line):
                    report.break_at(None, "A record lacks what every event has.")
                continue
            if (unmet := asked.find_unmet(record)) is not None:
                report.break_at(record.index, f"It is not what the closing line asks for: {unmet}.")
    compared = f" Compared was its form: places, their number{''.join(f', {name}' for name in asked.checked)}."
    unasked = f" Not compared: {', '.join(asked.unchecked)}." if asked.unchecked else ""
    report.not_proven.append(
        f"That the records are in the log, and that they are all that match: such an export has no proofs.{compared}"
        f"{unasked} An evidence pack of the same search proves each event that is in it."
    )


def _refuse_twins(line: bytes) -> None:
    """Raises ValueError where the record has two members of a name: which of them a program reads is its own affair."""
    names: list[str] = []

    def keep(pairs: list[tuple[str, object]]) -> None:
        names[:] = [name for name, _ in pairs]

    # The outermost object is the last that ends. Numbers stay text: Python may be unable to hold them.
    json.loads(line.decode(), object_pairs_hook=keep, parse_int=str, parse_float=str)
    if len(set(names)) != len(names):
        raise ValueError("A member is there twice.")


def _is_closing(line: bytes) -> bool:
    try:
        return bool(_RECORD.decode(line).export)
    except (ValueError, RecursionError):
        return True  # It is listed as no record already.


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from lines


def _grow(path: Path, size: int) -> GrowingTree:
    """The tree over the first `size` records, which were seen to be in their places."""
    tree = GrowingTree()
    for line in islice(_read_lines(path), size):
        tree.push(bytes.fromhex(_RECORD.decode(line).leaf_hash or ""))
    return tree
