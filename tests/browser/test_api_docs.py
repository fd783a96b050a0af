"""The page of the API in a browser: readable in both themes, on small screens, without anything it may not load."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]

# One of each kind: the page repeats them many times over, and axe takes its time with each.
PIECES = [
    "header",
    "nav",
    "h1",
    "#feed",
    "#readPlan",
    "section[aria-labelledby=limits]",
    "#FedPlan",
    "#ConflictProblem",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_the_api_is_clean_and_does_not_scroll_sideways(page: Any, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto("/api/v1/docs")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.set_viewport_size({"width": 1280, "height": 900})
    found = Axe().run(page, context={"include": [[piece] for piece in PIECES]})
    assert [(wrong["id"], wrong["nodes"][0]["html"][:200]) for wrong in found.response["violations"]] == []


def test_a_name_of_a_shape_leads_to_it(page: Any) -> None:
    page.goto("/api/v1/docs")
    page.locator("#feed a", has_text="Envelope").click()
    assert page.evaluate("document.querySelector(':target').id") == "Envelope"
