"""The suite for targets: it passes the servers that keep the contract, and catches each wrong one by its rule."""

import ast
import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plans.conformance.config import Config, ConfigError, make_config
from plans.conformance.report import Result
from plans.conformance.rules import RULES
from plans.conformance.run import try_target
from reviewer.installation import PROJECT
from tests.conformance.two_phase import BEARER, Notes, example, serving
from tests.ground import free_port
from tests.racing import wait_until

SLOW_RULES = {"expiry", "replay-after-expiry"}

WRONG: list[tuple[str, set[str], tuple[tuple[str, str], ...]]] = [
    ("writes what moved", {"stale-inputs", "rivals", "fence"}, (
        ("current) != plan[\"fingerprint\"]", "current) == 0"),)),
    ("does not say what changed", {"stale-inputs"}, ((', "changed": moved}', "}"),)),
    ("calls a conflict something else", {"stale-inputs"}, (
        ('return "conflicted", 409,', 'return "conflicted", 422,'),)),
    ("commits what has expired", {"expiry"}, (("if datetime.now(UTC) >= datetime", "if False and datetime"),)),
    ("calls an expiry a conflict", {"expiry"}, (('return "expired", 410,', 'return "expired", 409,'),)),
    ("forgets answers at the expiry", {"replay-after-expiry"}, (
        ('if plan["state"] != "pending":', ('if plan["expires_at"] < datetime.now(UTC).isoformat():\n'
         '        raise Refusal(410, "expired")\n    if plan["state"] != "pending":')),)),
    ("answers a replay otherwise", {"replay", "replay-after-expiry"}, (
        ('return plan["status"], json.loads(plan["answer"])', 'return 200, {"again": True}'),)),
    ("writes again under another key", {"replay-other-key"}, (
        ('if plan["state"] != "pending":', ('if plan["state"] == "committed" and key != plan["idempotency_key"]:\n'
         '        db.execute("INSERT INTO written VALUES (1)")\n    if plan["state"] != "pending":')),)),
    ("takes one key for two plans", {"key-reuse"}, (
        ('if bound and bound[0] != plan["plan_id"]:\n        raise Refusal(422, "key-reused")',
         'if bound and bound[0] != plan["plan_id"]:\n        key = key + "x"'),)),
    ("needs no key", {"key-required"}, (('    if not key:\n        raise Refusal(400, "key-required")\n', ""),)),
    ("needs no fingerprint", {"fingerprint-required"}, (
        ('raise Refusal(428, "fingerprint-required")', ('body = {**body, "input_fingerprint": db.execute('
         '"SELECT fingerprint FROM plan WHERE token_hash = ?", [hashed(body["plan_token"])]).fetchone()[0]}'
         ' if isinstance(body.get("plan_token"), str) else body')),)),
    ("takes any fingerprint", {"fingerprint-mismatch"}, (
        ('if body["input_fingerprint"] != plan["fingerprint"]:', "if False:"),)),
    ("ends a plan for a wrong fingerprint", {"fingerprint-mismatch"}, (
        ('raise Refusal(412, "fingerprint-mismatch")',
         ('db.execute("DELETE FROM plan WHERE plan_id = ?", [plan["plan_id"]])\n        '
         'return 412, {"type": "fingerprint-mismatch"}')),)),
    ("answers an unknown token with success", {"unknown-token"}, (
        ('raise Refusal(404, "never-planned")', "return 200, {}"),)),
    ("takes inputs with a commit", {"no-inputs"}, (
        ('all(isinstance(value, str) for value in body.values())', 'isinstance(body.get("plan_token"), str)'),
        ('if set(body) != {"plan_token", "input_fingerprint"}:', "if False:"))),
    ("takes duplicate members", {"odd-bodies"}, (("if len(dict(pairs)) != len(pairs):", "if False:"),
        ("return dict(pairs)", "return dict(reversed(pairs))"))),
    ("fails at what is no object", {"odd-bodies"}, (("not isinstance(body, dict) or ", ""),)),
    ("commits half a request", {"lost-request"}, (
        ('raise Refusal(400, "malformed")\n        try:',
         'db.execute("INSERT INTO written VALUES (2)")\n            return 200, {}\n        try:'),)),
    ("writes in a dry run", {"dry-run"}, (
        ('    action = {"op"', '    db.execute("INSERT INTO written VALUES (3)")\n    action = {"op"'),)),
    ("does not tell what was committed", {"state"}, (('"state": plan["state"]', '"state": "pending"'),)),
    ("knows every plan", {"state"}, (
        ('raise Refusal(404, "unknown-plan")', 'return 200, {"plan_id": plan_id, "state": "pending"}'),)),
    ("lets anybody commit", {"credentials"}, (('!= "Bearer desk"', '== "nobody"'),)),
    ("shows the token", {"secrets"}, (
        ('raise Refusal(428, "fingerprint-required")',
         'raise Refusal(428, "fingerprint-required", detail=f"for {body.get(\'plan_token\')}")'),)),
    ("reads for a plan before it waits for a commit, and hashes after", {"fence"}, (
        ('db.execute("BEGIN IMMEDIATE")', 'db.execute("BEGIN IMMEDIATE") if "dry-run" not in self.path else 0'),
        ('    print_of_it = fingerprint(inputs["account"], inputs["note"], found[0])',
         ('    db.execute("BEGIN IMMEDIATE")\n    now = db.execute("SELECT note FROM account").fetchone()\n'
          '    print_of_it = fingerprint(inputs["account"], inputs["note"], now[0])')),
        ('    db.execute("UPDATE account', '    __import__("time").sleep(0.2)\n    db.execute("UPDATE account'))),
    ("locks nothing", {"duplicates", "rivals", "lost-answer"}, (
        ('db.execute("BEGIN IMMEDIATE")', "pass"), ('db.execute("COMMIT")', "pass"),
        ('    db.execute("UPDATE account', '    __import__("time").sleep(0.4)\n    db.execute("UPDATE account'))),
]  # fmt: skip


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("NOTES_BEARER", BEARER)
    return make_config(tomllib.loads(example("notes.toml")))


def broken(results: list[Result]) -> dict[str, str]:
    return {one.rule: one.detail for one in results if one.verdict != "passed"}


@pytest.mark.slow
def test_the_documented_server_keeps_every_rule(config: Config, tmp_path: Path) -> None:
    with serving(tmp_path / "notes.db") as url:
        results = try_target(url, config, Notes(tmp_path / "notes.db"))
    assert broken(results) == {}
    assert [one.rule for one in results] == [name for name, _ in RULES]


@pytest.mark.slow
@pytest.mark.parametrize(("flaw", "rules", "changes"), WRONG, ids=[flaw for flaw, _, _ in WRONG])
def test_a_server_that_is_wrong_in_one_way_is_caught_by_exactly_the_rules_it_breaks(
    flaw: str, rules: set[str], changes: tuple[tuple[str, str], ...], config: Config, tmp_path: Path
) -> None:
    tried = {name for name, _ in RULES if name not in SLOW_RULES or rules & SLOW_RULES}
    with serving(tmp_path / "notes.db", changes) as url:
        results = try_target(url, config, Notes(tmp_path / "notes.db"), tried)
    assert set(broken(results)) == rules, broken(results)


def test_a_rule_without_means_is_not_run_and_says_what_it_lacks(config: Config, tmp_path: Path) -> None:
    class Closed(Notes):
        can_move = can_count = False

    with serving(tmp_path / "notes.db") as url:
        found = broken(try_target(url, config, Closed(tmp_path / "notes.db"), {"stale-inputs", "replay-other-key"}))
    assert set(found) == {"stale-inputs", "replay-other-key"}
    assert "world.move" in found["stale-inputs"]
    assert "world.count" in found["replay-other-key"]


def run(url: str, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    said = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None); "
    said += "print(db.execute(sys.argv[2]).fetchone()[0] if sys.argv[2][0] == 'S' else db.execute(sys.argv[2]) and 0)"
    text = example("notes.toml").replace(
        '"sqlite3", "notes.db"', json.dumps([sys.executable, "-c", said])[1:-1] + ', "F"'
    )
    (tmp_path / "notes.toml").write_text(text.replace('"F"', json.dumps(str(tmp_path / "notes.db"))))
    command = [sys.executable, "-m", "plans.conformance", "target", url, "--config", str(tmp_path / "notes.toml")]
    return subprocess.run(
        [*command, *more], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False,
        env={"NOTES_BEARER": BEARER, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_what_ci_reads(tmp_path: Path) -> None:
    outputs = ["--junit", str(tmp_path / "out.xml"), "--json", str(tmp_path / "out.json")]
    only = ["--only", "commit", "--only", "stale-inputs"]
    with serving(tmp_path / "notes.db") as url:
        done = run(url, tmp_path, *outputs, *only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 passed, 0 failed, 0 not run" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["conformant"] is True
    assert ElementTree.parse(tmp_path / "out.xml").getroot().attrib["tests"] == "2"


@pytest.mark.slow
def test_the_commands_exit_status_tells_a_broken_rule_from_a_run_that_could_not_be_made(tmp_path: Path) -> None:
    with serving(tmp_path / "notes.db", ((', "changed": moved}', "}"),)) as url:
        done = run(url, tmp_path, "--only", "stale-inputs", "--junit", str(tmp_path / "out.xml"))
        assert done.returncode == 1
        assert "does not say what changed" in done.stdout
        assert ElementTree.parse(tmp_path / "out.xml").find("testcase/failure") is not None
    (tmp_path / "empty").mkdir()
    missing = [sys.executable, "-m", "plans.conformance", "target", url, "--config", str(tmp_path / "none.toml")]
    done = subprocess.run(missing, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.toml cannot be read" in done.stderr


@pytest.mark.slow
def test_the_documented_program_runs_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "two_phase.py").write_text(example("two_phase.py"))
    port = free_port()
    command = [sys.executable, "two_phase.py", "notes.db", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: is_open(port), what="the server")
            done = run(f"http://127.0.0.1:{port}", tmp_path, "--only", "commit", "--only", "fence")
        finally:
            server.terminate()
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 passed, 0 failed, 0 not run" in done.stdout


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_every_sketch_is_at_least_python() -> None:
    text = (PROJECT / "docs" / "targets.md").read_text()
    sketches = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(sketches) == 3
    for sketch in sketches:
        ast.parse(sketch)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"status": {"path": "/plans"}}, "{plan_id}"), ({"wold": {}}, "wold"), ({"commit": {}}, "path")],
)
def test_a_wrong_configuration_is_named(changes: dict[str, Any], said: str) -> None:
    members = tomllib.loads(example("notes.toml")) | changes
    with pytest.raises(ConfigError, match=said):
        make_config(members)


def test_a_missing_bearer_is_named_and_never_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTES_BEARER", raising=False)
    with pytest.raises(ConfigError, match="NOTES_BEARER"):
        try_target("http://127.0.0.1:9", make_config(tomllib.loads(example("notes.toml"))), Notes(tmp_path / "x"))


def test_the_suite_needs_no_django() -> None:
    code = "import sys, plans.conformance.__main__; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, timeout=60, check=False).returncode == 0
