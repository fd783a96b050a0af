"""The lock order at the head of plans/models.py, read from the statements that each use case really executes."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection

from plans import models, registry
from plans.abandonment import abandon_plan, apply_commit_writes, end_task, forget_old, observe_write
from plans.agent_commit import Presented, commit_by_agent
from plans.callbacks import deliver_due
from plans.deliveries import Received
from plans.errors import DecisionRefused
from plans.expiry import expire_due
from plans.freshness import bring_up_to_date
from plans.intake import receive_plan
from plans.models import Plan
from plans.reconcile import confirm_received, find_out, mark_overdue
from plans.review import reject_plan, settle_unknown
from plans.schema import FedPlan, shown_digest
from plans.states import AbandonReason
from plans.viewing import record_view
from tests.hosted_plans import approve, make_billing_agent, plan_address, plan_refund
from tests.makers import feed_data, make_agent, make_person, make_target, receive, reread
from tests.stub_behaviour import DropAfterReading, conflict, problem
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

ORDER = ("Callback", "Target", "Agent", "Task", "Plan", "IdempotencyKey", "Fence", "a hosted operation's own rows")
TABLES = {
    "plans_callback": "Callback",
    "plans_target": "Target",
    "plans_agent": "Agent",
    "plans_task": "Task",
    "plans_plan": "Plan",
    "plans_idempotencykey": "IdempotencyKey",
    "plans_fence": "Fence",
    "demo_invoice": ORDER[-1],
    "demo_customer": ORDER[-1],
    "demo_refund": ORDER[-1],
}
LOCKING = re.compile(
    r"""\s*(?:WITH\s+numbered\s+\(seq\)\s+AS\s+\(\s*)?(?:
        SELECT\b.*\bFROM\s+"?(?P<locked>\w+)"?\b.*\bFOR\s+(?:NO\s+KEY\s+)?UPDATE
        | UPDATE\s+"?(?P<updated>\w+)"? | DELETE\s+FROM\s+"?(?P<deleted>\w+)"? | INSERT\s+INTO\s+"?(?P<inserted>\w+)"?
    )""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class Lock:
    """Rows of one table; `key` where it is one plan; `waits` False where the statement skipped what others held."""

    name: str
    key: int | None
    waits: bool


@dataclass
class Locks:
    """What one transaction locked, in the order in which it did."""

    taken: list[Lock] = field(default_factory=list)

    def take(self, lock: Lock) -> None:
        has_skipped = any(held.name == lock.name and not held.waits for held in self.taken)
        if not has_skipped and (lock.name, lock.key) not in [(held.name, held.key) for held in self.taken]:
            self.taken.append(lock)


@contextlib.contextmanager
def watching() -> Iterator[list[Locks]]:
    """The transactions of the block, in order. A statement that touched no row locked none."""
    transactions: list[Locks] = []
    state: dict[str, Any] = {"in": False}

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if connection.in_atomic_block:
            if not state["in"]:
                transactions.append(Locks())
            state["in"] = True
            note(transactions[-1], str(sql), list(params or ()), context["cursor"])
        return result

    def note(locks: Locks, sql: str, params: list[Any], cursor: Any) -> None:
        found = LOCKING.match(sql)
        table = next((name for name in found.groups() if name), None) if found else None
        if found is None or table not in TABLES or cursor.rowcount < 1:
            return
        if found["inserted"] and TABLES[table] in ("Plan", "Callback"):
            return  # a row that we have just made is nobody's to wait for
        if found["deleted"] and TABLES[table] == "Fence":
            return  # rows of a plan that is locked: nobody else touches them, and who waits to insert one is behind us
        keys = [value for value in params if isinstance(value, int)]
        key = keys[-1] if keys and TABLES[table] == "Plan" else None
        locks.take(Lock(TABLES[table], key, waits="SKIP LOCKED" not in sql))

    original = connection.set_autocommit

    def begin_or_end(autocommit: bool, *args: Any, **options: Any) -> Any:
        state["in"] = False
        return original(autocommit, *args, **options)

    connection.set_autocommit = begin_or_end  # type: ignore[method-assign]
    try:
        with connection.execute_wrapper(watch):
            yield transactions
    finally:
        connection.set_autocommit = original  # type: ignore[method-assign]


def assert_in_order(locks: Locks) -> None:
    """Whatever was waited for comes after all that was held by then; plans ascending."""
    for place, lock in enumerate(locks.taken):
        if not lock.waits:
            continue  # who waits for nobody is part of no circle
        for held in locks.taken[:place]:
            assert ORDER.index(held.name) <= ORDER.index(lock.name), locks.taken
            assert held.name != "Plan" or lock.name != "Plan" or (held.key or 0) < (lock.key or 0), locks.taken


def names(locks: Locks) -> list[str]:
    """The tables, once each."""
    return list(dict.fromkeys(lock.name for lock in locks.taken))


# --- the use cases --------------------------------------------------------------------------------------------------


def plan_at(stub, agent=None, target=None, **data):
    target = target or make_target(base_url=stub.base_url)
    agent = agent or make_agent(target).agent
    return receive(agent, feed_data(target.name, plan=stub.new_plan(), **data))


def receive_that_supersedes(stub):
    plan = plan_at(stub, intent="limit:1")
    older = plan_at(stub, agent=plan.agent, target=plan.target)
    import msgspec

    from plans import strict_json

    body = msgspec.json.encode(
        feed_data(plan.target.name, plan=stub.new_plan(), intent="limit:1", replaces=older.plan_id)
    )
    return lambda: receive_plan(
        agent=plan.agent,
        data=msgspec.json.decode(body, type=FedPlan),
        tree=strict_json.loads(body),
        delivery=Received("msg_1", b"x"),
    )


def a_hosted_dry_run(stub):
    first = plan_refund(intent="refund:1")
    from tests.hosted_plans import plan_hosted

    return lambda: plan_hosted(
        "refund", {"invoice_id": "4412", "amount_cents": 1}, agent=first.plan.agent, intent="refund:1"
    )


def approve_remote(stub):
    plan, person = plan_at(stub), make_person("reviewer")
    return lambda: approve(plan, person)


def approve_conflicting(stub):
    plan, person = plan_at(stub), make_person("reviewer")
    stub.script(conflict())
    return lambda: approve(plan, person)


def approve_that_sends_nothing(stub):
    plan, person = plan_at(stub), make_person("reviewer")
    stub.script_look_ups(plan.plan_id, problem(404))
    Plan.objects.filter(pk=plan.pk).update(has_confirmed_actions=True)
    abandon = abandoning(plan)

    def act():
        from unittest.mock import patch

        from plans.targets.base import Unsent

        def unsent(*_args, **_options):
            abandon()
            return Unsent("Refused.")

        with patch("plans.targets.http.HttpTarget.commit", unsent):
            approve(plan, person)

    return act


def approve_hosted(stub):
    hosted, person = plan_refund(), make_person("reviewer")
    return lambda: hosted.approve(person)


def commit_hosted(stub):
    hosted = plan_address()
    return lambda: [hosted.commit("key-1"), hosted.commit("key-2")]


def commit_remote_by_agent(stub):
    target = make_target(base_url=stub.base_url, approvals=0)
    body = stub.new_plan()
    plan = receive(make_agent(target).agent, feed_data(target.name, plan=body))
    presented = Presented("key-1", None, body["plan_token"], body["input_fingerprint"])
    return lambda: commit_by_agent(agent=plan.agent, operation=plan.operation, presented=presented)


def rejecting(stub):
    plan, person = plan_at(stub), make_person("reviewer")
    return lambda: reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(plan), reason="No")


def opening(stub):
    plan, person = plan_at(stub), make_person("reviewer")
    return lambda: record_view(plan_pk=plan.pk, person=person)


def abandoning(plan):
    return lambda: abandon_plan(
        agent=plan.agent, target_name=plan.target.name, plan_id=plan.plan_id, reason=AbandonReason.INTENT_CHANGED
    )


def abandoning_one(stub):
    return abandoning(plan_at(stub))


def ending_a_task(stub):
    plan = plan_at(stub)
    for _ in range(2):
        plan_at(stub, agent=plan.agent, target=plan.target, task_id=plan.task.task_id)
    return lambda: end_task(agent=plan.agent, task_id=plan.task.task_id)


def writing(stub):
    target = make_target(base_url=stub.base_url)
    agents = [make_agent(target).agent for _ in range(2)]
    for agent in agents * 2:
        plan_at(stub, agent=agent, target=target)
    return lambda: observe_write(
        agent=agents[0], task_id="t", target_name=target.name, targets=["ledger/ACC-104"], written_at=None
    )


def applying_commit_writes(stub):
    target = make_target(base_url=stub.base_url)
    agents = [make_agent(target).agent for _ in range(2)]
    plans = [plan_at(stub, agent=agent, target=target) for agent in agents * 2]
    approve(plans[1])
    return apply_commit_writes


def finding_out(stub):
    stub.script(DropAfterReading())
    plan = plan_at(stub)
    approve(plan)
    return lambda: find_out(plan_pk=plan.pk)


def settling(stub, owner_connection=None):
    stub.script(DropAfterReading())
    plan, person = plan_at(stub), make_person("reviewer")
    approve(plan)
    pass_time_to_expiry(owner_connection, plan, 61)
    return lambda: settle_unknown(plan_pk=plan.pk, person=person, was_made=True, reason="Checked.")


def overdue(stub, owner_connection=None):
    plan = plan_at(stub)
    from tests.makers import take_to

    with contextlib.suppress(SystemExit):
        take_to(plan, models.State.UNKNOWN, person=None, reason=AbandonReason.EXPIRED, changes=(), result=None)
    other = plan_at(stub)
    from django.db import transaction

    from plans import clock
    from plans.chronicle import agent_actor
    from plans.commit import claim
    from plans.locks import lock_plan

    with transaction.atomic():
        claim(lock_plan(other.pk), actor=agent_actor(other.agent), at=clock.now())
    pass_time(owner_connection, other, 50)
    return mark_overdue


def expiring(stub, owner_connection=None):
    plans = [plan_at(stub) for _ in range(3)]
    for plan in plans:
        pass_time_to_expiry(owner_connection, plan)
    return lambda: [bring_up_to_date(reread(plans[0])), expire_due()]


def deciding_what_is_dead(stub, owner_connection=None):
    plan, person = plan_at(stub), make_person("reviewer")
    pass_time_to_expiry(owner_connection, plan)

    def act():
        with contextlib.suppress(DecisionRefused):
            approve(plan, person)

    return act


def confirming(stub):
    plan = plan_at(stub)
    stub.alter(plan.plan_id, state="committed")
    return confirm_received


def disabling_an_agent(stub):
    plan = plan_at(stub)
    for _ in range(2):
        plan_at(stub, agent=plan.agent, target=plan.target)
    return lambda: registry.disable_agent(name=plan.agent.name)


def disabling_a_target(stub):
    plan = plan_at(stub)
    plan_at(stub, target=plan.target)
    return lambda: registry.disable_target(name=plan.target.name)


def delivering_callbacks(stub):
    target = make_target(base_url=stub.base_url)
    made = make_agent(target, callback_url="http://127.0.0.1:9/hook")
    abandoning(plan_at(stub, agent=made.agent, target=target))()
    return deliver_due


USE_CASES = {
    receive_that_supersedes: ["Agent", "Task", "Plan"],
    a_hosted_dry_run: ["Agent", "Task", "Plan"],
    approve_remote: ["Plan", "Fence"],
    approve_conflicting: ["Plan", "Fence"],
    approve_that_sends_nothing: ["Plan", "Fence"],
    approve_hosted: ["Plan", ORDER[-1]],
    commit_hosted: ["Plan", "IdempotencyKey", ORDER[-1]],
    commit_remote_by_agent: ["Plan", "IdempotencyKey", "Fence"],
    rejecting: ["Plan"],
    opening: [],
    abandoning_one: ["Agent", "Plan"],
    ending_a_task: ["Agent", "Task", "Plan"],
    writing: ["Agent", "Plan"],
    applying_commit_writes: ["Agent", "Plan"],
    finding_out: ["Plan"],
    settling: ["Plan"],
    overdue: ["Plan"],
    expiring: ["Plan"],
    deciding_what_is_dead: ["Plan"],
    confirming: ["Plan"],
    disabling_an_agent: ["Agent", "Plan"],
    disabling_a_target: ["Target", "Plan"],
    delivering_callbacks: ["Callback", "Plan"],
}


@pytest.mark.parametrize("use_case", USE_CASES, ids=lambda use_case: use_case.__name__)
def test_a_use_case_locks_in_the_order_that_is_written_down(use_case, stub_target, owner_connection):
    takes_owner = "owner_connection" in use_case.__code__.co_varnames
    act = use_case(stub_target, **({"owner_connection": owner_connection} if takes_owner else {}))
    with watching() as transactions:
        act()
    assert transactions
    for locks in transactions:
        assert_in_order(locks)
    widest = max((names(locks) for locks in transactions), key=len)
    assert widest == USE_CASES[use_case]


def test_the_order_is_the_one_that_the_models_state():
    stated = ("Callback (", "Target (", "Agent (", "Task ->", "Plan, by", "IdempotencyKey ->", "Fence, by", "a hosted")
    head = " ".join((models.__doc__ or "").split())
    places = [head.index(name) for name in stated]
    assert places == sorted(places)


def test_a_lock_out_of_order_would_be_seen():
    hosted = plan_address()
    from django.db import transaction

    from plans.locks import lock_agent, lock_plan

    with watching() as transactions, transaction.atomic():
        lock_plan(hosted.plan.pk)
        lock_agent(hosted.plan.agent_id)
    with pytest.raises(AssertionError):
        assert_in_order(transactions[0])
    other = plan_address("78")
    with watching() as transactions, transaction.atomic():
        lock_plan(other.plan.pk)
        lock_plan(hosted.plan.pk)
    with pytest.raises(AssertionError):
        assert_in_order(transactions[0])


def test_forgetting_and_billing_agents_lock_nothing_of_the_order():
    make_billing_agent()
    with watching() as transactions:
        forget_old()
    assert all(not locks.taken for locks in transactions)
