"""Where processes of the product stand still at a named point, and the traps that are laid there."""

import contextlib
import os
import signal
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Strike:
    """One fault that struck. `plan_pk` where it struck one plan's commit; None: everything alive then. Wall clock."""

    kind: str
    at: float
    until: float
    plan_pk: int | None = None
    program: str = ""


@dataclass(frozen=True)
class Reached:
    """A process at a point, which goes on when the trap's action returns."""

    step: str
    plan_pk: int
    pid: int
    backend: int


@dataclass
class Trap:
    """Springs once, at the first process that reaches one of `steps`."""

    kind: str
    steps: Collection[str]
    act: Callable[[Reached], float]
    """Does the harm; answers for how many seconds it lasts."""
    is_of_all: bool = False
    plan_pk: int | None = None
    sprung: threading.Event = field(default_factory=threading.Event)


class Control:
    """The points' other end."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.strikes: list[Strike] = []
        self.reached: Counter[str] = Counter()
        self.paused: dict[int, float] = {}
        self._traps: list[Trap] = []
        self._lock = threading.RLock()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                words = self.rfile.readline().decode().split()
                if len(words) == 4:
                    outer._arrive(Reached(words[0], int(words[1]), int(words[2]), int(words[3])))
                    self.wfile.write(b"go\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *args: object) -> None:  # it was killed where it stood
                pass

        self._server = Server(path, Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        Path(self.path).unlink(missing_ok=True)

    def lay(self, trap: Trap) -> Trap:
        with self._lock:
            self._traps.append(trap)
        return trap

    def lift(self, trap: Trap) -> None:
        with self._lock:
            if trap in self._traps:
                self._traps.remove(trap)

    def note(self, kind: str, *, lasts: float = 0.0, plan_pk: int | None = None, program: str = "") -> Strike:
        now = time.time()
        strike = Strike(kind, now, now + lasts, plan_pk, program)
        with self._lock:
            self.strikes.append(strike)
        return strike

    def _arrive(self, reached: Reached) -> None:
        with self._lock:
            self.reached[reached.step] += 1
            for trap in self._traps:
                if reached.step in trap.steps and trap.plan_pk in (None, reached.plan_pk):
                    self._traps.remove(trap)
                    break
            else:
                return
        strike = self.note(trap.kind, plan_pk=None if trap.is_of_all else reached.plan_pk)
        lasts = trap.act(reached)
        strike.until = time.time() + lasts
        trap.sprung.set()


def kill(reached: Reached) -> float:
    """kill -9 where it stands."""
    os.kill(reached.pid, signal.SIGKILL)
    return 0.0


def pause(pid: int, seconds: float) -> None:
    """SIGSTOP now, SIGCONT later."""
    os.kill(pid, signal.SIGSTOP)

    def resume() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(seconds, resume)
    timer.daemon = True
    timer.start()


def order_proxy(path: str, how: str, backend: int) -> None:
    """Have the proxy cut the next COMMIT of one backend."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(f"{how} {backend}\n".encode())
        line.recv(8)
