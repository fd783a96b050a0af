"""Who works at the desk, and the billing tables' own book of what was written to them."""

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from plans import registry
from reviewer.models import Person
from tests.faults.product import Product

CUSTOMERS = INVOICES = 6_000
SENTINEL = "sentinel5d1f0c"
"""In every fed token."""

# Written by the tables themselves, whoever writes to them and whatever the desk says of it.
BOOK = """
CREATE SCHEMA book;
CREATE TABLE book.written (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, record text NOT NULL, value text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION book.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_TABLE_NAME = 'demo_refund' THEN
        INSERT INTO book.written (record, value) VALUES ('invoice/' || NEW.invoice_id, NEW.amount_cents::text);
    ELSIF NEW.address <> OLD.address THEN
        INSERT INTO book.written (record, value) VALUES ('customer/' || NEW.customer_id, NEW.address);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER book AFTER INSERT ON demo_refund FOR EACH ROW EXECUTE FUNCTION book.note();
CREATE TRIGGER book AFTER UPDATE ON demo_customer FOR EACH ROW EXECUTE FUNCTION book.note();
"""


@dataclass
class Reviewer:
    person_pk: int
    cookie: str


@dataclass
class Desk:
    """One agent with its credentials, which may feed both remote targets and plan at the hosted one."""

    name: str
    api_key: str
    secret: str


@dataclass
class World:
    desks: list[Desk]
    reviewers: list[Reviewer]
    records: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def number(self) -> int:
        """A number that nobody had: of a plan, and of the customer or invoice that is its own."""
        with self.lock:
            return next(self.records)


APPROVED, UNAPPROVED = "books-approved", "books-open"


def make_world(product: Product) -> World:
    """People, agents, targets and rows, by the product's own use cases."""
    admin = _person("admin@plandesk.example", is_admin=True)
    url = f"http://127.0.0.1:{product.target_port}"
    registry.create_target(name=APPROVED, base_url=url, approvals=1)
    registry.create_target(name=UNAPPROVED, base_url=url, approvals=0)
    hosted = [target.name for target in registry.ensure_hosted_targets()]
    desks = []
    for place in range(24):
        made = registry.create_agent(name=f"agent-{place}", owner=admin, targets=[APPROVED, UNAPPROVED, *hosted])
        desks.append(Desk(made.agent.name, made.api_key, made.webhook_secret))
    reviewers = []
    for place in range(12):
        person = _person(f"reviewer{place}@plandesk.example", is_reviewer=True)
        client = Client()
        client.force_login(person, backend="reviewer.access.PersonBackend")
        reviewers.append(Reviewer(person.pk, client.cookies["plandesk_session"].value))
    with product.connect() as connection:
        connection.execute(
            "INSERT INTO demo_customer (customer_id, name, email, address) "
            "SELECT n::text, 'Ferro ' || n, 'office@ferro.example', 'old ' || n FROM generate_series(1, %s) n",
            [CUSTOMERS],
        )
        connection.execute(
            "INSERT INTO demo_invoice (invoice_id, customer_id, status, total_cents, refunded_cents, currency) "
            "SELECT n::text, n::text, 'open', 90000, 0, 'USD' FROM generate_series(1, %s) n",
            [INVOICES],
        )
        connection.execute(BOOK)
    return World(desks, reviewers)


def _person(email: str, **roles: Any) -> Person:
    person = Person(email=email, name=email.partition("@")[0], **roles)
    person.set_unusable_password()
    person.save()
    return person
