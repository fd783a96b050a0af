"""Makers of billing rows."""

from plans.demo.models import OPEN, Customer, Invoice


def make_customer(customer_id: str = "77", address: str = "12 Harbour Street, Cork") -> Customer:
    customer, _ = Customer.objects.get_or_create(
        pk=customer_id,
        defaults={"name": "Ferro Ltd", "email": f"office-{customer_id}@ferro.example", "address": address},
    )
    return customer


def make_invoice(
    invoice_id: str = "4412",
    *,
    total_cents: int = 48_000,
    refunded_cents: int = 0,
    status: str = OPEN,
    currency: str = "USD",
) -> Invoice:
    return Invoice.objects.create(
        pk=invoice_id,
        customer=make_customer(),
        status=status,
        total_cents=total_cents,
        refunded_cents=refunded_cents,
        currency=currency,
    )
