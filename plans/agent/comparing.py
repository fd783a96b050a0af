"""What a new plan would write otherwise than the one it replaces."""

from dataclasses import dataclass

import msgspec

from plans.agent import json_text
from plans.agent.json_text import JsonValue
from plans.agent.plan import Plan


@dataclass(frozen=True, slots=True)
class Difference:
    """One action that only one of two plans has, or that both have and not alike. `str()` of it is for people.

    `before` and `after` are the actions' members; None where that plan has no action on this field of this target.
    """

    target: str
    field: str | None
    before: dict[str, JsonValue] | None
    after: dict[str, JsonValue] | None

    def __str__(self) -> str:
        name = self.target if self.field is None else f"{self.target} {self.field}"
        return f"{name}: planned {_say(self.before)}, now {_say(self.after)}"


@dataclass(frozen=True, slots=True)
class Replanned:
    """A new plan, the one it replaces, and what it would write otherwise. Show it before you commit it."""

    plan: Plan
    replaced: Plan
    differs: tuple[Difference, ...]


def compare(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """Every difference between the actions of two plans, in the order of the new one, then what it leaves out.

    Values are compared as written: 1, 1.0, true and "1" are four values.
    """
    old, new = _actions(before), _actions(after)
    return tuple(
        Difference(*place, _read(old.get(place)), _read(new.get(place)))
        for place in dict.fromkeys([*new, *old])
        if old.get(place) != new.get(place)
    )


def _actions(plan: Plan) -> dict[tuple[str, str | None], bytes]:
    """Each action's text, members in one order, by the field it writes: no plan has one twice (CONTRACT section 4)."""
    texts = msgspec.json.decode(json_text.sorted_text(plan.actions_json), type=list[msgspec.Raw])
    return {_place(bytes(text)): bytes(text) for text in texts}


def _place(text: bytes) -> tuple[str, str | None]:
    members = _read(text) or {}
    field = members.get("field")
    return str(members.get("target")), field if isinstance(field, str) else None


def _read(text: bytes | None) -> dict[str, JsonValue] | None:
    members = json_text.read(text) if text is not None else None
    return members if isinstance(members, dict) else None


def _say(action: dict[str, JsonValue] | None) -> str:
    if action is None:
        return "nothing"
    values = " to ".join(json_text.freeze(action[name]) for name in ("from", "to") if name in action)
    return f"{action.get('op')} {values}".rstrip()
