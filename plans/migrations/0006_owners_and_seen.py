"""Who owned an agent until when, and that none of them decides its plans; when it was seen; decisions by their time."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
CREATE FUNCTION plans_keep_former_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO plans_formerowner (agent_id, person_id, until) VALUES (OLD.id, OLD.owner_id, clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER plans_agent_keeps_its_owners AFTER UPDATE OF owner_id ON plans_agent
    FOR EACH ROW WHEN (OLD.owner_id <> NEW.owner_id) EXECUTE FUNCTION plans_keep_former_owner();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_formerowner
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();

CREATE FUNCTION plans_check_decider() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM plans_plan p JOIN plans_agent a ON a.id = p.agent_id
        WHERE p.id = NEW.plan_id AND (a.owner_id = NEW.reviewer_id OR EXISTS (
            SELECT FROM plans_formerowner f
            WHERE f.agent_id = p.agent_id AND f.person_id = NEW.reviewer_id AND f.until >= p.received_at))
    ) THEN
        RAISE EXCEPTION 'nobody decides a plan of an agent that they owned since it was received'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_owner_never_decides';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER plans_owner_never_decides BEFORE INSERT OR UPDATE OF reviewer_id, plan_id ON plans_approval
    FOR EACH ROW EXECUTE FUNCTION plans_check_decider();
CREATE TRIGGER plans_owner_never_decides BEFORE INSERT ON plans_rejection
    FOR EACH ROW EXECUTE FUNCTION plans_check_decider();
"""

BACKWARD = """
DROP TRIGGER plans_owner_never_decides ON plans_rejection;
DROP TRIGGER plans_owner_never_decides ON plans_approval;
DROP TRIGGER plans_facts_are_final ON plans_formerowner;
DROP TRIGGER plans_agent_keeps_its_owners ON plans_agent;
DROP FUNCTION plans_check_decider(), plans_keep_former_owner();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("plans", "0005_plans_by_replaces"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="api_key_hint",
            field=models.CharField(blank=True, default="", max_length=12),
        ),
        migrations.CreateModel(
            name="AgentSeen",
            fields=[
                (
                    "agent",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="seen",
                        serialize=False,
                        to="plans.agent",
                    ),
                ),
                ("seen_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="FormerOwner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField()),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="former_owners",
                        to="plans.agent",
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["agent", "person", "until"], name="plans_former_owners")]},
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(fields=["approved_at"], name="plans_approvals_by_time"),
        ),
        migrations.AddIndex(
            model_name="rejection",
            index=models.Index(fields=["rejected_at"], name="plans_rejections_by_time"),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
