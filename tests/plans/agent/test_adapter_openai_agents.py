"""The OpenAI Agents SDK with a scripted model, in front of the real desk."""

import asyncio
import json
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, RunState

from plans.agent import AsyncTask, Desk
from plans.agent.openai_agents import tools
from plans.demo.models import Customer, Invoice
from tests.loops import run_apart
from tests.plans.agent.scripted_models import for_openai_agents
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, real, rows

__all__ = ["bot", "real"]

QUIET = RunConfig(tracing_disabled=True)


async def agent(task: AsyncTask, name: str, arguments: dict[str, Any]) -> Agent[Any]:
    return Agent("bot", model=for_openai_agents(name, arguments), tools=await tools(task))


def test_a_commit_that_waits_interrupts_the_run_and_goes_on_with_the_same_plan(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "refund_dry_run", REFUND)
            result = await Runner.run(bot, "refund it", run_config=QUIET)
            [asked] = result.interruptions
            plan_id = json.loads(asked.raw_item.arguments)["plan_id"]  # type: ignore[union-attr]
            await asyncio.to_thread(approve, plan_id)
            state = await RunState.from_json(bot, result.to_state().to_json())
            state.approve(state.get_interruptions()[0])
            result = await Runner.run(bot, state, run_config=QUIET)
            assert result.final_output == "committed"
            assert all(tool.strict_json_schema for tool in bot.tools)  # type: ignore[union-attr]

    run_apart(main())
    assert [row.state for row in rows()] == ["committed"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_an_approval_in_the_framework_decides_nothing(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "refund_dry_run", REFUND)
            state = (await Runner.run(bot, "refund it", run_config=QUIET)).to_state()
            state.approve(state.get_interruptions()[0])
            result = await Runner.run(bot, state, run_config=QUIET)
            assert result.final_output == "waiting"

    run_apart(main())
    assert [row.abandonment.reason for row in rows()] == ["task_ended"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 0


def test_what_nobody_approves_is_committed_without_a_pause(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "address_update_dry_run", MOVE)
            result = await Runner.run(bot, "move them", run_config=QUIET)
            assert result.interruptions == []
            assert result.final_output == "committed"

    run_apart(main())
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"


@pytest.mark.parametrize("text", ["[]", "{", "null"])
def test_arguments_that_are_no_object_are_refused(real: Desk, text: str) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            made: Any = (await tools(task))[0]
            assert "Nothing was sent" in await made.on_invoke_tool(None, text)

    run_apart(main())
    assert rows() == []
