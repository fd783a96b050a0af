"""Every row of the commit table (CONTRACT 5.2), and every state (5.3), is one outcome."""

from datetime import UTC, datetime
from typing import Any

import pytest

from plans.agent import (
    Abandoned,
    Change,
    Committed,
    Conflict,
    Desk,
    DeskError,
    Expired,
    Outcome,
    Plan,
    Refused,
    Rejected,
    Task,
    Unavailable,
    Unknown,
    Waiting,
)
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, problem

CHANGED = [{"target": "invoice/4412", "field": "refunded_cents", "planned": 0, "current": 20000}]
MOVED = Change("invoice/4412", "refunded_cents", 0, 20000)
AT = datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)


def make_plan(task: Task) -> Plan:
    return task.dry_run("address.update", {"customer_id": "77", "address": "2 Harbour Street"})


def test_a_plan_nobody_has_to_approve_is_committed_with_its_result(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        assert task.commit(plan) == Committed(plan.plan_id, {"customer_id": "77"}, replayed=False)
    assert server.applied == [plan.plan_id]


def test_a_replayed_answer_is_committed_and_says_so(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        members = {"plan_id": plan.plan_id, "state": "committed", "committed_at": "2026-03-14T09:31:12Z", "result": 1}
        server.next("commit", Step(status=200, members=members, headers={"Idempotent-Replayed": "true"}))
        assert task.commit(plan) == Committed(plan.plan_id, 1, replayed=True)


def test_committing_a_committed_plan_again_asks_nobody_and_is_a_replay(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        task.commit(plan)
        before = len(server.heard)
        assert task.commit(plan) == Committed(plan.plan_id, {"customer_id": "77"}, replayed=True)
        assert len(server.heard) == before


ROWS: list[tuple[str, Step, Any]] = [
    (
        "conflict",
        problem(409, "conflict", plan_created_at="2026-03-14T09:31:12Z", changed=CHANGED),
        lambda p: Conflict(p, (MOVED,), AT),
    ),
    ("expired", problem(410, "expired", expired_at="2026-03-14T09:31:12Z"), lambda p: Expired(p, AT)),
    ("abandoned", problem(410, "abandoned", reason="superseded"), lambda p: Abandoned(p, "superseded")),
    ("refused", problem(422, "refused"), lambda p: Refused(p, "about refused")),
    ("rejected", problem(403, "rejected", reason="wrong invoice"), lambda p: Rejected(p, "wrong invoice")),
    (
        "approval required",
        problem(403, "approval-required", review_url="https://desk.example/p/"),
        lambda p: Waiting(p, "https://desk.example/p/", "approval"),
    ),
]


@pytest.mark.parametrize(("step", "outcome"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_refusal_of_a_commit_is_one_outcome(desk: Desk, server: ScriptedDesk, step: Step, outcome: Any) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", step)
        assert task.commit(plan) == outcome(plan.plan_id)
        assert len(server.at("commit")) == 1


def test_fenced_waits_on_the_state_and_is_committed_when_the_fence_is_gone(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", problem(423, "fenced"), problem(423, "fenced"))
        assert isinstance(task.commit(plan), Committed)
    first, second, third = server.at("commit")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert [heard.path for heard in server.heard].count(f"/api/v1/plans/{plan.plan_id}") == 2


def test_a_fence_that_stays_is_waiting(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", *[problem(423, "fenced")] * 200)
        assert task.commit(plan) == Waiting(plan.plan_id, plan.review_url, "fenced")


def test_being_committed_is_followed_to_its_end(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        accepted = Step(status=202, members={"plan_id": plan.plan_id, "state": "committing"})
        accepted.then = lambda: server.set_state(plan.plan_id, "committing")
        server.next("commit", accepted)
        server.next("state", Step(), Step(then=lambda: server.approve(plan.plan_id)))
        assert task.commit(plan) == Committed(plan.plan_id, {"customer_id": "77"})
        assert len(server.at("commit")) == 1


def test_being_committed_for_too_long_is_waiting(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.set_state(plan.plan_id, "committing")
        server.next("commit", Step(status=202, members={"plan_id": plan.plan_id, "state": "committing"}))
        assert task.commit(plan) == Waiting(plan.plan_id, plan.review_url, "committing")


def test_an_unknown_outcome_is_polled_and_stays_unknown(desk: Desk, server: ScriptedDesk) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.set_state(plan.plan_id, "unknown")
        server.next("commit", problem(504, "outcome-unknown"))
        assert task.commit(plan) == Unknown(plan.plan_id, plan.review_url)
        assert len(server.at("commit")) == 1
        server.approve(plan.plan_id)
        assert task.wait(plan, timeout=2) == Committed(plan.plan_id, {"customer_id": "77"})


def test_nothing_sent_for_too_long_is_unavailable_and_leaves_the_plan_as_it_was(
    desk: Desk, server: ScriptedDesk
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", *[problem(503, "unavailable")] * 200)
        assert task.commit(plan) == Unavailable(plan.plan_id)
        assert task.plans() == [(plan, "pending")]
        server.script.clear()
        assert isinstance(task.commit(plan), Committed)
    assert len({heard.headers["idempotency-key"] for heard in server.at("commit")}) == 1


BUGS = [
    problem(404, "never-planned"),
    problem(428, "fingerprint-required"),
    problem(412, "fingerprint-mismatch"),
    problem(400, "key-required"),
    problem(400, "key-invalid"),
    problem(422, "key-reused", bound_plan_id="plan_9"),
    problem(422, "invalid"),
    problem(401, "unauthenticated"),
    problem(403, "agent-paused"),
    problem(409, "something-else"),
    problem(410, "something-else"),
]


@pytest.mark.parametrize("step", BUGS, ids=lambda step: f"{step.status}-{step.members['title']}")
def test_every_other_4xx_is_raised_once_and_wrote_nothing(desk: Desk, server: ScriptedDesk, step: Step) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", step)
        with pytest.raises(DeskError) as caught:
            task.commit(plan)
        assert (caught.value.status, caught.value.slug) == (step.status, (step.members or {})["title"])
        assert caught.value.plan_write == "none"
        assert len(server.at("commit")) == 1
        assert task.plans() == [(plan, "pending")]


@pytest.mark.parametrize(
    "step",
    [
        Step(status=302, headers={"Location": "https://elsewhere.example/"}),
        Step(status=200, raw=b"<html>ok</html>", headers={"Content-Type": "text/html"}),
        Step(status=200, members={"plan_id": "plan_other", "state": "committed", "result": 1}),
        Step(status=204, raw=b""),
    ],
    ids=["redirect", "html", "another plan", "no content"],
)
def test_an_answer_outside_the_contract_is_raised_and_may_have_written(
    desk: Desk, server: ScriptedDesk, step: Step
) -> None:
    with desk.task("t1") as task:
        plan = make_plan(task)
        server.next("commit", step)
        with pytest.raises(DeskError) as caught:
            task.commit(plan)
        assert caught.value.plan_write == "possible"
        assert isinstance(task.commit(plan), Committed)
    assert len({heard.headers["idempotency-key"] for heard in server.at("commit")}) == 1


STATES: list[tuple[str, dict[str, Any], Any]] = [
    ("committed", {"result": {"id": 9}}, lambda p: Committed(p.plan_id, {"id": 9})),
    (
        "conflicted",
        {"conflict": {"changed": CHANGED, "plan_created_at": "2026-03-14T09:31:12Z"}},
        lambda p: Conflict(p.plan_id, (MOVED,), AT),
    ),
    ("rejected", {"rejection": {"reason": "no"}}, lambda p: Rejected(p.plan_id, "no")),
    ("refused", {"refusal": {"reason": "plan-mismatch"}}, lambda p: Refused(p.plan_id, "plan-mismatch")),
    ("abandoned", {"abandonment": {"reason": "withdrawn"}}, lambda p: Abandoned(p.plan_id, "withdrawn")),
    ("abandoned", {"abandonment": {"reason": "expired"}}, lambda p: Expired(p.plan_id, p.expires_at)),
    ("committing", {}, lambda p: Waiting(p.plan_id, p.review_url, "committing")),
    ("unknown", {}, lambda p: Unknown(p.plan_id, p.review_url)),
    ("pending", {}, lambda p: Waiting(p.plan_id, p.review_url, "approval")),
]


@pytest.mark.parametrize(("state", "members", "outcome"), STATES)
def test_each_state_of_a_plan_people_decide_is_one_outcome(
    desk: Desk, server: ScriptedDesk, state: str, members: dict[str, Any], outcome: Any
) -> None:
    with desk.task("t1") as task:
        plan = task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 48000}, intent="refund:t1")
        server.set_state(plan.plan_id, state, **members)
        found: Outcome = task.commit(plan)
        assert found == outcome(plan)
        assert task.wait(plan, timeout=0) == found or isinstance(found, Committed)
        assert server.at("commit") == []


def test_outcomes_are_frozen_and_made_for_match() -> None:
    outcome = Conflict("plan_1", (MOVED,), None)
    with pytest.raises(AttributeError):
        outcome.plan_id = "plan_2"  # type: ignore[misc]
    match outcome:
        case Conflict(plan_id, (Change(target, field),)):
            assert (plan_id, target, field) == ("plan_1", "invoice/4412", "refunded_cents")
