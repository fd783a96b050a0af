"""A sequencer for tests: the real one, with the run's key and a state file of the test's own."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from audit.connections import open_connection
from audit.sequencer import Sequencer
from audit.signing import SignedState, read_signer


@contextmanager
def sequencing(folder: Path) -> Iterator[Sequencer]:
    """A sequencer that leads, over a connection of its own; what it signed last is kept in `folder`."""
    signer = read_signer()
    with open_connection() as connection:
        sequencer = Sequencer(connection, signer, SignedState(folder / "signed", signer.verifier))
        assert sequencer.take_lead()
        try:
            yield sequencer
        finally:
            # The server learns some time later that the connection is gone; the next one does not stand by here.
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock_all()")


def sequence(folder: Path) -> int:
    """One turn: everything committed has its place under a signed checkpoint. Returns the size of the tree."""
    with sequencing(folder) as sequencer:
        signed = sequencer.turn(heartbeat=0).signed
        assert signed is not None
        return signed.size
