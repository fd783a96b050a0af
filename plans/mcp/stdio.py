"""A task of the SDK as tools over stdin and stdout: one session is one task."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.server.stdio import stdio_server

from plans.agent import AsyncTask
from plans.agent.toolbox import AsyncToolbox, Tool, ToolAnswer
from plans.mcp.server import make_server

ENDING: Final = "When the session closes, plans that nobody has decided are abandoned."


async def talk(task: AsyncTask) -> None:
    """Serves the tools of this task until the client leaves. Whoever opened the task ends it."""
    server = make_server(TaskTools(task), ending=ENDING)
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


class TaskTools:
    """The tools of a task. The desk is asked for them when they are first needed, and whenever they are listed."""

    def __init__(self, task: AsyncTask) -> None:
        self._task = task
        self._box: AsyncToolbox | None = None
        self._opening = asyncio.Lock()

    async def list(self) -> Sequence[Tool]:
        """All of them, as the desk has them now."""
        self._box = await AsyncToolbox.of(self._task)
        return self._box.tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """As `Toolbox.call`."""
        return await (await self._open()).call(name, arguments)

    async def _open(self) -> AsyncToolbox:
        async with self._opening:
            if self._box is None:
                self._box = await AsyncToolbox.of(self._task)
            return self._box
