"""The index of words answers by itself where words are, without its table."""

from django.db import migrations

from audit.migrations._sql_0012 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0011_places")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
