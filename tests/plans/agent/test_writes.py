"""A write that touched what a plan writes to ends its promise: stale, here and at the desk."""

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from plans.agent import Abandoned, Committed, Desk, NotJson, Plan, Stale, Task, UntoldWarning
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import ScriptedDesk, drop


def make_plan(task: Task, address: str = "2 Harbour Street") -> Plan:
    return task.dry_run("address.update", {"customer_id": "77", "address": address})


def test_o95_a_write_makes_the_plan_stale_nothing_is_sent_and_a_new_plan_clears_it(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        assert task.write("billing", ["customer/77", "customer/78"]) == [plan.plan_id]
        assert server.plans[plan.plan_id]["abandonment"] == {"reason": "inputs_changed"}
        assert task.commit(plan) == Stale(plan.plan_id, ("customer/77",))
        assert task.wait(plan, timeout=0) == Stale(plan.plan_id, ("customer/77",))
        assert server.at("commit") == []
        again = make_plan(task)
        assert again.plan_id != plan.plan_id
        assert isinstance(task.commit(again), Committed)


def test_o95_changing_the_callers_inputs_changes_no_plan(desk: Desk, server: ScriptedDesk) -> None:
    inputs = {"customer_id": "77", "address": {"lines": ["2 Harbour Street"]}}
    with desk.task("t1") as task:
        plan = task.dry_run("address.update", inputs)
        inputs["address"]["lines"].append("elsewhere")  # type: ignore[index]
        plan.inputs["customer_id"] = "78"
        assert plan.inputs == {"customer_id": "77", "address": {"lines": ["2 Harbour Street"]}}
        assert isinstance(task.commit(plan), Committed)
    assert server.plans[plan.plan_id]["inputs"] == plan.inputs


def test_o94_a_write_in_a_worker_thread_makes_the_plan_stale(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, ThreadPoolExecutor(4) as pool:
        plan = pool.submit(make_plan, task).result()
        assert pool.submit(task.write, "billing", ["customer/77"]).result() == [plan.plan_id]
        assert list(pool.map(task.commit, [plan] * 8)) == [Stale(plan.plan_id, ("customer/77",))] * 8
    assert server.at("commit") == []


def test_o94_many_threads_that_commit_one_plan_send_one_key_and_apply_it_once(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, ThreadPoolExecutor(8) as pool:
        plans = set(pool.map(lambda _: make_plan(task).plan_id, range(8)))
        assert len(plans) == 1
        plan = make_plan(task)
        outcomes = list(pool.map(task.commit, [plan] * 8))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert server.applied == [plan.plan_id]
    assert {heard.headers["idempotency-key"] for heard in server.at("commit")} == {plan.idempotency_key}


def test_a_write_elsewhere_leaves_the_plan_alone(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        assert task.write("billing", ["customer/78"]) == []
        assert task.write("shipping", ["customer/77"]) == []
        assert isinstance(task.commit(plan), Committed)


def test_a_commit_is_a_write_and_makes_the_agents_other_plans_stale(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, desk.task("t2") as other:
        first, second = make_plan(task, "2 Harbour Street"), make_plan(other, "9 Mill Lane")
        assert isinstance(task.commit(first), Committed)
        assert other.commit(second) == Stale(second.plan_id, ("customer/77",))
        third = make_plan(other, "9 Mill Lane")
        assert third.plan_id != second.plan_id
        assert isinstance(other.commit(third), Committed)


def test_a_stale_plan_that_people_approved_first_is_what_the_desk_says(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = task.dry_run("refund", {"invoice_id": "4412"}, intent="refund:t1")
        server.approve(plan.plan_id)
        task.write("billing", ["invoice/4412"])
        assert isinstance(task.commit(plan), Committed)


def test_a_write_the_desk_cannot_be_told_warns_and_is_told_before_the_next_plan(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("writes", *[drop()] * 500)
        with pytest.warns(UntoldWarning, match="customer/77"):
            task.write("billing", ["customer/77"])
        with pytest.warns(UntoldWarning, match="customer/77"):
            assert isinstance(task.commit(plan), Stale)
        server.script.clear()
        make_plan(task)
        told = server.at("writes")[-1].json
        assert told["targets"] == ["customer/77"]


def test_a_newer_plan_ends_the_older_one_here_too(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        first = task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 1}, intent="refund:t1")
        second = task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 2}, intent="refund:t1", replaces=first)
        before = len(server.heard)
        assert task.commit(first) == Abandoned(first.plan_id, "superseded")
        assert len(server.heard) == before
        assert server.at("dry-run")[-1].json["replaces"] == first.plan_id
        assert second.replaces == first.plan_id


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), float("-inf"), {1: 2}, {"a": {2}}, b"bytes", "\ud83d", "nul\0", {"\0": 1}, object(),
        10**5000, complex(1, 2),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_p39_what_is_not_strict_json_is_refused_before_anything_is_sent(
    desk: Desk, server: ScriptedDesk, value: object
) -> None:
    with desk.task("t1") as task:
        with pytest.raises(NotJson):
            task.dry_run("address.update", {"customer_id": "77", "address": value})
        assert server.heard == []


def test_an_input_that_holds_itself_is_refused(desk: Desk) -> None:
    inputs: dict[str, object] = {}
    inputs["self"] = inputs
    with desk.task("t1") as task, pytest.raises(NotJson):
        task.dry_run("address.update", inputs)


def test_numbers_travel_as_written(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    inputs = {"customer_id": "77", "amount": Decimal("1.10"), "big": 2**53 + 1, "yes": True, "none": None}
    with make_desk(server, base_url, folder) as desk, desk.task("t1") as task:
        plan = task.dry_run("address.update", inputs)
        expected = '{"customer_id":"77","amount":1.10,"big":9007199254740993,"yes":true,"none":null}'
        assert plan.inputs_json == expected
        assert f'"inputs":{expected}'.encode() in server.at("dry-run")[0].body
