"""Cases from the field that people's pages, the clock and the log have to pass."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import escape, unescape

import pytest
from celery.schedules import schedule
from django.db import DatabaseError, connection, transaction

from audit.models import Event
from plans import clock, schema
from plans.errors import DecisionRefused
from plans.expiry import expire_due
from plans.instants import format_instant_exact
from plans.models import Plan
from plans.review import approve_plan
from reviewer.celery import app
from reviewer.moments import Clock
from reviewer.people import create_token
from tests.makers import SOON, make_agent, make_person, make_plan, make_target, reread
from tests.racing import wait_until
from tests.reviewer.pages import approval, client_of, url_of
from tests.stub_behaviour import DropAfterReading, conflict

pytestmark = pytest.mark.usefixtures("database")


def test_r2_one_approval_never_sends_under_a_second_key(stub_target):
    stub_target.script(DropAfterReading())
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    client = client_of()
    assert client.post(url_of(plan, "approve"), approval(plan)).status_code == 202
    assert {call.key for call in stub_target.commits} <= {plan.idempotency_key}
    assert len(stub_target.commits) == 1


def test_r7_what_was_posted_for_one_plan_decides_nothing_for_another(stub_target):
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target)
    actions = [{"op": "update", "target": "ledger/OTHER", "field": "limit", "from": 1, "to": 2}]
    one, other = make_plan(made=made, target=target), make_plan(made=made, target=target, plan={"actions": actions})
    client, posted = client_of(), approval(one)
    assert client.post(url_of(one, "approve"), posted).status_code == 200
    assert client.post(url_of(other, "approve"), posted).status_code == 409
    assert reread(other).state == "pending"
    assert stub_target.applied == 1


@pytest.mark.parametrize("day", [datetime(2031, 3, 30, tzinfo=UTC), datetime(2031, 10, 26, tzinfo=UTC)])
def test_x30_the_clock_of_the_sweeps_knows_no_summer_time(day):
    assert app.conf.enable_utc
    assert str(app.conf.timezone) == "UTC"
    for entry in app.conf.beat_schedule.values():
        every = entry["schedule"]
        assert isinstance(every, float)  # an interval, never an hour of the day
        for minute in range(0, 240, 10):  # across both changes of the night
            last = day + timedelta(minutes=minute)
            now = last + timedelta(seconds=every)
            state = schedule(timedelta(seconds=every), nowfun=lambda now=now: now, app=app).is_due(last)
            assert state.is_due


def test_x36_in_the_hour_that_comes_twice_the_two_expiries_are_told_apart():
    shown = Clock(datetime(2031, 11, 2, 5, 0, tzinfo=UTC), "America/New_York")
    first, second = (shown.at(datetime(2031, 11, 2, hour, 30, tzinfo=UTC)) for hour in (5, 6))
    assert first is not None
    assert second is not None
    assert first.local == second.local  # which is why it never stands alone
    assert "05:30" in first.utc
    assert "06:30" in second.utc


def cells_of(response) -> dict[str, tuple[str, str]]:
    """What stands for before and after of each field of a plan's first change, by field."""
    body = response.content.decode().split('<table class="diff">')[1].split("</table>")[0]
    found = {}
    for row in re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", body):
        field, before, after = (
            " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r'<span class="vh">.*?</span>', "", cell))).split())
            for cell in re.split(r"<td[^>]*>", row)
        )
        found[field.split()[-1]] = (before.removeprefix("−").strip(), after.removeprefix("+").strip())
    return found


def test_p49_changes_from_nothing_false_and_zero_are_told_apart_on_the_page_in_the_event_and_in_the_export():
    changes = {"a": (None, "x"), "b": (False, True), "c": (0, 5), "d": ("", "y"), "e": ("null", None), "f": ("0", 0)}
    actions = [
        {"op": "update", "target": "ledger/ACC-104", "field": field, "from": before, "to": after}
        for field, (before, after) in changes.items()
    ]
    actions.append({"op": "update", "target": "ledger/ACC-104", "field": "g", "to": False})
    plan = make_plan(plan={"actions": actions})
    assert cells_of(client_of().get(url_of(plan))) == {
        "a": ("null", "x"),
        "b": ("false", "true"),
        "c": ("0", "5 +5"),
        "d": ('"" empty text', "y"),
        "e": ('" null " text', "null"),
        "f": ('" 0 " text', "0"),
        "g": ("not told", "false"),
    }
    written = json.dumps(actions)  # as text: in Python False is 0
    event = Event.objects.select_related("payload").get(kind="plan.received")
    assert json.dumps(json.loads(event.payload.body)["data"]["actions"]) == written
    auditor = make_person("auditor")
    _, token = create_token(email=auditor.email)
    answer = client_of(auditor).get(
        "/api/v1/audit/export?format=jsonl&kind=plan.received", headers={"Authorization": f"Bearer {token}"}
    )
    exported = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines() if line.strip()]
    assert [json.dumps(one["data"]["actions"]) for one in exported if one.get("kind") == "plan.received"] == [written]


HOSTILE = ["<img src=x onerror=alert(1)>", '<b hx-post="/x" hx-trigger="load">']


@pytest.mark.parametrize("text", HOSTILE)
def test_p51_markup_from_agents_people_and_targets_is_shown_as_text(stub_target, text):
    target = make_target(base_url=stub_target.base_url)
    plan = make_plan(
        target=target,
        summary=text,
        inputs={text: text},
        evidence=[{"tool": text, "note": text}],
        plan={"actions": [{"op": "update", "target": text, "field": text, "from": text, "to": {text: text}}]},
    )
    stub_target.script(conflict({"target": text, "field": text, "planned": text, "current": text}))
    client = client_of()
    before = client.get(url_of(plan)).content.decode()
    assert client.post(url_of(plan, "approve"), approval(plan)).status_code == 409
    after = client.get(url_of(plan)).content.decode()
    rejected = make_plan(target=make_target())
    assert client.post(url_of(rejected, "reject"), approval(rejected, reason=text)).status_code == 200
    for page in (
        before,
        after,
        client.get(url_of(rejected)).content.decode(),
        client.get("/history/").content.decode(),
    ):
        assert text not in page
    assert escape(text.split(" ")[0]) in before


def test_a135_who_approved_is_who_is_signed_in_whatever_the_form_says(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    alice, bob = make_person("reviewer"), make_person("reviewer")
    form = approval(plan, approved_by=str(alice.pk), reviewer=alice.email, person=str(alice.pk))
    assert client_of(bob).post(url_of(plan, "approve"), form).status_code == 200
    assert [row.reviewer_id for row in plan.approvals.all()] == [bob.pk]
    assert Event.objects.get(kind="plan.approved").actor_id == str(bob.pk)


def test_a132_a_right_that_was_taken_away_is_gone_for_the_open_page(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    person = make_person("reviewer")
    client = client_of(person)
    assert client.get(url_of(plan)).status_code == 200
    form = approval(plan)
    person.is_reviewer = False
    person.save()
    assert client.post(url_of(plan, "approve"), form).status_code == 403
    with pytest.raises(DecisionRefused):
        approve_plan(plan_pk=plan.pk, person=person, seen_digest=schema.shown_digest(reread(plan)))
    assert stub_target.commits == []
    assert Plan.objects.get(pk=plan.pk).state == "pending"


def test_l120_a_plan_and_its_events_cannot_be_deleted():
    plan = make_plan("committed")
    with pytest.raises(DatabaseError, match=r"permission denied|never changed or deleted"), transaction.atomic():
        connection.cursor().execute("DELETE FROM audit_event WHERE plan_id = %s", [plan.plan_id])
    with pytest.raises(DatabaseError), transaction.atomic():
        connection.cursor().execute("DELETE FROM plans_plan WHERE id = %s", [plan.pk])
    assert Plan.objects.filter(pk=plan.pk).exists()
    assert Event.objects.filter(plan_id=plan.plan_id).count() >= 3


def test_l122_a_sweep_over_three_plans_leaves_three_events_each():
    soon = format_instant_exact(clock.now() + SOON)
    plans = [make_plan(plan={"expires_at": soon}) for _ in range(3)]
    wait_until(lambda: clock.now() >= plans[0].expires_at)
    assert expire_due() == 3
    told = Event.objects.filter(kind__in=["plan.expired", "plan.abandoned"]).values_list("plan_id", "kind")
    assert sorted(told) == sorted((plan.plan_id, kind) for plan in plans for kind in ("plan.abandoned", "plan.expired"))
