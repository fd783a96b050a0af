"""Words are found by an index, which the sequencer makes behind the writers, of older events too."""

from django.db import migrations

from audit.migrations._sql_0007 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0006_lighter")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
