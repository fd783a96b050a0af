"""The suite for targets against our own: the billing server of the demonstration, and the desk's hosted operations."""

from collections.abc import Callable
from typing import Self

import psycopg
import pytest
from django.db.models import F

from plans import registry
from plans.conformance.config import make_config
from plans.conformance.rules import RULES
from plans.conformance.run import try_target
from plans.demo.agents import get_credentials
from plans.demo.models import Customer, Invoice, RemoteApplication
from tests.conformance.test_targets import broken
from tests.fixtures import Site
from tests.makers import make_person
from tests.plans.demo.conftest import Demonstration, demonstration
from tests.plans.demo.makers import make_invoice

__all__ = ["demonstration"]


class Refunds:
    can_move = can_count = True

    def move(self) -> None:
        Invoice.objects.filter(pk="9000").update(refunded_cents=F("refunded_cents") + 1)

    def count(self) -> int:
        return RemoteApplication.objects.count()


WATCHED = """
CREATE SCHEMA watched;
CREATE TABLE watched.written (address text);
CREATE FUNCTION watched.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO watched.written VALUES (NEW.address); RETURN NULL; END $$;
CREATE TRIGGER watched AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION watched.note();
"""


class Addresses:
    """Counts what was really written to the customers' table, by a trigger on it: no event or answer is believed."""

    can_move = can_count = True
    table = Customer._meta.db_table

    def __init__(self, owner: psycopg.Connection[tuple[object, ...]]) -> None:
        self.owner = owner

    def __enter__(self) -> Self:
        self.owner.execute(WATCHED.format(table=self.table))
        return self

    def __exit__(self, *failure: object) -> None:
        self.owner.execute(f"DROP TRIGGER watched ON {self.table}")
        self.owner.execute("DROP SCHEMA watched CASCADE")

    def move(self) -> None:
        Customer.objects.filter(pk="77").update(address="moved past the desk")

    def count(self) -> int:
        rows = self.owner.execute("SELECT count(*) FROM watched.written").fetchall()
        return int(str(rows[0][0]))


@pytest.mark.slow
def test_the_demonstrations_billing_server_breaks_no_rule(
    demonstration: Demonstration, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_invoice("9000", total_cents=90_000)
    kept = get_credentials()
    monkeypatch.setenv("AGENT_BEARER", kept.agent_bearer)
    monkeypatch.setenv("DESK_BEARER", kept.desk_bearer)
    body = {"inputs": {"invoice_id": "9000", "amount_cents": 1}}
    config = make_config(
        {
            "dry_run": {"path": "/refund/dry-run", "bearer_env": "AGENT_BEARER", "body": body},
            "commit": {"path": "/refund/commit", "bearer_env": "DESK_BEARER"},
            "status": {"path": "/plans/{plan_id}", "bearer_env": "DESK_BEARER"},
        }
    )
    results = try_target(demonstration.billing_url, config, Refunds())
    # Its plans live ten minutes, which no test waits for; its own tests move its clock.
    assert {one.rule: one.verdict for one in results if one.verdict != "passed"} == {
        "expiry": "not run",
        "replay-after-expiry": "not run",
    }, broken(results)


@pytest.mark.slow
def test_the_desks_hosted_operations_break_no_rule(
    make_site: Callable[..., Site],
    monkeypatch: pytest.MonkeyPatch,
    owner_connection: psycopg.Connection[tuple[object, ...]],
) -> None:
    site = make_site(PLAN_LIFETIME="4")
    registry.ensure_hosted_targets()
    make_invoice()
    made = registry.create_agent(name="bot", owner=make_person("admin"), targets=["billing"])
    monkeypatch.setenv("API_KEY", made.api_key)
    body = {"task_id": "t-{unique}", "inputs": {"customer_id": "77", "address": "{unique} Harbour Street"}}
    door = "/api/v1/operations/address.update"
    config = make_config(
        {
            "dry_run": {"path": f"{door}/dry-run", "bearer_env": "API_KEY", "body": body},
            "commit": {"path": f"{door}/commit", "bearer_env": "API_KEY"},
            "status": {"path": "/api/v1/plans/{plan_id}", "bearer_env": "API_KEY"},
        }
    )
    with Addresses(owner_connection) as world:
        before = world.count()
        assert broken(try_target(site.url, config, world)) == {}
        assert world.count() - before > len(RULES) / 2  # or the trigger saw nothing
