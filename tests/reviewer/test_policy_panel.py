"""What a policy's form tells before it is saved: how many approvals the rule in it would have asked for."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from django.test import Client

from audit.models import Event
from plans import policy_forecast, registry
from plans.demo.operations import RefundInvoice
from plans.models import Policy, Target
from tests.hosted_plans import make_billing_agent, plan_address, plan_refund
from tests.makers import make_agent, make_person, make_plan, make_target, policy_of
from tests.reviewer.pages import admin_and_client, client_of, text_of

pytestmark = pytest.mark.usefixtures("database")

PANEL = "/targets/ledger/policy/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def ledger(database: None) -> Target:
    """A target of three plans of one agent: two that asked for one person, one of them grave, and one for nobody."""
    target = make_target("ledger")
    made = make_agent(target)
    make_plan(target=target, made=made)
    make_plan("rejected", target=target, made=made, plan={"actions": [{"op": "delete", "target": "ledger/B"}]})
    policy_of(target, approvals=0)
    make_plan(target=target, made=made)
    return target


def shown(answer) -> tuple[str, list[str]]:
    """The sentence of the panel in an answer, and its rows as `name: until now, with this rule`."""
    assert answer.status_code in (200, 422)
    found = re.search(r'<div class="panel preview" id="policy-panel">.*?</div>', answer.content.decode(), re.DOTALL)
    assert found, text_of(answer)
    rows = re.findall(r'<th scope="row">(.*?)</th><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>', found[0])
    said = re.search(r"<p>(.*?)</p>", found[0], re.DOTALL)
    assert said
    return unescape(said[1]), [f"{name}: {was}, {would_be}" for name, was, would_be in rows]


def asked(client: Client, **values: str):
    """The part, as the page asks for it when a field changes."""
    return client.get(PANEL, values, headers=HTMX)


@pytest.mark.usefixtures("ledger")
def test_the_page_tells_at_once_what_the_rule_in_force_would_have_asked_for():
    said, rows = shown(admin_and_client()[1].get("/targets/ledger/"))
    assert said == "This rule (Nobody has to approve) would ask for 0 approvals. Until now it was 2."
    assert rows == [
        "Approvals: 2, 0", "Plans that ask people: 2, 0", "Plans with a typed fact: 1, 0",
        "Plans that need nobody: 1, 3", "Plans held back, not confirmed: 0, 0",
    ]  # fmt: skip


@pytest.mark.usefixtures("ledger")
def test_the_part_tells_of_the_values_it_is_asked_for_and_keeps_none_of_them():
    _, client = admin_and_client()
    events = Event.objects.count()
    part = asked(client, approvals="2")
    assert shown(part) == (
        "This rule (2 people) would ask for 6 approvals. Until now it was 2.",
        [
            "Approvals: 2, 6", "Plans that ask people: 2, 3", "Plans with a typed fact: 1, 1",
            "Plans that need nobody: 1, 0", "Plans held back, not confirmed: 0, 0",
        ],
    )  # fmt: skip
    assert b"<html" not in part.content
    assert "3 plans were received." in text_of(part)
    assert "Plans with a typed fact: 1, 3" in shown(asked(client, approvals="2", is_guarded="on"))[1]
    held = shown(asked(client, approvals="2", refuses_unconfirmed="on"))
    assert (held[0].count("0 approvals"), held[1][-1]) == (1, "Plans held back, not confirmed: 0, 3")
    assert (Policy.objects.filter(target__name="ledger").count(), Event.objects.count()) == (2, events)


def test_a_rule_that_asks_for_as_much_says_so():
    target = make_target("ledger", approvals=2)
    make_plan(target=target)
    said = "This rule (2 people) would ask for 2 approvals. That is as many as until now."
    assert shown(asked(admin_and_client()[1], approvals="2"))[0] == said
    assert shown(admin_and_client()[1].get("/targets/ledger/"))[0] == said


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("approvals", ["", "few", "-1", "11", "1.5", "9" * 5000, "\x00", "٣٣"])
def test_nothing_is_told_of_a_form_that_would_be_refused(approvals):
    _, client = admin_and_client()
    said = ("This can't be told until the form is right.", [])
    assert shown(asked(client, approvals=approvals)) == said
    refused = client.post("/targets/ledger/", {"do": "policy", "approvals": approvals})
    assert (refused.status_code, shown(refused)) == (422, said)
    assert shown(client.get(PANEL, headers=HTMX)) == said


@pytest.mark.usefixtures("ledger")
def test_without_scripts_a_press_counts_and_makes_nothing():
    _, client = admin_and_client()
    page = client.post("/targets/ledger/", {"do": ["policy", "count"], "approvals": "3", "is_guarded": "on"})
    assert page.status_code == 200
    assert shown(page)[1][:3] == ["Approvals: 2, 9", "Plans that ask people: 2, 3", "Plans with a typed fact: 1, 3"]
    assert re.search(r'name="approvals" value="3"', page.content.decode()), "what was typed is still there"
    assert re.search(r'name="is_guarded"[^>]* checked', page.content.decode())
    assert Policy.objects.filter(target__name="ledger").count() == 2
    assert client.post("/targets/ledger/", {"do": ["policy", "count"], "approvals": "x"}).status_code == 422
    assert '<button class="btn unscripted" type="submit" name="do" value="count">' in page.content.decode()


@pytest.mark.usefixtures("ledger")
def test_a_mistake_in_another_form_of_the_page_does_not_hide_what_is_told():
    refused = admin_and_client()[1].post("/targets/ledger/", {"do": "disable", "typed": "no"})
    assert refused.status_code == 422
    assert shown(refused)[0].startswith("This rule (Nobody has to approve) would ask for 0 approvals.")


def test_a_hosted_targets_operations_say_how_many_where_the_field_is_empty():
    agent = make_billing_agent().agent
    plan_refund("4412", 120_000, total_cents=200_000, agent=agent)
    plan_address("4412", agent=agent)
    policy_of(Target.objects.get(name="billing"), approvals=4)
    plan_refund("4413", 10_000, agent=agent)
    _, client = admin_and_client()
    said, rows = shown(client.get("/targets/billing/policy/", {"approvals": ""}, headers=HTMX))
    assert said.startswith("This rule (As many people as the operation says) would ask for 3 approvals.")
    assert rows == ["Approvals: 6, 3", "Plans that ask people: 2, 2", "Plans with a typed fact: 2, 2",
                    "Plans that need nobody: 1, 1"]  # fmt: skip


def test_a_target_that_nobody_planned_at_has_nothing_to_tell():
    make_target("ledger")
    said, rows = shown(admin_and_client()[1].get("/targets/ledger/"))
    assert (said, rows) == ("No plan was received in that time, so there is nothing to tell.", [])


@pytest.mark.usefixtures("ledger")
def test_more_plans_than_are_counted_are_at_least_so_many(monkeypatch):
    monkeypatch.setattr(policy_forecast, "MOST", 2)
    part = asked(admin_and_client()[1], approvals="2")
    assert "At least 2 plans were received. The newest 2 are counted here." in text_of(part)
    assert "Approvals: 1, 4" in shown(part)[1]


@pytest.mark.usefixtures("ledger")
def test_fewer_plans_are_counted_and_said_where_so_many_take_too_long(monkeypatch):
    slow = "FROM (SELECT pg_sleep(CASE WHEN %(most)s > 2 THEN 9 ELSE 0 END)) s, ("
    monkeypatch.setattr(policy_forecast, "_ALIKE", policy_forecast._ALIKE.replace("FROM (", slow, 1))
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=800))
    monkeypatch.setattr(policy_forecast, "FEWER", 2)
    part = asked(admin_and_client()[1], approvals="2")
    assert "At least 2 plans were received. The newest 2 are counted here." in text_of(part)
    assert "Approvals: 1, 4" in shown(part)[1]


def raise_anything(*_: object) -> int:
    raise KeyError("secret detail")


def test_an_operation_that_fails_is_named_and_the_page_where_that_is_mended_stays(monkeypatch, caplog):
    agent = make_billing_agent().agent
    policy_of(Target.objects.get(name="billing"), approvals=2)
    plan = plan_refund(agent=agent).plan
    monkeypatch.setattr(RefundInvoice, "approvals", raise_anything)
    _, client = admin_and_client()
    assert "would ask for 2 approvals" in shown(client.get("/targets/billing/"))[0]
    made = client.post("/targets/billing/", {"do": "policy", "approvals": ""})
    assert "Policy 3 is made" in text_of(made)
    said = (
        "This can't be told: the operation refund failed when it was asked how many people have to approve. "
        "The rule can be saved all the same."
    )
    for answer in (
        made,
        client.get("/targets/billing/"),
        client.get("/targets/billing/policy/?approvals=", headers=HTMX),
    ):
        assert shown(answer) == (said, [])
        assert "secret detail" not in answer.content.decode()
    tried = client.post("/targets/billing/", {"do": "apply", "plan": plan.pk})
    assert tried.status_code == 200
    assert f"{plan.plan_id}: Its operation failed when it was asked how many people have to approve." in text_of(tried)
    assert "secret detail" not in caplog.text


def test_enter_presses_what_a_form_is_for():
    """The first button of a form is the one that Enter presses, also where it is not shown."""
    wrong, several = [], 0
    for file in Path("templates").rglob("*.html"):
        for form in re.findall(r"<form\b.*?</form>", file.read_text(), re.DOTALL):
            buttons = [tag for tag in re.findall(r"<button\b[^>]*>", form) if 'type="button"' not in tag]
            several += len(buttons) > 1
            is_aside = bool(buttons) and ("unscripted" in buttons[0] or " hidden" in buttons[0])
            if is_aside and " disabled" not in buttons[0]:  # which is there to have Enter press nothing
                wrong.append(f"{file}: {buttons[0]}")
    assert (wrong, several > 3) == ([], True)


@pytest.mark.usefixtures("ledger")
def test_a_count_that_takes_too_long_is_said_and_the_rule_can_be_saved(monkeypatch):
    _, client = admin_and_client()
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=200))
    slow = policy_forecast._ALIKE.replace("FROM (", "FROM pg_sleep(9), (", 1)
    monkeypatch.setattr(policy_forecast, "_ALIKE", slow)
    for answer in (asked(client, approvals="2"), client.get("/targets/ledger/")):
        said, rows = shown(answer)
        assert (said.startswith("Counting took too long"), rows) == (True, [])
    assert "Policy 3 is made" in text_of(client.post("/targets/ledger/", {"do": "policy", "approvals": "2"}))


@pytest.mark.usefixtures("ledger")
def test_who_may_not_change_a_policy_is_told_nothing_of_it():
    assert client_of(make_person("reviewer", "auditor")).get(PANEL, {"approvals": "2"}).status_code == 403
    assert Client().get(PANEL, headers=HTMX)["HX-Redirect"].startswith("/login/")
    _, client = admin_and_client()
    assert client.post(PANEL, {"approvals": "2"}, headers=HTMX).status_code == 405
    assert client.get(PANEL, {"approvals": "2"})["Location"] == "/targets/ledger/", "a part is no page"
    assert client.get("/targets/nowhere/policy/", headers=HTMX).status_code == 404
    registry.disable_target(name="ledger")
    assert asked(client, approvals="2").status_code == 404
    assert "policy-panel" not in client.get("/targets/ledger/").content.decode()
