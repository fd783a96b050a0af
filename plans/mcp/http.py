"""One HTTP request to an MCP server, answered whole in the calling thread, with nothing kept for the next one.

The package speaks the protocol on an event loop of this request's own. What the tools do runs between that loop's
turns, as plain code of the calling thread: it may block, it has the thread's own database connection, and no leaving
client can interrupt it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from plans.agent import AgentError
from plans.agent.toolbox import Tool, ToolAnswer
from plans.mcp.server import make_server

T = TypeVar("T")
Message = dict[str, Any]

ENDING: Final = "Plans that nobody commits expire by themselves; abandon those that are no longer wanted."

_TOLD: Final = (AgentError, LookupError)
"""What tools say in their own words. Anything else is a fault of ours, and the server's to answer."""


class PlainTools(Protocol):
    """The tools of one caller, as plain code."""

    def list(self) -> Sequence[Tool]:
        """As `Tools.list`."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """As `Tools.call`."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A POST whose caller, address, type and size have been checked. `headers` are those that the protocol reads."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; `headers` in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def answer(posted: Posted, tools: PlainTools) -> Reply:
    """The answer, under the revision that the request names. Runs the tools here, and raises what they raise."""
    exchange = _Exchange(posted, tools)
    with asyncio.Runner() as runner:
        while (errand := runner.run(exchange.turn())) is not None:
            errand.run()
    return exchange.reply()


class _Errand:
    """A piece of plain code that the protocol waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def run(self) -> None:
        """With the loop at rest."""
        try:
            result = self._work()
        except _TOLD as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(result)


class _Exchange:
    """The protocol's side: one request in, one answer out, errands between."""

    def __init__(self, posted: Posted, tools: PlainTools) -> None:
        self._posted = posted
        self._tools = tools
        self._errands: asyncio.Queue[_Errand] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None
        self._sent: list[Message] = []
        self._is_read = False

    async def turn(self) -> _Errand | None:
        """Speaks until there is an errand to run; None once all is said."""
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        asked = asyncio.create_task(self._errands.get())
        await asyncio.wait({asked, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        asked.cancel()
        self._serving.result()
        return None

    def reply(self) -> Reply:
        """What was said."""
        head = self._sent[0]
        body = b"".join(message.get("body", b"") for message in self._sent[1:])
        return Reply(int(head["status"]), _decoded(head.get("headers", ())), body)

    async def _serve(self) -> None:
        server = make_server(self, ending=ENDING)
        manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._posted.path,
            "query_string": b"",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in self._posted.headers.items()
            ],
        }
        async with manager.run():
            await manager.handle_request(scope, self._receive, self._send)

    async def list(self) -> Sequence[Tool]:
        return await self._ask(self._tools.list)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        return await self._ask(lambda: self._tools.call(name, arguments))

    async def _ask(self, work: Callable[[], T]) -> T:
        errand = _Errand(work)
        self._errands.put_nowait(errand)
        found: T = await errand.done
        return found

    async def _receive(self) -> Message:
        if self._is_read:
            await asyncio.Event().wait()  # whether the client is still there is nobody's business here
        self._is_read = True
        return {"type": "http.request", "body": self._posted.body, "more_body": False}

    async def _send(self, message: Any) -> None:
        self._sent.append(dict(message))


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
