"""The index of words knows at which places of a block a word is; what it has of older ones stays as it is."""

from django.db import migrations

from audit.migrations._sql_0011 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0010_addresses")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
