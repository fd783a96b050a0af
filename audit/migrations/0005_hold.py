"""Holds, rules, outbox and counters are not emptied, by nobody; a hold is released and not changed otherwise."""

from django.db import migrations

from audit.migrations._sql_0005 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_pairs")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
