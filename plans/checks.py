"""What must hold of the database before the desk starts."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register

from plans import resealing


def check_seal_keys(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Start is refused while a row needs a key that is gone. Asked where a database is asked for."""
    if not databases or "default" not in databases or not resealing.has_tables():
        return []
    return [
        Error(
            f"SEAL_KEYS lacks the key {name}, under which {count} sealed {'value is' if count == 1 else 'values are'}.",
            hint="Put the key back behind the newest one, then run `manage.py reseal`.",
            id="plans.E001",
        )
        for name, count in sorted(resealing.missing_keys().items())
    ]


def register_all() -> None:
    """Register the checks of this app."""
    register(Tags.database)(check_seal_keys)
