"""Claims that never settled, answers that came late, workers that slept or died."""

import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from plans import plan_sql, schema
from plans.commit import Call, carry_out
from plans.errors import DecisionRefused
from plans.freshness import bring_up_to_date
from plans.models import Fence, Plan
from plans.reconcile import find_out, find_out_unknown, mark_overdue
from plans.review import reject_plan
from tests.hosted_plans import approve
from tests.makers import events_of, make_person, reread
from tests.racing import at_once, holding_plan, in_background, wait_until
from tests.stub_behaviour import (
    Commit,
    Hold,
    conflict,
    problem,
)
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry
from tests.unknown_plans import APPROVED, UNKNOWN, due, has_one_end, outcomes, plan_at, says, unknown_at

pytestmark = pytest.mark.usefixtures("database")

# --- claims that never settled --------------------------------------------------------------------------------------


def claimed_and_died(stub: StubTarget, monkeypatch, **how) -> Plan:
    """A plan whose claim is on disk and whose worker died before it sent a byte."""
    plan = plan_at(stub, **how)

    def die(call):
        raise SystemExit

    with monkeypatch.context() as killed:
        killed.setattr("plans.review.carry_out", die)
        with pytest.raises(SystemExit):
            approve(plan)
    assert reread(plan).state == "committing"
    return reread(plan)


def test_a_claim_is_unknown_after_45_seconds_and_not_before(stub_target, owner_connection, monkeypatch):
    plan = claimed_and_died(stub_target, monkeypatch)
    pass_time(owner_connection, plan, 44)
    assert mark_overdue() == 0
    assert bring_up_to_date(reread(plan)).state == "committing"
    pass_time(owner_connection, plan, 1.1)
    assert sum(at_once(*[mark_overdue] * 3)) == 1
    assert mark_overdue() == 0
    assert reread(plan).state == "unknown"
    assert events_of(plan) == UNKNOWN
    assert outcomes(plan) == ["unknown"]
    # The attempt may have arrived: it is found out, and applied once.
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert stub_target.applied == 1


def test_whoever_reads_an_overdue_claim_first_calls_it_unknown(stub_target, owner_connection, monkeypatch):
    plan = claimed_and_died(stub_target, monkeypatch)
    pass_time(owner_connection, plan, 45.1)
    assert bring_up_to_date(reread(plan)).state == "unknown"
    other = claimed_and_died(stub_target, monkeypatch)
    pass_time(owner_connection, other, 45.1)
    with pytest.raises(DecisionRefused) as refused:
        reject_plan(
            plan_pk=other.pk, person=make_person("reviewer"), seen_digest=schema.shown_digest(other), reason="No"
        )
    assert (refused.value.code, refused.value.status) == ("unknown", 409)
    assert events_of(other) == [*UNKNOWN, "decision.refused"]


def test_a_row_that_somebody_holds_does_not_keep_the_sweep_from_the_others(
    stub_target, owner_connection, monkeypatch, settings
):
    settings.LOCK_WAIT = timedelta(milliseconds=100)
    plans = [claimed_and_died(stub_target, monkeypatch) for _ in range(2)]
    for place, plan in enumerate(plans):
        pass_time(owner_connection, plan, 50 - place)
    with holding_plan(plans[0].pk):
        assert mark_overdue() == 1
    assert [reread(plan).state for plan in plans] == ["committing", "unknown"]


@pytest.mark.slow
def test_an_answer_that_comes_after_the_claim_was_called_lost_still_counts(stub_target, owner_connection):
    for behaviour, state, end in (
        (Commit(), "committed", ["commit.succeeded"]),
        (conflict(), "conflicted", ["commit.conflicted"]),
        (problem(422), "refused", ["commit.refused"]),
        (problem(410), "abandoned", ["plan.expired", "plan.abandoned"]),
    ):
        held = Hold(then=behaviour)
        stub_target.script(held)
        plan = plan_at(stub_target)
        approving = in_background(lambda plan=plan: approve(plan))
        assert held.reached.wait(10)
        pass_time(owner_connection, plan, 46)
        assert mark_overdue() == 1
        assert reread(plan).state == "unknown"
        held.until.set()
        assert approving().state == state
        assert events_of(plan) == [*UNKNOWN, "commit.resolved", *end]
        assert len(outcomes(plan)) == 1


def test_a_late_answer_that_proves_nothing_leaves_the_plan_unknown(stub_target, owner_connection):
    held = Hold(then=problem(500))
    stub_target.script(held)
    plan = plan_at(stub_target)
    approving = in_background(lambda: approve(plan))
    assert held.reached.wait(10)
    pass_time(owner_connection, plan, 46)
    mark_overdue()
    held.until.set()
    assert approving().state == "unknown"
    assert outcomes(plan) == ["unknown"]


def test_a_late_success_against_an_end_is_told_and_changes_nothing(stub_target, owner_connection):
    held = Hold()
    stub_target.script(held)
    plan = plan_at(stub_target)
    approving = in_background(lambda: approve(plan))
    assert held.reached.wait(10)
    stub_target.script_look_ups(plan.plan_id, says(plan, "pending"))
    pass_time_to_expiry(owner_connection, plan, 61)
    mark_overdue()
    pass_time(owner_connection, plan, 61)
    assert find_out(plan_pk=due(plan).pk).state == "abandoned"
    held.until.set()
    assert approving().state == "abandoned"
    assert events_of(plan) == [*UNKNOWN, "commit.resolved", "plan.abandoned", "commit.contradicted"]
    assert has_one_end(plan)
    assert reread(plan).abandonment.reason == "not_applied"


def test_a_late_no_against_a_commit_is_no_news(stub_target, owner_connection):
    held = Hold(then=conflict())
    stub_target.script(held)
    plan = plan_at(stub_target)
    approving = in_background(lambda: approve(plan))
    assert held.reached.wait(10)
    stub_target.script_look_ups(plan.plan_id, says(plan, "committed"))
    pass_time(owner_connection, plan, 46)
    mark_overdue()
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    held.until.set()
    assert approving().state == "committed"
    assert events_of(plan) == [*UNKNOWN, "commit.resolved", "commit.succeeded"]


def test_an_answer_is_written_down_however_long_somebody_holds_the_row(stub_target, settings):
    settings.LOCK_WAIT = timedelta(milliseconds=100)
    held = Hold()
    stub_target.script(held)
    plan = plan_at(stub_target)
    approving = in_background(lambda: approve(plan))
    assert held.reached.wait(10)
    with holding_plan(plan.pk):
        held.until.set()
        time.sleep(0.4)
    assert approving().state == "committed"


# --- a worker that slept --------------------------------------------------------------------------------------------


def sleep_before_the_call(monkeypatch, until: threading.Event) -> threading.Event:
    """The next worker sleeps between claim and call until the event is set; then a quarter of a minute has passed."""
    sleeps = threading.Event()

    def slept(call: Call) -> Plan:
        sleeps.set()
        assert until.wait(20)
        return carry_out(Call(call.plan_pk, call.attempt_pk, call.claimed - 16))

    monkeypatch.setattr("plans.review.carry_out", slept)
    return sleeps


def test_a_worker_that_slept_between_claim_and_call_sends_nothing(stub_target, monkeypatch):
    plan = plan_at(stub_target)
    awake = threading.Event()
    awake.set()
    sleep_before_the_call(monkeypatch, awake)
    with pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert (refused.value.code, refused.value.status) == ("nothing-sent", 503)
    assert stub_target.commits == []
    assert reread(plan).state == "pending"
    assert events_of(plan) == [*APPROVED, "commit.unsent"]


def test_a_worker_held_up_after_it_read_the_clock_sends_nothing_past_expiry(stub_target, monkeypatch):
    plan = plan_at(stub_target)
    read = plan_sql.get_plan_to_send

    def read_and_sleep(plan_pk):
        found, _ = read(plan_pk)
        time.sleep(0.3)
        return found, found.expires_at - timedelta(seconds=0.2)

    def held_up(call: Call) -> Plan:
        with monkeypatch.context() as sleepy:
            sleepy.setattr(plan_sql, "get_plan_to_send", read_and_sleep)
            return carry_out(call)

    monkeypatch.setattr("plans.review.carry_out", held_up)
    with pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert refused.value.code == "nothing-sent"
    assert stub_target.commits == []
    assert events_of(plan) == [*APPROVED, "commit.unsent"]


def test_a_worker_that_slept_until_its_claim_was_called_lost_sends_nothing_and_the_plan_stays_unknown(
    stub_target, owner_connection, monkeypatch
):
    plan = plan_at(stub_target)
    awake = threading.Event()
    sleeps = sleep_before_the_call(monkeypatch, awake)
    approving = in_background(lambda: approve(plan))
    assert sleeps.wait(10)
    pass_time(owner_connection, plan, 46)
    assert mark_overdue() == 1
    awake.set()
    assert approving().state == "unknown"
    assert stub_target.commits == []
    assert outcomes(plan) == ["unsent"]
    assert events_of(plan) == [*UNKNOWN, "commit.unknown"]
    # Never pending again; and where the target says that it was written, somebody else did, which is still the truth.
    stub_target.script_look_ups(plan.plan_id, says(plan, "committed", result=7))
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert outcomes(plan) == ["unsent", "committed"]
    assert reread(plan).commits.get(outcome="committed").result == "7"


def test_an_unknown_plan_of_which_nothing_was_sent_is_not_applied_at_its_expiry_though_its_target_is_down(
    stub_target, owner_connection, monkeypatch
):
    plan = plan_at(stub_target)
    awake = threading.Event()
    sleeps = sleep_before_the_call(monkeypatch, awake)
    approving = in_background(lambda: approve(plan))
    assert sleeps.wait(10)
    pass_time(owner_connection, plan, 46)
    assert mark_overdue() == 1
    pass_time_to_expiry(owner_connection, plan, 0)
    stub_target.refuse_connections()
    # While the worker may still be about to send, nothing is proven.
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    awake.set()
    assert approving().state == "unknown"
    assert outcomes(plan) == ["unsent"]
    done = find_out(plan_pk=due(plan).pk)
    assert (done.state, done.abandonment.reason) == ("abandoned", "not_applied")
    assert events_of(plan) == [*UNKNOWN, "commit.unknown", "commit.resolved", "plan.abandoned"]
    assert not Fence.objects.exists()
    assert stub_target.commits == []


def test_an_unknown_plan_of_which_something_may_have_arrived_stays_so_while_its_target_is_down(
    stub_target, owner_connection
):
    plan = unknown_at(stub_target)
    stub_target.refuse_connections()
    assert find_out(plan_pk=due(plan).pk).state == "unknown"
    assert outcomes(plan) == ["unknown", "unsent"]
    pass_time_to_expiry(owner_connection, plan, 0)
    assert find_out(plan_pk=due(plan).pk).state == "unknown"


def test_a_worker_that_slept_until_its_plan_had_ended_sends_nothing(stub_target, owner_connection, monkeypatch):
    plan = plan_at(stub_target)
    awake = threading.Event()
    sleeps = sleep_before_the_call(monkeypatch, awake)
    approving = in_background(lambda: approve(plan))
    assert sleeps.wait(10)
    pass_time_to_expiry(owner_connection, plan, 61)
    mark_overdue()
    pass_time(owner_connection, plan, 61)
    stub_target.script_look_ups(plan.plan_id, says(plan, "expired"))
    assert find_out(plan_pk=due(plan).pk).state == "abandoned"
    awake.set()
    assert approving().state == "abandoned"
    assert stub_target.commits == []


CHILD = """
import sys, django
django.setup()
from plans.models import Fence, Plan
from reviewer.models import Person
from tests.hosted_plans import approve
approve(Plan.objects.get(pk=int(sys.argv[1])), Person.objects.get(pk=int(sys.argv[2])))
"""


@pytest.mark.slow
def test_r3_u87_a_process_killed_while_the_target_works_leaves_one_application_and_the_truth(
    stub_target, owner_connection, ground
):
    from reviewer.installation import PROJECT

    plan, bystander = plan_at(stub_target), plan_at(stub_target)
    person = make_person("reviewer", name="Rita")
    held = Hold()
    stub_target.script(held)
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(plan.pk), str(person.pk)], cwd=PROJECT)
    assert held.reached.wait(30)
    process.kill()
    process.wait(10)
    held.until.set()
    wait_until(lambda: stub_target.applied == 1)
    assert reread(plan).state == "committing"
    with pytest.raises(DecisionRefused, match="being committed by Rita since"):
        approve(plan)
    assert approve(bystander).state == "committed"
    pass_time(owner_connection, plan, 46)
    for _ in range(2):
        mark_overdue()
        due(plan)
        find_out_unknown()
    assert reread(plan).state == "committed"
    assert stub_target.applications[plan.idempotency_key] == 1
    assert events_of(plan) == [*APPROVED, "decision.refused", "commit.unknown", "commit.resolved", "commit.succeeded"]
