"""System checks of the site's settings and of the database it runs on."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import connections

OLDEST_POSTGRES = 150000


def check_roles(**_: Any) -> list[CheckMessage]:
    """Where owner and application are one role, nothing in the database keeps the application from the log."""
    default, owner = settings.DATABASES["default"], settings.DATABASES["owner"]
    if (default["USER"], default["HOST"]) == (owner["USER"], owner["HOST"]):
        return [
            CheckWarning(
                "The application uses the role that owns the tables: it could change the audit log.",
                hint="Set DATABASE_OWNER_URL to another role, and DATABASE_URL to a restricted one.",
                id="reviewer.W001",
            )
        ]
    return []


def check_base_url(**_: Any) -> list[CheckMessage]:
    """Cookies without the Secure flag on a site that strangers can reach."""
    is_local = any(part in settings.BASE_URL for part in ("//127.", "//localhost", "//[::1]"))
    if settings.BASE_URL.startswith("http://") and not is_local:
        hint = "Put TLS in front, and set BASE_URL to its https address."
        return [
            CheckWarning("BASE_URL is http: sign-ins cross the network in the open.", hint=hint, id="reviewer.W002")
        ]
    return []


def check_lifetimes(**_: Any) -> list[CheckMessage]:
    if settings.PLAN_LIFETIME > settings.PLAN_MAX_LIFETIME:
        return [Error("PLAN_LIFETIME is longer than PLAN_MAX_LIFETIME.", id="reviewer.E001")]
    return []


def check_debug(**_: Any) -> list[CheckMessage]:
    if settings.DEBUG:
        return [CheckWarning("DEBUG is on: error pages name files and code.", id="reviewer.W003")]
    return []


def check_database_version(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Asked only where a database is asked for (`migrate`, `check --database`)."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        connection.ensure_connection()
        if connection.connection.info.server_version < OLDEST_POSTGRES:
            found.append(Error(f"Database '{alias}' is older than PostgreSQL 15.", id="reviewer.E002"))
    return found


def register_all() -> None:
    for check in (check_roles, check_base_url, check_lifetimes, check_debug):
        register(check, Tags.security)
    register(Tags.database)(check_database_version)
