"""An agent on our SDK, driven by its environment: it does the steps it is given, and plans again where it must."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import urllib3

from plans.agent import (
    Conflict,
    Desk,
    Expired,
    FileStore,
    Outcome,
    Pace,
    Plan,
    Stale,
    Task,
    Unavailable,
    Unknown,
    Waiting,
)

ROUNDS = 5


def main() -> None:
    given = json.loads(os.environ["DESK_TASK"])
    desk = Desk(
        os.environ["DESK"],
        os.environ["DESK_API_KEY"],
        agent=os.environ["DESK_AGENT"],
        webhook_secret=os.environ["DESK_WEBHOOK_SECRET"],
        store=FileStore(Path(os.environ["DESK_STATE"])),
        pace=Pace(patience=20, attempt=10, first_delay=0.1, longest_delay=0.5),
    )
    plan: Plan | None = None
    asked: dict[str, Any] = {}
    with desk.task(given["task_id"]) as task:
        for step in given["steps"]:
            match step["do"]:
                case "plan":
                    asked = step
                    plan = make_plan(task, asked, None)
                case "write":
                    task.write(step["target"], step["touches"])
                    post(step["url"], step["body"])
                case "commit" if plan is not None:
                    sys.stdout.write(f"{carry_out(task, plan, asked)}\n")
                case "stop":
                    return


def make_plan(task: Task, step: dict[str, Any], old: Plan | None) -> Plan:
    if step["via"] == "desk":
        if old is not None:
            return task.replan(old).plan
        return task.dry_run(step["operation"], step["inputs"], summary=step["summary"])
    answer = post(step["dry_run_url"], {"inputs": step["inputs"]})
    if old is not None:
        return task.replan(old, answer=answer).plan
    return task.submit(
        step["target"], step["operation"], step["inputs"], answer, intent=step["intent"], summary=step["summary"]
    )


def carry_out(task: Task, plan: Plan, step: dict[str, Any]) -> Outcome:
    outcome = task.commit(plan)
    for _ in range(ROUNDS):
        match outcome:
            case Waiting():
                outcome = task.wait(plan)
            case Conflict() | Expired() | Stale():
                plan = make_plan(task, step, plan)
                outcome = task.commit(plan)
            case Unknown() | Unavailable():
                outcome = task.commit(plan)
            case _:
                break
    return outcome


def post(url: str, body: dict[str, Any]) -> bytes:
    headers = {"Authorization": f"Bearer {os.environ['DESK_API_KEY']}"}
    answer = urllib3.PoolManager(retries=False).request("POST", url, json=body, headers=headers)
    assert answer.status < 300, answer.status
    return answer.data


if __name__ == "__main__":
    main()
