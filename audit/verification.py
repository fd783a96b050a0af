"""Verifies the log in the database: every event against its place, the tree against every checkpoint, one snapshot."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
from django.conf import settings
from django.db import transaction

from audit.ahead import read_ahead
from audit.checking import NEVER_PROVEN, GrowingTree, Report, check_leaf, check_witnesses
from audit.connections import one_snapshot, same_snapshot
from audit.export_sql import SPAN
from audit.kinds import Kind
from audit.merkle import HASH_BYTES, hash_leaf
from audit.notes import Checkpoint, NoteError, Verifier, open_checkpoint
from audit.proofs import Ask, count_pending, read_checkpoint, read_size
from audit.recording import Actor, record
from audit.signing import SignedState, SigningRefused, read_verifier
from audit.tiles import TILE_WIDTH

# Whole tiles at a time.
CHUNK: Final = 16 * TILE_WIDTH

ROWS: Final = """
    SELECT s.index, CASE WHEN e.id IS NULL THEN s.event_id::text END, e.leaf, e.id::text, e.kind, e.at, e.actor_type,
        e.actor_id, e.on_behalf_of, e.agent, e.target, e.plan_id, e.plan_seq, e.operation, e.task_id, e.request_id,
        p.salt, convert_to(p.body, 'UTF8')
    FROM audit_sequence s
    LEFT JOIN audit_event e ON e.at = s.at AND e.id = s.event_id AND e.at >= %s AND e.at <= %s
    LEFT JOIN audit_payload p ON p.event_id = s.event_id AND p.event_id >= %s AND p.event_id <= %s
    WHERE s.index >= %s AND s.index < %s ORDER BY s.index
"""


# As text: a comparison with a kind itself is ten times as slow, once an event.
_TELL_OF_ERASURES: Final = frozenset({str(Kind.AUDIT_ERASED), str(Kind.AUDIT_DISPOSED)})


class AlreadyVerifyingError(Exception):
    """Another verification of this log is under way: a sentence."""


Progress = Callable[[int, int], None]
"""Called with how many events are done, and how many there are."""


class _Erasure(msgspec.Struct):
    events: list[str] = []


class _ErasureBody(msgspec.Struct):
    data: _Erasure


@dataclass(slots=True)
class _Scan:
    """One reading of the whole log."""

    ask: Ask
    readers: Sequence[Ask]
    """Connections that see the same moment, each for one thread."""
    report: Report
    size: int
    marks: dict[int, list[tuple[bytes, str]]]
    """By size: the roots that the tree must have had then, and who says so."""
    tree: GrowingTree = field(default_factory=GrowingTree)
    unread: dict[str, int] = field(default_factory=dict)
    """Events without a payload, by id: their places. Whoever erased one has left an event about it."""
    last_good: int = 0
    payloads: int = 0

    def run(self, progress: Progress) -> None:
        self._check_marks()
        with closing(read_ahead(self.readers, range(0, self.size, CHUNK), self._read)) as chunks:
            for start, (rows, held) in chunks:
                stop = min(start + CHUNK, self.size)
                for first in range(start, stop, TILE_WIDTH):
                    places = range(first, min(first + TILE_WIDTH, stop))
                    self._check_tile(places, rows, held.get(first // TILE_WIDTH, b""))
                progress(stop, self.size)
        self._check_upper_tiles()
        if self.unread:
            self._forgive_pending()
        for event_id, index in self.unread.items():
            self.report.break_at(index, "Its payload is gone, and no event tells of an erasure.", event_id)

    def _read(self, ask: Ask, start: int) -> tuple[dict[int, tuple[Any, ...]], dict[int, bytes]]:
        """The places with their events. Neighbours in the tree are neighbours in time: bounds make them one range."""
        stop = min(start + CHUNK, self.size)
        (span,) = ask(f"{SPAN}s.index >= %s AND s.index < %s", [start, stop])
        rows = ask(ROWS, [*span[:2], *map(UUID, span[2:]), start, stop]) if span[0] else []
        tiles = ask(
            "SELECT number, hashes FROM audit_tile WHERE level = 0 AND number >= %s AND number < %s",
            [start // TILE_WIDTH, -(-stop // TILE_WIDTH)],
        )
        return {row[0]: row for row in rows}, {number: bytes(hashes) for number, hashes in tiles}

    def _check_tile(self, places: range, rows: dict[int, tuple[Any, ...]], tile: bytes) -> None:
        """A whole tile in one go where nothing is amiss with its leaves, else place by place."""
        found = [rows[index] for index in places if index in rows and rows[index][2] is not None]
        hashes = [hash_leaf(row[2]) for row in found]
        is_marked = any(size in self.marks for size in range(places.start + 1, places.stop))
        if len(found) < TILE_WIDTH or is_marked or b"".join(hashes) != tile:
            for place, index in enumerate(places):
                self._check_event(index, rows.get(index), tile[place * HASH_BYTES : (place + 1) * HASH_BYTES])
            return
        for row in found:
            if (wrong := check_leaf(row[2], row[3:16], row[16], row[17])) is not None:
                self.report.break_at(row[0], wrong, row[3])
            self._check_payload(row)
        self.tree.push_tile(hashes)
        if self.tree.size in self.marks:
            self._check_marks()

    def _check_event(self, index: int, row: tuple[Any, ...] | None, tile: bytes) -> None:
        """The event against the tile; the tree grows by the tile, so that each damage is named once, where it is."""
        if row is None:
            self.report.break_at(index, "No event has this place any more.")
        elif row[2] is None:
            self.report.break_at(index, "The event at this place is gone.", row[1])
        else:
            leaf_hash = hash_leaf(row[2])
            if leaf_hash != tile:
                self.report.break_at(index, "Its leaf is not the one in the tree.", row[3])
            elif (wrong := check_leaf(row[2], row[3:16], row[16], row[17])) is not None:
                self.report.break_at(index, wrong, row[3])
            self._check_payload(row)
            tile = tile or leaf_hash
        self.tree.push(tile or bytes(HASH_BYTES))
        if self.tree.size in self.marks:
            self._check_marks()

    def _check_payload(self, row: tuple[Any, ...]) -> None:
        """Whether it is there; whether it tells of others that are gone."""
        if row[17] is None:
            self.unread[row[3]] = row[0]
            return
        self.payloads += 1
        if row[4] in _TELL_OF_ERASURES:
            self._forgive(row[17])

    def _forgive(self, body: str | bytes) -> None:
        with suppress(msgspec.DecodeError):
            for event_id in msgspec.json.decode(body, type=_ErasureBody).data.events:
                self.unread.pop(event_id, None)

    def _forgive_pending(self) -> None:
        """An erasure of this moment: the event that tells of it has no place yet."""
        for (body,) in self.ask(
            "SELECT p.body FROM audit_pending n JOIN audit_event e ON e.at = n.at AND e.id = n.event_id"
            " JOIN audit_payload p ON p.event_id = e.id WHERE e.kind = ANY(%s)",
            [[Kind.AUDIT_ERASED.value, Kind.AUDIT_DISPOSED.value]],
        ):
            self._forgive(body)

    def _check_marks(self) -> None:
        for root, who in self.marks.pop(self.tree.size, ()):
            if self.tree.root() == root:
                self.last_good = self.tree.size
            else:
                self.report.break_at(
                    self.last_good, f"From here to {self.tree.size - 1}, the tree is not the one of {who}."
                )

    def _check_upper_tiles(self) -> None:
        """Each tile above the leaves is there, made of those below, and no other."""
        rows = self.ask("SELECT level, number, hashes FROM audit_tile WHERE level > 0", [])
        held = {(level, number): bytes(hashes) for level, number, hashes in rows}
        made = {
            (level, first // TILE_WIDTH): bytes(hashes[first * HASH_BYTES : (first + TILE_WIDTH) * HASH_BYTES])
            for level, hashes in self.tree.levels.items()
            for first in range(0, len(hashes) // HASH_BYTES, TILE_WIDTH)
        }
        for level, number in sorted(held.keys() | made.keys()):
            if held.get((level, number)) != made.get((level, number)):
                self.report.break_at(
                    number * TILE_WIDTH ** (level + 1), f"Tile {number} of level {level} is not made of those below."
                )
        held_bytes = self.ask("SELECT coalesce(sum(octet_length(hashes)), 0) FROM audit_tile WHERE level = 0", [])
        if held_bytes[0][0] != self.size * HASH_BYTES:
            self.report.break_at(None, "The tree holds more or fewer hashes than there are places.")


def verify_log(
    *, actor: Actor, via: str, known: str | None = None, key: str | None = None, progress: Progress = lambda *_: None
) -> Report:
    """Verifies the whole log and records that (audit.verified). May be repeated; locks nothing; sees one moment.

    `known`: a checkpoint that the auditor kept; `key`: the verifier key as they know it. Raises KeyMissing, NoteError
    for those two, and AlreadyVerifyingError: one at a time reads the whole log.
    """
    verifier = Verifier.parse(key) if key else read_verifier()
    report = Report()
    with one_snapshot("verification") as connection:
        # Of the transaction: a session's lock outlives its connection for a moment, and the next one would be refused.
        if connection.execute("SELECT pg_try_advisory_xact_lock(hashtext('audit_verification'))").fetchone() != (True,):
            raise AlreadyVerifyingError("Another verification is under way. Ask again when it has ended.")
        with same_snapshot(connection, "verification") as first, same_snapshot(connection, "verification") as second:
            for reader in (connection, first, second):
                # Ranges of neighbours are joined; a planner that expects few rows would look each up by itself.
                reader.execute("SET LOCAL enable_nestloop = off")
            readers = [_asking(first), _asking(second)]
            _verify(_asking(connection), readers, report, verifier, known, progress)
    with transaction.atomic():
        record(
            Kind.AUDIT_VERIFIED,
            actor=actor,
            data={
                "via": via,
                "whole": report.is_whole,
                "size": None if report.against is None else report.against.size,
                "root": None if report.against is None else report.against.root.hex(),
                "first_bad_index": report.first_bad_index,
                "damage_count": report.damage_count,
            },
        )
    return report


def _asking(connection: psycopg.Connection[Any]) -> Ask:
    def ask(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return connection.execute(statement, parameters, binary=True).fetchall()

    return ask


def _verify(
    ask: Ask, readers: Sequence[Ask], report: Report, verifier: Verifier, known: str | None, progress: Progress
) -> None:
    size = read_size(ask)
    stored = read_checkpoint(ask)
    if stored is None:
        report.not_proven.append("Anything by signature: no checkpoint has been signed yet.")
    else:
        try:
            report.against = open_checkpoint(stored.note, verifier)
        except NoteError as error:
            report.break_at(None, f"The newest checkpoint does not verify. {error}")
    scan = _Scan(ask, readers, report, size, {})
    outside = list(_outside(report, verifier, known))
    checkpoints = list(_stored(ask, report, verifier))
    for checkpoint, who in (*outside, *checkpoints):
        if checkpoint.size > size:
            report.break_at(size, f"The tree has {size} places; {who} has {checkpoint.size}. The end is missing.")
        else:
            scan.marks.setdefault(checkpoint.size, []).append((checkpoint.root, who))
    scan.run(progress)
    _check_others(ask, report, size)
    if report.is_whole:
        _tell(report, scan, len(checkpoints), [who for _, who in outside])
    if stored is not None:
        check_witnesses(report, list(_cosigned(ask)))
    uncovered = size - (report.against.size if report.against else 0) + count_pending(ask)
    if uncovered:
        report.not_proven.append(f"The newest {uncovered} events: no signed checkpoint covers them yet.")
    report.not_proven.append(NEVER_PROVEN)


def _outside(report: Report, verifier: Verifier, known: str | None) -> Iterable[tuple[Checkpoint, str]]:
    """What is known of the log outside its database."""
    if known is not None:
        yield open_checkpoint(known, verifier), "the checkpoint that you kept"
    try:
        kept = SignedState(Path(settings.AUDIT_STATE_FILE), verifier).read() if settings.AUDIT_STATE_FILE else None
    except SigningRefused as error:
        report.break_at(None, f"The state kept outside the database cannot be used. {error}")
        return
    if kept is not None:
        yield kept, "the last signed checkpoint (kept outside the database)"
    else:
        report.not_proven.append("That this is the newest state: nothing kept outside the database can be read here.")


def _stored(ask: Ask, report: Report, verifier: Verifier) -> Iterable[tuple[Checkpoint, str]]:
    """Every checkpoint that was published under the log's name, each once."""
    rows = ask("SELECT DISTINCT note, size, root FROM audit_checkpoint WHERE origin = %s", [verifier.name])
    for note, size, root in rows:
        try:
            checkpoint = open_checkpoint(note, verifier)
        except NoteError as error:
            report.break_at(None, f"A checkpoint in the database does not verify. {error}")
        else:
            if (size, root) != (checkpoint.size, checkpoint.root):
                report.break_at(
                    None, f"The checkpoint of {checkpoint.size} events is stored as of {size}, or another root."
                )
            yield checkpoint, f"the checkpoint of {checkpoint.size} events"


def _cosigned(ask: Ask) -> Iterable[tuple[Verifier, str]]:
    """Of each witness the newest checkpoint that it cosigned, with its line."""
    for _, key in settings.AUDIT_WITNESSES:
        rows = ask(
            "SELECT c.note || w.line FROM audit_cosignature w JOIN audit_checkpoint c USING (origin, size)"
            " WHERE w.origin = %s AND w.witness = %s ORDER BY size DESC LIMIT 1",
            [settings.AUDIT_ORIGIN, key],
        )
        yield Verifier.parse(key), rows[0][0] if rows else ""


def _check_others(ask: Ask, report: Report, size: int) -> None:
    """Events that the tree does not know and nobody wrote through the outbox; and the outbox's own."""
    for (event_id,) in ask(
        "SELECT n.event_id FROM audit_pending n LEFT JOIN audit_event e ON e.at = n.at AND e.id = n.event_id"
        " WHERE e.id IS NULL LIMIT 100",
        [],
    ):
        report.break_at(None, "It was recorded, and is gone before it got a place.", str(event_id))
    ((events, places, pending),) = ask(
        "SELECT (SELECT count(*) FROM audit_event), (SELECT count(*) FROM audit_sequence),"
        " (SELECT count(*) FROM audit_pending)",
        [],
    )
    if events <= places + pending and report.is_whole:
        return
    for (event_id,) in ask(
        "SELECT e.id FROM audit_event e WHERE NOT EXISTS (SELECT FROM audit_sequence s WHERE s.event_id = e.id)"
        " AND NOT EXISTS (SELECT FROM audit_pending n WHERE n.event_id = e.id AND n.at = e.at) LIMIT 100",
        [],
    ):
        report.break_at(None, "It was put into the log past its writer: it has and awaits no place.", str(event_id))


def _tell(report: Report, scan: _Scan, checkpoints: int, outside: Sequence[str]) -> None:
    report.proven.append(f"The log holds {scan.size} events, each at its place, and its leaf is the one in the tree.")
    report.proven.append(f"{scan.payloads} payloads are those that their leaves commit to.")
    if erased := scan.size - scan.payloads:
        report.not_proven.append(f"What {erased} of the events said: their payloads were erased. Their places stand.")
    if report.against is not None:
        report.proven.append(
            f"The key {report.against.origin} signed {report.against.size} of them, and {checkpoints} checkpoints in"
            " all: each is the beginning of the next."
        )
    report.proven += [f"{who[0].upper()}{who[1:]} is a beginning of this log." for who in outside]
