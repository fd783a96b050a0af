"""Streams, for admins: destinations of the log made, paused, resumed and removed, and how far each has come."""

from datetime import timedelta
from typing import Any

import pytest

from audit.proofs import advance, read_size
from audit.recording import SYSTEM
from plans import clock
from reviewer.streams.changing import create_stream, open_secret
from reviewer.streams.models import Stream
from tests.audit.making import make_event
from tests.makers import make_person
from tests.reviewer.pages import admin_and_client, client_of, text_of, told_of

pytestmark = pytest.mark.usefixtures("database")

NEW = {"do": "create", "name": "siem", "url": "https://siem.example/events", "from_index": "0"}


def make_stream(name: str = "siem", **facts: Any) -> Stream:
    """A destination that stands as `facts` say."""
    stream, _ = create_stream(name=name, url=f"https://{name}.example/events", by=SYSTEM)
    Stream.objects.filter(pk=stream.pk).update(**facts)
    stream.refresh_from_db()
    return stream


def test_a_destination_is_made_and_its_secret_is_shown_this_once():
    admin, client = admin_and_client()
    for _ in range(8):
        make_event()
    advance()
    early = client.post("/streams/", {**NEW, "from_index": str(read_size() + 1)})
    assert (early.status_code, Stream.objects.count()) == (422, 0)
    assert "The log has only" in early.content.decode()
    made = client.post("/streams/", {**NEW, "from_index": "7"})
    assert made.status_code == 201
    stream = Stream.objects.get()
    assert (stream.name, stream.url, stream.next_index) == ("siem", "https://siem.example/events", 7)
    secret = open_secret(stream).reveal()
    assert made.content.decode().count(secret) == 1
    assert made["Cache-Control"].count("no-store") == 1
    for page in (client.get("/streams/"), client.get("/streams/siem/")):
        assert page.status_code == 200
        assert secret not in page.content.decode()
    assert told_of("log.changed") == [(f"person:{admin.pk}", "stream_created")]


@pytest.mark.parametrize(
    ("sent", "where", "sentence"),
    [
        ({"name": "taken"}, "new-name", "There is a stream taken already."),
        ({"name": "x y"}, "new-name", "Use 1 to 128 letters"),
        ({"url": "http://siem.example"}, "new-url", "must be https"),
        ({"url": ""}, "new-url", "This field is required."),
        ({"from_index": "-1"}, "new-from_index", "greater than or equal to 0"),
        ({"from_index": "9" * 30}, "new-from_index", "less than or equal to"),
        ({"from_index": "first"}, "new-from_index", "Enter a whole number."),
    ],
)
def test_a_mistake_is_said_at_its_field_and_makes_nothing(sent, where, sentence):
    _, client = admin_and_client()
    make_stream("taken")
    page = client.post("/streams/", {**NEW, **sent})
    assert page.status_code == 422
    assert f'<a href="#{where}">' in page.content.decode()
    assert f'id="{where}"' in page.content.decode()
    assert sentence in text_of(page)
    assert Stream.objects.count() == 1


def test_the_list_tells_state_place_lag_and_last_error_of_each():
    _, client = admin_and_client()
    assert "The log is sent nowhere" in text_of(client.get("/streams/"))
    make_stream("archive")
    make_stream("broken", failures=3, last_error="The destination answered 500.")
    make_stream("slow", is_paused=True)
    advance()
    size = read_size()
    make_stream("done", next_index=size + 1, delivered_at=clock.now() - timedelta(minutes=2))
    advance()
    page = text_of(client.get("/streams/"))
    assert f"It holds {size + 1} events" in page
    assert f"archive Catching up https://archive.example/events 0 {size + 1} " in page
    assert "broken Failing https://broken.example/events The destination answered 500. 0" in page
    assert "slow Paused" in page
    assert f"done Up to date https://done.example/events {size + 1} 0 2 min ago" in page
    one = text_of(client.get("/streams/broken/"))
    assert "The destination answered 500. 3 failures in a row; next attempt" in one


def test_pausing_and_resuming_keep_the_place_and_are_events_of_the_admin():
    (admin, client), stream = admin_and_client(), make_stream(next_index=5, failures=2)
    page = client.post("/streams/siem/", {"do": "pause"})
    assert (page.status_code, "Paused" in text_of(page)) == (200, True)
    stream.refresh_from_db()
    assert (stream.is_paused, stream.next_index) == (True, 5)
    assert "value=\"resume\"" in page.content.decode()  # fmt: skip
    client.post("/streams/siem/", {"do": "resume"})
    client.post("/streams/siem/", {"do": "resume"})
    stream.refresh_from_db()
    assert (stream.is_paused, stream.next_index, stream.failures) == (False, 5, 0)
    me = f"person:{admin.pk}"
    assert told_of("log.changed")[1:] == [(me, "stream_paused"), (me, "stream_resumed")]


def test_removing_needs_the_name_typed():
    (admin, client), _ = admin_and_client(), make_stream()
    wrong = client.post("/streams/siem/", {"do": "remove", "typed": "simm"})
    assert (wrong.status_code, "That is not the name." in text_of(wrong)) == (422, True)
    assert Stream.objects.exists()
    page = client.post("/streams/siem/", {"do": "remove", "typed": "siem"})
    assert "siem is sent nothing any more" in text_of(page)
    assert not Stream.objects.exists()
    assert told_of("log.changed")[1:] == [(f"person:{admin.pk}", "stream_removed")]
    assert client.post("/streams/siem/", {"do": "pause"}).status_code == 404


def test_more_than_a_page_are_continued(monkeypatch):
    _, client = admin_and_client()
    monkeypatch.setattr("reviewer.views.streams.PAGE", 2)
    for name in ("a", "b", "c"):
        make_stream(name)
    first = client.get("/streams/").content.decode()
    assert 'href="/streams/?after=b"' in first
    assert "/streams/c/" not in first
    assert "/streams/c/" in client.get("/streams/?after=b").content.decode()


@pytest.mark.parametrize("role", ["reviewer", "auditor"])
def test_the_page_is_for_admins_and_nobody_else_is_offered_it(role):
    make_stream()
    client = client_of(make_person(role))
    assert client.get("/streams/").status_code == 403
    assert client.post("/streams/siem/", {"do": "pause"}).status_code == 403
    assert not Stream.objects.get().is_paused
    assert 'href="/streams/"' not in client.get("/history/").content.decode()
    _, admin = admin_and_client()
    assert 'href="/streams/"' in admin.get("/agents/").content.decode()
