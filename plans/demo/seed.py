"""What the billing system starts with: customers, invoices, refunds and shipments."""

from django.db import transaction

from plans.demo.models import OPEN, REFUNDED, VOID, Customer, Invoice, Refund, Shipment

STORY_INVOICE = "4412"
"""The invoice of the story; nothing but the story touches it."""

CUSTOMERS = (
    ("77", "Ferro & Finch Ltd", "office@ferro-finch.example", "12 Harbour Street, Cork, T12 X8Y4, Ireland"),
    ("81", "Åsa Lindqvist", "asa@lindqvist.example", "Storgatan 4, 582 23 Linköping, Sweden"),
    ("85", "Northbank Rowing Club", "treasurer@northbank.example", "Boathouse Lane 1, Leeds, LS1 4AP, UK"),
    ("90", "Zoë Müller-Okafor", "zoe@okafor.example", "Gartenstraße 19, 79098 Freiburg, Germany"),
    ("93", "Pines Veterinary Practice", "desk@pines-vet.example", "804 Ridge Road, Duluth, MN 55804, USA"),
)

# Number, customer, status, total, refunded so far, currency. Refunds from 100000 cents need two people.
INVOICES = (
    ("4398", "77", OPEN, 12_900, 0, "USD"),
    ("4401", "81", REFUNDED, 5_400, 5_400, "EUR"),
    ("4402", "85", VOID, 31_550, 0, "GBP"),
    ("4405", "81", OPEN, 250_000, 0, "EUR"),
    ("4407", "85", OPEN, 9_900, 2_000, "GBP"),
    ("4409", "93", OPEN, 1_250_000, 0, "USD"),
    ("4410", "90", OPEN, 18_745, 0, "EUR"),
    (STORY_INVOICE, "77", OPEN, 48_000, 0, "USD"),
    ("4413", "93", OPEN, 7_250, 0, "USD"),
    ("4415", "90", OPEN, 64_000, 0, "EUR"),
    ("4418", "85", OPEN, 112_000, 0, "GBP"),
    ("4420", "93", OPEN, 23_980, 0, "USD"),
)

SHIPMENTS = (
    ("sh_7701", "4398", "Northway", "delivered", "signed for at the door", "70"),
    ("sh_8105", "4405", "Northway", "in_transit", "left the depot", "71"),
    ("sh_8507", "4407", "Kestrel Parcels", "delivered", "one of two boxes damaged", "72"),
    ("sh_9309", "4409", "Kestrel Parcels", "exception", "returned to sender", "73"),
    ("sh_9010", "4410", "Northway", "exception", "address not found", "74"),
    ("sh_7712", STORY_INVOICE, "Northway", "exception", "delivery exception", "77"),
    ("sh_9313", "4413", "Northway", "delivered", "left with a neighbour", "78"),
    ("sh_9015", "4415", "Kestrel Parcels", "in_transit", "held at customs", "79"),
    ("sh_8518", "4418", "Northway", "exception", "lost in transit", "80"),
    ("sh_9320", "4420", "Kestrel Parcels", "delivered", "left at the desk", "82"),
)


@transaction.atomic
def seed_billing() -> int:
    """Add the rows that are not there yet, and return how many that were. What is there is left as it is."""
    before = _count()
    Customer.objects.bulk_create(
        [Customer(customer_id=number, name=name, email=email, address=at) for number, name, email, at in CUSTOMERS],
        ignore_conflicts=True,
    )
    Invoice.objects.bulk_create(
        [
            Invoice(
                invoice_id=number, customer_id=customer, status=status, total_cents=total, refunded_cents=refunded,
                currency=currency,
            )
            for number, customer, status, total, refunded, currency in INVOICES
        ],
        ignore_conflicts=True,
    )  # fmt: skip
    Shipment.objects.bulk_create(
        [
            Shipment(
                shipment_id=number, invoice_id=invoice, carrier=carrier, status=status, note=note,
                tracking_url=f"https://carrier.example/track/{track}",
            )
            for number, invoice, carrier, status, note, track in SHIPMENTS
        ],
        ignore_conflicts=True,
    )  # fmt: skip
    _seed_refunds()
    return _count() - before


def _seed_refunds() -> None:
    """The refunds behind what the invoices above say."""
    for number, _customer, _status, _total, refunded, _currency in INVOICES:
        if refunded:
            fields = {"invoice_id": number, "amount_cents": refunded, "made_by": "an earlier system"}
            Refund.objects.get_or_create(refund_id=f"{number}-{refunded}", defaults=fields)


def _count() -> int:
    return sum(model._default_manager.count() for model in (Customer, Invoice, Refund, Shipment))
