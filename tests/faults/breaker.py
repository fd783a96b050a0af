"""The faults: what is broken, how, and for how long. Drawn by seed, every kind in turn."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults import control as points
from tests.faults.control import Control, Reached, Trap
from tests.faults.product import Product, Program
from tests.faults.timers import PAUSE

IN_CLAIM = ("decision-locked", "plan-locked", "claim-written", "claim-on-disk")
IN_ANSWER = ("answer-in-hand", "answer-written", "answer-on-disk")
IN_HOSTED = ("inputs-locked", "inputs-applied", "end-written")
IN_SWEEPS = ("unknown-leased", "state-in-hand", "expiry-written")
IN_INTAKE = ("plan-written", "target-confirmed", "abandonment-written")
STEPS = (*IN_CLAIM, *IN_ANSWER, *IN_HOSTED, *IN_SWEEPS, *IN_INTAKE)
IN_TRANSACTION = ("claim-written", "inputs-applied", "end-written", "answer-written")
PAUSED = ("plan-locked", "inputs-locked", "claim-on-disk", "answer-in-hand", "state-in-hand")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
SHARE = {f"kill -9 of {name} at random": 0.4 for name in ("web", "worker", "beat", "sequencer")}
"""How often these come in a round: what starts anew costs seconds of the processors that commits need."""

SPRINGS_WITHIN = 2.5

Fault = Callable[[], None]


class Breaker:
    """Strikes until it is told to stop; the product is whole again when `run` returns."""

    def __init__(self, product: Product, control: Control, seed: str, only: str = "") -> None:
        self.product, self.control = product, control
        self.chance = random.Random(f"{seed}:breaker")
        self.only = only
        self.steps = STEPS
        self.not_run: list[str] = []
        self.stopping = threading.Event()
        self.menu = {name: fault for name, fault in self._menu().items() if only in name}

    def run(self, wrong: Callable[[str], None]) -> None:
        """Every kind once in a drawn order, then again, a short while apart."""
        try:
            self._strike_in_turn()
        except Exception as error:  # a harness that stopped breaking things must not pass for a product that holds
            wrong(f"the breaker itself failed: {type(error).__name__}: {error}")
            raise

    def _strike_in_turn(self) -> None:
        while not self.stopping.is_set():
            kinds = [kind for kind in sorted(self.menu) if self.only or self.chance.random() < SHARE.get(kind, 1.0)]
            self.chance.shuffle(kinds)
            for kind in kinds:
                if self.stopping.wait(self.chance.uniform(0.3, 1.5)):
                    break
                if not kind.startswith("target"):
                    self._wait_for_database()
                self.menu[kind]()

    def _menu(self) -> dict[str, Fault]:
        menu: dict[str, Fault] = {}
        for step in STEPS:
            menu[f"kill -9 at {step}"] = self._trap(f"kill -9 at {step}", (step,), points.kill)
        for how, words in (("before", "never arrives"), ("after", "loses its answer")):
            menu[f"COMMIT {words}"] = self._trap(f"COMMIT {words}", IN_TRANSACTION, self._cut(how))
        menu["PostgreSQL stopped in mid-commit"] = self._trap(
            "PostgreSQL stopped in mid-commit", (*IN_TRANSACTION, "claim-on-disk", "answer-in-hand"), self._crash,
            is_of_all=True,
        )  # fmt: skip
        for step in PAUSED:
            menu[f"paused past every lease at {step}"] = self._trap(
                f"paused past every lease at {step}", (step,), self._pause
            )
        menu["kill -9 of a web worker at random"] = self._kill_web_worker
        for name in ("web", "worker", "beat", "target", "sequencer"):
            menu[f"kill -9 of {name} at random"] = self._killer(name)
        menu["Redis gone"] = self._kill_redis
        menu["Redis flushed"] = self._flush_redis
        menu["clock of a web host 10 minutes off"] = self._skew
        menu["disk full"] = self._fill_disk
        if FAKETIME is None or "web2" not in self.product.programs:
            why = "Debian's package faketime is not installed" if FAKETIME is None else "there is one web host"
            self.not_run.append(f"clock of a web host 10 minutes off: {why}")
            del menu["clock of a web host 10 minutes off"]
        if not self.product.has_disk:
            self.not_run.append("disk full: this run may not mount a tmpfs")
            del menu["disk full"]
        return menu

    def _wait_for_database(self) -> None:
        while not self.stopping.is_set() and not self.product.is_database_up():
            time.sleep(0.1)

    # --- at a point -------------------------------------------------------------------------------------------------

    def _trap(
        self, kind: str, steps: tuple[str, ...], act: Callable[[Reached], float], *, is_of_all: bool = False
    ) -> Fault:
        def strike() -> None:
            trap = self.control.lay(Trap(kind, steps, act, is_of_all))
            for _ in range(int(SPRINGS_WITHIN * 20)):
                if trap.sprung.wait(0.05) or self.stopping.is_set():
                    break
            self.control.lift(trap)

        return strike

    def _cut(self, how: str) -> Callable[[Reached], float]:
        def act(reached: Reached) -> float:
            if reached.backend:
                with contextlib.suppress(OSError):
                    points.order_proxy(f"{self.product.control_path}.proxy", how, reached.backend)
            return 0.0

        return act

    def _crash(self, reached: Reached) -> float:
        down = self.chance.uniform(0.2, 1.5)
        self.product.crash_postgres(down=down)
        return down

    def _pause(self, reached: Reached) -> float:
        points.pause(reached.pid, PAUSE)
        self.control.paused[reached.plan_pk] = time.time() + PAUSE
        return PAUSE

    # --- at random --------------------------------------------------------------------------------------------------

    def _kill_web_worker(self) -> None:
        pids = self._one_of("web").children()
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(sorted(pids)), signal.SIGKILL)
            self.control.note("kill -9 of a web worker at random", lasts=1.0)

    def _one_of(self, name: str) -> Program:
        return self.chance.choice([one for one in self.product.programs.values() if one.name.rstrip("12") == name])

    def _killer(self, name: str) -> Fault:
        def strike() -> None:
            chosen = self._one_of(name)
            down = self.chance.uniform(0.0, 1.0)
            self.control.note(f"kill -9 of {name} at random", lasts=down, program=chosen.name)
            chosen.kill(down=down)

        return strike

    def _kill_redis(self) -> None:
        down = self.chance.uniform(0.5, 3.0)
        self.control.note("Redis gone", lasts=down)
        self.product.kill_redis(down=down)

    def _flush_redis(self) -> None:
        import redis

        try:
            with redis.Redis(unix_socket_path=str(self.product.redis.socket_path()), socket_timeout=2) as client:
                client.flushall()
        except redis.RedisError:
            return
        self.control.note("Redis flushed")

    def _skew(self) -> None:
        """The second web host's clock is off until the next time."""
        off = self.chance.choice(("+600", "-600"))
        assert FAKETIME is not None
        extra = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": off, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.control.note("clock of a web host 10 minutes off", lasts=15.0, program="web2")
        self.product.restart_web("web2", extra)

    def _fill_disk(self) -> None:
        """Nothing more fits on the database's disk, for a while."""
        lasts = self.chance.uniform(0.5, 2.5)
        ballast = self.product.data / "ballast"
        strike = self.control.note("disk full", lasts=lasts)
        try:
            with ballast.open("wb") as file:
                room = os.statvfs(self.product.data)
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
            self.stopping.wait(lasts)
        finally:
            ballast.unlink(missing_ok=True)
        strike.until = time.time()
