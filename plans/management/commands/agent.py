"""Agents from the command line: create, rotate, pause, resume, disable."""

import json
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from plans import registry
from plans.registry_rules import RegistryError


class Command(BaseCommand):
    help = "Create agents, rotate their key and secrets, pause and disable them."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        create = actions.add_parser("create", help="a new agent; its key and secrets are shown this once")
        create.add_argument("--owner", metavar="EMAIL", help="the person it belongs to (default: the first admin)")
        create.add_argument("--target", action="append", default=[], metavar="NAME", help="it may feed; repeatable")
        create.add_argument("--callback", default="", metavar="URL", help="where outcomes are told, https")
        rotate = actions.add_parser("rotate", help="a new key at once; the old webhook secret until the next rotation")
        pause = actions.add_parser("pause", help="take no new plans; waiting ones can still be decided")
        resume = actions.add_parser("resume", help="take new plans again")
        disable = actions.add_parser("disable", help="for good: key and secrets dead, pending plans withdrawn")
        for sub in (create, rotate, pause, resume, disable):
            sub.add_argument("name")
            sub.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            document = getattr(self, f"_{options['action']}")(options)
        except RegistryError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            for name, value in document.items():
                self.stdout.write(f"{name}: {value}")

    def _create(self, options: dict[str, Any]) -> dict[str, Any]:
        owner = None
        if options["owner"]:
            owner = get_user_model().objects.filter(email=options["owner"].lower(), is_active=True).first()
            if owner is None:
                raise CommandError(f"There is no person {options['owner']}.")
        return _shown(
            registry.create_agent(
                name=options["name"], owner=owner, targets=options["target"], callback_url=options["callback"]
            )
        )

    def _rotate(self, options: dict[str, Any]) -> dict[str, Any]:
        return _shown(registry.rotate_agent(name=options["name"]))

    def _pause(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"agent": registry.pause_agent(name=options["name"]).name, "is_paused": True}

    def _resume(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"agent": registry.pause_agent(name=options["name"], is_paused=False).name, "is_paused": False}

    def _disable(self, options: dict[str, Any]) -> dict[str, Any]:
        withdrawn = registry.disable_agent(name=options["name"])
        return {"agent": options["name"], "is_disabled": True, "plans_withdrawn": len(withdrawn)}


def _shown(credentials: registry.AgentCredentials) -> dict[str, Any]:
    return {
        "agent": credentials.agent.name,
        "api_key": credentials.api_key,
        "webhook_secret": credentials.webhook_secret,
        "callback_secret": credentials.callback_secret,
    }
