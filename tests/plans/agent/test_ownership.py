"""No plan of another task, agent, desk or store is committed by accident; a commit takes nothing but the plan."""

import dataclasses
import inspect
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plans.agent import Committed, Desk, FileStore, ForeignPlan, Plan, Task
from tests.plans.agent.conftest import PACE, make_desk
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk, serving


def make_plan(task: Task, customer: str = "77") -> Plan:
    return task.dry_run("address.update", {"customer_id": customer})


def refuse(task: Task, plan: Plan) -> None:
    for act in (task.commit, task.wait, task.abandon):
        with pytest.raises(ForeignPlan):
            act(plan)


def test_a_plan_of_another_task_is_not_committed(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, desk.task("t2") as other:
        plan = make_plan(task)
        refuse(other, plan)
        assert server.at("commit") == []
        assert isinstance(task.commit(plan), Committed)


def test_a_plan_of_another_store_agent_or_desk_is_not_committed(
    desk: Desk, server: ScriptedDesk, base_url: str, folder: Path, tmp_path: Path
) -> None:
    store = FileStore(folder)
    with desk.task("t1") as task, serving(ScriptedDesk()) as elsewhere:
        plan = make_plan(task)
        for other in (
            make_desk(server, base_url, tmp_path / "other"),
            Desk(base_url, API_KEY, agent="another", store=store, pace=PACE),
            Desk(elsewhere, API_KEY, agent="refund-bot", store=store, pace=PACE),
        ):
            with other, other.task("t1") as foreign:
                refuse(foreign, plan)
                assert foreign.plans() == []
    assert server.at("commit") == []


def test_a_plan_that_was_changed_is_not_committed(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        with pytest.raises(AttributeError):
            plan.plan_id = "plan_2"  # type: ignore[misc]
        for changes in ({"inputs_json": "{}"}, {"input_fingerprint": "sha256:x"}, {"plan_id": "plan_9"}):
            refuse(task, dataclasses.replace(plan, **changes))  # type: ignore[arg-type]
        assert server.at("commit") == []


def test_no_call_takes_inputs_a_key_or_a_token_with_a_commit() -> None:
    assert list(inspect.signature(Task.commit).parameters) == ["self", "plan"]
    assert list(inspect.signature(Task.wait).parameters) == ["self", "plan", "timeout"]
    names = {name for _, call in inspect.getmembers(Task, callable) for name in _parameters(call)}
    assert not {name for name in names if "key" in name or "token" in name or "fingerprint" in name}


def _parameters(call: object) -> list[str]:
    try:
        return list(inspect.signature(call).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []


@pytest.mark.parametrize("task_id", ["", "a b", "../x", "-x", "x" * 129, "caf\u00e9"])
def test_a_task_id_that_is_no_identifier_is_refused(desk: Desk, task_id: str) -> None:
    with pytest.raises(ValueError, match="task id"):
        desk.task(task_id)


def test_many_threads_plan_and_commit_in_one_task(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: task.commit(make_plan(task, str(n))), range(24)))
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert len(set(server.applied)) == len(server.applied) == 24


def _commit_in_child(desk: Desk, task: Task, number: int) -> None:
    outcome = task.commit(make_plan(task, f"c{number}"))
    os._exit(0 if isinstance(outcome, Committed) else 1)


def test_forked_children_use_the_store_and_connections_of_their_own(desk: Desk, server: ScriptedDesk) -> None:
    fork = multiprocessing.get_context("fork")
    with desk.task("t1") as task:
        task.commit(make_plan(task))  # so that there is a connection to inherit
        children = [fork.Process(target=_commit_in_child, args=(desk, task, number)) for number in range(3)]
        for child in children:
            child.start()
        task.commit(make_plan(task, "parent"))
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        assert [state for _, state in task.plans()] == ["committed"] * 5
    assert len(server.applied) == 5
