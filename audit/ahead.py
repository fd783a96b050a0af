"""Reading ahead: what comes next is read behind the one who works on what was read."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from typing import TypeVar

Item = TypeVar("Item")
Reader = TypeVar("Reader")
Result = TypeVar("Result")


def read_ahead(
    readers: Sequence[Reader], items: Iterable[Item], read: Callable[[Reader, Item], Result]
) -> Generator[tuple[Item, Result], None, None]:
    """Each item with what `read` makes of it, in the order of the items; what `read` raises is raised in its place.

    Each reader has a thread of its own and takes its turn: while one waits for the database, another one takes in what
    it was sent. As many results wait as there are readers. `items` is read by the caller's thread. Close it
    (contextlib.closing) before the readers are: a thread may still be reading.
    """
    with ExitStack() as stack:
        threads = [(stack.enter_context(ThreadPoolExecutor(1)), reader) for reader in readers]
        ahead: deque[tuple[Item, Future[Result]]] = deque()
        for item, (thread, reader) in zip(items, cycle(threads), strict=False):
            ahead.append((item, thread.submit(read, reader, item)))
            if len(ahead) > len(readers):
                done, reading = ahead.popleft()
                yield done, reading.result()
        for done, reading in ahead:
            yield done, reading.result()
