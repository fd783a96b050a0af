"""What docs/frameworks.md shows works as it stands there, against the real desk."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plans.agent.outcomes import Outcome
from plans.agent.toolbox import NEXT, OWN_TOOLS
from plans.demo.models import Customer, Invoice
from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.plans.agent.tooling import MOVE, approve, bot, rows
from tests.plans.mcp.over_http import headers_for, tool_call

__all__ = ["bot"]

GUIDE = (PROJECT / "docs" / "frameworks.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", GUIDE, re.DOTALL))
MODELS = {"langchain": "for_langchain", "openai": "for_openai_agents", "pydantic": "for_pydantic_ai"}


def start(example: str, site: Site, bot: makers.MadeAgent, folder: Path) -> "subprocess.Popen[str]":
    code = EXAMPLES[example].replace('agent="refund-bot"', 'agent="bot"')
    if made := MODELS.get(example):
        code = f"from tests.plans.agent.scripted_models import {made}\nmodel = {made}()\n{code}"
    environ = {
        **os.environ,
        "DESK": site.url,
        "DESK_API_KEY": bot.api_key,
        "PYTHONPATH": str(PROJECT),
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    command = [sys.executable, "-u", "-c", code]
    return subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_every_example_of_the_guide_has_a_test() -> None:
    assert len(EXAMPLES) == len(re.findall(r"```(?:python|json)\n", GUIDE))
    assert set(EXAMPLES) == {*MODELS, "configuration", "mounted", "toolbox"}


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(MODELS))
def test_the_example_pauses_for_the_decision_and_writes_once(
    site: Site, bot: makers.MadeAgent, tmp_path: Path, example: str
) -> None:
    with start(example, site, bot, tmp_path) as agent:
        assert agent.stdout is not None
        rescue = threading.Timer(60, agent.kill)  # whatever goes wrong here, it does not wait for ten minutes
        rescue.start()
        said = agent.stdout.readline()
        if said.startswith("a person decides at http"):
            approve(rows()[0].plan_id)
        said, err = agent.communicate(timeout=60)
        rescue.cancel()
    assert (agent.returncode, said) == (0, "committed\n"), err
    assert [row.state for row in rows()] == ["committed"]
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_the_example_without_a_framework_writes_once(site: Site, bot: makers.MadeAgent, tmp_path: Path) -> None:
    with start("toolbox", site, bot, tmp_path) as agent:
        assert agent.communicate(timeout=60) == ("committed\n", "")
    assert Customer.objects.get(pk="77").address == "6 Quay"


def test_the_configuration_names_what_the_server_reads() -> None:
    server = json.loads(EXAMPLES["configuration"])["mcpServers"]["plandesk"]
    assert server["args"] == ["-m", "plans.mcp"]
    assert set(server["env"]) == {"DESK", "DESK_API_KEY", "DESK_AGENT"}


def test_the_other_configuration_leads_to_the_desks_own_server(site: Site, bot: makers.MadeAgent) -> None:
    server = json.loads(EXAMPLES["mounted"])["mcpServers"]["plandesk"]
    assert set(server["headers"]) == {"Authorization", "Plandesk-Task"}
    url = server["url"].replace("https://desk.example", site.url)
    headers = {**server["headers"], "Authorization": server["headers"]["Authorization"].replace("...", bot.api_key)}
    sent = tool_call("address_update_dry_run", MOVE)
    answer = site.http.request("POST", url, json=sent, headers={**headers_for(sent, bot.api_key), **headers})
    assert answer.json()["result"]["structuredContent"]["outcome"] == "planned"
    assert [row.task.task_id for row in rows()] == ["ticket-9913"]


def test_what_the_guide_names_and_links_to_is_there() -> None:
    for link in re.findall(r"\]\(((?!http)[^)#]+)", GUIDE):
        assert (PROJECT / "docs" / link).exists()
    for tool in OWN_TOOLS:
        assert f"`{tool.name}({', '.join(tool.schema['properties'])})`" in GUIDE
    for outcome in NEXT.keys() - {"unsure"}:
        assert f"`{outcome}`" in GUIDE
    assert {kind.__name__.lower() for kind in Outcome.__args__} <= NEXT.keys()
