"""What people are told of: the occasions, who may wish them away, and which cannot wait."""

from enum import StrEnum
from typing import Final

from django.utils.translation import gettext_lazy as _


class Occasion(StrEnum):
    """Why somebody is told of a plan. A person is told of each plan at most once per occasion."""

    WAITING = "waiting"  # a plan waits for a decision that this person may make
    SOON = "soon"  # it expires soon, and this person has not decided
    ESCALATED = "escalated"  # it expires soon and nobody decided: for admins, or whom they named
    UNDECIDABLE = "undecidable"  # too few people are left who may decide it: for admins
    UNKNOWN = "unknown"  # an attempt may have written, and nobody knows
    ENDED = "ended"  # a plan this person approved ended other than written, or its unknown outcome is known


URGENT: Final = frozenset({Occasion.SOON, Occasion.ESCALATED, Occasion.UNDECIDABLE, Occasion.UNKNOWN})
"""What is worth breaking into quiet hours for, where the person says so."""

DECIDING: Final = frozenset({Occasion.WAITING, Occasion.SOON, Occasion.UNKNOWN})
"""Told only to people who may decide on the plan: a stand-in who may not is passed over."""

FOR_ADMINS: Final = frozenset({Occasion.ESCALATED, Occasion.UNDECIDABLE})

LABELS: Final = {
    Occasion.WAITING: _("A plan waits for a decision I may make"),
    Occasion.SOON: _("It expires soon and I have not decided"),
    Occasion.UNKNOWN: _("An outcome is unknown"),
    Occasion.ENDED: _("A plan I approved was not written, or its unknown outcome is known"),
    Occasion.ESCALATED: _("A plan expires soon and nobody has decided (admins, or whom they named)"),
    Occasion.UNDECIDABLE: _("Too few people are left who may decide a plan (admins)"),
}
URGENCY: Final = (
    Occasion.UNKNOWN,
    Occasion.UNDECIDABLE,
    Occasion.ESCALATED,
    Occasion.SOON,
    Occasion.WAITING,
    Occasion.ENDED,
)
"""The order within a message, and which occasion speaks for a plan that has several."""
