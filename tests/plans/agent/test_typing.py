"""Types, as an agent's author sees them: `mypy --strict` over programs outside this tree, and what it must refuse."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reviewer.installation import PROJECT

GUIDE = (PROJECT / "docs" / "agents.md").read_text()

AWAITED = """
import asyncio
from typing import assert_never
from plans.agent import AsyncTask, Committed, Desk, EndedPlan, Evidence, Known, MemoryStore, Plan, Records, Store

def names(store: Store) -> list[str]:
    with store.writing() as records:
        records.put("a", "1")
    with store.reading() as records:
        found: Records = records
        return [key for key, _ in found.find("a")]

names(MemoryStore())

async def use(task: AsyncTask, plan: Plan) -> list[EndedPlan]:
    evidence: Evidence = task.read("tool")
    known: list[Known] = await task.plans()
    outcome = await task.wait(plan, timeout=1)
    if isinstance(outcome, Committed):
        print(evidence, known, outcome.result, outcome.plan_id)
    replanned = await task.replan(plan)
    print([str(one) for one in replanned.differs])
    return await task.end()
"""

WRONG = """
from typing import assert_never
from plans.agent import Committed, Conflict, Outcome, Plan, Task

def forget(outcome: Outcome) -> None:
    match outcome:
        case Committed() | Conflict():
            return
    assert_never(outcome)  # E: arg-type

def misuse(task: Task, plan: Plan) -> None:
    task.commit(plan, {"amount": 1})  # E: call-arg
    task.commit(plan, idempotency_key="k")  # E: call-arg
    task.commit(plan.plan_id)  # E: arg-type
    task.abandon(plan, "because")  # E: arg-type
    plan.plan_id = "other"  # E: misc
    plan.plan_token  # E: attr-defined
"""


def check(code: str, folder: Path) -> list[str]:
    """What mypy says of the code, a line each, in a place that knows the package only as installed."""
    (folder / "program.py").write_text(code)
    packages = folder / "site"
    packages.mkdir()
    (packages / "plans").symlink_to(PROJECT / "plans")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(folder / "cache")]
    options = ["--follow-imports=silent", "--no-error-summary", "--warn-unreachable", "program.py"]
    environ = {**os.environ, "MYPYPATH": str(packages)}
    done = subprocess.run([*command, *options], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_guides_examples_and_an_async_program_pass_mypy_strict(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert check("\n".join([*blocks, AWAITED]), tmp_path) == []


@pytest.mark.slow
def test_a_forgotten_outcome_and_a_commit_with_more_than_the_plan_are_type_errors(tmp_path: Path) -> None:
    found = {
        int(line.split(":")[1]): re.findall(r"\[([\w-]+)\]$", line)
        for line in check(WRONG, tmp_path)
        if "error" in line
    }
    lines = enumerate(WRONG.splitlines(), 1)
    assert found == {number: re.findall(r"# E: (\S+)", line) for number, line in lines if "# E:" in line}
