"""A task as LangChain tools. A commit that waits for people interrupts its LangGraph graph; a resume looks again."""

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from plans.agent import toolbox
from plans.agent.task import Task
from plans.agent.toolbox import Toolbox


def tools(task: Task, *, interrupts: bool = True) -> list[BaseTool]:
    """The task's tools, of the hosted operations that this agent may use now, for a model and a `ToolNode`.

    With `interrupts`, commit_plan interrupts the graph (which then needs a checkpointer) while people still have to
    decide: the interrupt's value is the waiting answer, with `plan_id` and `review_url`. Resume with any value once
    they may have decided: the value decides nothing, the desk is asked again. A node that runs anew finds the plan
    that it made before, so there is one plan however often it is resumed; in another process too, with the same task
    id and store. Raises DeskUnavailable or DeskError where the desk does not say which tools there are.
    """
    box = Toolbox.of(task)
    return [_tool(box, one, interrupts=interrupts) for one in box.tools]


def _tool(box: Toolbox, tool: toolbox.Tool, *, interrupts: bool) -> BaseTool:
    def call(**arguments: Any) -> str:
        if interrupts and tool.kind == "commit":
            while (waiting := box.undecided(arguments.get("plan_id"), arguments.get("input_fingerprint"))) is not None:
                interrupt(waiting.members)
        return box.call(tool.name, arguments).text

    return StructuredTool.from_function(
        call, name=tool.name, description=tool.description, args_schema=tool.schema, infer_schema=False
    )
