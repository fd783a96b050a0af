"""What every verification is made of: its report, and the checks of a leaf, of a tree and of witnesses."""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from audit.merkle import EMPTY_ROOT, hash_node
from audit.notes import Checkpoint, NoteError, Verifier, read_cosignature

LISTED_DAMAGE: Final = 20
NEVER_PROVEN: Final = "That what was recorded is true: a log proves that nothing was changed, added or removed later."
NO_LEAF: Final = "Its leaf is no leaf of this log."
OTHER_PAYLOAD: Final = "Its payload is not the one that its leaf commits to."


At = Annotated[datetime, msgspec.Meta(tz=True)]


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A leaf's members (audit.canonical.build_leaf), read out of its bytes."""

    version: int
    id: str
    kind: str
    at: At
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


def read_leaf(leaf: bytes) -> Leaf | None:
    """The members of a leaf, or None: it is no leaf of this log."""
    try:
        return _LEAF.decode(leaf)
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was recorded. `index` is its place in the tree, where it has one."""

    index: int | None
    event_id: str | None
    what: str


@dataclass(slots=True)
class Report:
    """The outcome of a verification, in sentences: against which checkpoint, what holds, what stays open, what broke.

    Its first line names the checkpoint, its last one gives the verdict; damage is listed behind it.
    """

    against: Checkpoint | None = None
    proven: list[str] = field(default_factory=list)
    not_proven: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    first_bad_index: int | None = None
    covers: Literal["events", "hashes", "nothing"] = "events"
    """What is held against a signature: events, their leaf hashes alone, or none of them."""
    is_own_key: bool = False
    """Whether the key came in the file that it is to prove: whoever forged the one could make the other."""

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

    def verdict(self) -> str:
        """One sentence that claims no more than what was looked at."""
        if not self.is_whole:
            where = "" if self.first_bad_index is None else f"; the first bad index is {self.first_bad_index}"
            return f"DAMAGED in {self.damage_count} place{'s' * (self.damage_count > 1)}{where}."
        if self.covers == "nothing":
            return "NOT PROVEN: no damage can be seen, and no event is proven."
        condition = ", if the key that came in the file is the log's" if self.is_own_key else ""
        if self.covers == "hashes":
            return f"Whole as to leaf hashes{condition}: what the records say is not proven."
        return f"Whole{condition}: nothing is damaged."

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        against = self.against
        return {
            "whole": self.is_whole and self.covers != "nothing",
            "verdict": self.verdict(),
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
            name, size, root = spell(self.against.origin), self.against.size, self.against.root.hex()
            yield f"Checkpoint: {name}, {size} events, root {root}"
        yield from _titled("Proven", self.proven)
        yield from _titled("Not proven", self.not_proven)
        yield self.verdict()
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


def spell(name: str) -> str:
    """A foreign name, harmless on a terminal."""
    return name if name.isascii() and name.isprintable() else ascii(name)


def spell_some(names: Sequence[str], most: int = 10) -> str:
    """The first of these names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(spell, names[:most])) + more


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
    read = read_leaf(leaf)
    if read is None:
        return NO_LEAF
    members = (read.id, read.kind, read.at, read.actor_type, read.actor_id, read.on_behalf_of, read.agent, read.target,
               read.plan_id, read.plan_seq, read.operation, read.task_id, read.request_id)  # fmt: skip
    if members != told:
        return "What is shown of it is not what its leaf says."
    if salt is None or body is None:
        return None
    message = body.encode() if isinstance(body, str) else body
    if hmac.digest(salt, message, "sha256").hex() != read.commitment:
        return OTHER_PAYLOAD
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
