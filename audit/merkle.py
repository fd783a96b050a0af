"""The tree over all leaves (RFC 6962, section 2.1): hashes, proofs, and how anybody checks them."""

import hashlib
from collections.abc import Sequence
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


class ProofError(ValueError):
    """The proof does not prove what it was said to; the message says where it fails."""


def hash_leaf(leaf: bytes) -> bytes:
    """The hash of a leaf: SHA-256(0x00 || leaf)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node: SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def compute_root(hashes: Sequence[bytes]) -> bytes:
    """The root over these leaf hashes, in one pass with a stack as deep as the tree."""
    stack: list[bytes] = []
    for index, node in enumerate(hashes):
        # Every trailing one bit of the index is a subtree that this leaf completes.
        while index & 1:
            node = hash_node(stack.pop(), node)  # noqa: PLW2901 - the leaf grows into its subtree
            index >>= 1  # noqa: PLW2901
        stack.append(node)
    if not stack:
        return EMPTY_ROOT
    root = stack.pop()
    while stack:
        root = hash_node(stack.pop(), root)
    return root


def split_size(size: int) -> int:
    """The largest power of two strictly below `size` (at least 2)."""
    return 1 << (size - 1).bit_length() - 1


def prove_inclusion(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """The siblings from leaf `index` up to the root over `hashes` (RFC 6962, 2.1.1)."""
    size = len(hashes)
    if not 0 <= index < size:
        raise ProofError(f"A tree of {size} leaves has no leaf {index}.")
    if size == 1:
        return []
    middle = split_size(size)
    if index < middle:
        return [*prove_inclusion(hashes[:middle], index), compute_root(hashes[middle:])]
    return [*prove_inclusion(hashes[middle:], index - middle), compute_root(hashes[:middle])]


def prove_consistency(hashes: Sequence[bytes], old: int) -> list[bytes]:
    """What shows that the tree over the first `old` of `hashes` is the beginning of theirs (RFC 6962, 2.1.2)."""
    size = len(hashes)
    if not 0 <= old <= size:
        raise ProofError(f"A tree of {size} leaves has no beginning of {old}.")
    return [] if old in (0, size) else _prove_part(hashes, old, is_whole=True)


def _prove_part(hashes: Sequence[bytes], old: int, *, is_whole: bool) -> list[bytes]:
    if old == len(hashes):
        return [] if is_whole else [compute_root(hashes)]
    middle = split_size(len(hashes))
    if old <= middle:
        return [*_prove_part(hashes[:middle], old, is_whole=is_whole), compute_root(hashes[middle:])]
    return [*_prove_part(hashes[middle:], old - middle, is_whole=False), compute_root(hashes[:middle])]


def verify_inclusion(*, index: int, size: int, leaf_hash: bytes, proof: Sequence[bytes], root: bytes) -> None:
    """Returns if `leaf_hash` is leaf `index` of the tree of `size` leaves with that `root`; else raises ProofError.

    `size` and `root` must come from one and the same checkpoint: apart, a node can pass for a leaf. (RFC 9162, 2.1.3.2)
    """
    _check_hashes(leaf_hash, root, *proof)
    if not 0 <= index < size:
        raise ProofError(f"A tree of {size} leaves has no leaf {index}.")
    position, last, node = index, size - 1, leaf_hash
    for sibling in proof:
        if last == 0:
            raise ProofError("The proof is too long.")
        if position & 1 or position == last:
            node = hash_node(sibling, node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = hash_node(node, sibling)
        position, last = position >> 1, last >> 1
    if last != 0:
        raise ProofError("The proof is too short.")
    if node != root:
        raise ProofError("The proof leads to another root.")


def verify_consistency(*, old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Returns if the `old` leaves are the beginning of the `new`; else raises ProofError. (RFC 9162, 2.1.4.2)"""
    _check_hashes(old_root, new_root, *proof)
    if not 0 <= old <= new:
        raise ProofError("The older tree is the larger one.")
    if old in (0, new):
        _check_trivial(old_root, EMPTY_ROOT if old == 0 else new_root, proof)
        return
    if not proof:
        raise ProofError("The proof is too short.")
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    position, last = old - 1, new - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old_node = new_node = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise ProofError("The proof is too long.")
        if position & 1 or position == last:
            old_node, new_node = hash_node(sibling, old_node), hash_node(sibling, new_node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            new_node = hash_node(new_node, sibling)
        position, last = position >> 1, last >> 1
    if last != 0:
        raise ProofError("The proof is too short.")
    if (old_node, new_node) != (old_root, new_root):
        raise ProofError("The proof leads to other roots.")


def _check_trivial(old_root: bytes, known_root: bytes, proof: Sequence[bytes]) -> None:
    if proof:
        raise ProofError("The proof is too long.")
    if old_root != known_root:
        raise ProofError("Two roots were given for one size.")


def _check_hashes(*hashes: bytes) -> None:
    if any(len(value) != HASH_BYTES for value in hashes):
        raise ProofError(f"A hash has {HASH_BYTES} bytes.")
