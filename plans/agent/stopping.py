"""Stop a call that runs in another thread: its pause ends, its connection is shut down, it unwinds as by Ctrl-C."""

import socket
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from typing import Protocol


class Stopped(BaseException):
    """Whoever awaited this call has cancelled it. As Ctrl-C, it is no error: what catches those lets it pass."""


class Connection(Protocol):
    """What a request goes over: its socket, once there is one."""

    sock: socket.socket | None


class Stop:
    """The means to stop one call. What the call had on disk stays there; what had arrived is found out later."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def stop(self) -> None:
        """Stops the call, from any thread: from here on it sends nothing more. Returns at once; may be repeated."""
        self._event.set()
        with self._lock, suppress(OSError):
            if self._connection is not None and self._connection.sock is not None:
                # The plain one: a TLS socket's own would take its state away under the thread that reads from it.
                socket.socket.shutdown(self._connection.sock, socket.SHUT_RDWR)

    def watch(self, connection: Connection) -> None:
        """The call now depends on this connection. Raises Stopped where it was stopped already."""
        with self._lock:
            self._connection = connection
        self.check()  # after: `stop` sets the event first, then looks for a connection

    def unwatch(self) -> None:
        """The call no longer depends on a connection: stopping it touches none."""
        with self._lock:
            self._connection = None

    def check(self) -> None:
        """Raises Stopped where the call was stopped."""
        if self._event.is_set():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Sleeps, unless and until the call is stopped."""
        self._event.wait(seconds)
        self.check()


here: ContextVar[Stop | None] = ContextVar("plandesk_stop", default=None)
"""What stops the call that runs in this context; nothing, where it runs in its caller's own thread."""


def check() -> None:
    """Raises Stopped where this call was stopped."""
    if (stop := here.get()) is not None:
        stop.check()


def watch(connection: Connection) -> None:
    """This call now depends on this connection."""
    if (stop := here.get()) is not None:
        stop.watch(connection)


def unwatch() -> None:
    """This call no longer depends on a connection."""
    if (stop := here.get()) is not None:
        stop.unwatch()


def sleep(seconds: float) -> None:
    """Sleeps, at most until this call is stopped."""
    if (stop := here.get()) is not None:
        stop.sleep(seconds)
    else:
        time.sleep(seconds)
