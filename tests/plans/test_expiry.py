"""Expiry: decided at the decision, by the database's clock, to the microsecond; swept by whoever comes."""

import logging
import time
from datetime import timedelta

import pytest
from django.db import connection, transaction

from audit.kinds import TERMINAL_KINDS
from audit.models import Event
from plans import clock, schema
from plans.abandonment import abandon_plan, end_task
from plans.agent_commit import Presented, commit_by_agent
from plans.errors import DecisionRefused, PlanExpired
from plans.expiry import expire_due
from plans.freshness import bring_up_to_date
from plans.models import Abandonment, Approval, Callback, Plan
from plans.reconcile import find_out_unknown
from plans.review import approve_plan, reject_plan
from plans.states import AbandonReason
from tests.hosted_plans import approve, plan_address, plan_refund
from tests.makers import events_of, feed_data, make_agent, make_person, make_plan, make_target, receive, reread
from tests.racing import at_once, holding_plan
from tests.stub_behaviour import problem
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

EXPIRED = ["plan.received", "plan.expired", "plan.abandoned"]


def plan_at(stub: StubTarget, **target) -> Plan:
    registered = make_target(base_url=stub.base_url, **target)
    return receive(make_agent(registered).agent, feed_data(registered.name, plan=stub.new_plan()))


def approve_it(plan: Plan) -> Plan:
    return approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=schema.shown_digest(reread(plan)))


def reject_it(plan: Plan) -> Plan:
    return reject_plan(
        plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=schema.shown_digest(reread(plan)), reason="No"
    )


def abandon_it(plan: Plan) -> list[Plan]:
    return abandon_plan(
        agent=plan.agent, target_name=plan.target.name, plan_id=plan.plan_id, reason=AbandonReason.INTENT_CHANGED
    )


@pytest.fixture
def at_a_moment(monkeypatch):
    """Decide at one exact moment: the database's clock, as the desk reads it, stands there."""

    def stop(moment):
        monkeypatch.setattr(clock, "read", lambda _: moment)

    return stop


# --- the boundary ---------------------------------------------------------------------------------------------------

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize("before", [MILLISECOND, MICROSECOND])
def test_x24_until_the_last_microsecond_a_plan_can_be_decided(stub_target, at_a_moment, before):
    plan, other = plan_refund().plan, plan_at(stub_target)
    at_a_moment(plan.expires_at - before)
    assert expire_due() == 0
    assert bring_up_to_date(reread(plan)).state == "pending"
    assert reread(plan).state == "pending"
    assert approve(plan).state == "committed"
    at_a_moment(other.expires_at - before)
    assert reject_it(other).state == "rejected"


def test_what_is_decided_so_late_that_the_connection_comes_too_late_is_not_sent(stub_target, at_a_moment):
    plan = plan_at(stub_target)
    at_a_moment(plan.expires_at - MICROSECOND)
    with pytest.raises(DecisionRefused) as refused:
        approve_it(plan)
    assert (refused.value.code, refused.value.status) == ("nothing-sent", 503)
    assert stub_target.commits == []
    assert reread(plan).state == "pending"


@pytest.mark.parametrize("after", [timedelta(0), MICROSECOND, MILLISECOND])
def test_x24_at_its_expiry_and_after_it_a_plan_is_dead_for_everybody(stub_target, at_a_moment, after):
    approved, rejected, swept, read = (plan_at(stub_target) for _ in range(4))
    for plan, decide in ((approved, approve_it), (rejected, reject_it)):
        at_a_moment(plan.expires_at + after)
        with pytest.raises(DecisionRefused) as refused:
            decide(plan)
        assert (refused.value.code, refused.value.status) == ("expired", 410)
        assert events_of(plan) == [*EXPIRED, "decision.refused"]
    at_a_moment(swept.expires_at + after)
    assert expire_due() == 1
    at_a_moment(read.expires_at + after)
    assert bring_up_to_date(reread(read)).state == "abandoned"
    assert events_of(swept) == events_of(read) == EXPIRED
    assert stub_target.commits == []
    assert not Approval.objects.exists()


def test_x24_the_agents_commit_agrees(at_a_moment):
    alive, dead = plan_address("77"), plan_address("78")
    at_a_moment(alive.plan.expires_at - MICROSECOND)
    assert alive.commit().plan.state == "committed"
    at_a_moment(dead.plan.expires_at)
    with pytest.raises(PlanExpired) as expired:
        dead.commit()
    assert expired.value.members["expired_at"].endswith("Z")
    assert events_of(dead.plan) == EXPIRED


def test_the_claim_itself_reads_the_clock_again_before_it_sends(stub_target, monkeypatch):
    """A plan that lives at its claim and is dead when the call is about to be made is not sent."""
    plan = plan_at(stub_target)
    has_claimed = False

    def running_out(moment):
        if Plan.objects.filter(pk=plan.pk, state="committing").exists():
            nonlocal has_claimed
            has_claimed = True
            return plan.expires_at
        return moment

    monkeypatch.setattr(clock, "read", running_out)
    with pytest.raises(DecisionRefused) as refused:
        approve_it(plan)
    assert refused.value.code == "nothing-sent"
    assert has_claimed
    assert stub_target.commits == []
    assert events_of(plan) == ["plan.received", "plan.approved", "commit.started", "commit.unsent"]


# --- X rows ---------------------------------------------------------------------------------------------------------


def test_x21_with_every_sweep_stopped_an_expired_plan_is_refused_by_the_decision_itself(stub_target, owner_connection):
    plan = plan_at(stub_target)
    pass_time_to_expiry(owner_connection, plan)
    assert reread(plan).state == "pending"
    for _ in range(2):
        with pytest.raises(DecisionRefused) as refused:
            approve_it(plan)
        assert refused.value.status == 410
    assert stub_target.received == [] or stub_target.commits == []
    assert events_of(plan) == [*EXPIRED, "decision.refused", "decision.refused"]
    assert reread(plan).token_sealed is None


def test_x22_approved_before_its_expiry_and_not_admitted_it_is_not_sent_after_it(stub_target, owner_connection):
    plan = plan_at(stub_target)
    stub_target.script(problem(503, slug="not-admitted"))
    assert approve_it(plan).state == "unknown"
    pass_time_to_expiry(owner_connection, plan)
    Plan.objects.filter(pk=plan.pk).update(next_check_at=clock.now())
    assert find_out_unknown() == 1
    for decide in (approve_it, reject_it):
        with pytest.raises(DecisionRefused):
            decide(plan)
    assert len(stub_target.commits) == 1
    assert expire_due() == 0  # busy plans never end by expiry
    assert reread(plan).state == "unknown"


@pytest.mark.slow
def test_x31_x32_parallel_sweeps_end_a_thousand_plans_once_each(caplog):
    """No deadlock, no error, one `plan.expired` and one end per plan, however many sweeps run."""
    seed = make_plan(lifetime=timedelta(seconds=1))
    copies = [
        Plan(
            **{
                field.attname: getattr(seed, field.attname)
                for field in Plan._meta.concrete_fields
                if field.attname != "id"
            }
            | {"plan_id": f"plan_x{place}", "token_hash": b"%d" % place, "idempotency_key": f"key-{place}"}
        )
        for place in range(999)
    ]
    Plan.objects.bulk_create(copies)
    time.sleep(max(0.0, (seed.expires_at - clock.now()).total_seconds() + 0.01))
    with caplog.at_level(logging.WARNING):
        swept = at_once(*[expire_due] * 3, seconds=120)
    assert sum(swept) + expire_due() == 1_000
    assert caplog.records == []
    assert not Plan.objects.exclude(state="abandoned").exists()
    assert Abandonment.objects.filter(reason="expired").count() == 1_000
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT kind, count(*), count(DISTINCT plan_id) FROM audit_event
            WHERE kind IN ('plan.expired', 'plan.abandoned') GROUP BY kind ORDER BY kind
            """
        )
        assert cursor.fetchall() == [("plan.abandoned", 1_000, 1_000), ("plan.expired", 1_000, 1_000)]
    assert expire_due() == 0


def test_x31_the_same_sweep_five_times_ends_a_plan_once(owner_connection):
    plan = make_plan()
    pass_time_to_expiry(owner_connection, plan)
    at_once(expire_due, expire_due)
    for _ in range(3):
        expire_due()
    assert events_of(plan) == EXPIRED


def test_x33_only_the_databases_clock_decides(stub_target, owner_connection, monkeypatch):
    """The host's clock may say anything: neither an early nor a late one changes what is dead."""
    alive, dead = plan_at(stub_target), plan_at(stub_target)
    pass_time_to_expiry(owner_connection, dead, 1)
    real = time.time
    for skew in (300, -300, 86_400):
        monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
        expire_due()
        assert reread(alive).state == "pending"
    assert reread(dead).state == "abandoned"
    monkeypatch.setattr(time, "time", lambda: real() + 300)
    assert approve_it(alive).state == "committed"


@pytest.mark.parametrize("end", ["committed", "conflicted", "rejected", "refused", "abandoned"])
def test_o92_x35_an_end_is_never_expired_again_and_stays_on_record(owner_connection, end):
    plan = make_plan(end)
    pass_time_to_expiry(owner_connection, plan, 3600)
    before, told = reread(plan), events_of(plan)
    assert expire_due() == 0
    bring_up_to_date(before)
    abandon_it(plan)
    end_task(agent=plan.agent, task_id=plan.task.task_id)
    for decide in (approve, reject_it):
        with pytest.raises(DecisionRefused):
            decide(plan)
    after = reread(plan)
    assert (after.state, after.state_changed_at) == (before.state, before.state_changed_at)
    assert [kind for kind in events_of(plan) if kind != "decision.refused"] == told
    assert len([kind for kind in told if kind in TERMINAL_KINDS]) == 1


# --- how it ends ----------------------------------------------------------------------------------------------------


def test_an_agent_that_gives_up_a_dead_plan_finds_it_expired(owner_connection):
    plan = make_plan()
    pass_time_to_expiry(owner_connection, plan)
    abandon_it(plan)
    assert reread(plan).abandonment.reason == "expired"
    assert events_of(plan) == EXPIRED
    task = make_plan()
    pass_time_to_expiry(owner_connection, task)
    end_task(agent=task.agent, task_id=task.task.task_id)
    assert reread(task).abandonment.reason == "expired"


def test_an_expired_plan_destroys_its_token_and_keeps_the_approvals_it_had(stub_target, owner_connection):
    plan = plan_at(stub_target, approvals=2)
    assert approve_it(plan).state == "pending"
    pass_time_to_expiry(owner_connection, plan)
    assert expire_due() == 1
    done = reread(plan)
    assert (done.state, done.token_sealed) == ("abandoned", None)
    assert Approval.objects.filter(plan=plan, voided_at=None).count() == 1
    assert events_of(plan) == ["plan.received", "plan.approved", "plan.expired", "plan.abandoned"]


def test_the_actor_of_an_expiry_is_whoever_met_it(stub_target, owner_connection):
    swept, met = plan_at(stub_target), plan_at(stub_target)
    for plan in (swept, met):
        pass_time_to_expiry(owner_connection, plan)
    person = make_person("reviewer")
    with pytest.raises(DecisionRefused):
        approve(met, person)
    expire_due()
    actors = {event.plan_id: (event.actor_type, event.actor_id) for event in Event.objects.filter(kind="plan.expired")}
    assert actors == {swept.plan_id: ("system", "sweep"), met.plan_id: ("person", str(person.pk))}


def test_an_expiry_is_called_back(owner_connection):
    target = make_target()
    made = make_agent(target, callback_url="http://127.0.0.1:9/hook")
    plan = receive(made.agent, feed_data(target.name))
    pass_time_to_expiry(owner_connection, plan)
    expire_due()
    assert [row.kind for row in Callback.objects.filter(plan=plan)] == ["plan.abandoned"]


def test_a_dead_plan_whose_row_somebody_holds_is_skipped_by_the_sweep_and_read_without_waiting(owner_connection):
    held, free = make_plan(), make_plan()
    for plan in (held, free):
        pass_time_to_expiry(owner_connection, plan)
    with holding_plan(held.pk):
        started = time.monotonic()
        assert expire_due() == 1
        assert bring_up_to_date(reread(held)).state == "pending"
        assert time.monotonic() - started < 2
    assert expire_due() == 1
    assert events_of(held) == events_of(free) == EXPIRED


def test_a_sweep_takes_the_longest_dead_first_and_no_more_than_it_is_told(owner_connection):
    plans = [make_plan() for _ in range(3)]
    for seconds, plan in zip((10, 30, 20), plans, strict=True):
        pass_time_to_expiry(owner_connection, plan, seconds)
    assert expire_due(limit=2) == 2
    assert [reread(plan).state for plan in plans] == ["pending", "abandoned", "abandoned"]


@pytest.mark.parametrize("state", ["committing", "unknown"])
def test_a_busy_plan_outlives_its_expiry(owner_connection, state):
    plan = make_plan("unknown")
    if state == "committing":
        plan = make_plan()
        at = clock.now()
        Plan.objects.filter(pk=plan.pk).update(state="committing", claimed_at=at, state_changed_at=at)
    pass_time(owner_connection, plan, 0)
    pass_time_to_expiry(owner_connection, plan, -1)
    Plan.objects.filter(pk=plan.pk, state="committing").update(claimed_at=clock.now())
    time.sleep(1.05)
    assert expire_due() == 0
    assert reread(plan).state == state


def test_the_clock_is_the_databases_own_and_moves_inside_a_transaction():
    with transaction.atomic():
        one = clock.now()
        time.sleep(0.01)
        assert clock.now() - one >= timedelta(milliseconds=9)
    assert one.tzinfo is not None


def test_a_remote_plan_that_needs_nobody_is_not_sent_past_its_expiry(stub_target, owner_connection):
    target = make_target(base_url=stub_target.base_url, approvals=0)
    body = stub_target.new_plan()
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    pass_time_to_expiry(owner_connection, plan)
    presented = Presented("key-1", None, body["plan_token"], body["input_fingerprint"])
    for is_again in (False, True):
        with pytest.raises(PlanExpired) as expired:
            commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented)
        assert ("Idempotent-Replayed" in expired.value.headers) is is_again
    assert stub_target.commits == []
    assert events_of(plan) == EXPIRED
