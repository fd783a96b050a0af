"""Pages for admins and the reading of current values, in a real browser: with and without JavaScript, in any width."""

from typing import Any

import pytest

from audit.recording import SYSTEM
from plans import callbacks
from plans.demo.models import Invoice
from plans.models import Agent, Policy, Target
from reviewer.streams.changing import create_stream
from reviewer.streams.models import Stream
from tests.browser.test_looks import wrong_with
from tests.fixtures import PASSWORD
from tests.hosted_plans import plan_refund
from tests.makers import make_agent, make_plan, make_target, policy_of
from tests.reviewer.pages import url_of
from tests.stub_behaviour import Answer, Delay

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]


@pytest.fixture
def admin(make_person):
    return make_person("admin", "auditor", name="Ada Admin")


@pytest.fixture
def office(page, sign_in, admin):
    """A page on which an admin is signed in."""
    sign_in(page, admin)
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_for_admins_is_clean_and_does_not_scroll_sideways(office, axe, theme, admin, make_person):
    target = make_target(
        "payments-" + "api-" * 20, approvals=2, bearer="x", base_url="https://" + "long." * 20 + "example"
    )
    made = make_agent(target, name="agent-" + "long-" * 20, callback_url="http://127.0.0.1:9/" + "told/" * 20)
    make_plan("rejected", target=target, made=made)
    callbacks.deliver_due()
    stream, _ = create_stream(name="siem-" + "long-" * 20, url="https://siem.example/" + "events/" * 20, by=SYSTEM)
    Stream.objects.update(failures=2, last_error="The host was not found.")
    make_plan(target=target, made=made)  # nobody may decide it: it stands above every page
    policy_of(target, approvals=0, is_guarded=True)
    paths = ["/agents/", f"/agents/{made.agent.name}/", "/targets/", f"/targets/{target.name}/", "/targets/billing/"]
    paths += [
        "/callbacks/",
        "/callbacks/?outcome=x",
        "/streams/",
        f"/streams/{stream.name}/",
        "/people/",
        f"/people/{admin.pk}/",
        f"/people/{made.agent.owner_id}/",
    ]
    assert wrong_with(office, axe, theme, paths) == []


def test_mistakes_and_secrets_are_clean_too_and_take_focus(office, axe):
    make_target("ledger")
    office.goto("/agents/")
    office.click("summary:has-text('Add an agent')")
    office.fill("#new-name", "a b")
    office.click("text=Add this agent and show")
    office.wait_for_selector("text=There is a problem")
    assert office.evaluate("document.activeElement.id") == "outcome"
    assert axe(office) == []
    office.click(".errsum a")
    assert office.evaluate("document.activeElement.id") == "new-name"
    office.fill("#new-name", "biller")
    office.check("#new-targets_0")
    office.click("text=Add this agent and show")
    office.wait_for_selector("#api-key")
    outcome, head = office.locator("#outcome").bounding_box(), office.locator(".page-head").bounding_box()
    assert head["y"] - (outcome["y"] + outcome["height"]) >= 16
    assert axe(office) == []
    office.set_viewport_size({"width": 320, "height": 640})
    assert office.evaluate("document.documentElement.scrollWidth") == 320


def test_a_second_press_does_not_take_the_secrets_away(office):
    office.goto("/agents/")
    office.click("summary:has-text('Add an agent')")
    office.fill("#new-name", "biller")
    office.dblclick("text=Add this agent and show")
    office.wait_for_selector("#api-key")
    assert Agent.objects.count() == 1


def test_a_secret_can_be_copied(browser, sign_in, admin):
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    page = browser.new_page()
    sign_in(page, admin)
    make_agent(make_target(), name="biller")
    page.goto("/agents/biller/")
    page.click("text=Make a new key and new secrets")
    key = page.inner_text("#api-key")
    page.click("[data-copy=api-key]")
    page.wait_for_selector("[data-copy=api-key].done")
    assert page.evaluate("navigator.clipboard.readText()") == key


def test_a_policys_form_tells_what_the_rule_would_ask_for_as_its_fields_change(office, axe):
    target = make_target("ledger")
    made = make_agent(target)
    for _ in range(3):
        make_plan(target=target, made=made)
    asked: list[str] = []
    office.on("request", lambda request: asked.append(request.url) if "/policy/" in request.url else None)
    office.goto("/targets/ledger/")
    office.wait_for_selector("#policy-panel >> text=as many as until now")
    office.fill("#policy-approvals", "")
    office.wait_for_selector("#policy-panel >> text=until the form is right")
    office.locator("#policy-approvals").press_sequentially("10")  # two keys, and one question
    office.wait_for_selector("#policy-panel >> text=would ask for 30 approvals")
    assert [url.partition("?")[2] for url in asked] == ["approvals=", "approvals=10"]
    office.check("#policy-is_guarded")
    office.wait_for_selector("#policy-panel >> text=10 people, a typed fact always")
    assert office.inner_text("#policy-said").startswith("This rule (10 people, a typed fact always)")
    assert axe(office) == []
    assert "csrf" not in "".join(asked)
    office.click("text=Make the next version")
    office.wait_for_selector("#outcome >> text=Policy 2 is made")
    assert "10 people, a typed fact always" in office.inner_text("#policy-panel")


def test_enter_in_a_policys_form_makes_the_next_version(office):
    make_target("ledger")
    office.goto("/targets/ledger/")
    office.fill("#policy-approvals", "4")
    office.press("#policy-approvals", "Enter")
    office.wait_for_selector("#outcome >> text=Policy 2 is made")
    assert list(
        Policy.objects.filter(target__name="ledger").order_by("version").values_list("approvals", flat=True)
    ) == [1, 4]


def test_the_button_that_was_pressed_is_the_one_that_is_busy(office):
    make_target("ledger")
    office.goto("/targets/ledger/")
    office.evaluate(
        "addEventListener('submit', event => event.preventDefault());"
        "window.form = document.querySelector('form:has(> [name=do][value=policy])');"
        "window.busy = () => [...form.querySelectorAll('.htmx-request')].map(button => button.textContent);"
    )
    again = "delete form.dataset.sent; form.querySelector('.htmx-request').classList.remove('htmx-request');"
    make, count = ["Make the next version"], ["Count with these values"]
    assert office.evaluate("form.requestSubmit(form.querySelector('[value=count]')); busy()") == count
    assert (
        office.evaluate(f"{again} form.requestSubmit(form.querySelector('[type=submit]:not([name])')); busy()") == make
    )
    # Where no button was pressed it is the first that is seen.
    assert (
        office.evaluate(f"{again} form.prepend(form.querySelector('[value=count]')); form.requestSubmit(); busy()")
        == make
    )


def test_everything_works_without_javascript(chromium, site, admin):
    make_target("ledger")
    page = chromium.new_context(base_url=site.url, java_script_enabled=False).new_page()
    page.goto("/login/?next=/agents/")
    page.fill("input[name=login]", admin.email)
    page.fill("input[name=password]", PASSWORD)
    page.click("form button[type=submit]")
    page.click("summary:has-text('Add an agent')")
    page.fill("#new-name", "biller")
    page.click("text=Add this agent and show")
    assert page.inner_text("#api-key").startswith("pdk_")
    page.goto("/agents/")
    page.click("text=Pause")
    assert "The agent is paused" in page.inner_text("#outcome")
    page.fill("#end-typed", "biller")
    page.click("text=Disable this agent for good")
    assert "The agent is disabled" in page.inner_text("#outcome")
    page.goto("/targets/ledger/")
    page.fill("#policy-approvals", "3")
    make_plan(target=Target.objects.get(name="ledger"))
    page.click("text=Count with these values")
    assert "This rule (3 people) would ask for 3 approvals. Until now it was 1." in page.inner_text("#policy-panel")
    assert page.input_value("#policy-approvals") == "3"
    page.click("text=Make the next version")
    assert "Policy 2 is made" in page.inner_text("#outcome")
    page.fill("#policy-approvals", "2")
    page.press("#policy-approvals", "Enter")
    assert "Policy 3 is made" in page.inner_text("#outcome")
    assert Policy.objects.get(target__name="ledger", version=3).approvals == 2
    page.context.close()


# --- what has moved since the dry run -------------------------------------------------------------------------------


def test_the_page_reads_the_current_values_by_itself_and_nothing_moves_under_the_hand(desk, axe):
    plan = plan_refund().plan
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    held: list[Any] = []
    desk.route("**/recheck/", lambda route: held.append(route))  # noqa: PLW0108 - it asks what it was given
    desk.goto(url_of(plan))
    desk.wait_for_selector("#recheck.reading")
    before = desk.locator("#approve").bounding_box()
    assert "Writing" not in desk.inner_text("#approve")  # the page asked, nobody pressed
    held[0].continue_()
    desk.wait_for_selector("#recheck.no >> text=1 of 3 current values has changed")
    assert desk.locator("#approve").bounding_box() == before
    assert "47000" in desk.inner_text("#moved-since")
    assert axe(desk) == []
    desk.set_viewport_size({"width": 320, "height": 640})
    assert desk.evaluate("document.documentElement.scrollWidth") == 320


def heads_of(page):
    """The heads of the first change's columns, as they are seen."""
    return page.locator("#change-1 thead").inner_text().split()


def test_read_again_finds_what_moved_meanwhile(desk):
    plan = plan_refund().plan
    desk.goto(url_of(plan))
    desk.wait_for_selector("#recheck.ok >> text=3 of 3 current values still match")
    assert heads_of(desk) == ["Field", "Now", "Will", "be"]
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    desk.click("#recheck [data-recheck]")
    desk.wait_for_selector("#recheck.no")
    desk.click("text=See what changed")
    assert desk.url.endswith("#moved-since")
    assert heads_of(desk) == ["Field", "When", "planned", "Will", "be"]
    desk.set_viewport_size({"width": 390, "height": 900})
    said = desk.locator("#change-1 td").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert said == '"When planned"'


def test_a_target_that_takes_its_time_holds_up_no_approval(desk, stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    slow = Delay(3, Answer(200, {"plan_id": plan.plan_id, "state": "pending"}))
    quick = Answer(200, {"plan_id": plan.plan_id, "state": "pending"})
    stub_target.script_look_ups(plan.plan_id, slow, quick)
    desk.goto(url_of(plan))
    desk.wait_for_selector("#plan:has(#recheck.reading) #approve:not([data-arming])")
    desk.click("#approve")
    desk.wait_for_selector("#plan[data-state='committed']")
    assert stub_target.applied == 1


def test_values_that_cannot_be_read_are_said_and_can_be_asked_for_again(desk):
    plan = plan_refund().plan
    desk.route("**/recheck/", lambda route: route.abort())
    desk.goto(url_of(plan))
    desk.wait_for_selector("#recheck >> text=could not be read just now")
    assert desk.is_visible("#recheck [data-recheck]")
    desk.unroute("**/recheck/")
    desk.click("#recheck [data-recheck]")
    desk.wait_for_selector("#recheck.ok")


def test_without_javascript_a_link_reads_the_current_values(chromium, site, reviewer):
    plan = plan_refund().plan
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    page = chromium.new_context(base_url=site.url, java_script_enabled=False).new_page()
    page.goto(f"/login/?next={url_of(plan)}")
    page.fill("input[name=login]", reviewer.email)
    page.fill("input[name=password]", PASSWORD)
    page.click("form button[type=submit]")
    assert "Has anything changed since it was planned?" in page.inner_text("#recheck")
    page.click("text=Read the current values")
    assert "1 of 3 current values has changed" in page.inner_text("#recheck")
    assert page.is_visible("#approve")
    page.context.close()
