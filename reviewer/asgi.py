"""The site as an ASGI application: Django in threads, and on the event loop only what waits."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any, Final

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "reviewer.settings")

from reviewer.wsgi import application as django  # isort: skip  # loads the apps, which everything below needs

from django.conf import settings

from plans.waiting import HOLD, Hold, end_wait
from reviewer.bridge import Answer, Body, Bridge, Receive, Scope, Send, cancel, make_environ, read_body, until_gone
from reviewer.poller import Listener, Poller

STREAMS: Final = 8
"""Long downloads that have a thread beside those at work."""

CHECK_EVERY: Final = 20.0
"""Seconds between two looks at who listens: a stream outlives its session by no more than this and a look."""

CLOSE_WITHIN: Final = 35.0
RETRY: Final = b"retry: 3000\n\n"


class Site:
    """The application of one process. Made on its event loop."""

    def __init__(self) -> None:
        self._bridge = Bridge(django, threads=settings.WEB_THREADS, streams=STREAMS)
        self._poller = Poller()
        self._requests: set[asyncio.Task[Any]] = set()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, which `close` waits for."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        try:
            await self._answer(scope, receive, send)
        finally:
            self._requests.discard(task)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A view that wants its answer held says so in the environment's `Hold`, and holds no thread."""
        body = await read_body(scope, receive)
        if body is None:
            return
        environ = make_environ(scope, body)
        hold = environ[HOLD] = Hold()
        answer = await self._bridge.ask(environ, receive, send)
        del environ, body  # whoever waits keeps no more than it needs
        if answer is None:
            return
        if hold.plan_pk is not None:
            await self._wait(scope, hold, receive, send)
        elif hold.listens:
            await self._listen(scope, hold, answer, receive, send)
        else:
            await answer.send(send)

    async def _wait(self, scope: Scope, hold: Hold, receive: Receive, send: Send) -> None:
        """Look again when the plan has ended or the time is up, and send what is there then."""
        until = time.monotonic() + hold.seconds
        gone = asyncio.create_task(until_gone(receive))
        try:
            while True:
                assert hold.plan_pk is not None
                await self._poller.wait_for_end(hold.plan_pk, until - time.monotonic(), gone)
                if gone.done():
                    return
                hold.plan_pk = None
                answer = await self._look(scope, hold, receive, send)
                is_over = until <= time.monotonic() or self._poller.is_stopping
                if answer is not None and (hold.plan_pk is None or is_over):
                    await answer.send(send)
                    return
        finally:
            await cancel(gone)
            if hold.wait_pk is not None:
                await self._bridge.run(end_wait, hold.wait_pk)

    async def _listen(self, scope: Scope, hold: Hold, answer: Answer, receive: Receive, send: Send) -> None:
        """Hints of what changed, until the client leaves, the session ends, or the server stops."""
        listener = Listener(hold.plans)
        gone = asyncio.create_task(until_gone(receive))
        gone.add_done_callback(lambda _: listener.close())
        headers = [(name, value) for name, value in answer.headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        with self._poller.listening(listener):
            await self._tell(listener, scope, receive, send)
        await cancel(gone)
        if hold.left is not None:
            await self._bridge.run(hold.left)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, listener: Listener, scope: Scope, receive: Receive, send: Send) -> None:
        """Hints as they come, and every few seconds a look whether the session still lets in what it let in before."""
        check_at = time.monotonic() + CHECK_EVERY
        while True:
            text = "".join(f"event: {hint}\ndata: {hint}\n\n" for hint in await listener.take(check_at))
            if listener.is_closed:
                return
            if time.monotonic() >= check_at:
                hold = Hold()
                answer = await self._look(scope, hold, receive, send)
                if not hold.listens and (answer is None or answer.status < HTTPStatus.INTERNAL_SERVER_ERROR):
                    return  # a desk that cannot tell who it is has no news either, and asks again
                text += ": still here\n\n"
                check_at = time.monotonic() + CHECK_EVERY
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _look(self, scope: Scope, hold: Hold, receive: Receive, send: Send) -> Answer | None:
        """The same request once more: who asks is checked again too. It has no body."""
        environ = make_environ(scope, Body(b""))
        environ[HOLD] = hold
        return await self._bridge.ask(environ, receive, send)

    def stop(self) -> None:
        """Let go whoever waits, so that the server may stop."""
        self._poller.stop()

    async def close(self) -> None:
        """Finish what is at work, also for those who have left."""
        if self._requests:
            await asyncio.wait(self._requests, timeout=CLOSE_WITHIN)
        await asyncio.to_thread(self._bridge.close)
        self._poller.close()


class Application:
    """ASGI's entrance: starts the site with the server's event loop, and stops it before the server waits for it."""

    def __init__(self) -> None:
        self._site: Site | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._started().serve(scope, receive, send)

    def _started(self) -> Site:
        if self._site is None:
            self._site = Site()
        return self._site

    async def _live(self, receive: Receive, send: Send) -> None:
        site = self._started()
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                _before_the_server(asyncio.get_running_loop(), site.stop)
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                site.stop()
                await site.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _before_the_server(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Hear of SIGTERM and SIGINT too. The server says `lifespan.shutdown` only when all is answered, which what waits
    would keep it from.

    The event loop learns of a signal by its wake-up descriptor, whichever handler Python has for it.
    """

    def heard(number: int, frame: FrameType | None) -> Any:
        loop.call_soon_threadsafe(stop)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, heard)
        signal.siginterrupt(number, False)


application = Application()
