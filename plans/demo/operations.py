"""What the billing system can write: refunds and addresses. Hosted at the target `billing`."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from plans.demo.models import OPEN, REFUNDED, Customer, Invoice, Refund
from plans.errors import CannotPlan
from plans.targets.operations import Action, JsonValue, Operation, State

TWO_APPROVALS_FROM_CENTS = 100_000
"""From here on, in the invoice's smallest unit, two people approve a refund."""

Number = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
"""The number of an invoice or a customer: text, because `077` is not `77`."""


class RefundInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which invoice, and how much of it goes back, in the currency's smallest unit."""

    invoice_id: Number
    amount_cents: int


class AddressInputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose address, and the whole new address."""

    customer_id: Number
    address: Annotated[str, msgspec.Meta(max_length=500)]


class NotWritten(Exception):
    """The rows are not as the plan's actions expect them; whoever applies rolls back, so nothing is written."""


class RefundInvoice(Operation):
    """Give money back on an invoice.

    Depends on the invoice's status, total and what was refunded so far. Refuses an unknown invoice, one that is not
    open, an amount that is not positive, and more than what remains. `apply` locks nothing of its own beyond the
    invoice row that `read(lock=True)` holds, and refuses by `NotWritten` where that row is not as planned.
    """

    name = "refund"
    target = "billing"
    title = "Refund an invoice"
    description = (
        "Gives an amount back on one invoice, in the smallest unit of its currency (cents). A refund can't be undone. "
        "At most what remains of the invoice; one approval, from 100000 cents two."
    )
    Inputs = RefundInputs
    requires_intent = True
    made_by: ClassVar[str] = "plandesk"

    def read(self, inputs: RefundInputs, *, lock: bool) -> State:
        rows = Invoice.objects.filter(pk=inputs.invoice_id)
        if lock:
            rows = rows.select_for_update(no_key=True)
        found = rows.values("status", "total_cents", "refunded_cents").first()
        return {f"invoice/{inputs.invoice_id}": None if found is None else {**found}}

    def plan(self, inputs: RefundInputs, state: State) -> list[Action]:
        target = f"invoice/{inputs.invoice_id}"
        invoice = state.get(target)
        if invoice is None:
            raise CannotPlan(f"There is no invoice {inputs.invoice_id}.")
        remaining = invoice["total_cents"] - invoice["refunded_cents"]
        if inputs.amount_cents <= 0:
            raise CannotPlan("A refund is for more than nothing: amount_cents must be positive.")
        if inputs.amount_cents > remaining:
            raise CannotPlan(f"Only {remaining} cents of invoice {inputs.invoice_id} remain.")
        if invoice["status"] != OPEN:
            raise CannotPlan(f"Invoice {inputs.invoice_id} is {invoice['status']}, and only an open one is refunded.")
        refunded = invoice["refunded_cents"] + inputs.amount_cents
        actions = [Action("update", target, field="refunded_cents", from_=invoice["refunded_cents"], to=refunded)]
        if inputs.amount_cents == remaining:
            actions.append(Action("update", target, field="status", from_=invoice["status"], to=REFUNDED))
        refund = {"amount_cents": inputs.amount_cents, "invoice_id": inputs.invoice_id}
        actions.append(Action("create", f"refund/{inputs.invoice_id}-{refunded}", to=refund, reversible=False))
        return actions

    def approvals(self, inputs: RefundInputs, actions: Sequence[Action]) -> int:
        return 2 if inputs.amount_cents >= TWO_APPROVALS_FROM_CENTS else 1

    def apply(self, inputs: RefundInputs, actions: Sequence[Action]) -> JsonValue:
        _update_record(Invoice, "invoice", actions)
        (create,) = (action for action in actions if action.op == "create")
        refund = Refund.objects.create(
            refund_id=_id_in(create.target, "refund"),
            invoice_id=_known(create.to)["invoice_id"],
            amount_cents=_known(create.to)["amount_cents"],
            made_by=self.made_by,
        )
        invoice = Invoice.objects.values("status", "refunded_cents").get(pk=refund.invoice_id)
        return {
            "refund_id": refund.refund_id,
            "invoice_id": refund.invoice_id,
            "amount_cents": refund.amount_cents,
            **invoice,
        }


class UpdateAddress(Operation):
    """Replace a customer's address. Needs nobody's approval: the agent commits it by itself.

    Refuses an unknown customer, an empty address, and the address that is there already.
    """

    name = "address.update"
    target = "billing"
    title = "Update a customer's address"
    description = "Replaces the postal address of one customer. Needs no approval."
    Inputs = AddressInputs

    def read(self, inputs: AddressInputs, *, lock: bool) -> State:
        rows = Customer.objects.filter(pk=inputs.customer_id)
        if lock:
            rows = rows.select_for_update(no_key=True)
        found = rows.values("address").first()
        return {f"customer/{inputs.customer_id}": None if found is None else {**found}}

    def plan(self, inputs: AddressInputs, state: State) -> list[Action]:
        target = f"customer/{inputs.customer_id}"
        customer = state.get(target)
        if customer is None:
            raise CannotPlan(f"There is no customer {inputs.customer_id}.")
        if not inputs.address.strip():
            raise CannotPlan("An address is not empty.")
        if inputs.address == customer["address"]:
            raise CannotPlan(f"Customer {inputs.customer_id} has this address already.")
        return [Action("update", target, field="address", from_=customer["address"], to=inputs.address)]

    def approvals(self, inputs: AddressInputs, actions: Sequence[Action]) -> int:
        return 0

    def apply(self, inputs: AddressInputs, actions: Sequence[Action]) -> JsonValue:
        _update_record(Customer, "customer", actions)
        return {"customer_id": inputs.customer_id, "address": _known(actions[0].to)}


def _update_record(model: type[Invoice] | type[Customer], kind: str, actions: Sequence[Action]) -> None:
    """Write all `update` actions, which are of one record, as one statement that also asks for the old values."""
    updates = [action for action in actions if action.op == "update"]
    (key,) = {_id_in(action.target, kind) for action in updates}
    planned = {str(action.field): _known(action.from_) for action in updates}
    values = {str(action.field): _known(action.to) for action in updates}
    if model._default_manager.filter(pk=key, **planned).update(**values) != 1:
        raise NotWritten(f"{kind}/{key} is not as planned.")


def _id_in(target: str, kind: str) -> str:
    prefix, _, key = target.partition("/")
    if prefix != kind or not key:
        raise NotWritten(f"{target} is no {kind}.")
    return key


def _known(value: Any) -> Any:
    if value is msgspec.UNSET:
        raise NotWritten("An action lacks a value.")
    return value
