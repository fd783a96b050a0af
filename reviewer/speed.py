"""The pace of decisions in words: to the person themselves, and to admins who ask whether reviews are still real."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from plans.pace import Pace, PolicyPace
from reviewer.moments import short
from reviewer.words import Badge


@dataclass(frozen=True, slots=True)
class Review:
    """A row of "Are reviews still real?". The verdict never claims that anybody reads: a long look proves nothing."""

    target: str
    operation: str
    version: int
    decisions: int
    approved: str
    median: str
    is_flagged: bool
    verdict: Badge


def own_line(pace: Pace) -> str:
    """One sentence about somebody's own decisions of 30 days."""
    if not pace.decisions:
        return _("You have decided no plan in the last 30 days.")
    count = ngettext(
        "In the last 30 days you decided %(count)d plan, and approved %(approved)d.",
        "In the last 30 days you decided %(count)d plans, and approved %(approved)d.",
        pace.decisions,
    ) % {"count": pace.decisions, "approved": pace.approvals}
    if pace.median is None:
        return count
    time = _("Half of them took you less than %(time)s from opening the page; %(quick)d took less than 5 s.") % {
        "time": took(pace.median), "quick": pace.quick,
    }  # fmt: skip
    return f"{count} {time}"


def review_of(row: PolicyPace) -> Review:
    """The row in words."""
    pace = row.pace
    flagged = pace.looks_like_a_stamp
    verdict = (
        Badge("warn", "warn", _("Looks like a rubber stamp. Let policy write these, or ask for fewer."))
        if flagged
        else Badge("mute", "check", _("Nothing unusual"))
    )
    median = took(pace.median) if pace.median is not None else _("not known")
    return Review(row.target, row.operation, row.version, pace.decisions, share(pace), median, flagged, verdict)


def share(pace: Pace) -> str:
    """How much of it was approved; never rounded up to all of it."""
    return f"{int(pace.share_approved * 1000) / 10:g} %"


def took(length: timedelta) -> str:
    """How long a decision took: tenths of a second while it is quick."""
    seconds = length.total_seconds()
    return _("%(seconds).1f s") % {"seconds": seconds} if seconds < 10 else short(length)


def took_between(opened_at: Any, decided_at: Any) -> str:
    """The same for one decision; empty where the page was not opened before it."""
    return took(decided_at - opened_at) if opened_at is not None and decided_at >= opened_at else ""
