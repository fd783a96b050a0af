"""The SDK stands alone: no server package is imported, and its example runs."""

import doctest
import subprocess
import sys
from pathlib import Path

import plans.agent
from tests.plans.agent.scripted_desk import API_KEY, ScriptedDesk

ROOT = Path(__file__).parents[3]

WITHOUT_SERVER = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"django", "celery", "psycopg", "redis", "cryptography", "rfc8785", "allauth"}:
            raise ImportError(name + " is not part of the SDK")

sys.meta_path.insert(0, Blocked())
import plans.agent
allowed = {"plans", "plans.identifiers", "plans.instants", "plans.signatures", "plans.states", "plans.strict_json"}
ours = {name for name in sys.modules if name == "plans" or name.startswith(("plans.", "audit", "reviewer"))}
extra = {name for name in ours if not name.startswith("plans.agent")} - allowed
sys.exit(str(sorted(extra)) if extra else 0)
"""


def test_it_imports_without_django_celery_psycopg_and_the_rest_of_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SERVER], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_in_its_documentation_runs(base_url: str, server: ScriptedDesk, folder: Path) -> None:
    names = {"base_url": base_url, "api_key": API_KEY, "folder": folder}
    example = doctest.DocTestParser().get_doctest(plans.agent.__doc__ or "", names, "plans.agent", None, None)
    assert len(example.examples) > 4
    runner = doctest.DocTestRunner()
    runner.run(example)
    assert runner.summarize().failed == 0
    assert server.ended_tasks == ["ticket-9913", "ticket-9914"]


def test_it_is_typed_and_exports_what_it_names() -> None:
    assert (Path(plans.agent.__file__).parent / "py.typed").exists()
    assert sorted(plans.agent.__all__) == plans.agent.__all__
    assert not [name for name in plans.agent.__all__ if not hasattr(plans.agent, name)]
