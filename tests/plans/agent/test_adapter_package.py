"""The adapters and the MCP server need their framework and the SDK, and nothing of the server."""

import subprocess
import sys

import pytest

from reviewer.installation import PROJECT

FRAMEWORKS = {
    "plans.agent.toolbox": set(),
    "plans.agent.langchain": {"langchain_core", "langgraph"},
    "plans.agent.openai_agents": {"agents", "openai"},
    "plans.agent.pydantic_ai": {"pydantic_ai"},
    "plans.mcp.__main__": {"mcp"},
}

ALONE = """
import importlib, sys
name, others = sys.argv[1], set(sys.argv[2].split(","))

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"django", "celery", "psycopg", "redis", "reviewer", "audit"}:
            raise ImportError(name + " is not part of the SDK")

sys.meta_path.insert(0, Blocked())
importlib.import_module(name)
sys.exit(str(sorted(others & sys.modules.keys())) if others & sys.modules.keys() else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_imports_without_the_server_and_without_the_other_frameworks(name: str) -> None:
    others = set.union(*FRAMEWORKS.values()) - FRAMEWORKS[name]
    if name == "plans.agent.openai_agents":
        others -= {"mcp"}  # that SDK needs it itself
    command = [sys.executable, "-c", ALONE, name, ",".join(others)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
