"""The billing system's tables."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("customer_id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("email", models.EmailField(max_length=254)),
                ("address", models.TextField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("address__regex", "^\\s*$"), _negated=True),
                        name="demo_customer_has_an_address",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("invoice_id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("status", models.CharField(default="open", max_length=8)),
                ("total_cents", models.BigIntegerField()),
                ("refunded_cents", models.BigIntegerField(default=0)),
                ("currency", models.CharField(max_length=3)),
                ("issued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="demo.customer"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Refund",
            fields=[
                ("refund_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("amount_cents", models.BigIntegerField()),
                ("made_by", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="refunds", to="demo.invoice"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="RemotePlan",
            fields=[
                ("plan_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("token_hash", models.CharField(max_length=64)),
                ("operation", models.CharField(max_length=64)),
                ("inputs", models.TextField()),
                ("planned_state", models.TextField()),
                ("actions", models.TextField()),
                ("input_fingerprint", models.CharField(max_length=80)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("state", models.CharField(default="pending", max_length=10)),
                ("ended_at", models.DateTimeField(null=True)),
                ("idempotency_key", models.CharField(max_length=255, null=True)),
                ("answer_status", models.PositiveSmallIntegerField(null=True)),
                ("answer_body", models.TextField(blank=True, default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("token_hash",), name="demo_remote_token_is_unique"),
                    models.UniqueConstraint(fields=("idempotency_key",), name="demo_remote_key_is_bound_once"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["pending", "committed", "conflicted", "expired"])),
                        name="demo_remote_plan_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("answer_status__isnull", True), ("ended_at__isnull", True), ("state", "pending")),
                            models.Q(
                                models.Q(("state", "pending"), _negated=True),
                                ("answer_status__isnull", False),
                                ("ended_at__isnull", False),
                            ),
                            _connector="OR",
                        ),
                        name="demo_remote_end_has_its_answer",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("expires_at__gt", models.F("created_at"))),
                        name="demo_remote_plan_has_a_life",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RemoteApplication",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("idempotency_key", models.CharField(max_length=255)),
                ("applied_at", models.DateTimeField()),
                (
                    "plan",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT, related_name="application", to="demo.remoteplan"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Shipment",
            fields=[
                ("shipment_id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("carrier", models.CharField(max_length=64)),
                ("status", models.CharField(max_length=16)),
                ("note", models.CharField(blank=True, default="", max_length=200)),
                ("tracking_url", models.URLField(blank=True, default="")),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="shipments", to="demo.invoice"
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("total_cents__gt", 0)), name="demo_invoice_total_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("refunded_cents__gte", 0)), name="demo_refunded_is_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("refunded_cents__lte", models.F("total_cents"))),
                name="demo_refunded_is_at_most_the_total",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("refunded_cents__gte", models.F("total_cents")), ("status", "refunded")),
                    models.Q(("status__in", ["open", "void"]), ("refunded_cents__lt", models.F("total_cents"))),
                    _connector="OR",
                ),
                name="demo_invoice_status_fits_what_remains",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="demo_currency_is_three_letters"
            ),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_cents__gt", 0)), name="demo_refund_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="shipment",
            constraint=models.CheckConstraint(
                condition=models.Q(("status__in", ["in_transit", "delivered", "exception"])),
                name="demo_shipment_status_is_known",
            ),
        ),
    ]
