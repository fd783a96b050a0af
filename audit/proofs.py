"""The tree as the database holds it: places, tiles, the latest checkpoint, and one event's proof."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from django.conf import settings
from django.db import InternalError, connection, transaction
from psycopg.errors import DataCorrupted

from audit.notes import write_proof
from audit.tiles import TILE_WIDTH, TilePath, TileTree, encode_entries

Ask: TypeAlias = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a statement with its parameters and returns its rows: over Django's connection, or one of its own."""

SIZE = "SELECT coalesce(max(index) + 1, 0) FROM audit_sequence"
LATEST = """
    SELECT origin, size, signed_at, root, note FROM audit_checkpoint WHERE origin = %s
    ORDER BY size DESC, signed_at DESC LIMIT 1
"""


class NotSequencedError(Exception):
    """The event is recorded, and no signed checkpoint covers it yet: a matter of seconds while the sequencer runs."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as it was published: the note with the cosignatures that came for it."""

    origin: str
    size: int
    signed_at: datetime
    root: bytes
    note: str


def ask_django(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Over the request's own connection."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def advance(limit: int = 4096) -> int:
    """Gives what is pending its places in the tree, a batch of `limit` per transaction; returns how many got one.

    Whoever reads by index calls it, so that no reader depends on the sequencer's pace. Needs no key; may be repeated;
    leaves at once while somebody else does it, and where an event is not what was recorded: to say that, and to stop,
    is the sequencer's and the verification's part.
    """
    moved = 0
    while True:
        try:
            with transaction.atomic():
                ((old_size, new_size),) = ask_django("SELECT old_size, new_size FROM audit_advance(%s)", [limit])
        except InternalError as error:
            if isinstance(error.__cause__, DataCorrupted):
                return moved
            raise
        if old_size is None:
            return moved
        moved += int(new_size - old_size)
        if new_size - old_size < limit:
            return moved


def read_size(ask: Ask = ask_django) -> int:
    """How many events have their place in the tree; signed or not."""
    return int(ask(SIZE, [])[0][0])


def count_pending(ask: Ask = ask_django) -> int:
    """How many events wait for theirs."""
    return int(ask("SELECT count(*) FROM audit_pending", [])[0][0])


def read_tree(size: int, ask: Ask = ask_django) -> TileTree:
    """The tree over the first `size` events."""

    def read(level: int, number: int) -> bytes:
        rows = ask("SELECT hashes FROM audit_tile WHERE level = %s AND number = %s", [level, number])
        return bytes(rows[0][0]) if rows else b""

    return TileTree(size, read)


def read_checkpoint(ask: Ask = ask_django) -> StoredCheckpoint | None:
    """The newest checkpoint of this log, with its cosignatures; None before the first."""
    rows = ask(LATEST, [settings.AUDIT_ORIGIN])
    if not rows:
        return None
    origin, size, signed_at, root, note = rows[0]
    lines = ask(
        "SELECT DISTINCT ON (witness) line FROM audit_cosignature WHERE origin = %s AND size = %s"
        " ORDER BY witness, cosigned_at DESC",
        [origin, size],
    )
    return StoredCheckpoint(origin, size, signed_at, bytes(root), note + "".join(line for (line,) in lines))


def read_indexes(event_ids: Sequence[UUID], ask: Ask = ask_django) -> Mapping[UUID, int]:
    """The places of those of these events that have one."""
    rows = ask("SELECT event_id, index FROM audit_sequence WHERE event_id = ANY(%s)", [list(event_ids)])
    return {row[0]: row[1] for row in rows}


def read_leaf(event_id: UUID, at: datetime) -> tuple[bytes, bytes | None]:
    """The bytes that are hashed for the event of that time, and the salt of its commitment; None where that is erased.

    Raises LookupError where there is no such event.
    """
    rows = ask_django(
        "SELECT e.leaf, p.salt FROM audit_event e LEFT JOIN audit_payload p ON p.event_id = e.id"
        " WHERE e.at = %s AND e.id = %s",
        [at, event_id],
    )
    if not rows:
        raise LookupError(event_id)
    leaf, salt = rows[0]
    return bytes(leaf), None if salt is None else bytes(salt)


def read_cosigned(witness: str) -> tuple[int, datetime] | None:
    """Size and time of the newest checkpoint of this log that the witness of this verifier key cosigned."""
    rows = ask_django(
        "SELECT size, cosigned_at FROM audit_cosignature WHERE origin = %s AND witness = %s"
        " ORDER BY size DESC, cosigned_at DESC LIMIT 1",
        [settings.AUDIT_ORIGIN, witness],
    )
    return rows[0] if rows else None


def prove_event(event_id: UUID) -> str | None:
    """The event's proof under the newest checkpoint (c2sp.org/tlog-proof); None where there is no such event.

    Raises NotSequencedError where the event has no place under a signed checkpoint yet.
    """
    from_id = read_indexes([event_id])
    if event_id not in from_id:
        if ask_django("SELECT 1 FROM audit_pending WHERE event_id = %s", [event_id]):
            raise NotSequencedError("The event has no place in the tree yet.")
        return None
    index, checkpoint = from_id[event_id], read_checkpoint()
    if checkpoint is None or checkpoint.size <= index:
        raise NotSequencedError("No signed checkpoint covers the event yet.")
    return write_proof(
        index=index, hashes=read_tree(checkpoint.size).prove_inclusion(index), checkpoint_note=checkpoint.note
    )


def read_tile(path: TilePath) -> bytes | None:
    """The bytes of that tile, or None where no signed checkpoint reaches so far."""
    checkpoint = read_checkpoint()
    if checkpoint is None or not path.is_within(checkpoint.size):
        return None
    if path.level is None:
        return _read_entries(path)
    rows = ask_django("SELECT hashes FROM audit_tile WHERE level = %s AND number = %s", [path.level, path.number])
    return bytes(rows[0][0])[: path.width * 32] if rows else None


def _read_entries(path: TilePath) -> bytes | None:
    first = path.number * TILE_WIDTH
    rows = ask_django(
        "SELECT e.leaf FROM audit_sequence s JOIN audit_event e ON e.at = s.at AND e.id = s.event_id"
        " WHERE s.index >= %s AND s.index < %s ORDER BY s.index",
        [first, first + path.width],
    )
    return encode_entries([bytes(leaf) for (leaf,) in rows]) if len(rows) == path.width else None
