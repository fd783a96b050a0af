"""A share of this process's threads for each target, so that a slow one never holds them all."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from django.conf import settings

from plans.errors import Sentence, TargetBusy

PATIENCE: Final = timedelta(seconds=1)
"""How long a request waits for a place: a quick target frees one within that, and a burst is no reason to refuse."""

AT_ONCE: Final = timedelta(0)
"""For sweeps, which come back by themselves."""


class Bulkhead:
    """Places at targets for a process of so many threads. Safe for any number of threads."""

    def __init__(self, threads: int) -> None:
        self.per_target = max(1, threads // 2)
        self.queue = max(1, threads // 4)
        # Those who wait for a place hold a thread too; some threads are never a target's, whatever is slow.
        self.in_all = max(1, threads - max(1, threads // 4))
        self._changed = threading.Condition()
        self._taken: Counter[int] = Counter()
        self._queued: Counter[int] = Counter()

    def take(self, target_pk: int, patience: timedelta) -> None:
        """Take a place at a target. Raises `TargetBusy` where none came free in time, or too many wait already."""
        until = time.monotonic() + patience.total_seconds()
        with self._changed:
            if self._is_full(target_pk) and (not patience or not self._may_queue(target_pk)):
                raise _busy()
            self._queued[target_pk] += 1
            try:
                while self._is_full(target_pk):
                    if not self._changed.wait(until - time.monotonic()):
                        raise _busy()
            finally:
                self._queued[target_pk] -= 1
            self._taken[target_pk] += 1

    def give_back(self, target_pk: int) -> None:
        """Free one place at a target."""
        with self._changed:
            self._taken[target_pk] -= 1
            self._changed.notify_all()

    def _is_full(self, target_pk: int) -> bool:
        return self._taken[target_pk] >= self.per_target or self._taken.total() >= self.in_all

    def _may_queue(self, target_pk: int) -> bool:
        return self._queued[target_pk] < self.queue and self._taken.total() + self._queued.total() < self.in_all


def _busy() -> TargetBusy:
    return TargetBusy(
        Sentence("Too many calls to this target are under way; it answers slowly."), retry_after_seconds=5
    )


class _Places:
    """The bulkhead of this process, and the targets at which each thread has a place."""

    def __init__(self) -> None:
        self.bulkhead: Bulkhead | None = None
        self.mine = threading.local()


_places = _Places()


def limit_to(threads: int) -> None:
    """Say how many threads this process has; WEB_THREADS unless somebody does. Before the first call."""
    _places.bulkhead = Bulkhead(threads)


@contextmanager
def place_at(target_pk: int, *, patience: timedelta = PATIENCE) -> Iterator[None]:
    """Hold one place at a target for the length of the block. Raises `TargetBusy` before the block where none is free.

    Take it before the claim: then nothing was sent and nothing was claimed where there was none. A thread that has a
    place already goes on with it.
    """
    mine: set[int] = _places.mine.__dict__.setdefault("targets", set())
    if target_pk in mine:
        yield
        return
    if _places.bulkhead is None:
        limit_to(settings.WEB_THREADS)
    bulkhead = _places.bulkhead
    assert bulkhead is not None
    bulkhead.take(target_pk, patience)
    mine.add(target_pk)
    try:
        yield
    finally:
        mine.discard(target_pk)
        bulkhead.give_back(target_pk)
