"""An event costs its writer less again: what makes its id is opened by the planner, and chance is drawn once."""

from django.db import migrations

from audit.migrations._sql_0008 import FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0007_words")]

    # Nothing to go back to: the functions before wrote the same.
    operations = [migrations.RunSQL(FORWARDS, migrations.RunSQL.noop)]
