"""What keeps pages safe: sign-in, methods, tokens, headers, whole documents; and what templates may not hold."""

import re

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from tests.makers import make_person, make_plan, reread
from tests.reviewer.pages import approval, client_of, url_of

pytestmark = pytest.mark.usefixtures("database")

PAGES = ["/", "/history/", "/audit/", "/settings/", "/inbox/fresh/"]
ACTIONS = ["approve", "reject", "settle", "replan"]
HTMX = {"HX-Request": "true"}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_asks_to_sign_in_and_comes_back(path):
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/")


def test_v99_a_swap_without_a_session_is_a_whole_sign_in_page():
    plan = make_plan()
    answer = Client().get(url_of(plan, "news"), headers={**HTMX, "HX-Current-URL": f"http://testserver{url_of(plan)}"})
    assert answer["HX-Redirect"] == f"/login/?next={url_of(plan).replace('/', '%2F')}"
    assert answer.content == b""


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("headers", [{}, HTMX])
def test_v100_a_decision_without_a_session_changes_nothing_and_comes_back_to_the_page_not_to_the_action(
    action, headers
):
    plan = make_plan()
    answer = Client().post(url_of(plan, action), approval(plan, reason="x"), headers=headers)
    assert (answer.get("HX-Redirect") or answer["Location"]) == f"/login/?next={url_of(plan).replace('/', '%2F')}"
    assert reread(plan).state == "pending"


def test_v101_a_dead_csrf_token_is_a_short_sentence_with_403_and_decides_nothing():
    plan, client = make_plan(), client_of(enforce_csrf_checks=True)
    part = client.post(url_of(plan, "approve"), approval(plan), headers=HTMX)
    assert part.status_code == 403
    assert b"session changed" in part.content
    assert b"<html" not in part.content
    assert client.post(url_of(plan, "approve"), approval(plan)).status_code == 403
    assert reread(plan).state == "pending"


@pytest.mark.parametrize("path", ["/", "/history/", "plan"])
def test_v103_pages_are_not_stored(path):
    answer = client_of().get(url_of(make_plan()) if path == "plan" else path)
    assert "no-store" in answer["Cache-Control"]


def test_v104_a_page_is_a_whole_document_also_for_htmx_and_says_what_it_depends_on():
    client = client_of()
    for path in ("/", "/history/", url_of(make_plan())):
        answer = client.get(path, headers={**HTMX, "HX-History-Restore-Request": "true"})
        assert b"<!doctype html>" in answer.content
        assert "HX-Request" in answer["Vary"]


def test_v105_a_part_opened_as_a_page_leads_to_the_page():
    plan = make_plan()
    assert client_of().get(url_of(plan, "news"))["Location"] == url_of(plan)
    assert client_of().get("/inbox/fresh/")["Location"] == "/"
    assert Client().get(url_of(plan, "news"))["Location"].startswith("/login/")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("method", ["get", "head", "put", "delete"])
def test_v108_only_a_post_decides(action, method):
    plan = make_plan()
    answer = getattr(client_of(), method)(url_of(plan, action), headers={"Purpose": "prefetch"})
    assert answer.status_code == 405
    assert reread(plan).state == "pending"


def test_v109_a_poll_does_not_make_a_session_live_longer():
    plan, client = make_plan(), client_of()
    before = Session.objects.get().expire_date
    client.get("/inbox/fresh/", headers=HTMX)
    client.get(url_of(plan, "news"), headers=HTMX)
    assert Session.objects.get().expire_date == before
    Session.objects.all().delete()
    assert client.get("/inbox/fresh/", headers=HTMX)["HX-Redirect"].startswith("/login/")


def test_people_without_a_role_see_no_plans():
    assert client_of(make_person()).get("/").status_code == 403


def test_l127_no_page_shows_a_token():
    sentinel = "pt-sentinel-of-this-test"
    client, auditor = client_of(), client_of(make_person("auditor"))
    for state in ("pending", "unknown", "committed", "abandoned"):
        plan = make_plan(state, plan={"plan_token": f"{sentinel}-{state}"})
        for page in (client.get(url_of(plan)), client.get("/"), client.get("/history/"), auditor.get("/audit/")):
            assert sentinel not in page.content.decode()


def test_settings_are_ones_own_and_take_no_unknown_zone():
    person = make_person("reviewer")
    client = client_of(person)
    chosen = {"time_zone": "Europe/Berlin", "theme": "dark"}
    assert client.post("/settings/", chosen)["Location"] == "/settings/?saved=1"
    person.refresh_from_db()
    assert (person.time_zone, person.theme, person.has_single_key_shortcuts) == ("Europe/Berlin", "dark", False)
    assert client.post("/settings/", chosen | {"time_zone": "Mars/Base"}).status_code == 422
    page = client.get("/").content.decode()
    assert 'data-theme="dark"' in page
    assert 'data-single-keys="off"' in page
    assert "Times in UTC and Berlin" in page


TEMPLATES = sorted((settings.PROJECT / "templates").glob("**/*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_holds_inline_script_style_or_handlers(path):
    text = path.read_text()
    assert not re.search(r"\sstyle=|<style|\son\w+=|hx-on|javascript:|\bjs:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "|safe" not in text
    assert "autoescape" not in text
    for value in re.findall(r'hx-[\w-]+="([^"]*)"', text):
        assert not re.search(r"\{\{|\bplan\.|urls\.", value), value


def test_no_template_names_an_address_outside_this_site():
    for path in TEMPLATES:
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', path.read_text()), path
