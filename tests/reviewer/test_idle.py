"""A session that nobody uses ends; what pages ask by themselves is not use; and no use makes it live past its day."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from reviewer.idle import SIGNED_IN_AT, USED_AT
from tests.makers import make_plan, reread
from tests.reviewer.pages import approval, client_of, url_of

pytestmark = pytest.mark.usefixtures("database")

IDLE = settings.SESSION_IDLE.total_seconds()
HTMX = {"HX-Request": "true"}


def leave_alone(client: Client, seconds: float) -> None:
    """So many seconds pass for the client's session."""
    session = client.session
    for name in (USED_AT, SIGNED_IN_AT):
        session[name] -= seconds
    session.save()


def test_v109_an_idle_session_ends_at_the_next_poll_or_click():
    plan = make_plan()
    for path, headers in ((url_of(plan, "news"), HTMX), ("/inbox/fresh/", HTMX)):
        client = client_of()
        leave_alone(client, IDLE + 60)
        assert client.get(path, headers=headers)["HX-Redirect"].startswith("/login/")
        assert client.get("/").status_code == 302
    client = client_of()
    leave_alone(client, IDLE + 60)
    assert client.get("/history/")["Location"] == "/login/?next=%2Fhistory%2F"


def test_v109_polls_do_not_keep_a_session_alive_and_pages_do():
    plan, client = make_plan(), client_of()
    for _ in range(3):
        leave_alone(client, IDLE / 2 - 10)
        client.get("/inbox/fresh/", headers=HTMX)
        client.get(url_of(plan, "news"), headers=HTMX)
        client.get(url_of(plan, "recheck"), headers=HTMX)
        client.get("/live/")
    assert client.get("/").status_code == 302
    client = client_of()
    for _ in range(4):
        leave_alone(client, IDLE / 2)
        assert client.get("/").status_code == 200


def test_a_decision_after_the_session_has_ended_is_not_taken():
    plan, client = make_plan(), client_of()
    shown = approval(plan, reason="No")
    leave_alone(client, IDLE + 1)
    assert client.post(url_of(plan, "reject"), shown)["Location"].startswith("/login/")
    assert reread(plan).state == "pending"


def test_use_does_not_move_the_sessions_end():
    client = client_of()
    leave_alone(client, IDLE / 2)
    since = client.session[SIGNED_IN_AT]
    client.get("/")
    end = datetime.fromtimestamp(since + settings.SESSION_COOKIE_AGE, UTC)
    assert abs(Session.objects.get().expire_date - end) < timedelta(seconds=2)
    assert abs(client.session[USED_AT] - time.time()) < 5


def test_a_session_is_written_at_most_once_a_minute():
    client = client_of()
    leave_alone(client, 90)
    client.get("/")
    noted = client.session[USED_AT]
    client.get("/history/")
    assert client.session[USED_AT] == noted


def test_a_session_from_before_there_was_a_limit_gets_one():
    client = client_of()
    session = client.session
    del session[USED_AT], session[SIGNED_IN_AT]
    session.save()
    assert client.get("/").status_code == 200
    assert USED_AT in client.session
