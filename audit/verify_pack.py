"""Evidence packs, checked offline: every file of the zip is looked at, or named as one that was not."""

import hmac
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from audit.checking import NEVER_PROVEN, NO_LEAF, OTHER_PAYLOAD, Report, read_leaf, spell, spell_some
from audit.closing import Asked, Closing, Trust, check_signatures
from audit.decided import Decisions
from audit.merkle import ProofError, hash_leaf
from audit.notes import NoteError, Verifier, check_proof

FILES: Final = ("README.md", "checkpoint.txt", "events.jsonl", "key.txt", "manifest.json")
FOLDERS: Final = ("leaves/", "proofs/")
SMALL: Final = 1024 * 1024
"""More bytes than any file of a pack has, but for events.jsonl."""
SALT: Final = re.compile(r"[0-9a-f]{64}")

_OF_AN_EVENT: Final = re.compile(r"(?:leaves/(0|[1-9][0-9]{0,18})|proofs/(0|[1-9][0-9]{0,18})\.tlog-proof)", re.ASCII)
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


class PackEvent(msgspec.Struct, forbid_unknown_fields=True):
    """A line of events.jsonl: the bytes that are hashed, and where they stand."""

    index: int
    leaf_hash: str
    leaf: str
    salt: str | None
    payload: str | None


class _FileError(ValueError):
    """A file of the zip is missing or cannot be read; the message is a sentence."""


class _EventError(ValueError):
    """The event is not proven; the message is a sentence."""


def verify_pack(path: Path, trust: Trust) -> Report:
    """What the pack proves. Raises ValueError where the zip is none."""
    report = Report()
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            report.break_at(None, "The file begins with something that is no part of the zip.")
    try:
        opened = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        report.break_at(None, f"The zip has no readable list of its files: it was cut or damaged. {error}.")
        return report
    with opened:
        _Pack(opened, report).verify(trust)
    report.not_proven.append(NEVER_PROVEN)
    return report


class _Pack:
    """One pack under verification."""

    def __init__(self, opened: zipfile.ZipFile, report: Report) -> None:
        self.zip = opened
        self.report = report
        self.names = opened.namelist()
        self.ids: set[str] = set()
        self.indexes: set[int] = set()
        """The places that lines of events.jsonl name."""
        self.is_read_through = False
        """Whether those are all."""
        self.opened: set[str] = set()
        """The files that were asked for, so that what is wrong with them was said."""
        self.decisions = Decisions()
        self.bare = 0
        self.full = 0
        """Proven events without their payloads, and with them."""

    def verify(self, trust: Trust) -> None:
        if not {"checkpoint.txt", "events.jsonl", "manifest.json"} & set(self.names):
            raise ValueError("This is no evidence pack: the zip has none of its files.")
        # Which of two a program reads is its own affair, and on some disks names that differ in case are one.
        names = Counter(name.casefold() for name in self.names)
        if doubled := [name for name in names if names[name] > 1]:
            self.report.break_at(None, f"The zip has more than one file of a name: {spell_some(doubled)}.")
            return
        closing = self._read_manifest()
        verifier = self._open(trust, closing)
        if verifier is not None:
            self._check_events(verifier, closing)
        self._check_rest()

    def _read_manifest(self) -> Closing | None:
        try:
            content = self._read("manifest.json")
            json.loads(content, object_pairs_hook=_once)
            return msgspec.json.decode(content, type=Closing)
        except (ValueError, RecursionError) as error:
            self.report.break_at(None, str(error) if isinstance(error, _FileError) else f"manifest.json: {error}")
            return None

    def _open(self, trust: Trust, closing: Closing | None) -> Verifier | None:
        try:
            note, key = self._read("checkpoint.txt").decode(), self._read("key.txt").decode()
        except ValueError as error:
            self.report.break_at(None, f"The checkpoint and its key cannot be read. {error}")
            return None
        if closing is not None and (closing.checkpoint, f"{closing.key}\n") != (note, key):
            self.report.break_at(None, "The manifest names another checkpoint or key than the pack holds.")
        return check_signatures(self.report, trust, note, key.strip())

    def _check_events(self, verifier: Verifier, closing: Closing | None) -> None:
        report, against, count, after = self.report, self.report.against, 0, -1
        asked = self._read_filters(closing)
        try:
            with self._reading("events.jsonl") as lines:
                for line in lines:
                    count += 1
                    event = _read_event(line)
                    if event is None:
                        report.break_at(None, f"Line {count} of events.jsonl is no event.")
                        continue
                    self.indexes.add(event.index)
                    if event.index <= after:
                        report.break_at(event.index, "It stands there twice, or not in the order of places.")
                        continue
                    after = event.index
                    try:
                        self._check_event(event, verifier, asked, closing)
                    except (_EventError, _FileError) as error:
                        report.break_at(event.index, str(error))
            self.is_read_through = True
        except _FileError as error:
            report.break_at(None, str(error))
        if closing is not None and count != closing.rows:
            report.break_at(None, f"The pack holds {count} events and was made with {closing.rows}.")
        is_of_everything = closing is not None and closing.is_of_everything
        if is_of_everything and against is not None and count != against.size:
            report.break_at(None, f"The pack is of everything and holds {count} of {against.size} events.")
        self._tell(asked, is_of_everything=is_of_everything)

    def _read_filters(self, closing: Closing | None) -> Asked:
        try:
            return Asked({} if closing is None else closing.filters)
        except ValueError as error:
            self.report.break_at(None, f"manifest.json: {error}")
            return Asked({})

    def _check_event(self, event: PackEvent, verifier: Verifier, asked: Asked, closing: Closing | None) -> None:
        """Raises _EventError or _FileError unless all that the pack says of the event holds."""
        leaf = event.leaf.encode()
        found = hash_leaf(leaf)
        try:
            proof = self._read(f"proofs/{event.index}.tlog-proof").decode()
            index, checkpoint = check_proof(proof, leaf_hash=found, verifier=verifier)
        except (NoteError, ProofError, UnicodeDecodeError) as error:
            raise _EventError(f"It is not proven. {error}") from None
        if index != event.index or checkpoint != self.report.against or found.hex() != event.leaf_hash:
            raise _EventError("Its proof is another event's, or under another checkpoint.")
        if self._read(f"leaves/{event.index}") != leaf:
            raise _EventError(f"leaves/{event.index} is not its leaf.")
        read = read_leaf(leaf)
        if read is None:
            raise _EventError(NO_LEAF)
        if read.id in self.ids:
            raise _EventError("Another event of the pack has its id.")
        self.ids.add(read.id)
        if event.payload is not None:
            # HMAC takes a salt with zeros behind it for the same.
            salt = bytes.fromhex(event.salt) if event.salt is not None and SALT.fullmatch(event.salt) else None
            if salt is None or hmac.digest(salt, event.payload.encode(), "sha256").hex() != read.commitment:
                raise _EventError(OTHER_PAYLOAD)
        elif event.salt is not None:
            raise _EventError("It has a salt and no payload: they are erased together.")
        unmet = asked.find_unmet(read)
        if closing is not None and event.index < closing.from_index:
            unmet = "from_index"
        if unmet is not None:
            raise _EventError(f"It is in the log, and not what the manifest asks for: {unmet}.")
        self.bare += event.payload is None
        self.full += event.payload is not None
        if event.payload is not None:
            self.decisions.take(event.index, read, event.payload)

    def _tell(self, asked: Asked, *, is_of_everything: bool) -> None:
        report, proven = self.report, self.full + self.bare
        if not proven and (report.against is None or report.against.size or not is_of_everything):
            report.covers = "nothing"
        if self.full:
            report.proven.append(f"{self.full} events with their payloads are in the log at the places they name.")
        elif not self.bare:
            report.not_proven.append("Any event: none of the pack's is proven.")
        if self.bare:
            report.proven.append(f"{self.bare} events without payloads are in the log at the places they name.")
            report.not_proven.append(
                f"What {self.bare} of the events said: the pack has no payloads of them. Their places stand. That they"
                " were erased only the log can tell, where each erasure is an event."
            )
        self.decisions.tell(report)
        if is_of_everything:
            if report.is_whole:
                report.proven.append("These are all the events that the log held at the checkpoint.")
        else:
            report.not_proven.append("That these are all the events that match: a pack proves what is in it.")
            if asked.checked and proven:
                report.proven.append(f"Those events meet these filters of the manifest: {', '.join(asked.checked)}.")
            if asked.unchecked:
                report.not_proven.append(
                    f"That the events meet these filters, which only the log can answer: {', '.join(asked.unchecked)}."
                )
        report.not_proven.append("What was asked for, and when: manifest.json says it, and no signature covers it.")

    def _check_rest(self) -> None:
        """Reads what no event asked for, so that checksums are seen to hold; names what is missing, or no pack's."""
        others = []
        for name in self.names:
            of_event = _OF_AN_EVENT.fullmatch(name)
            if of_event is not None:
                index = int(of_event[1] or of_event[2])
                if self.is_read_through and index not in self.indexes:
                    self.report.break_at(index, f"{name} is there, and its event is not in events.jsonl.")
                    continue
            elif name not in FILES and (name not in FOLDERS or self.zip.getinfo(name).file_size):
                others.append(name)
            try:
                if name not in self.opened:
                    self._read_through(name)
            except _FileError as error:
                self.report.break_at(None, str(error))
        for name in FILES:
            if name not in self.names and name not in self.opened:
                self.report.break_at(None, f"{name} is missing.")
        if others:
            self.report.not_proven.append(
                f"What other files say, which no pack has: {spell_some(others)}. Not checked."
            )
        if self.zip.comment:
            self.report.not_proven.append("What the zip's comment says: no pack has one. Not checked.")
        if "README.md" in self.names:
            self.report.not_proven.append("What README.md says: of it only the zip's checksum was checked.")

    def _read(self, name: str) -> bytes:
        """A small file, whole; its checksum holds."""
        with self._reading(name) as file:
            content: bytes = file.read(SMALL + 1)
        if len(content) > SMALL:
            raise _FileError(f"{spell(name)} is larger than a file of a pack can be.")
        return content

    def _read_through(self, name: str) -> None:
        with self._reading(name) as file:
            while file.read(SMALL):
                pass

    @contextmanager
    def _reading(self, name: str) -> Iterator[Any]:
        self.opened.add(name)
        try:
            with self.zip.open(name) as file:
                yield file
        except KeyError:
            raise _FileError(f"{spell(name)} is missing.") from None
        except _BROKEN as error:
            raise _FileError(f"{spell(name)} cannot be read: {error}") from None


def _read_event(line: bytes) -> PackEvent | None:
    try:
        event = msgspec.json.decode(line, type=PackEvent)
        # Which of two members of a name a program reads is its own affair.
        json.loads(line, object_pairs_hook=_once)
    except ValueError:
        return None
    return event


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("A member is there twice.")
    return members
