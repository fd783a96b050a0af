"""What an agent gives up: wishes that wait, tasks that end, inputs that were dirtied, marks for others."""

from datetime import timedelta

import pytest

from audit.models import Event
from plans import clock
from plans.abandonment import (
    abandon_plan,
    apply_commit_writes,
    apply_write_of,
    end_task,
    forget_old,
    observe_write,
)
from plans.errors import DecisionRefused, UnknownTarget
from plans.instants import format_instant_exact
from plans.models import Agent, ObservedWrite, Plan, Target, Wish
from plans.reconcile import find_out, mark_overdue
from plans.states import AbandonReason
from tests.hosted_plans import approve, make_billing_agent, plan_address, plan_refund
from tests.makers import events_of, feed_data, make_agent, make_plan, make_target, receive, reread
from tests.racing import at_once, holding, in_background, wait_for_waiter
from tests.stub_behaviour import DropAfterReading, Hold, conflict
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")


def abandon(agent: Agent, target: Target, plan_id: str, reason: str = "intent_changed") -> list[Plan]:
    return abandon_plan(agent=agent, target_name=target.name, plan_id=plan_id, reason=AbandonReason(reason))


def abandon_it(plan: Plan, reason: str = "intent_changed") -> list[Plan]:
    return abandon(plan.agent, plan.target, plan.plan_id, reason)


def write(agent: Agent, target: Target, *touched: str, at=None, task_id: str = "task-w") -> list[Plan]:
    return observe_write(agent=agent, task_id=task_id, target_name=target.name, targets=touched, written_at=at)


def plan_at(stub: StubTarget, agent: Agent | None = None, target: Target | None = None, **data) -> Plan:
    target = target or make_target(base_url=stub.base_url)
    agent = agent or make_agent(target).agent
    return receive(agent, feed_data(target.name, plan=stub.new_plan(), **data))


# --- one plan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["task_ended", "intent_changed", "inputs_changed"])
def test_a_pending_plan_is_given_up_once_for_the_reason_that_came_first(reason):
    plan = make_plan()
    assert abandon_it(plan, reason)[0].state == "abandoned"
    for other in ("task_ended", "intent_changed", "inputs_changed"):
        assert abandon_it(plan, other)[0].state == "abandoned"
    assert reread(plan).abandonment.reason == reason
    assert reread(plan).token_sealed is None
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert not Wish.objects.exists()


def test_w79_an_abandonment_that_overtakes_its_plan_waits_for_it():
    target = make_target()
    agent = make_agent(target).agent
    data = feed_data(target.name)
    for reason in ("intent_changed", "task_ended"):
        assert abandon(agent, target, data["plan"]["plan_id"], reason) == []
    assert Wish.objects.count() == 1
    plan = receive(agent, data)
    assert (plan.state, plan.abandonment.reason) == ("abandoned", "intent_changed")
    assert plan.token_sealed is None
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert not Wish.objects.exists()


def test_a_wish_of_one_agent_is_no_wish_of_another():
    target = make_target()
    one, other = make_agent(target).agent, make_agent(target).agent
    data = feed_data(target.name)
    abandon(one, target, data["plan"]["plan_id"])
    assert receive(other, data).state == "pending"


def test_a_target_that_is_not_the_agents_is_unknown():
    plan = make_plan()
    with pytest.raises(UnknownTarget):
        abandon_plan(agent=plan.agent, target_name="nowhere", plan_id=plan.plan_id, reason=AbandonReason.INTENT_CHANGED)
    with pytest.raises(UnknownTarget):
        write(make_agent().agent, plan.target, "ledger/ACC-104")
    assert events_of(plan) == ["plan.received"]
    assert not Wish.objects.exists()
    assert not ObservedWrite.objects.exists()


def test_a_wish_is_kept_for_seven_days_and_then_forgotten(owner_connection):
    target = make_target()
    agent = make_agent(target).agent
    kept, old = feed_data(target.name), feed_data(target.name)
    for data in (kept, old):
        abandon(agent, target, data["plan"]["plan_id"])
    for days, data in ((6.9, kept), (7.1, old)):
        Wish.objects.filter(plan_id=data["plan"]["plan_id"]).update(wished_at=clock.now() - timedelta(days=days))
    # Forgotten by its age, whether or not a sweep has deleted it.
    assert receive(agent, old).state == "pending"
    assert receive(agent, kept).state == "abandoned"
    assert forget_old() == 1
    assert not Wish.objects.exists()


# --- busy plans keep the wish -----------------------------------------------------------------------------------------


def test_a_wish_during_a_commit_does_nothing_where_the_commit_decides(stub_target):
    for behaviour, state in ((Hold(), "committed"), (Hold(then=conflict()), "conflicted")):
        plan = plan_at(stub_target)
        stub_target.script(behaviour)
        approving = in_background(lambda plan=plan: approve(plan))
        assert behaviour.reached.wait(10)
        assert abandon_it(plan)[0].state == "committing"
        assert Wish.objects.filter(plan_id=plan.plan_id).count() == 1
        behaviour.until.set()
        assert approving().state == state
        assert not Wish.objects.exists()
        assert "plan.abandoned" not in events_of(plan)


@pytest.mark.parametrize("give_up", ["abandonment", "task end", "dirty input"])
def test_a_wish_during_a_commit_applies_where_nothing_was_sent(stub_target, monkeypatch, give_up):
    """The connection is refused, so the plan falls back to pending, and the wish is waiting there."""
    from plans import commit
    from plans.targets.base import Unsent

    plan = plan_at(stub_target)

    class Refusing:
        def commit(self, *_args, **_options):
            match give_up:
                case "abandonment":
                    abandon_it(plan)
                case "task end":
                    end_task(agent=plan.agent, task_id=plan.task.task_id)
                case _:
                    write(plan.agent, plan.target, "ledger/ACC-104")
            return Unsent("The connection was refused.")

    monkeypatch.setattr(commit, "remote_target", Refusing)
    result = approve(plan)
    assert result.state == "abandoned"
    reasons = {"abandonment": "intent_changed", "task end": "task_ended", "dirty input": "inputs_changed"}
    assert reread(plan).abandonment.reason == reasons[give_up]
    assert events_of(plan) == [
        "plan.received",
        "plan.approved",
        "commit.started",
        "commit.unsent",
        "plan.abandoned",
    ]
    assert not Wish.objects.exists()


def test_an_unknown_plan_is_never_given_up_and_its_wish_ends_with_it(stub_target):
    plan = plan_at(stub_target)
    stub_target.script(DropAfterReading())
    assert approve(plan).state == "unknown"
    assert abandon_it(plan)[0].state == "unknown"
    assert [one.state for one in end_task(agent=plan.agent, task_id=plan.task.task_id)] == ["unknown"]
    assert write(plan.agent, plan.target, "ledger/ACC-104") == []
    assert Wish.objects.get().reason == "intent_changed"
    assert events_of(plan)[-1] == "commit.unknown"
    assert find_out(plan_pk=plan.pk).state == "committed"
    assert not Wish.objects.exists()


def test_an_abandonment_waits_for_a_hosted_commit_and_then_finds_it_done(settings):
    hosted = plan_address()
    with holding("SELECT 1 FROM demo_customer FOR UPDATE"):
        committing = in_background(hosted.commit)
        wait_for_waiter()
        giving_up = in_background(lambda: abandon_it(hosted.plan))
    assert committing().plan.state == "committed"
    assert giving_up()[0].state == "committed"
    assert not Wish.objects.exists()


# --- tasks ----------------------------------------------------------------------------------------------------------


def test_o89_when_a_task_ends_its_pending_plans_end_and_approving_them_is_refused():
    target = make_target()
    agent = make_agent(target).agent
    plans = [receive(agent, feed_data(target.name, task_id="task-1")) for _ in range(3)]
    other = receive(agent, feed_data(target.name, task_id="task-2"))
    ended = end_task(agent=agent, task_id="task-1")
    assert [(plan.pk, plan.state) for plan in ended] == [(plan.pk, "abandoned") for plan in plans]
    assert reread(other).state == "pending"
    for plan in plans:
        assert events_of(plan) == ["plan.received", "plan.abandoned"]
        with pytest.raises(DecisionRefused, match="its task ended") as refused:
            approve(plan)
        assert refused.value.status == 410
    assert end_task(agent=agent, task_id="task-1") == []
    assert Event.objects.filter(kind="task.ended", task_id="task-1").count() == 1


def test_a_plan_that_arrives_after_its_task_ended_is_recorded_and_at_once_abandoned():
    target = make_target()
    agent = make_agent(target).agent
    assert end_task(agent=agent, task_id="task-1") == []
    plan = receive(agent, feed_data(target.name, task_id="task-1"))
    assert (plan.state, plan.abandonment.reason) == ("abandoned", "task_ended")
    assert events_of(plan) == ["plan.received", "plan.abandoned"]


def test_a_task_of_another_agent_with_the_same_id_goes_on():
    target = make_target()
    one, other = make_agent(target).agent, make_agent(target).agent
    plans = [receive(agent, feed_data(target.name, task_id="task-1")) for agent in (one, other)]
    end_task(agent=one, task_id="task-1")
    assert [reread(plan).state for plan in plans] == ["abandoned", "pending"]


def test_a_task_that_ends_in_ten_places_at_once_ends_once():
    plan = make_plan()
    at_once(*[lambda: end_task(agent=plan.agent, task_id=plan.task.task_id)] * 10)
    assert events_of(plan) == ["plan.received", "plan.abandoned"]
    assert Event.objects.filter(kind="task.ended").count() == 1


# --- dirty inputs ---------------------------------------------------------------------------------------------------


def test_a_write_ends_the_writers_own_older_pending_plans_and_marks_those_of_others():
    target, elsewhere = make_target(), make_target()
    one, other = make_agent(target, elsewhere).agent, make_agent(target).agent
    own, foreign = receive(one, feed_data(target.name)), receive(other, feed_data(target.name))
    apart = receive(one, feed_data(elsewhere.name))
    action = {"op": "update", "target": "ledger/ACC-105", "field": "limit", "from": 1, "to": 2}
    untouched = receive(one, feed_data(target.name, plan={"actions": [action]}))
    ended = write(one, target, "ledger/ACC-104", "ledger/ACC-999")
    assert [plan.pk for plan in ended] == [own.pk]
    assert reread(own).abandonment.reason == "inputs_changed"
    assert events_of(own) == ["plan.received", "plan.abandoned"]
    assert (reread(foreign).state, reread(foreign).mark_count) == ("pending", 1)
    assert events_of(foreign) == ["plan.received", "plan.marked"]
    assert [reread(plan).state for plan in (apart, untouched)] == ["pending", "pending"]
    [event] = Event.objects.filter(kind="write.observed")
    assert (event.agent, event.target, event.task_id) == (one.name, target.name, "task-w")


def test_a_decision_on_a_plan_as_it_was_before_it_was_marked_is_refused():
    from plans import schema
    from plans.review import reject_plan
    from tests.makers import make_person

    plan = make_plan()
    digest = schema.shown_digest(reread(plan))
    write(make_agent(plan.target).agent, plan.target, "ledger/ACC-104")
    with pytest.raises(DecisionRefused) as refused:
        reject_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=digest, reason="No")
    assert refused.value.code == "out-of-date"


def test_a_target_name_is_compared_as_text_and_never_as_a_pattern():
    target = make_target()
    agent = make_agent(target).agent
    action = {"op": "update", "target": "ledger/ACC-104", "field": "x", "from": 1, "to": 2}
    plan = receive(agent, feed_data(target.name, plan={"actions": [action]}))
    for name in ("ledger/acc-104", "ledger/%", "ledger/ACC-10", "ledger/ACC-104 ", "{ledger/ACC-104}", '"', "\\"):
        assert write(agent, target, name) == []
    assert reread(plan).state == "pending"


def test_a_write_from_before_the_plan_is_not_held_against_it():
    target = make_target()
    agent = make_agent(target).agent
    plan = receive(agent, feed_data(target.name))
    assert write(agent, target, "ledger/ACC-104", at=plan.created_at - timedelta(microseconds=1)) == []
    assert reread(plan).state == "pending"
    assert write(agent, target, "ledger/ACC-104", at=plan.created_at)[0].pk == plan.pk


def test_a_plan_that_was_made_before_a_write_and_arrives_after_it_is_dead_on_arrival():
    target = make_target()
    one, other = make_agent(target).agent, make_agent(target).agent
    made_at = clock.now()
    write(one, target, "ledger/ACC-104")
    late = receive(one, feed_data(target.name, created_at=format_instant_exact(made_at)))
    assert (late.state, late.abandonment.reason) == ("abandoned", "inputs_changed")
    marked = receive(other, feed_data(target.name, created_at=format_instant_exact(made_at)))
    assert (marked.state, marked.mark_count) == ("pending", 1)
    assert receive(one, feed_data(target.name)).state == "pending"


# --- a commit is its agent's write ------------------------------------------------------------------------------------


def test_a_commit_ends_its_agents_older_plans_on_the_same_record_and_marks_those_of_others(stub_target):
    target = make_target(base_url=stub_target.base_url)
    one, other = make_agent(target).agent, make_agent(target).agent
    committed, own, foreign = (plan_at(stub_target, agent, target) for agent in (one, one, other))
    assert approve(committed).state == "committed"
    assert reread(own).state == "pending"  # a decision locks one plan; what it means for others comes after it
    assert sum(at_once(*[apply_commit_writes] * 3)) == 1
    assert reread(own).abandonment.reason == "inputs_changed"
    assert reread(foreign).mark_count == 1
    assert events_of(foreign) == ["plan.received", "plan.marked"]
    assert reread(committed).state == "committed"
    newer = plan_at(stub_target, one, target)
    assert apply_commit_writes() == 0
    apply_write_of(committed)
    assert reread(newer).state == "pending"


def test_a_hosted_commit_does_so_too():
    agent = make_billing_agent().agent
    one, other = plan_address("77", "1 First", agent=agent), plan_address("77", "2 Second", agent=agent)
    apart = plan_refund(agent=agent)
    answer = one.commit()
    apply_write_of(answer.plan)
    assert reread(other.plan).abandonment.reason == "inputs_changed"
    assert reread(apart.plan).state == "pending"


def test_a_write_that_cannot_be_applied_now_does_not_spoil_the_answer_nor_the_other_writes(stub_target, settings):
    settings.LOCK_WAIT = timedelta(milliseconds=100)
    plans = [plan_at(stub_target) for _ in range(2)]
    for plan in plans:
        approve(plan)
    with holding("SELECT 1 FROM plans_agent WHERE id = %s FOR NO KEY UPDATE", plans[0].agent_id):
        apply_write_of(plans[0])
        assert apply_commit_writes() == 1
    assert apply_commit_writes() == 1


def test_a_commit_found_out_later_counts_from_then(stub_target, owner_connection):
    plan = plan_at(stub_target)
    stub_target.script(DropAfterReading())
    assert approve(plan).state == "unknown"
    younger = receive(plan.agent, feed_data(plan.target.name))
    assert find_out(plan_pk=plan.pk).state == "committed"
    apply_commit_writes()
    assert reread(younger).abandonment.reason == "inputs_changed"


def test_observed_writes_are_forgotten_after_seven_days_once_they_were_applied(stub_target):
    plan = plan_at(stub_target)
    approve(plan)
    write(plan.agent, plan.target, "ledger/ACC-105")
    ObservedWrite.objects.update(at=clock.now() - timedelta(days=7, seconds=1))
    assert forget_old() == 1
    assert apply_commit_writes() == 1
    assert forget_old() == 1


# --- o97: the opposite is never said ----------------------------------------------------------------------------------


def test_o97_a_task_that_ended_while_its_commit_was_lost_says_what_became_of_it(stub_target, owner_connection):
    plan = plan_at(stub_target)
    held = Hold()
    stub_target.script(held)
    approving = in_background(lambda: approve(plan))
    assert held.reached.wait(10)
    end_task(agent=plan.agent, task_id=plan.task.task_id)
    pass_time(owner_connection, plan, 46)
    assert mark_overdue() == 1
    assert reread(plan).state == "unknown"
    held.until.set()
    assert approving().state == "committed"
    assert "plan.abandoned" not in events_of(plan)


def test_a_wish_that_meets_a_dead_plan_finds_it_expired(owner_connection):
    plan = make_plan()
    pass_time_to_expiry(owner_connection, plan)
    assert abandon_it(plan)[0].abandonment.reason == "expired"
