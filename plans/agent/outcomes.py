"""Every way a plan can come out, as a closed set of types made for `match`."""

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from plans.agent.json_text import JsonValue


@dataclass(frozen=True, slots=True)
class Change:
    """One input that moved: what the plan was made against, and what is there now."""

    target: str
    field: str | None
    planned: JsonValue
    current: JsonValue


@dataclass(frozen=True, slots=True)
class Committed:
    """Applied exactly once. `replayed`: the desk, or a call here, had given this result before. Report success once."""

    plan_id: str
    result: JsonValue
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """The world moved, nothing was written. Never retried: dry-run again, and show the new plan."""

    plan_id: str
    changed: tuple[Change, ...]
    planned_at: datetime | None


@dataclass(frozen=True, slots=True)
class Expired:
    """The promise of the dry run has ended, nothing was written: dry-run again."""

    plan_id: str
    expired_at: datetime


@dataclass(frozen=True, slots=True)
class Stale:
    """A write of this agent touched what the plan writes to, so it was not sent: dry-run again."""

    plan_id: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Planned and not done, for one of the contract's reasons: ask whoever gave the task."""

    plan_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A reviewer said no, and why. Stop."""

    plan_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The target, or its operation, said no; nothing was written. Stop."""

    plan_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not decided yet. `reason`: a person has to approve it, another plan holds its target, or it is being written.

    Wait on it (`Task.wait`), or end the task: nothing here goes on asking meanwhile.
    """

    plan_id: str
    review_url: str
    reason: Literal["approval", "fenced", "committing"] = "approval"


@dataclass(frozen=True, slots=True)
class Unknown:
    """An attempt may have arrived, and nobody can tell yet. Commit or wait again: the key stays the same.

    Never plan the same thing again meanwhile.
    """

    plan_id: str
    review_url: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The desk was down or busy for as long as was allowed, and nothing was sent. The plan and its key are as before.

    From `wait`: the desk could not be asked; this call sent nothing that could write.
    """

    plan_id: str


Ended: TypeAlias = Committed | Conflict | Expired | Abandoned | Rejected | Refused
"""Outcomes that never change again."""

Outcome: TypeAlias = Ended | Stale | Waiting | Unknown | Unavailable
"""What `commit`, `wait` and `abandon` answer: exactly one of these."""

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Committed, Conflict, Expired, Abandoned, Rejected, Refused)
}


def to_text(outcome: Ended) -> str:
    """The outcome as JSON text for a store; `from_text` reads it back."""
    members = {"kind": type(outcome).__name__, **dataclasses.asdict(outcome)}
    return json.dumps(members, default=_instant_to_text)


def from_text(text: str) -> Ended:
    """The outcome that `to_text` wrote."""
    members = json.loads(text)
    kind = _KINDS[members.pop("kind")]
    for name in ("planned_at", "expired_at"):
        if members.get(name) is not None:
            members[name] = datetime.fromisoformat(members[name])
    if "changed" in members:
        members["changed"] = tuple(Change(**change) for change in members["changed"])
    outcome: Ended = kind(**members)
    return outcome


def again(outcome: Ended) -> Ended:
    """The same end, told a second time."""
    return dataclasses.replace(outcome, replayed=True) if isinstance(outcome, Committed) else outcome


def _instant_to_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} does not belong in an outcome")
