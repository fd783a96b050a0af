"""Waiting requests, counted. Unlogged: a row is worth nothing after a crash, and costs no flush before."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("plans", "0002_rules")]

    operations = [
        migrations.RunSQL("ALTER TABLE plans_wait SET UNLOGGED", "ALTER TABLE plans_wait SET LOGGED"),
    ]
