"""`manage.py up` on a PostgreSQL and a Redis that somebody else runs, and what is said of those that will not do."""

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from reviewer.installation import OWNER_ROLE, PROJECT
from tests.ground import free_port
from tests.reviewer.ups import clean_environ, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Urls = dict[str, str]
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


@pytest.fixture
def make_database(ground) -> Iterator[Callable[[str], Urls]]:
    """Databases of their own on the tests' PostgreSQL, each as the two roles' addresses."""
    made: list[str] = []

    def make(options: str = "") -> Urls:
        name = f"plandesk_{secrets.token_hex(4)}"
        with ground.connect_as_owner("postgres") as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {OWNER_ROLE} {options}")
        made.append(name)
        urls = ground.installation.database_urls()
        return {key: url.replace("@/plandesk?", f"@/{name}?") for key, url in urls.items()}

    yield make
    with ground.connect_as_owner("postgres") as connection:
        for name in made:
            deadline = time.monotonic() + 20
            while connection.execute(SESSIONS, [name]).fetchone() != (0,):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            connection.execute(f"DROP DATABASE {name}")


def command(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT,
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_a_desk_on_servers_of_somebody_else_serves_and_sweeps_and_its_commands_find_it(ground, start_up, make_database):
    urls = make_database()
    redis = f"{ground.installation.redis_url()}?db=15"
    up = start_up(**urls, REDIS_URL=redis)
    up.wait_until_served()
    assert up.get("/healthz").status == 200
    assert not (up.data / "postgres").exists()
    created = command("person", "create", "ada@example.com", "--role", "admin", "--data", str(up.data), **urls)
    assert created.returncode == 0, created.stderr
    deadline = time.monotonic() + 60
    with ground.connect_as_owner(urls["DATABASE_URL"].partition("@/")[2].partition("?")[0]) as connection:
        while connection.execute("SELECT count(*) FROM audit_event").fetchone() == (0,):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        while connection.execute("SELECT count(*) FROM audit_pending").fetchone() != (0,):
            assert time.monotonic() < deadline, "the sequencer works on this database too"
            time.sleep(0.1)
    assert up.stop() == 0


def test_two_databases_are_refused(folder, make_database):
    one, other = make_database(), make_database()
    said = refusal(
        "--data", str(folder / "data"), "--port", str(free_port()),
        DATABASE_URL=one["DATABASE_URL"], DATABASE_OWNER_URL=other["DATABASE_OWNER_URL"],
    )  # fmt: skip
    assert said == "DATABASE_URL and DATABASE_OWNER_URL name two databases; they must be two roles of one."


def test_another_encoding_is_refused(folder, make_database):
    urls = make_database("ENCODING 'LATIN1' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    said = refusal("--data", str(folder / "data"), "--port", str(free_port()), **urls)
    assert said == "DATABASE_URL: the database's encoding must be UTF8; this one's is LATIN1."


def test_an_owner_who_may_not_create_tables_is_refused(folder, ground, make_database):
    urls = make_database()
    restricted = urls | {"DATABASE_OWNER_URL": urls["DATABASE_URL"]}
    said = refusal("--data", str(folder / "data"), "--port", str(free_port()), **restricted)
    expected = "this role may not create tables in schema public; make it the database's owner."
    assert said == f"DATABASE_OWNER_URL: {expected}"


def test_an_owner_without_the_application_is_refused(folder, make_database):
    urls = make_database()
    where = ("--data", str(folder / "data"), "--port", str(free_port()))
    said = refusal(*where, DATABASE_OWNER_URL=urls["DATABASE_OWNER_URL"])
    assert said == "DATABASE_OWNER_URL is set and DATABASE_URL is not: set both, or neither."


def test_a_hosted_app_that_cannot_be_loaded_is_one_sentence(folder):
    said = refusal("--data", str(folder / "data"), "--port", str(free_port()), HOSTED_APPS="nope")
    assert said == "HOSTED_APPS: nope cannot be loaded: ModuleNotFoundError: No module named 'nope'"


def test_a_hosted_app_whose_tables_nobody_makes_serves_nothing(folder, start_up):
    app = folder / "stock"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "models.py").write_text(
        "from django.db import models\n\n\nclass Item(models.Model):\n    sku = models.CharField(max_length=32)\n"
    )
    up = start_up(HOSTED_APPS="stock", PYTHONPATH=str(folder))
    assert up.process.wait(90) != 0
    said = up.output.read_text()
    assert "the models of stock are not all in its migrations; run `manage.py makemigrations stock` first." in said
    assert "Plandesk serves at" not in said
    assert "Traceback" not in said


def test_what_is_hosted_is_remembered_for_other_commands(folder, start_up):
    app = folder / "shelf"
    app.mkdir()
    (app / "__init__.py").write_text("")
    up = start_up(HOSTED_APPS="shelf", PYTHONPATH=str(folder))
    up.wait_until_served()
    assert "HOSTED_APPS=shelf\n" in (up.data / "env").read_text()
    refused = command("person", "create", "ada@example.com", "--role", "admin", "--data", str(up.data))
    assert "shelf" in refused.stderr, "the app is loaded, and is not on this command's path"


def test_a_command_without_a_desk_is_one_sentence(folder):
    nowhere = str(folder / "nothing")
    done = command("person", "list", "--data", nowhere)
    assert done.stderr.strip() == f"There is no installation in {nowhere}; `manage.py up --data {nowhere}` makes one."
    done = command(
        "agent", "pause", "bot",
        DATABASE_URL="postgresql://desk:hunter22@127.0.0.1:1/desk", SECRET_KEY="k" * 40, SEAL_KEYS="A" * 43 + "=",
    )  # fmt: skip
    assert done.returncode != 0
    assert "does `manage.py up` run?" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter22" not in done.stderr
