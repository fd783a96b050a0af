"""What was read of a pending plan's inputs just now, in words: what still matches, and what has moved."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from plans import changes
from plans.models import Plan
from plans.recheck import Recheck
from plans.states import State
from reviewer import said
from reviewer.moments import Clock
from reviewer.plan_basis import ChangedField
from reviewer.plan_page import read_cards


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading as printed. `css` picks colour and icon, the words say it too; `fields` are those that moved."""

    css: str
    text: str
    more: str
    fields: list[ChangedField]


def in_words(plan: Plan, found: Recheck | None, clock: Clock) -> Reading:
    """The reading in words; None was found for a plan that does not wait any more."""
    if found is None:
        return Reading("no", _("This plan does not wait any more"), _("Reload the page to see what became of it."), [])
    at = clock.at(found.at)
    assert at is not None
    fields = _fields(plan, found)
    if not found.was_read:
        return Reading(
            "no", _("Not known whether anything has changed"), f"{said.in_words(found.sentence)} {_later()}", []
        )
    if fields:
        return Reading("no", _counted(found, len(fields)), _more(at.utc), fields)
    if found.sentence:
        return Reading("no", said.in_words(found.sentence), _("Asked at %(at)s.") % {"at": at.utc}, [])
    again = _("Read again at %(at)s, and once more before writing.") % {"at": at.utc}
    if found.read_count:
        text = ngettext(
            "Its one current value still matches",
            "%(count)d of %(count)d current values still match",
            found.read_count,
        )
        return Reading("ok", text % {"count": found.read_count}, again, [])
    if plan.is_hosted:
        return Reading("ok", _("It depends on no current value"), again, [])
    name = {"target": plan.target.name}
    asked = _("Asked at %(at)s, and once more before writing.") % {"at": at.utc}
    return Reading("ok", _("%(target)s tells of no change") % name, asked, [])


def _counted(found: Recheck, moved: int) -> str:
    """How many moved, out of how many, where that is known: a target may name what moved and nothing else."""
    if moved > found.read_count:
        return ngettext(
            "%(count)d current value has changed", "%(count)d current values have changed", moved
        ) % {"count": moved}  # fmt: skip
    return ngettext(
        "%(count)d of %(total)d current values has changed", "%(count)d of %(total)d current values have changed", moved
    ) % {"count": moved, "total": found.read_count}


def _more(at: str) -> str:
    return _("Read at %(at)s. If you approve now, expect a conflict and nothing written.") % {"at": at}


def _later() -> str:
    return _("Everything is read once more before writing.")


def _fields(plan: Plan, found: Recheck) -> list[ChangedField]:
    """Field by field what was planned on, what is there, and what the agent wants there."""
    if not found.moved or plan.state != State.PENDING:
        return []
    wanted = {(card.target, row.field): row.after for card in read_cards(plan) for row in card.rows}
    return [
        ChangedField(
            change.target,
            change.field,
            changes.read_value(change.planned),
            changes.read_value(change.current),
            wanted.get((change.target, change.field), changes.UNTOLD),
        )
        for change in found.moved
    ]
