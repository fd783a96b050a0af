"""Instants on the wire: RFC 3339 with an offset in, UTC with `Z` out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

MAX_LENGTH: Final = 35
"""Characters of the longest instant that is read: a date, a time, six decimals and an offset, with room to spare."""

# RFC 3339 date-time, upper-case `T` and `Z` only (5.6 lets a profile ask for that), and [0-9], never any other digit.
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(Z|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_WITHOUT_OFFSET = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?")
_LONG_FRACTION = re.compile(r"\.[0-9]{7,}(?:Z|[+-][0-9]{2}:[0-9]{2})\Z")


def parse_instant(text: str) -> datetime:
    """The instant, aware, in UTC. ValueError with a sentence (which does not quote the text) for anything else.

    Refused: no offset, more than six decimals, leap seconds, hour 24, lower-case `t` and `z`, a space for `T`, the
    basic and the week forms, dates that do not exist, instants outside the years 1 to 9999 in UTC.
    `-00:00` reads as UTC. The host's time zone plays no part.
    """
    found = _INSTANT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise ValueError(_refusal(text))
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if second == 60:
        raise ValueError("Leap seconds are not accepted.")
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError("There is no such time of day.")
    offset = timedelta(hours=int(found[10] or 0), minutes=int(found[11] or 0))
    zone = timezone(-offset if found[9] == "-" else offset)
    try:
        local = datetime(year, month, day, hour, minute, second, int((found[7] or "0").ljust(6, "0")), zone)
    except ValueError:
        raise ValueError("There is no such date.") from None
    try:
        return local.astimezone(UTC)
    except OverflowError:
        raise ValueError("The instant is outside the years 1 to 9999.") from None


def _refusal(text: str) -> str:
    if len(text) <= 64 and _WITHOUT_OFFSET.fullmatch(text):
        return "An offset is required: end the instant with Z or with +hh:mm (offset required)."
    if len(text) <= 64 and _LONG_FRACTION.search(text):
        return "At most six decimals are accepted in a second."
    return "An instant is written as in RFC 3339, with an offset: 2026-03-14T09:31:12Z."


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC with `Z`: no fraction where there is none, else six decimals. Refuses a naive datetime."""
    if instant.microsecond:
        return format_instant_exact(instant)
    return _utc(instant).isoformat(timespec="seconds") + "Z"


def format_instant_exact(instant: datetime) -> str:
    """RFC 3339 in UTC with `Z`, always six decimals: equal lengths, so that text sorts as time does."""
    return _utc(instant).isoformat(timespec="microseconds") + "Z"


def _utc(instant: datetime) -> datetime:
    if instant.utcoffset() is None:
        raise ValueError("An instant without an offset is refused.")
    return instant.astimezone(UTC).replace(tzinfo=None)
