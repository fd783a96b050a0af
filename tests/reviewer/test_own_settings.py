"""What people set for themselves: how the desk looks to them, their password; and what they are told of their pace."""

import json
from datetime import timedelta
from typing import Any

import pytest

from audit.models import Event
from plans import clock, pace
from plans.models import PlanView
from plans.pace import Pace
from reviewer import speed
from reviewer.models import Person
from tests.fixtures import PASSWORD
from tests.makers import make_person, make_plan, make_target
from tests.reviewer.pages import approval, client_of, text_of, told_of, url_of

pytestmark = pytest.mark.usefixtures("database")


def person_with_password() -> Person:
    person = make_person("reviewer")
    person.set_password(PASSWORD)
    person.save()
    return person


def told_by(plan: Any) -> Any:
    """What the event of the rejection says."""
    event = Event.objects.select_related("payload").get(kind="plan.rejected", plan_id=plan.plan_id)
    return json.loads(event.payload.body)["data"]


def test_theme_and_order_of_times_are_kept_for_the_person_and_shown_by_the_server():
    person = make_person("reviewer", time_zone="Europe/Berlin")
    client = client_of(person)
    make_plan()
    assert client.post("/settings/look/", {"theme": "dark", "next": "/history/"})["Location"] == "/history/"
    client.post("/settings/look/", {"time_first": "local"})
    page = client.get("/").content.decode()
    assert 'data-theme="dark"' in page
    assert '<time class="both"' in page
    first = page.split('<time class="both"')[1].split("<span>")[1].split("</span>")[0]
    assert first.endswith("Berlin")


@pytest.mark.parametrize("next_page", ["//evil.example", "https://evil.example", "javascript:alert(1)", "/\\evil"])
def test_v136_the_way_back_stays_on_this_site(next_page):
    answer = client_of().post("/settings/look/", {"theme": "dark", "next": next_page})
    assert answer["Location"] == "/"


def test_a_theme_that_does_not_exist_changes_nothing():
    person = make_person("reviewer")
    answer = client_of(person).post("/settings/look/", {"theme": "pink"}, headers={"X-Requested-With": "fetch"})
    assert answer.status_code == 422
    person.refresh_from_db()
    assert person.theme == "system"


def test_who_knows_the_old_password_sets_a_new_one_and_only_other_sessions_end():
    person = person_with_password()
    here, elsewhere = client_of(person), client_of(person)
    new = "a much better one 4711"
    answer = here.post("/settings/password/", {"present": PASSWORD, "new": new})
    assert answer["Location"] == "/settings/?saved=password"
    assert here.get("/").status_code == 200
    assert elsewhere.get("/")["Location"].startswith("/login/")
    person.refresh_from_db()
    assert person.check_password(new)
    assert told_of("person.changed")[-1] == (f"person:{person.pk}", "password_changed")
    assert new not in here.get("/settings/?saved=password").content.decode()


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({"present": "wrong", "new": "a much better one 4711"}, "That is not your present password."),
        ({"present": PASSWORD, "new": "12345678"}, "password"),
        ({"present": PASSWORD}, "This field is required."),
    ],
)
def test_a_password_is_not_changed_without_the_old_one_or_to_a_weak_one(sent, sentence):
    person = person_with_password()
    answer = client_of(person).post("/settings/password/", sent)
    assert answer.status_code == 422
    assert sentence in text_of(answer)
    person.refresh_from_db()
    assert person.check_password(PASSWORD)
    assert told_of("person.changed") == []


def test_how_long_a_decision_took_is_in_its_event_and_on_the_page():
    plan, client = make_plan(), client_of(make_person("reviewer", name="Tom Okafor"))
    client.get(url_of(plan))
    PlanView.objects.update(opened_at=clock.now() - timedelta(seconds=38))
    page = client.post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    assert 38_000 <= told_by(plan)["milliseconds_on_page"] < 60_000
    assert "38 s after opening the page" in text_of(page)
    own = text_of(client.get("/settings/"))
    assert "In the last 30 days you decided 1 plan, and approved 0." in own
    assert "less than 38 s" in own


def test_a_decision_without_a_page_has_no_length():
    plan = make_plan()
    client_of().post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    assert told_by(plan)["milliseconds_on_page"] is None


def test_admins_see_the_pace_by_policy():
    target, client = make_target("ledger-pace"), client_of()
    for _ in range(3):
        plan = make_plan(target=target)
        client.get(url_of(plan))
        client.post(url_of(plan, "reject"), approval(plan, reason="No"))
    text = text_of(client_of(make_person("admin")).get("/agents/"))
    assert "Are reviews still real?" in text
    assert "ledger-pace policy 1 limit.update 3 0 %" in text
    assert "Nothing unusual" in text
    [row] = pace.find_paces()
    assert (row.pace.decisions, row.pace.approvals, row.pace.quick) == (3, 0, 3)


@pytest.mark.parametrize(
    ("decisions", "approvals", "seconds", "flagged"),
    [(50, 50, 4.9, True), (200, 198, 1, True), (49, 49, 1, False), (100, 98, 1, False), (50, 50, 5, False)],
)
def test_a_rubber_stamp_is_many_decisions_hardly_a_no_and_no_time(decisions, approvals, seconds, flagged):
    length = timedelta(seconds=seconds)
    row = pace.PolicyPace("ledger", "refund", 1, Pace(decisions, approvals, length, decisions))
    review = speed.review_of(row)
    assert review.is_flagged is flagged
    assert ("rubber stamp" in review.verdict.text) is flagged


@pytest.mark.slow
def test_the_present_password_cannot_be_guessed_from_a_session_left_open():
    person = person_with_password()
    client, new = client_of(person), "a much better one 4711"
    for _ in range(5):
        assert client.post("/settings/password/", {"present": "a guess", "new": new}).status_code == 422
    answer = client.post("/settings/password/", {"present": PASSWORD, "new": new})
    assert answer.status_code == 429
    assert "Too many tries" in text_of(answer)
    person.refresh_from_db()
    assert person.check_password(PASSWORD)
    assert client_of(person_with_password()).post("/settings/password/", {"present": "x"}).status_code == 422


def test_guesses_at_the_present_password_count_also_where_they_come_at_once(monkeypatch):
    person = person_with_password()
    client, checked = client_of(person), []
    kept = Person.check_password

    def ask_again_meanwhile(self: Person, present: str) -> bool:
        checked.append(present)
        if len(checked) < 20:
            client_of(person).post("/settings/password/", {"present": "a guess", "new": "x"})
        return kept(self, present)

    monkeypatch.setattr(Person, "check_password", ask_again_meanwhile)
    client.post("/settings/password/", {"present": "a guess", "new": "x"})
    assert len(checked) == 5


def test_setting_passwords_with_the_right_one_uses_up_no_tries():
    person = person_with_password()
    client, present = client_of(person), PASSWORD
    for number in range(7):
        new = f"a much better one {number}"
        assert client.post("/settings/password/", {"present": present, "new": new}).status_code == 302
        present = new
