"""The suite for agents: our SDK keeps every rule, and each wrong agent is caught by exactly the rule it breaks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from plans import tools
from plans.conformance.config import ConfigError
from plans.conformance.driving import drive, try_agent
from plans.conformance.judge import RULES
from plans.conformance.offered import TOOLS as TOOLS_OF_THE_SCRIPT
from plans.conformance.report import Result
from plans.conformance.scenarios import SCENARIOS, Scenario
from plans.targets.operations import operations
from reviewer.installation import PROJECT

HERE = Path(__file__).parent
KEEPING = [sys.executable, str(HERE / "keeping_agent.py")]
RAW = [sys.executable, str(HERE / "raw_agent.py")]
TOOLS = [sys.executable, str(HERE / "tool_agent.py")]

WRONG: list[tuple[str, str, list[str]]] = [
    ("plans and ends", "runs", ["conflict", "refusal", "human-pause", "later-turn"]),
    ("plans again and ends", "runs", ["conflict"]),
    ("makes a fresh key for a retry", "key", ["timeout-before", "timeout-after"]),
    ("has one key for all plans", "key", ["conflict"]),
    ("plans anew while the outcome is unknown", "no-replan", ["timeout-before", "timeout-after"]),
    ("gives up without an answer", "finds-out", ["timeout-before", "timeout-after"]),
    ("commits past the expiry", "in-time", ["expiry", "human-pause"]),
    ("sends inputs with a commit", "no-inputs", ["conflict"]),
    ("computes the fingerprint", "verbatim", ["conflict"]),
    ("commits after its own write", "own-write", ["dirty-input"]),
    ("commits after the task's end", "task-end", ["task-end"]),
    ("ends and says nothing", "says-so", ["task-end", "later-turn"]),
    ("keeps tokens for later turns", "old-token", ["later-turn"]),
    ("prints the plan", "secrets", ["conflict"]),
    ("retries after a conflict", "conflict", ["conflict"]),
    ("gives up what has to be planned again", "plans-again", ["conflict", "human-pause"]),
    ("commits what is done again", "done", ["conflict"]),
    ("does what is done again by a new plan", "done", ["conflict"]),
    ("tries what was refused again", "stops", ["refusal"]),
    ("asks again by committing", "waits", ["human-pause"]),
]

SCENARIO_NAMES = [one.name for one in SCENARIOS]

WHOLE = {"in-time", "no-inputs", "says-so", "old-token"}
"""Rules whose flaw is taken through every scenario: it breaks nothing else anywhere."""


@pytest.fixture(autouse=True)
def project_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))


def broken(results: list[Result]) -> dict[str, str]:
    return {one.rule: one.detail for one in results if one.verdict == "failed"}


def not_run(results: list[Result]) -> set[str]:
    return {one.rule for one in results if one.verdict == "not run"}


@pytest.mark.slow
def test_an_agent_on_our_sdk_keeps_every_rule() -> None:
    results = try_agent(KEEPING)
    assert broken(results) == {}
    assert not_run(results) == set()
    assert [one.rule for one in results] == [name for name, _ in RULES]


@pytest.mark.slow
def test_a_raw_agent_that_follows_the_contract_keeps_every_rule() -> None:
    results = try_agent(RAW)
    assert broken(results) == {}
    assert not_run(results) == set()


@pytest.mark.slow
def test_an_agent_that_asks_the_scripted_desk_for_its_tools_keeps_every_rule() -> None:
    desk_alone = [name for name in SCENARIO_NAMES if name != "human-pause"]  # what people approve is fed there
    results = try_agent(TOOLS, desk_alone)
    assert broken(results) == {}
    assert not_run(results) == {"waits"}


def test_the_scripted_desk_publishes_the_tools_that_a_real_desk_does() -> None:
    real = [operation for operation in operations() if operation.name == "address.update"]
    published = json.loads(msgspec.json.encode(tools.tools_of(real)))
    assert without_prose(TOOLS_OF_THE_SCRIPT) == without_prose(published)


def without_prose(node: Any) -> Any:
    if isinstance(node, list):
        return [without_prose(one) for one in node]
    if isinstance(node, dict):
        return {name: without_prose(one) for name, one in node.items() if name != "description"}
    return node


@pytest.mark.slow
@pytest.mark.parametrize(("flaw", "rule", "where"), WRONG, ids=[flaw for flaw, _, _ in WRONG])
def test_an_agent_that_is_wrong_in_one_way_is_caught_by_exactly_the_rule_it_breaks(
    flaw: str, rule: str, where: list[str]
) -> None:
    found = broken(try_agent([*RAW, flaw], SCENARIO_NAMES if rule in WHOLE else where))
    assert set(found) == {rule}, found
    assert all(f"{name}:" in found[rule] for name in where), found


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one.name != "later-turn"], ids=lambda one: one.name)
def test_each_scenario_ends_with_exactly_the_write_it_is_about(scenario: Scenario) -> None:
    seen = drive(KEEPING, scenario)
    wanted = 0 if scenario.name in ("task-end", "refusal") else 1
    assert len(seen.script.writes) == wanted


def test_every_rule_has_an_agent_that_breaks_it() -> None:
    assert {rule for _, rule, _ in WRONG} == {name for name, _ in RULES}


def test_an_agent_that_does_nothing_and_one_that_never_ends_pass_nothing() -> None:
    idle = broken(try_agent([sys.executable, "-c", "raise SystemExit('no model is configured')"], ["conflict"]))
    assert set(idle) == {"runs"}
    assert "exit status 1): no model is configured" in idle["runs"]
    endless = broken(try_agent([sys.executable, "-c", "import time; time.sleep(60)"], ["conflict"], seconds=0.5))
    assert set(endless) == {"runs"}
    assert "was killed" in endless["runs"]


def test_the_last_words_of_an_agent_are_not_shown_where_they_hold_a_secret() -> None:
    code = "import os; raise SystemExit('key: ' + os.environ['DESK_API_KEY'])"
    found = broken(try_agent([sys.executable, "-c", code], ["conflict"]))
    assert set(found) == {"runs", "secrets"}
    assert "pk_" not in "".join(found.values())


def test_a_command_that_cannot_be_started_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot be started"):
        try_agent(["/nowhere/agent"], ["conflict"])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plans.conformance", "agent", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_command_prints_a_table_writes_what_ci_reads_and_exits_by_result(tmp_path: Path) -> None:
    outputs = ["--junit", str(tmp_path / "out.xml"), "--json", str(tmp_path / "out.json"), "--only", "conflict"]
    done = run(*outputs, "--", *RAW)
    assert (done.returncode, done.stderr) == (0, "")
    assert "passed   conflict" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["conformant"] is True
    done = run(*outputs, "--", *RAW, "retries after a conflict")
    assert done.returncode == 1
    assert "was sent again after 409" in done.stdout
    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept["conformant"] is False
    assert kept["command"].endswith("'retries after a conflict'")
    case = ElementTree.parse(tmp_path / "out.xml").find("testcase[failure]")
    assert case is not None
    assert case.attrib["classname"] == "agent"


def test_the_commands_exit_status_tells_a_run_that_could_not_be_made() -> None:
    for arguments, said in ((["--"], "after --"), (["--", "/nowhere/agent"], "cannot be started")):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
