"""The auditors' questions: each a query whose count is right, over a log that real use cases wrote."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from audit.filters import Filters, parse_search
from audit.kinds import Kind
from audit.outcomes import find_unknown_outcomes
from audit.presets import PRESETS
from audit.queries import count_events, find_events
from audit.recording import SYSTEM, Actor, record_capped
from audit.summaries import count_conflicts_by_field, count_unlisted, find_deciders
from plans.abandonment import observe_write
from plans.models import PlanView
from plans.states import AbandonReason
from plans.targets.base import Change
from plans.viewing import record_view
from reviewer import people
from reviewer.audit_presets import TITLES
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.hosted_plans import plan_refund
from tests.makers import make_agent, make_person, make_plan, make_target
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


def asked(preset, **more):
    lists = {"preset": [preset], **{name: [value] for name, value in more.items()}}
    return parse_search(lists.items())


def matches(preset, **more):
    """The plan ids that the preset's events are of, and its count, which must be theirs."""
    search = asked(preset, **more)
    page = find_events(search)
    assert (page.count.value, page.count.is_exact) == (len(page.events), True)
    assert count_events(search.filters) == page.count
    return sorted(event.plan_id or "" for event in page.events)


def test_planned_and_not_done_are_the_abandoned_plans_each_once():
    abandoned = [make_plan("abandoned", reason=reason).plan_id for reason in AbandonReason]
    for state in ("pending", "committed", "rejected", "conflicted", "unknown"):
        make_plan(state)
    assert matches("planned-not-done") == sorted(abandoned)


def test_never_planned_counts_what_was_only_counted_too(settings):
    settings.EVENT_CAP_PER_MINUTE = 2
    for _ in range(5):
        with transaction.atomic():
            record_capped(Kind.COMMIT_NEVER_PLANNED, bucket="bot", actor=Actor("agent", "bot", "bot"), agent="bot")
    make_plan("committed")
    listed = len(matches("never-planned"))
    filters = asked("never-planned").filters
    unlisted = count_unlisted(filters, now=datetime.now(UTC))
    assert listed + unlisted == 5
    assert count_unlisted(Filters(kinds=filters.kinds, agent="other"), now=datetime.now(UTC)) == 0
    text = text_of(client_of(make_person("auditor")).get("/audit/?preset=never-planned"))
    assert f"Only counted {unlisted}" in text


def test_conflicts_are_counted_by_field_once_a_plan():
    changes = (Change("a/1", "limit", "1", "2"), Change("a/2", "limit", "1", "2"), Change("a/1", "name", '"x"', None))
    conflicted = [
        make_plan("conflicted", changes=changes),
        make_plan("conflicted"),
        make_plan("conflicted", changes=()),
    ]
    assert matches("conflicts") == sorted(plan.plan_id for plan in conflicted)
    counted = count_conflicts_by_field(Filters())
    assert (dict(counted.fields), counted.seen, counted.is_exact) == ({"limit": 2, "name": 1, "": 1}, 3, True)
    text = text_of(client_of(make_person("auditor")).get("/audit/?preset=conflicts"))
    assert "limit 2" in text
    assert "not told 1" in text


def approve_after(seconds):
    """A refund that is approved so many seconds after its page was opened."""
    hosted, person = plan_refund(f"inv-{seconds}"), make_person("reviewer")
    record_view(plan_pk=hosted.plan.pk, person=person)
    opened = PlanView.objects.get(plan=hosted.plan).opened_at - timedelta(seconds=seconds)
    PlanView.objects.filter(plan=hosted.plan).update(opened_at=opened)
    hosted.approve(person)
    return hosted.plan.plan_id


def test_fast_approvals_are_those_within_three_seconds_of_opening():
    fast = approve_after(0)
    approve_after(3.5)
    hosted = plan_refund("unopened")
    hosted.approve()  # nobody opened it: no speed to tell of
    assert matches("fast-approvals") == [fast]
    assert len(find_events(parse_search([("kind", ["plan.approved"])])).events) == 3


def test_a_reason_that_looks_like_the_member_is_not_taken_for_it():
    reason = '"opened_at":"2026-01-01T00:00:00Z"'
    make_event(Kind.PLAN_APPROVED, data={"digest": "d", "opened_at": None, "reason": reason})
    make_event(Kind.PLAN_ABANDONED, data={"reason": "expired", "detail": ',"data":{"reason":"inputs_changed"'})
    assert matches("fast-approvals") == []
    assert matches("self-inflicted") == []


def test_self_inflicted_are_plans_that_their_own_agents_writes_ended():
    target = make_target()
    made, other = make_agent(target), make_agent(target)
    own = make_plan(made=made, target=target)
    strangers = make_plan(made=other, target=target)
    observe_write(agent=made.agent, target_name=target.name, task_id="t", targets=["ledger/ACC-104"], written_at=None)
    make_plan("abandoned", reason=AbandonReason.TASK_ENDED)
    assert matches("self-inflicted") == [own.plan_id]
    assert strangers.plan_id not in matches("planned-not-done")


def test_unknown_outcomes_are_told_with_how_they_were_found_out():
    still = make_plan("unknown")
    settled = make_plan("unknown")
    unseen = make_plan("unknown")
    for plan, kind, data in (
        (settled, Kind.COMMIT_RESOLVED, {"how": "person", "state": "committed"}),
        (settled, Kind.COMMIT_SUCCEEDED, {"attempt": 1}),
        (unseen, Kind.COMMIT_RESOLVED, {"how": "state", "state": "abandoned"}),
        (unseen, Kind.PLAN_ABANDONED, {"reason": "not_applied"}),
        (still, Kind.COMMIT_UNKNOWN, {"detail": "again"}),
    ):
        members = {"agent": plan.agent.name, "target": plan.target.name, "plan_id": plan.plan_id}
        make_event(kind, data=data, **members)
    outcomes = find_unknown_outcomes(Filters())
    assert {one.plan_id: one.how for one in outcomes.found} == {
        still.plan_id: "", settled.plan_id: "person", unseen.plan_id: "state",
    }  # fmt: skip
    assert [one.plan_id for one in outcomes.found if one.took is None] == [still.plan_id]
    assert len(matches("unknown-outcomes")) == 6  # 4 times unknown, 2 found out
    text = text_of(client_of(make_person("auditor")).get("/audit/?preset=unknown-outcomes"))
    assert "Settled by hand 1" in text
    assert "Still unknown 1" in text
    assert "3 plans in all" in text


def test_who_may_decide_is_told_by_the_log_and_held_against_the_people():
    by = Actor("person", "1", "An admin")
    first, _ = people.create_person(email="a@example.com", roles=["reviewer"], name="Ann", by=by)
    people.create_person(email="b@example.com", roles=["auditor"], by=by)
    people.set_roles(email="b@example.com", roles=["auditor", "reviewer"], by=by)
    people.set_roles(email="a@example.com", roles=["auditor"], by=by)
    people.create_person(email="c@example.com", roles=["reviewer"], by=by)
    people.disable_person(email="c@example.com", by=by)
    untold = make_person("reviewer", name="Nobody Told")
    deciders = {one.email: one for one in find_deciders()}
    assert {email: one.until is None for email, one in deciders.items()} == {
        "a@example.com": False, "b@example.com": True, "c@example.com": False,
    }  # fmt: skip
    assert deciders["a@example.com"].since < deciders["a@example.com"].until
    assert deciders["a@example.com"].person_id == str(first.pk)
    assert len(matches("deciders")) == len(told("person.changed"))
    text = text_of(client_of(make_person("auditor")).get("/audit/?preset=deciders"))
    assert f"{untold} {untold.email} no event tells since when" in text


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_narrowed_counted_and_exported(preset):
    make_plan("conflicted")
    auditor = client_of(make_person("auditor"))
    page = auditor.get(f"/audit/?preset={preset}&last=24h&agent=nobody")
    assert page.status_code == 200
    assert str(TITLES[preset]) in text_of(page)
    response = auditor.post("/audit/export/", {"form": "csv", "query": f"preset={preset}"})
    assert response.status_code == 200
    assert b"".join(response.streaming_content).startswith(b"index,")


def test_a_preset_refuses_a_kind_that_it_is_not_about():
    page = client_of(make_person("auditor")).get("/audit/?preset=conflicts&kind=login.failed")
    assert page.status_code == 422
    assert "conflicts is about commit.conflicted" in text_of(page)


def test_presets_are_of_the_log_alone():
    make_event(Kind.LOG_CHANGED, actor=SYSTEM)
    assert all(matches(preset) == [] for preset in PRESETS)
