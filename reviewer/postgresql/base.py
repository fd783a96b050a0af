"""Django's PostgreSQL, but a connection that was kept is looked at before it is asked: no round trip a request."""

import select

from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus


class DatabaseWrapper(base.DatabaseWrapper):
    """A server that stops says so on every connection, and the line is closed: both can be read without asking.

    A server whose machine vanished says nothing; then the first statement finds out, as the question would have.
    """

    def is_usable(self) -> bool:
        """Whether a kept connection still serves. Asks only where the server has said something unasked."""
        kept = self.connection
        if kept is None or kept.closed or kept.info.transaction_status != TransactionStatus.IDLE:
            return bool(super().is_usable())
        poll = select.poll()
        poll.register(kept.fileno(), select.POLLIN)
        return not poll.poll(0) or bool(super().is_usable())
