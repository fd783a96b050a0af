"""A plan of which nothing is out of the ordinary is recorded at once, and exactly as step by step."""

import json
from typing import Any

import pytest
from django.db import connection

from audit.models import Event, Payload
from plans import feed_sql, plain_arrival, registry
from plans.models import Delivery, Plan, Task
from plans.policy_change import change_policy
from plans.schema import shown_digest
from tests.makers import events_of, feed_data, make_agent, make_target, receive, reread
from tests.plans.digests import digest_from_the_log
from tests.plans.test_round_trips import feed

pytestmark = pytest.mark.usefixtures("database")

ITS_OWN = {
    "id", "task_id", "plan_id", "idempotency_key", "received_at", "state_changed_at", "created_at", "expires_at",
    "token_hash", "token_sealed", "data_hash", "inputs_hash", "inputs", "input_fingerprint",
}  # fmt: skip


@pytest.fixture
def step_by_step(monkeypatch):
    """Has every arrival go the long way from here."""
    return lambda: monkeypatch.setattr(feed_sql, "receive", lambda _: None)


def told(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The event of a plan's receipt: its columns, and its payload."""
    event = Event.objects.get(plan_id=plan.plan_id, kind="plan.received")
    columns = {name: getattr(event, name) for name in ("kind", "actor_type", "actor_id", "on_behalf_of", "agent",
               "target", "plan_seq", "operation")}  # fmt: skip
    return columns, json.loads(Payload.objects.get(event_id=event.pk).body)


def test_of_a_plan_without_evidence_the_log_has_all_of_the_digest_too():
    target = make_target()
    plan = receive(make_agent(target).agent, feed_data(target.name))
    assert digest_from_the_log(plan) == shown_digest(reread(plan))


@pytest.mark.parametrize("created_at", [..., "2026-03-14T09:31:11Z"], ids=["received", "made before"])
@pytest.mark.parametrize("intent", [..., "limit:é"[:6]], ids=["no intent", "intent"])
def test_at_once_and_step_by_step_leave_the_same(step_by_step, created_at, intent):
    target = make_target(approvals=2)
    made = make_agent(target)
    plans = []
    for count in range(2):
        data = feed_data(
            target.name, created_at=created_at, intent=... if intent is ... else f"{intent}{count}",
            summary="Zwölf \U0001f4b6 \"quoted\" \\u0000", evidence=[{"tool": "look.up", "note": "x"}],
        )  # fmt: skip
        plans.append(receive(made.agent, data))
        step_by_step()
    first, second = (
        {name: value for name, value in Plan.objects.filter(pk=plan.pk).values()[0].items() if name not in ITS_OWN}
        for plan in plans
    )
    assert {**first, "intent": None} == {**second, "intent": None}
    for plan in plans:
        columns, payload = told(plan)
        assert payload["data"]["digest"] == shown_digest(reread(plan))
        assert payload["data"]["digest"] == digest_from_the_log(plan)
        assert payload["data"]["summary"] == plan.summary
        assert payload["data"]["evidence"] == [{"tool": "look.up", "note": "x"}]
        assert payload["actor_name"] == made.agent.name
        assert list(payload["data"]) == list(told(plans[1])[1]["data"])
        assert columns == told(plans[1])[0]
        assert plan.received_at == plan.state_changed_at
        assert (plan.created_at == plan.received_at) is (created_at is ...)
        assert plan.task.created_at == plan.received_at
        assert events_of(plan) == ["plan.received"]


def test_a_plan_is_recorded_in_one_statement_with_its_task_its_delivery_and_its_event():
    target = make_target()
    made = make_agent(target)
    feed(made, target.name)
    found = feed(made, target.name)
    assert [sql for sql in found if "plans_receive" in sql]
    assert len(found) == 2
    assert (Plan.objects.count(), Task.objects.count(), Delivery.objects.count(), Event.objects.filter(
        kind="plan.received").count()) == (2, 2, 2, 2)  # fmt: skip


def test_a_target_as_it_was_a_while_ago_is_not_believed(stub_target):
    target = make_target(base_url="http://127.0.0.1:9")
    made = make_agent(target)
    receive(made.agent, feed_data(target.name))
    assert plain_arrival._places[target.name].policy_version == 1
    change_policy(
        target_name=target.name, approvals=3, is_guarded=False, refuses_unconfirmed=False, by=registry.COMMAND_LINE
    )
    plan = receive(made.agent, feed_data(target.name))
    assert (plan.policy.version, plan.approvals_required) == (2, 3)
    assert receive(made.agent, feed_data(target.name)).approvals_required == 3
    registry.set_target(name=target.name, base_url=stub_target.base_url)
    plan = receive(made.agent, feed_data(target.name))
    assert plan.address.base_url == stub_target.base_url == plan.target_address
    assert told(plan)[1]["data"]["digest"] == shown_digest(reread(plan))


def test_the_locks_time_is_limited_in_the_statement_and_nowhere_after_it():
    target = make_target()
    made = make_agent(target)
    for _ in range(2):
        receive(made.agent, feed_data(target.name))
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_what_is_not_plain_changes_nothing_at_once(monkeypatch):
    target = make_target()
    made = make_agent(target)
    receive(made.agent, feed_data(target.name, intent="limit:1"))
    answers = []
    at_once = feed_sql.receive

    def watched(parameters):
        before = Plan.objects.count(), Task.objects.count(), Event.objects.count()
        answers.append(at_once(parameters))
        assert (Plan.objects.count(), Task.objects.count(), Event.objects.count()) == before
        return answers[-1]

    monkeypatch.setattr(feed_sql, "receive", watched)
    receive(made.agent, feed_data(target.name, intent="limit:1"))
    assert answers == [None]
