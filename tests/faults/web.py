"""The desk's web server, which forgets that it started a worker again a moment ago.

granian gives up where the same worker dies twice within 5.5 s, and then all of the server starts anew. Here workers
die every second on purpose; a whole server dies as a fault of its own.
"""

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


if __name__ == "__main__":
    web.Server = PatientServer  # type: ignore[misc]
    web.main()
