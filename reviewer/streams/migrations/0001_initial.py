"""Destinations of the log."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Stream",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=128)),
                ("url", models.CharField(max_length=2000)),
                ("sealed", models.BinaryField()),
                ("next_index", models.BigIntegerField(default=0)),
                ("is_paused", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField()),
                ("next_try_at", models.DateTimeField()),
                ("delivered_at", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="streams_name_is_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("next_index__gte", 0)), name="streams_cursor_is_a_place"
                    ),
                ],
            },
        ),
    ]
