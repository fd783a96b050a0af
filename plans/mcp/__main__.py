"""`python -m plans.mcp`: an MCP server over stdio for one agent. Address, key and name come from the environment."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from typing import Final

from plans.agent import AgentError, AsyncTask, Desk, FileStore, MemoryStore, Pace
from plans.mcp.stdio import talk

FAREWELL: Final = 3.0
"""Seconds to tell the desk of the end: a client kills a server 4 s after it closed its input."""

USAGE: Final = """\
Serves an agent's tools over MCP on stdin and stdout. It takes no arguments; the environment says:
  DESK          the desk's address (https, or http on loopback)
  DESK_API_KEY  the agent's API key
  DESK_AGENT    the name it was registered under
  DESK_TASK     the task id; without it, a new one for every session
  DESK_STATE    a folder that keeps plans and keys for a server that is killed; without it, memory
"""


def main() -> int:
    """Serves until the client leaves, then ends the task and says on stderr what was abandoned. 2: cannot start."""
    if sys.argv[1:]:
        sys.stderr.write(USAGE)
        return 0 if sys.argv[1:] == ["--help"] else 2
    try:
        desk, task_id = read_environment(os.environ)
    except (ValueError, AgentError) as error:
        sys.stderr.write(f"{error}\n\n{USAGE}")
        return 2
    with desk:
        asyncio.run(serve(desk.async_task(task_id)))
    return 0


def read_environment(environ: Mapping[str, str]) -> tuple[Desk, str]:
    """The desk and the task id. ValueError names what is missing, and never a value."""
    missing = [name for name in ("DESK", "DESK_API_KEY", "DESK_AGENT") if not environ.get(name)]
    if missing:
        raise ValueError(f"Missing from the environment: {', '.join(missing)}.")
    folder = environ.get("DESK_STATE")
    store = FileStore(folder) if folder else MemoryStore()
    pace = Pace(farewell=FAREWELL)
    desk = Desk(environ["DESK"], environ["DESK_API_KEY"], agent=environ["DESK_AGENT"], store=store, pace=pace)
    return desk, environ.get("DESK_TASK") or f"mcp-{uuid.uuid4().hex}"


async def serve(task: AsyncTask) -> None:
    """One session over stdio. Its end, SIGTERM or Ctrl-C ends the task: plans nobody has decided are abandoned."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with task:
        session = asyncio.create_task(talk(task))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait([session, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
    _say(task.task_id, [f"{plan_id} {state}" for plan_id, state in task.ended])
    if not session.done():
        sys.stderr.flush()
        os._exit(0)  # a thread still reads stdin, and nothing but its client can end that
    session.result()


def _say(task_id: str, ended: list[str]) -> None:
    what = f": {', '.join(ended)}" if ended else "; nothing was left of it"
    sys.stderr.write(f"Task {task_id} has ended{what}.\n")


if __name__ == "__main__":
    sys.exit(main())
