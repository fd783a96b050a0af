"""What happens to the log itself, told in the log."""

from typing import Final

from django.db import close_old_connections, transaction

from audit.kinds import Kind
from audit.recording import Actor, record

SEQUENCER: Final = Actor("system", "sequencer", "Sequencer")


def record_change(change: str, reason: str) -> None:
    """One log.changed event by the sequencer, in a transaction of its own."""
    close_old_connections()
    with transaction.atomic():
        record(Kind.LOG_CHANGED, actor=SEQUENCER, data={"change": change, "reason": reason})
