"""Receiving plans from agents: what is recorded, superseded, refused."""

from datetime import timedelta

import pytest

from plans import abandonment, clock
from plans.errors import IntentTaken, Invalid, NotReplaceable, PlanIdTaken, TokenTaken, TooMany, UnknownTarget
from plans.instants import format_instant_exact
from plans.models import Plan
from plans.states import AbandonReason, State
from tests.makers import events_of, feed_data, make_agent, make_plan, make_target, receive, reread
from tests.time_passing import pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")


def test_a_fed_plan_is_recorded_pending_with_its_event():
    plan = make_plan()
    assert plan.state == State.PENDING.value
    assert plan.approvals_required == 1
    assert plan.action_targets == ["ledger/ACC-104"]
    assert events_of(plan) == ["plan.received"]


def test_equal_data_again_is_the_same_plan_whatever_the_order_of_members():
    target = make_target()
    made = make_agent(target)
    data = feed_data(target.name)
    first = receive(made.agent, data)
    again = receive(made.agent, dict(reversed(list(data.items()))))
    assert first.pk == again.pk
    assert Plan.objects.count() == 1


def test_the_same_plan_id_with_other_data_is_taken():
    target = make_target()
    made = make_agent(target)
    data = feed_data(target.name)
    receive(made.agent, data)
    data["summary"] = "another"
    with pytest.raises(PlanIdTaken):
        receive(made.agent, data)
    assert Plan.objects.count() == 1


def test_a_number_written_otherwise_is_other_data():
    target = make_target()
    made = make_agent(target)
    import json

    text = json.dumps(feed_data(target.name, inputs={"amount": "PLACE"}))
    receive(made.agent, text.replace('"PLACE"', "1.10"))
    with pytest.raises(PlanIdTaken):
        receive(made.agent, text.replace('"PLACE"', "1.1"))


def test_the_same_plan_id_of_another_agent_is_another_plan():
    target = make_target()
    one, other = make_agent(target), make_agent(target)
    first = receive(one.agent, feed_data(target.name, plan={"plan_id": "plan_x"}))
    second = receive(other.agent, feed_data(target.name, plan={"plan_id": "plan_x"}))
    assert first.pk != second.pk


def test_a_token_of_another_plan_at_the_target_is_taken_without_naming_it():
    target = make_target()
    one, other = make_agent(target), make_agent(target)
    receive(one.agent, feed_data(target.name, plan={"plan_token": "same-token-text"}))
    with pytest.raises(TokenTaken) as refused:
        receive(other.agent, feed_data(target.name, plan={"plan_token": "same-token-text"}))
    assert one.agent.name not in refused.value.detail
    assert refused.value.members == {}


def test_a_target_that_is_not_the_agents_is_unknown():
    made = make_agent(make_target())
    with pytest.raises(UnknownTarget):
        receive(made.agent, feed_data(make_target().name))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"plan": {"actions": []}}, "/data/plan/actions"),
        ({"plan": {"plan_id": "caf\u00e9"}}, "/data/plan/plan_id"),
        ({"plan": {"plan_id": "x" * 129}}, "/data/plan/plan_id"),
        ({"plan": {"expires_at": "2031-05-01T10:00:00"}}, "/data/plan/expires_at"),
        ({"plan": {"expires_at": "2031-06-30T23:59:60Z"}}, "/data/plan/expires_at"),
        ({"plan": {"expires_at": "9999-12-31T23:59:59Z"}}, "/data/plan/expires_at"),
        ({"plan": {"expires_at": "2020-01-01T00:00:00Z"}}, "/data/plan/expires_at"),
        ({"plan": {"input_fingerprint": "  "}}, "/data/plan/input_fingerprint"),
        ({"plan": {"plan_token": ""}}, "/data/plan/plan_token"),
        ({"plan": {"plan_token": "t" * 4097}}, "/data/plan/plan_token"),
        ({"plan": {"plan_token": "tokentext"}, "summary": "see tokentext"}, "/data"),
        ({"plan": {"plan_token": "tokentext"}, "inputs": {"tokentext": 1}}, "/data"),
        ({"plan": {"actions": [{"op": "update", "target": "a"}]}}, "/data/plan/actions/0/to"),
        ({"plan": {"actions": [{"op": "Update!", "target": "a", "to": 1}]}}, "/data/plan/actions/0/op"),
        ({"plan": {"actions": [{"op": "update", "target": " ", "to": 1}]}}, "/data/plan/actions/0/target"),
        ({"plan": {"actions": [{"op": "create", "target": "a", "to": 1}]}}, "/data/intent"),
        ({"plan": {"actions": [{"op": "update", "target": "a", "to": 1}] * 2}}, "/data/plan/actions/1/target"),
        ({"inputs": []}, "/data/inputs"),
        ({"summary": "x" * 2001}, "/data/summary"),
        ({"evidence": [{"tool": "t", "url": "http://carrier.example"}]}, "/data/evidence/0/url"),
        ({"evidence": [{"tool": "t"}] * 51}, "/data/evidence"),
        ({"created_at": "2999-01-01T00:00:00Z"}, "/data/created_at"),
        ({"intent": "no spaces please"}, "/data/intent"),
    ],
)
def test_what_is_not_acceptable_is_named_by_its_place_and_nothing_is_recorded(change, place):
    target = make_target()
    made = make_agent(target)
    with pytest.raises(Invalid) as refused:
        receive(made.agent, feed_data(target.name, **change))
    assert place in [error["pointer"] for error in refused.value.members["errors"]]
    assert Plan.objects.count() == 0


def test_a_delete_needs_no_new_value():
    plan = make_plan(plan={"actions": [{"op": "delete", "target": "ledger/ACC-1"}]})
    assert plan.state == "pending"


def test_o91_a_second_plan_of_the_same_task_operation_and_inputs_supersedes_the_first():
    target = make_target()
    made = make_agent(target)
    common = {"task_id": "ticket-1", "inputs": {"account": "ACC-104"}}
    first = receive(made.agent, feed_data(target.name, **common))
    second = receive(made.agent, feed_data(target.name, **common))
    first = reread(first)
    assert first.state == "abandoned"
    assert first.abandonment.reason == AbandonReason.SUPERSEDED.value
    assert first.replaced_by_id == second.pk
    assert second.state == "pending"
    assert first.token_sealed is None


def test_a_plan_of_the_same_intent_supersedes_across_tasks():
    target = make_target()
    made = make_agent(target)
    first = receive(made.agent, feed_data(target.name, intent="refund:9"))
    second = receive(made.agent, feed_data(target.name, intent="refund:9"))
    assert reread(first).abandonment.reason == "superseded"
    assert second.state == "pending"


@pytest.mark.parametrize("state", ["unknown", "committed"])
def test_an_intent_that_may_be_written_is_taken(state):
    target = make_target()
    made = make_agent(target)
    make_plan(state, made=made, target=target, intent="refund:9")
    with pytest.raises(IntentTaken):
        receive(made.agent, feed_data(target.name, intent="refund:9"))


@pytest.mark.parametrize("state", ["conflicted", "rejected", "refused", "abandoned"])
def test_an_intent_that_ended_without_writing_is_free_again(state):
    target = make_target()
    made = make_agent(target)
    make_plan(state, made=made, target=target, intent="refund:9")
    assert receive(made.agent, feed_data(target.name, intent="refund:9")).state == "pending"


@pytest.mark.parametrize("state", ["unknown", "committed"])
def test_a_plan_that_may_be_written_is_not_replaceable(state):
    target = make_target()
    made = make_agent(target)
    old = make_plan(state, made=made, target=target)
    with pytest.raises(NotReplaceable):
        receive(made.agent, feed_data(target.name, replaces=old.plan_id))


def test_r5_a_replaced_plan_is_superseded_and_linked():
    target = make_target()
    made = make_agent(target)
    old = make_plan(made=made, target=target)
    new = receive(made.agent, feed_data(target.name, replaces=old.plan_id))
    assert reread(old).abandonment.reason == "superseded"
    assert reread(old).replaced_by_id == new.pk


@pytest.mark.parametrize("end", ["conflicted", "rejected", "refused", "abandoned"])
def test_r5_a_plan_that_ended_without_writing_is_linked_to_the_one_that_takes_its_place(end):
    target = make_target()
    made = make_agent(target)
    old = make_plan(end, made=made, target=target)
    new = receive(made.agent, feed_data(target.name, replaces=old.plan_id))
    assert (reread(old).state, reread(old).replaced_by_id) == (end, new.pk)


def test_w79_an_older_plan_that_arrives_late_is_recorded_and_at_once_superseded():
    target = make_target()
    made = make_agent(target)
    now = clock.now()
    newer = receive(
        made.agent,
        feed_data(target.name, intent="refund:9", created_at=format_instant_exact(now - timedelta(seconds=5))),
    )
    older = receive(
        made.agent,
        feed_data(target.name, intent="refund:9", created_at=format_instant_exact(now - timedelta(seconds=50))),
    )
    assert older.state == "abandoned"
    assert reread(older).abandonment.reason == "superseded"
    assert reread(older).replaced_by_id == newer.pk
    assert reread(newer).state == "pending"
    assert events_of(older) == ["plan.received", "plan.abandoned"]


@pytest.mark.parametrize("intent", [None, "refund:9"])
def test_a_replacement_supersedes_the_plan_it_names_though_a_clock_makes_it_the_older(intent):
    target = make_target()
    made = make_agent(target)
    shared = {"task_id": "task-of-both", "inputs": {"account": "ACC-104"}, **({"intent": intent} if intent else {})}
    old = receive(made.agent, feed_data(target.name, **shared))  # no `created_at`: its receipt
    a_second_before = format_instant_exact(old.created_at - timedelta(seconds=1))
    new = receive(made.agent, feed_data(target.name, replaces=old.plan_id, created_at=a_second_before, **shared))
    assert (reread(new).state, reread(old).state) == ("pending", "abandoned")
    assert reread(old).abandonment.reason == "superseded"
    assert reread(old).replaced_by_id == new.pk


def test_a_replacement_still_loses_to_a_newer_plan_that_it_does_not_name():
    target = make_target()
    made = make_agent(target)
    old = receive(made.agent, feed_data(target.name, intent="refund:8"))
    newer = receive(made.agent, feed_data(target.name, intent="refund:9"))
    a_second_before = format_instant_exact(old.created_at - timedelta(seconds=1))
    data = feed_data(target.name, intent="refund:9", replaces=old.plan_id, created_at=a_second_before)
    late = receive(made.agent, data)
    assert (reread(late).state, reread(newer).state) == ("abandoned", "pending")
    assert reread(late).replaced_by_id == newer.pk


def test_the_replaced_plan_that_arrives_after_its_replacement_is_superseded():
    target = make_target()
    made = make_agent(target)
    new = receive(made.agent, feed_data(target.name, replaces="plan_old"))
    old = receive(made.agent, feed_data(target.name, plan={"plan_id": "plan_old"}))
    assert old.state == "abandoned"
    assert reread(old).replaced_by_id == new.pk


def test_w79_an_abandonment_that_came_first_applies_on_arrival():
    target = make_target()
    made = make_agent(target)
    abandonment.abandon_plan(
        agent=made.agent, target_name=target.name, plan_id="plan_x", reason=AbandonReason.INTENT_CHANGED
    )
    plan = receive(made.agent, feed_data(target.name, plan={"plan_id": "plan_x"}))
    assert plan.state == "abandoned"
    assert reread(plan).abandonment.reason == "intent_changed"
    assert plan.token_sealed is None


def test_a_plan_of_an_ended_task_is_abandoned_on_arrival():
    target = make_target()
    made = make_agent(target)
    abandonment.end_task(agent=made.agent, task_id="ticket-1")
    plan = receive(made.agent, feed_data(target.name, task_id="ticket-1"))
    assert reread(plan).abandonment.reason == "task_ended"


def test_a_write_after_the_dry_run_is_held_against_a_plan_that_arrives_later_and_an_older_one_is_not():
    target = make_target()
    made = make_agent(target)
    now = clock.now()
    abandonment.observe_write(
        agent=made.agent,
        task_id="ticket-1",
        target_name=target.name,
        targets=["ledger/ACC-104"],
        written_at=now - timedelta(seconds=30),
    )
    before = feed_data(target.name, created_at=format_instant_exact(now - timedelta(seconds=60)))
    after = feed_data(target.name, created_at=format_instant_exact(now - timedelta(seconds=10)))
    assert reread(receive(made.agent, before)).abandonment.reason == "inputs_changed"
    assert receive(made.agent, after).state == "pending"


def test_an_agent_has_at_most_200_pending_plans(monkeypatch):
    monkeypatch.setattr("plans.intake.MAX_PENDING", 2)
    target = make_target()
    made = make_agent(target)
    receive(made.agent, feed_data(target.name))
    receive(made.agent, feed_data(target.name))
    with pytest.raises(TooMany):
        receive(made.agent, feed_data(target.name))


def test_a_plan_whose_time_is_up_is_none_of_the_200_whether_or_not_a_sweep_has_come(monkeypatch, owner_connection):
    monkeypatch.setattr("plans.intake.MAX_PENDING", 1)
    target = make_target()
    made = make_agent(target)
    pass_time_to_expiry(owner_connection, receive(made.agent, feed_data(target.name)), 1)
    assert receive(made.agent, feed_data(target.name)).state == "pending"
