"""Somebody holds a plan's row for longer than anybody waits: every door and every sweep says so and goes on."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import RequestFactory

from audit.models import Event
from plans import clock
from plans.errors import DecisionRefused
from plans.locks import LockTimeout
from plans.models import Plan
from plans.reconcile import confirm_received, find_out_unknown
from reviewer.views.errors import server_error
from tests.hosted_plans import approve
from tests.makers import feed_data, make_agent, make_plan, make_target, receive, reread
from tests.racing import holding_plan
from tests.stub_target import StubTarget

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(autouse=True)
def _little_patience(settings) -> None:
    settings.LOCK_WAIT = timedelta(milliseconds=200)


def remote_plan(stub: StubTarget) -> Plan:
    target = make_target(base_url=stub.base_url)
    return receive(make_agent(target).agent, feed_data(target.name, plan=stub.new_plan()))


@contextlib.contextmanager
def held_from(step: str, plan: Plan, settings: Any) -> Iterator[None]:
    """Somebody else takes the plan's row at the moment when the engine reaches `step` with it."""
    with contextlib.ExitStack() as stack:

        def hook(reached: str, plan_pk: int) -> None:
            if (reached, plan_pk) == (step, plan.pk):
                stack.enter_context(holding_plan(plan_pk))

        settings.FAULT_HOOK = hook
        yield


def test_an_approval_that_cannot_look_at_the_plan_is_refused_and_told(stub_target: StubTarget) -> None:
    plan = remote_plan(stub_target)
    with holding_plan(plan.pk), pytest.raises(DecisionRefused) as refused:
        approve(plan)
    assert (refused.value.status, refused.value.code) == (409, "busy")
    assert stub_target.commits == []
    assert [event.kind for event in Event.objects.filter(plan_id=plan.plan_id).order_by("at")][-1] == "decision.refused"
    assert approve(plan).state == "committed"


def test_the_sweep_of_unknown_plans_passes_over_a_row_that_is_held(stub_target: StubTarget, settings) -> None:
    target = make_target(base_url=stub_target.base_url)
    held, other = (make_plan("unknown", target=target, plan=stub_target.new_plan(), task_id=f"t{n}") for n in (1, 2))
    Plan.objects.filter(pk__in=[held.pk, other.pk]).update(next_check_at=clock.now())
    with held_from("unknown-leased", held, settings):
        find_out_unknown()
    assert reread(held).state == "unknown"
    assert reread(other).state == "committed"


def test_the_sweep_of_received_plans_passes_over_a_row_that_is_held(stub_target: StubTarget, settings) -> None:
    held, other = remote_plan(stub_target), remote_plan(stub_target)
    with held_from("target-confirmed", held, settings):
        confirm_received()
    assert reread(other).has_been_known_to_target
    assert not reread(held).has_been_known_to_target


@pytest.mark.parametrize(
    ("failed", "status"), [(OperationalError("gone"), 503), (LockTimeout(), 503), (ValueError("ours"), 500)]
)
def test_a_page_that_could_not_reach_its_rows_says_to_look_again(failed: Exception, status: int) -> None:
    try:
        raise failed
    except (OperationalError, LockTimeout, ValueError):
        response = server_error(RequestFactory().get("/"))
    assert response.status_code == status
    assert b"either done or not: look at it again" in response.content
