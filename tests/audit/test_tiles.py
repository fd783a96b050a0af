"""Tiles: the vectors' bytes and addresses, and roots and proofs out of them equal to those of the whole tree."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from audit.merkle import (
    HASH_BYTES,
    ProofError,
    compute_root,
    hash_leaf,
    prove_consistency,
    prove_inclusion,
)
from audit.tiles import TILE_WIDTH, TilePath, TileTree, encode_entries, tiles_of

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "tlog.json").read_text("utf-8"))


def build_tiles(hashes: list[bytes]) -> dict[tuple[int, int], bytes]:
    """Plainly: each level from the one below."""
    tiles: dict[tuple[int, int], bytes] = {}
    level = 0
    while hashes:
        for number in range((len(hashes) + TILE_WIDTH - 1) // TILE_WIDTH):
            tiles[level, number] = b"".join(hashes[number * TILE_WIDTH : (number + 1) * TILE_WIDTH])
        full = len(hashes) // TILE_WIDTH
        hashes = [compute_root(hashes[at * TILE_WIDTH : (at + 1) * TILE_WIDTH]) for at in range(full)]
        level += 1
    return tiles


def tree_of(hashes: list[bytes]) -> TileTree:
    tiles = build_tiles(hashes)
    return TileTree(len(hashes), lambda level, number: tiles[level, number])


def test_tiles_of_the_small_tree_are_the_vectors() -> None:
    leaves = [bytes.fromhex(leaf["data_hex"]) for leaf in VECTORS["leaves"]]
    tiles = build_tiles([hash_leaf(leaf) for leaf in leaves])
    assert tiles[0, 0].hex() == VECTORS["tiles_size_21"]["tile/0/000.p/21"]
    assert encode_entries(leaves).hex() == VECTORS["tiles_size_21"]["tile/entries/000.p/21"]
    assert [str(path) for path in tiles_of(21)] == ["tile/0/000.p/21"]


@pytest.mark.parametrize("size", VECTORS["large_tree"]["sizes"])
def test_tiles_and_roots_of_large_trees_are_the_vectors(size: str) -> None:
    told = VECTORS["large_tree"]["sizes"][size]
    leaves = [f"event {index}".encode() for index in range(int(size))]
    tiles = build_tiles([hash_leaf(leaf) for leaf in leaves])
    for path, digest in told["tile_sha256"].items():
        asked = TilePath.parse(path.removeprefix("tile/"))
        assert asked is not None
        assert str(asked) == path
        assert asked.is_within(int(size))
        if asked.level is None:
            first = asked.number * TILE_WIDTH
            content = encode_entries(leaves[first : first + asked.width])
        else:
            content = tiles[asked.level, asked.number][: asked.width * HASH_BYTES]
        assert hashlib.sha256(content).hexdigest() == digest
    tree = TileTree(int(size), lambda level, number: tiles[level, number])
    assert tree.root().hex() == told["root"]
    entry_tiles = -(-int(size) // TILE_WIDTH)
    assert len(tiles_of(int(size))) + entry_tiles == told["tile_count"]


@pytest.mark.parametrize("size", [1, 2, 3, 21, 255, 256, 257, 511, 513, 1000])
def test_proofs_out_of_tiles_are_those_of_the_whole_tree(size: int) -> None:
    hashes = [hash_leaf(f"event {index}".encode()) for index in range(size)]
    tree = tree_of(hashes)
    assert tree.root() == compute_root(hashes)
    for index in {0, 1, size // 3, size // 2, size - 2, size - 1} & set(range(size)):
        assert tree.prove_inclusion(index) == prove_inclusion(hashes, index)
        assert tree.leaf_hash(index) == hashes[index]
    for old in {0, 1, 2, size // 3, size // 2, 256, size - 1, size} & set(range(size + 1)):
        assert tree.prove_consistency(old) == prove_consistency(hashes, old)
        assert tree.root_at(old) == compute_root(hashes[:old])


def test_a_smaller_tree_is_read_out_of_the_tiles_of_a_larger_one() -> None:
    hashes = [hash_leaf(f"event {index}".encode()) for index in range(700)]
    tiles = build_tiles(hashes)
    tree = TileTree(300, lambda level, number: tiles[level, number])
    assert tree.root() == compute_root(hashes[:300])
    assert tree.prove_inclusion(299) == prove_inclusion(hashes[:300], 299)


def test_a_tile_that_is_too_short_is_damage_and_a_leaf_that_is_not_there_no_proof() -> None:
    tree = TileTree(300, lambda level, number: bytes(32))
    with pytest.raises(ProofError, match="damaged"):
        tree.root()
    for index in (-1, 300):
        with pytest.raises(ProofError):
            tree.prove_inclusion(index)
        with pytest.raises(ProofError):
            tree.prove_consistency(index + 1 if index > 0 else index)


@pytest.mark.parametrize(
    "path",
    ["0/1", "00/001", "0/0001", "0/x000/001", "0/001.p/0", "0/001.p/256", "0/001.p/01", "-1/001", "64/001", "0/",
     "entry/001", "0/001/", "0/x1/001", "0/١٢٣", "0/001.p/", "0/" + "x001/" * 40 + "001"],
)  # fmt: skip
def test_a_tile_has_one_address(path: str) -> None:
    assert TilePath.parse(path) is None


def test_addresses_of_far_tiles_are_in_groups_of_three() -> None:
    assert str(TilePath(3, 1_234_067, 5)) == "tile/3/x001/x234/067.p/5"
    assert TilePath.parse("3/x001/x234/067.p/5") == TilePath(3, 1_234_067, 5)
    assert TilePath.parse("entries/x001/000") == TilePath(None, 1000)
    assert TilePath(0, 1).is_within(512)
    assert not TilePath(0, 1).is_within(511)
    assert not TilePath(1, 0, 2).is_within(511)
