"""Settings come from the environment, and a bad value stops the start with one sentence."""

import base64
import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.views.debug import get_exception_reporter_filter

from reviewer.environment import Environment, broker_url
from reviewer.installation import PROJECT, Account, Installation, take_data_option
from reviewer.models import Person

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(32)).decode()


def environment(**values):
    return Environment(values)


@pytest.mark.parametrize(
    ("method", "values", "sentence"),
    [
        ("secret_key", {}, "SECRET_KEY is not set"),
        ("secret_key", {"SECRET_KEY": "hunter2"}, "SECRET_KEY is too short"),
        ("seal_keys", {}, "SEAL_KEYS is not set"),
        ("seal_keys", {"SEAL_KEYS": "%%%"}, "SEAL_KEYS: key 1 is not base64"),
        ("seal_keys", {"SEAL_KEYS": f"{KEY},c2hvcnQ="}, "SEAL_KEYS: key 2 has 5 bytes and needs 32"),
        ("seal_keys", {"SEAL_KEYS": f"{KEY},{KEY}"}, "SEAL_KEYS holds the same key twice"),
        ("base_url", {"BASE_URL": "desk.example.com"}, "BASE_URL must look like"),
        ("base_url", {"BASE_URL": "https://desk.example.com/path"}, "BASE_URL must look like"),
        ("redis", {"REDIS_URL": "http://localhost"}, "REDIS_URL must start with"),
    ],
)
def test_a_bad_value_is_one_sentence_without_the_value_of_a_secret(method, values, sentence):
    with pytest.raises(ImproperlyConfigured, match=sentence) as refused:
        getattr(environment(**values), method)()
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("value", ["-1", "0", "1.5", "ten", "99999999999", "१०"])
def test_a_duration_is_whole_seconds(value):
    with pytest.raises(ImproperlyConfigured, match="PLAN_LIFETIME must be a whole number"):
        environment(PLAN_LIFETIME=value).seconds("PLAN_LIFETIME", 600)


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("true", True), ("0", False), ("", False), ("off", False)])
def test_a_flag_is_on_or_off(value, wanted):
    assert environment(DEBUG=value).flag("DEBUG") is wanted
    with pytest.raises(ImproperlyConfigured, match="DEBUG must be 1 or 0"):
        environment(DEBUG="maybe").flag("DEBUG")


def test_seal_keys_come_newest_first():
    assert environment(SEAL_KEYS=f"{OTHER}, {KEY}").seal_keys() == [bytes(32), bytes(range(32))]


def test_a_database_url_may_name_a_socket_and_parameters():
    entry = environment(
        DATABASE_URL="postgresql://de%40sk:p%2Fw@/name?host=%2Frun%2Fpg&sslmode=require&application_name=x"
    ).database("DATABASE_URL", prepare_threshold=1)
    assert (entry["USER"], entry["PASSWORD"], entry["HOST"], entry["NAME"]) == ("de@sk", "p/w", "/run/pg", "name")
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["OPTIONS"]["prepare_threshold"] == 1


@pytest.mark.parametrize("url", ["mysql://a:hunter2@b/c", "postgresql://a:hunter2@b", "postgresql://a:hunter2@b:x/c"])
def test_a_bad_database_url_is_refused_without_its_password(url):
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL") as refused:
        environment(DATABASE_URL=url).database("DATABASE_URL")
    assert "hunter2" not in str(refused.value)


def test_celery_gets_its_own_form_of_a_socket():
    assert broker_url("unix:///run/redis.sock?db=1") == "redis+socket:///run/redis.sock?db=1"
    assert broker_url("redis://localhost:6379/1") == "redis://localhost:6379/1"


def test_data_is_an_option_of_every_command():
    environ = {}
    assert take_data_option(["manage.py", "person", "--data", "/srv/desk", "create"], environ) == [
        "manage.py",
        "person",
        "create",
    ]
    assert environ == {"PLANDESK_DATA": "/srv/desk"}
    assert take_data_option(["manage.py", "migrate", "--data=/x"], environ) == ["manage.py", "migrate"]
    assert take_data_option(["manage.py", "migrate", "--database", "owner"], {}) == [
        "manage.py",
        "migrate",
        "--database",
        "owner",
    ]


def test_without_an_installation_a_command_says_what_to_do(tmp_path):
    environ = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    done = subprocess.run(
        [sys.executable, "manage.py", "person", "create", "a@example.com", "--role", "admin", "--data", str(tmp_path)],
        cwd=PROJECT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert f"There is no installation in {tmp_path}" in done.stderr
    assert "--data" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_socket_path_that_is_too_long_moves_to_the_temporary_folder(tmp_path):
    long = Installation(tmp_path / ("x" * 90))
    assert len(str(long.run / ".s.PGSQL.5432.lock")) <= 107
    assert Installation(tmp_path / ("x" * 90)).run == long.run
    assert Installation(tmp_path / ("y" * 90)).run != long.run


def test_root_runs_servers_as_somebody_else():
    account = Account.needed()
    assert (account is None) == (os.geteuid() != 0)
    if account:
        assert account.uid != 0


@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_one_role_for_owner_and_application_is_warned_of(settings):
    assert "reviewer.W001" not in {message.id for message in checks.run_checks(tags=["security"])}
    settings.DATABASES = {**settings.DATABASES, "owner": settings.DATABASES["default"]}
    assert "reviewer.W001" in {message.id for message in checks.run_checks(tags=["security"])}


def test_plain_http_in_the_open_is_warned_of(settings):
    settings.BASE_URL = "http://desk.example.com"
    assert "reviewer.W002" in {message.id for message in checks.run_checks(tags=["security"])}


def test_a_lifetime_above_its_maximum_is_an_error(settings):
    settings.PLAN_LIFETIME = settings.PLAN_MAX_LIFETIME * 2
    assert "reviewer.E001" in {message.id for message in checks.run_checks(tags=["security"])}


def test_statements_are_prepared_by_the_server(database):
    for number in range(3):
        list(Person.objects.filter(email=f"person{number}@example.com"))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", ['%"reviewer_person"%$1%']
        )
        assert cursor.fetchone()[0] >= 1


def test_the_application_role_may_not_touch_the_schema_or_the_list_of_migrations(database):
    for statement in (
        "CREATE TABLE x (y int)",
        "INSERT INTO django_migrations (app, name, applied) VALUES ('a', 'b', now())",
        "DROP TABLE reviewer_person",
        "ALTER TABLE reviewer_person DISABLE TRIGGER ALL",
    ):
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            with pytest.raises(Exception, match=r"permission denied|must be owner"):
                cursor.execute(statement)
            cursor.execute("ROLLBACK")


def test_error_reports_show_nothing():
    filter_ = get_exception_reporter_filter(None)
    assert settings.DEBUG is False
    assert filter_.is_active(None)
    assert list(filter_.get_traceback_frame_variables(None, None)) == []
    assert filter_.get_safe_settings() == {}


def test_witnesses_are_pairs_of_an_address_and_a_key():
    key = "w.example/1+e07bb2cd+BCmsuuFBvMrwsi4alNNNC8c2HlJtC/4SyJeUvJMilm3X"
    given = Environment({"W": f"https://w.example/prefix/ {key}, http://127.0.0.1:1 {key}"})
    assert given.witnesses("W") == [("https://w.example/prefix", key), ("http://127.0.0.1:1", key)]
    assert Environment({}).witnesses("W") == []
    for wrong in ("https://w.example", f"ftp://w.example {key}", "https://w.example key", f"{key} https://w.example"):
        with pytest.raises(ImproperlyConfigured, match="pairs of an address and a verifier key"):
            Environment({"W": wrong}).witnesses("W")
