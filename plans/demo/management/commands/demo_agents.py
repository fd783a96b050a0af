"""Runs the demonstration's agents: one errand after the other, at a human pace, until SIGTERM."""

import logging
import secrets
import signal
import sys
import time
from argparse import ArgumentParser
from itertools import count
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

from plans.agent import AgentError
from plans.demo.agents import NoDemonstration, desk_of
from plans.demo.live import ERRANDS, BillingDown, Errand
from plans.errors import CannotPlan

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Let the demonstration's agents work, on other invoices than 4412. SIGTERM ends the task they are in."

    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--pace", type=float, default=30, help="mean seconds between errands (default: 30)")
        parser.add_argument("--patience", type=float, default=180, help="seconds to wait for people (default: 180)")
        parser.add_argument("--errands", type=int, help="stop after so many (default: never)")

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, _leave)
        for number in count():
            if number == options["errands"]:
                return
            errand = ERRANDS[number % len(ERRANDS)]
            self.stdout.write(f"{errand.name}: {_run(errand, options['patience'])}")
            self.stdout.flush()
            close_old_connections()
            time.sleep(options["pace"] * secrets.SystemRandom().uniform(0.5, 1.5))


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Raised wherever the program is: the task's context ends, and with it what the task had not decided.
    sys.exit(0)


def _run(errand: Errand, patience: float) -> str:
    """One errand, and in a few words how it came out. What the desk or the billing system refuses ends it, no more."""
    try:
        with desk_of(errand.agent, place=f"agents-{errand.agent}") as desk:
            outcome = errand.run(desk, patience)
    except (AgentError, BillingDown, CannotPlan, NoDemonstration) as error:
        logger.warning("an agent of the demonstration gave up: %s", error)
        return f"given up ({error})"
    return "nothing to do" if outcome is None else type(outcome).__name__.lower()
