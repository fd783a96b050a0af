"""A client that leaves in the middle of a call: the commit goes on to its end, and the plan tells the truth."""

import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client

from plans.demo.models import Customer
from plans.models import Plan
from tests import makers
from tests.fixtures import Site
from tests.plans.agent.tooling import MOVE, bot, rows
from tests.plans.mcp.over_http import LEGACY, MODERN, Wire, call, converse, named, send_and_keep, tool_call
from tests.stub_behaviour import DropAfterApplying, Hold
from tests.stub_target import StubTarget

__all__ = ["bot"]

Revisions = pytest.mark.parametrize("revision", [MODERN, LEGACY])


def reset(client: socket.socket) -> None:
    """Leaves without a word of farewell, as a process that is killed behind a proxy does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def outcome_of(site: Site, made: makers.MadeAgent, plan_id: str, *, again: dict[str, Any] | None = None) -> str:
    """What get_plan says, or commit_plan where `again` names what it takes."""

    async def scenario(client: Client) -> str:
        told = await call(client, "commit_plan", **again) if again else await call(client, "get_plan", plan_id=plan_id)
        return f"{told['outcome']} {told['reason']}" if told["outcome"] == "waiting" else str(told["outcome"])

    return str(converse(site, made, scenario))


@Revisions
def test_a_remote_commit_goes_on_when_its_client_leaves(site: Site, stub_target: StubTarget, revision: str) -> None:
    stub_target.script(hold := Hold())
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="mcp"))
    wanted = {"plan_id": plan.plan_id, "input_fingerprint": plan.input_fingerprint}
    client = send_and_keep(site, made.api_key, tool_call("commit_plan", wanted, revision=revision), revision=revision)
    assert hold.reached.wait(20)
    reset(client)
    assert outcome_of(site, made, plan.plan_id) == "waiting committing"
    time.sleep(0.3)
    assert Plan.objects.get(pk=plan.pk).state == "committing"
    hold.until.set()
    until(lambda: Plan.objects.get(pk=plan.pk).state == "committed")
    assert outcome_of(site, made, plan.plan_id) == "committed"
    assert outcome_of(site, made, plan.plan_id, again=wanted) == "committed"
    assert (stub_target.applied, len(stub_target.commits)) == (1, 1)
    assert makers.events_of(plan) == ["plan.received", "commit.started", "commit.succeeded"]


def test_an_answer_lost_twice_is_unknown_and_not_made_twice(site: Site, stub_target: StubTarget) -> None:
    hold = Hold(then=DropAfterApplying())
    stub_target.script(hold)
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="mcp"))
    wanted = {"plan_id": plan.plan_id, "input_fingerprint": plan.input_fingerprint}
    client = send_and_keep(site, made.api_key, tool_call("commit_plan", wanted))
    assert hold.reached.wait(20)
    reset(client)
    hold.until.set()
    until(lambda: Plan.objects.get(pk=plan.pk).state == "unknown")
    assert outcome_of(site, made, plan.plan_id) == "unknown"
    assert outcome_of(site, made, plan.plan_id, again=wanted) == "unknown"
    assert (stub_target.applied, len(stub_target.commits)) == (1, 1)


@Revisions
def test_a_hosted_commit_goes_on_when_its_client_leaves(
    site: Site, bot: makers.MadeAgent, owner_connection: Any, revision: str
) -> None:
    with Wire(site, bot.api_key) as wire:
        plan = wire.call("address_update_dry_run", **MOVE)
    with owner_connection.transaction():
        owner_connection.execute("SELECT 1 FROM demo_customer WHERE customer_id = '77' FOR UPDATE")
        sent = tool_call("commit_plan", named(plan), revision=revision)
        client = send_and_keep(site, bot.api_key, sent, revision=revision)
        until(lambda: bool(blocked(owner_connection)))
        reset(client)
        time.sleep(0.3)
        assert blocked(owner_connection)
    until(lambda: rows()[0].state == "committed")
    assert outcome_of(site, bot, plan["plan_id"]) == "committed"
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"


def blocked(connection: Any) -> int:
    """How many wait for this connection."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    return int(connection.execute(query).fetchone()[0])


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_finishes_the_commit_first(
    make_site: Callable[..., Site], stub_target: StubTarget
) -> None:
    site = make_site()
    stub_target.script(hold := Hold())
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="mcp"))
    wanted = {"plan_id": plan.plan_id, "input_fingerprint": plan.input_fingerprint}
    client = send_and_keep(site, made.api_key, tool_call("commit_plan", wanted))
    assert hold.reached.wait(20)
    reset(client)
    os.kill(site.process.pid, signal.SIGTERM)
    time.sleep(0.5)
    hold.until.set()
    site.process.wait(30)
    assert Plan.objects.get(pk=plan.pk).state == "committed"
    assert stub_target.applied == 1
