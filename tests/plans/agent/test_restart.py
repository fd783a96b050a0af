"""A process may be killed at any point: the next one finds its plans and their keys, and does nothing twice."""

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import IO

import pytest

from plans.agent import Abandoned, Committed, Conflict, Desk, Expired, Plan, Task, Unknown, Waiting
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk, drop_after, instant

ROOT = Path(__file__).parents[3]


def start(server: ScriptedDesk, base_url: str, folder: Path, how: str) -> "subprocess.Popen[str]":
    expires_at = instant(server.now() + timedelta(minutes=5))
    command = [sys.executable, "-m", "tests.plans.agent.restarted_agent", base_url, API_KEY, server.secret.reveal()]
    return subprocess.Popen([*command, str(folder), how, expires_at], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> list[str]:
    out: IO[str] | None = process.stdout
    assert out is not None
    line: list[str] = json.loads(out.readline())
    return line


@pytest.mark.parametrize("ways", [("hosted", "hosted"), ("remote1", "remote2")], ids=["hosted", "fed"])
def test_r16_an_agent_killed_while_it_waits_finds_its_plan_and_key_and_there_is_one_plan(
    server: ScriptedDesk, base_url: str, folder: Path, ways: tuple[str, str]
) -> None:
    with start(server, base_url, folder, ways[0]) as first:
        made = said(first)
        first.send_signal(signal.SIGKILL)
    assert server.ended_tasks == []
    with start(server, base_url, folder, ways[1]) as second:
        assert said(second) == made
        server.approve(made[0])
        assert said(second) == ["Committed", made[0]]
    assert second.returncode == 0
    assert list(server.plans) == [made[0]]
    assert server.applied == [made[0]]
    assert server.ended_tasks == ["ticket-9913"]


def refund(task: Task, cents: int = 48000) -> Plan:
    return task.dry_run("refund", {"invoice_id": "4412", "amount_cents": cents}, intent=f"refund:{task.task_id}")


def move(task: Task, address: str = "2 Harbour Street") -> Plan:
    return task.dry_run("address.update", {"customer_id": "77", "address": address})


@pytest.fixture
def again(server: ScriptedDesk, base_url: str, folder: Path) -> Desk:
    """The desk of a second run."""
    return make_desk(server, base_url, folder)


def test_r16_a_plan_committed_while_the_agent_was_away_is_told_once_and_not_done_again(
    desk: Desk, again: Desk, server: ScriptedDesk
) -> None:
    plan = refund(desk.task("t1"))
    server.approve(plan.plan_id)
    with again.task("t1") as task:
        assert refund(task) == plan
        assert task.commit(plan) == Committed(plan.plan_id, {"customer_id": "77"})
        assert refund(task) == plan
    assert len(server.plans) == 1


def test_r16_a_run_that_starts_anew_goes_through_its_committed_steps_without_repeating_them(
    desk: Desk, again: Desk, server: ScriptedDesk
) -> None:
    before = desk.task("t1")
    there, back = move(before, "there"), None
    before.commit(there)
    back = move(before, "back")
    before.commit(back)
    there_again = move(before, "there")
    before.commit(there_again)
    assert len(server.applied) == 3
    with again.task("t1") as task:
        steps = [move(task, "there"), move(task, "back"), move(task, "there")]
        assert [plan.plan_id for plan in steps] == [there.plan_id, back.plan_id, there_again.plan_id]
        assert [type(task.commit(plan)) for plan in steps] == [Committed] * 3
        assert len(server.applied) == 3
        new = move(task, "back")
        assert new.plan_id not in {plan.plan_id for plan in steps}


def test_r16_an_attempt_that_was_killed_before_its_answer_is_finished_with_the_same_key(
    desk: Desk, again: Desk, server: ScriptedDesk
) -> None:
    first = desk.task("t1")
    plan = move(first)
    assert desk._line.ledger.begin_attempt(plan)  # and here the process is killed
    with again.task("t1") as task:
        found = move(task)
        assert found == plan
        server.next("commit", drop_after())
        assert isinstance(task.commit(found), Committed)
    assert {heard.headers["idempotency-key"] for heard in server.at("commit")} == {plan.idempotency_key}
    assert server.applied == [plan.plan_id]


def test_a_killed_attempt_on_a_plan_whose_time_is_over_is_asked_about_and_never_sent(
    desk: Desk, again: Desk, server: ScriptedDesk
) -> None:
    plan = move(desk.task("t1"))
    desk._line.ledger.begin_attempt(plan)
    server.clock_ahead = server.lifetime
    with again.task("t1") as task:
        assert move(task) == plan  # not a new one: the attempt may have arrived
        assert task.commit(plan) == Unknown(plan.plan_id, plan.review_url)
        server.set_state(plan.plan_id, "abandoned", abandonment={"reason": "expired"})
        assert task.commit(plan) == Expired(plan.plan_id, plan.expires_at)
        assert move(task).plan_id != plan.plan_id
    assert server.at("commit") == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_plan_from_the_list_is_held_against_the_desks_clock_not_this_hosts(
    desk: Desk, again: Desk, server: ScriptedDesk, folder: Path, hours: int
) -> None:
    server.clock_ahead = timedelta(hours=hours)
    move(desk.task("t1"))
    desk.task("t2").dry_run("address.update", {"customer_id": "78"})
    with again.task("t1") as task:
        assert isinstance(task.commit(task.plans()[0].plan), Committed)
    server.clock_ahead += server.lifetime
    with make_desk(server, again._line.http.base_url, folder) as later, later.task("t2") as task:
        plan = task.plans()[0].plan
        assert task.commit(plan) == Expired(plan.plan_id, plan.expires_at)
    assert len(server.at("commit")) == 1


@pytest.mark.parametrize(
    ("state", "members", "kind"),
    [
        ("abandoned", {"abandonment": {"reason": "expired"}}, Expired),
        ("abandoned", {"abandonment": {"reason": "superseded"}}, Abandoned),
        ("conflicted", {"conflict": {"changed": []}}, Conflict),
    ],
)
def test_o90_a_plan_that_ended_at_the_desk_is_not_used_again(
    desk: Desk, again: Desk, server: ScriptedDesk, state: str, members: dict[str, object], kind: type
) -> None:
    plan = refund(desk.task("t1"))
    server.set_state(plan.plan_id, state, **members)
    with again.task("t1") as task:
        new = refund(task)
        assert new.plan_id != plan.plan_id
        assert isinstance(task.commit(plan), kind)
        assert isinstance(task.commit(new), Waiting)
    assert server.at("commit") == []


def test_a_pending_plan_is_found_by_the_same_request_whatever_the_order_of_its_members(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = refund(task)
        assert task.dry_run("refund", {"amount_cents": 48000, "invoice_id": "4412"}, intent="refund:t1") == plan
        assert len(server.at("dry-run")) == 1
        for other in ({"invoice_id": "4412", "amount_cents": "48000"}, {"invoice_id": "4412", "amount_cents": 48000.0}):
            plan = task.dry_run("refund", other, intent="refund:t1")
        assert len(server.at("dry-run")) == 3


def test_plans_of_earlier_runs_are_listed(desk: Desk, again: Desk, server: ScriptedDesk) -> None:
    first = desk.task("t1")
    committed, pending = move(first), refund(first)
    first.commit(committed)
    assert again.task("t1").plans() == [(committed, "committed"), (pending, "pending")]
    assert again.task("t2").plans() == []
