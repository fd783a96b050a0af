"""The tables of the demonstration: a small billing system, and the plans that its own HTTP server keeps.

Lock order: RemotePlan -> Invoice -> Refund; RemotePlan -> Customer.
"""

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

OPEN, REFUNDED, VOID = "open", "refunded", "void"


class Customer(models.Model):
    """Who gets invoices. The number is text: `77` and `077` are two customers."""

    customer_id = models.CharField(primary_key=True, max_length=32)
    name = models.CharField(max_length=200)
    email = models.EmailField()
    address = models.TextField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(address__regex=r"^\s*$"), name="demo_customer_has_an_address"),
        ]

    def __str__(self) -> str:
        return self.customer_id


class Invoice(models.Model):
    """What a customer was billed, in the currency's smallest unit, and how much of it went back."""

    invoice_id = models.CharField(primary_key=True, max_length=32)
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="invoices")
    status = models.CharField(max_length=8, default=OPEN)
    total_cents = models.BigIntegerField()
    refunded_cents = models.BigIntegerField(default=0)
    currency = models.CharField(max_length=3)
    issued_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(total_cents__gt=0), name="demo_invoice_total_is_positive"),
            models.CheckConstraint(condition=Q(refunded_cents__gte=0), name="demo_refunded_is_not_negative"),
            models.CheckConstraint(
                condition=Q(refunded_cents__lte=F("total_cents")), name="demo_refunded_is_at_most_the_total"
            ),
            models.CheckConstraint(
                condition=Q(status=REFUNDED, refunded_cents__gte=F("total_cents"))
                | (Q(status__in=[OPEN, VOID]) & Q(refunded_cents__lt=F("total_cents"))),
                name="demo_invoice_status_fits_what_remains",
            ),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="demo_currency_is_three_letters"),
        ]

    def __str__(self) -> str:
        return self.invoice_id

    @property
    def remaining_cents(self) -> int:
        return self.total_cents - self.refunded_cents


class Refund(models.Model):
    """Money that went back, once. Never more than its invoice says (`demo_refunds_are_within_refunded`, a trigger).

    The number names what had gone back from the invoice once this refund was made: `4412-20000`. That only grows, so
    one plan applied twice collides here.
    """

    refund_id = models.CharField(primary_key=True, max_length=64)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="refunds")
    amount_cents = models.BigIntegerField()
    made_by = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(amount_cents__gt=0), name="demo_refund_is_positive")]

    def __str__(self) -> str:
        return self.refund_id


class Shipment(models.Model):
    """Where the goods of an invoice are, as the carrier told last."""

    shipment_id = models.CharField(primary_key=True, max_length=32)
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="shipments")
    carrier = models.CharField(max_length=64)
    status = models.CharField(max_length=16)
    note = models.CharField(max_length=200, blank=True, default="")
    tracking_url = models.URLField(blank=True, default="")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["in_transit", "delivered", "exception"]), name="demo_shipment_status_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.shipment_id


class RemotePlan(models.Model):
    """A plan of the billing system's own HTTP server, which knows nothing of the desk that may sit in front of it.

    The token is kept as its hash only. An answer that is final is kept with the key it was given under, and given
    again to whoever asks with that key.
    """

    PENDING, COMMITTED, CONFLICTED, EXPIRED = "pending", "committed", "conflicted", "expired"

    plan_id = models.CharField(primary_key=True, max_length=64)
    token_hash = models.CharField(max_length=64)
    operation = models.CharField(max_length=64)
    inputs = models.TextField()
    planned_state = models.TextField()
    actions = models.TextField()
    input_fingerprint = models.CharField(max_length=80)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    state = models.CharField(max_length=10, default=PENDING)
    ended_at = models.DateTimeField(null=True)
    idempotency_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 (no key yet is not an empty key)
    answer_status = models.PositiveSmallIntegerField(null=True)
    answer_body = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["token_hash"], name="demo_remote_token_is_unique"),
            models.UniqueConstraint(fields=["idempotency_key"], name="demo_remote_key_is_bound_once"),
            models.CheckConstraint(
                condition=Q(state__in=["pending", "committed", "conflicted", "expired"]),
                name="demo_remote_plan_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(state="pending", ended_at__isnull=True, answer_status__isnull=True)
                | (~Q(state="pending") & Q(ended_at__isnull=False, answer_status__isnull=False)),
                name="demo_remote_end_has_its_answer",
            ),
            models.CheckConstraint(condition=Q(expires_at__gt=F("created_at")), name="demo_remote_plan_has_a_life"),
        ]

    def __str__(self) -> str:
        return self.plan_id


class RemoteApplication(models.Model):
    """The billing server's ledger: one row per plan that it wrote, in the transaction that wrote it."""

    plan = models.OneToOneField(RemotePlan, on_delete=models.PROTECT, related_name="application")
    idempotency_key = models.CharField(max_length=255)
    applied_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.plan_id
