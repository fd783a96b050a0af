"""What the billing system plans, what it says no to, and what it writes."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, IntegrityError, transaction

from plans.demo.models import (
    OPEN,
    REFUNDED,
    VOID,
    Customer,
    Invoice,
    Refund,
    RemoteApplication,
    RemotePlan,
    Shipment,
)
from plans.demo.operations import AddressInputs, NotWritten, RefundInputs, RefundInvoice, UpdateAddress
from plans.errors import CannotPlan
from plans.targets.operations import Action, get_operation
from tests.plans.demo.makers import make_customer, make_invoice

REFUND = RefundInvoice()
ADDRESS = UpdateAddress()


def state(refunded: int = 0, status: str = OPEN) -> dict[str, Any]:
    return {"invoice/4412": {"status": status, "total_cents": 48_000, "refunded_cents": refunded}}


# --- planning: pure ---------------------------------------------------------------------------------------------------


def test_both_operations_are_registered_by_their_names() -> None:
    assert type(get_operation("refund")) is RefundInvoice
    assert type(get_operation("address.update")) is UpdateAddress


def test_a_partial_refund_moves_the_amount_and_creates_the_refund() -> None:
    actions = REFUND.plan(RefundInputs("4412", 20_000), state())
    assert msgspec.to_builtins(actions) == [
        {"op": "update", "target": "invoice/4412", "field": "refunded_cents", "from": 0, "to": 20_000},
        {
            "op": "create",
            "target": "refund/4412-20000",
            "to": {"amount_cents": 20_000, "invoice_id": "4412"},
            "reversible": False,
        },
    ]


def test_a_refund_of_all_that_remains_also_moves_the_status() -> None:
    actions = REFUND.plan(RefundInputs("4412", 28_000), state(refunded=20_000))
    assert [(action.op, action.field, action.from_, action.to) for action in actions[:2]] == [
        ("update", "refunded_cents", 20_000, 48_000),
        ("update", "status", "open", "refunded"),
    ]
    assert actions[2].target == "refund/4412-48000"


@pytest.mark.parametrize(
    ("amount", "planned", "sentence"),
    [
        (48_001, state(), "Only 48000 cents of invoice 4412 remain"),
        (28_001, state(refunded=20_000), "Only 28000 cents"),
        (0, state(), "must be positive"),
        (-1, state(), "must be positive"),
        (10**30, state(), "Only 48000 cents"),
        (1, state(refunded=48_000, status=REFUNDED), "Only 0 cents"),
        (1, state(status=VOID), "is void"),
        (1, {"invoice/4412": None}, "There is no invoice 4412"),
    ],
)
def test_a_refund_that_cannot_be_is_refused_with_a_sentence(
    amount: int, planned: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CannotPlan, match=sentence):
        REFUND.plan(RefundInputs("4412", amount), planned)


@pytest.mark.parametrize(("amount", "people"), [(1, 1), (99_999, 1), (100_000, 2), (250_000, 2)])
def test_a_refund_from_100000_cents_needs_two_approvals(amount: int, people: int) -> None:
    assert REFUND.approvals(RefundInputs("4412", amount), []) == people


def test_a_refund_needs_an_intent_and_an_address_needs_nobody() -> None:
    assert REFUND.requires_intent
    assert not ADDRESS.requires_intent
    assert ADDRESS.approvals(AddressInputs("77", "x"), []) == 0


@pytest.mark.parametrize(
    ("address", "planned", "sentence"),
    [
        ("1 New Road", {"customer/77": None}, "There is no customer 77"),
        (" \n", {"customer/77": {"address": "old"}}, "not empty"),
        ("old", {"customer/77": {"address": "old"}}, "already"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_a_sentence(
    address: str, planned: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CannotPlan, match=sentence):
        ADDRESS.plan(AddressInputs("77", address), planned)


@pytest.mark.parametrize(
    "inputs",
    [
        {"invoice_id": "4412"},
        {"invoice_id": "4412", "amount_cents": "48000"},
        {"invoice_id": "4412", "amount_cents": 480.0},
        {"invoice_id": "4412", "amount_cents": True},
        {"invoice_id": 4412, "amount_cents": 1},
        {"invoice_id": "", "amount_cents": 1},
        {"invoice_id": "4" * 33, "amount_cents": 1},
        {"invoice_id": "4412", "amount_cents": 1, "currency": "USD"},
    ],
)
def test_refund_inputs_are_a_closed_shape(inputs: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(inputs, RefundInputs)


# --- reading and writing ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_reading_covers_status_total_and_what_was_refunded() -> None:
    assert REFUND.read(RefundInputs("4412", 1), lock=False) == {"invoice/4412": None}
    make_invoice()
    with transaction.atomic():
        assert REFUND.read(RefundInputs("4412", 1), lock=True) == state()
        found = ADDRESS.read(AddressInputs("77", "x"), lock=True)
    assert found == {"customer/77": {"address": "12 Harbour Street, Cork"}}


@pytest.mark.usefixtures("database")
def test_applying_writes_exactly_the_actions_and_answers_what_is_there() -> None:
    make_invoice(refunded_cents=20_000)
    inputs = RefundInputs("4412", 28_000)
    actions = REFUND.plan(inputs, REFUND.read(inputs, lock=False))
    assert REFUND.apply(inputs, actions) == {
        "refund_id": "4412-48000",
        "invoice_id": "4412",
        "amount_cents": 28_000,
        "status": "refunded",
        "refunded_cents": 48_000,
    }
    refund = Refund.objects.get()
    assert (refund.refund_id, refund.amount_cents, refund.made_by) == ("4412-48000", 28_000, "plandesk")
    assert REFUND.read(inputs, lock=False) == state(refunded=48_000, status=REFUNDED)


@pytest.mark.usefixtures("database")
def test_actions_that_do_not_fit_the_row_write_nothing() -> None:
    make_invoice()
    inputs = RefundInputs("4412", 20_000)
    actions = REFUND.plan(inputs, state())
    Invoice.objects.update(refunded_cents=1)
    with pytest.raises(NotWritten), transaction.atomic():
        REFUND.apply(inputs, actions)
    assert not Refund.objects.exists()
    assert Invoice.objects.get().refunded_cents == 1


@pytest.mark.usefixtures("database")
def test_the_same_refund_cannot_be_written_twice() -> None:
    make_invoice()
    inputs = RefundInputs("4412", 20_000)
    actions = REFUND.plan(inputs, state())
    REFUND.apply(inputs, actions)
    with pytest.raises(NotWritten), transaction.atomic():
        REFUND.apply(inputs, actions)
    with pytest.raises(IntegrityError, match="demo_refund_pkey"), transaction.atomic():
        Refund.objects.create(refund_id="4412-20000", invoice_id="4412", amount_cents=1, made_by="somebody")


@pytest.mark.usefixtures("database")
def test_an_address_is_replaced_as_a_whole() -> None:
    make_customer()
    inputs = AddressInputs("77", "1 New Road, Galway")
    actions = ADDRESS.plan(inputs, ADDRESS.read(inputs, lock=False))
    assert actions == [
        Action("update", "customer/77", field="address", from_="12 Harbour Street, Cork", to="1 New Road, Galway")
    ]
    assert ADDRESS.apply(inputs, actions) == {"customer_id": "77", "address": "1 New Road, Galway"}
    assert Customer.objects.get().address == "1 New Road, Galway"


# --- constraints, each broken by its name ---------------------------------------------------------------------------


def remote_plan(**fields: Any) -> RemotePlan:
    defaults: dict[str, Any] = {
        "plan_id": "rplan_1",
        "token_hash": "a" * 64,
        "operation": "refund",
        "inputs": "{}",
        "planned_state": "{}",
        "actions": "[]",
        "input_fingerprint": "sha256:0",
        "created_at": datetime(2026, 3, 14, 9, 31, tzinfo=UTC),
        "expires_at": datetime(2026, 3, 14, 9, 41, tzinfo=UTC),
    }
    return RemotePlan.objects.create(**(defaults | fields))


def apply_twice() -> None:
    plan = remote_plan()
    for key in ("k1", "k2"):
        RemoteApplication.objects.create(plan=plan, idempotency_key=key, applied_at=plan.created_at)


BREAKS: dict[str, Callable[[], object]] = {
    "demo_customer_has_an_address": lambda: Customer.objects.update(address=" \n "),
    "demo_invoice_total_is_positive": lambda: make_invoice("1", total_cents=0, refunded_cents=-1),
    "demo_refunded_is_not_negative": lambda: Invoice.objects.update(refunded_cents=-1),
    "demo_refunded_is_at_most_the_total": lambda: Invoice.objects.update(refunded_cents=48_001, status=REFUNDED),
    "demo_invoice_status_fits_what_remains": lambda: Invoice.objects.update(status=REFUNDED),
    "demo_currency_is_three_letters": lambda: Invoice.objects.update(currency="usd"),
    "demo_refund_is_positive": lambda: Refund.objects.create(pk="r", invoice_id="4412", amount_cents=0, made_by="x"),
    "demo_refunds_are_within_refunded": lambda: Refund.objects.create(
        pk="r", invoice_id="4412", amount_cents=1, made_by="x"
    ),
    "demo_shipment_status_is_known": lambda: Shipment.objects.create(
        pk="s", invoice_id="4412", carrier="x", status="lost"
    ),
    "demo_remote_token_is_unique": lambda: [remote_plan(plan_id=name) for name in ("p1", "p2")],
    "demo_remote_key_is_bound_once": lambda: [
        remote_plan(plan_id=name, token_hash=name, idempotency_key="k") for name in ("p1", "p2")
    ],
    "demo_remote_plan_state_is_known": lambda: remote_plan(
        state="unknown", ended_at="2026-03-14T09:32:00Z", answer_status=500
    ),
    "demo_remote_end_has_its_answer": lambda: remote_plan(state="committed"),
    "demo_remote_plan_has_a_life": lambda: remote_plan(expires_at="2026-03-14T09:31:00Z"),
    "demo_remoteapplication_plan_id_key": apply_twice,
}


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("constraint", BREAKS)
def test_the_database_refuses_what_must_not_be(constraint: str) -> None:
    make_invoice()
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        BREAKS[constraint]()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.diag.constraint_name == constraint  # type: ignore[attr-defined]


@pytest.mark.usefixtures("database")
def test_what_an_invoice_says_was_refunded_is_never_less_than_its_refunds() -> None:
    make_invoice()
    inputs = RefundInputs("4412", 20_000)
    REFUND.apply(inputs, REFUND.plan(inputs, state()))
    with pytest.raises(DatabaseError, match="refunds of invoice 4412"), transaction.atomic():
        Invoice.objects.update(refunded_cents=19_999)
