"""What `up` runs before it serves, in one process: migrations, checks of the database, the demonstration's data."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Migrates, checks the database and, with --demo, sets the demonstration up. May be repeated."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--demo", action="store_true", help="set the demonstration up")

    def handle(self, *args: Any, **options: Any) -> None:
        """Refuses, before anything serves, what a check of the database calls an error: a sealing key that is gone."""
        self._check_hosted_apps()
        call_command("migrate", verbosity=0, skip_checks=True)
        self._check()
        if options["demo"]:
            call_command("demo_seed")

    def _check_hosted_apps(self) -> None:
        """A model of a hosted app without its migration has no table, which would look like an outage."""
        for app in apps.get_app_configs():
            if not {app.name, f"{type(app).__module__}.{type(app).__qualname__}"} & set(settings.HOSTED_APPS):
                continue
            try:
                call_command("makemigrations", app.label, check_changes=True, dry_run=True, verbosity=0)
            except SystemExit:
                raise CommandError(
                    f"HOSTED_APPS: the models of {app.name} are not all in its migrations; run "
                    f"`manage.py makemigrations {app.label}` first."
                ) from None

    def _check(self) -> None:
        found = checks.run_checks(tags=[checks.Tags.database, checks.Tags.security], databases=["default"])
        serious = [message for message in found if message.is_serious()]
        if serious:
            raise CommandError(" ".join(f"{message.msg} {message.hint or ''}".strip() for message in serious))
        for message in found:
            self.stderr.write(f"Warning: {message.msg} {message.hint or ''}".strip())
