"""A target that is taken from an agent: what waits there is a person's, and the agent's to give up, not to commit."""

import pytest

from plans import registry
from plans.abandonment import abandon_plan
from plans.demo.models import Customer
from plans.errors import UnknownTarget
from plans.models import Plan, Wish
from plans.states import AbandonReason
from tests.makers import events_of, feed_data, make_agent, receive, reread
from tests.plans.http import Caller, make_caller
from tests.stub_behaviour import DropAfterApplying

pytestmark = pytest.mark.usefixtures("database")

REASON = {"reason": "intent_changed"}


@pytest.fixture
def caller(site, stub_target) -> Caller:
    return make_caller(site, base_url=stub_target.base_url, approvals=0)


def fed(caller: Caller, body: dict) -> Plan:
    return receive(caller.agent, caller.data(plan=body))


def take_away(caller: Caller) -> None:
    registry.set_agent(name=caller.agent.name, targets=[])


def test_a_plan_that_waits_there_is_not_committed_by_its_agent_any_more(caller, stub_target):
    body = stub_target.new_plan()
    plan = fed(caller, body)
    take_away(caller)
    refused = caller.commit_plan(body)
    refused.is_problem(404, "unknown-target", following="ask")
    assert refused.json["plan_write"] == "none"
    caller.commit(plan.operation, body).is_problem(404, "unknown-target", following="ask")
    assert reread(plan).state == "pending"
    assert events_of(plan) == ["plan.received"]
    assert stub_target.commits == []
    registry.set_agent(name=caller.agent.name, targets=[caller.target.name])
    assert caller.commit_plan(body).status == 200  # the refusals bound no key


def test_a_hosted_plan_neither(site):
    [billing] = registry.ensure_hosted_targets()
    Customer.objects.create(customer_id="77", name="Ada", email="ada@example.com", address="1 Old Lane")
    caller = make_caller(site, billing)
    planned = caller.dry_run("address.update", {"customer_id": "77", "address": "2 Harbour Road"}).json
    take_away(caller)
    caller.commit("address.update", planned).is_problem(404, "unknown-target", following="ask")
    assert Customer.objects.get().address == "1 Old Lane"


def test_what_was_committed_before_is_told_again(caller, stub_target):
    body = stub_target.new_plan()
    fed(caller, body)
    first = caller.commit_plan(body)
    take_away(caller)
    again = caller.commit_plan(body)
    assert (first.status, again.status, again.body) == (200, 200, first.body)


def test_what_may_have_been_written_before_is_unknown_as_ever(caller, stub_target):
    body = stub_target.new_plan()
    fed(caller, body)
    stub_target.script(DropAfterApplying())
    assert caller.commit_plan(body).status == 504
    take_away(caller)
    caller.commit_plan(body).is_problem(504, "outcome-unknown", following="poll")


@pytest.mark.parametrize("door", ["api", "api-with-target", "feed"])
def test_its_agent_may_still_give_it_up(caller, stub_target, door):
    body = stub_target.new_plan()
    plan = fed(caller, body)
    take_away(caller)
    if door == "feed":
        answer = caller.feed({"plan_id": plan.plan_id, "target": caller.target.name, **REASON}, "plan.abandoned")
    else:
        query = f"?target={caller.target.name}" if door == "api-with-target" else ""
        answer = caller.post(f"/api/v1/plans/{plan.plan_id}/abandon{query}", REASON)
    assert (answer.status, [one["state"] for one in answer.json["plans"]]) == (200, ["abandoned"])
    assert reread(plan).abandonment.reason == "intent_changed"


def test_anothers_plan_there_and_one_that_is_not_known_stay_an_unknown_target(caller):
    other = make_agent(caller.target).agent
    plan = receive(other, feed_data(caller.target.name))
    take_away(caller)
    for plan_id in (plan.plan_id, "plan_nobody_knows"):
        with pytest.raises(UnknownTarget):
            abandon_plan(
                agent=caller.agent, target_name=caller.target.name, plan_id=plan_id, reason=AbandonReason.INTENT_CHANGED
            )
    assert reread(plan).state == "pending"
    assert not Wish.objects.exists()
