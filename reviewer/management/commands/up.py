"""The whole product in one command."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from reviewer import supervisor


class Command(BaseCommand):
    help = (
        "Runs the whole product: PostgreSQL and Redis where DATABASE_URL and REDIS_URL are not set, migrations, web, "
        "worker and scheduler. Prints the URL once it serves; SIGTERM or Ctrl-C stops all of it."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        supervisor.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Never reached from the command line: manage.py starts the supervisor before Django is loaded."""
        raise NotImplementedError("Start `up` through manage.py.")
