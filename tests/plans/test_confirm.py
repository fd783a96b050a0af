"""What a target says of a pending plan, before anybody approves it."""

import pytest

from plans import clock, schema
from plans.agent_commit import Presented, commit_by_agent
from plans.confirm import confirm_plan
from plans.errors import DecisionRefused, Unavailable
from plans.models import Approval, Plan
from plans.reconcile import confirm_received
from plans.review import approve_plan
from tests.hosted_plans import approve
from tests.makers import events_of, feed_data, make_agent, make_person, make_target, policy_of, receive, reread
from tests.racing import at_once
from tests.stub_behaviour import (
    DropAfterReading,
)
from tests.stub_target import refusing_url
from tests.unknown_plans import due, plan_at, says

pytestmark = pytest.mark.usefixtures("database")

# --- before the approval --------------------------------------------------------------------------------------------


def test_a_pending_plan_that_its_target_calls_committed_was_committed_without_approval(stub_target):
    plan = plan_at(stub_target)
    stub_target.alter(plan.plan_id, state="committed", result={"by": "somebody"})
    with pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert refused.value.code == "committed"
    assert stub_target.commits == []
    assert events_of(plan) == ["plan.received", "commit.unapproved", "commit.succeeded", "decision.refused"]
    assert reread(plan).commits.get().result == '{"by": "somebody"}'


@pytest.mark.parametrize("state", ["conflicted", "refused", "rejected", "expired", "abandoned"])
def test_a_pending_plan_that_its_target_calls_ended_is_withdrawn(stub_target, state):
    plan = plan_at(stub_target)
    stub_target.alter(plan.plan_id, state=state)
    assert confirm_received() == 1
    assert reread(plan).abandonment.reason == "withdrawn"
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert confirm_received() == 0


@pytest.mark.parametrize(
    "told",
    [
        {"input_fingerprint": "sha256:other"},
        {"actions": [{"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 100, "to": 251}]},
        {"actions": []},
        {"expires_at": "2031-01-01T00:00:00Z"},
        {"expires_at": "tomorrow"},
    ],
)
def test_a_plan_that_its_target_tells_otherwise_is_refused_before_anybody_approves(stub_target, told):
    plan = plan_at(stub_target)
    stub_target.alter(plan.plan_id, **told)
    with pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert refused.value.code == "refused"
    assert stub_target.commits == []
    assert events_of(plan) == ["plan.received", "plan.refused", "decision.refused"]
    assert reread(plan).refusal.reason.startswith("plan-mismatch")


def test_a_plan_told_the_same_is_confirmed_whatever_the_order_of_members(stub_target):
    actions = [{"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 1.0, "to": 250}]
    plan = plan_at(stub_target, actions=actions)
    stub_target.alter(plan.plan_id, actions=[dict(reversed(list(actions[0].items())))])
    assert confirm_plan(plan_pk=plan.pk).has_confirmed_actions
    assert events_of(plan) == ["plan.received"]


def test_two_sweeps_and_an_approval_find_the_same_mismatch_and_one_of_them_ends_the_plan(stub_target):
    plan = plan_at(stub_target)
    stub_target.alter(plan.plan_id, input_fingerprint="sha256:other")
    person = make_person("reviewer")
    at_once(confirm_received, confirm_received, lambda: approve_now(plan, person))
    assert [kind for kind in events_of(plan) if kind != "decision.refused"] == ["plan.received", "plan.refused"]
    assert stub_target.commits == []


def approve_now(plan: Plan, person) -> Plan:
    return approve_plan(plan_pk=plan.pk, person=person, seen_digest=schema.shown_digest(plan))


def test_a_plan_of_which_its_target_knows_nothing_is_asked_about_more_and_more_rarely(stub_target):
    plan, other = plan_at(stub_target, is_known=False), plan_at(stub_target)
    assert sum(at_once(*[lambda: confirm_received(1)] * 2)) == 2
    assert len(stub_target.look_ups) == 2
    assert reread(other).has_confirmed_actions
    pauses = []
    for _ in range(3):
        assert confirm_received() == 0  # not due
        pauses.append((reread(plan).next_check_at - clock.now()).total_seconds())
        assert confirm_received(limit=1) == 0
        due(plan)
        assert confirm_received() == 1
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    stub_target.script(DropAfterReading())
    approve(plan)
    assert (reread(plan).next_check_at - clock.now()).total_seconds() < 3  # finding out starts anew


def test_a_target_that_is_down_keeps_no_other_targets_plans_waiting(stub_target):
    with refusing_url() as down:
        target = make_target(base_url=down)
        agent = make_agent(target).agent
        for _ in range(5):
            receive(agent, feed_data(target.name))
        plan = plan_at(stub_target)
        confirm_received(limit=2)
    assert reread(plan).has_confirmed_actions


def test_a_policy_that_refuses_unconfirmed_plans_binds_people_and_agents_alike(stub_target):
    target = make_target(base_url=stub_target.base_url, approvals=0)
    policy_of(target, refuses_unconfirmed=True)
    body = stub_target.new_plan(is_known=False)
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    presented = Presented("key-1", None, body["plan_token"], body["input_fingerprint"])
    with pytest.raises(Unavailable, match="not confirmed") as not_yet:
        commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented)
    assert not_yet.value.headers["Retry-After"] == "5"
    with pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert (refused.value.code, refused.value.status) == ("unconfirmed", 403)
    assert stub_target.commits == []
    stub_target.script_look_ups(plan.plan_id, says(plan, "pending", actions=body["actions"]))
    confirm_plan(plan_pk=plan.pk)
    assert commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented).plan.state == "committed"


def test_a_target_that_is_down_refuses_the_approval_and_that_is_told(stub_target):
    plan = plan_at(stub_target)
    stub_target.refuse_connections()
    with pytest.raises(DecisionRefused) as down:
        approve(plan)
    assert (down.value.code, down.value.status) == ("target-down", 503)
    assert events_of(plan) == ["plan.received", "decision.refused"]
    assert not Approval.objects.exists()


def test_who_may_not_decide_hears_that_though_the_target_is_down(stub_target):
    plan = plan_at(stub_target)
    stub_target.refuse_connections()
    with pytest.raises(DecisionRefused) as refused:
        approve(plan, make_person())
    assert (refused.value.code, refused.value.status) == ("not-a-reviewer", 403)
    assert events_of(plan) == ["plan.received", "decision.refused"]
