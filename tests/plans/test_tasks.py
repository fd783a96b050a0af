"""The clock: sweeps through a real worker, twice at once, late, and what works while there is no clock at all."""

import inspect
import time

import pytest

from plans import clock, tasks
from plans.abandonment import abandon_plan
from plans.models import ObservedWrite, Plan, Wish
from plans.states import AbandonReason
from reviewer.celery import app
from tests.fixtures import Site
from tests.hosted_plans import approve, plan_address
from tests.makers import events_of, feed_data, make_agent, make_person, make_plan, make_target, receive, reread
from tests.plans.http import Caller
from tests.racing import wait_until
from tests.reviewer.pages import approval, client_of, url_of
from tests.stub_behaviour import DropAfterApplying
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

SWEEPS = {
    "plans.sweep_expiry": tasks.sweep_expiry,
    "plans.mark_overdue": tasks.mark_overdue,
    "plans.find_out_unknown": tasks.find_out,
    "plans.confirm_received": tasks.confirm,
    "plans.deliver_callbacks": tasks.deliver,
    "plans.sweep_abandonments": tasks.sweep_abandonments,
}


def plan_at(stub: StubTarget, **data) -> Plan:
    target = make_target(base_url=stub.base_url)
    return receive(make_agent(target).agent, feed_data(target.name, plan=stub.new_plan(), **data))


def send(name: str, times: int = 2) -> None:
    """Put the sweep on the real queue, so often at once."""
    for _ in range(times):
        SWEEPS[name].delay()  # type: ignore[attr-defined]


def test_every_sweep_is_on_the_clock_and_none_takes_an_argument():
    app.loader.import_default_modules()
    known = {name for name in app.tasks if name.startswith("plans.")}
    assert known == set(SWEEPS)
    timed = {entry["task"]: entry for entry in app.conf.beat_schedule.values()}
    for name, sweep in SWEEPS.items():
        assert not inspect.signature(sweep.run).parameters, name  # type: ignore[attr-defined]
        # CONTRACT 2: what the sweeps record, they record within a minute.
        assert timed[name]["schedule"] <= 30
        assert not timed[name].get("args")
        assert not timed[name].get("kwargs")


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_over_nothing_does_nothing_and_may_be_repeated(name):
    before = events_of(make_plan())
    for _ in range(2):
        assert SWEEPS[name]() == 0
    assert before == ["plan.received"]


@pytest.mark.slow
def test_the_worker_sweeps_two_of_each_at_once_and_everything_is_told_once(
    celery_worker, stub_target, owner_connection, monkeypatch
):
    def die(call):
        raise SystemExit

    expired = plan_at(stub_target)
    stub_target.script(DropAfterApplying())
    unknown = plan_at(stub_target)
    assert approve(unknown).state == "unknown"
    overdue = plan_at(stub_target)
    with monkeypatch.context() as killed:
        killed.setattr("plans.review.carry_out", die)
        with pytest.raises(SystemExit):
            approve(overdue)
    committed = plan_at(stub_target)
    assert approve(committed).state == "committed"
    dirtied = receive(
        committed.agent,
        feed_data(committed.target.name, created_at=committed.created_at.isoformat(), plan=stub_target.new_plan()),
    )
    assert dirtied.state == "abandoned"
    Wish.objects.create(
        agent=expired.agent, target=expired.target, plan_id="plan_old", reason="task_ended",
        wished_at=clock.now().replace(year=2020),
    )  # fmt: skip
    pass_time_to_expiry(owner_connection, expired)
    pass_time(owner_connection, overdue, 46)
    Plan.objects.filter(pk=unknown.pk).update(next_check_at=clock.now())
    for name in SWEEPS:
        send(name)
    wait_until(lambda: reread(expired).state == "abandoned", what="the expiry")
    wait_until(lambda: reread(overdue).state == "unknown", what="the overdue claim")
    wait_until(lambda: reread(unknown).state == "committed", what="finding out")
    wait_until(lambda: not Wish.objects.exists(), what="forgetting")
    wait_until(lambda: not ObservedWrite.objects.filter(plan=committed, is_applied=False).exists(), what="the write")
    assert events_of(expired) == ["plan.received", "plan.expired", "plan.abandoned"]
    assert events_of(overdue) == ["plan.received", "plan.approved", "commit.started", "commit.unknown"]
    assert events_of(unknown) == [
        "plan.received",
        "plan.approved",
        "commit.started",
        "commit.unknown",
        "commit.resolved",
        "commit.succeeded",
    ]
    assert stub_target.applications[unknown.idempotency_key] == 1


@pytest.mark.slow
def test_the_worker_confirms_what_agents_fed(celery_worker, stub_target):
    plan, other = plan_at(stub_target), plan_at(stub_target)
    stub_target.alter(other.plan_id, input_fingerprint="sha256:other")
    send("plans.confirm_received")
    wait_until(lambda: reread(plan).has_confirmed_actions and reread(other).state == "refused")
    assert events_of(plan) == ["plan.received"]
    assert events_of(other) == ["plan.received", "plan.refused"]


def test_a_sweep_whose_target_hangs_leaves_the_other_sweeps_alone(stub_target, owner_connection):
    stub_target.refuse_connections()
    waiting, dead = plan_at(stub_target), plan_at(stub_target)
    pass_time_to_expiry(owner_connection, dead)
    started = time.monotonic()
    tasks.confirm()
    assert tasks.sweep_expiry() == 1
    assert time.monotonic() - started < 5
    assert (reread(waiting).state, reread(dead).state) == ("pending", "abandoned")


# --- without Celery and Redis ---------------------------------------------------------------------------------------


@pytest.fixture
def site_without_a_clock(make_site) -> Site:
    """A site whose Redis refuses every connection; no worker runs."""
    return make_site(REDIS_URL="redis://127.0.0.1:9/0")


@pytest.mark.slow
def test_x21_without_redis_and_worker_agents_feed_read_commit_and_people_decide(
    site_without_a_clock, stub_target, owner_connection
):
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target)
    caller = Caller(site_without_a_clock, made, target)
    bodies = [stub_target.new_plan() for _ in range(4)]
    for body in bodies:
        assert caller.feed(feed_data(target.name, plan=body)).status == 201
    approved, rejected, dead, given_up = (Plan.objects.get(plan_id=body["plan_id"]) for body in bodies)

    # A person rejects, and is refused what is dead.
    person = make_person("reviewer")
    assert decide(site_without_a_clock, person, rejected, "reject", reason="Not this one").status == 200
    pass_time_to_expiry(owner_connection, dead)
    assert decide(site_without_a_clock, person, dead, "approve").status == 410
    assert events_of(dead) == ["plan.received", "plan.expired", "plan.abandoned", "decision.refused"]

    # An agent lists and gives up.
    assert caller.get("/api/v1/plans").status == 200
    reason = {"reason": "intent_changed"}
    assert caller.post(f"/api/v1/plans/{given_up.plan_id}/abandon", reason).status == 200
    assert reread(given_up).state == "abandoned"

    # A person approves; a commit is a write of its agent, so it comes last on this record.
    assert decide(site_without_a_clock, person, approved, "approve").status == 200
    assert reread(approved).state == "committed"
    assert caller.get(f"/api/v1/plans/{approved.plan_id}").json["state"] == "committed"
    assert stub_target.applied == 1


def decide(site: Site, person, plan: Plan, action: str, **fields: str):
    """Post one of the plan page's forms, as a signed-in browser without JavaScript does."""
    session = client_of(person).cookies["plandesk_session"].value
    token = "x" * 32
    return site.http.request(
        "POST",
        site.url + url_of(plan, action),
        fields={**approval(plan, **fields), "csrfmiddlewaretoken": token},
        encode_multipart=False,
        headers={"Cookie": f"plandesk_session={session}; plandesk_csrf={token}"},
        redirect=False,
    )


def test_hosted_plans_need_no_clock_either(owner_connection):
    alive, dead = plan_address("77"), plan_address("78")
    assert alive.commit().plan.state == "committed"
    pass_time_to_expiry(owner_connection, dead.plan)
    abandon_plan(
        agent=dead.plan.agent,
        target_name="billing",
        plan_id=dead.plan.plan_id,
        reason=AbandonReason.INTENT_CHANGED,
    )
    assert events_of(dead.plan) == ["plan.received", "plan.expired", "plan.abandoned"]
