"""Live pages in a real browser: what others do shows in place, and nothing moves under the hand."""

import itertools
import re
import time
from datetime import timedelta
from typing import Any

import pytest

from plans import review
from plans.schema import shown_digest
from tests.fixtures import PASSWORD, start_site, stop_process
from tests.ground import free_port
from tests.makers import make_agent, make_plan, make_target, reread
from tests.reviewer.pages import approval, client_of, url_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]

AGAIN = (
    "Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});"
    "document.dispatchEvent(new Event('visibilitychange'));"
    "Object.defineProperty(document, 'visibilityState', {value: 'visible', configurable: true});"
    "document.dispatchEvent(new Event('visibilitychange'))"
)
"""The page goes into the background and comes back."""

SOON = 6_000  # milliseconds in which a hint has come: one look a second, and a pause of one


@pytest.fixture
def others(chromium, site, make_person, sign_in):
    """Another reviewer's page, in a browser of their own."""
    context = chromium.new_context(base_url=site.url)
    page = context.new_page()
    sign_in(page, make_person("reviewer", name="Tom Okafor"))
    yield page
    context.close()


def reject(plan: Any, person: Any) -> None:
    review.reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(reread(plan)), reason="Wrong account")


def streaming(page: Any) -> None:
    """Wait until the page listens, so that what comes now comes as a hint."""
    page.wait_for_timeout(1_500)


def test_arrivals_and_others_decisions_come_by_hint_and_focus_and_place_stay(desk, make_person):
    target = make_target()
    made = make_agent(target)
    first = make_plan(target=target, made=made, lifetime=timedelta(minutes=20))
    second = make_plan(target=target, made=made, lifetime=timedelta(minutes=30))
    desk.goto("/")
    streaming(desk)
    desk.keyboard.press("j")
    place = desk.locator(f"#row-{second.pk}").bounding_box()
    make_plan(target=target, made=made, lifetime=timedelta(minutes=6))
    desk.wait_for_selector("#fresh >> text=Show 1 new plan", timeout=SOON)
    reject(first, make_person("reviewer", name="Tom Okafor"))
    desk.wait_for_selector(f"#row-{first.pk}.gone >> text=Rejected", timeout=SOON)
    assert desk.locator(f"#row-{second.pk}").bounding_box() == place
    assert desk.evaluate("document.activeElement.getAttribute('href')") == url_of(first)
    assert desk.title().startswith("(2) ")
    assert desk.inner_text("#seg-count") == "2"
    desk.click("#fresh a")
    desk.wait_for_selector(f"#row-{second.pk}")
    assert desk.query_selector(f"#row-{first.pk}") is None


def test_who_else_looks_at_a_plan_is_shown_on_its_page_and_in_the_list_and_forgotten(desk, others):
    plan = make_plan()
    desk.goto(url_of(plan))
    streaming(desk)
    listed = desk.context.new_page()
    listed.goto("/")
    assert listed.query_selector("text=is looking") is None
    others.goto(url_of(plan))
    desk.wait_for_selector("#looking >> text=Tom Okafor has this plan open too", timeout=SOON)
    listed.wait_for_selector(f"#flags-{plan.pk} >> text=Tom Okafor is looking", timeout=SOON)
    others.wait_for_selector("#looking >> text=Lena Brandt has this plan open too", timeout=SOON)
    others.goto("/settings/")
    desk.wait_for_selector("#looking:not(:has(span))", state="attached", timeout=SOON)
    listed.wait_for_selector(f"#flags-{plan.pk}:not(:has-text('looking'))", state="attached", timeout=SOON)


def test_v106_a_decision_elsewhere_is_news_by_hint_and_the_reason_being_typed_keeps_text_caret_and_focus(
    desk, make_person
):
    plan = make_plan()
    desk.goto(url_of(plan))
    streaming(desk)
    desk.keyboard.press("r")
    desk.keyboard.type("half a sen")
    desk.keyboard.press("ArrowLeft")
    reject(plan, make_person("reviewer", name="Tom Okafor"))
    desk.wait_for_selector("#news >> text=Tom Okafor rejected this plan", timeout=SOON)
    desk.keyboard.type("X")
    assert desk.input_value("#reason") == "half a seXn"
    assert desk.evaluate("document.activeElement.id") == "reason"


def test_v106_a_slow_older_answer_does_not_overwrite_a_newer_one(desk, make_person):
    target = make_target()
    plan = make_plan(target=target)
    held = []
    desk.route("**/inbox/fresh/**", lambda route: held.append(route) if not held else route.continue_())
    desk.goto("/")
    desk.wait_for_timeout(2_500)
    reject(plan, make_person("reviewer"))
    desk.wait_for_timeout(2_500)
    assert len(held) == 1  # the newer one waits for the older one, whatever hints come
    held[0].continue_()
    desk.wait_for_selector(f"#row-{plan.pk}.gone >> text=Rejected", timeout=SOON)


def test_v99_without_a_session_a_row_leads_to_the_sign_in_page_whole_and_the_list_is_never_filled_with_it(desk):
    make_plan()
    for asked in ("**/inbox/fresh/**", "**/live/**"):
        desk.route(asked, lambda route: route.abort())  # or the page itself would be at the sign-in page first
    desk.goto("/")
    desk.context.clear_cookies()
    with desk.expect_navigation():
        desk.click(".plans h3 a")
    assert "/login/" in desk.url
    assert desk.query_selector(".app") is None
    assert desk.is_visible("input[name=login]")


def test_v99_a_poll_without_a_session_leads_to_the_sign_in_page_too(desk):
    make_plan()
    desk.route("**/live/**", lambda route: route.fulfill(status=204))  # whose first hint would make the poll before us
    desk.goto("/")
    desk.evaluate("setInterval(() => document.body.dispatchEvent(new CustomEvent('visible-again')), 300)")
    desk.context.clear_cookies()
    desk.wait_for_url("**/login/**")
    assert desk.query_selector(".plans") is None


def test_without_a_stream_the_page_asks_by_the_clock_and_gets_nothing_while_all_is_as_it_was(desk, make_person):
    plan, answers = make_plan(), []
    desk.route("**/live/**", lambda route: route.fulfill(status=204))
    desk.on("response", lambda answer: answers.append(answer.status) if "/news/" in answer.url else None)
    desk.goto(url_of(plan))
    desk.wait_for_timeout(22_500)
    assert answers == [200, 304]
    reject(plan, make_person("reviewer", name="Tom Okafor"))
    desk.wait_for_selector("#news >> text=Tom Okafor rejected this plan", timeout=12_000)


def test_v110_after_a_server_that_went_and_came_the_page_shows_what_was_decided_meanwhile_once(
    chromium, database, make_person
):
    port = free_port()
    site = start_site(port)
    lena, tom = make_person("reviewer", name="Lena Brandt"), make_person("reviewer", name="Tom Okafor")
    plan = make_plan()
    page = chromium.new_context(base_url=site.url).new_page()
    try:
        page.goto(f"/login/?next={url_of(plan)}")
        page.fill("input[name=login]", lena.email)
        page.fill("input[name=password]", PASSWORD)
        page.click("form button[type=submit]")
        page.wait_for_selector("#plan")
        streaming(page)
        for _ in range(3):
            stop_process(site.process)
            site = start_site(port)
        stop_process(site.process)
        reject(plan, tom)
        site = start_site(port)
        page.wait_for_selector("#news >> text=Tom Okafor rejected this plan", timeout=15_000)
        page.wait_for_timeout(2_500)
        assert page.locator("#news section").count() == 1
    finally:
        page.context.close()
        stop_process(site.process)


@pytest.mark.parametrize("status", [502, 503])
def test_v110_a_server_that_is_away_for_a_while_is_asked_later_each_time_and_heard_again_without_a_reload(
    desk, make_person, status
):
    plan, asked = make_plan(), []
    desk.goto(url_of(plan))
    streaming(desk)
    is_away = True

    def answer(route: Any) -> None:
        if "/live/" in route.request.url:
            asked.append(time.monotonic())
        if is_away:
            route.fulfill(status=status, body="away")
        else:
            route.continue_()

    desk.route(re.compile("/(live|news)/"), answer)
    desk.evaluate(AGAIN)  # the page lets go of the stream it has, and asks for another
    desk.wait_for_selector("#offline:not([hidden]) >> text=What you see may be out of date", timeout=SOON)
    while len(asked) < 4:
        desk.wait_for_timeout(200)
        assert desk.is_visible("#offline")
    first, second, third = (later - earlier for earlier, later in itertools.pairwise(asked[:4]))
    assert 0.9 < first < second < third < 9.5  # 1 to 2 seconds, 2 to 4, 4 to 8
    opened, is_away = len(asked), False
    desk.wait_for_selector("#offline", state="hidden", timeout=20_000)
    while len(asked) == opened:
        desk.wait_for_timeout(200)
    reject(plan, make_person("reviewer", name="Tom Okafor"))
    desk.wait_for_selector("#news >> text=Tom Okafor rejected this plan", timeout=SOON)


@pytest.mark.parametrize("status", [204, 401, 403])
def test_an_answer_that_ends_the_stream_is_taken_at_its_word(desk, status):
    asked = []
    desk.route("**/live/**", lambda route: (asked.append(route), route.fulfill(status=status)))
    desk.goto(url_of(make_plan()))
    desk.wait_for_timeout(5_000)
    assert len(asked) == 1
    assert desk.is_hidden("#offline")


def test_offline_is_said_and_taken_back(desk):
    plan = make_plan()
    desk.goto(url_of(plan))
    assert desk.is_hidden("#offline")
    desk.context.set_offline(True)
    desk.wait_for_selector("#offline:not([hidden]) >> text=What you see may be out of date")
    desk.context.set_offline(False)
    desk.wait_for_selector("#offline", state="hidden")


def test_a_page_in_the_background_holds_no_stream(desk):
    make_plan()
    streams = []
    desk.on("request", lambda request: streams.append(request) if "/live/" in request.url else None)
    desk.goto("/")
    streaming(desk)
    assert len(streams) == 1
    desk.evaluate(AGAIN)
    desk.wait_for_timeout(500)
    assert len(streams) == 2


def test_an_expiry_in_the_list_is_told_by_the_server_in_place(desk):
    plan = make_plan(lifetime=timedelta(seconds=5))
    desk.goto("/")
    desk.wait_for_selector(f"#flags-{plan.pk} >> text=Expired", timeout=15_000)
    client_of().post(url_of(plan, "approve"), approval(plan))
    assert reread(plan).state == "abandoned"
