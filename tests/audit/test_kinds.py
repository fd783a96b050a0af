"""Every kind of event is shown by a test that walks the path which records it."""

import ast
from typing import Any

import pytest

from audit.kinds import Kind
from plans import callbacks
from plans.models import Agent
from plans.review import reject_plan, request_replan
from plans.schema import shown_digest
from plans.states import State
from plans.viewing import record_view
from reviewer.installation import PROJECT
from tests.audit.shown import SHOWN_BY, check_shown, claimed_by
from tests.makers import events_of, kinds_recorded, make_agent, make_person, make_plan, make_target
from tests.plans.test_strangers import Inside


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_shown_by_a_test_that_there_is(kind: Kind) -> None:
    file, _, name = SHOWN_BY[kind].partition("::")
    tree = ast.parse((PROJECT / "tests" / f"{file}.py").read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == f"test_{name}"]
    assert len(found) == 1, f"{kind} is shown by no test"
    assert not [one for one in found[0].decorator_list if "skip" in ast.dump(one) or "xfail" in ast.dump(one)]


def test_a_test_that_is_said_to_show_a_kind_and_does_not_record_it_fails() -> None:
    name = SHOWN_BY[Kind.TASK_ENDED]
    file, _, test = name.partition("::")
    node_id = f"tests/{file}.py::test_{test}[a case]"
    assert claimed_by(node_id) == {"task.ended"}
    check_shown(node_id, ["plan.received", "task.ended"])
    with pytest.raises(AssertionError, match=r"is said to show \['task.ended'\]"):
        check_shown(node_id, ["plan.received"])
    check_shown("tests/audit/test_kinds.py::test_another", [])


def test_a_view_and_a_rejection_are_told(database: None) -> None:
    plan, person = make_plan(), make_person("reviewer")
    record_view(plan_pk=plan.pk, person=person)
    reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(plan), reason="Not this one")
    assert kinds_recorded()[-3:] == ["plan.received", "plan.viewed", "plan.rejected"]


def test_a_wish_for_a_new_plan_and_its_callback_are_told(database: None, settings: Any) -> None:
    settings.CALLBACK_ALLOW_PRIVATE = True
    target = make_target()
    made = make_agent(target, callback_url="https://agent.example/hook")
    plan = make_plan(State.CONFLICTED, made=made, target=target)
    hears_not, hears = Inside((500, "")), Inside()
    try:
        Agent.objects.filter(pk=made.agent.pk).update(callback_url=f"http://127.0.0.1:{hears_not.port}/hook")
        assert callbacks.deliver_due() == 1
        assert events_of(plan)[-1] == "callback.failed"
        Agent.objects.filter(pk=made.agent.pk).update(callback_url=f"http://127.0.0.1:{hears.port}/hook")
        request_replan(plan_pk=plan.pk, person=make_person("reviewer"))
        assert events_of(plan)[-1] == "plan.replan_requested"
        assert callbacks.deliver_due() == 1
        assert events_of(plan)[-1] == "callback.delivered"
    finally:
        hears_not.stop()
        hears.stop()
