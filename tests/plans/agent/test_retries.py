"""One key per plan: every retry carries it, and what is not known is found out, never planned anew."""

import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest

from plans.agent import (
    Committed,
    Desk,
    DeskError,
    DeskUnavailable,
    Expired,
    Pace,
    Plan,
    PlanInFlight,
    PlanRefused,
    Task,
    Unavailable,
    Unknown,
)
from tests.plans.agent.conftest import PACE, make_desk
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, drop, drop_after, problem, serving


def make_plan(task: Task, customer: str = "77") -> Plan:
    return task.dry_run("address.update", {"customer_id": customer, "address": "2 Harbour Street"})


def keys(server: ScriptedDesk) -> set[str]:
    return {heard.headers["idempotency-key"] for heard in server.at("commit")}


LOST = {
    "applied, then the answer is lost": [drop_after()],
    "lost before it was read": [drop()],
    "cut short": [Step(is_cut=True)],
    "a proxy's 502": [Step(status=502, raw=b"<html>", headers={"Content-Type": "text/html"})],
    "a proxy's 503": [Step(status=503, raw=b"<html>", headers={"Content-Type": "text/html"})],
    "busy": [problem(503, "unavailable"), problem(429, "too-many")],
    "lost, then busy": [drop_after(), problem(503, "unavailable")],
}


@pytest.mark.parametrize("steps", LOST.values(), ids=LOST.keys())
def test_i59_every_retry_carries_the_one_key_and_it_is_applied_once(
    desk: Desk, server: ScriptedDesk, steps: list[Step]
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", *steps)
        assert isinstance(task.commit(plan), Committed)
    assert server.applied == [plan.plan_id]
    assert keys(server) == {plan.idempotency_key}
    assert len(server.at("dry-run")) == 1


def test_a_timeout_is_retried_with_the_same_key(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    pace = Pace(patience=5, attempt=0.3, first_delay=0.01)
    with make_desk(server, base_url, folder, pace) as desk, desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", Step(delay=1.0, is_applied=True))
        outcome = task.commit(plan)
        assert isinstance(outcome, Committed)
    assert server.applied == [plan.plan_id]
    assert keys(server) == {plan.idempotency_key}


def test_when_no_attempt_tells_the_state_by_plan_id_does(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", drop_after(), *[drop()] * 500)
        assert isinstance(task.commit(plan), Committed)
    assert server.applied == [plan.plan_id]
    assert len(keys(server)) == 1


@pytest.mark.slow
def test_an_outcome_nobody_can_tell_is_unknown_and_found_out_later_with_the_same_key(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", *[drop()] * 500)
        server.next("state", *[drop()] * 500)
        assert task.commit(plan) == Unknown(plan.plan_id, plan.review_url)
        server.script.clear()
        assert task.wait(plan, timeout=0) == Unknown(plan.plan_id, plan.review_url)
        assert isinstance(task.commit(plan), Committed)
    assert keys(server) == {plan.idempotency_key}


@pytest.mark.slow
def test_nothing_is_planned_anew_while_the_outcome_is_unknown(desk: Desk, server: ScriptedDesk) -> None:
    server.needs_approval = set()
    with desk.task("t1") as task:
        plan = task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent="refund:t1")
        server.next("commit", *[drop()] * 500)
        server.next("state", *[drop()] * 500)
        assert isinstance(task.commit(plan), Unknown)
        server.script.clear()
        for inputs, intent, replaces in (
            ({"invoice_id": "4412", "amount_cents": 28000}, "refund:t1", None),
            ({"invoice_id": "4412", "amount_cents": 28000}, None, None),
            ({"invoice_id": "4412", "amount_cents": 28000}, "refund:other", plan),
        ):
            with pytest.raises(PlanInFlight) as caught:
                task.dry_run("refund", inputs, intent=intent, replaces=replaces)
            assert caught.value.plan_id == plan.plan_id
        same = task.dry_run("refund", {"amount_cents": 48000, "invoice_id": "4412"}, intent="refund:t1")
        assert same == plan
        assert len(server.at("dry-run")) == 1
        server.approve(plan.plan_id)
        assert isinstance(task.commit(plan), Committed)


def test_a_refused_connection_sent_nothing_and_is_unavailable(server: ScriptedDesk, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(server) as base_url:
        desk = make_desk(server, base_url, folder)
        task = desk.task("t1")
        plan = make_plan(task)
        desk._line.http.base_url = f"http://127.0.0.1:{port}"
        assert task.commit(plan) == Unavailable(plan.plan_id)
        assert task.plans() == [(plan, "pending")]
        desk._line.http.base_url = base_url
        assert isinstance(task.commit(plan), Committed)
        task.end()
        desk.close()


def test_a_401_after_a_lost_attempt_may_have_written(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", drop_after(), problem(401, "unauthenticated"))
        with pytest.raises(DeskError) as caught:
            task.commit(plan)
        assert caught.value.plan_write == "possible"
        assert isinstance(task.commit(plan), Committed)
    assert server.applied == [plan.plan_id]


@pytest.mark.slow
def test_retry_after_is_kept_to_and_delays_grow(server: ScriptedDesk, base_url: str, folder: Path) -> None:
    pace = Pace(patience=5, attempt=2, first_delay=0.1, longest_delay=2)
    busy = problem(503, "unavailable")
    busy.headers = {"Retry-After": "1"}
    with make_desk(server, base_url, folder, pace) as desk, desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", busy, drop(), drop())
        assert isinstance(task.commit(plan), Committed)
    times = [heard.at for heard in server.at("commit")]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= 1.0
    assert gaps[2] > gaps[1] > 0.1


def test_a_retry_after_beyond_the_limit_ends_the_trying_at_once(desk: Desk, server: ScriptedDesk) -> None:
    busy = problem(503, "unavailable")
    busy.headers = {"Retry-After": "600"}
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", busy)
        started = time.monotonic()
        assert task.commit(plan) == Unavailable(plan.plan_id)
        assert time.monotonic() - started < PACE.patience


def test_nothing_is_retried_past_the_expiry_and_the_state_is_asked_instead(
    server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with make_desk(server, base_url, folder) as desk, desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", Step(is_dropped=True, then=lambda: setattr(server, "clock_ahead", server.lifetime)))
        server.next("state", Step())
        outcome = task.commit(plan)
        # One attempt, before the expiry was known to have come; the desk's clock was learnt only afterwards.
        assert isinstance(outcome, Committed | Unknown)
        assert len(keys(server)) == 1


def test_a_dry_run_is_retried_and_its_refusal_is_raised(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        server.next("dry-run", drop(), problem(503, "unavailable"))
        plan = make_plan(task)
        assert plan.plan_id == "plan_1"
        server.next("dry-run", problem(422, "cannot-plan", next="stop"))
        with pytest.raises(PlanRefused) as caught:
            make_plan(task, "78")
        assert (caught.value.slug, caught.value.next, caught.value.plan_write) == ("cannot-plan", "stop", "none")
        server.next("dry-run", *[problem(503, "unavailable")] * 500)
        with pytest.raises(DeskUnavailable):
            make_plan(task, "78")


def test_a_hosted_answer_without_the_members_of_a_plan_is_raised(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        server.next("dry-run", Step(status=201, members={"plan_id": "plan_1", "state": "committed"}))
        with pytest.raises(Exception, match="no dry run"):
            make_plan(task)
        assert task.plans() == []


def test_expired_is_not_sent(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.clock_ahead = server.lifetime
        task.dry_run("refund", {"invoice_id": "1"})  # any answer tells the desk's time
        assert task.commit(plan) == Expired(plan.plan_id, plan.expires_at)
        assert server.at("commit") == []


def test_an_attempt_that_sent_nothing_does_not_clear_another_process_of_its_own(
    desk: Desk, server: ScriptedDesk, base_url: str, folder: Path
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        here = task._line.ledger
        elsewhere = make_desk(server, base_url, folder).task("t1")._line.ledger
        for first, second in ((here, elsewhere), (elsewhere, here)):
            assert first.begin_attempt(plan)
            assert second.begin_attempt(plan)
            second.note_unsent(plan)
            assert first.get_plan(plan).may_be_written, "the first is still under way, or died so"
            first.note_unsent(plan)
            assert not first.get_plan(plan).may_be_written
