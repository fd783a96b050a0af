"""Flows of a reviewer's day in a real browser: a second reviewer, settling by hand, going back, idling, being slow."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session

from plans import review
from plans.models import Plan
from plans.schema import shown_digest
from reviewer.idle import USED_AT
from tests.browser.armed import until_armed
from tests.makers import make_agent, make_plan, make_target, reread
from tests.reviewer.pages import url_of
from tests.stub_behaviour import conflict, problem
from tests.time_passing import pass_time_to_expiry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]


def open_plan(page: Any, plan: Plan) -> None:
    page.goto(url_of(plan))
    until_armed(page)


def test_two_people_approve_and_the_second_ones_yes_writes(desk, chromium, site, sign_in, make_person, stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url, approvals=2))
    open_plan(desk, plan)
    assert "Approve, nothing is written yet" in desk.inner_text("#approve")
    desk.click("#approve")
    desk.wait_for_selector("#outcome")
    assert desk.get_attribute("#plan", "data-state") == "pending"
    assert "It waits for 1 more person" in desk.inner_text("main")
    assert stub_target.commits == []
    assert desk.query_selector("#approve") is None
    context = chromium.new_context(base_url=site.url)
    other = context.new_page()
    sign_in(other, make_person("reviewer", name="Tom Okafor"))
    open_plan(other, plan)
    assert "Lena Brandt" in other.inner_text("#plan")
    other.click("text=Approve and write 1 change")
    other.wait_for_selector("#plan[data-state=committed]")
    desk.wait_for_selector("#news >> text=out of date", timeout=15_000)
    context.close()
    assert stub_target.applied == 1


def test_a_refusal_of_the_target_is_shown_in_its_words(desk, stub_target):
    stub_target.script(problem(422, "The charge was refunded already."))
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    open_plan(desk, plan)
    desk.click("#approve")
    desk.wait_for_selector("#plan[data-state=refused]")
    assert "The charge was refunded already." in desk.inner_text("#outcome")
    assert desk.evaluate("document.activeElement.id") == "outcome"


def test_a_target_that_is_down_is_said_and_the_plan_can_be_approved_again(desk, stub_target):
    plan = make_plan(target=make_target())
    open_plan(desk, plan)
    desk.click("#approve")
    desk.wait_for_selector("#outcome >> text=Nothing was sent")
    assert desk.get_attribute("#plan", "data-state") == "pending"
    assert desk.is_enabled("#approve")


def test_v111_what_could_not_be_written_never_reads_as_written_or_approved(desk, stub_target):
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    open_plan(desk, plan)
    desk.evaluate(
        "window.said = []; new MutationObserver(() => window.said.push(document.querySelector('main').innerText))"
        ".observe(document.querySelector('main'), {subtree: true, childList: true, characterData: true})"
    )
    desk.click("#approve")
    desk.wait_for_selector("#plan[data-state=conflicted]")
    assert "Written" not in " ".join([*desk.evaluate("window.said"), desk.inner_text("main")])
    assert "Approved" not in desk.inner_text("#outcome") + desk.inner_text("#state")
    assert "nothing" in desk.inner_text("#outcome").lower()


def test_an_unknown_outcome_is_settled_by_hand_with_a_written_reason(desk, owner_connection):
    plan = make_plan("unknown")
    pass_time_to_expiry(owner_connection, plan, 120)
    desk.goto("/")
    assert desk.locator(".plans > li").first.get_attribute("id") == f"row-{plan.pk}"
    desk.goto(url_of(plan))
    desk.click("summary:has-text('Settle by hand')")
    desk.check("#made-no")
    desk.eval_on_selector("#reason", "field => field.required = false")
    desk.click("text=Settle this plan for good")
    desk.wait_for_selector("#reason-e")
    assert reread(plan).state == "unknown"
    desk.check("#made-no")
    desk.fill("#reason", "No such entry in the ledger, looked up by plan id")
    desk.click("text=Settle this plan for good")
    desk.wait_for_selector("#plan[data-state=abandoned]")
    assert reread(plan).abandonment.reason == "not_applied"


def test_v112_a_rejection_by_keyboard_needs_its_reason_as_one_by_mouse_does(desk):
    plan = make_plan()
    open_plan(desk, plan)
    desk.keyboard.press("r")
    desk.eval_on_selector("#reason", "field => field.required = false")
    assert desk.evaluate("document.activeElement.id") == "reason"
    desk.keyboard.press("Tab")
    assert desk.evaluate("document.activeElement.id") == "reject"
    desk.keyboard.press("Enter")
    desk.wait_for_selector("#reason-e")
    assert reread(plan).state == "pending"
    desk.focus("#reason")
    desk.keyboard.type("Wrong account")
    desk.keyboard.press("Tab")
    desk.keyboard.press("Enter")
    desk.wait_for_selector("#plan[data-state=rejected]")
    assert reread(plan).rejection.reason == "Wrong account"


def test_v113_where_approving_is_not_possible_there_is_no_button_but_a_reason(desk, reviewer):
    target = make_target()
    own = make_plan(made=make_agent(target, owner=reviewer), target=target)
    desk.goto(url_of(own))
    assert desk.query_selector("#approve") is None
    assert "This plan is by an agent of yours" in desk.inner_text("#decision")
    desk.goto(url_of(make_plan(target=target)))
    assert desk.inner_text("#approve").strip() == "Approve and write 1 change"


def test_v104_back_from_another_site_shows_the_whole_page_with_its_styles(desk):
    plan = make_plan()
    desk.goto("/history/?state=pending")
    with desk.expect_navigation():
        desk.click(f"a[href='{url_of(plan)}']")
    desk.goto("data:text/html,<p>another site</p>")
    desk.go_back()
    desk.wait_for_selector("#plan")
    assert desk.query_selector(".app .side") is not None
    desk.go_back()
    desk.wait_for_selector("form[role=search]")
    assert desk.url.endswith("/history/?state=pending")
    assert desk.evaluate("getComputedStyle(document.querySelector('.app')).display") == "grid"


def test_v105_a_part_opened_as_a_page_is_a_whole_page(desk):
    plan = make_plan()
    for part in ("/inbox/fresh/", f"{url_of(plan)}news/", f"{url_of(plan)}recheck/"):
        desk.goto(part)
        assert desk.query_selector(".app .side") is not None, part
        assert desk.title().endswith("Plandesk"), part


@pytest.mark.parametrize("action", ["approve", "reject", "settle", "replan"])
def test_v108_a_scanner_that_opens_or_prefetches_an_action_changes_nothing(desk, action, stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    for headers in ({}, {"Sec-Purpose": "prefetch", "Purpose": "prefetch"}):
        answer = desk.request.get(url_of(plan, action), headers=headers)
        assert answer.status == 405
        assert desk.request.head(url_of(plan, action), headers=headers).status == 405
    assert reread(plan).state == "pending"
    assert stub_target.commits == []


def test_v109_a_page_that_only_polls_is_at_the_sign_in_page_once_its_idle_time_is_over(desk):
    make_plan()
    desk.goto("/")
    # Before its time is over: the page may leave at any moment after that, also by a poll of its own.
    desk.evaluate("setInterval(() => document.body.dispatchEvent(new CustomEvent('visible-again')), 300)")
    [session] = Session.objects.all()
    data = session.get_decoded()
    idle = data | {USED_AT: data[USED_AT] - settings.SESSION_IDLE.total_seconds() - 60}
    session.session_data = SessionStore().encode(idle)
    session.save()
    desk.wait_for_url("**/login/**", timeout=15_000)
    assert desk.query_selector(".plans") is None


def test_what_is_left_of_the_time_is_said_to_who_cannot_see_it(desk):
    plan = make_plan(lifetime=timedelta(seconds=33))
    desk.goto(url_of(plan))
    assert desk.inner_text("#say") == ""
    desk.wait_for_selector("#shout:has-text('30 seconds left')", state="attached", timeout=10_000)


def test_nothing_moves_where_motion_is_not_wanted(desk):
    desk.emulate_media(reduced_motion="reduce")
    desk.goto(url_of(make_plan()))
    moving = desk.evaluate(
        "[...document.querySelectorAll('*')].filter(one => { const style = getComputedStyle(one);"
        " const lasts = style.transitionDuration.split(', ').some(length => parseFloat(length) > 0);"
        " return style.animationName !== 'none' || lasts;"
        " }).length"
    )
    assert moving == 0


def test_a_list_that_takes_its_time_says_so_and_one_that_comes_at_once_does_not(desk):
    make_plan()
    desk.goto("/")
    assert desk.is_hidden("#loading")

    shown: list[str] = []
    desk.expose_function("plandeskTestLoading", lambda text: shown.append(text))  # noqa: PLW0108
    desk.evaluate(
        "new MutationObserver(([change]) => window.plandeskTestLoading(change.target.innerText))"
        ".observe(document.querySelector('#loading'), {attributes: true})"
    )
    desk.route("**/history/", lambda route: (time.sleep(1.5), route.continue_()))
    desk.click(".seg a:has-text('Decided')")
    desk.wait_for_url("**/history/")
    assert shown == ["Loading…"]
    assert desk.is_hidden("#loading")
    assert desk.get_attribute("#main", "aria-busy") is None


def test_an_empty_inbox_says_so_and_an_arrival_is_announced_on_it(desk):
    desk.goto("/")
    assert "Nothing needs a decision" in desk.inner_text("main")
    desk.wait_for_timeout(1_500)
    make_plan()
    desk.wait_for_selector("#fresh >> text=Show 1 new plan", timeout=6_000)


def test_a_second_reviewer_who_rejects_first_is_named_to_the_one_who_approves(desk, make_person, stub_target):
    desk.route("**/live/**", lambda route: route.fulfill(status=204))
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    open_plan(desk, plan)
    tom = make_person("reviewer", name="Tom Okafor")
    review.reject_plan(plan_pk=plan.pk, person=tom, seen_digest=shown_digest(reread(plan)), reason="Wrong account")
    desk.click("#approve")
    desk.wait_for_selector("#plan[data-state=rejected]")
    assert "Tom Okafor" in desk.inner_text("#plan")
    assert stub_target.applied == 0
