"""In the product's processes: stands still at a named point until the harness says go, or ends it, or pauses it."""

import os
import random
import socket

from django.db import connection


def listens(step: str) -> bool:
    """Every other feed goes as in an installation, in one statement; the rest can be broken between two."""
    return step != "plan-written" or random.random() < 0.5


def reach(step: str, plan_pk: int) -> None:
    """Tell the harness, and wait for its word. Without a harness: goes on."""
    live = connection.connection
    backend = live.info.backend_pid if live is not None and not live.closed else 0
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(os.environ["FAULTS_CONTROL"])
            line.sendall(f"{step} {plan_pk} {os.getpid()} {backend}\n".encode())
            line.recv(8)
        except OSError:
            return


reach.listens = listens  # type: ignore[attr-defined]
