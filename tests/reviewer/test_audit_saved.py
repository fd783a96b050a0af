"""Saved searches: a name, a link that stays for every auditor, and an owner who alone changes it."""

import re

import pytest

from reviewer.models import SavedSearch
from tests.audit.auditing import told
from tests.makers import make_person
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def auditor():
    return client_of(make_person("auditor"))


def save(client, name="Late refunds", query="agent=bot&q=late"):
    return client.post("/audit/saved/", {"name": name, "query": query})


def changes():
    """Of every event its change and the search's id: it says no more, for it is never erased."""
    assert all(set(data) == {"change", "search"} for data in told("log.changed"))
    return [(data["change"], data["search"]) for data in told("log.changed")]


def test_a_saved_search_has_a_link_that_leads_every_auditor_to_it(auditor):
    assert save(auditor)["Location"] == "/audit/saved/"
    one = SavedSearch.objects.get()
    link = f"/audit/saved/{one.pk}/"
    assert client_of(make_person("auditor")).get(link)["Location"] == "/audit/?agent=bot&q=late"
    assert client_of(make_person("reviewer")).get(link).status_code == 403
    assert link in auditor.get("/audit/saved/").content.decode()
    assert "Late refunds" in text_of(auditor.get("/audit/"))
    assert changes() == [("search_saved", str(one.pk))]


def test_the_link_stays_when_the_search_is_renamed_and_ends_when_it_is_deleted(auditor):
    save(auditor)
    pk = SavedSearch.objects.get().pk
    auditor.post(f"/audit/saved/{pk}/change/", {"action": "rename", "name": "  Refunds,   late "})
    assert SavedSearch.objects.get().name == "Refunds, late"
    assert auditor.get(f"/audit/saved/{pk}/").status_code == 302
    auditor.post(f"/audit/saved/{pk}/change/", {"action": "delete"})
    assert auditor.get(f"/audit/saved/{pk}/").status_code == 404
    assert changes() == [(f"search_{what}", str(pk)) for what in ("saved", "renamed", "deleted")]


def test_a_new_name_that_is_refused_stands_in_its_open_form_as_it_was_typed(auditor):
    for name in ("Taken", "Late refunds"):
        save(auditor, name)
    pk = SavedSearch.objects.get(name="Late refunds").pk
    response = auditor.post(f"/audit/saved/{pk}/change/", {"action": "rename", "name": "Taken"})
    assert response.status_code == 422
    page = response.content.decode()
    assert page.count("<details open>") == 1
    [opened] = re.findall(r"<details open>.*?</details>", page)
    assert f'id="name-{pk}" name="name" maxlength="80" value="Taken"' in opened


def test_only_its_owner_changes_it(auditor):
    save(auditor)
    one = SavedSearch.objects.get()
    other = client_of(make_person("auditor"))
    for action in ("rename", "delete"):
        response = other.post(f"/audit/saved/{one.pk}/change/", {"action": action, "name": "Mine"})
        assert response.status_code == 403
    one.refresh_from_db()
    assert one.name == "Late refunds"
    assert one.name not in text_of(other.get("/audit/saved/"))


@pytest.mark.parametrize(
    ("name", "query", "sentence"),
    [
        ("  ", "", "Give the search a name"),
        ("x" * 81, "", "at most 80 characters"),
        ("A", "colour=red", "no filter"),
        ("A", "last=1y", "last is one of"),
        ("A", "&".join(f"{name}={'%C3%A4' * 500}" for name in ("agent", "target")), "too long to be saved"),
    ],
)
def test_what_cannot_be_saved_is_said_and_what_was_typed_is_kept(auditor, name, query, sentence):
    response = save(auditor, name, query)
    assert response.status_code == 422
    assert sentence in text_of(response)
    assert f'value="{name}"' in response.content.decode()
    assert (SavedSearch.objects.count(), changes()) == (0, [])


def test_a_name_is_ones_own_once_and_others_may_use_it(auditor):
    save(auditor)
    response = save(auditor)
    assert response.status_code == 422
    assert "of that name already" in text_of(response)
    assert save(client_of(make_person("auditor"))).status_code == 302
    save(auditor, "Other")
    other = SavedSearch.objects.get(name="Other")
    assert auditor.post(f"/audit/saved/{other.pk}/change/", {"name": "Late refunds"}).status_code == 422
    assert len(changes()) == 3


def test_a_search_counted_back_from_now_stays_so(auditor):
    save(auditor, "Today", "last=24h&preset=conflicts")
    link = f"/audit/saved/{SavedSearch.objects.get().pk}/"
    assert auditor.get(link)["Location"] == "/audit/?last=24h&preset=conflicts"
