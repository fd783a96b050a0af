"""Other pending plans on the same records, and what writing this one does to each of them."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from plans.models import Plan
from reviewer.moments import Clock, Moment
from reviewer.plan_basis import Link, link_to
from reviewer.plan_page import read_cards


@dataclass(frozen=True, slots=True)
class Rival:
    """A rival as printed. `shared` are records and fields that both would write, or whole records ("")."""

    link: Link
    expires: Moment | None
    shared: list[tuple[str, str]]
    icon: str
    effect: str


def effect_on(plan: Plan, other: Plan, clock: Clock) -> Rival:
    """What becomes of `other` if `plan` is written: by the rules for writes, not by a guess.

    A commit counts as a write of its agent: that agent's own older plans on the same records end, others' are marked
    and are read again before they are written.
    """
    mine, theirs = _places(plan), _places(other)
    records = {record for record, _field in mine}
    # A record that goes, goes with all its fields; a rival that takes it away meets whatever is written to it.
    gone = {card.target for card in read_cards(plan) if card.kind == "delete"} | {r for r, field in mine if not field}
    fields = [(r, field) for r, field in theirs if (r, field) in mine or r in gone or (not field and r in records)]
    shared = fields or [(record, "") for record in dict.fromkeys(r for r, _field in theirs) if record in records]
    link = link_to(other)
    assert link is not None
    if other.agent_id == plan.agent_id:
        icon, effect = "x", _("It ends at once: its own agent has then written to what it was planned on.")
    elif fields:
        icon = "split"
        effect = _("It is marked, and its current value is another one then: approving it ends in a conflict.")
    else:
        icon = "warn"
        effect = _("It is marked: its record was written to, in other fields. It is read again before it is written.")
    return Rival(link, clock.at(other.expires_at), shared, icon, effect)


def _places(plan: Plan) -> list[tuple[str, str]]:
    return list(dict.fromkeys((card.target, row.field) for card in read_cards(plan) for row in card.rows))
