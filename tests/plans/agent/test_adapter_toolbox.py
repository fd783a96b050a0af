"""What a model is told of every way a plan can come out, against a desk that does what a test says."""

from collections.abc import Iterator
from typing import Any

import pytest

from plans.agent import Desk, Task
from plans.agent.toolbox import NEXT, NEXT_WHILE, Toolbox, _Published, _without_nulls
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, drop, drop_after, problem

MOVE = {"customer_id": "77", "address": "2 Mill Lane"}
PUBLISHED = _Published(
    name="address_update_dry_run",
    operation="address.update",
    step="dry_run",
    description="Moves a customer.",
    model={
        "type": "object",
        "properties": {
            "inputs": {"type": "object"},
            "intent": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "summary": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
    wire={"properties": {"inputs": {"properties": {"customer_id": {"type": "string"}, "floor": {"type": "integer"}}}}},
)


@pytest.fixture
def task(desk: Desk) -> Iterator[Task]:
    with desk.task("t1") as task:
        yield task


@pytest.fixture
def box(task: Task) -> Toolbox:
    return Toolbox(task, {PUBLISHED.name: PUBLISHED})


def plan(box: Toolbox, **inputs: Any) -> dict[str, Any]:
    arguments = {"inputs": {**MOVE, **inputs}, "intent": None, "summary": None}
    answer = box.call(PUBLISHED.name, arguments)
    assert not answer.is_error, answer
    assert answer.members["outcome"] == "planned"
    return {name: answer.members[name] for name in ("plan_id", "input_fingerprint")}


def commit(box: Toolbox, named: dict[str, Any]) -> dict[str, Any]:
    answer = box.call("commit_plan", named)
    assert not answer.is_error, answer
    assert answer.members["next"] == NEXT_WHILE.get(str(answer.members.get("reason")), NEXT[answer.members["outcome"]])
    assert "pt_secret" not in answer.text
    return answer.members


@pytest.mark.parametrize(
    ("status", "slug", "members", "outcome"),
    [
        (409, "conflict", {"changed": [], "plan_created_at": "2026-03-14T09:31:12Z"}, "conflict"),
        (410, "expired", {"expired_at": "2026-03-14T09:31:12Z"}, "expired"),
        (410, "abandoned", {"reason": "withdrawn"}, "abandoned"),
        (403, "approval-required", {"review_url": "https://desk.example/p"}, "waiting"),
        (403, "rejected", {"reason": "No."}, "rejected"),
        (422, "refused", {}, "refused"),
        (423, "fenced", {}, "waiting"),
    ],
)
def test_every_answer_to_a_commit_is_a_result_and_not_an_error(
    box: Toolbox, server: ScriptedDesk, status: int, slug: str, members: dict[str, Any], outcome: str
) -> None:
    named = plan(box)
    server.next("commit", *[problem(status, slug, **members)] * 40)
    assert commit(box, named)["outcome"] == outcome


@pytest.mark.parametrize("state", ["committing", "pending"])
def test_a_plan_that_is_being_written_is_not_told_as_one_to_commit(
    box: Toolbox, server: ScriptedDesk, state: str
) -> None:
    named = plan(box)
    server.set_state(named["plan_id"], state)
    told = box.call("get_plan", {"plan_id": named["plan_id"]}).members
    assert (told["outcome"], told["next"]) == (
        ("waiting", NEXT_WHILE["committing"]) if state == "committing" else ("planned", NEXT["planned"])
    )


@pytest.mark.slow
def test_an_unknown_outcome_is_a_result_and_the_same_call_finds_out_with_the_same_key(
    box: Toolbox, server: ScriptedDesk
) -> None:
    named = plan(box)
    server.next("commit", *[drop_after()] * 40)
    server.next("state", *[drop()] * 40)
    assert commit(box, named)["outcome"] == "unknown"
    again = box.call(PUBLISHED.name, {"inputs": {**MOVE, "address": "elsewhere"}, "intent": None, "summary": None})
    assert again.members["outcome"] in ("unknown", "unavailable")
    assert not again.is_error
    server.script.clear()
    assert commit(box, named)["outcome"] == "committed"
    assert server.applied == [named["plan_id"]]
    assert len({heard.headers["idempotency-key"] for heard in server.at("commit")}) == 1


def test_a_desk_that_is_down_is_a_result_before_and_after_the_plan(box: Toolbox, server: ScriptedDesk) -> None:
    server.next("dry-run", *[problem(503, "unavailable")] * 40)
    arguments = {"inputs": MOVE, "intent": None, "summary": None}
    answer = box.call(PUBLISHED.name, arguments)
    assert (answer.members["outcome"], answer.is_error) == ("unavailable", False)
    server.script.clear()
    named = plan(box)
    server.next("commit", *[problem(503, "unavailable", plan_write="none")] * 40)
    assert commit(box, named)["outcome"] == "unavailable"


def test_a_write_of_the_agent_makes_its_plan_stale(box: Toolbox, task: Task, server: ScriptedDesk) -> None:
    named = plan(box)
    task.write("billing", ["customer/77"])
    assert commit(box, named)["outcome"] == "stale"
    assert server.at("commit") == []


def test_an_operation_that_says_no_is_an_error_with_its_words(box: Toolbox, server: ScriptedDesk) -> None:
    server.next("dry-run", problem(422, "cannot-plan"))
    answer = box.call(PUBLISHED.name, {"inputs": MOVE, "intent": None, "summary": None})
    assert (answer.is_error, answer.members["slug"]) == (True, "cannot-plan")
    assert answer.members["detail"] == "about cannot-plan"


@pytest.mark.parametrize(("before", "advice"), [([], "error"), ([drop()], "unsure")])
def test_a_no_after_an_attempt_that_may_have_arrived_is_not_called_unwritten(
    box: Toolbox, server: ScriptedDesk, before: list[Step], advice: str
) -> None:
    named = plan(box)
    server.next("commit", *before, *[problem(401, "unauthenticated")] * 40)
    answer = box.call("commit_plan", named)
    assert answer.is_error
    assert answer.members["next"] == NEXT[advice]


def test_of_a_plan_of_another_task_nothing_is_sent(box: Toolbox, desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t2") as other:
        foreign = other.dry_run("address.update", MOVE)
        named = {"plan_id": foreign.plan_id, "input_fingerprint": foreign.input_fingerprint}
        assert box.call("commit_plan", named).members["slug"] == "never-planned"
        assert box.call("get_plan", {"plan_id": foreign.plan_id}).is_error
    assert server.at("commit") == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("commit_plan", {"plan_id": "p"}),
        ("commit_plan", {"plan_id": 1, "input_fingerprint": "f"}),
        ("commit_plan", {"plan_id": "p", "input_fingerprint": "f", "idempotency_key": "k"}),
        ("get_plan", {}),
        ("abandon_plan", {"plan_id": "p", "reason": None}),
        ("address_update_dry_run", {"intent": None, "summary": None}),
        ("address_update_dry_run", {"inputs": "77", "intent": None, "summary": None}),
        ("address_update_dry_run", {"inputs": MOVE, "intent": "two words", "summary": None}),
        ("address_update_dry_run", {"inputs": MOVE, "intent": None, "summary": None, "replaces": "p"}),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_and_nothing_is_sent(
    box: Toolbox, server: ScriptedDesk, name: str, arguments: dict[str, Any]
) -> None:
    assert box.call(name, arguments).is_error
    assert server.heard == []


def test_a_name_that_is_no_tool_is_no_tool(box: Toolbox) -> None:
    with pytest.raises(LookupError):
        box.call("drop_everything", {})


def test_null_stands_for_what_is_left_out_unless_null_is_a_value(box: Toolbox, server: ScriptedDesk) -> None:
    plan(box, floor=None)
    assert server.at("dry-run")[0].json["inputs"] == MOVE
    wire = {
        "properties": {
            "left_out": {"type": "integer"},
            "kept": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "pieces": {"type": "array", "items": {"properties": {"title": {"type": "string"}}}},
            "first": {"anyOf": [{"properties": {"title": {"type": "string"}}}, {"type": "null"}]},
        }
    }
    filled = {"left_out": None, "kept": None, "pieces": [{"title": None}], "first": {"title": None}, "surprise": None}
    made = {"kept": None, "pieces": [{}], "first": {}, "surprise": None}
    assert _without_nulls(filled, wire) == made
