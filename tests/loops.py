"""An event loop of its own for a test: its thread may have one running already, which a browser's driver left there."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connection

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in a thread of its own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def call_apart(work: Callable[[], T]) -> T:
    """Calls what runs a loop of its own, in a thread without one; the thread's database connection ends with it."""

    def call() -> T:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()
