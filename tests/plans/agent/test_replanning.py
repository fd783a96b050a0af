"""A plan is made again with `replaces`, and what differs is shown."""

import json
from datetime import timedelta

import pytest

from plans.agent import (
    Committed,
    Conflict,
    Desk,
    Difference,
    Expired,
    ForeignPlan,
    JsonValue,
    Plan,
    PlanInFlight,
    Stale,
    Task,
    Unknown,
)
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, drop, instant, problem


def make_plan(task: Task, operation: str = "address.update") -> Plan:
    return task.dry_run(operation, {"customer_id": "77", "limit": 1.10}, intent="move:77", summary="Move 77")


def answer_of(server: ScriptedDesk, plan_id: str, *actions: dict[str, JsonValue]) -> str:
    expires_at = instant(server.now() + timedelta(minutes=5))
    members = {"plan_id": plan_id, "plan_token": f"pt_{plan_id}_0123456789", "expires_at": expires_at}
    return json.dumps({**members, "input_fingerprint": f"f:{plan_id}", "actions": list(actions)})


def test_after_a_conflict_the_same_is_planned_again_in_place_of_the_old(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", problem(409, "conflict", changed=[]))
        assert isinstance(task.commit(plan), Conflict)
        again = task.replan(plan)
        assert (again.replaced, again.plan.replaces) == (plan, plan.plan_id)
        assert (again.plan.intent, again.plan.summary) == (plan.intent, "Move 77")
        assert again.plan.inputs_json == plan.inputs_json
        assert server.at("dry-run")[1].json["replaces"] == plan.plan_id
        assert b"1.1" in server.at("dry-run")[1].body
        assert again.differs == ()
        assert task.replan(plan).plan == again.plan  # so a step that is run anew makes one plan
        assert isinstance(task.commit(again.plan), Committed)


@pytest.mark.parametrize("how", ["expired", "stale"])
def test_after_an_expiry_or_a_write_too(desk: Desk, server: ScriptedDesk, how: str) -> None:
    server.lifetime = timedelta(milliseconds=1) if how == "expired" else timedelta(minutes=10)
    with desk.task("t1") as task:
        plan = make_plan(task)
        if how == "stale":
            task.write("billing", ["customer/77"])
        assert isinstance(task.commit(plan), Expired if how == "expired" else Stale)
        server.lifetime = timedelta(minutes=10)
        assert isinstance(task.commit(task.replan(plan).plan), Committed)
    assert len(server.at("commit")) == 1


def test_other_inputs_and_another_summary_may_be_given(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task, "refund")
        again = task.replan(plan, {"customer_id": "77", "limit": 2}, summary="Less")
        assert (again.plan.inputs, again.plan.summary) == ({"customer_id": "77", "limit": 2}, "Less")
        [difference] = again.differs
        assert (difference.target, difference.field) == ("customer/77", "value")
        was, now = '{"customer_id":"77","limit":1.1}', '{"customer_id":"77","limit":2}'
        assert str(difference) == f"customer/77 value: planned update 1.1 to {was}, now update 1.1 to {now}"
        assert server.plans[plan.plan_id]["state"] == "abandoned"


def test_a_submitted_plan_takes_the_targets_new_answer(desk: Desk, server: ScriptedDesk) -> None:
    def cents(target: str, to: JsonValue) -> dict[str, JsonValue]:
        return {"op": "update", "target": target, "field": "cents", "to": to}

    note: dict[str, JsonValue] = {"op": "append", "target": "notes"}
    with desk.task("t1") as task:
        inputs = {"invoice_id": "1"}
        answer = answer_of(server, "plan_a", cents("invoice/1", 1), cents("invoice/2", 1), cents("invoice/3", 1))
        plan = task.submit("ledger", "pay", inputs, answer, intent="pay:1")
        with pytest.raises(ValueError, match="new answer"):
            task.replan(plan)
        new = answer_of(server, "plan_b", note, cents("invoice/1", True), cents("invoice/2", 1))
        again = task.replan(plan, answer=new)
        assert again.differs == (
            Difference("notes", None, None, note),
            Difference("invoice/1", "cents", cents("invoice/1", 1), cents("invoice/1", True)),
            Difference("invoice/3", "cents", cents("invoice/3", 1), None),
        )
        assert str(again.differs[0]) == "notes: planned nothing, now append"
        assert json.loads(server.at("feed")[1].body)["data"]["replaces"] == "plan_a"
        hosted = make_plan(task)
        with pytest.raises(ValueError, match="new answer"):
            task.replan(hosted, answer=new)


@pytest.mark.slow
def test_nothing_is_planned_again_while_the_old_plan_may_be_written(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", *[drop()] * 500)
        server.next("state", *[drop()] * 500)
        assert isinstance(task.commit(plan), Unknown)
        server.script.clear()
        with pytest.raises(PlanInFlight):
            task.replan(plan)
        server.next("state", Step(status=200, members={"plan_id": plan.plan_id, "state": "committing"}))
        with pytest.raises(PlanInFlight):
            task.replan(plan)
        assert len(server.at("dry-run")) == 1
        assert isinstance(task.commit(plan), Committed)


def test_a_plan_of_another_task_is_not_planned_again(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, desk.task("t2") as other:
        plan = make_plan(task)
        with pytest.raises(ForeignPlan):
            other.replan(plan)
    assert len(server.at("dry-run")) == 1
