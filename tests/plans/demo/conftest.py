"""A demonstration to work in: seeded, its billing server running, people who can sign in."""

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.core.management import call_command

from plans.demo.agents import get_credentials
from plans.demo.remote_http import Bearers, BillingServer
from tests.fixtures import Site
from tests.plans.demo.visitor import Visitor


@dataclass
class Demonstration:
    """The billing server's address, and what people sign in with."""

    billing_url: str
    passwords: dict[str, str]

    def sign_in(self, site: Site, name: str = "mara") -> Visitor:
        visitor, email = Visitor(site.url), f"{name}@plandesk.example"
        visitor.sign_in(email, self.passwords[email])
        return visitor


@pytest.fixture
def demonstration(database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Demonstration]:
    """A fresh demonstration in a folder of its own, its billing server running."""
    monkeypatch.setenv("PLANDESK_DATA", str(tmp_path))
    with BillingServer("127.0.0.1", 0, Bearers(desk="", agents="")) as server:
        told = io.StringIO()
        path = tmp_path / "demo" / "credentials.json"
        call_command("demo_seed", json=True, remote_url=server.base_url, credentials=path, stdout=told)
        kept = get_credentials()
        server.bearers = Bearers(desk=kept.desk_bearer, agents=kept.agent_bearer)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        people = json.loads(told.getvalue())["people"]
        yield Demonstration(server.base_url, {person["email"]: person["password"] for person in people})
        server.shutdown()
        thread.join(5)
