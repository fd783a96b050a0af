"""The triggers of docs/states.md, by the name of their row: what is pulled, at which doors, by which use cases."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.plans.scenes import Given, Scene

Pull = Callable[[Scene], str | None]


@dataclass(frozen=True)
class Trigger:
    """One row. `doors` are the views, webhook types, tasks and use cases that this row stands for, by name."""

    name: str
    pull: Pull
    given: Given
    doors: tuple[str, ...] = field(default=())


TRIGGERS: dict[str, Trigger] = {}


def trigger(name: str, *doors: str, **given: Any) -> Callable[[Pull], Pull]:
    """Make a function the trigger of the row of this name. It answers what was answered, None for nobody."""

    def register(pull: Pull) -> Pull:
        assert name not in TRIGGERS, name
        TRIGGERS[name] = Trigger(name, pull, Given(**given), doors)
        return pull

    return register
