"""The MCP server at `/mcp`, driven by the package's own client over real HTTP, with several worker processes."""

import asyncio
import json
import os
import signal
import time
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
import urllib3
from django.test import RequestFactory
from mcp import Client
from mcp.shared.exceptions import MCPError

from plans import mcp_door, registry
from plans.agent import Desk
from plans.agent.toolbox import Toolbox
from plans.demo.models import Customer, Invoice
from plans.intake import MAX_PENDING
from plans.mcp.server import VERSION
from plans.targets import operations
from plans.targets.operations import Action, Operation, State
from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.loops import call_apart
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, real, rows
from tests.plans.mcp.over_http import LEGACY, MODERN, Wire, call, converse, headers_for, named, tool_call, workers
from tests.stub_behaviour import Answer, DropAfterApplying, conflict, problem
from tests.stub_target import StubTarget

__all__ = ["bot", "real"]

Modes = pytest.mark.parametrize(("mode", "revision"), [("auto", MODERN), ("legacy", LEGACY)])


@Modes
def test_an_operation_is_planned_and_committed_once_under_both_revisions(
    site: Site, bot: makers.MadeAgent, mode: str, revision: str
) -> None:
    async def scenario(client: Client) -> None:
        assert client.protocol_version == revision
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {
            "address_update_dry_run", "refund_dry_run", "commit_plan", "get_plan", "abandon_plan"
        }  # fmt: skip
        assert set(tools["commit_plan"].input_schema["properties"]) == {"plan_id", "input_fingerprint"}
        assert tools["commit_plan"].annotations.destructive_hint  # type: ignore[union-attr]
        plan = await call(client, "address_update_dry_run", **MOVE)
        assert (plan["outcome"], plan["needs_approval"]) == ("planned", False)
        assert plan["actions"][0]["to"] == "2 Mill Lane"
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "planned"
        first = await call(client, "commit_plan", **named(plan))
        again = await call(client, "commit_plan", **named(plan))
        assert (first["outcome"], first["replayed"]) == ("committed", False)
        assert (again["outcome"], again["replayed"], again["result"]) == ("committed", True, first["result"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "committed"

    converse(site, bot, scenario, mode)
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"
    [row] = rows()
    assert (row.state, row.task.task_id) == ("committed", "mcp")
    assert makers.events_of(row) == ["plan.received", "commit.started", "commit.succeeded"]


def test_what_is_listed_is_what_the_server_over_stdio_lists(site: Site, bot: makers.MadeAgent, real: Desk) -> None:
    async def scenario(client: Client) -> list[Any]:
        return [(one.name, one.description, one.input_schema) for one in (await client.list_tools()).tools]

    with real.task("t") as task:
        told = [(one.name, one.description, one.schema) for one in Toolbox.of(task).tools]
    assert converse(site, bot, scenario) == told


def test_a_plan_that_people_decide_waits_and_its_decision_is_read_later(site: Site, bot: makers.MadeAgent) -> None:
    async def scenario(client: Client) -> None:
        plan = await call(client, "refund_dry_run", **REFUND)
        assert plan["needs_approval"]
        waiting = await call(client, "commit_plan", **named(plan))
        assert (waiting["outcome"], waiting["review_url"]) == ("waiting", plan["review_url"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "waiting"
        await asyncio.to_thread(approve, plan["plan_id"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "committed"
        assert (await call(client, "commit_plan", **named(plan)))["replayed"] is True

    converse(site, bot, scenario)
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


@pytest.mark.slow
def test_a_conflict_an_abandonment_and_an_expiry_are_results(
    bot: makers.MadeAgent, site: Site, make_site: Callable[..., Site]
) -> None:
    async def conflict(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.to_thread(Customer.objects.filter(pk="77").update, address="somewhere else")
        told = await call(client, "commit_plan", **named(plan))
        assert (told["outcome"], told["changed"][0]["current"]) == ("conflict", "somewhere else")
        plan = await call(client, "address_update_dry_run", **MOVE)
        told = await call(client, "abandon_plan", plan_id=plan["plan_id"], reason="intent_changed")
        assert (told["outcome"], told["reason"]) == ("abandoned", "intent_changed")
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "abandoned"

    async def expiry(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.sleep(1.2)
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "expired"
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "expired"

    converse(site, bot, conflict)
    converse(make_site(PLAN_LIFETIME="1"), bot, expiry)
    assert Customer.objects.get(pk="77").address == "somewhere else"
    assert [row.state for row in rows()] == ["conflicted", "abandoned", "abandoned"]


def test_unknown_arguments_and_other_fingerprints_are_refused_and_nothing_is_written(
    site: Site, bot: makers.MadeAgent
) -> None:
    async def scenario(client: Client) -> None:
        said = await call(client, "address_update_dry_run", is_error=True, **MOVE, plan_token="x")
        assert "plan_token" in said["detail"]
        inner = {**MOVE, "inputs": {**MOVE["inputs"], "surprise": 1}}  # type: ignore[dict-item]
        assert "surprise" in (await call(client, "address_update_dry_run", is_error=True, **inner))["detail"]
        assert await asyncio.to_thread(rows) == []
        plan = await call(client, "address_update_dry_run", **MOVE)
        for wrong in ({"inputs": MOVE["inputs"]}, {"idempotency_key": "k"}, {"plan_token": "t"}):
            said = await call(client, "commit_plan", is_error=True, **named(plan), **wrong)
            assert "Unknown arguments" in said["detail"]
        other = {**named(plan), "input_fingerprint": "sha256:0"}
        assert (await call(client, "commit_plan", is_error=True, **other))["slug"] == "fingerprint-mismatch"
        assert "input_fingerprint" in (await call(client, "commit_plan", is_error=True, plan_id="p"))["detail"]
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("drop_everything", {})

    converse(site, bot, scenario)
    assert [row.state for row in rows()] == ["pending"]
    assert Customer.objects.get(pk="77").address != "2 Mill Lane"


def test_a_plan_of_another_agent_or_of_another_task_is_none(site: Site, bot: makers.MadeAgent) -> None:
    other = registry.create_agent(name="other", owner=makers.make_person("admin"), targets=["billing"])

    async def plans(client: Client) -> dict[str, Any]:
        return await call(client, "address_update_dry_run", **MOVE)

    plan = converse(site, bot, plans, Plandesk_Task="ticket-1")

    async def tries(client: Client) -> None:
        for name, arguments in (
            ("commit_plan", named(plan)),
            ("get_plan", {"plan_id": plan["plan_id"]}),
            ("abandon_plan", {"plan_id": plan["plan_id"], "reason": "intent_changed"}),
        ):
            said = await call(client, name, is_error=True, **arguments)
            assert (said["slug"], "This task has no plan" in said["detail"]) == ("never-planned", True)

    converse(site, bot, tries, Plandesk_Task="ticket-2")
    converse(site, bot, tries)
    converse(site, makers.MadeAgent(other.agent, other.api_key, "", ""), tries, Plandesk_Task="ticket-1")
    [row] = rows()
    assert (row.state, row.task.task_id) == ("pending", "ticket-1")


def test_the_same_dry_run_again_supersedes_the_one_before(site: Site, bot: makers.MadeAgent) -> None:
    async def scenario(client: Client) -> None:
        lost = await call(client, "address_update_dry_run", **MOVE)
        plan = await call(client, "address_update_dry_run", **MOVE)
        assert (await call(client, "commit_plan", **named(lost)))["reason"] == "superseded"
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "committed"

    converse(site, bot, scenario)
    assert [row.state for row in rows()] == ["abandoned", "committed"]


def test_a_task_that_has_ended_takes_no_plans(site: Site, bot: makers.MadeAgent) -> None:
    headers = {"Authorization": f"Bearer {bot.api_key}"}
    assert site.request("POST", "/api/v1/tasks/ticket-1/end", headers=headers).status == 200

    async def scenario(client: Client) -> None:
        said = await call(client, "address_update_dry_run", is_error=True, **MOVE)
        assert "ticket-1 has ended" in said["detail"]

    converse(site, bot, scenario, Plandesk_Task="ticket-1")
    assert [row.abandonment.reason for row in rows()] == ["task_ended"]


def test_a_paused_agent_plans_nothing_and_commits_what_it_has(site: Site, bot: makers.MadeAgent) -> None:
    async def scenario(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.to_thread(registry.pause_agent, name="bot")
        said = await call(client, "refund_dry_run", is_error=True, **REFUND)
        assert said["slug"] == "agent-paused"
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "committed"

    converse(site, bot, scenario)


def test_more_pending_plans_than_an_agent_may_have_are_told_as_busy(
    site: Site, bot: makers.MadeAgent, owner_connection: Any
) -> None:
    async def first(client: Client) -> None:
        await call(client, "refund_dry_run", **{**REFUND, "intent": "refund:t0"})

    async def beyond(client: Client) -> None:
        said = await call(client, "address_update_dry_run", **MOVE)
        assert (said["outcome"], "pending plans" in said["detail"]) == ("unavailable", True)

    converse(site, bot, first)
    [row] = rows()
    copied = [field.column for field in row._meta.local_fields if field.column not in ("id", "intent")]
    told = {"plan_id": "'p' || n", "idempotency_key": "'k' || n", "token_hash": "int4send(n)"}
    names, values = ", ".join(copied), ", ".join(told.get(name, name) for name in copied)
    with owner_connection.transaction():
        owner_connection.execute("SET LOCAL session_replication_role = replica")
        owner_connection.execute(
            f"INSERT INTO plans_plan ({names}) SELECT {values} FROM plans_plan, generate_series(2, %s) n", [MAX_PENDING]
        )
    converse(site, bot, beyond)


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (Answer(200, {"entry": "L-9"}), "committed"),
        (conflict(), "conflict"),
        (problem(422, "no"), "refused"),
        (DropAfterApplying(), "unknown"),
        (problem(503), "unknown"),
    ],
)
def test_a_fed_plan_of_the_same_task_is_committed_at_its_target(
    site: Site, stub_target: StubTarget, behaviour: Any, outcome: str
) -> None:
    stub_target.script(behaviour)
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="ticket-7"))

    async def scenario(client: Client) -> None:
        wanted = {"plan_id": plan.plan_id, "input_fingerprint": plan.input_fingerprint}
        assert (await call(client, "get_plan", plan_id=plan.plan_id))["outcome"] == "planned"
        assert (await call(client, "commit_plan", **wanted))["outcome"] == outcome
        assert (await call(client, "get_plan", plan_id=plan.plan_id))["outcome"] == outcome
        assert (await call(client, "commit_plan", **wanted))["outcome"] == outcome

    converse(site, made, scenario, Plandesk_Task="ticket-7")
    assert {one.key for one in stub_target.commits} == {plan.idempotency_key}


ODD = {
    "a number beyond any double": (b'{"entry": 1e400, "rate": 1.25}', {"entry": "1e400", "rate": 1.25}),
    "a long integer": (b"1" * 60, int("1" * 60)),
    "a longer one": (b"1" * 5000, "1" * 5000),
    "a member twice": (b'{"entry": 1, "entry": 2}', {"entry": 2}),
    "U+0000": (b'{"entry": "a\\u0000b"}', None),
    "half a pair": (b'{"\\ud800": "a\\udc00b"}', None),
    "a text": (b'"done"', "done"),
    "large": (b'"' + b"x" * 1_000_000 + b'"', "x" * 1_000_000),
}


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize(("body", "result"), ODD.values(), ids=ODD.keys())
def test_an_odd_result_is_told_as_far_as_json_can(
    site: Site, stub_target: StubTarget, body: bytes, result: Any, revision: str
) -> None:
    stub_target.script(Answer(200, body))
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="mcp"))
    with Wire(site, made.api_key, revision=revision) as wire:
        for _ in range(2):
            told = wire.call("commit_plan", plan_id=plan.plan_id, input_fingerprint=plan.input_fingerprint)
            assert told["outcome"] == "committed"
            assert result is None or told["result"] == result
        assert wire.call("get_plan", plan_id=plan.plan_id)["outcome"] == "committed"


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_a_result_too_deep_to_be_read_is_not_told_as_nothing_written(
    site: Site, stub_target: StubTarget, revision: str
) -> None:
    stub_target.script(Answer(200, b"[" * 100_000 + b"]" * 100_000))
    made = makers.make_agent(target := makers.make_target(base_url=stub_target.base_url, approvals=0))
    plan = makers.receive(made.agent, makers.feed_data(target.name, task_id="mcp"))
    with Wire(site, made.api_key, revision=revision) as wire:
        told = wire.call("commit_plan", plan_id=plan.plan_id, input_fingerprint=plan.input_fingerprint)
        assert told["outcome"] in ("committed", "unknown")


def test_it_says_which_version_it_is(site: Site, bot: makers.MadeAgent) -> None:
    async def scenario(client: Client) -> None:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("plandesk", VERSION)
        assert "expire" in str(client.instructions)

    for mode in ("auto", "legacy"):
        converse(site, bot, scenario, mode)
    assert tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_one_id_at_two_targets_is_refused_and_named_as_such(site: Site) -> None:
    first, second = makers.make_target(approvals=0), makers.make_target(approvals=0)
    made = makers.make_agent(first, second)
    for target in (first, second):
        makers.receive(made.agent, makers.feed_data(target.name, task_id="t", plan={"plan_id": "twice"}))

    async def scenario(client: Client) -> None:
        assert (await call(client, "get_plan", is_error=True, plan_id="twice"))["slug"] == "ambiguous-plan"

    converse(site, made, scenario, Plandesk_Task="t")


class _Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: float


class _SetRate(Operation):
    name, target, title, description, Inputs = "rate.set", "rates", "Set the rate", "", _Rate

    def read(self, inputs: _Rate, *, lock: bool) -> State:
        return {"rate/1": {"rate": 1.0}}

    def plan(self, inputs: _Rate, state: State) -> list[Action]:
        return [Action("update", "rate/1", "rate", 1.0, inputs.rate)]

    def apply(self, inputs: _Rate, actions: Sequence[Action]) -> None:
        raise AssertionError("nobody commits this")


def test_numbers_of_inputs_are_kept_as_they_were_written(
    database: None, monkeypatch: pytest.MonkeyPatch, rf: RequestFactory
) -> None:
    monkeypatch.setitem(operations._operations, "rate.set", _SetRate())
    made = makers.make_agent(*registry.ensure_hosted_targets())
    sent = tool_call("rate_set_dry_run", {"inputs": {"rate": 123}, "intent": None, "summary": None})
    headers = headers_for(sent, made.api_key)
    body = json.dumps(sent).replace("123", "1.10e0")
    posted = rf.post("/mcp", body, content_type="application/json", headers=headers)
    answer = call_apart(lambda: mcp_door.serve(posted))
    assert json.loads(answer.content)["result"]["structuredContent"]["outcome"] == "planned", answer.content
    assert rows()[0].inputs == '{"rate":1.10e0}'


# --- several processes ------------------------------------------------------------------------------------------------


def connections_to_two_workers(site: Site, api_key: str, revision: str) -> tuple[Wire, Wire]:
    first = Wire(site, api_key, revision=revision)
    first.ask("tools/list")
    for _ in range(64):
        second = Wire(site, api_key, revision=revision)
        second.ask("tools/list")
        if second.worker() != first.worker():
            return first, second
        second.http.close()
    raise AssertionError("every connection went to one worker")


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_what_one_worker_planned_another_commits_and_the_first_reads(
    site: Site, bot: makers.MadeAgent, revision: str
) -> None:
    assert len(workers(site)) == 2
    first, second = connections_to_two_workers(site, bot.api_key, revision)
    with first, second:
        if revision == LEGACY:
            client = {"name": "t", "version": "1"}
            first.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
        plan = first.call("address_update_dry_run", **MOVE)
        assert second.call("commit_plan", **named(plan))["outcome"] == "committed"
        assert first.call("get_plan", plan_id=plan["plan_id"])["outcome"] == "committed"
        assert first.worker() != second.worker()


@pytest.mark.slow
@Modes
def test_a_client_goes_on_though_every_worker_was_killed_meanwhile(
    bot: makers.MadeAgent, make_site: Callable[..., Site], mode: str, revision: str
) -> None:
    site = make_site()

    def is_up() -> bool:
        try:
            return site.request("GET", "/healthz").status == 200
        except urllib3.exceptions.HTTPError:  # nobody listens for a moment
            return False

    def kill_all() -> None:
        before = workers(site)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 30
        while len(set(workers(site)) - set(before)) < len(before):
            assert time.monotonic() < until
            time.sleep(0.05)
        while not is_up():
            assert time.monotonic() < until
            time.sleep(0.05)

    async def scenario(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.to_thread(kill_all)
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "committed"

    converse(site, bot, scenario, mode)
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"
