"""Auditors' work from the command line: verify the log, export it; and its owner's: holds, rules, erasure."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.erasure import ErasureRefused
from audit.evidence import write_pack
from audit.export import FORMATS, begin_export, parse_export
from audit.filters import FilterError
from audit.notes import NoteError
from audit.recording import Actor
from audit.retention_commands import ACTIONS, add_actions
from audit.signing import KeyMissing
from audit.verification import AlreadyVerifyingError, verify_log

COMMAND_LINE = Actor("system", "command-line", "Command line")
SHOWN_EVERY = 0.5
BAR = 30
FILTERS = ("agent", "target", "plan_id", "operation", "task_id", "actor", "from", "to", "q", "preset", "from_index")


class Progress:
    """How far it has come, on standard error, where a person looks on."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.is_shown = sys.stderr.isatty()
        self._next = time.monotonic() + SHOWN_EVERY

    def __call__(self, done: int, total: int) -> None:
        if self.is_shown and (time.monotonic() >= self._next or done == total):
            self._next = time.monotonic() + SHOWN_EVERY
            bar = "#" * (BAR * done // total if total else BAR)
            sys.stderr.write(f"\r{self.doing} [{bar:.<{BAR}}] {done:,} of {total:,} events")
            sys.stderr.flush()

    def end(self) -> None:
        if self.is_shown:
            sys.stderr.write("\n")


class Command(BaseCommand):
    help = "Verify the audit log, export it, and say how long what it holds must stay."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        verify = actions.add_parser("verify", help="check every event, the tree and every checkpoint; 1 on damage")
        verify.add_argument(
            "--checkpoint", type=Path, metavar="FILE", help="a checkpoint that you kept: is it its beginning?"
        )
        verify.add_argument("--key", help="the log's verifier key as you know it (default: this installation's)")
        verify.add_argument("--json", action="store_true", help="print one JSON document")

        export = actions.add_parser("export", help="write every event that matches to a file")
        export.add_argument(
            "--format", required=True, choices=(*FORMATS, "evidence"), help="evidence: a zip with proofs"
        )
        export.add_argument(
            "--out", required=True, metavar="FILE", help="written whole or not at all; - for the output"
        )
        export.add_argument("--kind", action="append", default=[], help="may be repeated")
        for name in FILTERS:
            export.add_argument(f"--{name.replace('_', '-')}", dest=f"filter_{name}", metavar="VALUE")
        export.add_argument("--json", action="store_true", help="print one JSON document when done")
        add_actions(actions)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] in ACTIONS:
            self._keep(options)
        else:
            getattr(self, f"_{options['action']}")(options)

    def _keep(self, options: dict[str, Any]) -> None:
        try:
            document, sentence = ACTIONS[options["action"]](options, COMMAND_LINE)
        except (ErasureRefused, FilterError) as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(json.dumps(document) if options["json"] else sentence)

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

    def _export(self, options: dict[str, Any]) -> None:
        given = {name: [options[f"filter_{name}"]] for name in FILTERS if options[f"filter_{name}"] is not None}
        progress = Progress("Exporting")
        try:
            form, request = parse_export(
                {
                    **given,
                    "format": [options["format"]],
                    **({"kind": options["kind"]} if options["kind"] else {}),
                }.items(),
                forms=(*FORMATS, "evidence"),
            )
            with _writing(options["out"]) as file:
                export = begin_export(request, actor=COMMAND_LINE, via="command", form=form)
                if form == "evidence":
                    write_pack(export, file, progress)
                else:
                    file.writelines(export.stream(progress))
        except (FilterError, OSError) as refused:
            raise CommandError(str(refused)) from None
        progress.end()
        if options["json"]:
            self.stdout.write(json.dumps({"rows": export.rows, "file": options["out"], "format": form}))
        elif options["out"] != "-":
            self.stdout.write(f"{export.rows} events written to {options['out']}.")


@contextmanager
def _writing(out: str) -> Iterator[IO[bytes]]:
    """The file to write; it gets its name once it is whole and on disk."""
    if out == "-":
        yield sys.stdout.buffer
        return
    part = Path(f"{out}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
