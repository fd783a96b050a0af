"""Jobs at a barrier, each on a database connection of its own, and rows held by somebody else."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from django.db import connection, connections

from plans.errors import DecisionRefused, Refused, StillCommitting

Job = Callable[[], Any]
REFUSALS = (DecisionRefused, Refused, StillCommitting)
"""What a loser of a race gets. Anything else that is raised is a failure of the product."""


def at_once(*jobs: Job, seconds: float = 60) -> list[Any]:
    """Run all jobs from one barrier; their results in order, a refusal as the exception itself.

    Raises the first other exception: a loser is refused in the product's own words or the race was not handled.
    """
    barrier = threading.Barrier(len(jobs))
    results: list[Any] = [None] * len(jobs)
    broken: list[BaseException] = []

    def run(place: int, job: Job) -> None:
        try:
            connection.ensure_connection()
            barrier.wait(seconds)
            results[place] = job()
        except REFUSALS as refused:
            results[place] = refused
        except BaseException as error:  # told to the test's own thread
            broken.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place, job), daemon=True) for place, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a job of the race still waits"
    if broken:
        raise broken[0]
    return results


def in_background(job: Job) -> Callable[[], Any]:
    """Start a job on a connection of its own; call what is returned to wait for its result, or what it raised."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["result"] = job()
        except BaseException as error:  # raised in the test's own thread
            outcome["error"] = error
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait(seconds: float = 60) -> Any:
        thread.join(seconds)
        assert not thread.is_alive(), "the job still waits"
        if "error" in outcome:
            raise outcome["error"]
        return outcome["result"]

    return wait


@contextlib.contextmanager
def holding(statement: str, *parameters: Any) -> Iterator[psycopg.Connection[Any]]:
    """Another client's transaction that has executed `statement` and lives as long as the block."""
    settings = connection.get_connection_params()
    wanted = {name: settings[name] for name in ("host", "port", "dbname", "user", "password") if settings.get(name)}
    with psycopg.connect(**wanted) as other:
        other.execute(statement, parameters)
        yield other
        other.rollback()


def holding_plan(plan_pk: int) -> contextlib.AbstractContextManager[psycopg.Connection[Any]]:
    """Another client's transaction that holds one plan's row."""
    return holding("SELECT 1 FROM plans_plan WHERE id = %s FOR NO KEY UPDATE", plan_pk)


def wait_until(is_so: Callable[[], Any], *, seconds: float = 20, what: str = "it") -> None:
    """Return once `is_so()`; fail the test after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)


def has_waiter() -> bool:
    """True while some connection of this database waits for a lock of another transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def wait_for_waiter(*, seconds: float = 20) -> None:
    """Return once some connection of this database waits for a lock of another transaction."""
    wait_until(has_waiter, seconds=seconds, what="a wait for a lock")
