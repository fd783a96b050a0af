"""Move everything sealed to the newest of SEAL_KEYS, after a new one was put in front."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from plans import resealing


class Command(BaseCommand):
    help = "Seal tokens, credentials and secrets anew under the first of SEAL_KEYS. May run beside the desk, and twice."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        if missing := resealing.missing_keys():
            names = ", ".join(f"{name} ({count} values)" for name, count in sorted(missing.items()))
            raise CommandError(f"SEAL_KEYS lacks keys that are still needed: {names}.")
        for step in resealing.reseal_all():
            if not options["json"]:
                self.stdout.write(f"\r{step.done} of {step.total} sealed under the newest key", ending="")
                self.stdout.flush()
        last = resealing.progress()
        if options["json"]:
            self.stdout.write(json.dumps({"sealed": last.done, "total": last.total}))
        else:
            self.stdout.write(f"\r{last.done} of {last.total} sealed under the newest key. The others may go.")
