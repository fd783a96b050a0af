"""The engine with one of its guards taken out, for the harness to find: a judge that acquits these judges nothing."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from reviewer.installation import PROJECT

COPIED = ("audit", "plans", "reviewer", "templates", "tests", "manage.py")


@dataclass(frozen=True)
class Mutation:
    """What is taken out, the run that must notice, and what it must say of it."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    """File, text as it stands there once, text instead."""
    arguments: tuple[str, ...]
    found_by: tuple[str, ...]


LOCKED_EXPIRY = """\
    if at >= plan.expires_at:
        settle_attempt(attempt, Outcome.EXPIRED, at)
        ending.expire(plan, at=at, actor=actor)
        return
"""
ROW_LOCK = Mutation(
    "the row lock",
    (("plans/plan_sql.py", ' FOR NO KEY UPDATE OF plan"', '"'),),
    ("--only", "none", "--kind", "address"),
    ("doubled", "error log"),
)
CLAIM = Mutation(
    "the claim's own transaction",
    (
        (
            "plans/agent_commit.py",
            "        return Call(plan.pk, attempt.pk, claimed)\n",
            "        return CommitAnswer(carry_out(Call(plan.pk, attempt.pk, claimed)), is_replayed=False)\n",
        ),
        (
            "plans/commit.py",
            '    assert not connection.in_atomic_block, "a target is never called inside a transaction"\n',
            "",
        ),
        ("plans/commit.py", "@transaction.atomic(durable=True)\ndef settle(", "@transaction.atomic\ndef settle("),
    ),
    ("--only", "kill -9 at answer-in-hand", "--kind", "open"),
    ("attempts are on record", "lost"),
)
STORED_RESULT = Mutation(
    "the stored-result lookup",
    (
        (
            "plans/agent_commit.py",
            "    if state is not State.PENDING:\n        return _ended(plan, agent, presented, payload, at)\n",
            "",
        ),
    ),
    ("--only", "none", "--kind", "address"),
    ("doubled", "error log", "two different answers"),
)
EXPIRY = Mutation(
    "the expiry check after the lock",
    (
        (
            "plans/hosted_commit.py",
            LOCKED_EXPIRY,
            "",
        ),
    ),
    ("--only", "paused past every lease at inputs-locked", "--kind", "address", "--life", "5"),
    ("after its expiry",),
)
MUTATIONS = (ROW_LOCK, CLAIM, STORED_RESULT, EXPIRY)


def mutated_copy(mutation: Mutation, folder: Path) -> Path:
    """The project with the mutation in it. Raises where the text that it takes out is not there exactly once."""
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for name, old, new in mutation.edits:
        path = folder / name
        text = path.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{mutation.name}: {name} does not hold this once: {old!r}")
        path.write_text(text.replace(old, new))
    return folder


def run_in(folder: Path, *arguments: str, seconds: float, seed: str) -> tuple[int, list[str], str]:
    """A small run of the harness over the project in `folder`: its exit code, its failures, what it printed."""
    verdict = folder / "verdict.json"
    words = [sys.executable, "-m", "tests.faults", "--seconds", str(seconds), "--seed", seed, "--json", str(verdict)]
    done = subprocess.run([*words, *arguments], cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    failures = json.loads(verdict.read_text())["failures"] if verdict.exists() else []
    return done.returncode, failures, done.stdout + done.stderr
