"""Django's migrate, as the role that owns the tables unless told otherwise."""

from django.core.management.base import CommandParser
from django.core.management.commands import migrate


class Command(migrate.Command):
    """Migrates over the `owner` connection, from which the application's role then gets its rights (grants.py)."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(database="owner")
