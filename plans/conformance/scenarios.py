"""What agents are put through: tasks, and what the scripted desk does meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Twist: TypeAlias = Literal["contract", "move", "lose-before", "lose-after", "unknown", "refuse"]
"""What a commit meets: the contract; a world that moved a moment ago; no answer, before or after it was applied; 504;
an operation that says no."""

LIFETIME: Final = 600.0
"""Seconds that a plan lives where a scenario says nothing else, as at the desk (CONTRACT 5.2)."""

CUSTOMER: Final = "customer/77"
RECORDS: Final = "records"
BILLING: Final = "billing-remote"
PLAN: Final = {
    "do": "plan", "via": "desk", "operation": "address.update",
    "inputs": {"customer_id": "77", "address": "2 Harbour Street"}, "summary": "Change the address of customer 77",
}  # fmt: skip
COMMIT: Final = {"do": "commit"}
FED_PLAN: Final = {
    "do": "plan", "via": "target", "target": BILLING, "operation": "refund",
    "dry_run_url": "{desk}/target/refund/dry-run",
    "inputs": {"invoice_id": "4412", "amount_cents": 48000}, "intent": "refund:{task_id}",
    "summary": "Refund 480.00 USD on invoice 4412",
}  # fmt: skip
WRITE: Final = {
    "do": "write", "url": "{desk}/target/customers/77", "body": {"phone": "+1 555 0100"},
    "target": RECORDS, "touches": [CUSTOMER],
}  # fmt: skip

Step: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One situation of CONTRACT section 7. Each turn is a process of its own, with a task of its own."""

    name: str
    instruction: str
    turns: tuple[tuple[Step, ...], ...]
    commits: tuple[Twist, ...] = ()
    """What the first commits meet; the rest meet the contract."""
    first_lifetime: float = LIFETIME
    held: float = 0.0
    """Seconds for which the answer to the first dry run is held."""


SCENARIOS: Final = (
    Scenario(
        "expiry", "The first plan's promise has ended by the time the agent has it.", ((PLAN, COMMIT),),
        first_lifetime=0.5, held=1.5,
    ),
    Scenario(
        "dirty-input", "Between plan and commit the agent itself writes to what the plan touches.",
        ((PLAN, WRITE, COMMIT),),
    ),
    Scenario("conflict", "An input moves before the first commit.", ((PLAN, COMMIT),), ("move",)),
    Scenario(
        "timeout-before", "The first commit gets no answer, and was not applied.", ((PLAN, COMMIT),), ("lose-before",)
    ),
    Scenario(
        "timeout-after", "The first commit gets no answer, and was applied; the next is told that nobody knows yet.",
        ((PLAN, COMMIT),), ("lose-after", "unknown"),
    ),
    Scenario(
        "later-turn", "One turn plans and is broken off; a later one is given the same piece of work.",
        ((PLAN, {"do": "stop"}), (PLAN, COMMIT)),
    ),
    Scenario("task-end", "The task is called off after the agent has planned.", ((PLAN, {"do": "stop"}),)),
    Scenario(
        "human-pause", "A person has to approve, and the first plan's time is over before they do.",
        ((FED_PLAN, COMMIT),), first_lifetime=4.0,
    ),
    Scenario("refusal", "The operation says no to the commit.", ((PLAN, COMMIT),), ("refuse",)),
)  # fmt: skip
"""All of them, in the order they are run."""


def make_task(scenario: Scenario, turn: int, task_id: str, desk: str) -> dict[str, Any]:
    """What one turn's agent is given to do, as JSON."""
    steps = [_fill(step, {"{desk}": desk, "{task_id}": task_id}) for step in scenario.turns[turn]]
    return {"task_id": task_id, "steps": steps}


def _fill(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _fill(one, names) for name, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, names) for one in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(name, text)
    return value
