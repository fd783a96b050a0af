"""The desk's web server, which forgets that it started a worker again a moment ago.

granian gives up where the same worker dies twice within 5.5 s, and then all of the server starts anew. Here workers
die every second on purpose; a whole server dies as a fault of its own.
"""

import os
import select
import time
from typing import Any

from granian.server import Server

from reviewer import web


class Forgetful(dict[int, float]):
    def get(self, key: int, default: Any = None) -> Any:
        return 0.0


class PatientServer(Server):  # type: ignore[misc,valid-type]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.respawned_wrks = Forgetful()


def sleep(seconds: float) -> None:
    """`time.sleep` fails under libfaketime now and then (EINVAL: it shifts the monotonic clock's absolute times)."""
    select.select([], [], [], seconds)


if __name__ == "__main__":
    if "FAKETIME" in os.environ:
        time.sleep = sleep
    web.Server = PatientServer  # type: ignore[misc]
    web.main()
