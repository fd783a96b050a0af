"""The tree as tiles (c2sp.org/tlog-tiles): their addresses, their bytes, and roots and proofs out of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from audit.merkle import EMPTY_ROOT, HASH_BYTES, ProofError, compute_root, split_size

TILE_WIDTH: Final = 256
TILE_HEIGHT: Final = 8
# Levels are 0 to 5 for any tree of fewer than 2^48 leaves; 63 is the highest that the format can name.
MAX_LEVEL: Final = 63

_NUMBER = r"(?:x[0-9]{3}/)*[0-9]{3}"
_PATH = re.compile(rf"(entries|0|[1-9][0-9]?)/({_NUMBER})(?:\.p/([1-9][0-9]{{0,2}}))?", re.ASCII)

ReadTile = Callable[[int, int], bytes]
"""`read(level, number)`: the hashes of that tile side by side, at least as many as the tree of that size has there."""


@dataclass(frozen=True, slots=True)
class TilePath:
    """A tile that somebody asks for. `level` is None for the leaves themselves; `width` hashes (or leaves) of it."""

    level: int | None
    number: int
    width: int = TILE_WIDTH

    def __str__(self) -> str:
        groups = [f"{self.number % 1000:03d}"]
        rest = self.number // 1000
        while rest:
            groups.insert(0, f"x{rest % 1000:03d}")
            rest //= 1000
        partial = "" if self.width == TILE_WIDTH else f".p/{self.width}"
        return f"tile/{'entries' if self.level is None else self.level}/{'/'.join(groups)}{partial}"

    @classmethod
    def parse(cls, path: str) -> "TilePath | None":
        """The tile named by what follows `tile/`, or None: a tile has one address."""
        match = _PATH.fullmatch(path) if len(path) <= 64 else None
        if match is None:
            return None
        level = None if match[1] == "entries" else int(match[1])
        width = int(match[3]) if match[3] else TILE_WIDTH
        asked = cls(level, int(match[2].replace("x", "").replace("/", "")), width)
        is_partial = match[3] is not None
        if (level or 0) > MAX_LEVEL or (is_partial and width >= TILE_WIDTH) or str(asked) != f"tile/{path}":
            return None
        return asked

    def is_within(self, size: int) -> bool:
        """Whether the tree of that size has this tile, that wide."""
        count = size >> TILE_HEIGHT * (self.level or 0)
        return self.number * TILE_WIDTH + self.width <= count


def tiles_of(size: int) -> list[TilePath]:
    """Every tile of hashes of the tree of that size, the last of a level as wide as it is."""
    paths: list[TilePath] = []
    level = 0
    while count := size >> TILE_HEIGHT * level:
        full, width = divmod(count, TILE_WIDTH)
        paths += [TilePath(level, number) for number in range(full)]
        paths += [TilePath(level, full, width)] if width else []
        level += 1
    return paths


def encode_entries(leaves: Sequence[bytes]) -> bytes:
    """A tile of leaves: each behind its length as a 16-bit number."""
    return b"".join(len(leaf).to_bytes(2) + leaf for leaf in leaves)


class TileTree:
    """The tree of `size` leaves, read by tiles: a root, or a proof, takes a handful of them."""

    def __init__(self, size: int, read: ReadTile) -> None:
        self.size = size
        self._read = read
        self._tiles: dict[tuple[int, int], bytes] = {}

    def root(self) -> bytes:
        """The root over all leaves."""
        return self.root_at(self.size)

    def root_at(self, size: int) -> bytes:
        """The root over the first `size` leaves."""
        if not 0 <= size <= self.size:
            raise ProofError(f"A tree of {self.size} leaves has no beginning of {size}.")
        return self._range_root(0, size) if size else EMPTY_ROOT

    def leaf_hash(self, index: int) -> bytes:
        """The hash of leaf `index`, as the tree holds it."""
        return self._hashes(0, index, 1)[0]

    def prove_inclusion(self, index: int) -> list[bytes]:
        """As merkle.prove_inclusion: the siblings from leaf `index` up to the root."""
        if not 0 <= index < self.size:
            raise ProofError(f"A tree of {self.size} leaves has no leaf {index}.")
        proof: list[bytes] = []
        start, stop = 0, self.size
        while stop - start > 1:
            middle = start + split_size(stop - start)
            if index < middle:
                proof.append(self._range_root(middle, stop))
                stop = middle
            else:
                proof.append(self._range_root(start, middle))
                start = middle
        return proof[::-1]

    def prove_consistency(self, old: int) -> list[bytes]:
        """As merkle.prove_consistency: what shows that the first `old` leaves are the beginning of this tree."""
        if not 0 <= old <= self.size:
            raise ProofError(f"A tree of {self.size} leaves has no beginning of {old}.")
        if old in (0, self.size):
            return []
        proof: list[bytes] = []
        start, stop = 0, self.size
        while old != stop:
            middle = start + split_size(stop - start)
            if old <= middle:
                proof.append(self._range_root(middle, stop))
                stop = middle
            else:
                proof.append(self._range_root(start, middle))
                start = middle
        # The whole older tree is what the verifier has; any other last part it needs to be told.
        if start != 0:
            proof.append(self._range_root(start, stop))
        return proof[::-1]

    def _range_root(self, start: int, stop: int) -> bytes:
        """The root over leaves `start` to before `stop`, where `start` is a multiple of the power of two above."""
        count = stop - start
        if count & (count - 1) == 0:
            return self._node(count.bit_length() - 1, start)
        # The largest power of two below count leads; what follows is smaller.
        middle = start + split_size(count)
        return compute_root([self._range_root(start, middle), self._range_root(middle, stop)])

    def _node(self, height: int, start: int) -> bytes:
        """The node over 2^height leaves from `start` on."""
        level, within = divmod(height, TILE_HEIGHT)
        return compute_root(self._hashes(level, start >> TILE_HEIGHT * level, 1 << within))

    def _hashes(self, level: int, first: int, count: int) -> list[bytes]:
        number, place = divmod(first, TILE_WIDTH)
        key = (level, number)
        if key not in self._tiles:
            self._tiles[key] = self._read(level, number)
        tile = self._tiles[key][place * HASH_BYTES : (place + count) * HASH_BYTES]
        if len(tile) != count * HASH_BYTES:
            raise ProofError(f"The tree is damaged: level {level} has no hash {first + len(tile) // HASH_BYTES}.")
        return [tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES)]
