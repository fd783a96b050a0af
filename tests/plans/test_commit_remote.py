"""Approving a remote plan: every answer of a target, and what the desk then says and does."""

import pytest

from plans import clock, schema
from plans.errors import DecisionRefused
from plans.models import Approval, Fence, Plan
from plans.review import approve_plan
from plans.states import State
from tests.makers import SOON, events_of, feed_data, make_agent, make_person, make_plan, make_target, receive, reread
from tests.racing import wait_until
from tests.stub_behaviour import (
    Answer,
    Commit,
    DropAfterApplying,
    DropAfterReading,
    DropBeforeReading,
    conflict,
    in_progress,
    problem,
)
from tests.stub_target import StubTarget, refusing_url

pytestmark = pytest.mark.usefixtures("database")


def approve(plan: Plan, person=None) -> Plan:
    person = person or make_person("reviewer")
    return approve_plan(plan_pk=plan.pk, person=person, seen_digest=schema.shown_digest(reread(plan)))


def plan_at(stub: StubTarget, **data) -> Plan:
    return make_plan(target=make_target(base_url=stub.base_url), **data)


def test_an_approval_commits_in_the_same_call_and_tells_every_step(stub_target):
    stub_target.script(Commit(result={"entry": "L-9"}))
    plan = plan_at(stub_target)
    done = approve(plan)
    assert done.state == "committed"
    assert done.token_sealed is None
    assert stub_target.applied == 1
    assert events_of(plan) == ["plan.received", "plan.approved", "commit.started", "commit.succeeded"]
    [attempt] = plan.commits.all()
    assert (attempt.outcome, attempt.result, attempt.number) == ("committed", '{"entry": "L-9"}', 1)


def test_p46_the_target_gets_token_fingerprint_and_key_byte_for_byte_and_nothing_else(stub_target):
    token = "+/=" * 1300
    plan = plan_at(stub_target, plan={"plan_token": token, "input_fingerprint": "sha256:+/= \u00e9"})
    approve(plan)
    [call] = stub_target.commits
    assert call.json == {"plan_token": token, "input_fingerprint": "sha256:+/= \u00e9"}
    assert call.key == plan.idempotency_key
    assert call.path == "/limit.update/commit"


def test_credentials_are_sent_as_a_bearer():
    with StubTarget(bearer="target-credential") as stub:
        plan = make_plan(target=make_target(base_url=stub.base_url, bearer="target-credential"))
        assert approve(plan).state == "committed"


UNKNOWN = {
    "202": Answer(202, {}),
    "206": Answer(206, {}),
    "302": Answer(302, b"", {"Location": "http://127.0.0.1:9/"}),
    "307": Answer(307, b"", {"Location": "/elsewhere"}),
    "408": problem(408),
    "425": problem(425),
    "429": problem(429),
    "500": problem(500),
    "502 HTML": Answer(502, b"<h1>Bad gateway</h1>", {"Content-Type": "text/html"}),
    "503": problem(503),
    "504": problem(504),
    "200 HTML": Answer(200, b"<h1>ok</h1>", {"Content-Type": "text/html"}),
    "200 empty": Answer(200, b""),
    "cut short": Answer(200, b'{"entry": "L-9"}', cut_after=5),
    "huge": Answer(200, b'{"a":"' + b"x" * 1_100_000 + b'"}'),
    "no answer": DropAfterReading(),
    "dropped before reading": DropBeforeReading(),
    "applied and dropped": DropAfterApplying(),
    "still running": in_progress(),
}


@pytest.mark.parametrize("behaviour", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_u86_what_proves_nothing_is_unknown_and_never_failed(stub_target, behaviour):
    stub_target.script(behaviour)
    plan = plan_at(stub_target)
    done = approve(plan)
    assert done.state == "unknown"
    assert done.token_sealed is not None
    assert done.next_check_at is not None
    assert len(stub_target.commits) <= 1
    assert events_of(plan)[-1] == "commit.unknown"
    assert Fence.objects.filter(plan=plan).exists()
    assert Approval.objects.filter(plan=plan, voided_at=None).count() == 1


NO = {
    "409 with changes": (
        conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}),
        "conflicted",
        "commit.conflicted",
    ),
    "409 without": (Answer(409, b"gone", {"Content-Type": "text/plain"}), "conflicted", "commit.conflicted"),
    "410": (problem(410, "Too late."), "abandoned", "plan.abandoned"),
    "422": (problem(422, "The account is closed."), "refused", "commit.refused"),
    "400": (problem(400), "refused", "commit.refused"),
    "401": (problem(401), "refused", "commit.refused"),
    "404": (problem(404), "refused", "commit.refused"),
}


@pytest.mark.parametrize(("behaviour", "state", "event"), NO.values(), ids=NO.keys())
def test_a_first_no_ends_the_plan_and_nothing_was_written(stub_target, behaviour, state, event):
    stub_target.script(behaviour)
    plan = plan_at(stub_target)
    done = approve(plan)
    assert done.state == state
    assert stub_target.applied == 0
    assert events_of(plan)[-1] == event
    assert not Fence.objects.filter(plan=plan).exists()


def test_a_conflict_names_the_field_its_planned_and_its_current_value(stub_target):
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    done = approve(plan_at(stub_target))
    [change] = done.conflict.changes.all()
    assert (change.target, change.field, change.planned, change.current) == ("ledger/ACC-104", "limit", "100", "175")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (b'"limit"', [("", "limit", None, None)]),
        (b'["limit", "owner"]', [("", "limit", None, None), ("", "owner", None, None)]),
        (b'{"limit": {"planned": 1.10, "current": 2}}', [("", "limit", "1.10", "2")]),
        (b'{"limit": 7}', [("", "limit", None, "7")]),
        (b"[]", []),
        (b"12", []),
        (b"[null, 3]", []),
    ],
)
def test_what_changed_is_read_from_a_list_an_object_or_a_name(stub_target, changed, expected):
    stub_target.script(Answer(409, b'{"changed": %s}' % changed, {"Content-Type": "application/json"}))
    done = approve(plan_at(stub_target))
    rows = [(row.target, row.field, row.planned, row.current) for row in done.conflict.changes.order_by("position")]
    assert rows == expected


def test_i65_a_refused_connection_sent_nothing_and_the_next_approval_is_a_real_attempt_with_the_same_key(stub_target):
    person = make_person("reviewer")
    plan = plan_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, problem(404), problem(404))
    stub_target.refuse_connections()
    # The target is asked for the plan's state first, and is down already then.
    with pytest.raises(DecisionRefused) as down:
        approve(plan, person)
    assert down.value.status == 503
    stub_target.listen()
    assert approve(plan, person).state == "committed"
    assert [call.key for call in stub_target.commits] == [plan.idempotency_key]


def test_nothing_sent_voids_the_approval_and_the_same_person_may_approve_again(monkeypatch):
    with refusing_url() as url:
        plan = make_plan(target=make_target(base_url=url))
        person = make_person("reviewer")
        monkeypatch.setattr("plans.review._confirm", lambda *_: None)
        for _ in range(2):
            with pytest.raises(DecisionRefused) as refused:
                approve(plan, person)
            assert (refused.value.code, refused.value.status) == ("nothing-sent", 503)
    plan = reread(plan)
    assert plan.state == "pending"
    assert plan.token_sealed is not None
    assert [row.void_reason for row in Approval.objects.filter(plan=plan)] == ["unsent", "unsent"]
    assert not Fence.objects.exists()
    assert events_of(plan) == [
        "plan.received",
        *["plan.approved", "commit.started", "commit.unsent"] * 2,
    ]


def test_two_approvals_are_two_people(stub_target):
    target = make_target(base_url=stub_target.base_url, approvals=2)
    plan = make_plan(target=target)
    one, other = make_person("reviewer"), make_person("reviewer")
    assert approve(plan, one).state == "pending"
    assert stub_target.applied == 0
    with pytest.raises(DecisionRefused) as again:
        approve(plan, one)
    assert again.value.code == "approved-already"
    assert approve(plan, other).state == "committed"


def test_an_approval_of_somebody_who_lost_the_right_is_void(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url, approvals=2))
    one, other = make_person("reviewer"), make_person("reviewer")
    approve(plan, one)
    one.is_reviewer = False
    one.save()
    assert approve(plan, other).state == "pending"
    assert Approval.objects.get(plan=plan, reviewer=one).void_reason == "right-lost"


def test_a_fence_keeps_another_plan_of_the_agent_out_and_lets_it_in_when_the_outcome_is_known(stub_target):
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target)
    stub_target.script(DropAfterReading())
    first = make_plan(made=made, target=target)
    assert approve(first).state == "unknown"
    second = receive(made.agent, feed_data(target.name))
    with pytest.raises(DecisionRefused) as fenced:
        approve(second)
    assert fenced.value.status == 423
    assert reread(second).state == "pending"
    assert Approval.objects.filter(plan=second).count() == 0
    assert events_of(second)[-1] == "decision.refused"


def test_an_unconfirmed_plan_does_not_fence_another_agent(stub_target):
    target = make_target(base_url=stub_target.base_url)
    one, other = make_agent(target), make_agent(target)
    stub_target.script(DropAfterReading(), Commit())
    assert approve(make_plan(made=one, target=target)).state == "unknown"
    assert approve(make_plan(made=other, target=target)).state == "committed"


def test_a_confirmed_plan_fences_everybody(stub_target):
    target = make_target(base_url=stub_target.base_url)
    one, other = make_agent(target), make_agent(target)
    first, second = make_plan(made=one, target=target), make_plan(made=other, target=target)
    Plan.objects.filter(pk=first.pk).update(has_confirmed_actions=True)
    stub_target.script(DropAfterReading(), Commit())
    assert approve(first).state == "unknown"
    with pytest.raises(DecisionRefused) as fenced:
        approve(second)
    assert fenced.value.status == 423
    assert first.plan_id not in fenced.value.sentence


def test_an_echoed_token_is_not_kept(stub_target):
    stub_target.script(Commit(result={"you_sent": "pt-secret-token", "nested": ["x pt-secret-token y"]}))
    plan = plan_at(stub_target, plan={"plan_token": "pt-secret-token"})
    done = approve(plan)
    kept = done.commits.get(outcome="committed").result
    assert "pt-secret-token" not in kept
    assert "[plan token]" in kept


def test_at_or_past_expiry_nothing_is_sent(stub_target):
    plan = plan_at(stub_target, lifetime=SOON)
    digest = schema.shown_digest(plan)
    wait_until(lambda: clock.now() >= plan.expires_at)
    with pytest.raises(DecisionRefused) as refused:
        approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=digest)
    assert refused.value.status == 410
    assert stub_target.commits == []
    assert events_of(plan) == ["plan.received", "plan.expired", "plan.abandoned", "decision.refused"]


def test_r6_a_decision_on_anything_else_than_what_was_shown_is_refused(stub_target):
    plan = plan_at(stub_target)
    with pytest.raises(DecisionRefused) as refused:
        approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest="0" * 64)
    assert (refused.value.code, refused.value.status) == ("out-of-date", 409)
    assert stub_target.commits == []


def test_nobody_decides_on_plans_of_agents_they_own(stub_target):
    target = make_target(base_url=stub_target.base_url)
    owner = make_person("reviewer", "admin")
    plan = make_plan(made=make_agent(target, owner=owner), target=target)
    with pytest.raises(DecisionRefused) as refused:
        approve(plan, owner)
    assert refused.value.status == 403
    assert State(reread(plan).state) is State.PENDING
    assert events_of(plan)[-1] == "decision.refused"
