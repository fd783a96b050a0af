"""Who may decide a plan, how many must, and what they have to type first. Pure: facts in, verdicts out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from plans.errors import Sentence
from plans.states import State

MAX_APPROVALS: Final = 10
"""More people than this are never asked; the database says so too."""


OWN_AGENT: Final = Sentence("This plan is by an agent of yours, so someone else has to decide.")


class Person(Protocol):
    """What a verdict needs of a person."""

    pk: Any
    is_active: bool
    is_reviewer: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether somebody may decide, and the sentence that says why not."""

    is_allowed: bool
    code: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """A fact of this plan that has to be typed before it can be approved. `fact` is never sent to the page."""

    label: str
    unit: str
    fact: str
    change: int  # counted from 1, as the page does

    def is_met_by(self, typed: str) -> bool:
        """True where the typed text is the fact, spaces around it aside."""
        return typed.strip() == self.fact.strip()


def is_reviewer(person: Person) -> Verdict:
    """A reviewer whose access has not ended. Auditors and admins read."""
    if not person.is_active or not person.is_reviewer:
        return Verdict(False, "not-a-reviewer", Sentence("You are not a reviewer, so someone else has to decide."))
    return Verdict(True)


def may_decide(person: Person, *, is_own: bool) -> Verdict:
    """A reviewer may decide a plan that is not their own: of no agent that they owned since it was received."""
    if not (verdict := is_reviewer(person)).is_allowed:
        return verdict
    if is_own:
        return Verdict(False, "own-agent", OWN_AGENT)
    return Verdict(True)


def approvals_needed(*, of_policy: int | None, of_operation: int) -> int:
    """How many people have to approve: the policy's number where it names one, else the operation's."""
    return of_operation if of_policy is None else of_policy


def is_held_back(*, refuses_unconfirmed: bool, is_hosted: bool, is_confirmed: bool) -> bool:
    """Whether nobody can approve a plan, nor its agent commit it, until its target has confirmed it."""
    return refuses_unconfirmed and not is_hosted and not is_confirmed


def guard_of(actions_text: str, *, is_always: bool = False) -> Guard | None:
    """The fact to type for a plan that can't be undone or deletes (or `is_always`, by policy); None for others.

    The fact is the first such change's own: the name of what is deleted, else its new value, else (for an object)
    the first plain value in it, so that every plan asks for something else and only its page tells.
    """
    actions = msgspec.json.decode(actions_text, type=list[dict[str, msgspec.Raw]])
    for number, action in enumerate(actions, 1):
        op = str(msgspec.json.decode(action["op"]))
        if is_always or op == "delete" or bytes(action.get("reversible", msgspec.Raw(b"true"))) == b"false":
            return _guard(number, op, action)
    return None


def _guard(number: int, op: str, action: Mapping[str, msgspec.Raw]) -> Guard:
    target = str(msgspec.json.decode(action["target"]))
    if op != "delete" and "to" in action:
        field = str(msgspec.json.decode(action["field"])) if "field" in action else ""
        value = action["to"]
        if bytes(value).lstrip()[:1] == b"{":
            for name, member in msgspec.json.decode(value, type=dict[str, msgspec.Raw]).items():
                if (fact := _plain(member)) is not None:
                    return Guard(
                        Sentence("Type the %(name)s of change %(number)d to unlock Approve", name=name, number=number),
                        "",
                        fact,
                        number,
                    )
        elif (fact := _plain(value)) is not None:
            what = field or Sentence("value")
            return Guard(
                Sentence("Type the new %(what)s of change %(number)d to unlock Approve", what=what, number=number),
                "",
                fact,
                number,
            )
    label = Sentence("Type the name of the record in change %(number)d to unlock Approve", number=number)
    return Guard(label, "", target, number)


def _plain(value: msgspec.Raw) -> str | None:
    """A number as written, or a short text that can be typed; None for anything else."""
    written = bytes(value).decode().strip()
    if written[:1] in "-0123456789":
        return written
    if written[:1] == '"':
        text = str(msgspec.json.decode(value)).strip()
        return text if 0 < len(text) <= 80 and text.isprintable() and text.isascii() else None
    return None


def can_be_decided(state: str) -> bool:
    """Only a pending plan can be approved or rejected."""
    return State(state) is State.PENDING
