"""When something is told: at once or in a digest, and not in somebody's quiet hours. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

AT_ONCE: Final = "at_once"
EVERY: Final = "every"
DAILY: Final = "daily"
NEVER: Final = "never"
"""Of the plans under one policy: nothing at all."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When one person wants to be told. Times of day are on their own clock."""

    zone: ZoneInfo
    pace: str = AT_ONCE
    every: timedelta = timedelta(minutes=30)
    daily_at: time = time(9)
    quiet: tuple[time, time] | None = None
    urgent_breaks_through: bool = False


def due_at(now: datetime, rhythm: Rhythm, *, is_urgent: bool) -> datetime:
    """When news of `now` is told: never before now, and not within quiet hours unless it is urgent and may break them.

    A digest "every N minutes" keeps to multiples of N since 1970 (UTC), so that news of one span travel together.
    """
    if is_urgent and rhythm.urgent_breaks_through:
        return now
    if rhythm.pace == EVERY:
        at = _next_multiple(now, rhythm.every)
    elif rhythm.pace == DAILY:
        at = _next(now, rhythm.daily_at, rhythm.zone, is_once=True)
    else:
        at = now
    return end_of_quiet(at, rhythm)


def end_of_quiet(at: datetime, rhythm: Rhythm) -> datetime:
    """`at`, or the end of the quiet hours it falls into."""
    if rhythm.quiet is None or not _is_quiet(at.astimezone(rhythm.zone).time(), rhythm.quiet):
        return at
    return _next(at, rhythm.quiet[1], rhythm.zone, is_once=False)


def _is_quiet(clock: time, quiet: tuple[time, time]) -> bool:
    start, end = quiet
    return start <= clock < end if start < end else clock >= start or clock < end


def _next_multiple(now: datetime, step: timedelta) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (-((epoch - now) // step)) * step


def _next(after: datetime, clock: time, zone: ZoneInfo, *, is_once: bool) -> datetime:
    """The first instant after `after` at which the clock in `zone` shows `clock`.

    A time that a change of the clocks skips counts as the moment the clocks were put forward to (by the old offset);
    one that occurs twice counts twice, or only the first time where `is_once`.
    """
    return min(at for at in _candidates(after, clock, zone, is_once=is_once) if at > after)


def _candidates(after: datetime, clock: time, zone: ZoneInfo, *, is_once: bool) -> Iterator[datetime]:
    today = after.astimezone(zone).date()
    for days in (-1, 0, 1, 2):
        for fold in (0,) if is_once else (0, 1):
            local = datetime.combine(today + timedelta(days=days), clock.replace(fold=fold), tzinfo=zone)
            utc = local.astimezone(UTC)
            is_skipped = utc.astimezone(zone).time() != clock.replace(fold=0)
            if not (is_skipped and fold):
                yield utc
