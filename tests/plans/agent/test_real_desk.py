"""The SDK against the real desk: what the scripted one stands for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plans import registry
from plans.agent import (
    Abandoned,
    Change,
    Committed,
    Conflict,
    Desk,
    FileStore,
    Pace,
    PlanRefused,
    Rejected,
    Stale,
    Unavailable,
    Waiting,
)
from plans.confirm import confirm_plan
from plans.demo.models import Customer, Invoice
from plans.models import Plan as Row
from plans.models import Target
from plans.review import approve_plan, reject_plan
from plans.schema import shown_digest
from tests import makers
from tests.fixtures import Site
from tests.plans.demo.makers import make_invoice
from tests.stub_target import StubTarget
from tests.unknown_plans import says

REFUND = {"invoice_id": "4412", "amount_cents": 48_000}
PACE = Pace(patience=10, farewell=5, first_delay=0.05)


@pytest.fixture
def made(site: Site, stub_target: StubTarget) -> makers.MadeAgent:
    """An agent that may write to the hosted billing, and feed the stub target."""
    registry.ensure_hosted_targets()
    makers.make_target("ledger", base_url=stub_target.base_url, approvals=0)
    make_invoice()
    credentials = registry.create_agent(name="bot", owner=makers.make_person("admin"), targets=["billing", "ledger"])
    return makers.MadeAgent(
        credentials.agent, credentials.api_key, credentials.webhook_secret, credentials.callback_secret
    )


@pytest.fixture
def real(site: Site, made: makers.MadeAgent, tmp_path: Path) -> Iterator[Desk]:
    store = FileStore(tmp_path / "agent")
    secret = made.webhook_secret
    with Desk(site.url, made.api_key, agent="bot", webhook_secret=secret, store=store, pace=PACE) as desk:
        yield desk


def row_of(plan_id: str) -> Any:
    return Row.objects.select_related("agent", "target", "task", "policy").get(plan_id=plan_id)


def approve(plan_id: str) -> None:
    row = row_of(plan_id)
    digest = shown_digest(row)
    approve_plan(plan_pk=row.pk, person=makers.make_person("reviewer"), seen_digest=digest, fact="48000")


def test_what_nobody_approves_is_committed_once_and_then_replayed(real: Desk) -> None:
    with real.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77", "address": "2 Mill Lane"})
        assert plan.needs_approval is False
        first = task.commit(plan)
        assert first == Committed(plan.plan_id, {"customer_id": "77", "address": "2 Mill Lane"})
        assert task.commit(plan) == Committed(plan.plan_id, first.result, replayed=True)
        assert Customer.objects.get(pk="77").address == "2 Mill Lane"
        with pytest.raises(PlanRefused) as caught:
            task.dry_run("address.update", {"customer_id": "nobody", "address": "x"})
        assert caught.value.slug == "cannot-plan"
    assert task.ended == []


def test_a_person_approves_and_the_agent_that_waits_is_told(real: Desk) -> None:
    with real.task("t1") as task:
        task.read("shipping.lookup", "delivery exception", url="https://carrier.example/track/77")
        plan = task.dry_run("refund", REFUND, intent="refund:t1", summary="Refund 480.00 USD")
        assert task.commit(plan) == Waiting(plan.plan_id, plan.review_url)
        approve(plan.plan_id)
        outcome = task.wait(plan, timeout=10)
        assert isinstance(outcome, Committed)
        assert task.dry_run("refund", REFUND, intent="refund:t1") == plan
    assert task.ended == []


def test_what_people_decide_before_the_end_is_what_the_end_reports(real: Desk) -> None:
    with real.task("t1") as task:
        rejected = task.dry_run("refund", {**REFUND, "amount_cents": 1}, intent="refund:t0")
        row = row_of(rejected.plan_id)
        person = makers.make_person("reviewer")
        reject_plan(plan_pk=row.pk, person=person, seen_digest=shown_digest(row), reason="no")
        written = task.dry_run("refund", REFUND, intent="refund:t1")
        assert isinstance(task.commit(written), Waiting)
        approve(written.plan_id)
        left = task.dry_run("address.update", {"customer_id": "77", "address": "2 Mill Lane"})
    states = [(rejected, "rejected"), (written, "committed"), (left, "abandoned")]
    assert task.ended == [(plan.plan_id, state) for plan, state in states]


def test_a_rejection_reaches_the_agent_with_its_reason(real: Desk) -> None:
    with real.task("t1") as task:
        plan = task.dry_run("refund", REFUND, intent="refund:t1")
        row = row_of(plan.plan_id)
        person = makers.make_person("reviewer")
        reject_plan(plan_pk=row.pk, person=person, seen_digest=shown_digest(row), reason="wrong invoice")
        assert task.wait(plan, timeout=10) == Rejected(plan.plan_id, "wrong invoice")


def test_a_world_that_moved_is_a_conflict_and_the_new_plan_names_the_old(real: Desk) -> None:
    with real.task("t1") as task:
        plan = task.dry_run("refund", REFUND, intent="refund:t1")
        Invoice.objects.filter(pk="4412").update(refunded_cents=20_000)
        approve(plan.plan_id)
        outcome = task.commit(plan)
        assert isinstance(outcome, Conflict)
        assert outcome.changed == (Change("invoice/4412", "refunded_cents", 0, 20_000),)
        assert outcome.planned_at == plan.created_at
        again = task.dry_run("refund", {**REFUND, "amount_cents": 28_000}, intent="refund:t1", replaces=plan)
        assert isinstance(task.commit(again), Waiting)
    assert task.ended == [(again.plan_id, "abandoned")]
    assert row_of(again.plan_id).abandonment.reason == "task_ended"


def test_a_conflict_on_the_agents_own_commit(real: Desk) -> None:
    with real.task("t1") as task:
        plan = task.dry_run("address.update", {"customer_id": "77", "address": "2 Mill Lane"})
        Customer.objects.filter(pk="77").update(address="somewhere else")
        outcome = task.commit(plan)
        assert isinstance(outcome, Conflict)
        assert [(one.target, one.field, one.current) for one in outcome.changed] == [
            ("customer/77", "address", "somewhere else")
        ]
        assert task.commit(plan) == outcome


def test_writes_withdrawals_and_newer_plans_end_plans_here_and_there(real: Desk) -> None:
    with real.task("t1") as task:
        stale = task.dry_run("address.update", {"customer_id": "77", "address": "2 Mill Lane"})
        assert task.write("billing", ["customer/77"]) == [stale.plan_id]
        assert row_of(stale.plan_id).abandonment.reason == "inputs_changed"
        assert task.commit(stale) == Stale(stale.plan_id, ("customer/77",))
        withdrawn = task.dry_run("address.update", {"customer_id": "77", "address": "2 Mill Lane"})
        assert task.abandon(withdrawn) == Abandoned(withdrawn.plan_id, "intent_changed")
        older = task.dry_run("refund", REFUND, intent="refund:t1")
        newer = task.dry_run("refund", {**REFUND, "amount_cents": 1}, intent="refund:t1")
        assert task.commit(older) == Abandoned(older.plan_id, "superseded")
        assert row_of(older.plan_id).abandonment.reason == "superseded"
    assert task.ended == [(newer.plan_id, "abandoned")]


def test_a_remote_plan_is_fed_once_and_committed_through_the_desk(real: Desk, stub_target: StubTarget) -> None:
    answer = stub_target.new_plan()
    with real.task("t1") as task:
        plan = task.submit("ledger", "limit.update", {"account": "ACC-104", "limit": 250}, answer)
        assert task.submit("ledger", "limit.update", {"limit": 250, "account": "ACC-104"}, answer) == plan
        assert plan.idempotency_key == row_of(plan.plan_id).idempotency_key
        assert isinstance(task.commit(plan), Committed)
    assert stub_target.applied == 1
    assert {call.key for call in stub_target.commits} == {plan.idempotency_key}


def test_a_plan_that_waits_for_its_targets_word_alone_is_committed_once_it_came(
    site: Site, made: makers.MadeAgent, stub_target: StubTarget, tmp_path: Path
) -> None:
    makers.policy_of(Target.objects.get(name="ledger"), refuses_unconfirmed=True)
    answer = stub_target.new_plan(is_known=False)
    store, secret = FileStore(tmp_path / "agent"), made.webhook_secret
    pace = Pace(patience=1, farewell=5, first_delay=0.05)
    with (
        Desk(site.url, made.api_key, agent="bot", webhook_secret=secret, store=store, pace=pace) as desk,
        desk.task("t1") as task,
    ):
        plan = task.submit("ledger", "limit.update", {"account": "ACC-104", "limit": 250}, answer)
        assert task.commit(plan) == Unavailable(plan.plan_id)
        assert stub_target.commits == []
        stub_target.script_look_ups(plan.plan_id, says(row_of(plan.plan_id), "pending", actions=answer["actions"]))
        confirm_plan(plan_pk=row_of(plan.plan_id).pk)
        assert isinstance(task.commit(plan), Committed)
    assert {call.key for call in stub_target.commits} == {plan.idempotency_key}
