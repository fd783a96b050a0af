"""Plans of remote targets: fed signed, once, and only if the target's answer was that of a dry run."""

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from plans.agent import (
    AgentError,
    Committed,
    Desk,
    DeskUnavailable,
    FileStore,
    NotADryRun,
    Pace,
    Plan,
    PlanRefused,
    Task,
    Waiting,
)
from tests.plans.agent.conftest import PACE, make_desk
from tests.plans.agent.scripted_desk import AGENT, API_KEY, ScriptedDesk, Step, drop, drop_after, instant, problem

INPUTS = {"invoice_id": "4412", "amount_cents": 48000}
TOKEN = "pt_9c0e_remote_token"


def make_answer(server: ScriptedDesk, plan_id: str = "plan_8f21c", **changes: Any) -> dict[str, Any]:
    answer = {
        "plan_id": plan_id,
        "plan_token": f"{TOKEN}_{plan_id}",
        "expires_at": instant(server.now() + timedelta(minutes=5)),
        "input_fingerprint": "sha256:6b1f",
        "actions": [{"op": "update", "target": "invoice/4412", "field": "refunded_cents", "from": 0, "to": 48000}],
    }
    return {name: value for name, value in {**answer, **changes}.items() if value is not None}


def submit(task: Task, answer: Any, intent: str | None = "refund:t1", **more: Any) -> Plan:
    return task.submit("billing-remote", "refund", INPUTS, answer, intent=intent, **more)


@pytest.mark.filterwarnings("ignore::plans.agent.errors.UntoldWarning")  # the script ends before the task does
@pytest.mark.parametrize("state", [[], ["pending"], {}, 7, True, None, "", "odd"])
def test_a_state_that_is_none_is_not_taken_for_one(desk: Desk, server: ScriptedDesk, state: Any) -> None:
    with desk.task("t1") as task:
        server.next("feed", Step(201, {"plan_id": "plan_8f21c", "state": state}))
        plan = submit(task, make_answer(server))
        assert [(known.plan, known.state) for known in task.plans()] == [(plan, "pending")]


def test_a_plan_is_fed_as_the_target_answered_it_with_what_the_agent_read(desk: Desk, server: ScriptedDesk) -> None:
    text = json.dumps(make_answer(server)).replace('"from": 0', '"from": 1.10')
    with desk.task("t1") as task:
        task.read("shipping.lookup", "delivery exception", url="https://carrier.example/track/77")
        plan = submit(task, text, summary="Refund 480.00 USD", replaces="plan_77aa0")
        assert isinstance(task.commit(plan), Waiting)
    heard = server.at("feed")[0]
    data = heard.json["data"]
    assert heard.path == f"/webhooks/{AGENT}"
    assert "authorization" not in heard.headers
    assert b'"from": 1.10' in heard.body
    assert (heard.json["type"], data["task_id"], data["target"]) == ("plan.created", "t1", "billing-remote")
    assert (data["inputs"], data["intent"], data["replaces"]) == (INPUTS, "refund:t1", "plan_77aa0")
    assert data["evidence"] == [
        {"tool": "shipping.lookup", "note": "delivery exception", "url": "https://carrier.example/track/77"}
    ]
    assert (plan.plan_id, plan.idempotency_key) == ("plan_8f21c", "key_plan_8f21c")
    assert plan.review_url == "https://desk.example/plans/plan_8f21c/"


def test_a_fed_plan_commits_at_the_desk_when_people_approve(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = submit(task, make_answer(server))
        assert isinstance(task.commit(plan), Waiting)
        assert isinstance(task.commit(plan), Waiting)
        assert len(server.at("commit")) == 1  # only to learn that people decide
        server.approve(plan.plan_id)
        assert isinstance(task.wait(plan, timeout=5), Committed)


def test_a_fed_plan_nobody_has_to_approve_is_committed_through_the_desk(desk: Desk, server: ScriptedDesk) -> None:
    server.needs_approval = set()
    with desk.task("t1") as task:
        plan = submit(task, make_answer(server))
        server.next("commit", drop_after())
        assert isinstance(task.commit(plan), Committed)
    first, second = server.at("commit")
    assert first.path == f"/api/v1/plans/{plan.plan_id}/commit"
    assert first.query == {"target": "billing-remote"}
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == plan.idempotency_key


NOT_DRY = {
    "applied at once": {"refund_id": "re_1", "status": "succeeded"},
    "no token": {"plan_token": None},
    "no actions member": {"actions": None},
    "no actions": {"actions": []},
    "actions that are none": {"actions": [{"id": 7}]},
    "no expiry": {"expires_at": None},
    "an expiry without an offset": {"expires_at": "2031-05-01T10:00:00"},
    "a time of making that is none": {"created_at": "0"},
    "no fingerprint": {"input_fingerprint": None},
    "a blank fingerprint": {"input_fingerprint": " "},
    "a blank token": {"plan_token": ""},
    "an odd plan id": {"plan_id": "../x"},
    "committed already": {"state": "committed"},
    "says it was no dry run": {"dry_run": False},
}


@pytest.mark.parametrize("changes", NOT_DRY.values(), ids=NOT_DRY.keys())
@pytest.mark.parametrize("is_nested", [False, True], ids=["flat", "nested"])
def test_r20_an_answer_without_the_marks_of_a_dry_run_is_raised_and_nothing_is_submitted(
    desk: Desk, server: ScriptedDesk, changes: dict[str, Any], *, is_nested: bool
) -> None:
    answer = changes if "refund_id" in changes else make_answer(server, **changes)
    with desk.task("t1") as task:
        with pytest.raises(NotADryRun) as caught:
            submit(task, {"plan": answer} if is_nested else json.dumps(answer))
        assert TOKEN not in str(caught.value)
        assert server.heard == []
        assert task.plans() == []


@pytest.mark.parametrize("answer", ["", "<html>", "[]", '"x"', b"\xff", "null"])
def test_r20_an_answer_that_is_no_json_object_is_raised(desk: Desk, server: ScriptedDesk, answer: str | bytes) -> None:
    with desk.task("t1") as task, pytest.raises(NotADryRun):
        submit(task, answer)
    assert server.at("feed") == []


@pytest.mark.slow
def test_w75_each_retry_has_a_fresh_timestamp_and_signature_and_the_same_id_and_bytes(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    pace = Pace(patience=8, attempt=2, first_delay=1.1, longest_delay=1.1)
    with make_desk(server, base_url, folder, pace) as desk, desk.task("t1") as task:
        server.next("feed", problem(503, "unavailable"), drop(), drop_after())
        plan = submit(task, make_answer(server))
    heard = server.at("feed")
    assert len(heard) == 4
    assert len({one.headers["webhook-id"] for one in heard}) == 1
    assert len({one.body for one in heard}) == 1
    assert len({one.headers["webhook-signature"] for one in heard}) >= 3
    times = [int(one.headers["webhook-timestamp"]) for one in heard]
    assert times == sorted(times)
    assert times[-1] - times[0] >= 2
    assert abs(times[-1] - time.time()) < 5
    assert list(server.plans) == [plan.plan_id]


def test_w75_a_desk_that_is_down_longer_gets_the_same_delivery_from_the_next_call_or_run(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with make_desk(server, base_url, folder) as desk:
        task = desk.task("t1")
        server.next("feed", *[problem(503, "unavailable")] * 500)
        with pytest.raises(DeskUnavailable):
            submit(task, make_answer(server))
        assert [state for _, state in task.plans()] == ["feeding"]
    server.script.clear()
    server.clock_ahead = timedelta(minutes=4)
    with make_desk(server, base_url, folder) as desk, desk.task("t1") as task:
        plan = submit(task, make_answer(server, "plan_other"))
        assert plan.plan_id == "plan_8f21c"
    assert len({one.headers["webhook-id"] for one in server.at("feed")}) == 1
    assert len({one.body for one in server.at("feed")}) == 1


def test_a_desk_whose_clock_is_away_gets_a_timestamp_of_its_own(desk: Desk, server: ScriptedDesk) -> None:
    server.clock_ahead = timedelta(hours=2)
    with desk.task("t1") as task:
        # The first try is stamped by the host's clock and refused; the answer tells the desk's.
        plan = submit(task, make_answer(server))
        assert plan.plan_id in server.plans


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_final_no_is_raised_at_once_and_the_plan_is_forgotten(desk: Desk, server: ScriptedDesk, status: int) -> None:
    with desk.task("t1") as task:
        server.next("feed", problem(status, "intent-taken"))
        with pytest.raises(PlanRefused) as caught:
            submit(task, make_answer(server))
        assert (caught.value.slug, caught.value.plan_write) == ("intent-taken", "none")
        assert (len(server.at("feed")), task.plans()) == (1, [])


@pytest.mark.parametrize("status", [401, 404])
def test_a_no_that_may_change_is_tried_a_few_times(desk: Desk, server: ScriptedDesk, status: int) -> None:
    with desk.task("t1") as task:
        server.next("feed", *[problem(status, "unknown-target")] * 2)
        assert submit(task, make_answer(server)).plan_id in server.plans
        server.next("feed", *[problem(status, "unknown-target")] * 50)
        with pytest.raises(PlanRefused):
            submit(task, make_answer(server, "plan_2"), intent="refund:other")
        assert len(server.at("feed")) == 6


def test_the_token_may_stand_nowhere_else(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        with pytest.raises(AgentError) as caught:
            submit(task, make_answer(server), summary=f"with {TOKEN}_plan_8f21c inside")
        assert TOKEN not in str(caught.value)
        assert (server.at("feed"), task.plans()) == ([], [])


def test_feeding_without_a_webhook_secret_is_refused(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    with Desk(base_url, API_KEY, agent=AGENT, store=FileStore(folder), pace=PACE) as desk, desk.task("t1") as task:
        with pytest.raises(AgentError, match="webhook_secret"):
            submit(task, make_answer(server))
        assert task.plans() == []


def test_a_plan_that_is_known_to_have_been_fed_before_its_answer_was_lost_is_one_plan(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        server.next("feed", drop_after(), Step())
        plan = submit(task, make_answer(server))
        assert plan == submit(task, make_answer(server, "plan_2"))
        assert list(server.plans) == [plan.plan_id]
