"""What a page weighs: our own styles and scripts, as they go over the wire, beside htmx and the fonts."""

import gzip
import re

import pytest
from django.contrib.staticfiles import finders

from tests.makers import make_person, make_plan
from tests.reviewer.pages import client_of, url_of

pytestmark = pytest.mark.usefixtures("database")

BUDGET = 60_000  # bytes


def own_files(html: str) -> list[str]:
    """The static files of ours that a page links, without their host and version."""
    linked = re.findall(r'(?:href|src)="/static/(reviewer/[^"?]+\.(?:css|js))"', html)
    return [re.sub(r"\.[0-9a-f]{12}(?=\.\w+$)", "", name) for name in linked]


def weight_of(names: list[str]) -> int:
    found = [finders.find(name) for name in names]
    assert all(isinstance(path, str) for path in found), names
    return sum(len(gzip.compress(open(str(path), "rb").read(), 6)) for path in found)


def test_no_page_asks_for_more_than_60_kb_of_our_styles_and_scripts():
    client = client_of(make_person("reviewer", "auditor", "admin"))
    for path in ("/", url_of(make_plan()), "/history/", "/audit/", "/agents/", "/settings/"):
        names = own_files(client.get(path).content.decode())
        assert len(names) >= 5, path
        assert weight_of(names) <= BUDGET, path
