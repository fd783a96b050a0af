"""Remote plans whose outcome is unknown, and what their target says of them."""

from audit.kinds import TERMINAL_KINDS
from plans import clock
from plans.models import Plan
from tests.hosted_plans import approve
from tests.makers import events_of, feed_data, make_agent, make_target, receive, reread
from tests.stub_behaviour import (
    Answer,
    DropAfterReading,
)
from tests.stub_target import StubTarget

APPROVED = ["plan.received", "plan.approved", "commit.started"]
UNKNOWN = [*APPROVED, "commit.unknown"]
AGAIN = ["commit.started", "commit.unknown"]


def plan_at(stub: StubTarget, *, is_known: bool = True, agent=None, actions=None, **data) -> Plan:
    """A fed plan whose target tells of it by its id (or answers 404 there)."""
    target = make_target(base_url=stub.base_url)
    agent = agent or make_agent(target).agent
    body = stub.new_plan(is_known=is_known, actions=actions)
    return receive(agent, feed_data(target.name, plan=body, **data))


def unknown_at(stub: StubTarget, behaviour=None, **how) -> Plan:
    """A plan whose one attempt, answered by `behaviour`, may have arrived."""
    stub.script(behaviour or DropAfterReading())
    plan = plan_at(stub, **how)
    assert approve(plan).state == "unknown"
    return reread(plan)


def says(plan: Plan, state: str, **members) -> Answer:
    return Answer(200, {"plan_id": plan.plan_id, "state": state, **members})


def due(plan: Plan) -> Plan:
    """The plan, whose next look is due now."""
    Plan.objects.filter(pk=plan.pk).update(next_check_at=clock.now())
    return plan


def outcomes(plan: Plan) -> list[str | None]:
    return list(plan.commits.order_by("number").values_list("outcome", flat=True))


def has_one_end(plan: Plan) -> bool:
    return len([kind for kind in events_of(plan) if kind in TERMINAL_KINDS]) == 1
