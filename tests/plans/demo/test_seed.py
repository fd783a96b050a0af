"""Setting the demonstration up: once, again, and after its file was lost."""

import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plans.demo.credentials import read_credentials
from plans.demo.models import Invoice, Refund
from plans.models import Agent, Target
from reviewer.models import Person

pytestmark = pytest.mark.slow

Manage = Callable[..., subprocess.CompletedProcess[str]]
URL = "http://127.0.0.1:8765"


def seed(manage: Manage, path: Path, *more: str) -> dict[str, Any]:
    done = manage("demo_seed", "--json", "--credentials", str(path), "--remote-url", URL, *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_fresh_demonstration_has_people_targets_agents_and_invoice_4412(manage: Manage, tmp_path: Path) -> None:
    path = tmp_path / "demo" / "credentials.json"
    document = seed(manage, path)
    assert [(one["email"], one["role"]) for one in document["people"]] == [
        ("mara@plandesk.example", "reviewer"),
        ("tomas@plandesk.example", "reviewer"),
        ("ines@plandesk.example", "auditor"),
        ("ada@plandesk.example", "admin"),
    ]
    assert all(Person.objects.get(email=one["email"]).check_password(one["password"]) for one in document["people"])
    invoice = Invoice.objects.get(pk="4412")
    assert (invoice.customer_id, invoice.status, invoice.total_cents, invoice.refunded_cents, invoice.currency) == (
        "77", "open", 48_000, 0, "USD",
    )  # fmt: skip
    assert set(Target.objects.values_list("name", "kind", "base_url")) == {
        ("billing", "hosted", ""),
        ("billing-remote", "remote", URL),
    }
    assert {agent.owner.email for agent in Agent.objects.all()} == {"ada@plandesk.example"}
    kept = read_credentials(path)
    assert kept is not None
    assert set(kept.agents) == set(Agent.objects.values_list("name", flat=True)) == set(document["agents"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept.desk_bearer not in repr(kept)


def test_a_second_time_changes_nothing_and_prints_no_password(manage: Manage, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    seed(manage, path)
    Invoice.objects.filter(pk="4412").update(refunded_cents=100)
    before = path.read_bytes(), Refund.objects.count()
    document = seed(manage, path)
    assert not document["is_fresh"]
    assert {one["password"] for one in document["people"]} == {None}
    assert document["rows_added"] == 0
    assert (path.read_bytes(), Refund.objects.count()) == before
    assert Invoice.objects.get(pk="4412").refunded_cents == 100
    said = manage("demo_seed", "--credentials", str(path))
    assert said.stdout.startswith("The demonstration is set up already. A forgotten password is replaced by")


def test_agents_whose_file_was_lost_get_new_secrets(manage: Manage, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    seed(manage, path)
    before = {agent.name: bytes(agent.api_key_hash) for agent in Agent.objects.all()}
    path.unlink()
    seed(manage, path)
    after = {agent.name: bytes(agent.api_key_hash) for agent in Agent.objects.all()}
    assert before.keys() == after.keys()
    assert all(before[name] != after[name] for name in before)
    kept = read_credentials(path)
    assert kept is not None
    assert set(kept.agents) == set(after)


def test_a_file_that_others_can_read_is_refused(manage: Manage, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    seed(manage, path)
    path.chmod(0o644)
    done = manage("demo_seed", "--credentials", str(path))
    assert done.returncode != 0
    assert "can be read by others" in done.stderr
