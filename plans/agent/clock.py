"""The desk's clock, as far as it can be known from here: from the Date of its answers, never the host's clock alone."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

_RESOLUTION: Final = 1.0
"""Seconds by which the desk's clock may be past what a Date header says (RFC 9110 5.6.7: whole seconds)."""


def steady() -> float:
    """Seconds on a clock that never steps; one that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class DeskClock:
    """Between which two instants the desk's clock stands now. Safe with threads, without a lock: one pair is replaced.

    Every answer narrows it: its Date was written after the request was sent and before the answer was here. Until the
    first one, the host's clock is all there is. A Date that contradicts the earlier ones (a clock was set) starts anew.
    """

    def __init__(self, steady: Callable[[], float] = steady) -> None:
        self._steady = steady
        self._bounds: tuple[float, float] | None = None  # earliest and latest of: desk's clock minus the steady one

    def learn(self, date: str | None, sent_at: float, answered_at: float) -> None:
        """Takes in the Date header of an answer; instants are of `steady()`. One that cannot be read says nothing."""
        try:
            stamp = parsedate_to_datetime(date or "")
        except (TypeError, ValueError):
            return
        if stamp.utcoffset() is None:
            stamp = stamp.replace(tzinfo=UTC)
        seen = stamp.timestamp()
        earliest, latest = seen - answered_at, seen + _RESOLUTION - sent_at
        known = self._bounds
        if known is not None:
            narrowed = max(earliest, known[0]), min(latest, known[1])
            if narrowed[0] <= narrowed[1]:
                earliest, latest = narrowed
        self._bounds = (earliest, latest)

    @property
    def is_known(self) -> bool:
        """Whether an answer has told the desk's time; until then only the host's clock speaks."""
        return self._bounds is not None

    def latest(self) -> datetime:
        """The latest that it may be at the desk: what an expiry is held against."""
        return self._at(1)

    def earliest(self) -> datetime:
        """The earliest that it may be at the desk."""
        return self._at(0)

    def middle(self) -> datetime:
        """The best guess: what a message to the desk is stamped with."""
        earliest = self.earliest()
        return earliest + (self.latest() - earliest) / 2

    def _at(self, which: int) -> datetime:
        bounds = self._bounds
        if bounds is None:
            return datetime.now(UTC)
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=bounds[which] + self._steady())
