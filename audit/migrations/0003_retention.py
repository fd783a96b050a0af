"""How long payloads stay: a minimum and a rule per kind, legal holds, and what keeps them."""

from django.db import migrations

from audit.migrations._sql_0003 import BACKWARDS, FORWARDS


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_tree")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
