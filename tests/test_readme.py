"""What the README shows works as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plans.models import Plan
from reviewer.installation import PROJECT
from tests.makers import make_agent, make_person, make_target

README = (PROJECT / "README.md").read_text()


def block(after: str, place: int = 0) -> str:
    """The `place`-th code block behind a marker."""
    text = README[README.index(after) :]
    return re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)[place]


def test_the_signed_example_feeds_a_plan(site, tmp_path):
    target = make_target("ledger")
    made = make_agent(target)
    script = tmp_path / "feed.sh"
    script.write_text(block("<!-- example: feed.sh -->"))
    environ = {"DESK": site.url, "AGENT": made.agent.name, "SECRET": made.webhook_secret, "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["state"] == "pending"
    assert Plan.objects.get().plan_id == answer["plan_id"]


def test_the_agent_of_the_example_feeds_a_plan_waits_and_withdraws_it(site, tmp_path):
    made = make_agent(make_target("ledger"))
    script = tmp_path / "agent.py"
    script.write_text(block("<!-- example: agent.py -->"))
    environ = {
        "DESK": f"{site.url}/", "AGENT": made.agent.name, "API_KEY": made.api_key, "SECRET": made.webhook_secret,
        "PATIENCE": "0.5", "PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"a person decides at {site.url}/plans/" in done.stdout
    plan = Plan.objects.get()
    assert (plan.operation, plan.state, plan.abandonment.reason) == ("limit.update", "abandoned", "task_ended")


USE = """
import django

django.setup()
import msgspec
from django.contrib.auth import get_user_model
from plans import registry, schema
from plans.intake import dry_run
from plans.review import approve_plan
from stock.models import Item

Item.objects.create(sku="LAMP-220", on_hand=14)
agent = registry.create_agent(name="stock-bot", targets=["stock"]).agent
raw = msgspec.Raw(b'{"sku": "LAMP-220", "on_hand": 16}')
plan = dry_run(agent=agent, operation="stock.set", request=schema.DryRun(task_id="t-1", inputs=raw)).plan
reviewer = get_user_model().objects.get(is_reviewer=True)
done = approve_plan(plan_pk=plan.pk, person=reviewer, seen_digest=schema.shown_digest(plan))
print(done.state, Item.objects.get().on_hand)
"""


@pytest.mark.slow
def test_the_hosted_example_is_planned_approved_and_applied(database, owner_connection, tmp_path):
    app = tmp_path / "stock"
    app.mkdir()
    (app / "__init__.py").touch()
    for place, name in enumerate(("models.py", "operations.py", "apps.py")):
        (app / name).write_text(block("<!-- example: hosted.py -->", place))
    (tmp_path / "use.py").write_text(USE)
    make_person("admin")
    make_person("reviewer")
    environ = {**os.environ, "HOSTED_APPS": "stock", "PYTHONPATH": f"{tmp_path}:{PROJECT}"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=120, env=environ, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    manage = str(Path(PROJECT) / "manage.py")
    try:
        run(manage, "makemigrations", "stock", "--skip-checks")
        run(manage, "migrate", "stock", "--skip-checks")
        assert run(str(tmp_path / "use.py")).split() == ["committed", "16"]
    finally:
        owner_connection.execute("DROP TABLE IF EXISTS stock_item")
        owner_connection.execute("DELETE FROM django_migrations WHERE app = 'stock'")


def test_the_readme_names_every_variable_and_command_that_exists():
    for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "SEAL_KEYS", "BASE_URL"):
        assert f"`{name}`" in README
    for name in ("make run", "make test", "make check", "make lint"):
        assert name in README


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(((?!http)[^)#]+)\)", README))))
def test_what_the_readme_links_to_is_there(link):
    assert (PROJECT / link).exists()
