"""How many statements the hot paths make: each is a round trip, and one that nobody needs is taken out at its root."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from plans import feed_sql
from plans.confirm import confirm_plan
from plans.models import Plan
from plans.review import approve_plan
from plans.schema import shown_digest
from plans.viewing import record_view
from tests.makers import MadeAgent, envelope, feed_data, make_agent, make_person, make_plan, make_target, receive
from tests.plans.http import signed

pytestmark = pytest.mark.usefixtures("database")

# BEGIN and COMMIT are not among them.
FEED, STEP_BY_STEP, APPROVE, VIEW = 2, 4, 13, 3


@contextlib.contextmanager
def statements() -> Iterator[list[str]]:
    """The statements of the block, in order."""
    made: list[str] = []

    def note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        made.append(str(sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        yield made


def feed(made: MadeAgent, target: str) -> list[str]:
    """The statements of one signed delivery of a plan."""
    body = envelope(feed_data(target))
    headers = signed(made.webhook_secret, body)
    kind = headers.pop("Content-Type")
    with statements() as found:
        client = Client(SERVER_NAME="127.0.0.1")
        answer = client.post(f"/webhooks/{made.agent.name}", data=body, content_type=kind, headers=headers)
    assert answer.status_code == 201, answer.content
    return found


def test_a_feed_makes_no_more_statements_than_it_needs_however_many_came_before():
    target = make_target()
    made = make_agent(target)
    feed(made, target.name)  # the first of a process makes the key for its hashes
    assert len(feed(made, target.name)) <= FEED
    for _ in range(20):
        receive(made.agent, feed_data(target.name))
    found = feed(made, target.name)
    assert len(found) <= FEED, "\n".join(found)


def test_a_feed_that_is_not_plain_makes_no_more_statements_than_it_needs(monkeypatch):
    target = make_target()
    made = make_agent(target)
    feed(made, target.name)
    monkeypatch.setattr(feed_sql, "receive", lambda _: None)
    feed(made, target.name)
    found = [sql for sql in feed(made, target.name) if "FROM plans_target t CROSS JOIN" not in sql]  # asked once
    assert len(found) <= STEP_BY_STEP, "\n".join(found)


def test_an_approval_of_a_confirmed_plan_makes_no_more_statements_than_it_needs(stub_target):
    target = make_target(base_url=stub_target.base_url)
    plan = make_plan(target=target, plan=stub_target.new_plan())
    confirm_plan(plan_pk=plan.pk)
    person, digest = make_person("reviewer"), shown_digest(plan)
    with statements() as found:
        assert approve_plan(plan_pk=plan.pk, person=person, seen_digest=digest).state == "committed"
    assert len(found) <= APPROVE, "\n".join(found)


def test_a_target_that_tells_nothing_new_is_heard_without_a_lock(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url), plan=stub_target.new_plan())
    confirm_plan(plan_pk=plan.pk)
    with statements() as found:
        assert confirm_plan(plan_pk=plan.pk).state == "pending"
    assert not [sql for sql in found if "FOR NO KEY UPDATE" in sql or sql.startswith("UPDATE")]


def test_opening_a_plan_again_keeps_one_row_and_its_newest_moment():
    plan, person = make_plan(), make_person("reviewer")
    record_view(plan_pk=plan.pk, person=person)
    [first] = Plan.objects.get(pk=plan.pk).views.all()
    with statements() as found:
        record_view(plan_pk=plan.pk, person=person)
    assert len(found) <= VIEW, "\n".join(found)
    [second] = Plan.objects.get(pk=plan.pk).views.all()
    assert (second.pk, second.opened_at > first.opened_at) == (first.pk, True)
