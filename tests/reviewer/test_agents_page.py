"""Agents, for admins: made, rotated, paused and ended by a press, each an event, every secret in one answer only."""

import json
import re

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from audit.models import Event
from plans import auth
from plans.models import Agent, AgentSecret, AgentSeen
from tests.makers import make_agent, make_person, make_plan, make_target, reread
from tests.reviewer.pages import admin_and_client, approval, client_of, text_of, told_of, url_of
from tests.time_passing import pass_time

pytestmark = pytest.mark.usefixtures("database")

PAGES = ["/agents/", "/targets/", "/callbacks/", "/streams/", "/people/"]


def secret_in(answer, name: str) -> str:
    found = re.search(rf'<code id="{name}">([^<]+)</code>', answer.content.decode())
    assert found, text_of(answer)[:400]
    return found[1]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("roles", [["reviewer"], ["auditor"], ["reviewer", "auditor"]])
def test_pages_for_admins_refuse_everybody_else(path, roles):
    client = client_of(make_person(*roles))
    assert client.get(path).status_code == 403
    assert client.post(path, {"do": "create"}).status_code == 403
    assert path not in client.get("/").content.decode()


@pytest.mark.parametrize("path", PAGES)
def test_pages_for_admins_ask_strangers_to_sign_in_and_stand_in_the_menu_of_admins(path):
    assert Client().get(path)["Location"].startswith("/login/")
    _, client = admin_and_client()
    assert client.get(path).status_code == 200
    assert f'href="{path}"' in client.get("/").content.decode()


def test_an_agent_is_made_with_secrets_that_stand_in_that_answer_alone():
    target, (admin, client) = make_target(), admin_and_client()
    made = client.post(
        "/agents/", {"do": "create", "name": "biller", "owner": admin.pk, "targets": [target.name],
                     "callback_url": "https://agent.example/told"},
    )  # fmt: skip
    assert made.status_code == 201
    agent = Agent.objects.get(name="biller")
    key, secrets = secret_in(made, "api-key"), [secret_in(made, f"{name}-secret") for name in ("webhook", "callback")]
    assert auth.hash_api_key(key) == bytes(agent.api_key_hash)
    assert list(agent.targets.all()) == [target]
    assert told_of("agent.changed") == [(f"person:{admin.pk}", "created")]
    later = client.get("/agents/biller/").content.decode() + client.get("/agents/").content.decode()
    kept = [str(session.get_decoded()) for session in Session.objects.all()]
    for secret in (key, *secrets):
        assert secret not in later
        assert secret not in str(kept)
        assert secret not in made.headers.get("Location", "")


@pytest.mark.parametrize(
    ("sent", "where", "sentence"),
    [
        ({"name": "a b"}, "new-name", "Use 1 to 128 letters"),
        ({"name": "taken"}, "new-name", "There is already an agent taken."),
        ({"name": ""}, "new-name", "This field is required."),
        ({"callback_url": "http://agent.example/"}, "new-callback_url", "must be https"),
        ({"owner": "0"}, "new-owner", "Select a valid choice"),
        ({"targets": ["nowhere"]}, "new-targets_0", "Select a valid choice"),
    ],
)
def test_a_mistake_is_said_above_and_at_its_field_and_makes_nothing(sent, where, sentence):
    target, (admin, client) = make_target(), admin_and_client()
    make_agent(target, name="taken", owner=admin)
    page = client.post("/agents/", {"do": "create", "name": "biller", "owner": admin.pk, **sent})
    html = page.content.decode()
    assert page.status_code == 422
    assert f'<a href="#{where}">' in html
    assert f'id="{where}"' in html
    assert html.count("There is a problem") == 1
    assert text_of(page).count(sentence) >= 2
    assert "<title>Error:" in html
    assert Agent.objects.count() == 1


def test_a_rotation_ends_the_old_key_at_once_and_leaves_two_webhook_secrets():
    (admin, client), made = admin_and_client(), make_agent(make_target(), name="biller")
    page = client.post("/agents/biller/", {"do": "rotate"})
    assert secret_in(page, "api-key") != made.api_key
    assert auth.hash_api_key(made.api_key) != bytes(Agent.objects.get().api_key_hash)
    assert AgentSecret.objects.filter(purpose="webhook", retired_at=None).count() == 2
    assert (f"person:{admin.pk}", "rotated") in told_of("agent.changed")
    assert text_of(client.get("/agents/biller/")).count("Webhook secret: live since") == 2


def test_pause_and_resume_are_one_press_each_and_say_what_they_do():
    (_, client), made = admin_and_client(), make_agent(make_target(), name="biller")
    page = client.post("/agents/biller/", {"do": "pause"})
    assert "New plans are refused. Waiting plans can still be decided." in text_of(page)
    made.agent.refresh_from_db()
    assert made.agent.is_paused
    client.post("/agents/biller/", {"do": "resume"})
    made.agent.refresh_from_db()
    assert not made.agent.is_paused
    assert [change for _, change in told_of("agent.changed")][1:] == ["paused", "resumed"]


def test_disabling_needs_the_name_typed_and_withdraws_what_waits():
    target, (_, client) = make_target(), admin_and_client()
    made = make_agent(target, name="biller")
    plan = make_plan(target=target, made=made)
    page = client.post("/agents/biller/", {"do": "disable", "typed": "bill"})
    assert page.status_code == 422
    assert "That is not the name" in text_of(page)
    assert reread(plan).state == "pending"
    page = client.post("/agents/biller/", {"do": "disable", "typed": "biller"})
    assert "1 waiting plan was withdrawn." in text_of(page)
    assert reread(plan).abandonment.reason == "withdrawn"
    page = client.post("/agents/biller/", {"do": "rotate"})
    assert page.status_code == 409
    assert "api-key" not in page.content.decode()


@pytest.mark.parametrize("method", ["get", "head"])
def test_reading_changes_nothing_whatever_it_asks(method):
    (_, client), made = admin_and_client(), make_agent(make_target(), name="biller")
    before = Event.objects.count()
    getattr(client, method)("/agents/biller/?do=rotate")
    getattr(client, method)("/agents/?do=create&name=x")
    assert Event.objects.count() == before
    made.agent.refresh_from_db()
    assert auth.hash_api_key(made.api_key) == bytes(made.agent.api_key_hash)


def test_an_agent_or_a_person_that_is_not_there_is_not_found():
    _, client = admin_and_client()
    for path in ("/agents/nobody/", "/targets/nowhere/", "/people/999999/"):
        assert client.get(path).status_code == 404
        assert client.post(path, {"do": "disable"}).status_code == 404


def test_plans_that_too_few_people_may_decide_are_told_to_admins_and_to_nobody_else():
    _, client = admin_and_client()
    plan = make_plan(target=make_target(approvals=2))
    reviewer = make_person("reviewer")
    for path in PAGES:
        page = text_of(client.get(path))
        assert "1 plan waits, and too few people may decide it" in page
        assert f"{plan.plan_id} {plan.agent.name} needs 2, may decide: 1" in page
    assert 'class="count short">1<' in client.get("/").content.decode()
    assert "too few people" not in text_of(client_of(reviewer).get("/"))
    make_person("reviewer")
    assert "too few people" not in text_of(client.get("/agents/"))


def test_an_owner_does_not_count_among_those_who_may_decide():
    _, client = admin_and_client()
    owner, target = make_person("reviewer"), make_target()
    make_plan(target=target, made=make_agent(target, owner=owner))
    assert "may decide: 0" in text_of(client.get("/people/"))


def set_form(agent, **changes):
    names = [target.name for target in agent.targets.all()]
    sent = {"owner": agent.owner_id, "targets": names, "callback_url": agent.callback_url}
    return {"do": "set", **sent, **changes}


def test_owner_targets_and_callback_are_changed_each_with_what_it_was_and_is():
    first, second, new_owner = make_target(), make_target(), make_person("admin")
    made, (admin, client) = make_agent(first), admin_and_client()
    waiting = make_plan(made=made, target=first)
    url = f"/agents/{made.agent.name}/"
    changes = {"owner": new_owner.pk, "targets": [second.name], "callback_url": "https://agent.example/told"}
    page = client.post(url, set_form(made.agent, **changes))
    assert page.status_code == 200
    assert "The agent is changed" in text_of(page)
    agent = Agent.objects.get(pk=made.agent.pk)
    assert (agent.owner_id, agent.callback_url) == (new_owner.pk, "https://agent.example/told")
    assert [target.name for target in agent.targets.all()] == [second.name]
    assert reread(waiting).state == "pending"
    [event] = [
        e for e in Event.objects.filter(kind="agent.changed").select_related("payload") if "set" in e.payload.body
    ]
    told = json.loads(event.payload.body)["data"]
    assert told["targets"] == {"from": [first.name], "to": [second.name]}
    assert told["owner"] == {"from": str(made.agent.owner_id), "to": str(new_owner.pk)}
    assert event.actor_id == str(admin.pk)


def test_saving_an_agent_as_it_is_leaves_no_event():
    made, (_, client) = make_agent(make_target()), admin_and_client()
    before = told_of("agent.changed")
    assert client.post(f"/agents/{made.agent.name}/", set_form(made.agent)).status_code == 200
    assert told_of("agent.changed") == before


@pytest.mark.parametrize("url", ["http://agent.example/", "ftp://agent.example/", "https://user:pw@agent.example/"])
def test_a_bad_callback_url_changes_nothing(url):
    made, (_, client) = make_agent(make_target()), admin_and_client()
    answer = client.post(f"/agents/{made.agent.name}/", set_form(made.agent, callback_url=url, targets=[]))
    assert answer.status_code == 422
    assert "There is a problem" in text_of(answer)
    assert made.agent.targets.count() == 1


def test_a_disabled_agent_is_not_changed():
    made, (_, client) = make_agent(make_target()), admin_and_client()
    client.post(f"/agents/{made.agent.name}/", {"do": "disable", "typed": made.agent.name})
    assert client.post(f"/agents/{made.agent.name}/", set_form(made.agent, targets=[])).status_code == 409
    assert made.agent.targets.count() == 1


def test_the_rate_of_an_agent_and_what_became_of_its_plans_are_on_the_pages(owner_connection, stub_target):
    target, (_, client) = make_target(base_url=stub_target.base_url), admin_and_client()
    made, person = make_agent(target), make_person("reviewer")
    plans = [make_plan(made=made, target=target, plan=touching(place)) for place in range(3)]
    pass_time(owner_connection, plans[0], 7_200)
    assert client_of(person).post(url_of(plans[1], "approve"), approval(plans[1])).status_code == 200
    assert client_of(person).post(url_of(plans[2], "reject"), approval(plans[2], reason="No")).status_code == 200
    page = text_of(client.get(f"/agents/{made.agent.name}/"))
    assert "Rate plans: 2 in the last hour, 3 in 24 hours" in page
    assert "at most 200 may wait at once" in page
    assert "50 % of 2 decisions in 30 days" in page
    assert "50 %" in text_of(client.get("/agents/"))
    make_agent(target, name="quiet")
    assert "no decision in 30 days" in text_of(client.get("/agents/quiet/"))


def touching(place: int) -> dict[str, object]:
    return {"actions": [{"op": "update", "target": f"ledger/{place}", "field": "limit", "from": 1, "to": 2}]}


def test_an_agent_is_last_seen_when_it_last_made_itself_known():
    made, (_, client) = make_agent(make_target()), admin_and_client()
    assert "Last seen never" in text_of(client.get(f"/agents/{made.agent.name}/"))
    assert Client().get("/api/v1/plans", headers={"Authorization": f"Bearer {made.api_key}"}).status_code == 200
    at = AgentSeen.objects.get(agent=made.agent).seen_at
    assert f"Last seen {at:%H:%M:%S} UTC" in text_of(client.get(f"/agents/{made.agent.name}/")).replace(",", "")
    assert '<td data-h="Last seen"><time' in client.get("/agents/").content.decode()


def test_which_key_is_live_and_since_when_changes_with_a_rotation():
    made, (_, client) = make_agent(make_target(), name="biller"), admin_and_client()
    assert f"API key {made.api_key[:8]}… : live since" in text_of(client.get("/agents/biller/"))
    key = secret_in(client.post("/agents/biller/", {"do": "rotate"}), "api-key")
    page = client.get("/agents/biller/")
    assert f"API key {key[:8]}… : live since" in text_of(page)
    assert made.api_key[:8] not in page.content.decode()


def test_how_many_agents_are_active_and_paused_heads_their_list():
    (_, client), target = admin_and_client(), make_target()
    for name in ("one", "two", "three"):
        make_agent(target, name=name)
    client.post("/agents/two/", {"do": "pause"})
    client.post("/agents/three/", {"do": "disable", "typed": "three"})
    assert "1 active, 1 paused" in text_of(client.get("/agents/"))


def test_an_owner_who_hands_an_agent_over_still_decides_none_of_its_waiting_plans(stub_target):
    owner, other = make_person("admin", "reviewer"), make_person("admin")
    target = make_target(base_url=stub_target.base_url)
    made, client = make_agent(target, owner=owner), client_of(owner)
    waiting = make_plan(made=made, target=target)
    assert client.post(f"/agents/{made.agent.name}/", set_form(made.agent, owner=other.pk)).status_code == 200
    assert Agent.objects.get(pk=made.agent.pk).owner_id == other.pk
    page = client.get(url_of(waiting))
    assert "This plan is by an agent of yours" in text_of(page)
    assert 'data-action="approve"' not in page.content.decode()
    assert client.post(url_of(waiting, "approve"), approval(waiting)).status_code == 403
    assert client.post(url_of(waiting, "reject"), approval(waiting, reason="No")).status_code == 403
    assert reread(waiting).state == "pending"
