"""Tools as an MCP server: listed and called. What they act on is the caller's; no token passes through here."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

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

from plans.agent import DeskError
from plans.agent.toolbox import Tool, ToolAnswer, untold

VERSION: Final = "0.1.0"
"""The distribution's (pyproject.toml)."""

INSTRUCTIONS: Final = (
    "Every write takes two steps. A tool ending in _dry_run plans it and writes nothing; commit_plan then writes "
    "exactly that, once. Where a person has to decide, commit_plan answers waiting, and get_plan says later what was "
    "decided. While an outcome is unknown, never plan the same thing again."
)

_HINTS: Final = {
    "plan": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "commit": ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False),
    "read": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "abandon": ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
}


class Tools(Protocol):
    """The tools of one caller."""

    async def list(self) -> Sequence[Tool]:
        """All of them, as they are now. Raises DeskError where the desk does not say."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """What the tool says. Raises LookupError for a name that is no tool, DeskError where the desk does not say."""


def make_server(tools: Tools, *, ending: str) -> Server[dict[str, Any]]:
    """The server of these tools, for any of the package's transports. `ending` tells a model what ends its plans."""
    spoken = _Spoken(tools)
    return Server(
        "plandesk",
        title="Plandesk",
        version=VERSION,
        instructions=f"{INSTRUCTIONS} {ending}",
        get_tool_input_schema=_no_headers,
        on_list_tools=spoken.list,
        on_call_tool=spoken.call,
    )


class _Spoken:
    """The tools in the protocol's words."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def list(
        self, context: ServerRequestContext[dict[str, Any]], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        try:
            return ListToolsResult(tools=[_tool(one) for one in await self._tools.list()])
        except DeskError as error:
            raise MCPError(code=-32000, message=f"The desk does not say which tools there are: {error}") from None

    async def call(
        self, context: ServerRequestContext[dict[str, Any]], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            return _result(await self._tools.call(params.name, params.arguments or {}))
        except DeskError as error:
            return _result(untold(error))
        except LookupError:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no tool {params.name[:80]!r}.") from None


def _no_headers(name: str) -> None:
    """No argument of any tool is repeated in a header; without this the package lists all tools before every call."""
    return


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
