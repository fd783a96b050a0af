"""The same task, awaited: every call runs in a thread of its own, and a cancelled one stops there too."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

from plans.agent import stopping
from plans.agent.comparing import Replanned
from plans.agent.feeding import TargetAnswer, hide_answer
from plans.agent.outcomes import Outcome
from plans.agent.plan import Plan
from plans.agent.stopping import Stop
from plans.agent.task import AbandonReason, EndedPlan, Evidence, Known, Task, note_read

T = TypeVar("T")

MOST_THREADS: Final = 1_000
"""Calls that run at once in one process; made on demand, and each waits for the network nearly all of its time."""

LINGER: Final = 2.0
"""Seconds that a cancelled call may take to stop. One that still looks up a name or connects goes on alone, and sends
nothing."""

_pools: dict[int, ThreadPoolExecutor] = {}  # by process: a forked child has none of its parent's threads


class AsyncTask:
    """`Task` for asyncio: the same calls, outcomes, guarantees and store, each awaited. Made by `Desk.async_task`.

    A cancelled call stops at once: nothing more is sent, a request under way is cut off, and what it may have done is
    on disk, so that the same call, made again, finishes it with the same key. Leaving `async with` by return,
    exception or cancellation ends the task and tells the desk, which a second cancellation does not cut short (it
    takes `Pace.farewell` at most). Store and network never hold up the event loop.
    """

    def __init__(self, open_task: Callable[[list[Evidence]], Task], task_id: str) -> None:
        self.task_id = task_id
        self._open = open_task
        self._opening = threading.Lock()
        self._opened: Task | None = None
        self._reads: list[Evidence] = []
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"AsyncTask({self.task_id!r})"

    @property
    def ended(self) -> list[EndedPlan]:
        """What became, at the end, of the plans that were in flight."""
        return self._opened.ended if self._opened is not None else []

    async def dry_run(
        self, operation: str, inputs: Mapping[str, object], *, intent: str | None = None,
        replaces: Plan | str | None = None, summary: str | None = None,
        evidence: Iterable[Evidence] | None = None,
    ) -> Plan:  # fmt: skip
        """As `Task.dry_run`."""
        return await self._call(
            lambda task: task.dry_run(
                operation, inputs, intent=intent, replaces=replaces, summary=summary, evidence=evidence
            )
        )

    async def submit(
        self, target: str, operation: str, inputs: Mapping[str, object], answer: TargetAnswer, *,
        intent: str | None = None, replaces: Plan | str | None = None, summary: str | None = None,
        evidence: Iterable[Evidence] | None = None,
    ) -> Plan:  # fmt: skip
        """As `Task.submit`."""
        try:
            hidden = hide_answer(answer)
        finally:
            del answer  # its token stands in it: no traceback shows it
        return await self._call(
            lambda task: task._submit(target, operation, inputs, hidden, intent, replaces, summary, evidence)
        )

    async def replan(
        self, plan: Plan, inputs: Mapping[str, object] | None = None, *,
        answer: TargetAnswer | None = None, summary: str | None = None, evidence: Iterable[Evidence] | None = None,
    ) -> Replanned:  # fmt: skip
        """As `Task.replan`."""
        try:
            hidden = hide_answer(answer) if answer is not None else None
        finally:
            del answer  # its token stands in it: no traceback shows it
        return await self._call(lambda task: task._replan(plan, inputs, hidden, summary, evidence))

    def read(self, tool: str, note: str | None = None, *, url: str | None = None) -> Evidence:
        """As `Task.read`; asks nobody, so there is nothing to await."""
        return note_read(self._reads, tool, note, url)

    async def commit(self, plan: Plan) -> Outcome:
        """As `Task.commit`."""
        return await self._call(lambda task: task.commit(plan))

    async def wait(self, plan: Plan, timeout: float | None = None) -> Outcome:
        """As `Task.wait`."""
        return await self._call(lambda task: task.wait(plan, timeout))

    async def abandon(self, plan: Plan, reason: AbandonReason = "intent_changed") -> Outcome:
        """As `Task.abandon`."""
        return await self._call(lambda task: task.abandon(plan, reason))

    async def write(self, target: str, targets: Iterable[str]) -> list[str]:
        """As `Task.write`."""
        return await self._call(lambda task: task.write(target, targets))

    async def plans(self) -> list[Known]:
        """As `Task.plans`."""
        return await self._call(Task.plans)

    async def find(self, plan_id: str) -> Plan | None:
        """As `Task.find`."""
        return await self._call(lambda task: task.find(plan_id))

    async def end(self) -> list[EndedPlan]:
        """As `Task.end`; a cancellation waits until it is done."""
        return await _run_to_its_end(lambda: Task.end(self._task()))

    async def __aenter__(self) -> Self:
        await self._call(lambda _: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:
            await _run_to_its_end(lambda: self._task()._leave(error))

    async def _call(self, act: Callable[[Task], T]) -> T:
        return await _run(lambda: act(self._task()))

    def _task(self) -> Task:
        with self._opening:
            if self._opened is None:
                self._opened = self._open(self._reads)
            return self._opened


async def _run(call: Callable[[], T]) -> T:
    """Runs it in another thread; where this is cancelled, it is stopped there before the cancellation goes on."""
    stop = Stop()
    running = _start(call, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.stop()
        await asyncio.wait([running], timeout=LINGER)
        raise


async def _run_to_its_end(call: Callable[[], T]) -> T:
    """Runs it in another thread; where this is cancelled, the cancellation goes on when it is done."""
    running = _start(call, Stop())
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
    if cancelled is not None:
        raise cancelled
    return running.result()


def _start(call: Callable[[], T], stop: Stop) -> "asyncio.Future[T]":
    context = contextvars.copy_context()
    context.run(stopping.here.set, stop)
    running = asyncio.wrap_future(_pool().submit(context.run, call))
    running.add_done_callback(_see)
    return running


def _see(running: "asyncio.Future[T]") -> None:
    """An exception of a call that nobody awaits any more is no news."""
    if not running.cancelled():
        running.exception()


def _pool() -> ThreadPoolExecutor:
    pool = _pools.get(os.getpid())
    if pool is None:
        # Two threads may both get here: one pool wins, and the other never starts a thread.
        pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="plandesk"))
    return pool
