"""The desk, as an agent sees it: where tasks begin."""

from types import TracebackType
from typing import Self

from plans import signatures
from plans.agent import telling
from plans.agent.awaiting import AsyncTask
from plans.agent.clock import DeskClock
from plans.agent.http import Http
from plans.agent.ledger import Ledger
from plans.agent.line import Line, Pace
from plans.agent.sealing import Seal
from plans.agent.secrets import Secret
from plans.agent.store import Store
from plans.agent.task import Evidence, Task, checked_task_id
from plans.identifiers import is_identifier


class Desk:
    """One desk, for one agent.

    `agent` is the name it was registered under. `webhook_secret` is needed for `Task.submit` alone. The address is
    https unless it is loopback. Neither key nor secret can be read back from it, and it holds no state but the store's:
    make one per process, or as many as you like.
    """

    def __init__(
        self, base_url: str, api_key: str, *, agent: str, store: Store, webhook_secret: str | None = None,
        pace: Pace | None = None,
    ) -> None:  # fmt: skip
        if not is_identifier(agent):
            raise ValueError("An agent's name is 1 to 128 of letters, digits, _ . : -")
        clock = DeskClock()
        key = Secret(api_key)
        http = Http(base_url, key, clock)
        name = f"{http.base_url} {agent}"
        self._line = Line(
            name=name,
            agent=agent,
            http=http,
            clock=clock,
            ledger=Ledger(store, name, Seal(key)),
            pace=pace or Pace(),
            api_key=key,
            webhook_secret=signatures.parse_secret(webhook_secret) if webhook_secret is not None else None,
        )

    def __repr__(self) -> str:
        return f"Desk({self._line.http.base_url!r}, agent={self._line.agent!r})"

    def task(self, task_id: str) -> Task:
        """The task of this id: a new one, or the one a killed run left in the store. Use it as a context manager.

        What an earlier run could not tell the desk is told now, with a warning.
        """
        telling.tell_rest(self._line, is_new_run=True)
        return Task(self._line, task_id)

    def async_task(self, task_id: str) -> AsyncTask:
        """The task of this id for asyncio: use it with `async with`. It is opened, as by `task`, in another thread."""

        def open_task(reads: list[Evidence]) -> Task:
            telling.tell_rest(self._line, is_new_run=True)
            return Task(self._line, task_id, reads)

        return AsyncTask(open_task, checked_task_id(task_id))

    def close(self) -> None:
        """Closes the connections. Tasks go on working, with new ones."""
        self._line.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
