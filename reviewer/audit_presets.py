"""The auditors' questions in words, and what each answer says before its events are listed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from audit.filters import Filters
from audit.outcomes import UnknownOutcome, find_unknown_outcomes
from audit.summaries import UNTOLD, count_conflicts_by_field, count_unlisted, find_deciders
from reviewer.models import Person
from reviewer.moments import Clock, short

TITLES: Final[dict[str, Any]] = {
    "planned-not-done": gettext_lazy("Planned and did not do it"),
    "never-planned": gettext_lazy("Never planned"),
    "conflicts": gettext_lazy("Conflicts by field"),
    "fast-approvals": gettext_lazy("Approved within 3 seconds of opening"),
    "self-inflicted": gettext_lazy("Self-inflicted: own agent's plans"),
    "unknown-outcomes": gettext_lazy("Unknown outcomes and how they were found out"),
    "deciders": gettext_lazy("Who may decide, and since when"),
}
MEANINGS: Final[dict[str, Any]] = {
    "planned-not-done": gettext_lazy("Plans that were received, and abandoned: one event each, with its reason."),
    "never-planned": gettext_lazy("Commits with a token that names no plan of that agent. Nothing was written."),
    "conflicts": gettext_lazy("The world had moved, and nothing was written: one event for each plan."),
    "fast-approvals": gettext_lazy("From opening the plan's page to approving it, at most 3 seconds."),
    "self-inflicted": gettext_lazy("Plans that ended because their own agent wrote to a record they were made from."),
    "unknown-outcomes": gettext_lazy("Attempts that may have arrived, and what showed what became of them."),
    "deciders": gettext_lazy("Changes of people, agents and policies. Nobody decides plans of an agent they own."),
}
SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Table:
    """A small table above the events. `note` says what it was made from."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]] = ()
    note: str = ""


def titles() -> dict[str, str]:
    return {name: str(title) for name, title in TITLES.items()}


def table_of(filters: Filters, clock: Clock) -> Table | None:
    """What the preset's answer says in numbers; None for one that is told by its count. Raises TakesTooLongError."""
    match filters.preset:
        case "conflicts":
            return _conflicts(filters)
        case "unknown-outcomes":
            return _unknown(filters, clock)
        case "deciders":
            return _deciders(clock)
        case "never-planned":
            return _never_planned(filters, clock)
    return None


def _conflicts(filters: Filters) -> Table:
    found = count_conflicts_by_field(filters)
    rows = [(name if name != UNTOLD else _("not told"), f"{count:,}") for name, count in found.fields[:SHOWN]]
    note = "" if found.is_exact else _("Of the newest %(count)s conflicts.") % {"count": f"{found.seen:,}"}
    return Table(_("Conflicts by field"), (_("Field"), _("Conflicts")), rows, note)


def how_found(outcome: UnknownOutcome) -> str:
    """How an outcome was found out, in words."""
    if outcome.known_at is None:
        return _("Still unknown")
    return {
        "answer": _("Answer to the same key"), "state": _("State at the target"), "person": _("Settled by hand"),
        "unsent": _("Nothing was sent, and its time was up"),
    }.get(outcome.how, _("By its end"))  # fmt: skip


def _unknown(filters: Filters, clock: Clock) -> Table:
    outcomes = find_unknown_outcomes(filters)
    counted = Counter(how_found(outcome) for outcome in outcomes.found)
    longest: dict[str, timedelta] = {}
    for outcome in outcomes.found:
        took = outcome.took or clock.now - outcome.unknown_at
        longest[how_found(outcome)] = max(took, longest.get(how_found(outcome), timedelta()))
    rows = [(how, f"{count:,}", short(longest[how])) for how, count in counted.most_common()]
    total = len(outcomes.found)
    note = ngettext("%(count)s plan in all.", "%(count)s plans in all.", total) % {"count": f"{total:,}"}
    if not outcomes.is_exact:
        note += " " + _("Of the newest events alone.")
    return Table(_("How they were found out"), (_("How"), _("Plans"), _("Longest")), rows, note)


def _deciders(clock: Clock) -> Table:
    deciders = find_deciders()
    now = {str(person.pk): person for person in Person.objects.can_decide()}
    names = {str(person.pk): str(person) for person in Person.objects.all()}
    rows = []
    for one in deciders:
        until = _moment(clock, one.until) if one.until else ""
        if not until and one.person_id not in now:
            until = _("not now, and no event tells since when")
        rows.append((names.get(one.person_id) or one.email, one.email, _moment(clock, one.since), until))
    told = {one.person_id for one in deciders if one.until is None}
    rows += [
        (str(person), person.email, _("no event tells since when"), "")
        for key, person in sorted(now.items())
        if key not in told
    ]
    heads = (_("Person"), _("Address"), _("Reviewer since"), _("Until"))
    return Table(_("Reviewers, as the log tells it"), heads, rows, _("Compared with the people of today."))


def _never_planned(filters: Filters, clock: Clock) -> Table | None:
    unlisted = count_unlisted(filters, now=clock.now)
    if not unlisted:
        return None
    note = _("An agent or address that sends more than 60 a minute is counted, not listed.")
    return Table(_("Beside those listed"), (_("Only counted"),), [(f"{unlisted:,}",)], note)


def _moment(clock: Clock, instant: Any) -> str:
    moment = clock.at(instant)
    assert moment is not None
    return f"{moment.utc} · {moment.local}" if moment.local else moment.utc
