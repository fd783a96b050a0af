"""pydantic-ai with a scripted model, in front of the real desk."""

import asyncio
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults

from plans.agent import AsyncTask, Desk
from plans.agent.pydantic_ai import toolset
from plans.demo.models import Customer, Invoice
from tests.loops import run_apart
from tests.plans.agent.scripted_models import for_pydantic_ai
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, real, rows

__all__ = ["bot", "real"]


async def agent(task: AsyncTask, name: str, arguments: dict[str, Any]) -> Any:
    model = for_pydantic_ai(name, arguments)
    return Agent(model, toolsets=[await toolset(task)], output_type=[str, DeferredToolRequests])


def test_a_commit_that_waits_is_deferred_and_goes_on_with_the_same_plan(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "refund_dry_run", REFUND)
            paused = await bot.run("refund it")
            [call] = paused.output.approvals
            waiting = paused.output.metadata[call.tool_call_id]
            assert waiting["outcome"] == "waiting"
            await asyncio.to_thread(approve, waiting["plan_id"])
            results = DeferredToolResults(approvals={call.tool_call_id: True})
            done = await bot.run(message_history=paused.all_messages(), deferred_tool_results=results)
            assert done.output == "committed"

    run_apart(main())
    assert [row.state for row in rows()] == ["committed"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_an_approval_in_the_framework_decides_nothing(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "refund_dry_run", REFUND)
            paused = await bot.run("refund it")
            results = DeferredToolResults(approvals={paused.output.approvals[0].tool_call_id: True})
            done = await bot.run(message_history=paused.all_messages(), deferred_tool_results=results)
            assert done.output == "waiting"

    run_apart(main())
    assert [row.abandonment.reason for row in rows()] == ["task_ended"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 0


def test_what_nobody_approves_is_committed_without_a_pause(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "address_update_dry_run", MOVE)
            assert (await bot.run("move them")).output == "committed"

    run_apart(main())
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"
