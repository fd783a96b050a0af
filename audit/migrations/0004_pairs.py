"""Pages of two filters cost what pages of one do, however seldom the two meet."""

from django.db import migrations

from audit.migrations._sql_0004 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_retention")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
