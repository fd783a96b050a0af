"""Keys: they move and open, none decides; theme and the order of times are kept by the server for each person."""

from typing import Any

import pytest

from plans.models import Plan
from tests.browser.armed import until_armed
from tests.fixtures import PASSWORD
from tests.makers import make_plan, make_target, reread
from tests.reviewer.pages import url_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]


def states() -> set[str]:
    return set(Plan.objects.values_list("state", flat=True))


@pytest.fixture
def berlin(desk: Any, reviewer: Any) -> Any:
    type(reviewer).objects.filter(pk=reviewer.pk).update(time_zone="Europe/Berlin")
    return desk


def test_no_single_key_decides_on_any_page(desk):
    plan = make_plan()
    for path in ("/", url_of(plan), "/history/", "/settings/"):
        for key in "abcdefhijklmopqrstvwxyz0123456789":
            desk.goto(path)
            desk.wait_for_timeout(20)
            desk.keyboard.press(key)
    desk.goto(url_of(plan))
    until_armed(desk)
    for key in ("a", "r", "Escape", "c", " "):
        desk.keyboard.press(key)
    assert states() == {"pending"}


def test_g_i_g_a_u_and_n_go_where_they_say(desk):
    first, second = make_plan(), make_plan()
    desk.goto(url_of(second))
    desk.keyboard.press("n")
    desk.wait_for_url(f"**{url_of(first)}")
    desk.keyboard.press("u")
    desk.wait_for_selector("#watched", state="attached")
    desk.keyboard.press("g")
    desk.keyboard.press("a")
    desk.wait_for_url("**/audit/")
    desk.keyboard.press("g")
    desk.keyboard.press("i")
    desk.wait_for_selector("#watched", state="attached")
    desk.keyboard.press("/")
    assert desk.evaluate("document.activeElement.id") == "q"
    desk.keyboard.type(first.plan_id)
    desk.keyboard.press("Enter")
    desk.wait_for_url(f"**q={first.plan_id}**")
    assert desk.locator(".plans > li").count() == 1


def test_t_swaps_the_times_at_once_and_for_good(berlin):
    berlin.goto(url_of(make_plan()))
    times = berlin.locator(".due time").inner_text()
    assert times.split(", ")[0].endswith("UTC")
    with berlin.expect_response("**/settings/look/"):
        berlin.keyboard.press("t")
    berlin.wait_for_function("document.querySelector('.due time').textContent.trim().endsWith('UTC')")
    berlin.reload()
    assert berlin.locator(".due time").inner_text() == ", ".join(reversed(times.split(", ")))


def test_the_theme_is_kept_by_the_server_and_nothing_typed_is_lost(desk, reviewer):
    plan = make_plan()
    desk.goto(url_of(plan))
    desk.keyboard.press("r")
    desk.keyboard.type("half a sentence")
    with desk.expect_response("**/settings/look/"):
        desk.click("[data-look] [name=theme]")
    desk.wait_for_selector("html[data-theme=dark]", state="attached")
    assert desk.input_value("#reason") == "half a sentence"
    other = desk.context.new_page()
    other.goto("/")
    assert other.get_attribute("html", "data-theme") == "dark"
    with other.expect_response("**/settings/look/"):
        other.click("[data-look] [name=theme]")
    other.wait_for_selector("html[data-theme=light]", state="attached")
    reviewer.refresh_from_db()
    assert reviewer.theme == "light"


def test_from_signing_in_to_a_written_plan_by_keyboard_alone(page, reviewer, stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    page.goto("/")
    page.wait_for_selector("#id_login:focus")  # a person waits for the caret too
    page.keyboard.type(reviewer.email)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#watched", state="attached")
    reached = tab_to(page, f"a[href='{url_of(plan)}']")
    assert reached
    page.keyboard.press("Enter")
    page.wait_for_selector("#plan")
    until_armed(page)
    assert tab_to(page, "#approve")
    assert outlined(page)
    page.keyboard.press("Enter")
    page.wait_for_selector("#plan[data-state=committed]")
    assert reread(plan).state == "committed"
    assert page.evaluate("document.activeElement.id") == "outcome"


def tab_to(page: Any, selector: str, most: int = 80) -> bool:
    """Press Tab until that has focus, as somebody without a mouse does."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return True
    return False


def outlined(page: Any) -> bool:
    """Whether what has focus shows it, and is in view."""
    return bool(
        page.evaluate(
            "() => { const at = document.activeElement, box = at.getBoundingClientRect();"
            " return getComputedStyle(at).outlineStyle !== 'none' && box.top >= 0 && box.bottom <= innerHeight; }"
        )
    )
