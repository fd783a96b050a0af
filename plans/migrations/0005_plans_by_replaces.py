"""An index for the question that every arriving plan asks: did one that replaces it come before?"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0004_history_indexes"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("replaces__isnull", False)),
                fields=["agent", "replaces"],
                name="plans_by_replaces",
            ),
        ),
    ]
