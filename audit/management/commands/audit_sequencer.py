"""The process that gives events their place in the tree and signs; `up` starts one."""

import json
import signal
import threading
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit import witness
from audit.changes import record_change
from audit.connections import open_connection
from audit.sequencer import Sequencer, SequencingStopped, make_sequencer, run
from audit.signing import KeyMissing, SigningRefused


class Command(BaseCommand):
    help = "Puts events into the tree and signs checkpoints, until SIGTERM. One process leads, others stand by."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one turn, then end; a code that is not 0 on refusal")
        parser.add_argument(
            "--trust-database",
            action="store_true",
            help="where the file of the last signed state was lost: take the database's last checkpoint for it",
        )
        parser.add_argument("--json", action="store_true", help="with --once: print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["trust_database"] or options["once"]:
                self._turn(options)
            else:
                self._run()
        except (KeyMissing, SigningRefused, SequencingStopped) as refusal:
            raise CommandError(str(refusal)) from None

    def _run(self) -> None:
        stop = threading.Event()

        def end(number: int, frame: FrameType | None) -> None:
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        witnesses = threading.Thread(target=witness.run, args=(stop,), name="witnesses", daemon=True)
        witnesses.start()
        run(stop)

    def _turn(self, options: dict[str, Any]) -> None:
        with open_connection() as connection:
            sequencer = make_sequencer(connection)
            if not sequencer.take_lead():
                raise CommandError("Another sequencer leads: there is nothing to do here.")
            if options["trust_database"]:
                self._trust(sequencer)
            turn = sequencer.turn(heartbeat=0)
        assert turn.signed is not None
        document = {"sequenced": turn.moved, "size": turn.signed.size, "root": turn.signed.root.hex()}
        sentence = f"{turn.moved} events sequenced; signed a checkpoint of {turn.signed.size}."
        self.stdout.write(json.dumps(document) if options["json"] else sentence)

    def _trust(self, sequencer: Sequencer) -> None:
        trusted = sequencer.trust_database()
        size = 0 if trusted is None else trusted.size
        record_change("database_trusted", f"The last signed state is the database's own, of {size} events.")
