"""After every migrate: what the application's role may do, which is less than what the owner may."""

from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import sql

from audit import grants as audit_grants

ORDINARY_TABLES = """
    SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
    AND c.relname NOT LIKE 'audit\\_%' AND c.relname <> 'django_migrations' ORDER BY 1
"""
ORDINARY_SEQUENCES = """
    SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'S'
    AND c.relname NOT LIKE 'audit\\_%' AND c.relname <> 'django_migrations_id_seq' ORDER BY 1
"""


def grant_after_migrate(sender: Any, using: str, **_: Any) -> None:
    """Grants once per migrate, as the owner. May be repeated. Does nothing where there is only one role."""
    if getattr(sender, "label", None) != "reviewer":
        return
    role = settings.DATABASES["default"]["USER"]
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT current_user, current_database()")
        owner, database = cursor.fetchone()
        if not role or role == owner:
            return
        name = sql.Identifier(role)
        statements = [
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), name),
            sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(name),
            sql.SQL("REVOKE ALL ON TABLE django_migrations FROM {}").format(name),
            sql.SQL("GRANT SELECT ON TABLE django_migrations TO {}").format(name),
        ]
        for query, template in (
            (ORDINARY_TABLES, "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {} TO {}"),
            (ORDINARY_SEQUENCES, "GRANT USAGE, SELECT ON SEQUENCE {} TO {}"),
        ):
            cursor.execute(query)
            statements += [sql.SQL(template).format(sql.Identifier(row[0]), name) for row in cursor.fetchall()]
        for statement in statements:
            cursor.execute(statement)
        for text in audit_grants.statements(role):
            cursor.execute(text)
