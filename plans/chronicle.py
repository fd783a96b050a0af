"""What is told of a plan: its events, numbered under its lock, and who is said to have acted."""

from collections.abc import Mapping
from typing import Any

from audit.kinds import Kind
from audit.recording import Actor, Change, Numbering, Recorded, record
from plans.models import Agent, Plan

SWEEP = Actor("system", "sweep", "Sweep")
_NEXT = "UPDATE plans_plan SET event_count = event_count + 1 WHERE id = %s RETURNING event_count"


def agent_actor(agent: Agent) -> Actor:
    """An agent as an actor, under the name it has now."""
    return named_agent(agent.name)


def named_agent(name: str) -> Actor:
    """The agent of this name as an actor."""
    return Actor("agent", name, name)


def person_actor(person: Any) -> Actor:
    """A person as an actor; the id stays when the name changes."""
    return Actor("person", str(person.pk), person.name or person.email)


def target_actor(plan: Plan) -> Actor:
    """A plan's target as an actor: for what the target itself tells."""
    return Actor("target", plan.target.name, plan.target.name)


def tell(
    plan: Plan,
    kind: Kind,
    *,
    actor: Actor,
    data: Mapping[str, Any] | None = None,
    is_numbered: bool = True,
    change: Change | None = None,
) -> Recorded:
    """Record one event of a plan, numbered by the plan's own counter. Call it inside the change's transaction.

    Takes the plan's row lock if the caller does not hold it; not where `is_numbered` is false, for what changes
    nothing of the plan and must not wait for who does. `change` is carried out by the same statement, and counts the
    event itself. An agent acts on behalf of its owner. One round trip.
    """
    number = change or (Numbering(_NEXT, plan.pk) if is_numbered else None)
    recorded = record(
        kind,
        actor=actor,
        on_behalf_of=str(plan.agent.owner_id) if actor.type == "agent" else None,
        agent=plan.agent.name,
        target=plan.target.name,
        plan_id=plan.plan_id,
        plan_seq=number,
        operation=plan.operation,
        task_id=plan.task.task_id,
        data=data,
    )
    plan.event_count = recorded.plan_seq or plan.event_count
    return recorded
