"""The distribution, built and installed without its extras into an environment of its own, is a working agent."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plans import registry
from plans.demo.models import Customer
from plans.models import Plan as Row
from reviewer.installation import PROJECT
from tests import makers
from tests.fixtures import Site
from tests.plans.demo.makers import make_invoice


def run(*command: str | Path, **environ: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True, text=True, timeout=170, check=False, env={**os.environ, **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a fresh environment that holds the distribution and its base dependencies."""
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in ("audit", "plans", "reviewer"):
        shutil.copytree(PROJECT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source / name)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", wheels, source)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    [wheel] = wheels.glob("plandesk-*.whl")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel)
    return python


@pytest.mark.slow
def test_installed_with_its_base_dependencies_alone_it_plans_commits_and_ends(
    site: Site, python: Path, tmp_path: Path
) -> None:
    installed = run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").splitlines()
    names = {line.split("==")[0] for line in installed} - {"pip", "setuptools", "wheel"}
    assert names == {"plandesk", "msgspec", "urllib3"}
    registry.ensure_hosted_targets()
    make_invoice()
    made = registry.create_agent(name="refund-bot", owner=makers.make_person("admin"), targets=["billing"])
    script = tmp_path / "agent.py"
    shutil.copy(PROJECT / "tests" / "plans" / "agent" / "installed_agent.py", script)
    said = run(
        python, "-W", "error", script, tmp_path / "state", DESK=site.url, DESK_API_KEY=made.api_key, PYTHONPATH=""
    )
    assert said == "the whole flow\n"
    assert Customer.objects.get(pk="77").address == "2 Harbour Street"
    states = Row.objects.order_by("received_at").values_list("state", flat=True)
    assert sorted(states) == ["abandoned", "abandoned", "abandoned", "committed"]
