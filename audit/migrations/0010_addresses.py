"""Addresses from which too many sign-ins failed are forgotten; how many there were is not."""

from django.db import migrations

from audit.migrations._sql_0010 import FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0009_one_statement")]

    # Nothing to go back to: what was forgotten stays so.
    operations = [migrations.RunSQL(FORWARDS, migrations.RunSQL.noop)]
