"""The append-only log: events, erasable payloads, outbox, counters, and the one function that writes."""

import django.db.models.deletion
from django.db import migrations, models

from audit.migrations._sql_0001 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.RunSQL(FORWARDS, BACKWARDS),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("kind", models.TextField()),
                ("actor_type", models.TextField()),
                ("actor_id", models.TextField()),
                ("on_behalf_of", models.TextField(null=True)),
                ("agent", models.TextField(null=True)),
                ("target", models.TextField(null=True)),
                ("plan_id", models.TextField(null=True)),
                ("plan_seq", models.IntegerField(null=True)),
                ("operation", models.TextField(null=True)),
                ("task_id", models.TextField(null=True)),
                ("request_id", models.TextField(null=True)),
                ("leaf", models.BinaryField()),
                ("leaf_hash", models.BinaryField()),
            ],
            options={
                "db_table": "audit_event",
                "permissions": (("export_event", "Can export events"),),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Payload",
            fields=[
                (
                    "event",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="payload",
                        serialize=False,
                        to="audit.event",
                    ),
                ),
                ("salt", models.BinaryField()),
                ("body", models.TextField()),
            ],
            options={
                "db_table": "audit_payload",
                "managed": False,
                "default_permissions": (),
            },
        ),
    ]
