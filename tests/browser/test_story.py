"""The README's tour: `up --demo`, every process real, played in a real browser."""

import re
from typing import Any

import pytest

from tests.browser.armed import until_armed
from tests.reviewer.conftest import folder, start_up
from tests.reviewer.ups import Up

__all__ = ["folder", "start_up"]  # fixtures of the installation that the tour runs on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def play(page: Any, step: str) -> None:
    """Press the button of one step of the story."""
    with page.expect_navigation():
        page.click(f"[data-step='{step}'] form button")


def approve(page: Any, fact: str, state: str) -> None:
    """From the story to the plan it is at, and the approval with its typed fact."""
    page.click("[data-step] a.btn.primary")
    page.wait_for_selector("#plan[data-state='pending']")
    until_armed(page)
    page.fill("#fact", fact)
    page.click("#approve")
    page.wait_for_selector(f"#plan[data-state='{state}']")


def test_the_tour_of_4412_over_real_processes_in_a_real_browser(chromium, start_up):
    up: Up = start_up("--demo", "--no-agents")
    up.wait_until_served()
    password = re.search(r"mara@plandesk\.example\s+reviewer\s+(\S+)", up.output.read_text())
    assert password is not None
    context = chromium.new_context(base_url=f"http://127.0.0.1:{up.port}", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto("/login/")
    page.fill("input[name=login]", "mara@plandesk.example")
    page.fill("input[name=password]", password[1])
    page.click("form button[type=submit]")
    page.wait_for_url(lambda url: "/login/" not in url)

    page.goto("/demo/")
    play(page, "start")
    play(page, "interfere")
    approve(page, "48000", "conflicted")
    told = page.inner_text("#plan")
    assert "refunded_cents" in told
    assert "20000" in told
    page.goto("/demo/")
    play(page, "replan")
    approve(page, "28000", "committed")
    page.goto("/demo/")
    play(page, "retry")
    assert "the stored result, nothing was written" in page.inner_text("main")
    play(page, "end")
    assert "the stored result, nothing was written" in page.inner_text("main")
    assert page.get_attribute("[data-step='end']", "data-done") == "yes"
    assert "480.00" in page.inner_text("main")
    page.goto("/")
    assert page.query_selector("main a[href*='/plans/']") is None  # nothing is in flight
    context.close()
    assert up.stop() == 0
    assert up.processes() == {}
