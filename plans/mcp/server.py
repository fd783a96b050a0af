"""An agent's task as an MCP server: its tools, listed and called. Tokens never leave the process."""

import asyncio
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool

from plans.agent import AsyncTask, DeskError
from plans.agent.toolbox import AsyncToolbox, Tool, ToolAnswer, untold

INSTRUCTIONS: Final = (
    "Every write takes two steps. A tool ending in _dry_run plans it and writes nothing; commit_plan then writes "
    "exactly that, once. Where a person has to decide, commit_plan answers waiting, and get_plan says later what was "
    "decided. While an outcome is unknown, never plan the same thing again. When the session closes, plans that "
    "nobody has decided are abandoned."
)

_HINTS: Final = {
    "plan": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "commit": ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False),
    "read": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "abandon": ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
}


def make_server(task: AsyncTask) -> Server[dict[str, Any]]:
    """The server of this task, for any of the package's transports. It asks the desk for its tools when first needed,
    and again whenever they are listed. Whoever opened the task ends it."""
    tools = _Tools(task)
    return Server("plandesk", instructions=INSTRUCTIONS, on_list_tools=tools.list, on_call_tool=tools.call)


class _Tools:
    def __init__(self, task: AsyncTask) -> None:
        self._task = task
        self._box: AsyncToolbox | None = None
        self._opening = asyncio.Lock()

    async def list(
        self, context: ServerRequestContext[dict[str, Any]], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        try:
            self._box = await AsyncToolbox.of(self._task)
        except DeskError as error:
            raise MCPError(code=-32000, message=f"The desk does not say which tools there are: {error}") from None
        return ListToolsResult(tools=[_tool(one) for one in self._box.tools])

    async def call(
        self, context: ServerRequestContext[dict[str, Any]], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            box = await self._open()
        except DeskError as error:
            return _result(untold(error))
        try:
            return _result(await box.call(params.name, params.arguments or {}))
        except LookupError:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no tool {params.name!r}.") from None

    async def _open(self) -> AsyncToolbox:
        async with self._opening:
            if self._box is None:
                self._box = await AsyncToolbox.of(self._task)
            return self._box


def _tool(tool: Tool) -> McpTool:
    return McpTool(
        name=tool.name, description=tool.description, input_schema=tool.schema, annotations=_HINTS[tool.kind]
    )


def _result(answer: ToolAnswer) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=answer.text)],
        structured_content=answer.members,
        is_error=answer.is_error,
    )
