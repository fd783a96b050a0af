"""Witnesses: somebody else's server cosigns our checkpoints, each only as a continuation of the last (tlog-witness)."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import urllib3
from django.conf import settings

from audit.changes import record_change
from audit.connections import open_connection
from audit.notes import NoteError, Verifier, read_cosignature, write_witness_request
from audit.proofs import LATEST, Ask, read_tree

EVERY: Final = 10.0
TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=10.0)
# A cosignature line has some 150 bytes; a witness may answer with several.
MAX_ANSWER: Final = 16_384

log = logging.getLogger("audit.witness")


class WitnessRefused(Exception):
    """The witness has seen another log than ours, or does not know ours: a sentence."""


class WitnessUnreachable(Exception):
    """No usable answer; worth another try: a sentence."""


@dataclass(frozen=True, slots=True)
class Published:
    """A signed checkpoint to be cosigned."""

    origin: str
    size: int
    note: str


def cosign(address: str, witness: Verifier, published: Published, *, old: int, ask: Ask) -> str:
    """The witness's signature lines on the checkpoint, checked. `old`: the size that it cosigned last, as far as known.

    Asks once more where the witness names another size. Raises WitnessRefused where it has cosigned what is not a
    beginning of this log: somebody rewrote one of the two. May be repeated.
    """
    tree = read_tree(published.size, ask)
    for _ in range(2):
        body = write_witness_request(old=old, proof=tree.prove_consistency(old), checkpoint_note=published.note)
        status, answer = _post(f"{address}/add-checkpoint", body)
        if status == 200:
            return _check(answer, witness, published)
        if status == 409 and answer.strip().isdecimal() and int(answer) != old:
            old = int(answer)
            if old > published.size:
                raise WitnessRefused(
                    f"The witness {witness.name} has cosigned {old} events of this log, which now has {published.size}."
                )
            continue
        break
    if status in (409, 422):
        raise WitnessRefused(
            f"The witness {witness.name} has cosigned {old} events that are not the beginning of this log: one of the"
            " two was rewritten."
        )
    if status in (400, 403, 404):
        raise WitnessRefused(f"The witness {witness.name} does not take this log's checkpoints (status {status}).")
    raise WitnessUnreachable(f"The witness {witness.name} answered with status {status}.")


def _post(address: str, body: str) -> tuple[int, str]:
    try:
        response = urllib3.request(
            "POST", address, body=body.encode(), redirect=False, retries=False, timeout=TIMEOUT, preload_content=False
        )
        try:
            return response.status, response.read(MAX_ANSWER).decode("utf-8", "replace")
        finally:
            response.close()
    except urllib3.exceptions.HTTPError as error:
        raise WitnessUnreachable(f"{address} cannot be reached: {type(error).__name__}.") from None


def _check(lines: str, witness: Verifier, published: Published) -> str:
    try:
        read_cosignature(published.note + lines, witness)
    except NoteError as error:
        raise WitnessUnreachable(
            f"The witness {witness.name} answered with no cosignature of its own. {error}"
        ) from None
    return lines


class Round:
    """Asks every witness of AUDIT_WITNESSES for the newest checkpoint, where it has not cosigned that yet."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._said: dict[str, str] = {}

    def ask(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def run(self) -> None:
        """One round. A refusal is an event (log.changed), once."""
        rows = self.ask(LATEST, [settings.AUDIT_ORIGIN])
        if not rows:
            return
        published = Published(rows[0][0], rows[0][1], rows[0][4])
        for address, key in settings.AUDIT_WITNESSES:
            witness = Verifier.parse(key)
            try:
                self._cosign(address, witness, published)
            except WitnessUnreachable as error:
                log.warning("%s", error)
            except WitnessRefused as refused:
                self._complain(witness, refused)
            else:
                self._said.pop(witness.name, None)

    def _cosign(self, address: str, witness: Verifier, published: Published) -> None:
        ((last,),) = self.ask(
            "SELECT coalesce(max(size), 0) FROM audit_cosignature WHERE origin = %s AND witness = %s",
            [published.origin, str(witness)],
        )
        old = min(last, published.size)
        if old == published.size and old:
            return
        lines = cosign(address, witness, published, old=old, ask=self.ask)
        self.ask(
            "SELECT audit_store_cosignature(%s, %s, %s, %s)", [published.origin, published.size, str(witness), lines]
        )

    def _complain(self, witness: Verifier, refused: WitnessRefused) -> None:
        if witness.name not in self._said:
            self._said[witness.name] = str(refused)
            log.error("%s", refused)
            record_change("witness_refused", str(refused))


def run(stop: threading.Event) -> None:
    """Asks the witnesses until `stop` is set; does nothing where there are none, or where another process does it."""
    while settings.AUDIT_WITNESSES and not stop.is_set():
        try:
            with open_connection("witness") as connection:
                while not stop.is_set():
                    held = connection.execute("SELECT pg_try_advisory_lock(hashtext('audit_witness'))").fetchone()
                    if held == (True,):
                        Round(connection).run()
                    stop.wait(EVERY)
        except psycopg.OperationalError as error:
            log.warning("The database cannot be reached: %s", str(error).splitlines()[0])
            stop.wait(EVERY)
