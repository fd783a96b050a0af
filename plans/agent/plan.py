"""A plan as its agent sees it: everything but the token."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from plans.agent import json_text
from plans.agent.json_text import JsonValue
from plans.agent.outcomes import Ended, again
from plans.states import State

FEEDING = "feeding"
"""State, here only, of a plan that the desk has not yet said it received."""


class _Touched(msgspec.Struct, frozen=True):
    """An action's target, which a plan cannot be made without."""

    target: str


Origin: TypeAlias = Literal["hosted", "fed"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dry run answered. It never changes, holds no token, and may be shown, logged and kept.

    Having one is not enough to commit it: that takes the task it was made in, and that task's store.
    """

    plan_id: str
    target: str
    operation: str
    task_id: str
    intent: str | None
    inputs_json: str = field(repr=False)
    actions_json: str = field(repr=False)
    input_fingerprint: str
    created_at: datetime
    expires_at: datetime
    idempotency_key: str
    review_url: str
    needs_approval: bool | None
    origin: Origin
    replaces: str | None = None
    summary: str | None = None

    @property
    def inputs(self) -> dict[str, JsonValue]:
        """The inputs it was made with, read anew from the text that was sent; changing them changes no plan."""
        inputs: dict[str, JsonValue] = json_text.read(self.inputs_json.encode())  # type: ignore[assignment]
        return inputs

    @property
    def actions(self) -> list[dict[str, JsonValue]]:
        """What would be written, read anew from the text that the target answered."""
        actions: list[dict[str, JsonValue]] = json_text.read(self.actions_json.encode())  # type: ignore[assignment]
        return actions

    @property
    def touches(self) -> frozenset[str]:
        """The targets of its actions: a write to one of them ends the promise. No other value of them is read."""
        return frozenset(action.target for action in msgspec.json.decode(self.actions_json, type=list[_Touched]))


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan with what is known of it here: a copy of its row, as it was when it was read."""

    plan: Plan
    state: str
    may_have_arrived: bool
    touched_by: tuple[str, ...]
    run: int
    outcome: Ended | None
    is_told: bool
    delivery_id: str | None

    @property
    def end(self) -> Ended | None:
        """How it ended, where that is known here: a replay once a call has told it."""
        return again(self.outcome) if self.outcome is not None and self.is_told else self.outcome

    @property
    def is_in_flight(self) -> bool:
        """Whether it may still be written, as far as is known here."""
        return self.state in IN_FLIGHT

    @property
    def may_be_written(self) -> bool:
        """Whether it may be written at this moment: nothing of the kind is planned anew before that is known."""
        return self.is_in_flight and (self.may_have_arrived or self.state in (State.COMMITTING, State.UNKNOWN))


IN_FLIGHT: frozenset[str] = frozenset({FEEDING, State.PENDING, State.COMMITTING, State.UNKNOWN})
