"""One look a moment at the database for everybody who waits in this process: ends of plans, and live hints."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from plans import live, waiting
from reviewer import presence

logger = logging.getLogger(__name__)

HINTS_EVERY: Final = 4
"""Every fourth look is for hints too: one a second is all that a page gets."""

HINT_PAUSE: Final = 1.0  # seconds


class Listener:
    """A page that wants hints: `plans` for the inbox, `plan:<public path>` for each plan it shows."""

    def __init__(self, plans: Mapping[int, str]) -> None:
        self.plans = plans
        self.is_closed = False
        # What happened between the page and its stream is not known: the page looks once.
        self._hints = {"plans", *(f"plan:{path}" for path in plans.values())}
        self._taken_at = 0.0
        self._news = asyncio.Event()
        self._news.set()

    def tell(self, hint: str) -> None:
        """A hint for this page. The same one twice before it is taken is one."""
        self._hints.add(hint)
        self._news.set()

    def close(self) -> None:
        """There is nobody to tell any more."""
        self.is_closed = True
        self._news.set()

    async def take(self, until: float) -> list[str]:
        """The hints since the last time, a second after those at the earliest; none where none came until then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                await self._news.wait()
        if (pause := self._taken_at + HINT_PAUSE - time.monotonic()) > 0 and not self.is_closed:
            await asyncio.sleep(pause)
        self._news.clear()
        self._taken_at = time.monotonic()
        taken, self._hints = sorted(self._hints), set()
        return taken


class Poller:
    """Asks while somebody waits, four times a second, in a thread and on a database connection of its own.

    A database that is gone is asked again: who waits goes on waiting, until their time is up.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "poller")
        self._ends: dict[int, set[asyncio.Event]] = {}
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._inbox: str | None = None
        self._plans: dict[int, str] = {}
        self.is_stopping = False

    async def wait_for_end(self, plan_pk: int, seconds: float, gone: "asyncio.Task[None]") -> None:
        """Returns when the plan has ended, the seconds have passed, the client is gone, or the server stops."""
        if self.is_stopping or gone.done():
            return
        news = asyncio.Event()
        gone.add_done_callback(lambda _: news.set())
        self._ends.setdefault(plan_pk, set()).add(news)
        self._run()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()
        finally:
            self._ends[plan_pk].discard(news)
            if not self._ends[plan_pk]:
                del self._ends[plan_pk]

    @contextlib.contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Tell a listener what changes, for the length of the block."""
        self._listeners.add(listener)
        if self.is_stopping:
            listener.close()
        self._run()
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def stop(self) -> None:
        """Wake everybody who waits, so that the server can stop."""
        self.is_stopping = True
        for news in self._ends.values():
            for one in news:
                one.set()
        for listener in self._listeners:
            listener.close()

    def close(self) -> None:
        """End the thread and its connection."""
        self._pool.submit(connection.close)
        self._pool.shutdown()

    def _run(self) -> None:
        if self._task is None or self._task.done():
            self._inbox, self._plans = None, {}
            self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        look = 0
        while (self._ends or self._listeners) and not self.is_stopping:
            wants_hints = bool(self._listeners) and look % HINTS_EVERY == 0
            watched = sorted({pk for listener in self._listeners for pk in listener.plans}) if wants_hints else []
            ended, inbox, plans = await loop.run_in_executor(self._pool, _look, list(self._ends), wants_hints, watched)
            for pk in ended:
                for news in self._ends.get(pk, ()):
                    news.set()
            if inbox is not None:
                self._tell(inbox, plans)
            look += 1
            await asyncio.sleep(waiting.LOOK_EVERY)

    def _tell(self, inbox: str, plans: dict[int, str]) -> None:
        # What is looked at for the first time counts as changed: a page may have looked just before it changed.
        is_new = inbox != self._inbox
        changed = {pk for pk, value in plans.items() if self._plans.get(pk) != value}
        self._inbox, self._plans = inbox, plans
        for listener in self._listeners:
            if is_new:
                listener.tell("plans")
            for pk in changed & listener.plans.keys():
                listener.tell(f"plan:{listener.plans[pk]}")


def _look(ends: list[int], wants_hints: bool, watched: list[int]) -> tuple[list[int], str | None, dict[int, str]]:
    """In the thread. What could not be read has not happened yet."""
    close_old_connections()
    try:
        ended = waiting.find_ended(ends) if ends else []
        if not wants_hints:
            return ended, None, {}
        looking = presence.looking_now()
        plans = {pk: f"{value} {looking.get(pk, ())}" for pk, value in live.plans_now(watched).items()}
        return ended, f"{live.inbox_now()} {looking}", plans
    except (DatabaseError, InterfaceError) as error:
        logger.warning("nobody who waits can be told anything: %s", type(error).__name__)
        connection.close()
        return [], None, {}
