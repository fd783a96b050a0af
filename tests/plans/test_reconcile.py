"""Finding out what became of a commit nobody knows the outcome of: CONTRACT section 6, row by row."""

import time
from datetime import timedelta

import pytest

from plans import clock, schema
from plans.errors import DecisionRefused, OutcomeUnknown
from plans.models import Commit as Attempt
from plans.models import Fence, Plan
from plans.reconcile import find_out, find_out_unknown
from plans.review import reject_plan, settle_unknown
from tests.hosted_plans import approve
from tests.makers import events_of, feed_data, make_agent, make_person, make_target, receive, reread
from tests.racing import at_once, in_background
from tests.stub_behaviour import (
    Answer,
    Commit,
    Delay,
    DropAfterApplying,
    DropAfterReading,
    Hold,
    conflict,
    in_progress,
    problem,
)
from tests.time_passing import pass_time, pass_time_to_expiry
from tests.unknown_plans import AGAIN, UNKNOWN, due, has_one_end, outcomes, plan_at, says, unknown_at

pytestmark = pytest.mark.usefixtures("database")

# --- the second table: what a state proves --------------------------------------------------------------------------

PROVES = {
    "committed": ("committed", None, ["commit.resolved", "commit.succeeded"]),
    "conflicted": ("conflicted", None, ["commit.resolved", "commit.conflicted"]),
    "refused": ("refused", None, ["commit.resolved", "commit.refused"]),
    "rejected": ("refused", None, ["commit.resolved", "commit.refused"]),
    "expired": ("abandoned", "expired", ["commit.resolved", "plan.expired", "plan.abandoned"]),
    "abandoned": ("abandoned", "not_applied", ["commit.resolved", "plan.abandoned"]),
    "pending": ("abandoned", "not_applied", ["commit.resolved", "plan.abandoned"]),
}


@pytest.mark.parametrize("state", PROVES)
def test_a_state_read_a_minute_after_the_plans_end_decides(stub_target, owner_connection, state):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, says(plan, state, result={"entry": "L-1"}, detail="Closed."))
    pass_time_to_expiry(owner_connection, plan, 60.1)
    done = find_out(plan_pk=due(plan).pk)
    end, reason, events = PROVES[state]
    assert done.state == end
    assert events_of(plan) == [*UNKNOWN, *events]
    assert has_one_end(plan)
    assert len(stub_target.commits) == 1
    assert not Fence.objects.exists()
    done = reread(plan)
    assert done.token_sealed is None
    if reason:
        assert done.abandonment.reason == reason
    if end == "committed":
        assert done.commits.get().result == '{"entry": "L-1"}'
    if end == "refused":
        assert done.refusal.reason == "Closed."


@pytest.mark.parametrize("state", [state for state in PROVES if state != "committed"])
def test_a_no_that_is_read_sooner_than_a_minute_after_the_attempt_proves_nothing(stub_target, owner_connection, state):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, says(plan, state))
    pass_time(owner_connection, plan, 59)
    stub_target.script(Answer(503))
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    # While it lives, it was tried again instead, with its one key: and that attempt's minute starts now.
    assert set(stub_target.calls_per_key()) == {plan.idempotency_key}
    assert events_of(plan) == [*UNKNOWN, *AGAIN]
    pass_time_to_expiry(owner_connection, plan, 10)
    Attempt.objects.filter(plan=plan).update(settled_at=clock.now())
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert len(stub_target.commits) == 2


@pytest.mark.parametrize("state", ["conflicted", "refused", "rejected", "expired", "abandoned"])
def test_a_no_that_is_read_a_minute_after_the_attempt_ends_a_plan_that_still_lives(
    stub_target, owner_connection, state
):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, says(plan, state))
    pass_time(owner_connection, plan, 60.1)
    assert find_out(plan_pk=due(plan).pk).state == PROVES[state][0]
    assert len(stub_target.commits) == 1


def test_the_minute_counts_from_the_read_and_not_from_the_answer(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    pass_time_to_expiry(owner_connection, plan, 59.5)
    stub_target.script_look_ups(plan.plan_id, Delay(0.8, says(plan, "pending")))
    assert find_out(plan_pk=due(plan).pk).state == "unknown"


def test_committed_is_believed_at_once_whatever_else_is_under_way(stub_target):
    plan = unknown_at(stub_target, DropAfterApplying())
    done = find_out(plan_pk=due(plan).pk)
    assert done.state == "committed"
    assert stub_target.applied == 1
    assert len(stub_target.commits) == 1
    assert events_of(plan) == [*UNKNOWN, "commit.resolved", "commit.succeeded"]


def test_a_conflict_found_out_by_the_state_names_what_changed(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    changed = [{"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 1.10}]
    stub_target.script_look_ups(plan.plan_id, says(plan, "conflicted", changed=changed))
    pass_time(owner_connection, plan, 61)
    find_out(plan_pk=due(plan).pk)
    [change] = reread(plan).conflict.changes.all()
    assert (change.field, change.planned, change.current) == ("limit", "100", "1.1")


def test_missing_at_a_target_that_knew_the_plan_is_not_applied_a_minute_after_its_end(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    assert plan.has_been_known_to_target
    stub_target.script_look_ups(plan.plan_id, problem(404))
    pass_time_to_expiry(owner_connection, plan, 59)
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    pass_time(owner_connection, plan, 1.1)
    done = find_out(plan_pk=due(plan).pk)
    assert (done.state, reread(plan).abandonment.reason) == ("abandoned", "not_applied")
    assert len(stub_target.commits) == 1


def test_missing_at_a_target_that_never_knew_the_plan_proves_nothing(stub_target, owner_connection):
    plan = unknown_at(stub_target, is_known=False)
    assert not plan.has_been_known_to_target
    pass_time_to_expiry(owner_connection, plan, 3600)
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert events_of(plan) == UNKNOWN


NOTHING = {
    "an unheard-of state": Answer(200, {"plan_id": "PLAN", "state": "settled"}),
    "committing": Answer(200, {"plan_id": "PLAN", "state": "committing"}),
    "unknown": Answer(200, {"plan_id": "PLAN", "state": "unknown"}),
    "the state in capitals": Answer(200, {"plan_id": "PLAN", "state": "Committed"}),
    "no state": Answer(200, {"plan_id": "PLAN"}),
    "another plan": Answer(200, {"plan_id": "plan_other", "state": "committed"}),
    "no object": Answer(200, ["committed"]),
    "no JSON": Answer(200, b"committed", {"Content-Type": "text/plain"}),
    "201": Answer(201, {"plan_id": "PLAN", "state": "committed"}),
    "302": Answer(302, b"", {"Location": "/elsewhere"}),
    "410": problem(410),
    "500": problem(500),
    "no answer": DropAfterReading(),
}


@pytest.mark.parametrize("answer", NOTHING.values(), ids=NOTHING.keys())
def test_anything_else_proves_nothing(stub_target, owner_connection, answer):
    plan = unknown_at(stub_target)
    if isinstance(answer, Answer) and b"PLAN" in answer.raw:
        answer = Answer(answer.status, answer.raw.replace(b"PLAN", plan.plan_id.encode()))
    stub_target.script_look_ups(plan.plan_id, answer)
    pass_time_to_expiry(owner_connection, plan, 3600)
    done = find_out(plan_pk=due(plan).pk)
    assert done.state == "unknown"
    assert events_of(plan) == UNKNOWN
    assert len(stub_target.commits) == 1
    assert reread(plan).next_check_at > clock.now()


def test_a_target_that_is_down_is_asked_again_later(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    pass_time_to_expiry(owner_connection, plan, 3600)
    stub_target.refuse_connections()
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    stub_target.listen()
    stub_target.script_look_ups(plan.plan_id, says(plan, "committed"))
    assert find_out(plan_pk=due(plan).pk).state == "committed"


# --- the same key again ---------------------------------------------------------------------------------------------


def test_i59_u88_what_was_applied_and_never_answered_is_found_by_the_same_key_and_applied_once(stub_target):
    plan = unknown_at(stub_target, DropAfterApplying())
    stub_target.script_look_ups(plan.plan_id, problem(500))
    done = find_out(plan_pk=due(plan).pk)
    assert done.state == "committed"
    assert stub_target.applied == 1
    assert stub_target.calls_per_key() == {plan.idempotency_key: 2}
    assert len({call.body for call in stub_target.commits}) == 1
    assert outcomes(plan) == ["unknown", "committed"]
    assert events_of(plan) == [*UNKNOWN, "commit.started", "commit.resolved", "commit.succeeded"]


@pytest.mark.parametrize("state", ["pending", "404"])
def test_a_plan_that_lives_and_is_not_there_yet_is_tried_again(stub_target, owner_connection, state):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, problem(404) if state == "404" else says(plan, "pending"))
    pass_time(owner_connection, plan, 61)
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert (stub_target.applied, len(stub_target.commits)) == (1, 2)


NO = {"409": conflict(), "410": problem(410), "422": problem(422), "404": problem(404), "401": problem(401)}


@pytest.mark.parametrize("answer", NO.values(), ids=NO.keys())
def test_a_no_after_an_attempt_that_may_have_arrived_decides_nothing_by_itself(stub_target, owner_connection, answer):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, problem(500))
    stub_target.script(answer)
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert events_of(plan) == [*UNKNOWN, *AGAIN]
    assert outcomes(plan) == ["unknown", "unknown"]
    # The state decides, once it is a minute older than that attempt.
    stub_target.script_look_ups(plan.plan_id, says(plan, "committed"))
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert has_one_end(plan)


def test_u88_an_answer_already_applied_is_a_success_and_a_conflict_that_says_so_is_asked_about(stub_target):
    plan = unknown_at(stub_target, DropAfterApplying())
    stub_target.script_look_ups(plan.plan_id, problem(500), says(plan, "committed"))
    stub_target.script(conflict(slug="already-applied"))
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert find_out(plan_pk=due(plan).pk).state == "committed"


@pytest.mark.parametrize("answer", [problem(503), in_progress(), Answer(202, {}), problem(429)])
def test_what_proves_nothing_again_stays_unknown(stub_target, answer):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, problem(500))
    stub_target.script(answer)
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert events_of(plan) == [*UNKNOWN, *AGAIN]


def test_i65_a_retry_that_could_not_be_sent_leaves_the_plan_unknown_and_says_so(stub_target):
    plan = unknown_at(stub_target)
    stub_target.refuse_connections()
    before = due(plan)
    assert find_out(plan_pk=before.pk).state == "unknown"
    assert outcomes(plan) == ["unknown", "unsent"]
    assert events_of(plan) == [*UNKNOWN, *AGAIN]
    assert reread(plan).next_check_at > clock.now()
    stub_target.listen()
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert {call.key for call in stub_target.commits} == {plan.idempotency_key}


def test_x22_past_its_expiry_a_plan_is_never_sent_again(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, problem(500))
    pass_time_to_expiry(owner_connection, plan, 0)
    for _ in range(3):
        assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert len(stub_target.commits) == 1


def test_the_look_at_the_state_may_take_so_long_that_the_plan_dies_meanwhile(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    pass_time_to_expiry(owner_connection, plan, -0.3)
    stub_target.script_look_ups(plan.plan_id, Delay(0.5, problem(500)))
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert len(stub_target.commits) == 1


def test_retry_after_is_kept_to_and_delays_grow(stub_target):
    plan = unknown_at(stub_target, problem(503, headers={"Retry-After": "120"}))
    assert plan.next_check_at >= plan.unknown_since + timedelta(seconds=120)
    assert find_out_unknown() == 0
    patient = unknown_at(stub_target, problem(429, headers={"Retry-After": "86400"}))
    assert patient.next_check_at <= patient.unknown_since + timedelta(minutes=5)
    plan = unknown_at(stub_target)
    delays = []
    stub_target.otherwise = problem(503)
    stub_target.script_look_ups(plan.plan_id, problem(500))
    for _ in range(4):
        due(plan)
        assert find_out_unknown() == 1
        delays.append((reread(plan).next_check_at - clock.now()).total_seconds())
    assert delays == sorted(delays)
    assert 3 < delays[0] < 5
    assert delays[-1] <= 60


# --- workers --------------------------------------------------------------------------------------------------------


def test_several_workers_share_the_plans_and_look_at_each_once(stub_target):
    plans = [unknown_at(stub_target, DropAfterApplying()) for _ in range(4)]
    before = len(stub_target.look_ups)
    for plan in plans:
        due(plan)
    assert sum(at_once(*[find_out_unknown] * 3)) == 4
    assert len(stub_target.look_ups) - before == 4
    assert {reread(plan).state for plan in plans} == {"committed"}
    assert all(events_of(plan) == [*UNKNOWN, "commit.resolved", "commit.succeeded"] for plan in plans)


def test_r13_where_a_lease_runs_out_two_attempts_carry_the_same_key_and_apply_once(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    held = Hold()
    stub_target.script_look_ups(plan.plan_id, problem(500))
    stub_target.script(held)
    due(plan)
    first = in_background(find_out_unknown)
    assert held.reached.wait(10)
    assert find_out_unknown() == 0  # leased
    pass_time(owner_connection, plan, 61)
    assert find_out_unknown() == 1  # the stub answers the second one 409 in-progress
    held.until.set()
    assert first() == 1
    assert reread(plan).state == "committed"
    assert stub_target.applied == 1
    assert set(stub_target.calls_per_key()) == {plan.idempotency_key}
    assert has_one_end(plan)


def test_a_retry_whose_worker_died_is_lost_after_45_seconds_and_does_not_keep_the_plan_unknown(
    stub_target, owner_connection, monkeypatch
):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, says(plan, "pending"))

    def die(call):
        raise SystemExit

    with monkeypatch.context() as killed:
        killed.setattr("plans.reconcile.carry_out", die)
        with pytest.raises(SystemExit):
            find_out(plan_pk=due(plan).pk)
    assert outcomes(plan) == ["unknown", None]
    pass_time_to_expiry(owner_connection, plan, 61)
    # Seen as lost now, so that its minute starts now.
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert outcomes(plan) == ["unknown", "unknown"]
    pass_time(owner_connection, plan, 61)
    assert find_out(plan_pk=due(plan).pk).state == "abandoned"
    assert events_of(plan) == [*UNKNOWN, *AGAIN, "commit.resolved", "plan.abandoned"]


def test_a_retry_that_is_still_under_way_keeps_a_no_from_being_believed(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    held = Hold(then=Commit())
    stub_target.script(held)
    stub_target.script_look_ups(plan.plan_id, problem(500), says(plan, "abandoned"))
    retry = in_background(lambda: find_out(plan_pk=due(plan).pk))
    assert held.reached.wait(10)
    Plan.objects.filter(pk=plan.pk).update(next_check_at=clock.now())
    with owner_connection.cursor() as cursor:  # the first attempt is old, the running one is not
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(
            "UPDATE plans_commit SET started_at = started_at - interval '70 s', "
            "settled_at = settled_at - interval '70 s' WHERE number = 1"
        )
        cursor.execute("SET session_replication_role = origin")
    stub_target.script(problem(503))
    assert find_out(plan_pk=plan.pk).state == "unknown"
    held.until.set()
    assert retry().state == "committed"
    assert stub_target.applied == 1


# --- U: what the others see meanwhile --------------------------------------------------------------------------------


def test_u83_a_timeout_is_unknown_and_never_failed_and_nothing_can_be_decided_on_it(stub_target, settings):
    settings.COMMIT_TIMEOUT = timedelta(milliseconds=300)
    stub_target.script(Delay(0.01, Hold(then=Answer(200, {}, applies=True))))
    plan = plan_at(stub_target)
    started = time.monotonic()
    assert approve(plan).state == "unknown"
    assert time.monotonic() - started < 5
    for decide in (approve, reject):
        with pytest.raises(DecisionRefused) as refused:
            decide(plan)
        assert (refused.value.code, refused.value.status) == ("unknown", 409)
    assert stub_target.calls_per_key() == {plan.idempotency_key: 1}
    assert events_of(plan) == [*UNKNOWN, "decision.refused", "decision.refused"]


def reject(plan: Plan) -> Plan:
    return reject_plan(
        plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=schema.shown_digest(reread(plan)), reason="No"
    )


def test_an_agent_that_commits_an_unknown_plan_is_told_to_poll(stub_target):
    from plans.agent_commit import Presented, commit_by_agent

    target = make_target(base_url=stub_target.base_url, approvals=0)
    body = stub_target.new_plan()
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    stub_target.script(DropAfterApplying())
    presented = Presented("key-1", None, body["plan_token"], body["input_fingerprint"])
    for _ in range(2):
        with pytest.raises(OutcomeUnknown) as unknown:
            commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented)
        assert (unknown.value.status, unknown.value.next, unknown.value.plan_write) == (504, "poll", "possible")
        assert unknown.value.headers["Location"]
    assert len(stub_target.commits) == 1
    assert events_of(plan) == ["plan.received", "commit.started", "commit.unknown"]
    find_out(plan_pk=due(plan).pk)
    assert commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented).plan.state == "committed"
    assert stub_target.applied == 1


# --- settled by a person --------------------------------------------------------------------------------------------


def settle(plan: Plan, *, was_made: bool, person=None, reason="Checked in the ledger.") -> Plan:
    return settle_unknown(plan_pk=plan.pk, person=person or make_person("reviewer"), was_made=was_made, reason=reason)


@pytest.mark.parametrize(("was_made", "state"), [(True, "committed"), (False, "abandoned")])
def test_a_reviewer_settles_what_stayed_unknown_a_minute_after_the_plans_end(
    stub_target, owner_connection, was_made, state
):
    plan = unknown_at(stub_target)
    pass_time_to_expiry(owner_connection, plan, 59)
    with pytest.raises(DecisionRefused) as early:
        settle(plan, was_made=was_made)
    assert (early.value.code, early.value.status) == ("too-early", 409)
    pass_time(owner_connection, plan, 1.1)
    for reason in ("", " \n"):
        with pytest.raises(DecisionRefused) as silent:
            settle(plan, was_made=was_made, reason=reason)
        assert (silent.value.code, silent.value.status) == ("reason-missing", 422)
    person = make_person("reviewer", name="Rita")
    assert settle(plan, was_made=was_made, person=person).state == state
    end = "commit.succeeded" if was_made else "plan.abandoned"
    assert events_of(plan) == [*UNKNOWN, *["decision.refused"] * 3, "commit.resolved", end]
    done = reread(plan)
    if was_made:
        assert done.commits.get(outcome="committed").result is None
    else:
        assert done.abandonment.reason == "not_applied"
    with pytest.raises(DecisionRefused) as again:
        settle(plan, was_made=not was_made)
    assert (again.value.code, again.value.status) == ("not-unknown", 409)
    assert len(stub_target.commits) == 1


def test_only_who_may_decide_settles(stub_target, owner_connection):
    owner = make_person("reviewer", "admin")
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target, owner=owner)
    stub_target.script(DropAfterReading())
    plan = receive(made.agent, feed_data(target.name, plan=stub_target.new_plan()))
    assert approve(plan).state == "unknown"
    pass_time_to_expiry(owner_connection, plan, 61)
    for person in (owner, make_person("auditor"), make_person("admin")):
        with pytest.raises(DecisionRefused) as refused:
            settle(plan, was_made=True, person=person)
        assert refused.value.status == 403
    assert reread(plan).state == "unknown"


def test_a_pending_plan_is_not_settled_by_hand(stub_target):
    with pytest.raises(DecisionRefused) as refused:
        settle(plan_at(stub_target), was_made=True)
    assert refused.value.code == "not-unknown"


def test_two_people_settle_at_once_and_one_of_them_is_told(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    pass_time_to_expiry(owner_connection, plan, 61)
    people = [make_person("reviewer") for _ in range(2)]
    results = at_once(
        lambda: settle(plan, was_made=True, person=people[0]), lambda: settle(plan, was_made=False, person=people[1])
    )
    assert sum(isinstance(result, DecisionRefused) for result in results) == 1
    assert has_one_end(plan)
