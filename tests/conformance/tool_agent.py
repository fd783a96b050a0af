"""An agent of tools alone: it asks the desk which there are, and calls them by name as a language model would."""

import json
import os
from pathlib import Path
from typing import Any

import urllib3

from plans.agent import Desk, FileStore, Pace
from plans.agent.toolbox import ToolAnswer, Toolbox

ROUNDS = 8


def main() -> None:
    given = json.loads(os.environ["DESK_TASK"])
    pace = Pace(patience=20, attempt=10, first_delay=0.1, longest_delay=0.5)
    store = FileStore(Path(os.environ["DESK_STATE"]))
    desk = Desk(os.environ["DESK"], os.environ["DESK_API_KEY"], agent=os.environ["DESK_AGENT"], store=store, pace=pace)
    with desk.task(given["task_id"]) as task:
        box = Toolbox.of(task)
        names = {tool.name for tool in box.tools}
        planned: dict[str, Any] = {}
        step: dict[str, Any] = {}
        for step in given["steps"]:
            match step["do"]:
                case "plan":
                    asked = step
                    planned = plan(box, names, asked)
                case "write":
                    task.write(step["target"], step["touches"])
                    headers = {"Authorization": f"Bearer {os.environ['DESK_API_KEY']}"}
                    http = urllib3.PoolManager(retries=False)
                    assert http.request("POST", step["url"], json=step["body"], headers=headers).status < 300
                case "commit":
                    pursue(box, names, asked, planned)
                case "stop":
                    return


def plan(box: Toolbox, names: set[str], step: dict[str, Any]) -> dict[str, Any]:
    name = f"{step['operation'].replace('.', '_')}_dry_run"
    assert name in names, names
    answer = box.call(name, {"inputs": step["inputs"], "intent": None, "summary": step["summary"]})
    assert answer.members["outcome"] == "planned", answer
    return answer.members


def pursue(box: Toolbox, names: set[str], step: dict[str, Any], planned: dict[str, Any]) -> None:
    assert "commit_plan" in names, names
    for _ in range(ROUNDS):
        said = commit(box, planned).members
        if said["outcome"] in ("conflict", "expired", "stale"):
            planned = plan(box, names, step)
        elif said["outcome"] not in ("unknown", "unavailable", "waiting"):
            return


def commit(box: Toolbox, planned: dict[str, Any]) -> ToolAnswer:
    return box.call("commit_plan", {name: planned[name] for name in ("plan_id", "input_fingerprint")})


if __name__ == "__main__":
    main()
