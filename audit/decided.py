"""What was decided on is what was planned: the digests that decisions name, made anew from the log, without Django."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from audit.checking import Leaf, Report

RECEIVED, MARKED, APPLIED = "plan.received", "plan.marked", "plan.policy_applied"
DECISIONS: Final = ("plan.approved", "plan.rejected")
# What the digest is made of, in its order (docs/log.md): of the event itself, and of its data.
_OF_EVENT: Final = ("agent", "target", "plan_id", "operation", "task_id")
_AS_TEXT: Final = ("inputs", "actions", "evidence")
_MEMBERS: Final = (
    "agent", "target", "target_address", "plan_id", "operation", "task_id", "intent", "replaces", "inputs", "actions",
    "evidence", "summary", "input_fingerprint", "created_at", "expires_at", "policy_version", "approvals_required",
    "mark_count",
)  # fmt: skip


class _Payload(msgspec.Struct):
    data: dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class _Event:
    index: int
    leaf: Leaf
    data: dict[str, msgspec.Raw]

    def read(self, name: str) -> Any:
        return json.loads(bytes(self.data[name]))


class Decisions:
    """The decisions among proven events, held against what had been planned."""

    def __init__(self) -> None:
        self._plans: defaultdict[tuple[str | None, ...], list[_Event]] = defaultdict(list)

    def take(self, index: int, leaf: Leaf, payload: str) -> None:
        """Notes a proven event with its payload. Only a plan's own events matter, in whatever order they come."""
        if leaf.plan_seq is not None and leaf.plan_id is not None:
            data = _read_data(payload) if leaf.kind in (RECEIVED, APPLIED, *DECISIONS) else {}
            self._plans[leaf.agent, leaf.target, leaf.plan_id].append(_Event(index, leaf, data))

    def tell(self, report: Report) -> None:
        """Says of how many decisions it is proven; one that names another digest is damage."""
        good = open_ = 0
        for events in self._plans.values():
            for decision, digest in _follow(sorted(events, key=lambda event: event.leaf.plan_seq or 0)):
                named = _name_of(decision)
                if digest is None or named is None:
                    open_ += 1
                elif named == digest:
                    good += 1
                else:
                    report.break_at(
                        decision.index, "It decides on another digest than that of what was planned.", decision.leaf.id
                    )
        if good:
            report.proven.append(
                f"{good} decision{'s' * (good > 1)} on what had been planned: the digest, made anew from plan.received."
            )
        if open_:
            report.not_proven.append(
                f"What {open_} decision{'s were' if open_ > 1 else ' was'} on: the pack has not all events of the plan"
                " with their payloads, or plan.received is of a time when it did not hold all of it."
            )


def _read_data(payload: str) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(payload, type=_Payload).data
    except ValueError:
        return {}  # none of a desk's: nothing can be made of it


def _follow(events: list[_Event]) -> Iterator[tuple[_Event, str | None]]:
    """Each decision on a plan, and the digest of the plan as it stood then; None where that cannot be told."""
    members: dict[str, Any] | None = None
    after = 0
    for event in events:
        if event.leaf.plan_seq != after + 1:
            members = None  # what is missing may have changed it
        after = event.leaf.plan_seq or 0
        if event.leaf.kind == RECEIVED:
            members = _members_of(event)
        elif members is not None and event.leaf.kind == MARKED:
            members["mark_count"] += 1
        elif members is not None and event.leaf.kind == APPLIED:
            members = _under_new_policy(members, event)
        elif event.leaf.kind in DECISIONS:
            yield event, None if members is None else digest_of(members)


def _name_of(decision: _Event) -> str | None:
    try:
        named = decision.read("digest")
    except KeyError:
        return None
    return named if isinstance(named, str) else None


def _under_new_policy(members: dict[str, Any], event: _Event) -> dict[str, Any] | None:
    try:
        version, needed = event.read("version")["to"], event.read("approvals_required")["to"]
    except (KeyError, TypeError):
        return None
    return members | {"policy_version": version, "approvals_required": needed}


def _members_of(event: _Event) -> dict[str, Any] | None:
    try:
        read = {name: event.read(name) for name in _MEMBERS if name not in _OF_EVENT}
    except KeyError:
        return None
    if not isinstance(read["mark_count"], int):
        return None
    texts = {name: "" if read[name] is None else bytes(event.data[name]).decode() for name in _AS_TEXT}
    return read | texts | {name: getattr(event.leaf, name) for name in _OF_EVENT}


def digest_of(members: dict[str, Any]) -> str:
    """The digest of a plan with these members (docs/log.md): 64 hexadecimal digits."""
    shown = ["plandesk.digest.v1", *(members[name] for name in _MEMBERS)]
    return hashlib.sha256(json.dumps(shown, separators=(",", ":")).encode()).hexdigest()
