"""When an agent was last heard of: kept to the minute, beside what it asks for and never in its way."""

import logging
import time
from datetime import timedelta
from typing import Any, Final, Protocol

from django.db import DatabaseError, connection

logger = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=1)
"""An agent that asks all the time is written down once in so long by a process, and by all of them together."""

# A row that somebody holds is left as it is: whoever asks here waits for nobody.
_NOTE: Final = """
WITH held AS (
    SELECT agent_id FROM plans_agentseen WHERE agent_id = %(agent)s
    AND seen_at < clock_timestamp() - make_interval(secs => %(every)s) FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE plans_agentseen s SET seen_at = clock_timestamp() FROM held WHERE s.agent_id = held.agent_id
)
INSERT INTO plans_agentseen (agent_id, seen_at) SELECT %(agent)s, clock_timestamp()
WHERE NOT EXISTS (SELECT FROM plans_agentseen WHERE agent_id = %(agent)s)
ON CONFLICT DO NOTHING
"""

_noted: dict[str, float] = {}
"""By the agent's name, which never changes: when this process last wrote it down, on its own clock."""


class Heard(Protocol):
    """What is noted of an agent."""

    @property
    def pk(self) -> Any: ...
    @property
    def name(self) -> str: ...


def note_seen(agent: Heard) -> None:
    """Write down that this agent has just made itself known, at most once a minute.

    A statement of its own, before the transaction of what the agent asks for: it locks the agent's row not at all, and
    where it fails, nothing but the note is lost.
    """
    now = time.monotonic()
    if now - _noted.get(agent.name, -EVERY.total_seconds()) < EVERY.total_seconds() or connection.in_atomic_block:
        return
    _noted[agent.name] = now
    try:
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, {"agent": agent.pk, "every": EVERY.total_seconds()})
    except DatabaseError as error:
        logger.warning("when %s was seen is not written down: %s", agent.name, type(error).__name__)
