"""Decisions in a real browser: by mouse, by keyboard, without JavaScript, twice, too late, without a session."""

import re
from datetime import timedelta
from typing import Any

import pytest

from plans.models import Plan
from tests.browser.armed import until_armed
from tests.fixtures import PASSWORD
from tests.makers import make_person, make_plan, make_target, reread
from tests.reviewer.pages import approval, client_of, url_of
from tests.stub_behaviour import Commit, Delay, DropAfterApplying, conflict

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]


def plan_at(stub: Any, approvals: int = 1, **data: Any) -> Plan:
    return make_plan(target=make_target(base_url=stub.base_url, approvals=approvals), **data)


def final_plan_at(stub: Any) -> Plan:
    actions = [{"op": "create", "target": "refund/7", "to": {"amount_cents": 48000}, "reversible": False}]
    return plan_at(stub, intent="refund:7", plan={"actions": actions})


def open_plan(page: Any, plan: Plan) -> None:
    page.goto(url_of(plan))
    until_armed(page)


def wait_for_state(page: Any, state: str) -> None:
    page.wait_for_selector(f"#plan[data-state='{state}']")


def test_from_the_inbox_to_the_outcome(desk, stub_target):
    stub_target.script(Commit(result={"entry": "L-9"}))
    plan = plan_at(stub_target)
    desk.goto("/")
    assert desk.title().startswith("(1) Inbox")
    with desk.expect_navigation():
        desk.click(f"h3 a[href='{url_of(plan)}']")
    until_armed(desk)
    desk.click("text=Approve and write 1 change")
    wait_for_state(desk, "committed")
    assert desk.inner_text("#outcome h2") == "Written: 1 change"
    assert desk.evaluate("document.activeElement.id") == "outcome"
    assert desk.inner_text("#nav-count").strip() == ""
    assert desk.url.endswith(url_of(plan))
    assert "L-9" in desk.inner_text("#plan")
    assert stub_target.applied == 1


def test_a_conflict_is_swapped_in_with_what_changed(desk, stub_target):
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    desk.click("#approve")
    wait_for_state(desk, "conflicted")
    assert "limit was 100 when the agent planned. It is 175 now." in desk.inner_text("#outcome")
    desk.click("text=Ask the agent to plan again")
    desk.wait_for_selector("text=The agent was asked to plan again")


def test_an_unknown_outcome_never_reads_as_done_or_failed(desk, stub_target):
    stub_target.script(DropAfterApplying())
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    desk.click("#approve")
    wait_for_state(desk, "unknown")
    assert "We don't know" in desk.inner_text("#outcome")
    assert desk.inner_text("#state").strip() == "Outcome unknown"


def test_rejecting_needs_a_reason_and_keeps_what_was_typed(desk):
    plan = make_plan()
    open_plan(desk, plan)
    desk.click("summary:has-text('Reject')")
    desk.eval_on_selector("#reason", "field => field.required = false")
    desk.fill("#reason", "   ")
    desk.click("#reject")
    desk.wait_for_selector("#reason-e")
    assert desk.is_visible("#reason")
    desk.fill("#reason", "Wrong account, see ticket 9907")
    desk.click("#reject")
    wait_for_state(desk, "rejected")
    assert "Wrong account, see ticket 9907" in desk.inner_text("#outcome")


def test_v98_a_double_click_and_a_click_on_reject_are_one_decision(desk, stub_target):
    stub_target.script(Delay(3, Commit()))  # long enough to look at the page, however loaded the machine
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    colour = "getComputedStyle(document.querySelector('#approve')).backgroundColor"
    desk.hover("#approve")
    desk.wait_for_timeout(200)  # its colour takes 120 ms
    inviting = desk.evaluate(colour)
    desk.dblclick("#approve")
    desk.wait_for_timeout(200)
    assert desk.evaluate(colour) != inviting  # or its word could not be read where the pointer still is
    assert desk.is_disabled("#approve")
    assert desk.is_disabled("#reject")
    assert desk.inner_text("#approve").strip() == "Writing…"
    wait_for_state(desk, "committed")
    assert stub_target.applied == 1
    assert len(stub_target.commits) == 1


def test_a_press_right_after_the_page_appeared_is_not_taken(desk, stub_target):
    plan = plan_at(stub_target)
    desk.add_init_script(
        "addEventListener('DOMContentLoaded', () => setTimeout(() => document.querySelector('#approve').click(), 50))"
    )
    open_plan(desk, plan)
    wait_for_state(desk, "pending")
    assert reread(plan).state == "pending"
    desk.click("#approve")
    wait_for_state(desk, "committed")


def test_the_fact_unlocks_approve_and_the_server_checks_it(desk, stub_target):
    plan = final_plan_at(stub_target)
    open_plan(desk, plan)
    assert desk.get_attribute("#approve", "aria-disabled") == "true"
    desk.fill("#fact", "48001")
    assert desk.get_attribute("#approve", "aria-disabled") is None
    desk.click("#approve")
    desk.wait_for_selector("#fact-e")
    assert desk.evaluate("document.activeElement.id") == "outcome"
    assert reread(plan).state == "pending"
    until_armed(desk)
    desk.fill("#fact", "48000")
    desk.click("#approve")
    wait_for_state(desk, "committed")


def test_a_press_on_what_has_just_appeared_does_not_count_and_is_told(desk, stub_target):
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    desk.evaluate(
        """() => {
            const detail = { target: document.querySelector("#plan") };
            document.dispatchEvent(new CustomEvent("htmx:afterSettle", { detail }));
            document.querySelector("#approve").click();
        }"""
    )
    assert desk.is_visible("#early")
    assert "did not count" in desk.inner_text("#early")
    assert desk.inner_text("#shout") == desk.inner_text("#early")
    until_armed(desk)
    assert (stub_target.commits, reread(plan).state) == ([], "pending")
    desk.click("#approve")
    wait_for_state(desk, "committed")


def test_v107_enter_in_a_field_decides_nothing(desk, stub_target):
    plan = final_plan_at(stub_target)
    open_plan(desk, plan)
    desk.fill("#fact", "48000")
    desk.press("#fact", "Enter")
    desk.wait_for_timeout(300)
    assert reread(plan).state == "pending"
    assert desk.evaluate("document.activeElement.id") == "approve"
    desk.keyboard.press("Enter")
    wait_for_state(desk, "committed")


def test_the_whole_way_by_keyboard(desk, stub_target):
    first = plan_at(stub_target, lifetime=timedelta(minutes=8))
    second = plan_at(stub_target, lifetime=timedelta(minutes=20))
    desk.goto("/")
    for key in "jjk":
        desk.keyboard.press(key)
    desk.keyboard.press("Enter")
    desk.wait_for_selector("#plan")
    assert desk.url.endswith(url_of(first))
    until_armed(desk)
    desk.keyboard.press("c")
    assert desk.evaluate("document.activeElement.id") == "change-1"
    desk.keyboard.press("a")
    assert reread(first).state == "pending"
    desk.keyboard.press("Enter")
    wait_for_state(desk, "committed")
    desk.keyboard.press("n")
    desk.wait_for_url(f"**{url_of(second)}")
    until_armed(desk)
    desk.keyboard.press("r")
    desk.keyboard.type("no: a, r and j are letters here")
    assert desk.input_value("#reason") == "no: a, r and j are letters here"
    desk.keyboard.press("Tab")
    desk.keyboard.press("Enter")
    wait_for_state(desk, "rejected")
    desk.keyboard.press("?")
    assert desk.is_visible("#keys")
    desk.keyboard.press("Escape")
    assert not desk.is_visible("#keys")
    desk.keyboard.press("g")
    desk.keyboard.press("i")
    desk.wait_for_url(re.compile(r"://[^/]+/$"))
    desk.keyboard.press("g")
    desk.keyboard.press("a")
    desk.wait_for_url("**/audit/")


def test_single_keys_can_be_turned_off(desk, reviewer):
    make_plan()
    reviewer.has_single_key_shortcuts = False
    reviewer.save(update_fields=["has_single_key_shortcuts"])
    desk.goto("/")
    desk.keyboard.press("j")
    assert desk.query_selector(".plans > li.sel") is None


def test_v102_a_stale_tab_is_told_and_a_late_press_meets_only_its_own_plan(desk, stub_target):
    plan, other = plan_at(stub_target), plan_at(stub_target)
    open_plan(desk, plan)
    client_of().post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    desk.click("#approve")
    wait_for_state(desk, "rejected")
    assert "rejected by" in desk.inner_text("#outcome")
    assert desk.query_selector("[data-action='approve']") is None
    assert reread(other).state == "pending"


def test_v106_news_appear_above_the_page_and_what_is_being_typed_stays(desk, stub_target):
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    desk.keyboard.press("r")
    desk.keyboard.type("half a sen")
    client_of().post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    desk.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    desk.wait_for_selector("#news >> text=This page is out of date")
    desk.keyboard.type("tence")
    assert desk.input_value("#reason") == "half a sentence"


def is_asked_by_itself(request: Any) -> bool:
    return request.method == "GET" and request.resource_type in ("xhr", "fetch")


def test_v100_without_a_session_approve_leads_to_sign_in_and_back_to_the_plan_undecided(desk, stub_target, reviewer):
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    # What the page asks by itself would lead to the sign-in before the press, or together with it.
    desk.route("**/*", lambda route: None if is_asked_by_itself(route.request) else route.continue_())
    desk.context.clear_cookies()
    desk.click("#approve")
    desk.wait_for_selector("#news >> text=session changed")  # the token is gone with the session: a sentence, no page
    assert stub_target.applied == 0
    desk.goto(url_of(plan))
    desk.fill("input[name=login]", reviewer.email)
    desk.fill("input[name=password]", PASSWORD)
    desk.click("button[type=submit]")
    desk.wait_for_url(f"**{url_of(plan)}")
    assert reread(plan).state == "pending"


def test_v101_a_new_session_in_another_tab_is_a_sentence_and_a_reload_mends_it(desk, stub_target, sign_in, reviewer):
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    other = desk.context.new_page()
    other.goto("/")
    other.click("text=Sign out")
    other.wait_for_url("**/login/**")
    sign_in(other, reviewer)
    desk.click("#approve")
    desk.wait_for_selector("#news >> text=session changed")
    wait_for_state(desk, "pending")
    assert stub_target.applied == 0
    with desk.expect_navigation():
        desk.click("#news >> text=Reload")
    until_armed(desk)
    desk.click("#approve")
    wait_for_state(desk, "committed")


def test_a_lost_connection_says_that_it_is_not_known(desk, stub_target):
    plan = plan_at(stub_target)
    open_plan(desk, plan)
    desk.route("**/approve/", lambda route: route.abort("internetdisconnected"))
    desk.click("#approve")
    desk.wait_for_selector("#news >> text=We don't know if the server got this")
    assert reread(plan).state == "pending"


def test_v103_the_back_button_shows_the_true_state_and_nothing_is_kept_in_the_browser(desk, stub_target):
    plan = plan_at(stub_target)
    desk.goto("/")
    with desk.expect_navigation():
        desk.click(f"h3 a[href='{url_of(plan)}']")
    until_armed(desk)
    desk.click("#approve")
    wait_for_state(desk, "committed")
    desk.go_back()
    desk.wait_for_selector("text=Nothing needs a decision")
    assert desk.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])") == "[{},{}]"


# Before a page's own scripts: what it says while it loads is heard too.
HEAR = """
  window.heard = [];
  new MutationObserver(changes => {
    for (const { target } of changes) if (target.id == "say" || target.id == "shout") heard.push(target.textContent);
  }).observe(document, { childList: true, subtree: true });
"""


def test_x34_at_expiry_the_buttons_lock_and_the_page_says_so(desk, stub_target):
    """Where the page's own clock is the first to know it: a hint from the server may come sooner, and says it too."""
    desk.add_init_script(HEAR)
    desk.route(re.compile("/live/"), lambda route: route.fulfill(status=404))
    plan = plan_at(stub_target, lifetime=timedelta(seconds=5))
    desk.goto(url_of(plan))
    desk.wait_for_selector("#approve[aria-disabled='true']")
    assert desk.inner_text(".due [role=timer]") == "Time is up"
    desk.wait_for_selector("#news >> text=This page is out of date")
    assert desk.evaluate("heard") == ["Time is up. Nobody can decide this plan on this page any more."]
    assert stub_target.applied == 0


def test_a_time_that_runs_out_while_it_is_written_is_no_news_of_what_was_written(desk, stub_target):
    stub_target.script(Delay(5))
    plan = plan_at(stub_target, lifetime=timedelta(seconds=4))
    desk.add_init_script(HEAR)
    open_plan(desk, plan)
    desk.click("#approve")
    desk.wait_for_selector(".due >> text=Time is up")
    wait_for_state(desk, "committed")
    assert stub_target.applied == 1
    assert [text for text in desk.evaluate("heard") if "Time is up" in text or "Nothing" in text] == []


def test_a_time_that_runs_out_after_somebody_else_approved_says_nothing_besides_the_news(desk, stub_target, reviewer):
    plan = plan_at(stub_target, lifetime=timedelta(seconds=5))
    desk.add_init_script(HEAR)
    open_plan(desk, plan)
    client_of(make_person("reviewer")).post(url_of(plan, "approve"), approval(plan))
    desk.wait_for_selector("#news >> text=This page is out of date")
    desk.wait_for_selector(".due >> text=Time is up")
    assert reread(plan).state == "committed"
    assert desk.evaluate("heard") == []


# --- without JavaScript ---------------------------------------------------------------------------------------------


@pytest.fixture
def plain(chromium, site, sign_in, reviewer):
    """A browser that runs no scripts."""
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, reviewer)
    yield page
    context.close()


def test_without_javascript_a_plan_is_approved_and_the_answer_is_the_outcome(plain, stub_target):
    plan = plan_at(stub_target)
    plain.goto("/")
    plain.click(f"h3 a[href='{url_of(plan)}']")
    plain.click("#approve")
    assert plain.get_attribute("#plan", "data-state") == "committed"
    assert plain.title().startswith("Written")


def test_without_javascript_a_plan_is_rejected_with_a_reason(plain):
    plan = make_plan()
    plain.goto(url_of(plan))
    plain.click("summary:has-text('Reject')")
    plain.fill("#reason", "Wrong account")
    plain.click("#reject")
    assert plain.get_attribute("#plan", "data-state") == "rejected"


def test_v107_without_javascript_enter_in_the_fact_field_decides_nothing(plain, stub_target):
    plan = final_plan_at(stub_target)
    plain.goto(url_of(plan))
    plain.fill("#fact", "48000")
    plain.press("#fact", "Enter")
    plain.wait_for_timeout(300)
    assert reread(plan).state == "pending"
    plain.click("#approve")
    assert plain.get_attribute("#plan", "data-state") == "committed"


def test_without_javascript_history_is_searched(plain):
    plan, other = make_plan("rejected"), make_plan("committed")
    plain.goto("/history/")
    plain.select_option("#id_state", "rejected")
    plain.click("main button[type=submit]")
    assert plan.plan_id in plain.inner_text("main")
    assert other.plan_id not in plain.inner_text("main")
