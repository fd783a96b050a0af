"""What a scenario showed of an agent: every request, every answer, every process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from plans.conformance.scenarios import Scenario
from plans.conformance.scripted import Asked, Planned, Script, Told


@dataclass(slots=True)
class Heard:
    """One request and what became of it, in the order of arrival. `told` is None until it was answered."""

    turn: int
    at: datetime
    asked: Asked
    told: Told | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Turn:
    """How one process of the agent went. `status` is None where it had to be killed."""

    task_id: str
    status: int | None
    output: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a plan that is known, `place`-th of what was heard."""

    place: int
    heard: Heard
    plan: Planned

    @property
    def key(self) -> str:
        """The key, quoted or bare the same."""
        return self.heard.asked.headers.get("idempotency-key", "").strip('"')

    @property
    def is_lost(self) -> bool:
        """Whether nobody told the agent what came of it."""
        told = self.heard.told
        return told is None or told.is_lost or told.status >= 500

    def was_told(self, status: int, *slugs: str) -> bool:
        """Whether it was answered so; without slugs, with any."""
        told = self.heard.told
        return told is not None and told.status == status and (not slugs or told.slug in slugs)


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that one scenario showed."""

    scenario: Scenario
    script: Script = field(repr=False)
    heard: Sequence[Heard] = field(repr=False)
    turns: Sequence[Turn]

    def commits(self, plan: Planned | None = None) -> list[Commit]:
        """The commits in order of arrival; of this plan, or of every plan there was."""
        found = []
        for place, heard in enumerate(self.heard):
            if heard.asked.door == "commit":
                known = self.script.find(token=heard.asked.members.get("plan_token"))
                if known is not None and plan in (None, known):
                    found.append(Commit(place, heard, known))
        return found

    def plans(self, turn: int | None = None) -> list[Planned]:
        """The plans that were made; in this turn, or in all."""
        return [one for one in self.script.plans if turn in (None, one.turn)]

    def planned_at(self, plan: Planned) -> int:
        """The place of the dry run that made it."""
        return next(place for place, one in self._dry_runs() if one is plan)

    def dry_runs(self, operation: str, *, after: int, turn: int) -> list[int]:
        """Places after this one where the operation was planned again in this turn."""
        return [
            place
            for place, plan in self._dry_runs()
            if place > after and (plan.operation, plan.turn) == (operation, turn)
        ]

    def given_up(self, plan: Planned) -> int | None:
        """Where the agent first said of the plan, or of its task, that it is over; None where it never did."""
        for place, heard in enumerate(self.heard):
            asked, data = heard.asked, heard.asked.members.get("data")
            named = data if asked.door == "feed" and isinstance(data, dict) else {}
            parts = asked.path.split("/")
            is_told = heard.told is not None and heard.told.status < 300
            if is_told and (
                (asked.door == "abandon" and plan.plan_id in parts)
                or (asked.door == "end" and plan.task_id in parts)
                or (asked.members.get("type") == "plan.abandoned" and named.get("plan_id") == plan.plan_id)
                or (asked.members.get("type") == "task.ended" and named.get("task_id") == plan.task_id)
            ):
                return place
        return None

    def looks(self, plan: Planned) -> Iterator[tuple[int, Told]]:
        """Where the plan's state was asked for, and what was told."""
        for place, heard in enumerate(self.heard):
            if heard.asked.door == "state" and heard.told is not None and heard.told.plan is plan:
                yield place, heard.told

    def _dry_runs(self) -> Iterator[tuple[int, Planned]]:
        for place, heard in enumerate(self.heard):
            told = heard.told
            if heard.asked.door in ("dry-run", "target-dry-run") and told is not None and told.plan is not None:
                yield place, told.plan
