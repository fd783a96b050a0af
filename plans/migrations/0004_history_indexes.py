"""An index for every filter of the list of all plans, and for what admins list of callbacks."""

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0003_wait"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="callback",
            index=models.Index(
                condition=models.Q(("gave_up_at__isnull", False)), fields=["-id"], name="plans_callbacks_given_up"
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["state", "received_at", "id"], name="plans_by_state_and_receipt"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["agent", "received_at", "id"], name="plans_by_agent_and_receipt"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["target", "received_at", "id"], name="plans_by_target_and_receipt"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(fields=["operation", "received_at", "id"], name="plans_by_op_and_receipt"),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=models.Index(
                condition=models.Q(("intent__isnull", False)), fields=["intent"], name="plans_by_intent"
            ),
        ),
        migrations.AddIndex(
            model_name="plan",
            index=django.contrib.postgres.indexes.GinIndex(fields=["action_targets"], name="plans_by_action_target"),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["task_id"], name="plans_tasks_by_task_id"),
        ),
    ]
