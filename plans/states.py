"""The state machine of a plan: its states, its moves, and what each means."""

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Every state a plan can be in (CONTRACT section 2)."""

    PENDING = "pending"
    COMMITTING = "committing"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    CONFLICTED = "conflicted"
    REJECTED = "rejected"
    REFUSED = "refused"
    ABANDONED = "abandoned"


class AbandonReason(StrEnum):
    """Why a plan was planned and not done. A plan has one of these at most."""

    EXPIRED = "expired"
    TASK_ENDED = "task_ended"
    INTENT_CHANGED = "intent_changed"
    INPUTS_CHANGED = "inputs_changed"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"
    NOT_APPLIED = "not_applied"


class Outcome(StrEnum):
    """How one attempt to commit came out. `UNSENT` is the only one after which the plan is pending again."""

    UNSENT = "unsent"
    COMMITTED = "committed"
    CONFLICTED = "conflicted"
    REFUSED = "refused"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


IN_FLIGHT: Final = frozenset({State.PENDING, State.COMMITTING, State.UNKNOWN})
"""States in which a plan may still be written."""

BUSY: Final = frozenset({State.COMMITTING, State.UNKNOWN})
"""States in which an attempt may have reached the target: they fence, and nothing but an answer ends them."""

ENDS: Final = frozenset(State) - IN_FLIGHT
"""States that are final."""

HOLDS_INTENT: Final = IN_FLIGHT | {State.COMMITTED}
"""At most one plan of an agent's intent is in one of these."""

AGENT_REASONS: Final = frozenset({AbandonReason.TASK_ENDED, AbandonReason.INTENT_CHANGED, AbandonReason.INPUTS_CHANGED})
"""Reasons that an agent may give; the others are the desk's own findings."""

MOVES: Final[dict[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.COMMITTING, State.REJECTED, State.ABANDONED, State.COMMITTED, State.REFUSED}),
    State.COMMITTING: frozenset(
        {State.COMMITTED, State.CONFLICTED, State.REFUSED, State.ABANDONED, State.UNKNOWN, State.PENDING}
    ),
    State.UNKNOWN: frozenset({State.COMMITTED, State.CONFLICTED, State.REFUSED, State.ABANDONED}),
}
"""Every allowed move. The database refuses the others (`plan_moves` in the migrations)."""


def is_end(state: str) -> bool:
    """True where nothing can change the plan any more."""
    return State(state) in ENDS
