"""The harness itself: a sample of it in every full test run, that it can be lived again, and that its judge bites."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reviewer.installation import PROJECT
from tests.faults.mutations import MUTATIONS, Mutation, mutated_copy, run_in

SEED = "20261202"


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_nothing_is_lost_doubled_or_stuck_in_a_minute_of_faults(tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    words = [sys.executable, "-m", "tests.faults", "--seconds", "60", "--threads", "12", "--json", str(verdict)]
    done = subprocess.run(words, cwd=PROJECT, env=_clean(), capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "seed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_judge_convicts_an_engine_without(mutation: Mutation, tmp_path: Path) -> None:
    folder = mutated_copy(mutation, tmp_path)
    code, failures, said = run_in(folder, "--small", "--threads", "8", *mutation.arguments, seconds=10, seed=SEED)
    assert code == 1, said[-4000:]
    assert any(sign in failure for failure in failures for sign in mutation.found_by), failures or said[-4000:]


def test_the_settings_of_an_installation_hold_no_hook_whatever_the_environment_says() -> None:
    environ = {**os.environ, "FAULTS_CONTROL": "/tmp/somewhere", "FAULT_HOOK": "tests.faults.hook.reach"}
    asked = "from django.conf import settings; print(settings.FAULT_HOOK)"
    for module in ("reviewer.settings", "tests.faults.settings"):
        done = subprocess.run(
            [sys.executable, "-c", asked], cwd=PROJECT, env={**environ, "DJANGO_SETTINGS_MODULE": module},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (done.stdout.strip() == "None") is (module == "reviewer.settings")


def test_a_hook_can_only_come_from_settings_of_the_tests_own() -> None:
    source = (PROJECT / "reviewer" / "settings.py").read_text()
    assert [line for line in source.splitlines() if "FAULT" in line and "DEFAULT" not in line] == [
        "FAULT_HOOK = None  # no environment sets it: what breaks the desk on purpose brings settings of its own"
    ]


def _clean() -> dict[str, str]:
    """Nothing of the test run's own installation."""
    ours = {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "SEAL_KEYS", "DJANGO_SETTINGS_MODULE"}
    return {name: value for name, value in os.environ.items() if name not in ours}
