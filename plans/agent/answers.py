"""What the desk's answers about a plan mean (CONTRACT 5.2 and 5.3): each row is one outcome, or one thing to do."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from plans.agent.http import Answer, NoAnswer
from plans.agent.json_text import JsonValue
from plans.agent.outcomes import (
    Abandoned,
    Change,
    Committed,
    Conflict,
    Ended,
    Expired,
    Refused,
    Rejected,
    Waiting,
)
from plans.agent.plan import Plan
from plans.agent.secrets import Secret
from plans.instants import parse_instant
from plans.states import AbandonReason, State


@dataclass(frozen=True, slots=True)
class Again:
    """The same request, with the same key, once more. `wrote_nothing`: proven for this attempt."""

    wrote_nothing: bool
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Follow:
    """The state by plan id will tell: another attempt is under way (202), its outcome is unknown (504), or fenced."""

    reason: Literal["committing", "unknown", "fenced"]
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Surface:
    """No row of the contract: a bug, or a no, to raise. `wrote_nothing`: a 4xx, so proven for this attempt."""

    wrote_nothing: bool


Verdict: TypeAlias = Ended | Waiting | Again | Follow | Surface


class Discreet(Protocol):
    """Knows secrets that no text may show."""

    def hide(self, text: str, token: Secret | None) -> str:
        """The text without them, and without this token."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads answers about one plan, and leaves the line's secrets and the plan's token out of what it hands on."""

    line: Discreet
    plan: Plan
    token: Secret | None

    def read_commit(self, answer: Answer | NoAnswer) -> Verdict:
        """The row of CONTRACT 5.2 that this answer to a commit is."""
        if isinstance(answer, NoAnswer):
            return Again(not answer.may_have_arrived)
        members = answer.members()
        plan_id = self.plan.plan_id
        match answer.status, answer.slug:
            case 200, _ if members.get("state") == State.COMMITTED and members.get("plan_id") == plan_id:
                return Committed(plan_id, self._clean(members.get("result")), answer.is_replayed)
            case 202, _ if members.get("plan_id") == plan_id:
                return Follow("committing", answer.retry_after)
            case 409, "conflict":
                return self._conflict(members)
            case 410, "expired":
                return Expired(plan_id, _instant(members.get("expired_at")) or self.plan.expires_at)
            case 410, "abandoned":
                return Abandoned(plan_id, self._text(members, "reason"))
            case 422, "refused":
                return Refused(plan_id, self._text(members, "reason", "detail", "title"))
            case 403, "rejected":
                return Rejected(plan_id, self._text(members, "reason"))
            case 403, "approval-required":
                return Waiting(plan_id, self._text(members, "review_url") or self.plan.review_url)
            case 423, "fenced":
                return Follow("fenced", answer.retry_after)
            case (429, _) | (503, "unavailable"):
                return Again(True, answer.retry_after)
            case 504, "outcome-unknown":
                return Follow("unknown", answer.retry_after)
            case status, _ if status >= 500:
                return Again(False, answer.retry_after)
            case status, _:
                return Surface(400 <= status < 500)

    def read_state(self, members: dict[str, JsonValue]) -> Ended | State | None:
        """The end that a plan's state tells, or the state it is in; None where it is no state of this plan."""
        plan_id = self.plan.plan_id
        if members.get("plan_id") != plan_id or members.get("target", self.plan.target) != self.plan.target:
            return None
        match members.get("state"):
            case State.PENDING | State.COMMITTING | State.UNKNOWN as state:
                return State(str(state))
            case State.COMMITTED:
                return Committed(plan_id, self._clean(members.get("result")))
            case State.CONFLICTED:
                return self._conflict(_object(members.get("conflict")))
            case State.REJECTED:
                return Rejected(plan_id, self._text(_object(members.get("rejection")), "reason"))
            case State.REFUSED:
                return Refused(plan_id, self._text(_object(members.get("refusal")), "reason"))
            case State.ABANDONED:
                reason = self._text(_object(members.get("abandonment")), "reason")
                if reason == AbandonReason.EXPIRED:
                    return Expired(plan_id, self.plan.expires_at)
                return Abandoned(plan_id, reason)
            case _:
                return None

    def _conflict(self, members: dict[str, JsonValue]) -> Conflict:
        changed = members.get("changed")
        found = [_object(change) for change in changed] if isinstance(changed, list) else []
        changes = tuple(
            Change(
                self._text(change, "target"),
                self._text(change, "field") if change.get("field") is not None else None,
                self._clean(change.get("planned")),
                self._clean(change.get("current")),
            )
            for change in found
        )
        return Conflict(self.plan.plan_id, changes, _instant(members.get("plan_created_at")))

    def _text(self, members: dict[str, JsonValue], *names: str) -> str:
        found = next((members[name] for name in names if isinstance(members.get(name), str)), "")
        return self.line.hide(str(found), self.token)

    def _clean(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.line.hide(value, self.token)
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if isinstance(value, dict):
            return {self.line.hide(name, self.token): self._clean(item) for name, item in value.items()}
        return value


def committed_at(answer: Answer) -> datetime | None:
    """When the plan was applied, by the desk's clock, where the answer says so."""
    return _instant(answer.members().get("committed_at"))


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _instant(value: JsonValue) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_instant(value)
    except ValueError:
        return None
