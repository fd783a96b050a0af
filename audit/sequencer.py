"""Behind the writers: gives every event its place in the tree, and signs. One process does it, others stand by."""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from psycopg.errors import DataCorrupted, InsufficientPrivilege, UniqueViolation

from audit.changes import record_change
from audit.connections import open_connection
from audit.merkle import ProofError
from audit.notes import Checkpoint, NoteError, open_checkpoint
from audit.proofs import LATEST, SIZE, Ask, read_tree
from audit.signing import SignedState, Signer, SigningRefused, check_may_sign, read_signer

BATCH: Final = 4096
# Blocks of 256 events that are read into the index of words in one turn: half a second's work where there is a backlog.
WORD_BLOCKS: Final = 32
# So many events in a turn are writers who need the machine. Then words, which cost it six times what a place does, get
# this share of the time (a thousand events a second here), and catch up when it is quieter: a search by words looks
# through what is not in its index yet.
BUSY: Final = 1000
WORDS_SHARE: Final = 0.1
# A checkpoint is out at most 5 s after the commit; this leaves room for a batch, a signature and a slow disk.
EVERY: Final = 1.0
STAND_BY: Final = 1.0
AFTER_REFUSAL: Final = 15.0

log = logging.getLogger("audit.sequencer")


class SequencingStopped(Exception):
    """An event is not what was recorded, or the tree is damaged: nothing more is put into the tree. A sentence."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did: how many events got their place, and the checkpoint that was signed, if any."""

    moved: int
    signed: Checkpoint | None


class Sequencer:
    """One turn after the other over one connection, whose session holds the lock.

    A turn first commits the events' places and then signs what is committed: the other way round, a crash between the
    two would leave a signature for a tree that never was. The state outside the database is written before the
    checkpoint is published: a signature that anybody can have seen is one that is remembered.
    """

    def __init__(self, connection: psycopg.Connection[Any], signer: Signer, state: SignedState) -> None:
        self.connection = connection
        self.signer = signer
        self.state = state
        self._signed_size: int | None = None
        self._signed_at = 0.0
        self._words_due = 0.0

    def take_lead(self) -> bool:
        """Whether this session is the one that sequences, from now until it ends."""
        return bool(self._ask("SELECT pg_try_advisory_lock(hashtext('audit_sequencer'))", [])[0][0])

    def turn(self, *, heartbeat: float) -> Turn:
        """Places what is pending, and signs where the tree grew or `heartbeat` seconds went by. May be repeated.

        Then it reads words into their index, now and then where writers are busy: nothing of the tree waits for that.
        """
        moved = self.drain()
        size = int(self._ask(SIZE, [])[0][0])
        is_due = self._signed_size != size or time.monotonic() - self._signed_at >= heartbeat
        turn = Turn(moved, self.sign(size) if is_due else None)
        began = time.monotonic()
        if moved < BUSY or began >= self._words_due:
            self._ask("SELECT audit_read_words(%s)", [WORD_BLOCKS])
            ended = time.monotonic()
            self._words_due = ended + (ended - began) * (1 / WORDS_SHARE - 1)
        return turn

    def drain(self) -> int:
        """Batch by batch, each in one transaction, until nothing is pending."""
        moved = 0
        while True:
            try:
                ((old, new),) = self._ask("SELECT old_size, new_size FROM audit_advance(%s)", [BATCH])
            except (DataCorrupted, InsufficientPrivilege, UniqueViolation) as error:
                raise SequencingStopped(str(error).splitlines()[0]) from error
            moved += 0 if old is None else new - old
            if old is None or new - old < BATCH:
                return moved

    def sign(self, size: int) -> Checkpoint:
        """Signs the tree of `size` committed events and publishes it; raises SigningRefused rather than contradict."""
        tree = read_tree(size, self._ask)
        stored = self._read_stored()
        try:
            root = tree.root()
        except ProofError as error:
            raise SigningRefused(f"{error} Nothing is signed.") from error
        check_may_sign(tree, root, kept=self.state.read(), stored=stored)
        checkpoint = Checkpoint(self.signer.origin, size, root)
        note = self.signer.sign(checkpoint)
        self.state.write(note)
        self._ask("SELECT audit_store_checkpoint(%s, %s, %s, %s)", [checkpoint.origin, size, root, note])
        self._signed_size, self._signed_at = size, time.monotonic()
        return checkpoint

    def trust_database(self) -> Checkpoint | None:
        """Takes the database's own last checkpoint for the last state signed; refuses where a newer one is known."""
        kept, stored = self.state.read(), self._read_stored()
        if kept is not None:
            raise SigningRefused(f"{self.state.path} is there, with a checkpoint of {kept.size} events: it counts.")
        if stored is not None:
            self.state.write(self._ask(LATEST, [self.signer.origin])[0][4])
        return stored

    def _read_stored(self) -> Checkpoint | None:
        rows = self._ask(LATEST, [self.signer.origin])
        if not rows:
            return None
        try:
            return open_checkpoint(rows[0][4], self.signer.verifier)
        except NoteError as error:
            raise SigningRefused(f"The database's last checkpoint is not one that this key signed. {error}") from None

    def _ask(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, parameters).fetchall()

    @property
    def ask(self) -> Ask:
        return self._ask


def make_sequencer(connection: psycopg.Connection[Any]) -> Sequencer:
    """With the key and the state file that the settings name. Raises KeyMissing."""
    signer = read_signer()
    return Sequencer(connection, signer, SignedState(Path(settings.AUDIT_STATE_FILE), signer.verifier))


def run(stop: threading.Event) -> None:
    """Sequences until `stop` is set: leads or stands by, outlives the database's restarts, says why it refuses."""
    complaint = Complaint()
    while not stop.is_set():
        try:
            with open_connection("sequencer") as connection:
                _lead(make_sequencer(connection), stop, complaint)
        except psycopg.OperationalError as error:
            log.warning("The database cannot be reached: %s", str(error).splitlines()[0])
            stop.wait(STAND_BY)


def _lead(sequencer: Sequencer, stop: threading.Event, complaint: "Complaint") -> None:
    while not stop.is_set() and not sequencer.take_lead():
        stop.wait(STAND_BY)
    while not stop.is_set():
        try:
            sequencer.turn(heartbeat=settings.AUDIT_HEARTBEAT.total_seconds())
        except (SigningRefused, SequencingStopped) as refusal:
            complaint.say(refusal)
            stop.wait(AFTER_REFUSAL)
        else:
            complaint.end()
            stop.wait(EVERY)


class Complaint:
    """Says what stops the log once, to the process's own log and as an event; and once that it goes on."""

    def __init__(self) -> None:
        self._said: str | None = None

    def say(self, refusal: SigningRefused | SequencingStopped) -> None:
        change = "signing_refused" if isinstance(refusal, SigningRefused) else "sequencing_stopped"
        # By what it is, not by its words: those name sizes, and the event itself makes the log longer.
        if self._said == change:
            return
        self._said = change
        log.error("%s", refusal)
        record_change(change, str(refusal))

    def end(self) -> None:
        if self._said is not None:
            self._said = None
            log.warning("The log is sequenced and signed again.")
            record_change("resumed", "The log is sequenced and signed again.")
