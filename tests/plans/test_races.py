"""Races over real connections: what must hold however two of them meet, and that the locks are why it holds."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
import pytest
from django.db import DatabaseError
from django.db.models import QuerySet

from audit.kinds import TERMINAL_KINDS
from audit.models import Event
from plans import arrival, clock, commit, feed_sql, plan_sql, registry, schema, strict_json
from plans.abandonment import abandon_plan, apply_commit_writes, end_task, observe_write
from plans.agent_commit import CommitAnswer, Presented, commit_by_agent
from plans.deliveries import Received
from plans.errors import DecisionRefused, IntentTaken, KeyReused, StillCommitting
from plans.expiry import expire_due
from plans.freshness import bring_up_to_date
from plans.intake import receive_plan
from plans.models import Approval, Fence, Plan, Wish
from plans.reconcile import confirm_received, find_out_unknown, mark_overdue
from plans.review import reject_plan
from plans.schema import FedPlan
from plans.states import ENDS, AbandonReason
from tests.hosted_plans import Hosted, approve, make_billing_agent, plan_address, plan_refund
from tests.makers import events_of, feed_data, make_agent, make_person, make_target, receive, reread
from tests.plans.demo.makers import make_customer
from tests.racing import REFUSALS, at_once, has_waiter, in_background, wait_until
from tests.stub_behaviour import Commit, DropAfterApplying, DropAfterReading, Hold, problem
from tests.stub_target import StubTarget

pytestmark = pytest.mark.usefixtures("database")

ROUNDS = 4
chance = random.Random(20260314)  # the same rounds every time, whatever the machine makes of them
COMMITTED = ["plan.received", "plan.approved", "commit.started", "commit.succeeded"]
ABANDONED = ["plan.received", "plan.abandoned", "decision.refused"]
EXPIRED = ["plan.received", "plan.expired", "plan.abandoned", "decision.refused"]


def remote_plan(stub: StubTarget, *, lives: timedelta = timedelta(minutes=10), **data) -> Plan:
    target = make_target(base_url=stub.base_url)
    return receive(make_agent(target).agent, feed_data(target.name, plan=stub.new_plan(lives=lives), **data))


def staggered(act: Callable[[], object], seconds: float) -> Callable[[], object]:
    """The same job, a random while of at most so many seconds after the barrier."""
    pause = chance.uniform(0, seconds)

    def later() -> object:
        time.sleep(pause)
        return act()

    return later


def hosted_plan() -> Plan:
    return plan_refund(f"inv-{Plan.objects.count()}-{time.monotonic_ns()}").plan


def plan_of(kind: str, stub: StubTarget) -> Plan:
    return remote_plan(stub) if kind == "remote" else hosted_plan()


def approving(plan: Plan, person=None) -> Callable[[], Plan]:
    person = person or make_person("reviewer")
    return lambda: approve(plan, person)


def abandoning(plan: Plan) -> Callable[[], list[Plan]]:
    return lambda: abandon_plan(
        agent=plan.agent, target_name=plan.target.name, plan_id=plan.plan_id, reason=AbandonReason.INTENT_CHANGED
    )


def was_written(plan: Plan, stub: StubTarget) -> bool:
    """Whether the world has it, whatever the desk says."""
    if not plan.is_hosted:
        return stub.applications[plan.idempotency_key] == 1
    from plans.demo.models import Refund

    return Refund.objects.filter(invoice_id=plan.action_targets[0].partition("/")[2]).exists()


def assert_it_is_true(plan: Plan, stub: StubTarget) -> Plan:
    """The plan's state, its events and the world tell the same story."""
    done = reread(plan)
    events = events_of(plan)
    assert len([kind for kind in events if kind in TERMINAL_KINDS]) == (1 if done.state in ENDS else 0), events
    assert was_written(done, stub) is (done.state == "committed"), (done.state, events)
    if not plan.is_hosted:
        assert stub.applications[plan.idempotency_key] <= 1
        assert stub.calls_per_key()[plan.idempotency_key] <= 1
    assert not Fence.objects.filter(plan=plan).exists()
    assert not Wish.objects.filter(plan_id=plan.plan_id, agent=plan.agent).exists()
    return done


# --- the races, each of one plan ------------------------------------------------------------------------------------


def twenty_approvals(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)
    people = [make_person("reviewer") for _ in range(2)]
    results = at_once(*(approving(plan, person) for person in people * 10))
    assert assert_it_is_true(plan, stub).state == "committed"
    won = [result for result in results if isinstance(result, Plan)]
    assert len(won) == 1
    assert {(result.status, result.code) for result in results if isinstance(result, DecisionRefused)} <= {
        (409, "committing"),
        (409, "committed"),
        (503, "target-busy"),
    }
    assert Approval.objects.filter(plan=plan).count() == 1
    told = events_of(plan)
    assert [event for event in told if event != "decision.refused"] == COMMITTED
    assert Event.objects.filter(plan_id=plan.plan_id, kind="decision.refused").count() == 19


def approve_against_abandon(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)
    decision, _ = at_once(approving(plan), staggered(abandoning(plan), WINDOW[kind]))
    done = assert_it_is_true(plan, stub)
    assert events_of(plan) == (COMMITTED if done.state == "committed" else ABANDONED)
    assert isinstance(decision, DecisionRefused) is (done.state == "abandoned")
    if isinstance(decision, DecisionRefused):
        assert decision.status == 410


def approve_against_reject(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)
    person = make_person("reviewer")
    digest = schema.shown_digest(plan)

    def rejecting() -> Plan:
        return reject_plan(plan_pk=plan.pk, person=person, seen_digest=digest, reason="Not this one")

    results = at_once(approving(plan), staggered(rejecting, WINDOW[kind]))
    done = assert_it_is_true(plan, stub)
    assert sum(isinstance(result, DecisionRefused) for result in results) == 1
    if done.state == "committed":
        assert [event for event in events_of(plan) if event != "decision.refused"] == COMMITTED
    else:
        assert events_of(plan) == ["plan.received", "plan.rejected", "decision.refused"]


def approve_against_task_end(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)
    ending = staggered(lambda: end_task(agent=plan.agent, task_id=plan.task.task_id), WINDOW[kind])
    at_once(approving(plan), ending)
    done = assert_it_is_true(plan, stub)
    assert events_of(plan) == (COMMITTED if done.state == "committed" else ABANDONED)


def approve_against_supersede(kind: str, stub: StubTarget) -> None:
    """Its agent plans the same intent anew while somebody approves."""
    if kind == "remote":
        plan = remote_plan(stub, intent=f"limit:{time.monotonic_ns()}")
        data = feed_data(plan.target.name, intent=plan.intent, plan=stub.new_plan())

        def again() -> Plan:
            return receive(plan.agent, data)
    else:
        first = plan_refund(f"inv-{time.monotonic_ns()}")
        plan = first.plan
        invoice = plan.action_targets[0].partition("/")[2]

        def again() -> Plan:
            from tests.hosted_plans import plan_hosted

            inputs = {"invoice_id": invoice, "amount_cents": 1_000}
            return plan_hosted("refund", inputs, agent=plan.agent, intent=plan.intent).plan

    decision, newer = at_once(approving(plan), staggered(again, WINDOW[kind]))
    done = assert_it_is_true(plan, stub)
    if done.state == "committed":
        assert isinstance(newer, IntentTaken)
        assert events_of(plan) == COMMITTED
    else:
        assert done.abandonment.reason == "superseded"
        assert done.replaced_by_id == newer.pk
        assert isinstance(decision, DecisionRefused)
        assert reread(newer).state == "pending"


def approve_against_withdrawal(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)
    at_once(approving(plan), staggered(lambda: registry.disable_agent(name=plan.agent.name), WINDOW[kind]))
    done = assert_it_is_true(plan, stub)
    assert events_of(plan) == (COMMITTED if done.state == "committed" else ABANDONED)


def approve_against_dirty_input(kind: str, stub: StubTarget) -> None:
    plan = plan_of(kind, stub)

    def writing() -> list[Plan]:
        return observe_write(
            agent=plan.agent,
            task_id="other",
            target_name=plan.target.name,
            targets=plan.action_targets,
            written_at=None,
        )

    at_once(approving(plan), staggered(writing, WINDOW[kind]))
    done = assert_it_is_true(plan, stub)
    assert events_of(plan) == (COMMITTED if done.state == "committed" else ABANDONED)


WINDOW = {"remote": 0.06, "hosted": 0.02}
"""How long after the barrier the other one may come, in seconds: as long as an approval takes to be written."""

RACES = {
    race.__name__: race
    for race in (
        twenty_approvals,
        approve_against_abandon,
        approve_against_reject,
        approve_against_task_end,
        approve_against_supersede,
        approve_against_withdrawal,
        approve_against_dirty_input,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["remote", "hosted"])
@pytest.mark.parametrize("race", RACES)
def test_r1_r12_o97_of_two_that_meet_one_wins_and_everything_tells_the_same(stub_target, race, kind):
    for _ in range(ROUNDS):
        RACES[race](kind, stub_target)


@pytest.fixture
def lock_free(monkeypatch, owner_connection) -> Iterator[None]:
    """The same product without its row locks, a little slower between a look and a change."""
    read = clock.read

    def slow_read(moment):
        time.sleep(0.03)
        return read(moment)

    monkeypatch.setattr(QuerySet, "select_for_update", lambda self, **_: self._chain())
    monkeypatch.setattr(clock, "read", slow_read)
    monkeypatch.setattr(feed_sql, "LOCK", without_lock(feed_sql.LOCK))
    monkeypatch.setattr(plan_sql, "LOCK", without_lock(plan_sql.LOCK, " OF plan"))
    [(whole,)] = owner_connection.execute("SELECT pg_get_functiondef('plans_receive'::regproc)").fetchall()
    first_change = "    IF task IS NULL THEN"
    slow = without_lock(whole).replace(first_change, f"    PERFORM pg_sleep(0.03);\n{first_change}")
    assert "pg_sleep" in slow
    owner_connection.execute(slow)
    yield
    owner_connection.execute(whole)


def without_lock(statement: str, of: str = "") -> str:
    """The statement, with no row locked."""
    locking = f"FOR NO KEY UPDATE{of}"
    assert locking in statement
    return statement.replace(locking, "")


def is_lost(race: Callable[[], None]) -> bool:
    """True once the race comes out wrong, or ends in an error that is no refusal."""
    try:
        for _ in range(5 * ROUNDS):
            race()
    except (AssertionError, DatabaseError, AttributeError, Plan.MultipleObjectsReturned):
        return True
    return False


@pytest.mark.usefixtures("lock_free")
@pytest.mark.parametrize("race", RACES)
def test_without_the_row_lock_the_same_race_is_lost(stub_target, race):
    assert is_lost(lambda: RACES[race]("hosted", stub_target))


# --- expiry ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["remote", "hosted"])
def test_a_decision_at_the_instant_of_expiry_against_sweeps_and_readers(stub_target, settings, kind):
    settings.PLAN_LIFETIME = timedelta(milliseconds=700)
    seen = set()
    for offset in (-0.06, -0.02, 0.0, 0.03):
        plan = hosted_plan() if kind == "hosted" else remote_plan(stub_target, lives=timedelta(milliseconds=700))
        person = make_person("reviewer")

        def at_the_end(act: Callable[[], object], offset: float = 0.0, plan: Plan = plan) -> Callable[[], object]:
            def wait() -> object:
                time.sleep(max(0.0, (plan.expires_at - clock.now()).total_seconds() + offset))
                return act()

            return wait

        def sweep() -> None:
            for _ in range(10):
                expire_due()

        at_once(
            at_the_end(approving(plan, person), offset),
            at_the_end(sweep, -0.01),
            at_the_end(sweep, 0.0),
            at_the_end(lambda plan=plan: bring_up_to_date(reread(plan)), 0.005),
        )
        expire_due()
        done = assert_it_is_true(plan, stub_target)
        seen.add(done.state)
        if done.state == "committed":
            assert events_of(plan) == COMMITTED
            assert done.commits.get().started_at < done.expires_at
        else:
            told = [
                event for event in events_of(plan) if event not in ("plan.approved", "commit.started", "commit.unsent")
            ]
            assert told in (EXPIRED, EXPIRED[:-1])
            assert done.abandonment.at >= done.expires_at
    assert "abandoned" in seen


# --- intake ---------------------------------------------------------------------------------------------------------


def feeding(agent, data, webhook_id: str = "msg_1") -> Callable[[], object]:
    body = msgspec.json.encode(data)
    return lambda: receive_plan(
        agent=agent,
        data=msgspec.json.decode(body, type=FedPlan),
        tree=strict_json.loads(body),
        delivery=Received(webhook_id, b"hash"),
    )


def ten_feeds_of_one_plan(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    agent = make_agent(target).agent
    data = feed_data(target.name)
    results = at_once(*(feeding(agent, data, f"msg_{place // 2}") for place in range(10)))
    assert len({intake.plan.pk for intake in results}) == 1
    assert sum(intake.is_new for intake in results) == 1
    assert events_of(results[0].plan) == ["plan.received"]


def ten_plans_of_one_intent(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    agent = make_agent(target).agent
    feeds = [feed_data(target.name, intent="refund:1") for _ in range(10)]
    at_once(*(feeding(agent, data, f"msg_{place}") for place, data in enumerate(feeds)))
    plans = Plan.objects.filter(agent=agent)
    assert plans.count() == 10
    [pending] = plans.pending()
    for plan in plans.exclude(pk=pending.pk):
        assert events_of(plan) == ["plan.received", "plan.abandoned"]
        assert plan.abandonment.reason == "superseded"


def while_it_comes_in(feed: Callable[[], object], other: Callable[[], object]) -> None:
    """Do `other` when the plan is inserted and all that is known of it was looked up, but nothing is committed."""
    is_inserted, may_go_on, is_done = threading.Event(), threading.Event(), threading.Event()

    def pause(*_args):
        is_inserted.set()
        assert may_go_on.wait(20)

    def act() -> None:
        try:
            other()
        finally:
            is_done.set()

    with pytest.MonkeyPatch.context() as paused:
        paused.setattr(feed_sql, "receive", lambda _: None)  # the way that has a step to pause at
        paused.setattr(arrival, "reach", pause)
        feeding_it = in_background(feed)
        assert is_inserted.wait(20)
        acting = in_background(act)
        wait_until(lambda: is_done.is_set() or has_waiter())  # through, or waiting for the agent's row
        may_go_on.set()
        feeding_it()
    acting()


def an_abandonment_meets_its_plan(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    agent = make_agent(target).agent
    data = feed_data(target.name)

    def abandoning_it() -> list[Plan]:
        return abandon_plan(
            agent=agent, target_name=target.name, plan_id=data["plan"]["plan_id"], reason=AbandonReason.TASK_ENDED
        )

    at_once(feeding(agent, data), staggered(abandoning_it, 0.03))
    plan = Plan.objects.get(agent=agent)
    assert plan.state == "abandoned"
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert not Wish.objects.exists()


def an_abandonment_overtakes_its_plan(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    agent = make_agent(target).agent
    data = feed_data(target.name)

    def abandoning_it() -> list[Plan]:
        return abandon_plan(
            agent=agent, target_name=target.name, plan_id=data["plan"]["plan_id"], reason=AbandonReason.TASK_ENDED
        )

    while_it_comes_in(feeding(agent, data), abandoning_it)
    plan = Plan.objects.get(agent=agent)
    assert plan.state == "abandoned"
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert not Wish.objects.exists()


def a_task_ends_while_its_plan_comes_in(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    agent = make_agent(target).agent
    before, data = feed_data(target.name), feed_data(target.name)
    data["task_id"] = before["task_id"]
    receive(agent, before)
    while_it_comes_in(feeding(agent, data), lambda: end_task(agent=agent, task_id=data["task_id"]))
    plan = Plan.objects.get(agent=agent, plan_id=data["plan"]["plan_id"])
    assert plan.abandonment.reason == "task_ended"
    assert events_of(plan) == ["plan.received", "plan.abandoned"]


INTAKE_RACES = {
    race.__name__: race
    for race in (
        ten_feeds_of_one_plan,
        ten_plans_of_one_intent,
        an_abandonment_meets_its_plan,
        an_abandonment_overtakes_its_plan,
        a_task_ends_while_its_plan_comes_in,
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("race", INTAKE_RACES)
def test_r15_w79_what_arrives_at_once_is_recorded_once_and_in_an_order(stub_target, race):
    for _ in range(ROUNDS):
        INTAKE_RACES[race](stub_target)


@pytest.mark.usefixtures("lock_free")
@pytest.mark.parametrize("race", INTAKE_RACES)
def test_without_the_agents_lock_the_same_race_is_lost(stub_target, race):
    assert is_lost(lambda: INTAKE_RACES[race](stub_target))


def test_two_agents_with_one_token_at_one_target_are_two_plans_of_which_one_is_refused(stub_target):
    target = make_target(base_url=stub_target.base_url)
    agents = [make_agent(target).agent for _ in range(4)]
    results = at_once(*(feeding(agent, feed_data(target.name, plan={"plan_token": "pt-same"})) for agent in agents))
    refused = [result for result in results if isinstance(result, Exception)]
    assert [refusal.slug for refusal in refused] == ["token-taken"] * 3
    assert Plan.objects.count() == 1


# --- fences ---------------------------------------------------------------------------------------------------------


def two_confirmed_plans_on_one_record(stub: StubTarget) -> None:
    target = make_target(base_url=stub.base_url)
    plans = [receive(make_agent(target).agent, feed_data(target.name, plan=stub.new_plan())) for _ in range(2)]
    held = Hold(then=DropAfterReading())
    stub.script(held, held)
    people = [make_person("reviewer") for _ in plans]
    waiting = in_background(
        lambda: at_once(*(approving(plan, person) for plan, person in zip(plans, people, strict=True)))
    )
    assert held.reached.wait(10)
    time.sleep(0.3)
    held.until.set()
    results = waiting()
    assert sum(isinstance(result, DecisionRefused) for result in results) == 1
    assert sorted(reread(plan).state for plan in plans) == ["pending", "unknown"]
    assert len({call.key for call in stub.commits}) == 1
    [refused] = [result for result in results if isinstance(result, DecisionRefused)]
    assert refused.status == 423


def test_of_two_agents_that_write_to_one_record_one_is_fenced_until_the_other_is_known(stub_target):
    two_confirmed_plans_on_one_record(stub_target)


def test_without_the_fence_both_would_write(stub_target, monkeypatch):
    monkeypatch.setattr(commit, "_take_fence", lambda plan: None)
    with pytest.raises(AssertionError):
        two_confirmed_plans_on_one_record(stub_target)


def test_fences_are_taken_in_one_order_so_that_crossed_plans_do_not_block_each_other(stub_target):
    target = make_target(base_url=stub_target.base_url)
    names = [f"ledger/{letter}" for letter in "ABCDEF"]
    plans = []
    for order in (names, names[::-1], names[2:] + names[:2]):
        actions = [{"op": "update", "target": name, "field": "limit", "from": 1, "to": 2} for name in order]
        body = stub_target.new_plan(actions=actions)
        plans.append(receive(make_agent(target).agent, feed_data(target.name, plan=body)))
    at_once(*(approving(plan) for plan in plans))
    for plan in plans:
        if reread(plan).state == "pending":  # fenced then; nobody is in the way now
            approve(plan)
        assert assert_it_is_true(plan, stub_target).state == "committed"


def test_two_hosted_plans_on_one_record_at_once_are_one_commit_and_one_conflict():
    for _ in range(ROUNDS):
        name = f"c-{time.monotonic_ns()}"
        make_customer(name)
        agents = [make_billing_agent().agent for _ in range(3)]
        plans = [plan_address(name, f"{place} Street", agent=agent) for place, agent in enumerate(agents, 1)]
        results = at_once(*(lambda hosted=hosted: hosted.commit() for hosted in plans))
        assert sorted(type(result).__name__ for result in results) == [
            "CommitAnswer",
            "PlanConflicted",
            "PlanConflicted",
        ]
        assert sorted(reread(hosted.plan).state for hosted in plans) == ["committed", "conflicted", "conflicted"]


# --- keys -----------------------------------------------------------------------------------------------------------


def test_ten_commits_under_one_key_write_once_and_answer_alike():
    hosted = plan_address()
    results = at_once(*[hosted.commit] * 10)
    assert all(isinstance(result, CommitAnswer) for result in results)
    assert sum(not result.is_replayed for result in results) == 1
    assert events_of(hosted.plan) == [
        "plan.received",
        "commit.started",
        "commit.succeeded",
        *["commit.replayed"] * 9,
    ]


def test_i61_one_key_on_two_plans_of_an_agent_is_bound_once_and_on_two_agents_twice():
    agent = make_billing_agent().agent
    for _ in range(ROUNDS):
        stamp = time.monotonic_ns()
        plans = [plan_address(f"{stamp}-{place}", agent=agent) for place in range(2)]
        results = at_once(*(lambda hosted=hosted, stamp=stamp: hosted.commit(f"k-{stamp}") for hosted in plans))
        assert sorted(type(result).__name__ for result in results) == ["CommitAnswer", "KeyReused"]
        assert sorted(reread(hosted.plan).state for hosted in plans) == ["committed", "pending"]
        assert any(isinstance(result, KeyReused) for result in results)
    others = [plan_address(f"other-{place}") for place in range(2)]
    assert all(
        isinstance(result, CommitAnswer)
        for result in at_once(*(lambda hosted=hosted: hosted.commit("k") for hosted in others))
    )


def presented(plan: dict, key: str) -> Presented:
    return Presented(key, None, plan["plan_token"], plan["input_fingerprint"])


def test_ten_commits_of_a_remote_plan_under_ten_keys_send_once(stub_target):
    target = make_target(base_url=stub_target.base_url, approvals=0)
    body = stub_target.new_plan()
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    results = at_once(
        *(
            lambda place=place: commit_by_agent(
                agent=plan.agent, operation=plan.operation, presented=presented(body, f"key-{place}")
            )
            for place in range(10)
        )
    )
    assert {type(result) for result in results} <= {CommitAnswer, StillCommitting}, results
    assert sum(isinstance(result, CommitAnswer) and not result.is_replayed for result in results) == 1
    assert stub_target.calls_per_key() == {plan.idempotency_key: 1}
    assert_it_is_true(plan, stub_target)


def test_who_waits_for_somebody_elses_attempt_stops_after_the_waiting_time(stub_target, settings):
    settings.LOCK_WAIT = timedelta(milliseconds=300)
    target = make_target(base_url=stub_target.base_url, approvals=0)
    body = stub_target.new_plan()
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    held = Hold()
    stub_target.script(held)

    def committing(key: str) -> CommitAnswer:
        return commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented(body, key))

    first = in_background(lambda: committing("key-1"))
    assert held.reached.wait(10)
    for key in ("key-1", "key-2"):
        started = time.monotonic()
        with pytest.raises(StillCommitting):
            committing(key)
        assert 0.3 <= time.monotonic() - started < 3
    held.until.set()
    assert first().plan.state == "committed"
    assert committing("key-1").is_replayed
    assert len(stub_target.commits) == 1


# --- one that is under way, and all the others ------------------------------------------------------------------------


def test_r18_r19_a_commit_under_way_is_named_to_others_and_holds_up_nobody_else(stub_target):
    plan, other = remote_plan(stub_target), remote_plan(stub_target)
    held = Hold()
    stub_target.script(held)
    first = in_background(approving(plan, make_person("reviewer", name="Rita")))
    assert held.reached.wait(10)
    started = time.monotonic()
    with pytest.raises(DecisionRefused, match=r"^This plan is being committed by Rita since .+Z\.$") as refused:
        approve(plan)
    assert refused.value.status == 409
    assert bring_up_to_date(reread(plan)).state == "committing"
    assert approve(other).state == "committed"
    assert receive(plan.agent, feed_data(plan.target.name)).state == "pending"
    abandoning(plan)()
    end_task(agent=plan.agent, task_id=plan.task.task_id)
    assert expire_due() == 0
    assert mark_overdue() == 0
    assert time.monotonic() - started < 5
    assert Wish.objects.filter(plan_id=plan.plan_id).count() == 1
    held.until.set()
    assert first().state == "committed"
    assert events_of(plan) == [
        "plan.received",
        "plan.approved",
        "commit.started",
        "decision.refused",
        "commit.succeeded",
    ]
    assert not Wish.objects.exists()


@pytest.mark.slow
def test_crosswise_dirtying_ends_and_marks_without_a_deadlock(stub_target):
    target = make_target(base_url=stub_target.base_url)
    agents = [make_agent(target).agent for _ in range(3)]
    names = [f"ledger/{letter}" for letter in "ABCD"]

    def feed(agent, order):
        actions = [{"op": "update", "target": name, "field": "limit", "from": 1, "to": 2} for name in order]
        return receive(agent, feed_data(target.name, plan=stub_target.new_plan(actions=actions)))

    for _ in range(ROUNDS):
        plans = [feed(agent, order) for order in (names, names[::-1]) for agent in agents]
        at_once(
            *(
                lambda agent=agent, order=order: observe_write(
                    agent=agent, task_id="t", target_name=target.name, targets=order, written_at=None
                )
                for agent, order in zip(agents, itertools.cycle((names, names[::-1])))
            ),
            approving(plans[0]),
            approving(plans[4]),
            apply_commit_writes,
            apply_commit_writes,
        )
        apply_commit_writes()
        for plan in plans:
            done = reread(plan)
            assert done.state in ("abandoned", "committed"), events_of(plan)
            assert len([kind for kind in events_of(plan) if kind in TERMINAL_KINDS]) == 1
            assert events_of(plan).count("plan.marked") == done.mark_count


@pytest.mark.slow
def test_everything_at_once_leaves_every_plan_with_one_true_story(stub_target):
    """Three seconds of everybody doing everything to a few plans; then the clock has the last word."""
    targets = [make_target(base_url=stub_target.base_url, approvals=approvals) for approvals in (0, 1, 2)]
    agents = [make_agent(*targets, *registry.ensure_hosted_targets()).agent for _ in range(2)]
    people = [make_person("reviewer") for _ in range(3)]
    customers = [f"chaos-{place}" for place in range(3)]
    for name in customers:
        make_customer(name)
    fed: list[tuple[Plan, dict]] = []
    hosted: list[Hosted] = []
    stub_target.otherwise = Commit()
    until = time.monotonic() + 3

    def behave(dice: random.Random) -> None:
        agent, target, name = dice.choice(agents), dice.choice(targets), f"ledger/{dice.choice('ABC')}"
        plan, body = dice.choice(fed) if fed else (None, None)
        match dice.randrange(12):
            case 0 | 1:
                action = {"op": "update", "target": name, "field": "limit", "from": 1, "to": dice.random()}
                body = stub_target.new_plan(actions=[action], lives=timedelta(seconds=dice.choice((0.3, 2, 60))))
                intent = dice.choice((..., "chaos:1", "chaos:2"))
                task_id = dice.choice(("task-a", "task-b", f"task-{dice.random()}".replace(".", "")))
                fed.append((receive(agent, feed_data(target.name, plan=body, intent=intent, task_id=task_id)), body))
            case 2:
                hosted.append(plan_address(dice.choice(customers), f"{dice.random()} Street", agent=agent))
            case 3 if hosted:
                dice.choice(hosted).commit(f"key-{dice.randrange(50)}")
            case 4 | 5 | 6 if plan:
                if dice.random() < 0.2:
                    stub_target.script(
                        dice.choice((DropAfterApplying(), DropAfterReading(), problem(503), problem(409)))
                    )
                approve(plan, dice.choice(people))
            case 7 if plan:
                commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented(body, plan.plan_id))
            case 8 if plan and dice.random() < 0.3:
                abandoning(plan)()
            case 9 if plan and dice.random() < 0.3:
                reject_plan(
                    plan_pk=plan.pk,
                    person=dice.choice(people),
                    seen_digest=schema.shown_digest(reread(plan)),
                    reason="No",
                )
            case 10:
                observe_write(agent=agent, task_id="t", target_name=target.name, targets=[name], written_at=None)
            case _:
                for sweep in (expire_due, find_out_unknown, apply_commit_writes, confirm_received):
                    sweep()

    def live(seed: int) -> int:
        dice, done = random.Random(seed), 0
        while time.monotonic() < until:
            with contextlib.suppress(*REFUSALS):
                behave(dice)
            done += 1
        return done

    assert sum(at_once(*(lambda seed=seed: live(seed) for seed in [chance.random() for _ in range(6)]))) > 20
    assert all(count == 1 for count in stub_target.applications.values())
    for plan in Plan.objects.all():
        told = events_of(plan)
        assert len([kind for kind in told if kind in TERMINAL_KINDS]) == (1 if plan.state in ENDS else 0), told
        assert told[0] == "plan.received"
        assert plan.event_count == len(told)
        if plan.state == "committed" and not plan.target.is_hosted:
            assert stub_target.applications[plan.idempotency_key] == 1
        if plan.state in ("pending", "rejected", "abandoned"):
            assert stub_target.applications[plan.idempotency_key] == 0


def test_a_race_that_was_not_handled_fails_its_test():
    barrier = threading.Event()

    def fail() -> None:
        barrier.set()
        raise ValueError("not a refusal")

    with pytest.raises(ValueError, match="not a refusal"):
        at_once(fail, barrier.wait)
    assert isinstance(at_once(lambda: (_ for _ in ()).throw(StillCommitting(1)))[0], StillCommitting)
