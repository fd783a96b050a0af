"""A plan's events as people read them: who, what, when."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from audit.kinds import Kind
from audit.queries import EventRow
from plans.states import AbandonReason, State
from reviewer import speed
from reviewer.models import Person
from reviewer.moments import Clock, Moment
from reviewer.said import in_words
from reviewer.words import badge_of

T = TypeVar("T", int, str)


@dataclass(frozen=True, slots=True)
class Line:
    """One event. `quote` is what somebody wrote: foreign text, shown as it is spelled."""

    kind: str
    who: str
    what: str
    quote: str
    at: Moment | None
    took: str = ""


_WHAT: Final = {
    Kind.PLAN_RECEIVED: gettext_lazy("Planned"),
    Kind.PLAN_VIEWED: gettext_lazy("Opened"),
    Kind.PLAN_MARKED: gettext_lazy("One of its records was written to"),
    Kind.PLAN_APPROVED: gettext_lazy("Approved"),
    Kind.PLAN_REJECTED: gettext_lazy("Rejected"),
    Kind.PLAN_REFUSED: gettext_lazy("Refused: its target tells of it otherwise"),
    Kind.PLAN_EXPIRED: gettext_lazy("Expired"),
    Kind.PLAN_ABANDONED: gettext_lazy("Ended without a write"),
    Kind.PLAN_POLICY_APPLIED: gettext_lazy("Put under a newer policy"),
    Kind.PLAN_REPLAN_REQUESTED: gettext_lazy("Agent asked to plan again"),
    Kind.DECISION_REFUSED: gettext_lazy("Decision not taken"),
    Kind.COMMIT_STARTED: gettext_lazy("Write started"),
    Kind.COMMIT_UNSENT: gettext_lazy("Not reached, nothing was sent"),
    Kind.COMMIT_SUCCEEDED: gettext_lazy("Written"),
    Kind.COMMIT_REPLAYED: gettext_lazy("Stored result given again"),
    Kind.COMMIT_CONFLICTED: gettext_lazy("Conflict, nothing written"),
    Kind.COMMIT_REFUSED: gettext_lazy("Refused, nothing written"),
    Kind.COMMIT_UNKNOWN: gettext_lazy("Outcome unknown"),
    Kind.COMMIT_RESOLVED: gettext_lazy("Outcome found out"),
    Kind.COMMIT_UNAPPROVED: gettext_lazy("Written, and nobody here approved"),
    Kind.COMMIT_CONTRADICTED: gettext_lazy("The target now says otherwise"),
    Kind.CALLBACK_DELIVERED: gettext_lazy("Agent told"),
    Kind.CALLBACK_FAILED: gettext_lazy("Agent could not be told"),
}

_WHAT_BY_NAME: Final = {kind.value: words for kind, words in _WHAT.items()}


def lines_of(events: list[EventRow], person: Person, clock: Clock) -> list[Line]:
    """The story in the plan's own order; openings in a row by one person are one line, with the last time."""
    lines: list[Line] = []
    for event in events:
        what, quote = what_of(event.kind), _quote(event)
        if event.kind == Kind.PLAN_ABANDONED and quote in set(AbandonReason):
            what, quote = badge_of(State.ABANDONED, quote).text, ""
            if what == what_of(Kind.PLAN_EXPIRED) and lines and lines[-1].kind == Kind.PLAN_EXPIRED:
                continue  # its end is told with it
        line = Line(event.kind, _who(event, person), what, quote, clock.at(event.at), _took(event))
        if lines and event.kind == Kind.PLAN_VIEWED and (lines[-1].kind, lines[-1].who) == (line.kind, line.who):
            lines[-1] = line
        else:
            lines.append(line)
    return lines


def what_of(kind: str) -> str:
    """The event in a few words; a kind that is not known here by its own name."""
    return str(_WHAT_BY_NAME.get(kind, kind))


def _who(event: EventRow, person: Person) -> str:
    if event.actor_type == "person" and event.actor_id == str(person.pk):
        return _("You")
    if event.actor_type == "system":
        return in_words(event.actor_name or event.actor_id)
    return event.actor_name or event.actor_id


def _took(event: EventRow) -> str:
    """How long after opening the page a person decided, where the event says it."""
    length = _member(event, "milliseconds_on_page", int)
    try:
        return "" if length is None else speed.took(timedelta(milliseconds=length))
    except OverflowError:
        return ""


def _quote(event: EventRow) -> str:
    """The reason or the detail that the event gives, where it gives one as text."""
    texts = (_member(event, name, str) for name in ("reason", "detail"))
    return next((text for text in texts if text is not None and text.strip()), "")


def _member(event: EventRow, name: str, kind: type[T]) -> T | None:
    """One member of what the event says, where it has this type; no other is read, as an agent or a target may have
    put a number there that nothing here can hold."""
    try:
        told = msgspec.json.decode(event.data or "{}", type=dict[str, msgspec.Raw])
        return msgspec.json.decode(told[name], type=kind) if name in told else None
    except (msgspec.DecodeError, RecursionError):
        return None
