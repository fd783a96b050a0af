"""Signed notes, checkpoints and proofs as text: c2sp.org/signed-note, tlog-checkpoint, tlog-cosignature, tlog-proof."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from audit.merkle import HASH_BYTES, ProofError, verify_inclusion

# Signature types. 0x06 (ML-DSA-44) is known and not made yet: a line of it is passed over like any unknown key's.
ED25519: Final = 0x01
ED25519_COSIGNATURE: Final = 0x04
KEY_ID_BYTES: Final = 4
KEY_BYTES: Final = 32
TIME_BYTES: Final = 8
# The last second of the year 9999.
LAST_TIME: Final = 253_402_300_799

_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_NAME = re.compile(r"[^\s+\x00-\x1f]+")
_SIGNATURE_LINE = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
_MAX_SIGNATURES: Final = 100
_PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"
# A tree of 2^63 leaves has paths of 63.
_MAX_PATH: Final = 63


class NoteError(ValueError):
    """The text is not a note that the key signed; the message says why."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """A public key with its name: `<name>+<key id>+<base64 of type and key>`."""

    name: str
    type: int
    public_key: bytes

    @property
    def key_id(self) -> bytes:
        """The first four bytes of SHA-256(name || 0x0A || type || public key)."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.type]) + self.public_key).digest()[:KEY_ID_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_encode(bytes([self.type]) + self.public_key)}"

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """The verifier key of that text; refuses one whose id is not its key's (NoteError)."""
        name, key_id, key = ([*text.split("+", 2), "", ""])[:3]
        decoded = _decode(key)
        if _NAME.fullmatch(name) is None or decoded[:1] not in (bytes([ED25519]), bytes([ED25519_COSIGNATURE])):
            raise NoteError("This is no verifier key of a known type.")
        if len(decoded) != 1 + KEY_BYTES:
            raise NoteError(f"An Ed25519 key has {KEY_BYTES} bytes.")
        verifier = cls(name, decoded[0], decoded[1:])
        if verifier.key_id.hex() != key_id:
            raise NoteError("The verifier key's id is not that of its key.")
        return verifier


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How large the log `origin` was, and the root of its tree then."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The bytes that are signed: three lines with their newlines."""
        return f"{self.origin}\n{self.size}\n{_encode(self.root)}\n"


def sign_checkpoint(checkpoint: Checkpoint, seed: bytes) -> str:
    """The signed note of `checkpoint`, by the log's own Ed25519 key (32 bytes of `seed`) under the log's name."""
    if _NAME.fullmatch(checkpoint.origin) is None:
        raise NoteError("An origin has no space and no plus sign.")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    verifier = Verifier(checkpoint.origin, ED25519, key.public_key().public_bytes_raw())
    return append_signature(f"{checkpoint.text}\n", verifier, key.sign(checkpoint.text.encode()))


def append_signature(note: str, verifier: Verifier, signature: bytes) -> str:
    """`note` with one more signature line: another key's, or a witness's."""
    return f"{note}— {verifier.name} {_encode(verifier.key_id + signature)}\n"


def cosign_checkpoint(checkpoint: Checkpoint, *, name: str, seed: bytes, at: int) -> tuple[Verifier, bytes]:
    """A witness's signature (type 0x04) at `at` (seconds since 1970), as append_signature() takes it."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    signature = key.sign(_cosigned(at, checkpoint.text))
    return Verifier(name, ED25519_COSIGNATURE, key.public_key().public_bytes_raw()), at.to_bytes(TIME_BYTES) + signature


def open_checkpoint(note: str, verifier: Verifier) -> Checkpoint:
    """The checkpoint in `note`, whose log's `verifier` signed it. Refuses everything else with the reason (NoteError).

    Other keys' lines are passed over, as signed-note asks; a line of this key that does not verify is refused.
    """
    text, signatures = _split(note)
    _verify(text, signatures, verifier)
    lines = text.split("\n")[:-1]
    if len(lines) < 3:
        raise NoteError("A checkpoint has an origin, a size and a root.")
    origin, size, root = lines[:3]
    # tlog-checkpoint allows extension lines; this log writes none and takes none.
    if len(lines) > 3:
        raise NoteError("The checkpoint has lines that this log does not write.")
    if origin != verifier.name:
        raise NoteError("The checkpoint is another log's.")
    if _DECIMAL.fullmatch(size) is None:
        raise NoteError("The checkpoint's size is no plain number.")
    decoded = _decode(root)
    if len(decoded) != HASH_BYTES:
        raise NoteError("The checkpoint's root is no hash.")
    return Checkpoint(origin, int(size), decoded)


def read_cosignature(note: str, witness: Verifier) -> int:
    """When `witness` cosigned the note, in seconds since 1970; refuses a note that it did not cosign (NoteError)."""
    if witness.type != ED25519_COSIGNATURE:
        raise NoteError("This key is no witness's.")
    text, signatures = _split(note)
    at = int.from_bytes(_verify(text, signatures, witness)[:TIME_BYTES])
    if at > LAST_TIME:
        raise NoteError("The cosignature's time is none.")
    return at


def find_other_signers(note: str, known: Iterable[Verifier]) -> list[str]:
    """Names and key ids of the note's signatures that none of the `known` keys can check."""
    keys = {(verifier.name, verifier.key_id) for verifier in known}
    signers = [(name, signature[:KEY_ID_BYTES]) for name, signature in _split(note)[1]]
    return [f"{name}+{key_id.hex()}" for name, key_id in signers if (name, key_id) not in keys]


def write_proof(*, index: int, hashes: Sequence[bytes], checkpoint_note: str) -> str:
    """One event's proof as a small text file (c2sp.org/tlog-proof@v1)."""
    return "\n".join([_PROOF_HEADER, f"index {index}", *map(_encode, hashes), "", checkpoint_note])


def check_proof(text: str, *, leaf_hash: bytes, verifier: Verifier) -> tuple[int, Checkpoint]:
    """The leaf's index, and the checkpoint that covers it; refuses another proof (NoteError, ProofError)."""
    head, blank, note = text.partition("\n\n")
    header, *lines = head.split("\n")
    if not blank or header != _PROOF_HEADER or not lines or not lines[0].startswith("index "):
        raise NoteError(f"This is no {_PROOF_HEADER}.")
    index = lines[0].removeprefix("index ")
    if _DECIMAL.fullmatch(index) is None or len(lines) > 1 + _MAX_PATH:
        raise NoteError("The proof's index is no plain number, or its path too long.")
    checkpoint = open_checkpoint(note, verifier)
    verify_inclusion(
        index=int(index),
        size=checkpoint.size,
        leaf_hash=leaf_hash,
        proof=[_decode(line) for line in lines[1:]],
        root=checkpoint.root,
    )
    return int(index), checkpoint


def write_witness_request(*, old: int, proof: Sequence[bytes], checkpoint_note: str) -> str:
    """The body for a witness's add-checkpoint (c2sp.org/tlog-witness)."""
    return "\n".join([f"old {old}", *map(_encode, proof), "", checkpoint_note])


def _split(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """The signed text with its last newline, and (name, key id and signature) per line."""
    if any(ord(character) < ord(" ") and character != "\n" for character in note):
        raise NoteError("A note has no control characters.")
    text, blank, lines = note.rpartition("\n\n")
    if not blank or not lines.endswith("\n"):
        raise NoteError("A note ends with a blank line and its signatures, each with a newline.")
    signatures = []
    for line in lines[:-1].split("\n"):
        match = _SIGNATURE_LINE.fullmatch(line)
        if match is None:
            raise NoteError("A signature line is an em dash, a name, and base64.")
        signatures.append((match[1], _decode(match[2])))
    if len(signatures) > _MAX_SIGNATURES:
        raise NoteError("The note has too many signatures.")
    return text + "\n", signatures


def _verify(text: str, signatures: list[tuple[str, bytes]], verifier: Verifier) -> bytes:
    """The signature of `verifier`, verified; every line that bears its name and id must verify."""
    found = [
        signature[KEY_ID_BYTES:]
        for name, signature in signatures
        if name == verifier.name and signature[:KEY_ID_BYTES] == verifier.key_id
    ]
    if not found:
        raise NoteError("The key did not sign this note.")
    key = Ed25519PublicKey.from_public_bytes(verifier.public_key)
    for signature in found:
        signed, message = signature, text.encode()
        if verifier.type == ED25519_COSIGNATURE:
            signed, message = signature[TIME_BYTES:], _cosigned(int.from_bytes(signature[:TIME_BYTES]), text)
        try:
            key.verify(signed, message)
        except InvalidSignature as error:
            raise NoteError("The signature is not this note's.") from error
    return found[0]


def _cosigned(at: int, text: str) -> bytes:
    return f"cosignature/v1\ntime {at}\n{text}".encode()


def _encode(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decode(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NoteError("This is no base64.") from error
    # Bits behind the last byte may be anything to a decoder: one value would have several spellings.
    if _encode(value) != text:
        raise NoteError("The base64 is not in its one spelling.")
    return value


__all__ = [
    "ED25519",
    "ED25519_COSIGNATURE",
    "Checkpoint",
    "NoteError",
    "ProofError",
    "Verifier",
    "append_signature",
    "check_proof",
    "cosign_checkpoint",
    "find_other_signers",
    "open_checkpoint",
    "read_cosignature",
    "sign_checkpoint",
    "write_proof",
    "write_witness_request",
]
