"""From the event loop to Django in a thread: one ASGI request as a WSGI call, its answer whole or as a stream."""

import asyncio
import contextlib
import io
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from plans.strict_json import MAX_BYTES

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Environ = dict[str, Any]
Wsgi = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

WHOLE: Final = 256 * 1024
"""Answers up to so many bytes leave their thread at once, however slowly they are read; longer ones are streamed."""

PIECE: Final = 64 * 1024
MAX_THROWN_AWAY: Final = 8 * MAX_BYTES
"""Of a body that is too much. A larger one is answered while it is still being sent, and its connection closed."""
STALLED_AFTER: Final = 60.0  # seconds in which a reader takes nothing of a stream
KEPT_OPEN: Final = 600.0  # seconds for which a stream that failed is left unfinished


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def send(self, send: Send) -> None:
        """Hand it to the server."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Body(io.BytesIO):
    """A request's body as it arrived. Reading past the end of one that did not arrive whole fails, as it would live."""

    def __init__(self, content: bytes, *, is_whole: bool = True) -> None:
        super().__init__(content)
        self.length = len(content)
        self.is_whole = is_whole

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes; raises `OSError` where more should come and never will."""
        found = super().read(size)
        if not self.is_whole and (size is None or size < 0 or (size > 0 and not found)):
            raise OSError("the body did not arrive whole")
        return found

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line; raises like `read`."""
        found = super().readline(size)
        if not self.is_whole and not found:
            raise OSError("the body did not arrive whole")
        return found


class File:
    """`wsgi.file_wrapper`: a file in pieces as large as the bridge moves them."""

    def __init__(self, file: Any, block_size: int = PIECE) -> None:
        self.file = file

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.file.read(PIECE):
            yield piece

    def close(self) -> None:
        """Close the file."""
        if hasattr(self.file, "close"):
            self.file.close()


async def read_body(scope: Scope, receive: Receive) -> Body | None:
    """The request's body, waited for without a thread. None where the client left before it was whole.

    At most 1 MiB and a byte is kept, which is enough for every door to see that it is too much. A body that takes
    longer than BODY_WITHIN is one that did not arrive whole.
    """
    length, is_chunked, is_held_back = None, False, False
    for name, value in scope["headers"]:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            is_chunked = True
        elif name == b"expect":
            is_held_back = True
    if length is None and not is_chunked:
        return Body(b"")
    if length is not None and (not length.isdigit() or int(length) > MAX_BYTES):
        if length.isdigit() and int(length) <= MAX_THROWN_AWAY and not is_held_back:
            await _throw_away(receive)
        return Body(b"", is_whole=False)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.BODY_WITHIN.total_seconds()):
            while size <= MAX_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if not message.get("more_body"):
                    return Body(b"".join(pieces))
    except TimeoutError:
        pass
    else:
        await _throw_away(receive)
    return Body(b"".join(pieces), is_whole=False)


async def _throw_away(receive: Receive) -> None:
    """Take the rest of what is too much: who is still sending when the connection is closed never reads the answer."""
    left = MAX_THROWN_AWAY
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.BODY_WITHIN.total_seconds()):
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))


def make_environ(scope: Scope, body: Body) -> Environ:
    """The environment of a WSGI call (PEP 3333). Headers with an underscore are left out: they could pass for others.

    A chunked body has the length that arrived; one that is not whole has at least a byte more.
    """
    path = scope.get("raw_path") or scope["path"].encode()
    if b"%" in path:
        path = urllib.parse.unquote_to_bytes(path)
    host, port = scope.get("server") or ("localhost", "80")
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": scope["client"][0] if scope.get("client") else "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
        "wsgi.errors": _errors,
        "wsgi.file_wrapper": File,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }
    for raw_name, raw_value in scope["headers"]:
        if b"_" in raw_name:
            continue
        name, value = raw_name.decode("latin-1").upper().replace("-", "_"), raw_value.decode("latin-1")
        key = name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
        if key in environ:
            value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
        environ[key] = value
    if "HTTP_TRANSFER_ENCODING" in environ:
        environ["CONTENT_LENGTH"] = str(body.length + (0 if body.is_whole else 1))
    return environ


class _Errors(io.TextIOBase):
    """`wsgi.errors`: lines of the log."""

    def write(self, text: str) -> int:
        if text.strip():
            logger.error("%s", text.strip())
        return len(text)


_errors = _Errors()


class Bridge:
    """A WSGI application in a bounded number of threads.

    `threads` requests at most are at work. An answer that has grown into a stream is not at work any more, it waits for
    its reader: up to `streams` of those have threads of their own.
    """

    def __init__(self, application: Wsgi, *, threads: int, streams: int) -> None:
        self._application = application
        self._pool = ThreadPoolExecutor(threads + streams, "web")
        self._work = asyncio.Semaphore(threads)
        self._streams = asyncio.Semaphore(streams)

    async def ask(self, environ: Environ, receive: Receive, send: Send) -> Answer | None:
        """The whole answer, or None where it was so long that it was sent already.

        The thread runs to its end whatever becomes of the client: a claimed decision is carried out.
        """
        loop = asyncio.get_running_loop()
        stream = _Stream(loop, receive, send, self._work, self._streams)
        await self._work.acquire()
        try:
            answer = await loop.run_in_executor(self._pool, self._serve, environ, stream)
        finally:
            stream.slots.release()
        await stream.finish()
        return answer

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A plain function in one of the threads."""
        async with self._work:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        """Wait for what is at work."""
        self._pool.shutdown()

    def _serve(self, environ: Environ, stream: "_Stream") -> Answer | None:
        heads: list[tuple[int, list[tuple[bytes, bytes]]]] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            heads[:] = [(int(status[:3]), encoded)]

        result = self._application(environ, start_response)
        try:
            if environ["REQUEST_METHOD"] == "HEAD":
                return Answer(*heads[0], b"")
            pieces: list[bytes] = []
            size = 0
            for piece in result:
                pieces.append(piece)
                size += len(piece)
                if size >= (PIECE if stream.has_started else WHOLE):
                    stream.push(heads[0], b"".join(pieces))
                    pieces, size = [], 0
            if not stream.has_started:
                return Answer(*heads[0], b"".join(pieces))
            stream.push(heads[0], b"".join(pieces))
            stream.is_whole = True
        except _Left:
            pass
        except Exception:
            if not stream.has_started:
                raise
            logger.exception("a stream broke off: %s", environ["PATH_INFO"])
        finally:
            if hasattr(result, "close"):
                result.close()
        return None


class _Left(Exception):
    """The reader of a stream has gone, or takes nothing any more."""


class _Stream:
    """A long answer on its way from its thread to a reader, piece by piece: the thread goes on when one is taken."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receive: Receive,
        send: Send,
        work: asyncio.Semaphore,
        streams: asyncio.Semaphore,
    ) -> None:
        self.has_started = self.is_whole = False
        self.slots = work
        self._loop, self._receive, self._send, self._streams = loop, receive, send, streams
        self._gone: asyncio.Task[None] | None = None

    def push(self, head: tuple[int, list[tuple[bytes, bytes]]], body: bytes) -> None:
        """In the thread: returns when the server has taken the piece. Raises `_Left` where nobody reads."""
        asyncio.run_coroutine_threadsafe(self._push(head, body), self._loop).result(STALLED_AFTER + 10)

    async def _push(self, head: tuple[int, list[tuple[bytes, bytes]]], body: bytes) -> None:
        messages: list[Message] = [{"type": "http.response.body", "body": body, "more_body": True}]
        if not self.has_started:
            await self._start()
            messages.insert(0, {"type": "http.response.start", "status": head[0], "headers": head[1]})
        assert self._gone is not None
        if self._gone.done():
            raise _Left
        sending = asyncio.create_task(self._send_all(messages))
        await asyncio.wait({sending, self._gone}, timeout=STALLED_AFTER, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            sending.cancel()
            raise _Left

    async def _start(self) -> None:
        self.has_started = True
        if not self._streams.locked():
            await self._streams.acquire()
            self.slots.release()
            self.slots = self._streams
        self._gone = asyncio.create_task(until_gone(self._receive))

    async def _send_all(self, messages: list[Message]) -> None:
        for message in messages:
            await self._send(message)

    async def finish(self) -> None:
        """Say that it was all. A stream that broke off is left open: it must not pass for a whole one."""
        if self._gone is None:
            return
        if self.is_whole:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await asyncio.wait({self._gone}, timeout=KEPT_OPEN)
        await cancel(self._gone)


async def until_gone(receive: Receive) -> None:
    """Returns when the client has left. The body must have been read, or there must be none."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task and see it end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
