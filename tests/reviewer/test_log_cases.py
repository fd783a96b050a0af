"""Cases of the log from the field, walked through the doors that people and the clock really use."""

import json

import pytest
from django.db import DatabaseError, connection, transaction

from audit.export import Request, begin_export
from audit.filters import Filters
from audit.models import Event
from audit.recording import SYSTEM
from audit.verification import verify_log
from plans import clock
from plans.expiry import expire_due
from plans.instants import format_instant_exact
from plans.review import reject_plan
from plans.schema import shown_digest
from tests.audit.sequencing import sequence
from tests.makers import SOON, events_of, make_agent, make_person, make_plan, make_target, reread
from tests.racing import at_once, wait_until
from tests.reviewer.pages import admin_and_client, approval, client_of, url_of
from tests.reviewer.test_signin import Visitor
from tests.stub_behaviour import conflict

pytestmark = pytest.mark.usefixtures("database")


def exported():
    """Every event as the export tells it."""
    lines = b"".join(begin_export(Request("jsonl", Filters(), 0), actor=SYSTEM, via="test").stream()).splitlines()
    return [json.loads(line) for line in lines[:-1]]


def test_l119_who_approved_stays_in_the_export_under_the_name_of_then(stub_target):
    person = make_person("reviewer", name="Mara Lind")
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    assert client_of(person).post(url_of(plan, "approve"), approval(plan)).status_code == 200
    with pytest.raises(DatabaseError), transaction.atomic():  # the decision stands, so its person does
        connection.cursor().execute("DELETE FROM reviewer_person WHERE id = %s", [person.pk])
    type(person).objects.filter(pk=person.pk).update(name="", email="gone-7@example.invalid", is_active=False)
    (event,) = [event for event in exported() if event["kind"] == "plan.approved"]
    assert event["actor"] == {"type": "person", "id": str(person.pk), "name": "Mara Lind"}
    assert client_of(make_person("reviewer")).get(url_of(plan)).status_code == 200


@pytest.fixture
def reviewers(make_person):
    """Two people who can sign in."""
    return make_person("reviewer"), make_person("reviewer")


@pytest.mark.slow
def test_l121_of_a_hundred_interleaved_decisions_each_is_its_sessions_and_the_sweeps_are_the_sweeps(site, reviewers):
    target = make_target()
    made = make_agent(target)
    plans = [make_plan(made=made, target=target) for _ in range(100)]
    soon = format_instant_exact(clock.now() + SOON)
    late = make_plan(made=made, target=target, plan={"expires_at": soon})
    shares = {person: plans[place::2] for place, person in enumerate(reviewers)}

    def decide(person, share):
        visitor = Visitor(site)
        assert visitor.sign_in(person.email).status == 302
        token = visitor.cookies["plandesk_csrf"]
        for plan in share:
            fields = {"csrfmiddlewaretoken": token, **approval(plan, reason="Not this one")}
            answer = visitor.send("POST", url_of(plan, "reject"), fields)
            assert (answer.status, answer.headers.get("Location")) == (200, None)

    at_once(*(lambda one=one: decide(*one) for one in shares.items()))
    wait_until(lambda: expire_due() or reread(late).state == "abandoned")
    for person in reviewers:
        told = Event.objects.filter(kind="plan.rejected", plan_id__in=[plan.plan_id for plan in shares[person]])
        assert [(event.actor_type, event.actor_id) for event in told] == [("person", str(person.pk))] * 50
    swept = Event.objects.filter(plan_id=late.plan_id, kind__in=["plan.expired", "plan.abandoned"])
    assert {f"{event.actor_type}:{event.actor_id}" for event in swept} == {"system:sweep"}


def test_l122_a_sweep_over_three_and_an_admins_hand_on_three_leave_exactly_six_events_with_ids():
    (_, client), target = admin_and_client(), make_target("ledger")
    made = make_agent(target)
    chosen = [make_plan(made=made, target=target) for _ in range(3)]
    client.post("/targets/ledger/", {"do": "policy", "approvals": "2"})
    soon = format_instant_exact(clock.now() + SOON)
    due = [make_plan(made=made, target=target, plan={"expires_at": soon}) for _ in range(3)]
    client.post("/targets/ledger/", {"do": "apply", "plan": [plan.pk for plan in chosen]})
    wait_until(lambda: expire_due() or all(reread(plan).state == "abandoned" for plan in due))
    told = Event.objects.filter(kind__in=["plan.abandoned", "plan.policy_applied"]).values_list("plan_id", "kind")
    assert sorted(told) == sorted(
        [(plan.plan_id, "plan.policy_applied") for plan in chosen] + [(plan.plan_id, "plan.abandoned") for plan in due]
    )


def test_l123_each_decision_that_was_refused_leaves_one_event_and_no_word_of_a_commit(stub_target):
    target = make_target(base_url=stub_target.base_url)
    owner = make_person("reviewer", "admin")
    mine, others = make_agent(target, owner=owner), make_agent(target)
    own = make_plan(made=mine, target=target)
    rejected = make_plan("rejected", made=others, target=target)
    soon = format_instant_exact(clock.now() + SOON)
    late = make_plan(made=others, target=target, plan={"expires_at": soon})
    forms = {plan.pk: approval(plan) for plan in (own, rejected, late)}
    wait_until(lambda: clock.now() >= late.expires_at)
    answers = [
        client_of(owner).post(url_of(own, "approve"), forms[own.pk]).status_code,
        client_of().post(url_of(rejected, "approve"), forms[rejected.pk]).status_code,
        client_of().post(url_of(late, "approve"), forms[late.pk]).status_code,
    ]
    assert answers == [403, 409, 410]
    for plan in (own, rejected, late):
        assert events_of(plan).count("decision.refused") == 1
    stub_target.script(conflict())
    moved = make_plan(made=others, target=target, plan=stub_target.new_plan())
    assert client_of().post(url_of(moved, "approve"), approval(moved)).status_code == 409
    assert events_of(moved)[-1] == "commit.conflicted"
    assert events_of(moved).count("commit.conflicted") == 1
    assert not Event.objects.filter(kind="commit.succeeded").exists()


@pytest.mark.slow
def test_l125_fifty_parallel_decisions_are_one_whole_log(tmp_path, settings):
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")
    target = make_target()
    made, person = make_agent(target), make_person("reviewer")
    plans = [make_plan(made=made, target=target) for _ in range(50)]
    at_once(*(
        lambda plan=plan: reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(plan), reason="No")
        for plan in plans
    ))  # fmt: skip
    assert Event.objects.filter(kind="plan.rejected").count() == 50
    size = sequence(tmp_path)
    report = verify_log(actor=SYSTEM, via="test")
    assert report.is_whole, list(report.lines())
    assert report.against.size == size
