"""Somebody who has nothing to do with what breaks, and looks at a plan of their own twice a second."""

import threading
import time
from dataclasses import dataclass

from tests.faults.client import Caller, Line, Trace
from tests.faults.control import Strike
from tests.faults.product import Product
from tests.faults.world import CUSTOMERS, World

IN_TIME = 8.0
"""Seconds, half of them for each server: 32 threads of work on two cores keep a request waiting for up to 5."""

EVERY = 0.5
HITS_THE_DATABASE = ("PostgreSQL", "disk full")
DATABASE_SETTLES = 15.0  # it recovers, and every process connects again
WEB_SETTLES = {"kill -9 at": 3.0, "web worker": 3.0, "paused": 2.0, "of web at": 15.0, "clock": 15.0}
"""What can keep one web server from answering, and for how many seconds after it."""


@dataclass(frozen=True)
class Look:
    at: float
    took: float
    was_served: bool


class Bystander:
    """Asks one web server and, where that one does not answer, the other, as a load balancer would."""

    def __init__(self, product: Product, world: World) -> None:
        self.looks: list[Look] = []
        self._stop = threading.Event()
        self._caller = Caller(Line(product.ports, lambda sentence: None, timeout=IN_TIME / 2), product.target_port)
        self._desk = world.desks[0]
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _look(self) -> None:
        trace = Trace("address", CUSTOMERS, self._desk, "billing", task_id="bystander")
        path = "/api/v1/plans?state=committed"
        while not self._stop.wait(EVERY):
            began = time.time()
            was_served = any(self._caller.api(trace, "look", path, web=web, get=True).status == 200 for web in (0, 1))
            self.looks.append(Look(began, time.time() - began, was_served))

    def not_served(self, strikes: list[Strike]) -> list[Look]:
        """Looks without an answer that nothing excuses: the database was there, and so was a web server."""
        return [look for look in self.looks if not look.was_served and not _is_excused(look, strikes)]


def near(look: Look, strikes: list[Strike]) -> str:
    """What struck around a look, for who reads the verdict."""
    found = [one for one in strikes if look.at - 15 <= one.until and one.at <= look.at + look.took]
    return ", ".join(f"{one.kind} {look.at - one.at:.1f} s before" for one in found)


def _is_excused(look: Look, strikes: list[Strike]) -> bool:
    def is_near(strike: Strike, settles: float) -> bool:
        return strike.at <= look.at + look.took and look.at <= strike.until + settles

    if any(one.kind.startswith(HITS_THE_DATABASE) and is_near(one, DATABASE_SETTLES) for one in strikes):
        return True
    hits = [
        one for one in strikes for word, settles in WEB_SETTLES.items() if word in one.kind and is_near(one, settles)
    ]
    return len(hits) > 1  # one at each web server
