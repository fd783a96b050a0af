"""When an agent was last heard of: a signed delivery or its key, once a minute, and in nobody's way."""

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client

from plans import auth, clock, seen
from plans.models import AgentSeen
from plans.registry import rotate_agent
from tests.makers import envelope, feed_data, make_agent, make_target
from tests.plans.http import signed

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    monkeypatch.setattr(seen, "_noted", {})


def feed(made, target, *, secret: str = "") -> int:
    body = envelope(feed_data(target.name))
    headers = signed(secret or made.webhook_secret, body)
    kind = headers.pop("Content-Type")
    client = Client(SERVER_NAME="127.0.0.1")
    return client.post(f"/webhooks/{made.agent.name}", data=body, content_type=kind, headers=headers).status_code


def ask(api_key: str) -> int:
    return Client().get("/api/v1/plans", headers={"Authorization": f"Bearer {api_key}"}).status_code


def seen_at(made):
    return AgentSeen.objects.filter(agent=made.agent).values_list("seen_at", flat=True).first()


def long_ago(made) -> None:
    AgentSeen.objects.filter(agent=made.agent).update(seen_at=clock.now() - timedelta(hours=1))
    seen._noted.clear()


def test_a_signed_delivery_and_a_key_are_seen_and_what_is_refused_is_not():
    made = make_agent(target := make_target())
    assert ask("pdk_wrong") == 401
    assert feed(made, target, secret=make_agent(target).webhook_secret) == 401
    assert seen_at(made) is None
    assert ask(made.api_key) == 200
    assert clock.now() - seen_at(made) < timedelta(seconds=10)
    long_ago(made)
    assert feed(made, target) == 201
    assert clock.now() - seen_at(made) < timedelta(seconds=10)


def test_an_agent_that_asks_all_the_time_is_written_down_once_a_minute_by_however_many_processes():
    made = make_agent(make_target())
    assert ask(made.api_key) == 200
    first = seen_at(made)
    assert ask(made.api_key) == 200
    seen._noted.clear()  # another process, which has not seen it yet
    assert ask(made.api_key) == 200
    assert seen_at(made) == first


def test_a_row_that_somebody_holds_keeps_no_request_waiting(owner_connection):
    made = make_agent(target := make_target())
    assert ask(made.api_key) == 200
    long_ago(made)
    with owner_connection.transaction():
        owner_connection.execute("SELECT FROM plans_agentseen FOR UPDATE")
        began = time.monotonic()
        assert feed(made, target) == 201
        assert time.monotonic() - began < 2


def test_what_cannot_be_written_down_fails_no_feed(owner_connection):
    made = make_agent(target := make_target())
    owner_connection.execute("ALTER TABLE plans_agentseen RENAME TO plans_agentseen_gone")
    try:
        assert feed(made, target) == 201
    finally:
        owner_connection.execute("ALTER TABLE plans_agentseen_gone RENAME TO plans_agentseen")


def test_a_note_is_its_own_statement_and_locks_no_agent():
    made = make_agent(target := make_target())
    told: list[tuple[str, bool]] = []

    def note(execute, sql, params, many, context):
        told.append((str(sql), connection.in_atomic_block))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        assert feed(made, target) == 201
    assert [is_inside for sql, is_inside in told if "plans_agentseen" in sql] == [False]


def test_of_a_key_its_first_characters_are_kept_and_change_with_it():
    made = make_agent(make_target())
    assert made.agent.api_key_hint == made.api_key[:8]
    assert len(made.api_key) - len(made.agent.api_key_hint) >= 39  # 234 of its 256 bits
    again = rotate_agent(name=made.agent.name)
    assert again.agent.api_key_hint == auth.hint_of(again.api_key) != made.agent.api_key_hint
