"""A plan's story in words: each stage with who and when, how long it took, and each gap as a sentence."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from audit.kinds import Kind
from audit.queries import EventRow
from audit.stories import ALARMS, Gap, PlanStory, Stage, Step
from reviewer.audit_rows import text_in, told_by, words_of
from reviewer.moments import Clock, Moment, short

STAGES: Final[dict[Stage, Any]] = {
    Stage.RECEIVED: gettext_lazy("Received"),
    Stage.VIEWED: gettext_lazy("Opened"),
    Stage.DECIDED: gettext_lazy("Decided"),
    Stage.STARTED: gettext_lazy("Write started"),
    Stage.ENDED: gettext_lazy("Ended"),
    Stage.CALLED_BACK: gettext_lazy("Agent called back"),
}
GAPS: Final[dict[Gap, Any]] = {
    Gap.NOT_RECEIVED: gettext_lazy("No event tells that this plan was received."),
    Gap.NOT_VIEWED: gettext_lazy("Nobody opened its page."),
    Gap.DECIDED_UNSEEN: gettext_lazy("Somebody decided it without an event that they had opened its page."),
    Gap.NOT_DECIDED: gettext_lazy("Nobody approved or rejected it."),
    Gap.NOBODY_ASKED: gettext_lazy("Its policy asked for nobody's approval."),
    Gap.TOO_FEW_APPROVALS: gettext_lazy("A write was started with fewer approvals than its policy asked for."),
    Gap.UNAPPROVED: gettext_lazy("Its target says that it was written, and nobody here approved."),
    Gap.NOT_STARTED: gettext_lazy("No write was started."),
    Gap.WRITTEN_UNSTARTED: gettext_lazy("It was written, and no event tells of a start."),
    Gap.NOT_ENDED: gettext_lazy("It has not ended yet."),
    Gap.OVERDUE: gettext_lazy("It is past its expiry, and no event ended it."),
    Gap.ENDED_TWICE: gettext_lazy("More than one event ended it."),
    Gap.NOT_CALLED_BACK: gettext_lazy("No callback told the agent. It may have no address for one, and ask instead."),
    Gap.CALLBACK_FAILED: gettext_lazy("The last callback failed."),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One event at its stage."""

    what: str
    who: str
    detail: str
    at: Moment | None
    url_id: str


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage of the story for its template. `after` is how long after the stage before it began."""

    name: str
    entries: list[Entry]
    gaps: list[tuple[str, bool]]
    after: str

    @property
    def is_gap(self) -> bool:
        return not self.entries


def stages_of(story: PlanStory, clock: Clock) -> list[StageLine]:
    lines: list[StageLine] = []
    before: EventRow | None = None
    for step in story.steps:
        first = step.events[0] if step.events else None
        after = ""
        if first is not None and before is not None and first.at >= before.at:
            after = _("%(length)s later") % {"length": length_of((first.at - before.at).total_seconds())}
        lines.append(
            StageLine(
                name=_name(step),
                entries=[_entry(event, clock) for event in step.events],
                gaps=[(str(GAPS[gap]), gap in ALARMS) for gap in step.gaps],
                after=after,
            )
        )
        before = first or before
    return lines


def _name(step: Step) -> str:
    kinds = {event.kind for event in step.events}
    if step.stage is Stage.DECIDED and kinds == {Kind.PLAN_APPROVED}:
        return _("Approved")
    if step.stage is Stage.DECIDED and Kind.PLAN_REJECTED in kinds:
        return _("Rejected")
    return str(STAGES[step.stage])


def _entry(event: EventRow, clock: Clock) -> Entry:
    told = told_by(event)
    detail = ""
    if event.kind in (Kind.PLAN_APPROVED, Kind.PLAN_REJECTED, Kind.PLAN_RECEIVED):
        detail = _("digest %(digest)s") % {"digest": text_in(told, "digest")} if text_in(told, "digest") else ""
    if event.kind == Kind.PLAN_ABANDONED:
        detail = text_in(told, "reason")
    if event.kind in (Kind.CALLBACK_DELIVERED, Kind.CALLBACK_FAILED):
        detail = f"{text_in(told, 'callback')} {text_in(told, 'status')}".strip()
    who = event.actor_name or event.actor_id
    return Entry(words_of(event.kind), who, detail, clock.at(event.at, exact=True), event.id)


def length_of(seconds: float) -> str:
    """A length of time, to a tenth of a second where it is short."""
    if seconds < 1:
        return _("%(count)d ms") % {"count": round(seconds * 1000)}
    return _("%(count)s s") % {"count": f"{seconds:.1f}"} if seconds < 60 else short(timedelta(seconds=seconds))
