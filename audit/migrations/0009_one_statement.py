"""An event is one statement, and costs its writer no setting of a search_path."""

from django.db import migrations

from audit.migrations._sql_0009 import FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0008_opened")]

    # Nothing to go back to: the functions before wrote the same.
    operations = [migrations.RunSQL(FORWARDS, migrations.RunSQL.noop)]
