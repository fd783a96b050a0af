"""Runs the demonstration's agents, side by side: one errand after the other, at a human pace, until SIGTERM."""

import logging
import os
import signal
import threading
from argparse import ArgumentParser
from itertools import cycle, islice
from types import FrameType
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.db import DatabaseError, close_old_connections

from plans.agent import AgentError
from plans.demo import rhythm
from plans.demo.agents import AGENT_TARGETS, NoDemonstration, desk_of
from plans.demo.asking import BillingDown
from plans.demo.live import ERRANDS, Errand
from plans.errors import CannotPlan

LEAVE_WITHIN: Final = 5.0
"""Seconds for the agents to end the tasks they are in."""

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Let the demonstration's agents work, on other invoices than 4412. SIGTERM ends the tasks they are in."

    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        pace = float(os.environ.get("DEMO_PACE") or rhythm.PACE)
        patience = rhythm.PATIENCE
        parser.add_argument("--pace", type=float, default=pace, help="mean seconds between errands (%(default)s)")
        parser.add_argument("--patience", type=float, default=patience, help="seconds to wait for people (%(default)s)")
        parser.add_argument("--errands", type=int, help="stop after so many of each sort (default: never)")

    def handle(self, *args: Any, **options: Any) -> None:
        leaving = threading.Event()

        def leave(_number: int, _frame: FrameType | None) -> None:
            leaving.set()

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        pace = rhythm.Rhythm(options["pace"], options["patience"], leaving)
        agents = [
            threading.Thread(target=self._work, args=(name, asks, pace, options["errands"]), daemon=True)
            for name in AGENT_TARGETS
            for asks in (True, False)
        ]
        for agent in agents:
            agent.start()
        while not leaving.is_set() and any(agent.is_alive() for agent in agents):
            leaving.wait(0.5)
        for agent in agents:
            agent.join(LEAVE_WITHIN)

    def _work(self, name: str, asks: bool, pace: rhythm.Rhythm, most: int | None) -> None:
        """What one agent asks people for, or the rest of its work: who waits for people holds nothing else up.

        Called off, it leaves by SystemExit, which ends its task and then this thread.
        """
        mine = [one for one in ERRANDS if one.agent == name and one.asks_people == asks]
        for errand in islice(cycle(mine), most):
            self.stdout.write(f"{name}: {errand.name}: {_run(errand, pace)}")
            self.stdout.flush()
            close_old_connections()
            pace.rest()


def _run(errand: Errand, pace: rhythm.Rhythm) -> str:
    """One errand, and in a few words how it came out. What the desk or the billing system refuses ends it, no more."""
    try:
        with desk_of(errand.agent, place=f"agents-{errand.agent}{'' if errand.asks_people else '-alone'}") as desk:
            outcome = errand.run(desk, pace)
    except (AgentError, BillingDown, CannotPlan, DatabaseError, NoDemonstration) as error:
        logger.warning("an agent of the demonstration gave up: %s", error)
        return f"given up ({error})"
    return "nothing to do" if outcome is None else type(outcome).__name__.lower()
