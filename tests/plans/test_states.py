"""docs/states.md, cell by cell: a plan in a state, the trigger pulled, and what became of it is what the cell says."""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from plans import ending, tasks, urls, webhook
from plans.states import MOVES, State
from tests.makers import make_person
from tests.plans import triggers_agents, triggers_people, triggers_targets  # noqa: F401 (they register)
from tests.plans.scenes import Stage
from tests.plans.triggers import TRIGGERS
from tests.reviewer.pages import client_of
from tests.stub_target import StubTarget

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
NEVER = "never"
COLUMNS = frozenset({*(state.value for state in State), "not known"})


@dataclass(frozen=True)
class Row:
    """One trigger, and what it does to a plan in each state."""

    name: str
    cells: dict[str, tuple[str, str, str]]


def read_page(text: str) -> list[Row]:
    """The rows of every table of the page whose first column is `trigger`."""
    rows: list[Row] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells or set(line) <= set("|-: "):
            columns = columns if cells else []
        elif cells[0] in ("trigger", "before it arrived"):
            columns = [cell.strip("`") for cell in cells[1:]]
            assert set(columns) <= COLUMNS, columns
        elif columns:
            assert len(cells) == len(columns) + 1, line
            rows.append(Row(cells[0], dict(zip(columns, map(_read_cell, cells[1:]), strict=True))))
    return rows


def _read_cell(cell: str) -> tuple[str, str, str]:
    if cell == NEVER:
        return NEVER, "", ""
    if cell == "·":
        return "stays", "–", "–"
    end, answer, events = cell.replace("`", "").replace("**", "").split("<br>")
    return end, answer, events


ROWS = read_page(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []


@pytest.fixture(scope="module")
def stage(ground, _cleaner, django_db_blocker) -> Iterator[Stage]:
    """One database for all cells: they put away what they leave."""
    with django_db_blocker.unblock(), StubTarget() as stub, ground.connect_as_owner() as owner:
        yield Stage(stub, owner)
        _cleaner.execute("SELECT seed.clean()")


@pytest.mark.slow  # not one of them: two hundred plans are brought into their states
@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"[`,:]", "", row.name).replace(" ", "-") for row in ROWS])
def test_every_cell_of_the_row_is_as_the_page_says(row, stage, settings):
    settings.LOCK_WAIT = timedelta(milliseconds=100)  # who waits for a plan that is being committed
    pulled = TRIGGERS[row.name]
    wrong = []
    for state, cell in row.cells.items():
        if cell[0] == NEVER:
            continue
        scene = stage.set(state, pulled.given)
        found = scene.outcome(pulled.pull(scene))
        stage.strike(scene, found)
        if found != cell:
            wrong.append(f"{state}: the page says {cell}, and it was {found}")
    assert not wrong, "\n".join(wrong)


def test_the_page_and_the_triggers_name_the_same_rows():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert set(names) == set(TRIGGERS)


def test_every_row_is_about_every_state():
    for row in ROWS:
        assert set(row.cells) in ({state.value for state in State}, {"not known"}), row.name


def test_no_cell_leaves_the_table_of_moves():
    for row in ROWS:
        for state, (end, _answer, _events) in row.cells.items():
            if end not in (NEVER, "stays") and state != "not known":
                assert State(end.partition(" ")[0]) in _reachable(State(state)), (row.name, state, end)


def _reachable(state: State) -> set[State]:
    """Where a plan can come to; a trigger may take it through `committing`, and once unknown never back to pending."""
    found: set[State] = set()
    coming = set(MOVES.get(state, ()))
    while coming:
        found |= coming
        coming = {move for one in coming for move in MOVES.get(one, ())} - found
    return found - ({State.PENDING} if state is State.UNKNOWN else set())


# --- no door without a row ------------------------------------------------------------------------------------------

DOORS = frozenset(door for pulled in TRIGGERS.values() for door in pulled.doors)

USE_CASES = (
    "abandonment", "agent_commit", "arrival", "callbacks", "commit", "confirm", "expiry", "freshness", "hosted_commit",
    "intake", "plain_arrival", "policy_change", "recheck", "reconcile", "registry", "review",
)  # fmt: skip
"""The modules that change plans. Whatever else comes to end one belongs here, which a test below insists on."""

INSIDE = {
    "callbacks.queue": "news of a change, in its transaction",
    "commit.address": "reads", "commit.attempt_that_arrived": "a part of every commit that is found out later",
    "commit.check_fence": "reads", "commit.mark_unknown": "a part of every answer that proves nothing",
    "commit.remote_target": "reads", "commit.settle_attempt": "a part of every answer",
    "commit.start_attempt": "a part of every attempt",
    "commit.unavailable": "makes a refusal", "commit.unsend": "a part of every attempt that sent nothing",
    "confirm.difference_of": "reads", "arrival.record_plan": "a part of every intake",
    "arrival.make_key": "a part of every intake", "arrival.told_of": "a part of every intake",
    "plain_arrival.record_at_once": "a part of every intake",
    "arrival.refusal_for": "makes a refusal", "policy_change.newest_policy": "reads",
    "policy_change.approvals_under": "reads",
    "registry.create_agent": "has no plan yet",
    "registry.create_target": "has no plan yet", "registry.ensure_hosted_targets": "has no plan yet",
    "registry.present_address": "reads",
}  # fmt: skip
"""Public functions that are no triggers, and why."""

NO_PLAN = {
    "account_login": "who somebody is", "account_logout": "who somebody is", "settings": "how the desk looks",
    "agents": "makes one", "targets": "makes one", "people": "makes one",
    "streams": "makes one", "stream": "who is told of the log",
    "password": "who somebody is", "look": "how the desk looks", "notifications": "who is told of what",
    "audit-export": "reads", "audit-file": "reads", "audit-job": "reads", "audit-report": "reads",
    "audit-saved": "a search", "audit-saved-change": "a search", "audit-saved-search": "a search",
    "audit-stop": "ends a reading", "audit-verify": "reads",
    "demo_step": "plays an agent, at the doors above", "demo": "plays an agent, at the doors above",
    "mcp": "an agent's tools, which go through the doors above",
}  # fmt: skip
"""Doors for people that take POST and touch no plan, and why."""


def test_every_door_for_machines_has_a_row():
    views = {pattern.callback.__name__ for pattern in urls.urlpatterns if isinstance(pattern, URLPattern)}
    assert len(views) > 10
    assert views - {"feed"} <= DOORS
    kinds = re.findall(r'case "([a-z.]+)"', inspect.getsource(webhook))
    assert len(kinds) == 4
    assert {f"feed {kind}" for kind in kinds} <= DOORS


def test_every_door_for_people_that_takes_a_post_has_a_row(stage):
    person = make_person("reviewer", "auditor", "admin")
    taken = set()
    for name, address in _addresses(get_resolver().url_patterns):
        answer = client_of(person, raise_request_exception=False).post(address)
        if answer.status_code != 405:
            taken.add(name)
    assert {"plan-approve", "plan-reject", "plan-settle", "plan-replan"} <= taken
    assert taken - NO_PLAN.keys() <= DOORS


def _addresses(patterns: list[Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Name and a made-up address of every page for people."""
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.url_patterns is not urls.urlpatterns:
                yield from _addresses(pattern.url_patterns, route)
        else:
            yield pattern.name or route, "/" + re.sub(r"<int:\w+>", "1", re.sub(r"<(?!int)[^>]*>", "x", route))


def test_every_sweep_has_a_row():
    named = [task.name for task in vars(tasks).values() if hasattr(task, "delay")]
    sweeps = {f"task {name}" for name in named}
    assert len(sweeps) > 5
    assert sweeps <= DOORS


def test_every_use_case_has_a_row():
    found = set()
    for name in USE_CASES:
        module = importlib.import_module(f"plans.{name}")
        found |= {
            f"{name}.{function}"
            for function, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not function.startswith("_")
        }
    assert found - DOORS == INSIDE.keys()


def test_nothing_else_ends_a_plan():
    for path in Path(ending.__file__).parent.glob("*.py"):
        if re.search(r"\bending\.|from plans\.ending", path.read_text(encoding="utf-8")):
            assert path.stem in USE_CASES, path
