"""Destinations that the log is sent on to, from the command line."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit.canonical import format_at
from plans.errors import kept
from plans.registry import COMMAND_LINE
from plans.registry_rules import RegistryError
from reviewer.streams.changing import StreamRefused, create_stream, remove_stream, switch_stream
from reviewer.streams.models import Stream
from reviewer.streams.sending import lag_of


class Command(BaseCommand):
    help = "Send the log on by signed webhook: make destinations, see their lag, pause, resume and remove them."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        create = actions.add_parser("create", help="a destination; its secret is shown this once")
        create.add_argument("name")
        create.add_argument("--url", required=True, help="https unless loopback")
        create.add_argument("--from-index", type=int, default=0, metavar="N", help="the first place (default: 0)")
        listed = actions.add_parser("list", help="every destination, its cursor and its lag")
        others = [
            actions.add_parser(action, help=f"{action} a destination") for action in ("pause", "resume", "remove")
        ]
        for other in others:
            other.add_argument("name")
        for one in (create, listed, *others):
            one.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            document, sentence = getattr(self, f"_{options['action']}")(options)
        except (StreamRefused, RegistryError) as refused:
            raise CommandError(str(refused)) from None
        self.stdout.write(json.dumps(document) if options["json"] else sentence)

    def _create(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        stream, secret = create_stream(
            name=options["name"], url=options["url"], from_index=options["from_index"], by=COMMAND_LINE
        )
        return {"stream": stream.name, "secret": secret.reveal()}, f"secret, shown this once: {secret.reveal()}"

    def _list(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        rows = []
        for stream in Stream.objects.order_by("name"):
            lag = lag_of(stream)
            rows.append(
                {
                    "stream": stream.name,
                    "url": stream.url,
                    "next_index": stream.next_index,
                    "behind": lag.events,
                    "behind_since": None if lag.since is None else format_at(lag.since),
                    "paused": stream.is_paused,
                    "failures": stream.failures,
                    "last_error": str(kept(stream.last_error)),
                }
            )
        lines = [
            f"{row['stream']}: {'paused, ' if row['paused'] else ''}{row['behind']} events behind at place"
            f" {row['next_index']}{', ' + str(row['last_error']) if row['last_error'] else ''}"
            for row in rows
        ]
        return {"streams": rows}, "\n".join(lines) or "The log is sent nowhere."

    def _pause(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        return self._switch(options["name"], is_paused=True)

    def _resume(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        return self._switch(options["name"], is_paused=False)

    def _switch(self, name: str, *, is_paused: bool) -> tuple[dict[str, Any], str]:
        stream = switch_stream(name=name, is_paused=is_paused, by=COMMAND_LINE)
        return {"stream": stream.name, "paused": is_paused}, f"{name} is {'paused' if is_paused else 'sent to again'}."

    def _remove(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        remove_stream(name=options["name"], by=COMMAND_LINE)
        return {"stream": options["name"], "removed": True}, f"{options['name']} is removed."
