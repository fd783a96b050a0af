"""Errands that the demonstration's agents run by themselves, one task each, on every invoice but the story's."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import F

from plans.agent import Committed, Conflict, Desk, Outcome, Plan, Stale, Task
from plans.demo.agents import HOSTED_AGENT, REMOTE_AGENT, desk_of
from plans.demo.asking import ask, find_shipments
from plans.demo.models import OPEN, Customer, Invoice
from plans.demo.operations import TWO_APPROVALS_FROM_CENTS, RefundInputs, RefundInvoice
from plans.demo.relay import NoRelay, Relay
from plans.demo.rhythm import Rhythm
from plans.demo.seed import STORY_INVOICE
from plans.demo.story import money

SMALL: Final = (300, 2_500)
LARGE: Final = (TWO_APPROVALS_FROM_CENTS, TWO_APPROVALS_FROM_CENTS + 20_000)
"""Least and most that is refunded, in cents. A large refund waits for two people."""

VOUCHER_CENTS: Final = 100
DICE: Final = secrets.SystemRandom()
MOST_PLANS: Final = 3
"""How often one errand plans before it gives up on a world that keeps moving."""

REASONS: Final = ("sent something back", "got a damaged box", "was charged twice", "cancelled one item")
STREETS: Final = ("Mill Lane", "Station Road", "Chapel Street", "Orchard Way", "Quay Street", "Linden Avenue")


@dataclass(frozen=True, slots=True)
class Errand:
    """What one task of one agent does, and how it ends where people approve what they are asked.

    `run` answers how it came out, or None where there was nothing to do.
    """

    name: str
    agent: str
    ends: str
    run: Callable[[Desk, Rhythm], Outcome | None]
    asks_people: bool = False


# --- refunds --------------------------------------------------------------------------------------------------------


def refund_hosted(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """A small refund at the hosted target: look, plan, wait for a person, plan again where somebody was faster."""
    return _refund(desk, rhythm, "refund", SMALL, is_remote=False)


def refund_large(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The same for so much that two people have to approve."""
    return _refund(desk, rhythm, "large", LARGE, is_remote=False)


def refund_remote(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The same at the billing system's own server: its dry run is fed to the desk, signed."""
    return _refund(desk, rhythm, "return", SMALL, is_remote=True)


def refund_with_lost_answer(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The billing system writes what was approved, and its answer to the desk is lost: unknown, then found out."""
    return _refund(desk, rhythm, "cut", SMALL, is_remote=True, query="?answer=lost")


def change_mind(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The customer calls back while the plan waits, and keeps the goods: it is withdrawn."""
    invoice = _pick_invoice(SMALL)
    if invoice is None:
        return None
    with desk.task(_task_id("callback")) as task:
        _look_up(task, invoice)
        plan = _plan_refund(task, invoice, SMALL, is_remote=False)
        if plan is None:
            return None
        rhythm.think()
        task.read("phone.calls", "The customer called back and keeps the goods.")
        return task.abandon(plan, reason="intent_changed")


def leave_unfinished(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The shift ends before anybody decided: what the task leaves is abandoned, and known to have been."""
    invoice = _pick_invoice(SMALL)
    if invoice is None:
        return None
    with desk.task(_task_id("shift")) as task:
        _look_up(task, invoice)
        plan = _plan_refund(task, invoice, SMALL, is_remote=True)
        rhythm.think()
    return None if plan is None else task.wait(plan, timeout=0)


def give_voucher_first(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The agent itself writes to the invoice it has a plan for, says so, and plans what is left."""
    invoice = _pick_invoice(SMALL)
    if invoice is None:
        return None
    with desk.task(_task_id("voucher")) as task:
        _look_up(task, invoice)
        plan = _plan_refund(task, invoice, SMALL, is_remote=True)
        if plan is None:
            return None
        rhythm.think()
        task.write("billing-remote", [f"invoice/{invoice.invoice_id}"])
        _give_voucher(invoice)
        rhythm.think()
        return _see_through(task, invoice, plan, rhythm, SMALL, is_remote=True)


def _refund(
    desk: Desk, rhythm: Rhythm, kind: str, bounds: tuple[int, int], *, is_remote: bool, query: str = ""
) -> Outcome | None:
    invoice = _pick_invoice(bounds)
    if invoice is None:
        return None
    with desk.task(_task_id(kind)) as task:
        _look_up(task, invoice)
        rhythm.think()
        plan = _plan_refund(task, invoice, bounds, is_remote=is_remote, query=query)
        return None if plan is None else _see_through(task, invoice, plan, rhythm, bounds, is_remote=is_remote)


def _see_through(
    task: Task, invoice: Invoice, plan: Plan, rhythm: Rhythm, bounds: tuple[int, int], *, is_remote: bool
) -> Outcome:
    """Waits for people; plans again after a conflict or a write of its own. What is left ends with the task."""
    outcome = rhythm.wait(task, plan)
    for _ in range(MOST_PLANS - 1):
        if not isinstance(outcome, Conflict | Stale):
            break
        rhythm.think()
        new = _plan_refund(task, invoice, bounds, is_remote=is_remote, before=plan)
        if new is None:
            break
        plan, outcome = new, rhythm.wait(task, new)
    return outcome


def _plan_refund(
    task: Task, invoice: Invoice, bounds: tuple[int, int], *, is_remote: bool, before: Plan | None = None,
    query: str = "",
) -> Plan | None:  # fmt: skip
    """A plan on the invoice as it is now; None where too little is left of it. `before` is the plan it replaces."""
    invoice.refresh_from_db()
    least, most = bounds[0], min(bounds[1], invoice.remaining_cents)
    if invoice.status != OPEN or most < least:
        return None
    cents = DICE.randint(least, most)
    inputs = {"invoice_id": invoice.invoice_id, "amount_cents": cents}
    amount = money(cents, invoice.currency)
    summary = f"Refund {amount} on invoice {invoice.invoice_id}: the customer {DICE.choice(REASONS)}."
    answer = ask("POST", f"/refund/dry-run{query}", {"inputs": inputs}) if is_remote else None
    if before is not None:
        return task.replan(before, inputs, answer=answer, summary=summary).plan
    said: dict[str, Any] = {"intent": f"refund:{task.task_id}", "summary": summary}
    if answer is None:
        return task.dry_run("refund", inputs, **said)
    return task.submit("billing-remote", "refund", inputs, answer, **said)


def _pick_invoice(bounds: tuple[int, int]) -> Invoice | None:
    """An open invoice with so much left on it, or None. Never the story's."""
    rows = Invoice.objects.filter(status=OPEN, total_cents__gt=F("refunded_cents") + bounds[0])
    found = list(rows.exclude(pk=STORY_INVOICE).order_by("pk"))
    return DICE.choice(found) if found else None


def _look_up(task: Task, invoice: Invoice) -> None:
    """Where the goods are, asked at the billing system's server, noted as evidence."""
    task.read("billing.invoice", f"{money(invoice.remaining_cents, invoice.currency)} remain of {invoice.invoice_id}")
    for shipment in find_shipments(invoice.invoice_id):
        task.read("shipping.lookup", f"{shipment['status']}: {shipment['note']}", url=shipment["tracking_url"] or None)


class _Voucher(RefundInvoice):
    """A refund that the agent makes at the counter, past the desk."""

    made_by = REMOTE_AGENT


@transaction.atomic
def _give_voucher(invoice: Invoice) -> None:
    operation, inputs = _Voucher(), RefundInputs(invoice.invoice_id, VOUCHER_CENTS)
    state = operation.read(inputs, lock=True)
    operation.apply(inputs, operation.plan(inputs, state))


# --- addresses, which nobody has to approve --------------------------------------------------------------------------


def correct_address(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """A new address: planned, and committed at once."""
    with desk.task(_task_id("address")) as task:
        plan = _plan_address(task, _pick_customer())
        rhythm.think()
        return task.commit(plan)


def correct_overtaken_address(desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """A clerk is faster: the commit says which field moved and writes nothing, and the agent plans again."""
    customer = _pick_customer()
    with desk.task(_task_id("overtaken")) as task:
        plan = _plan_address(task, customer)
        rhythm.think()
        Customer.objects.filter(pk=customer.pk).update(address=_new_address(customer, besides=plan))
        outcome = task.commit(plan)
        if not isinstance(outcome, Conflict):
            return outcome
        rhythm.think()
        return task.commit(task.replan(plan).plan)


def correct_address_over_a_bad_line(_desk: Desk, rhythm: Rhythm) -> Outcome | None:
    """The desk writes, and its answer is lost on the way: the same again, with the same key, gets the stored result."""
    try:
        relay = Relay(settings.BASE_URL)
    except NoRelay:
        return None
    with relay, desk_of(HOSTED_AGENT, place="line", base_url=relay.url) as desk, desk.task(_task_id("line")) as task:
        plan = _plan_address(task, _pick_customer())
        rhythm.think()
        relay.lose_next()
        outcome = task.commit(plan)
        return outcome if relay.lost or not isinstance(outcome, Committed) else None


def _plan_address(task: Task, customer: Customer) -> Plan:
    address = _new_address(customer)
    task.read("mail.inbox", f"{customer.name} has moved to {address}")
    inputs = {"customer_id": customer.customer_id, "address": address}
    return task.dry_run("address.update", inputs, summary=f"New address of customer {customer.customer_id}")


def _pick_customer() -> Customer:
    return DICE.choice(list(Customer.objects.order_by("pk")))


def _new_address(customer: Customer, *, besides: Plan | None = None) -> str:
    """Another street in the same town; never the one there is, nor the one that is planned."""
    _, _, town = customer.address.partition(", ")
    taken = {customer.address, besides.inputs["address"] if besides else None}
    while (address := f"{DICE.randint(1, 220)} {DICE.choice(STREETS)}, {town}"[:500]) in taken:
        pass
    return address


def _task_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(4)}"


ERRANDS: Final = (
    Errand("a refund", HOSTED_AGENT, "committed", refund_hosted, asks_people=True),
    Errand("a new address", HOSTED_AGENT, "committed", correct_address),
    Errand("a change of mind", HOSTED_AGENT, "abandoned", change_mind),
    Errand("an address that a clerk was faster with", HOSTED_AGENT, "committed", correct_overtaken_address),
    Errand("a large refund", HOSTED_AGENT, "committed", refund_large, asks_people=True),
    Errand("an address over a bad line", HOSTED_AGENT, "committed", correct_address_over_a_bad_line),
    Errand("a return", REMOTE_AGENT, "committed", refund_remote, asks_people=True),
    Errand("a return left unfinished", REMOTE_AGENT, "abandoned", leave_unfinished),
    Errand("a voucher before a return", REMOTE_AGENT, "committed", give_voucher_first, asks_people=True),
    Errand("a return whose answer is lost", REMOTE_AGENT, "committed", refund_with_lost_answer, asks_people=True),
)
"""Each agent runs its own, one after the other, and begins again: those that wait for people, and the others beside."""
