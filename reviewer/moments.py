"""Instants in words: UTC to the second, the reader's own zone by its city, and how long ago. Made once, in the view."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils.dates import MONTHS_3
from django.utils.translation import gettext as _
from django.utils.translation import ngettext


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant, ready for a template: `iso` for machines, `utc` and `local` for people, `ago` for scanning."""

    iso: str
    utc: str  # "21:47:12 UTC", with the day in front where it is not today
    local: str  # "22:47 Berlin"; empty for somebody who lives in UTC
    ago: str


@lru_cache(maxsize=512)
def zone_of(name: str) -> ZoneInfo:
    """The zone of this IANA name; UTC for a name that is not known here."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def city_of(zone: ZoneInfo) -> str:
    """The last part of a zone's name, as people say it."""
    return zone.key.rpartition("/")[2].replace("_", " ")


class Clock:
    """The server's time at this request and the zone of whoever reads; makes Moments."""

    def __init__(self, now: datetime, zone_name: str = "UTC") -> None:
        self.now = now.astimezone(UTC)
        self.zone = zone_of(zone_name)
        self.is_utc = self.zone.key in ("UTC", "Etc/UTC", "GMT")
        self.city = "" if self.is_utc else city_of(self.zone)

    @property
    def iso(self) -> str:
        return f"{self.now:%Y-%m-%dT%H:%M:%S}.{self.now.microsecond // 1000:03d}Z"

    @property
    def hms(self) -> str:
        return f"{self.now:%H:%M:%S}"

    def at(self, instant: datetime | None, *, exact: bool = False) -> Moment | None:
        """The instant in words; `exact` adds milliseconds. None stays None."""
        if instant is None:
            return None
        utc = instant.astimezone(UTC)
        iso = f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond:06d}Z"
        time = f"{utc:%H:%M:%S}.{utc.microsecond // 1000:03d}" if exact else f"{utc:%H:%M:%S}"
        return Moment(iso, f"{self._day(utc)}{time} UTC", self._local(utc), self.ago(utc))

    def _day(self, utc: datetime) -> str:
        if utc.date() == self.now.date():
            return ""
        year = "" if utc.year == self.now.year else f" {utc.year}"
        return f"{utc.day} {MONTHS_3[utc.month].title()}{year} "

    def _local(self, utc: datetime) -> str:
        if self.is_utc:
            return ""
        there = utc.astimezone(self.zone)
        day = "" if there.date() == utc.date() else f"{there.day} {MONTHS_3[there.month].title()} "
        return f"{day}{there:%H:%M} {self.city}"

    def ago(self, instant: datetime) -> str:
        """ "6 min ago", "in 4 min": for scanning, never alone."""
        past = self.now - instant
        length = short(abs(past))
        if abs(past) < timedelta(seconds=1):
            return _("just now")
        return (
            _("%(length)s ago") % {"length": length}
            if past >= timedelta(0)
            else _("in %(length)s") % {"length": length}
        )

    def left(self, until: datetime) -> str:
        """Time left as a countdown shows it: 4:12, over an hour 1 h 20 min; "Expired" when there is none."""
        seconds = int((until - self.now).total_seconds() + 0.999)
        if seconds <= 0:
            return _("Expired")
        if seconds >= 3600:
            return _("%(hours)d h %(minutes)02d min") % {"hours": seconds // 3600, "minutes": seconds % 3600 // 60}
        return f"{seconds // 60}:{seconds % 60:02d}"


def short(length: timedelta) -> str:
    """A length of time in its largest unit."""
    seconds = int(length.total_seconds())
    if seconds < 60:
        return _("%(count)d s") % {"count": seconds}
    if seconds < 3600:
        return _("%(count)d min") % {"count": seconds // 60}
    if seconds < 86400:
        return _("%(count)d h") % {"count": seconds // 3600}
    return ngettext("%(count)d day", "%(count)d days", seconds // 86400) % {"count": seconds // 86400}
