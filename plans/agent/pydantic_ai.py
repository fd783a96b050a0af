"""A task as a pydantic-ai toolset. A commit that waits for people is a deferred tool call that requires approval."""

from typing import Any

from pydantic_ai import ApprovalRequired, FunctionToolset, RunContext, Tool

from plans.agent import toolbox
from plans.agent.awaiting import AsyncTask
from plans.agent.toolbox import AsyncToolbox


async def toolset(task: AsyncTask, *, defers: bool = True) -> FunctionToolset[Any]:
    """The task's tools, of the hosted operations that this agent may use now, with strict schemas.

    With `defers`, a call of commit_plan is deferred while people still have to decide: an agent whose `output_type`
    holds `DeferredToolRequests` ends its run with it, and its metadata is the waiting answer, with `plan_id` and
    `review_url`. Approve it with `DeferredToolResults` once they may have decided: that approval decides nothing, the
    desk is asked again, and answers waiting where nobody has decided. There is one plan all along; in another process
    too, with the same task id and store. Raises DeskUnavailable or DeskError where the desk does not say which tools
    there are.
    """
    box = await AsyncToolbox.of(task)
    return FunctionToolset([_tool(box, one, defers=defers) for one in box.tools])


def _tool(box: AsyncToolbox, tool: toolbox.Tool, *, defers: bool) -> Tool[Any]:
    async def call(context: RunContext[Any], **arguments: Any) -> dict[str, Any]:
        if defers and tool.kind == "commit" and not context.tool_call_approved:
            waiting = await box.undecided(arguments.get("plan_id"), arguments.get("input_fingerprint"))
            if waiting is not None:
                raise ApprovalRequired(metadata=waiting.members)
        return (await box.call(tool.name, arguments)).members

    made = Tool.from_schema(call, name=tool.name, description=tool.description, json_schema=tool.schema, takes_ctx=True)
    made.strict = True
    return made
