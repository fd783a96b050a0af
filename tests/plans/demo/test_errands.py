"""Every kind of errand of the demonstration's agents ends as it says, with people at the desk and with nobody there."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from django.db import connections

from audit.models import Event
from plans import clock, reconcile
from plans.agent import Abandoned, Committed, Outcome, Waiting
from plans.demo import live, story
from plans.demo.agents import AGENT_TARGETS, HOSTED_AGENT, REMOTE_AGENT, desk_of
from plans.demo.models import Customer, Invoice, Refund, RemoteApplication
from plans.demo.rhythm import Rhythm
from plans.models import Commit, Plan, Task
from reviewer.installation import PROJECT
from tests.fixtures import Site
from tests.plans.demo.conftest import Demonstration
from tests.plans.demo.visitor import Visitor

FAST = Rhythm(pace=0.3, patience=40)


@dataclass
class Errand:
    """One errand, running in a thread of its own."""

    errand: live.Errand
    rhythm: Rhythm
    outcome: Outcome | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with desk_of(self.errand.agent, place="errands") as desk:
                self.outcome = self.errand.run(desk, self.rhythm)
        finally:
            connections.close_all()


def named(name: str) -> live.Errand:
    return next(one for one in live.ERRANDS if one.name == name)


def approve_whatever_comes(running: Errand, people: list[Visitor], answers: list[int]) -> None:
    """People press Approve on all that waits, and the clock does its rounds, until the errand is over."""
    ends = time.monotonic() + 60
    while running.thread.is_alive() and time.monotonic() < ends:
        for plan in Plan.objects.pending().select_related("agent", "target").filter(approvals_required__gt=0):
            for person in people:
                if person.get(story.plan_path(plan)) == 200 and 'data-action="approve"' in person.page:
                    answers.append(person.press("approve", fact=str(json.loads(plan.inputs)["amount_cents"])))
        Plan.objects.filter(state="unknown").update(next_check_at=clock.now())
        reconcile.find_out_unknown()
        time.sleep(0.05)
    running.thread.join(5)


@contextmanager
def at_work(demonstration: Demonstration, site: Site, name: str) -> Iterator[tuple[Errand, list[int]]]:
    """The errand, done; two people are at the desk, unless the agent gives up before anybody decides."""
    names = ("mara", "tomas") if named(name).ends == "committed" else ()
    people = [demonstration.sign_in(site, person) for person in names]
    answers: list[int] = []
    running = Errand(named(name), FAST)
    approve_whatever_comes(running, people, answers)
    assert not running.thread.is_alive()
    yield running, answers


def kinds_of(plan: Plan) -> list[str]:
    return list(Event.objects.filter(plan_id=plan.plan_id).order_by("at", "pk").values_list("kind", flat=True))


@pytest.mark.slow
@pytest.mark.parametrize("errand", live.ERRANDS, ids=lambda errand: errand.name)
def test_an_errand_ends_as_it_says_and_leaves_nothing_in_flight(
    site: Site, demonstration: Demonstration, errand: live.Errand
) -> None:
    before = Invoice.objects.values_list("status", "refunded_cents").get(pk="4412")
    with at_work(demonstration, site, errand.name) as (running, _):
        assert type(running.outcome).__name__.lower() == errand.ends
    last = Plan.objects.order_by("-pk")[0]
    assert (last.state, last.agent.name) == (errand.ends, errand.agent)
    assert not Plan.objects.in_flight().exists()
    assert Task.objects.filter(ended_at=None).count() == 0
    assert Invoice.objects.values_list("status", "refunded_cents").get(pk="4412") == before
    assert json.loads(Plan.objects.order_by("pk")[0].evidence), "an agent looks before it plans"


@pytest.mark.slow
def test_a_lost_answer_of_the_billing_system_is_unknown_to_whoever_approved_and_then_found_out(
    site: Site, demonstration: Demonstration
) -> None:
    with at_work(demonstration, site, "a return whose answer is lost") as (running, answers):
        assert isinstance(running.outcome, Committed)
    assert answers == [202]
    kinds = kinds_of(Plan.objects.get())
    assert [kind for kind in kinds if kind.startswith("commit.")] == [
        "commit.started", "commit.unknown", "commit.resolved", "commit.succeeded",
    ]  # fmt: skip
    assert RemoteApplication.objects.count() == 1
    assert Refund.objects.filter(made_by="billing-remote").count() == 1


@pytest.mark.slow
def test_an_answer_lost_on_the_way_to_the_agent_is_given_again_and_nothing_is_written_twice(
    site: Site, demonstration: Demonstration
) -> None:
    with at_work(demonstration, site, "an address over a bad line") as (running, _):
        assert isinstance(running.outcome, Committed)
    plan = Plan.objects.get()
    assert [kind for kind in kinds_of(plan) if kind in ("commit.succeeded", "commit.replayed")] == [
        "commit.succeeded", "commit.replayed",
    ]  # fmt: skip
    assert Commit.objects.filter(plan=plan).count() == 1
    assert Customer.objects.filter(address=json.loads(plan.inputs)["address"]).count() == 1


@pytest.mark.slow
def test_a_clerk_who_was_faster_is_a_conflict_and_the_new_plan_says_what_it_replaces(
    site: Site, demonstration: Demonstration
) -> None:
    with at_work(demonstration, site, "an address that a clerk was faster with"):
        first, second = Plan.objects.order_by("pk")
    assert (first.state, second.state, second.replaces) == ("conflicted", "committed", first.plan_id)
    assert first.conflict.changes.get().field == "address"


@pytest.mark.slow
def test_a_voucher_of_the_agents_own_ends_its_plan_and_the_next_one_knows_of_it(
    site: Site, demonstration: Demonstration
) -> None:
    people = [demonstration.sign_in(site)]
    running, answers = Errand(named("a voucher before a return"), Rhythm(pace=0.3, patience=40)), []
    # Nobody approves the first plan before the voucher is given.
    while running.thread.is_alive() and not Refund.objects.filter(made_by=REMOTE_AGENT).exists():
        time.sleep(0.01)
    approve_whatever_comes(running, people, answers)
    assert isinstance(running.outcome, Committed)
    first, second = Plan.objects.order_by("pk")
    assert (first.state, first.abandonment.reason) == ("abandoned", "inputs_changed")
    assert (second.state, second.replaces) == ("committed", first.plan_id)
    assert second.created_at > Refund.objects.get(made_by=REMOTE_AGENT).created_at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"), [("a change of mind", "intent_changed"), ("a return left unfinished", "task_ended")]
)
def test_what_an_agent_gives_up_is_abandoned_for_its_reason(
    site: Site, demonstration: Demonstration, name: str, reason: str
) -> None:
    assert site.url and demonstration.billing_url
    running = Errand(named(name), FAST)
    running.thread.join(30)
    assert running.outcome == Abandoned(Plan.objects.get().plan_id, reason)
    assert Plan.objects.get().abandonment.reason == reason


@pytest.mark.slow
def test_an_agent_that_nobody_answers_gives_up_after_its_patience(site: Site, demonstration: Demonstration) -> None:
    assert site.url and demonstration.billing_url
    running = Errand(named("a large refund"), Rhythm(pace=0.1, patience=0.5))
    running.thread.join(30)
    assert isinstance(running.outcome, Waiting)
    plan = Plan.objects.get()
    assert (plan.approvals_required, plan.state, plan.abandonment.reason) == (2, "abandoned", "task_ended")


@pytest.mark.slow
def test_both_agents_work_side_by_side_at_the_pace_of_the_setting(site: Site, demonstration: Demonstration) -> None:
    assert site.url and demonstration.billing_url
    done = subprocess.run(
        [sys.executable, "manage.py", "demo_agents", "--errands", "4", "--patience", "0.3"],
        cwd=PROJECT,
        env={**os.environ, "DEMO_PACE": "0.1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 16
    assert not [line for line in lines if "given up" in line or "nothing to do" in line], done.stdout + done.stderr
    assert {line.partition(":")[0] for line in lines} == set(AGENT_TARGETS)
    assert {line.split(": ")[1] for line in lines} == {errand.name for errand in live.ERRANDS}
    agents = [plan.agent.name for plan in Plan.objects.select_related("agent").order_by("pk")]
    assert agents != sorted(agents) and agents != sorted(agents, reverse=True), "one after the other"
    assert set(agents) == {HOSTED_AGENT, REMOTE_AGENT}
