"""What the browser tests share: a reviewer who is signed in, and axe."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

AXE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture
def browser(chromium: Any, site: Any) -> Iterator[Any]:
    """A fresh browser context on the site; the test fails if a page broke the Content-Security-Policy or threw."""
    broken: list[str] = []

    def note(text: str) -> None:
        broken.append(text)

    context = chromium.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    context.expose_function("plandeskTestViolation", note)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', event => "
        "window.plandeskTestViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`))"
    )
    context.set_default_timeout(15_000)
    context.on("weberror", lambda error: broken.append(str(error.error)))
    yield context
    context.close()
    assert broken == []


@pytest.fixture
def reviewer(make_person: Callable[..., Any]) -> Any:
    """The person whose browser it is."""
    return make_person("reviewer", "auditor", name="Lena Brandt")


@pytest.fixture
def desk(page: Any, sign_in: Callable[..., None], reviewer: Any) -> Any:
    """A page on which the reviewer is signed in, at the inbox."""
    sign_in(page, reviewer)
    return page


@pytest.fixture
def axe() -> Callable[[Any], list[str]]:
    """`axe(page)`: what axe finds wrong on the page as it stands."""

    def run(page: Any) -> list[str]:
        found = Axe().run(page, options={"runOnly": AXE})
        return [
            f"{wrong['id']}: {wrong['help']} {[node['html'][:160] for node in wrong['nodes'][:3]]}"
            for wrong in found.response["violations"]
        ]

    return run
