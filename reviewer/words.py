"""What people read for what the code calls by name: states, ends, operations, events."""

from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from plans.changes import Card
from plans.models import Policy
from plans.states import AbandonReason, State


@dataclass(frozen=True, slots=True)
class Badge:
    """A state as a badge: colour, icon and word say the same."""

    css: str
    icon: str
    text: str


_STATES: Final = {
    State.PENDING: ("info", "clock", gettext_lazy("Waiting for a decision")),
    State.COMMITTING: ("info", "arrow", gettext_lazy("Writing")),
    State.UNKNOWN: ("unk", "question", gettext_lazy("Outcome unknown")),
    State.COMMITTED: ("ok", "check", gettext_lazy("Written")),
    State.CONFLICTED: ("warn", "split", gettext_lazy("Conflict, nothing written")),
    State.REJECTED: ("mute", "x", gettext_lazy("Rejected")),
    State.REFUSED: ("bad", "x", gettext_lazy("Refused by the target, nothing written")),
}
_ENDS: Final = {
    AbandonReason.EXPIRED: ("mute", "clock", gettext_lazy("Expired")),
    AbandonReason.TASK_ENDED: ("mute", "hold", gettext_lazy("Dropped: the task ended")),
    AbandonReason.INTENT_CHANGED: ("mute", "hold", gettext_lazy("Dropped: the request changed")),
    AbandonReason.INPUTS_CHANGED: ("mute", "hold", gettext_lazy("Dropped: its record was written to")),
    AbandonReason.SUPERSEDED: ("mute", "refresh", gettext_lazy("Replaced")),
    AbandonReason.WITHDRAWN: ("mute", "hold", gettext_lazy("Withdrawn")),
    AbandonReason.NOT_APPLIED: ("mute", "hold", gettext_lazy("Found not written")),
}
STATE_CHOICES: Final = [
    (State.PENDING, gettext_lazy("Waiting for a decision")),
    (State.COMMITTING, gettext_lazy("Writing")),
    (State.UNKNOWN, gettext_lazy("Outcome unknown")),
    (State.COMMITTED, gettext_lazy("Written")),
    (State.CONFLICTED, gettext_lazy("Conflict")),
    (State.REJECTED, gettext_lazy("Rejected")),
    (State.REFUSED, gettext_lazy("Refused by the target")),
    (State.ABANDONED, gettext_lazy("Planned, not done")),
]
REASON_CHOICES: Final = [(reason, text) for reason, (_css, _icon, text) in _ENDS.items()]

_VERBS: Final = {
    "update": gettext_lazy("Update"),
    "create": gettext_lazy("Create"),
    "delete": gettext_lazy("Delete"),
}


def badge_of(state: str, reason: str = "") -> Badge:
    """The badge of a state; an abandoned plan reads by its reason."""
    if state == State.ABANDONED:
        css, icon, text = _ENDS[AbandonReason(reason)] if reason else ("mute", "hold", _("Planned, not done"))
    else:
        css, icon, text = _STATES[State(state)]
    return Badge(css, icon, str(text))


def verb_of(op: str) -> str:
    """What an action does, as a word: the known ones by name, any other as the agent wrote it."""
    return str(_VERBS[op]) if op in _VERBS else op[:1].upper() + op[1:]


def sign_of(card: Card) -> str:
    return {"update": "~", "create": "+", "delete": "−", "other": "→"}[card.kind]


def heads_of(card: Card, state: str) -> tuple[str, str]:
    """The heads of the columns before and after: they follow the state, and never call written what was not."""
    if state == State.COMMITTED:
        before, after = _("Was"), _("Is now")
    elif state in (State.PENDING, State.COMMITTING):
        before, after = _("Now"), _("Will be")
    elif state == State.UNKNOWN:
        before, after = _("Last read"), _("Planned to be")
    elif state == State.CONFLICTED:
        before, after = _("When planned"), _("Agent wanted")
    else:
        before, after = _("Was"), _("Would be")
    if card.kind == "delete" and not card.has_after:
        before = {
            State.COMMITTED: _("Was lost"), State.PENDING: _("Will be lost"), State.COMMITTING: _("Will be lost"),
            State.UNKNOWN: _("Planned to be lost"),
        }.get(State(state), _("Would be lost"))  # fmt: skip
    if card.kind == "other":
        after = _("Sent") if state == State.COMMITTED else _("To be sent")
    return before, after


def moved_head_of(card: Card, state: str) -> str:
    """The head of the column before where a present value is known to be another: what was read is not so now."""
    is_lost = card.kind == "delete" and not card.has_after
    return _("When planned") if state == State.PENDING and not is_lost else ""


def changes(count: int) -> str:
    return ngettext("%(count)d change", "%(count)d changes", count) % {"count": count}


def records(count: int) -> str:
    return ngettext("%(count)d record", "%(count)d records", count) % {"count": count}


def people(count: int) -> str:
    return ngettext("%(count)d person", "%(count)d people", count) % {"count": count}


def asks_of(policy: Policy) -> str:
    """What a policy asks for, in a few words."""
    if policy.approvals is None:
        asks = _("As many people as the operation says")
    elif policy.approvals == 0:
        asks = _("Nobody has to approve")
    else:
        asks = people(policy.approvals)
    more = [_("a typed fact always")] if policy.is_guarded else []
    more += [_("nothing unconfirmed")] if policy.refuses_unconfirmed else []
    return ", ".join([asks, *more])
