import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0005_plans_by_replaces"),
        ("reviewer", "0002_audit_pages"),
    ]

    operations = [
        migrations.AddField(
            model_name="person",
            name="is_local_time_first",
            field=models.BooleanField(default=False),
        ),
        migrations.CreateModel(
            name="Looking",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seen_at", models.DateTimeField(db_index=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="plans.plan"),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="looking",
            constraint=models.UniqueConstraint(fields=("plan", "person"), name="reviewer_looking_is_once"),
        ),
    ]
