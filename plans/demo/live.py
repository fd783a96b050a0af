"""Errands that the demonstration's agents run by themselves, one task each, on every invoice but the story's."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import urllib3
from django.db.models import F

from plans.agent import Committed, Conflict, Desk, Outcome, Plan, Stale, Task
from plans.demo.agents import HOSTED_AGENT, REMOTE_AGENT, get_credentials
from plans.demo.models import OPEN, Customer, Invoice
from plans.demo.seed import STORY_INVOICE
from plans.demo.story import money

LEAST_CENTS: Final = 300
MOST_CENTS: Final = 2_500
DICE: Final = secrets.SystemRandom()
MOST_PLANS: Final = 3
"""How often one errand plans before it gives up on a world that keeps moving."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What one task of one agent does; `run` answers how it came out, or None where there was nothing to do."""

    name: str
    agent: str
    run: Callable[[Desk, float], Outcome | None]


class BillingDown(Exception):
    """The billing system's own server did not answer as it should; nothing was planned."""


def refund_hosted(desk: Desk, patience: float) -> Outcome | None:
    """A small refund at the hosted target: look, plan, wait for a person, plan again where somebody was faster."""
    invoice = _pick_invoice()
    if invoice is None:
        return None
    with desk.task(_task_id("refund")) as task:
        _look_up(task, invoice)

        def plan(replaces: Plan | None) -> Plan | None:
            inputs = _inputs(invoice)
            if inputs is None:
                return None
            intent, summary = _said(task, inputs, invoice)
            return task.dry_run("refund", inputs, replaces=replaces, intent=intent, summary=summary)

        return _see_through(task, plan, patience)


def refund_remote(desk: Desk, patience: float) -> Outcome | None:
    """The same at the billing system's own server: its dry run is fed to the desk, signed."""
    invoice = _pick_invoice()
    if invoice is None:
        return None
    with desk.task(_task_id("return")) as task:
        _look_up(task, invoice)

        def plan(replaces: Plan | None) -> Plan | None:
            inputs = _inputs(invoice)
            if inputs is None:
                return None
            answer = ask("POST", "/refund/dry-run", {"inputs": inputs})
            intent, summary = _said(task, inputs, invoice)
            return task.submit(
                "billing-remote", "refund", inputs, answer, replaces=replaces, intent=intent, summary=summary
            )

        return _see_through(task, plan, patience)


def correct_address(desk: Desk, patience: float) -> Outcome | None:
    """A new address, which needs nobody's approval: planned, and committed at once."""
    customer = DICE.choice(list(Customer.objects.order_by("pk")))
    address = f"{DICE.randint(1, 220)} {customer.address.split(' ', 1)[-1]}"[:500]
    if address == customer.address:
        return None
    with desk.task(_task_id("address")) as task:
        task.read("mail.inbox", f"{customer.name} has moved")
        inputs = {"customer_id": customer.customer_id, "address": address}
        plan = task.dry_run("address.update", inputs, summary=f"New address of customer {customer.customer_id}")
        outcome = task.commit(plan)
        return task.wait(plan, timeout=patience) if not _is_settled(outcome) else outcome


ERRANDS: Final = (
    Errand("a refund", HOSTED_AGENT, refund_hosted),
    Errand("an address", HOSTED_AGENT, correct_address),
    Errand("a return", REMOTE_AGENT, refund_remote),
)


def _see_through(task: Task, make: Callable[[Plan | None], Plan | None], patience: float) -> Outcome | None:
    """Plan, and wait at most `patience` seconds; plan again after a conflict. What is left ends with the task."""
    outcome: Outcome | None = None
    plan: Plan | None = None
    for _ in range(MOST_PLANS):
        plan = make(plan)
        if plan is None:
            return outcome
        outcome = task.wait(plan, timeout=patience)
        if not isinstance(outcome, Conflict | Stale):
            return outcome
    return outcome


def _is_settled(outcome: Outcome) -> bool:
    return isinstance(outcome, Committed | Conflict)


def _pick_invoice() -> Invoice | None:
    """An open invoice with something left on it, or None. Never the story's."""
    rows = Invoice.objects.filter(status=OPEN, total_cents__gt=F("refunded_cents") + LEAST_CENTS)
    found = list(rows.exclude(pk=STORY_INVOICE).order_by("pk"))
    return DICE.choice(found) if found else None


def _inputs(invoice: Invoice) -> dict[str, Any] | None:
    """What to refund of the invoice as it is now; None where next to nothing is left."""
    invoice.refresh_from_db()
    most = min(invoice.remaining_cents, MOST_CENTS)
    if invoice.status != OPEN or most < LEAST_CENTS:
        return None
    return {"invoice_id": invoice.invoice_id, "amount_cents": DICE.randint(LEAST_CENTS, most)}


def _said(task: Task, inputs: dict[str, Any], invoice: Invoice) -> tuple[str, str]:
    """Intent and summary."""
    amount = money(inputs["amount_cents"], invoice.currency)
    summary = f"Refund {amount} on invoice {invoice.invoice_id}: the customer sent something back."
    return f"refund:{task.task_id}", summary


def _look_up(task: Task, invoice: Invoice) -> None:
    """Where the goods are, asked at the billing system's server, noted as evidence."""
    answer = json.loads(ask("GET", f"/shipments/{invoice.invoice_id}"))
    for shipment in answer["shipments"]:
        task.read("shipping.lookup", f"{shipment['status']}: {shipment['note']}", url=shipment["tracking_url"] or None)


def ask(method: str, path: str, body: Any = None) -> bytes:
    """What the billing system's server answered an agent. Raises BillingDown for anything but a good answer."""
    credentials = get_credentials()
    headers = {"Authorization": f"Bearer {credentials.agent_bearer}", "Content-Type": "application/json"}
    try:
        answer = urllib3.request(
            method,
            credentials.billing_url + path,
            headers=headers,
            body=None if body is None else json.dumps(body),
            timeout=10,
            retries=False,
        )
    except urllib3.exceptions.HTTPError as error:
        raise BillingDown(f"The billing system did not answer: {type(error).__name__}.") from None
    if answer.status >= 300:
        raise BillingDown(f"The billing system answered {answer.status} to {method} {path}.")
    return answer.data


def _task_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(4)}"
