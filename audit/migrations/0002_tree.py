"""The tree over the log: places, tiles, checkpoints, cosignatures, and the one function that extends them."""

from django.db import migrations

from audit.migrations._sql_0002 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
