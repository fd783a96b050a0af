"""Nobody decides a plan of an agent that they owned at any time since the plan was received: by fact."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from audit.models import Event
from audit.recording import Actor
from plans import clock, decision_sql, plan_facts, queries, registry, roster
from plans.errors import DecisionRefused
from plans.models import Approval, FormerOwner, Plan, Rejection
from plans.review import approve_plan, reject_plan, settle_unknown
from plans.schema import shown_digest
from reviewer.notifications.finding import find_news
from reviewer.notifications.models import Notice
from tests.makers import MadeAgent, make_agent, make_person, make_plan, make_target, reread
from tests.racing import in_background
from tests.time_passing import pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

ADMIN = Actor("person", "0", "Somebody else")


def hand_over(made: MadeAgent, person: Any) -> None:
    registry.set_agent(name=made.agent.name, owner=person, by=ADMIN)


def approve(plan: Plan, person: Any) -> Plan:
    return approve_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(reread(plan)))


def reject(plan: Plan, person: Any) -> Plan:
    return reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(reread(plan)), reason="No")


@pytest.fixture
def target(stub_target):
    return make_target(base_url=stub_target.base_url)


def test_who_owned_the_agent_when_a_plan_came_or_since_then_never_decides_it(target):
    first, second, third = (make_person("reviewer", "admin") for _ in range(3))
    made = make_agent(target, owner=first)
    plan = make_plan(made=made, target=target)
    hand_over(made, second)
    hand_over(made, third)
    for person in (first, second, third):
        for decide in (approve, reject):
            with pytest.raises(DecisionRefused) as refused:
                decide(plan, person)
            assert (refused.value.code, refused.value.status) == ("own-agent", 403)
    assert Event.objects.filter(kind="decision.refused").count() == 6
    assert reread(plan).state == "pending"
    assert approve(plan, make_person("reviewer")).state == "committed"


def test_who_owned_the_agent_before_a_plan_came_may_decide_it(target):
    before, now = make_person("reviewer", "admin"), make_person("admin")
    made = make_agent(target, owner=before)
    hand_over(made, now)
    plan = make_plan(made=made, target=target)
    assert approve(plan, before).state == "committed"


def test_an_approval_by_somebody_who_was_given_the_agent_meanwhile_is_void_though_they_gave_it_on(stub_target):
    target = make_target(base_url=stub_target.base_url, approvals=2)
    early, late, last = (make_person("reviewer", "admin") for _ in range(3))
    made = make_agent(target)
    plan = make_plan(made=made, target=target)
    assert approve(plan, early).state == "pending"
    hand_over(made, early)
    hand_over(made, make_person("admin"))
    assert approve(plan, late).state == "pending"
    assert Approval.objects.get(reviewer=early).void_reason == "right-lost"
    assert approve(plan, last).state == "committed"


def test_a_former_owner_settles_no_unknown_outcome_by_hand(owner_connection):
    former = make_person("reviewer", "admin")
    made = make_agent(target := make_target(), owner=former)
    plan = make_plan("unknown", made=made, target=target)
    hand_over(made, make_person("admin"))
    pass_time_to_expiry(owner_connection, plan, 120)
    with pytest.raises(DecisionRefused, match="agent of yours"):
        settle_unknown(plan_pk=plan.pk, person=former, was_made=True, reason="I saw it")
    assert reread(plan).state == "unknown"


@pytest.mark.parametrize("fact", [Approval, Rejection])
def test_the_database_refuses_a_former_owners_decision_whatever_the_code_does(fact):
    former = make_person("reviewer", "admin")
    made = make_agent(target := make_target(), owner=former)
    plan = make_plan(made=made, target=target)
    hand_over(made, make_person("admin"))
    at = {"approved_at": clock.now()} if fact is Approval else {"rejected_at": clock.now(), "reason": "No"}
    with pytest.raises(IntegrityError, match="owned since it was received"), transaction.atomic():
        fact.objects.create(plan=plan, reviewer=former, seen_digest="0" * 64, **at)


def test_who_owned_an_agent_is_never_changed_or_forgotten():
    made = make_agent(make_target(), owner=make_person("admin"))
    hand_over(made, make_person("admin"))
    for statement in ("DELETE FROM plans_formerowner", "UPDATE plans_formerowner SET until = now() - interval '1 day'"):
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert FormerOwner.objects.count() == 1


def test_a_decision_that_runs_while_the_agent_is_handed_to_its_reviewer_is_refused_and_told(target, monkeypatch):
    person = make_person("reviewer", "admin")
    made = make_agent(target)
    plan = make_plan(made=made, target=target)
    approval = decision_sql.approval

    def handed_over_before(*args: Any, **fields: Any) -> Any:
        in_background(lambda: hand_over(made, person))()
        return approval(*args, **fields)

    monkeypatch.setattr(decision_sql, "approval", handed_over_before)
    with pytest.raises(DecisionRefused) as refused:
        approve(plan, person)
    assert refused.value.code == "own-agent"
    assert reread(plan).state == "pending"
    assert Event.objects.filter(kind="decision.refused").count() == 1


def test_lists_counts_and_news_treat_a_former_owner_as_the_owner(target, settings):
    settings.EMAIL_HOST = "127.0.0.1"  # or nobody has a way to be told; nothing is sent here
    former, other = make_person("reviewer", "admin"), make_person("reviewer")
    made = make_agent(target, owner=former)
    plan = make_plan(made=made, target=target, lifetime=timedelta(minutes=30))
    hand_over(made, make_person("admin"))
    [row] = queries.find_inbox(former).pending
    assert row.is_own
    assert not queries.find_inbox(other).pending[0].is_own
    assert (queries.count_waiting(former).to_decide, queries.count_waiting(other).to_decide) == (0, 1)
    now = clock.now()
    assert queries.find_next_waiting(former, but=0, now=now) is None
    assert queries.find_next_waiting(other, but=0, now=now) is not None
    assert plan_facts.get_plan_facts(plan.pk).eligible_people == 1
    find_news()
    assert set(Notice.objects.filter(occasion="waiting").values_list("person_id", flat=True)) == {other.pk}
    assert roster.find_undecidable() == []
    type(other).objects.filter(pk=other.pk).update(is_reviewer=False)
    [short] = roster.find_undecidable()
    assert (short.plan_id, short.needed, short.eligible) == (plan.plan_id, 1, 0)
