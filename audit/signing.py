"""The log's own key and the last state it signed, both outside the database."""

import base64
import binascii
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from audit.merkle import ProofError
from audit.notes import ED25519, Checkpoint, NoteError, Verifier, open_checkpoint, sign_checkpoint
from audit.tiles import TileTree

SEED_BYTES: Final = 32


class SigningRefused(Exception):
    """Why the log does not sign: a sentence for whoever runs it."""


class KeyMissing(Exception):
    """There is no key here, and what to set: a sentence."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The log's name and its Ed25519 seed. Another key's line (ML-DSA-44) goes behind this one's: append_signature."""

    origin: str
    seed: bytes

    @property
    def verifier(self) -> Verifier:
        public = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return Verifier(self.origin, ED25519, public)

    def sign(self, checkpoint: Checkpoint) -> str:
        """The signed note. Whether it may be signed at all is SignedState's to say."""
        return sign_checkpoint(checkpoint, self.seed)


def read_signer() -> Signer:
    """The key in the file that AUDIT_SIGNING_KEY names: 32 bytes of seed as base64, readable by nobody else."""
    if not settings.AUDIT_SIGNING_KEY or not settings.AUDIT_ORIGIN:
        raise KeyMissing("The log is not signed: set AUDIT_ORIGIN and AUDIT_SIGNING_KEY (`manage.py up` makes both).")
    path = Path(settings.AUDIT_SIGNING_KEY)
    try:
        seed = base64.b64decode(path.read_bytes().strip(), validate=True)
    except OSError as error:
        raise KeyMissing(f"The log's signing key, {path}, cannot be read: {error.strerror}.") from None
    except binascii.Error:
        raise KeyMissing(f"The log's signing key, {path}, is not base64.") from None
    if len(seed) != SEED_BYTES:
        raise KeyMissing(f"The log's signing key, {path}, has {len(seed)} bytes and needs {SEED_BYTES}.")
    if path.stat().st_mode & 0o077:
        raise KeyMissing(f"The log's signing key, {path}, can be read by others: chmod 600 it.")
    return Signer(settings.AUDIT_ORIGIN, seed)


def read_verifier() -> Verifier:
    """The key that checkpoints are checked with: AUDIT_VERIFIER_KEY, or the public half of the signing key."""
    if not settings.AUDIT_VERIFIER_KEY:
        return read_signer().verifier
    try:
        return Verifier.parse(settings.AUDIT_VERIFIER_KEY)
    except NoteError as error:
        raise KeyMissing(f"AUDIT_VERIFIER_KEY cannot be used. {error}") from None


class SignedState:
    """The last checkpoint that was signed, in a file beside the key: what a restored database cannot take back."""

    def __init__(self, path: Path, verifier: Verifier) -> None:
        self.path = path
        self.verifier = verifier

    def read(self) -> Checkpoint | None:
        """The last signed checkpoint, or None where nothing was signed yet. Refuses what the key did not sign."""
        try:
            note = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SigningRefused(f"{self.path} cannot be read: {error.strerror}.") from None
        try:
            return open_checkpoint(note, self.verifier)
        except NoteError as error:
            raise SigningRefused(f"{self.path} does not hold a checkpoint of {self.verifier.name}. {error}") from None

    def write(self, note: str) -> None:
        """Keeps `note`, on disk when this returns."""
        new = self.path.with_name(self.path.name + ".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(note)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_may_sign(tree: TileTree, root: bytes, *, kept: Checkpoint | None, stored: Checkpoint | None) -> None:
    """Returns if a checkpoint of `tree` contradicts nothing that was signed before; else raises SigningRefused.

    `kept` is the state outside the database, `stored` the database's own last checkpoint of this log.
    """
    if kept is None and stored is not None:
        raise SigningRefused(
            f"The file of the last signed state is missing, and the database holds a checkpoint of {stored.size}"
            " events. Bring the file back; if it is lost, and this database is the newest there is, run"
            " audit_sequencer --trust-database."
        )
    for signed, where in ((kept, "outside the database"), (stored, "in the database")):
        if signed is None:
            continue
        if signed.size > tree.size:
            raise SigningRefused(
                f"The database holds {tree.size} events in its tree, and the last checkpoint signed ({where}) has"
                f" {signed.size}: it is an older state, restored from a backup perhaps. Nothing is signed."
            )
        try:
            before = root if signed.size == tree.size else tree.root_at(signed.size)
        except ProofError as error:
            raise SigningRefused(f"{error} Nothing is signed.") from None
        if before != signed.root:
            raise SigningRefused(
                f"The first {signed.size} events are not those of the last checkpoint signed ({where}): the log was"
                " rewritten, or restored and written on. Nothing is signed."
            )
