"""Why a channel fails, as a whole sentence that any language can say; and who of several receivers has a message.

How often somebody hears of plans under one policy.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("notifications", "0001_notifications"),
        ("plans", "0006_owners_and_seen"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="last_failure",
            field=models.TextField(blank=True, default=""),
        ),
        migrations.AddField(
            model_name="message",
            name="reached",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.PositiveSmallIntegerField(), default=list, size=None
            ),
        ),
        migrations.CreateModel(
            name="TargetPace",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pace", models.CharField(max_length=8)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="paces",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "target",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="paces", to="plans.target"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["person", "target"], name="notifications_one_pace_per_target"),
                    models.CheckConstraint(
                        condition=models.Q(("pace__in", ["at_once", "daily", "every"])),
                        name="notifications_target_pace_is_known",
                    ),
                ],
            },
        ),
    ]
