"""What a plan stands on, what came of it, and which plans are its kin: inputs, evidence, result, conflict, lineage."""

from dataclasses import dataclass

import msgspec

from plans import changes
from plans.changes import Kind, Value
from plans.models import Plan
from plans.plan_facts import PlanFacts
from reviewer.plan_page import read_cards
from reviewer.rows import url_of


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that this plan and the one it replaces do not share; None where one of them does not touch it."""

    record: str
    field: str
    earlier: tuple[Value, Value] | None
    present: tuple[Value, Value] | None


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A row of a conflict: what was planned on, what is there, what the agent wanted."""

    record: str
    field: str
    planned: Value
    current: Value
    wanted: Value


def changed_fields(facts: PlanFacts) -> list[ChangedField]:
    """The conflict, field by field, beside what the agent wanted there."""
    wanted = {(card.target, row.field): row.after for card in read_cards(facts.plan) for row in card.rows}
    return [
        ChangedField(
            change.target,
            change.field,
            changes.read_value(change.planned),
            changes.read_value(change.current),
            wanted.get((change.target, change.field), changes.UNTOLD),
        )
        for change in facts.conflict_changes
    ]


def differences_of(plan: Plan, earlier: Plan | None) -> list[Difference]:
    """What this plan would do otherwise than the one it replaces; inputs first."""
    if earlier is None:
        return []
    pairs = [(_inputs(earlier), _inputs(plan)), (_values(earlier), _values(plan))]
    return [
        Difference(name[0], name[1], old.get(name), new.get(name))
        for old, new in pairs
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _inputs(plan: Plan) -> dict[tuple[str, str], tuple[Value, Value]]:
    return {("", name): (changes.UNTOLD, value) for name, value in changes.read_members(plan.inputs)}


def _values(plan: Plan) -> dict[tuple[str, str], tuple[Value, Value]]:
    return {(card.target, row.field): (row.before, row.after) for card in read_cards(plan) for row in card.rows}


class Evidence(msgspec.Struct, frozen=True):
    """What the agent says it looked at."""

    tool: str
    note: str = ""
    url: str = ""


def evidence_of(plan: Plan) -> list[Evidence]:
    return msgspec.json.decode(plan.evidence, type=list[Evidence]) if plan.evidence else []


def inputs_of(plan: Plan) -> list[tuple[str, Value]]:
    """The inputs by name; a whole that is no object stands alone, without a name."""
    return changes.read_members(plan.inputs) or [("", changes.read_value(plan.inputs))]


def result_of(facts: PlanFacts) -> tuple[list[tuple[str, Value]], Value | None]:
    """What the target answered: members of an object, else the one value; (nothing, None) where it gave none."""
    attempt = next((attempt for attempt in facts.attempts if attempt.outcome == "committed"), None)
    if attempt is None or attempt.result is None:
        return [], None
    members = changes.read_members(attempt.result)
    value = changes.read_value(attempt.result)
    return (members, None) if members else ([], value if value.kind is not Kind.UNTOLD else None)


@dataclass(frozen=True, slots=True)
class Link:
    """Another plan, by its page."""

    url: str
    plan_id: str
    agent: str
    operation: str


def link_to(plan: Plan | None) -> Link | None:
    if plan is None:
        return None
    return Link(url_of(plan.agent.name, plan.target.name, plan.plan_id), plan.plan_id, plan.agent.name, plan.operation)
