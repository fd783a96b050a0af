"""The MCP server over stdio, driven by the package's own client, in front of the real desk."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from plans.demo.models import Customer, Invoice
from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.loops import run_apart
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, rows

__all__ = ["bot"]

pytestmark = pytest.mark.slow  # every test starts a process

Modes = pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])


class Session:
    """Runs one scenario through one server process, and keeps what it said on stderr."""

    def __init__(self, site: Site, bot: makers.MadeAgent, folder: Path) -> None:
        self._said = folder / "stderr"
        self.environ = {"DESK": site.url, "DESK_API_KEY": bot.api_key, "DESK_AGENT": "bot", "DESK_TASK": "ticket-1"}
        self.sent = folder / "wire"

    def run(self, scenario: Callable[[Client], Awaitable[Any]], mode: str = "auto") -> Any:
        async def main(errors: TextIO) -> Any:
            environ = {**self.environ, "PYTHONPATH": str(PROJECT)}
            server = StdioServerParameters(command=sys.executable, args=["-m", "plans.mcp"], env=environ, cwd=PROJECT)
            async with Client(stdio_client(server, errors), mode=mode, read_timeout_seconds=30) as client:
                return await scenario(client)

        with self._said.open("w") as errors:
            return run_apart(main(errors))

    @property
    def said(self) -> str:
        return self._said.read_text()


@pytest.fixture
def session(site: Site, bot: makers.MadeAgent, tmp_path: Path) -> Session:
    return Session(site, bot, tmp_path)


async def call(client: Client, name: str, *, is_error: bool = False, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(name, arguments)
    assert answer.is_error is is_error, answer
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    assert '"plan_token":' not in answer.content[0].text  # type: ignore[union-attr]
    members: dict[str, Any] = answer.structured_content
    return members


def named(plan: dict[str, Any]) -> dict[str, str]:
    return {name: plan[name] for name in ("plan_id", "input_fingerprint")}


@Modes
def test_an_operation_is_planned_and_committed_once_under_both_revisions(
    session: Session, mode: str, revision: str
) -> None:
    async def scenario(client: Client) -> None:
        assert client.protocol_version == revision
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {
            "address_update_dry_run", "refund_dry_run", "commit_plan", "get_plan", "abandon_plan"
        }  # fmt: skip
        assert set(tools["commit_plan"].input_schema["properties"]) == {"plan_id", "input_fingerprint"}
        plan = await call(client, "address_update_dry_run", **MOVE)
        assert (plan["outcome"], plan["needs_approval"]) == ("planned", False)
        assert plan["actions"][0]["to"] == "2 Mill Lane"
        first = await call(client, "commit_plan", **named(plan))
        again = await call(client, "commit_plan", **named(plan))
        assert (first["outcome"], first["replayed"]) == ("committed", False)
        assert (again["outcome"], again["replayed"], again["result"]) == ("committed", True, first["result"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "committed"

    session.run(scenario, mode)
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"
    assert [row.state for row in rows()] == ["committed"]
    assert session.said == "Task ticket-1 has ended; nothing was left of it.\n"


def test_waiting_is_a_result_and_the_decision_is_read_later(session: Session) -> None:
    async def scenario(client: Client) -> None:
        plan = await call(client, "refund_dry_run", **REFUND)
        waiting = await call(client, "commit_plan", **named(plan))
        assert (waiting["outcome"], waiting["review_url"]) == ("waiting", plan["review_url"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "waiting"
        await asyncio.to_thread(approve, plan["plan_id"])
        assert (await call(client, "get_plan", plan_id=plan["plan_id"]))["outcome"] == "committed"

    session.run(scenario)
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_what_was_approved_and_never_asked_for_again_is_said_to_be_written(session: Session) -> None:
    async def scenario(client: Client) -> str:
        plan = await call(client, "refund_dry_run", **REFUND)
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "waiting"
        await asyncio.to_thread(approve, plan["plan_id"])
        return str(plan["plan_id"])

    plan_id = session.run(scenario)
    assert session.said == f"Task ticket-1 has ended: {plan_id} committed.\n"


def test_a_conflict_is_a_result_that_says_what_changed(session: Session) -> None:
    async def scenario(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.to_thread(Customer.objects.filter(pk="77").update, address="somewhere else")
        conflict = await call(client, "commit_plan", **named(plan))
        assert conflict["outcome"] == "conflict"
        assert conflict["changed"][0]["current"] == "somewhere else"

    session.run(scenario)
    assert Customer.objects.get(pk="77").address == "somewhere else"


def test_an_expiry_is_a_result(bot: makers.MadeAgent, make_site: Callable[..., Site], tmp_path: Path) -> None:
    async def scenario(client: Client) -> None:
        plan = await call(client, "address_update_dry_run", **MOVE)
        await asyncio.sleep(1.2)
        assert (await call(client, "commit_plan", **named(plan)))["outcome"] == "expired"

    Session(make_site(PLAN_LIFETIME="1"), bot, tmp_path).run(scenario)


def test_unknown_arguments_and_other_fingerprints_are_refused_and_nothing_is_written(session: Session) -> None:
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
        assert (await call(client, "commit_plan", is_error=True, plan_id="p", input_fingerprint="f"))[
            "slug"
        ] == "never-planned"
        assert "input_fingerprint" in (await call(client, "commit_plan", is_error=True, plan_id="p"))["detail"]
        said = await call(client, "abandon_plan", is_error=True, plan_id=plan["plan_id"], reason="bored")
        assert "intent_changed" in said["detail"]
        with pytest.raises(MCPError):
            await client.call_tool("drop_everything", {})

    session.run(scenario)
    assert [row.state for row in rows()] == ["abandoned"]
    assert Customer.objects.get(pk="77").address != "2 Mill Lane"


def test_closing_the_session_ends_the_task_and_says_what_was_abandoned(session: Session) -> None:
    async def scenario(client: Client) -> str:
        withdrawn = await call(client, "address_update_dry_run", **MOVE)
        gone = await call(client, "abandon_plan", plan_id=withdrawn["plan_id"], reason="intent_changed")
        assert (gone["outcome"], gone["reason"]) == ("abandoned", "intent_changed")
        plan_id: str = (await call(client, "refund_dry_run", **REFUND))["plan_id"]
        return plan_id

    plan_id = session.run(scenario)
    assert session.said == f"Task ticket-1 has ended: {plan_id} abandoned.\n"
    assert [row.abandonment.reason for row in rows()] == ["intent_changed", "task_ended"]


class Wire:
    """A server process that is spoken to line by line, so that it can be ended in other ways than by its client."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plans.mcp"], cwd=PROJECT, text=True,
            env={**environ, "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Ignored where tests run in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        self.ask("initialize", hello)
        self.tell({"method": "notifications/initialized"})

    def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdout is not None
        self.tell({"id": 1, "method": method, "params": params})
        result: dict[str, Any] = json.loads(self.process.stdout.readline())["result"]
        return result

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        members: dict[str, Any] = self.ask("tools/call", {"name": name, "arguments": arguments})["structuredContent"]
        return members

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        with self.process as process:
            status = process.wait(10)
            assert process.stderr is not None
            return status, process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_ends_its_task(session: Session, number: int) -> None:
    wire = Wire(session.environ)
    plan_id = wire.call("refund_dry_run", REFUND)["plan_id"]
    assert wire.end(number) == (0, f"Task ticket-1 has ended: {plan_id} abandoned.\n")
    assert rows()[0].abandonment.reason == "task_ended"


def test_a_server_that_was_killed_finds_its_plans_when_it_is_started_again(session: Session, tmp_path: Path) -> None:
    environ = {**session.environ, "DESK_STATE": str(tmp_path / "state")}
    wire = Wire(environ)
    move = wire.call("address_update_dry_run", MOVE)
    refund = wire.call("refund_dry_run", REFUND)
    assert wire.end(signal.SIGKILL) == (-signal.SIGKILL, "")
    assert [row.state for row in rows()] == ["pending", "pending"]
    wire = Wire(environ)
    assert wire.call("commit_plan", named(move))["outcome"] == "committed"
    assert wire.call("refund_dry_run", REFUND)["plan_id"] == refund["plan_id"]
    assert wire.end(signal.SIGTERM) == (0, f"Task ticket-1 has ended: {refund['plan_id']} abandoned.\n")
    assert [row.state for row in rows()] == ["committed", "abandoned"]
    assert not any(b"pt_" in path.read_bytes() for path in (tmp_path / "state").iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"DESK": ""}, "Missing from the environment: DESK.\n"),
        ({"DESK_AGENT": "two words"}, "An agent's name is"),
        ({"DESK": "http://desk.example"}, "must be https"),
    ],
)
def test_a_server_that_lacks_something_says_so_without_the_key(
    session: Session, changes: dict[str, str], said: str
) -> None:
    environ = {**session.environ, "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), **changes}
    done = subprocess.run(
        [sys.executable, "-m", "plans.mcp"], cwd=PROJECT, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert session.environ["DESK_API_KEY"] not in done.stderr
