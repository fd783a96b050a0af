"""The OpenAI Agents SDK with a scripted model, in front of the real desk."""

import asyncio
import json
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, RunState, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from plans.agent import AsyncTask, Desk
from plans.agent.openai_agents import tools
from plans.demo.models import Customer, Invoice
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, real, rows

__all__ = ["bot", "real"]

QUIET = RunConfig(tracing_disabled=True)


class Scripted(Model):
    """Calls the dry run, then commits what it answered, then repeats what the commit answered."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.first = (name, arguments)

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        said = options["input"] if "input" in options else args[1]
        items = [item for item in said if isinstance(item, dict)] if isinstance(said, list) else []
        answers = [json.loads(item["output"]) for item in items if item.get("type") == "function_call_output"]
        output: Any
        if len(answers) == 2:
            text = ResponseOutputText(annotations=[], text=json.dumps(answers[-1]), type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        else:
            name, arguments = self.first
            if answers:
                name = "commit_plan"
                arguments = {key: answers[0][key] for key in ("plan_id", "input_fingerprint")}
            output = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"call_{len(answers)}", name=name, type="function_call"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


async def agent(task: AsyncTask, name: str, arguments: dict[str, Any]) -> Agent[Any]:
    return Agent("bot", model=Scripted(name, arguments), tools=await tools(task))


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
            assert json.loads(result.final_output)["outcome"] == "committed"
            assert all(tool.strict_json_schema for tool in bot.tools)  # type: ignore[union-attr]

    asyncio.run(main())
    assert [row.state for row in rows()] == ["committed"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_an_approval_in_the_framework_decides_nothing(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "refund_dry_run", REFUND)
            state = (await Runner.run(bot, "refund it", run_config=QUIET)).to_state()
            state.approve(state.get_interruptions()[0])
            result = await Runner.run(bot, state, run_config=QUIET)
            assert json.loads(result.final_output)["outcome"] == "waiting"

    asyncio.run(main())
    assert [row.abandonment.reason for row in rows()] == ["task_ended"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 0


def test_what_nobody_approves_is_committed_without_a_pause(real: Desk) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            bot = await agent(task, "address_update_dry_run", MOVE)
            result = await Runner.run(bot, "move them", run_config=QUIET)
            assert result.interruptions == []
            assert json.loads(result.final_output)["outcome"] == "committed"

    asyncio.run(main())
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"


@pytest.mark.parametrize("text", ["[]", "{", "null"])
def test_arguments_that_are_no_object_are_refused(real: Desk, text: str) -> None:
    async def main() -> None:
        async with real.async_task("t1") as task:
            made: Any = (await tools(task))[0]
            assert "Nothing was sent" in await made.on_invoke_tool(None, text)

    asyncio.run(main())
    assert rows() == []
