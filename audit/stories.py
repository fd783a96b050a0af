"""A plan's story as the log tells it: stage by stage, with what is missing said, so that a gap is seen as one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from audit.kinds import TERMINAL_KINDS, Kind
from audit.queries import EventRow, find_story


class Stage(StrEnum):
    """The stages of a plan's life, in their order."""

    RECEIVED = "received"
    VIEWED = "viewed"
    DECIDED = "decided"
    STARTED = "started"
    ENDED = "ended"
    CALLED_BACK = "called_back"


class Gap(StrEnum):
    """What a stage lacks. Those in ALARMS cannot happen in a log that is whole."""

    NOT_RECEIVED = "not_received"
    NOT_VIEWED = "not_viewed"
    DECIDED_UNSEEN = "decided_unseen"
    NOT_DECIDED = "not_decided"
    NOBODY_ASKED = "nobody_asked"
    TOO_FEW_APPROVALS = "too_few_approvals"
    UNAPPROVED = "unapproved"
    NOT_STARTED = "not_started"
    WRITTEN_UNSTARTED = "written_unstarted"
    NOT_ENDED = "not_ended"
    OVERDUE = "overdue"
    ENDED_TWICE = "ended_twice"
    NOT_CALLED_BACK = "not_called_back"
    CALLBACK_FAILED = "callback_failed"


SWEPT_WITHIN: Final = timedelta(seconds=60)
"""After its expiry a plan that nobody looked at may wait so long for the sweep (CONTRACT, section 2)."""

ALARMS: Final = frozenset(
    {
        Gap.NOT_RECEIVED, Gap.DECIDED_UNSEEN, Gap.TOO_FEW_APPROVALS, Gap.UNAPPROVED, Gap.WRITTEN_UNSTARTED,
        Gap.OVERDUE, Gap.ENDED_TWICE,
    }
)  # fmt: skip

STAGE_OF: Final = {
    Kind.PLAN_RECEIVED: Stage.RECEIVED,
    Kind.PLAN_VIEWED: Stage.VIEWED,
    Kind.PLAN_APPROVED: Stage.DECIDED,
    Kind.PLAN_REJECTED: Stage.DECIDED,
    Kind.COMMIT_STARTED: Stage.STARTED,
    **dict.fromkeys(TERMINAL_KINDS - {Kind.PLAN_REJECTED}, Stage.ENDED),
    Kind.CALLBACK_DELIVERED: Stage.CALLED_BACK,
    Kind.CALLBACK_FAILED: Stage.CALLED_BACK,
}


@dataclass(slots=True)
class Step:
    """A stage with its events, oldest first, and what it lacks."""

    stage: Stage
    events: list[EventRow] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlanStory:
    """All events of a plan in its own order, and its stages. `missing` are numbers of events that are not there."""

    events: list[EventRow]
    steps: list[Step]
    missing: list[int]
    is_cut: bool


class _Received(msgspec.Struct):
    expires_at: datetime | None = None
    approvals_required: int | None = None


def tell_story(*, agent: str, target: str, plan_id: str, now: datetime) -> PlanStory | None:
    """The story of that plan, or None where the log has no event of it. Records nothing."""
    story = find_story(agent=agent, target=target, plan_id=plan_id)
    if not story.events:
        return None
    steps = {stage: Step(stage) for stage in Stage}
    for event in story.events:
        stage = STAGE_OF.get(Kind(event.kind)) if event.kind in set(Kind) else None
        if stage is not None:
            steps[stage].events.append(event)
    missing = [] if story.is_cut else _missing_numbers(story.events)
    if not story.is_cut:
        _find_gaps(steps, story.events, now)
    return PlanStory(story.events, list(steps.values()), missing, story.is_cut)


def _missing_numbers(events: Sequence[EventRow]) -> list[int]:
    """The plan counts its events from 1 on: a number below the highest that no event has is an event that is gone."""
    numbers = {event.plan_seq for event in events if event.plan_seq is not None}
    return sorted(set(range(1, max(numbers, default=0) + 1)) - numbers)


_ATTEMPTS: Final = (Kind.COMMIT_STARTED, Kind.COMMIT_UNSENT, Kind.COMMIT_UNKNOWN)


def _find_gaps(steps: dict[Stage, Step], events: Sequence[EventRow], now: datetime) -> None:
    kinds = {event.kind for event in events}
    received = _received(steps[Stage.RECEIVED].events)
    if not steps[Stage.RECEIVED].events:
        steps[Stage.RECEIVED].gaps.append(Gap.NOT_RECEIVED)
    _find_gaps_of_decision(steps, kinds, received)
    written = Kind.COMMIT_SUCCEEDED in kinds
    if not steps[Stage.STARTED].events:
        known_otherwise = Kind.COMMIT_UNAPPROVED in kinds
        steps[Stage.STARTED].gaps.append(Gap.WRITTEN_UNSTARTED if written and not known_otherwise else Gap.NOT_STARTED)
    ends = [event for event in events if event.kind in TERMINAL_KINDS]
    if len(ends) > 1:
        steps[Stage.ENDED].gaps.append(Gap.ENDED_TWICE)
    elif not ends:
        is_due = received is not None and received.expires_at is not None and now >= received.expires_at + SWEPT_WITHIN
        attempts = [event.kind for event in events if event.kind in _ATTEMPTS]
        waits = bool(attempts) and attempts[-1] != Kind.COMMIT_UNSENT
        steps[Stage.ENDED].gaps.append(Gap.OVERDUE if is_due and not waits else Gap.NOT_ENDED)
    called = steps[Stage.CALLED_BACK].events
    if not called:
        steps[Stage.CALLED_BACK].gaps.append(Gap.NOT_CALLED_BACK)
    elif called[-1].kind == Kind.CALLBACK_FAILED:
        steps[Stage.CALLED_BACK].gaps.append(Gap.CALLBACK_FAILED)


def _find_gaps_of_decision(steps: dict[Stage, Step], kinds: set[str], received: _Received | None) -> None:
    views, decisions = steps[Stage.VIEWED].events, steps[Stage.DECIDED].events
    unseen = [
        event
        for event in decisions
        if not any(view.actor_id == event.actor_id and view.at <= event.at for view in views)
    ]
    if unseen:
        steps[Stage.VIEWED].gaps.append(Gap.DECIDED_UNSEEN)
    elif not views:
        steps[Stage.VIEWED].gaps.append(Gap.NOT_VIEWED)
    required = received.approvals_required if received is not None else None
    approvals = [event for event in decisions if event.kind == Kind.PLAN_APPROVED]
    started = bool(steps[Stage.STARTED].events)
    if Kind.COMMIT_UNAPPROVED in kinds:
        steps[Stage.DECIDED].gaps.append(Gap.UNAPPROVED)
    elif required == 0:
        steps[Stage.DECIDED].gaps.append(Gap.NOBODY_ASKED)
    elif started and required is not None and len(approvals) < required and Kind.PLAN_POLICY_APPLIED not in kinds:
        steps[Stage.DECIDED].gaps.append(Gap.TOO_FEW_APPROVALS)
    elif not decisions:
        steps[Stage.DECIDED].gaps.append(Gap.NOT_DECIDED)


def _received(events: Sequence[EventRow]) -> _Received | None:
    """What the receipt says of it; None where there is none, or its payload was erased."""
    if not events or events[0].data is None:
        return None
    try:
        return msgspec.json.decode(events[0].data, type=_Received)
    except msgspec.DecodeError:
        return None
