"""A task as tools of the OpenAI Agents SDK. A commit that waits for people interrupts the run by `needs_approval`."""

import json
from typing import Any

from agents import FunctionTool, RunContextWrapper, Tool
from agents.tool_context import ToolContext

from plans.agent import toolbox
from plans.agent.awaiting import AsyncTask
from plans.agent.toolbox import AsyncToolbox


async def tools(task: AsyncTask, *, interrupts: bool = True) -> list[Tool]:
    """The task's tools, of the hosted operations that this agent may use now, with strict schemas.

    With `interrupts`, a call of commit_plan needs approval while people still have to decide the plan: the run ends
    with an interruption. Approve it in the run's state once they may have decided, and run on: that approval decides
    nothing, the desk is asked again, and answers waiting where nobody has decided. There is one plan all along; in
    another process too, with the same task id and store. Raises DeskUnavailable or DeskError where the desk does not
    say which tools there are.
    """
    box = await AsyncToolbox.of(task)
    return [_tool(box, one, interrupts=interrupts) for one in box.tools]


def _tool(box: AsyncToolbox, tool: toolbox.Tool, *, interrupts: bool) -> FunctionTool:
    async def invoke(context: ToolContext[Any], text: str) -> str:
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return "The arguments must be a JSON object. Nothing was sent."
        return (await box.call(tool.name, arguments)).text

    async def is_undecided(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return await box.undecided(arguments.get("plan_id"), arguments.get("input_fingerprint")) is not None

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.schema,
        on_invoke_tool=invoke,
        strict_json_schema=True,
        needs_approval=is_undecided if interrupts and tool.kind == "commit" else False,
    )
