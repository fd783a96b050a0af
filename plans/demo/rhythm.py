"""How fast the demonstration's agents go about their work, and how they wait so that they can be called off."""

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Final

from plans.agent import Outcome, Plan, Task, Unavailable, Unknown, Waiting

PACE: Final = 30.0
"""Mean seconds between two errands of one agent."""

PATIENCE: Final = 180.0
"""Seconds that an agent waits for people before it gives its plan up."""

THOUGHT: Final = 1 / 6
"""A pause in the middle of an errand, as a share of the pace: about what a person takes to read a mail."""

LOOKING_UP: Final = 2.0
"""Seconds after which a waiting agent looks up whether it was called off."""

_DICE: Final = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Rhythm:
    """`pace` and `patience` in seconds, as above. Setting `leaving` calls the agents off: what they are in ends."""

    pace: float = PACE
    patience: float = PATIENCE
    leaving: threading.Event = field(default_factory=threading.Event)

    def rest(self) -> None:
        """The time between two errands."""
        self._sleep(self.pace * _DICE.uniform(0.5, 1.5))

    def think(self) -> None:
        """The time between two steps of one errand."""
        self._sleep(self.pace * THOUGHT * _DICE.uniform(0.5, 1.5))

    def wait(self, task: Task, plan: Plan) -> Outcome:
        """Waits for people and for what is being found out, no longer than the patience. Called off, it leaves."""
        ends = time.monotonic() + self.patience
        while True:
            outcome = task.wait(plan, timeout=max(0.0, min(LOOKING_UP, ends - time.monotonic())))
            if not isinstance(outcome, Waiting | Unknown | Unavailable) or time.monotonic() >= ends:
                return outcome
            self._sleep(0)

    def _sleep(self, seconds: float) -> None:
        if self.leaving.wait(seconds):
            raise SystemExit
