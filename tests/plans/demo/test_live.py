"""The demonstration's agents at work: at the hosted target, and at the billing system's own server."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from plans.agent import Committed, Waiting
from plans.demo import live, story
from plans.demo.agents import HOSTED_AGENT, REMOTE_AGENT, desk_of
from plans.demo.asking import ask
from plans.demo.models import Invoice, Refund, RemoteApplication, RemotePlan
from plans.demo.rhythm import Rhythm
from plans.models import Plan, Task
from reviewer.installation import PROJECT
from tests.fixtures import Site
from tests.plans.demo.conftest import Demonstration


def wait_for_plan(seconds: float = 30) -> Plan:
    """The first plan that waits for people, once there is one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        plan = Plan.objects.pending().select_related("task").filter(task__task_id__startswith="refund-").first()
        if plan is not None:
            return plan
        time.sleep(0.05)
    raise AssertionError("no agent planned anything")


def test_a_return_is_planned_and_committed_at_the_billing_server(site: Site, demonstration: Demonstration) -> None:
    with desk_of(REMOTE_AGENT, place="test") as desk, desk.task("return-1") as task:
        inputs = {"invoice_id": "4410", "amount_cents": 745}
        answer = ask("POST", "/refund/dry-run", {"inputs": inputs})
        plan = task.submit("billing-remote", "refund", inputs, answer, intent="refund:return-1")
        assert isinstance(task.wait(plan, timeout=0), Waiting)

        mara = demonstration.sign_in(site)
        assert mara.get(story.plan_path(Plan.objects.get())) == 200
        assert mara.press("approve", fact="745") == 200, mara.page
        assert mara.state == "committed"

        outcome = task.wait(plan, timeout=10)
        assert isinstance(outcome, Committed)
        assert outcome.result == json.loads(RemotePlan.objects.get().answer_body)
    assert RemoteApplication.objects.count() == 1
    assert Refund.objects.get(invoice_id="4410").made_by == "billing-remote"


def test_a_moved_invoice_conflicts_at_the_billing_server_too(site: Site, demonstration: Demonstration) -> None:
    with desk_of(REMOTE_AGENT, place="test") as desk, desk.task("return-2") as task:
        inputs = {"invoice_id": "4410", "amount_cents": 745}
        answer = ask("POST", "/refund/dry-run", {"inputs": inputs})
        task.submit("billing-remote", "refund", inputs, answer, intent="refund:return-2")
        Invoice.objects.filter(pk="4410").update(refunded_cents=100)
        mara = demonstration.sign_in(site)
        mara.get(story.plan_path(Plan.objects.get()))
        assert mara.press("approve", fact="745") == 409, mara.page
        change = Plan.objects.get().conflict.changes.get()
    assert (change.target, change.field, change.planned, change.current) == (
        "invoice/4410", "refunded_cents", "0", "100",
    )  # fmt: skip
    assert not RemoteApplication.objects.exists()


def test_an_address_is_committed_by_the_agent_itself(site: Site, demonstration: Demonstration) -> None:
    assert site.url
    assert demonstration.billing_url
    with desk_of(HOSTED_AGENT, place="test") as desk:
        outcome = live.correct_address(desk, Rhythm(pace=0.1))
    assert isinstance(outcome, Committed)
    assert Plan.objects.get().state == "committed"


@pytest.mark.slow
def test_sigterm_ends_the_agents_and_the_task_they_are_in(site: Site, demonstration: Demonstration) -> None:
    assert site.url
    assert demonstration.billing_url
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo_agents", "--pace", "0.1", "--patience", "60"],
        cwd=PROJECT,
        env={**os.environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        plan = wait_for_plan()
        assert plan.operation == "refund"
        assert json.loads(plan.inputs)["invoice_id"] != "4412"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
    plan.refresh_from_db()
    plan.task.refresh_from_db()
    assert not Task.objects.filter(ended_at=None).exists()
    assert (plan.state, plan.abandonment.reason) == ("abandoned", "task_ended")


@pytest.mark.slow
def test_demo_billing_serves_what_the_file_says_and_stops_on_sigterm(demonstration: Demonstration) -> None:
    assert demonstration.billing_url
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo_billing", "--port", "0"],
        cwd=PROJECT,
        env={**os.environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "The billing system listens at http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()
