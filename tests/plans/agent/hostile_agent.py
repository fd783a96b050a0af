"""An agent in a process of its own that is treated badly: plans and commits piece after piece until it is stopped."""

import resource
import signal
import sys
import warnings
from pathlib import Path

from plans.agent import Desk, FileStore, Pace, Task, UntoldWarning

PACE = Pace(patience=5.0, attempt=5.0, farewell=5.0, first_delay=0.01, longest_delay=0.1)


def main(base_url: str, api_key: str, folder: str, how: str, task_id: str) -> None:
    warnings.simplefilter("ignore", UntoldWarning)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if how == "exits":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    desk = Desk(base_url, api_key, agent="refund-bot", store=FileStore(Path(folder)), pace=PACE)
    with desk, desk.task(task_id) as task:
        work(task, how)


def work(task: Task, how: str) -> None:
    pieces = 200 if how == "endless" else 1
    for piece in range(pieces):
        plan = task.dry_run("address.update", {"customer_id": f"{task.task_id}-{piece}"})
        say(f"{plan.plan_id} {plan.idempotency_key}")
        if how == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # from here on the disk is full
        if how == "together":
            sys.stdin.readline()
        say(f"{type(task.commit(plan)).__name__} {plan.plan_id}")
        if how in ("waits", "exits"):
            waiting = task.dry_run("refund", {"invoice_id": task.task_id}, intent=f"refund:{task.task_id}")
            say(f"{waiting.plan_id} {waiting.idempotency_key}")
            task.wait(waiting, timeout=60)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
