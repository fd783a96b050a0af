"""Auditors' work from the command line: verify the log, export it."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.notes import NoteError
from audit.recording import Actor
from audit.signing import KeyMissing
from audit.verification import AlreadyVerifyingError, verify_log

COMMAND_LINE = Actor("system", "command-line", "Command line")
SHOWN_EVERY = 0.5


class Progress:
    """How far it has come, on standard error, where a person looks on."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.is_shown = sys.stderr.isatty()
        self._next = time.monotonic() + SHOWN_EVERY

    def __call__(self, done: int, total: int) -> None:
        if self.is_shown and (time.monotonic() >= self._next or done == total):
            self._next = time.monotonic() + SHOWN_EVERY
            sys.stderr.write(f"\r{self.doing}: {done} of {total} events")
            sys.stderr.flush()

    def end(self) -> None:
        if self.is_shown:
            sys.stderr.write("\n")


class Command(BaseCommand):
    help = "Verify the audit log, and export it."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        verify = actions.add_parser("verify", help="check every event, the tree and every checkpoint; 1 on damage")
        verify.add_argument(
            "--checkpoint", type=Path, metavar="FILE", help="a checkpoint that you kept: is it its beginning?"
        )
        verify.add_argument("--key", help="the log's verifier key as you know it (default: this installation's)")
        verify.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        getattr(self, f"_{options['action']}")(options)

    def _verify(self, options: dict[str, Any]) -> None:
        progress = Progress("Verifying")
        try:
            known = options["checkpoint"].read_text("utf-8") if options["checkpoint"] else None
            report = verify_log(actor=COMMAND_LINE, via="command", known=known, key=options["key"], progress=progress)
        except (KeyMissing, NoteError, AlreadyVerifyingError, OSError) as refused:
            raise CommandError(str(refused), returncode=2) from None
        progress.end()
        self.stdout.write(json.dumps(report.as_data()) if options["json"] else "\n".join(report.lines()))
        if not report.is_whole:
            sys.exit(1)
