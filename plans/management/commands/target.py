"""Targets from the command line: register a remote one, change it, disable it."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from plans import registry
from plans.models import Policy, Target
from plans.registry_rules import RegistryError


class Command(BaseCommand):
    help = "Register remote targets, change them, disable them."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        create = actions.add_parser("create", help="a new remote target; one approval unless told otherwise")
        create.add_argument("--base-url", required=True, metavar="URL", help="https, or http on loopback")
        change = actions.add_parser("set", help="change it; a new address withdraws its pending plans")
        change.add_argument("--base-url", metavar="URL", help="https, or http on loopback")
        for sub in (create, change):
            sub.add_argument("--approvals", type=int, metavar="N", help="how many people approve; 0: none")
            sub.add_argument(
                "--operation", action="append", metavar="NAME", help="it offers; repeatable (default: any)"
            )
            sub.add_argument(
                "--bearer-stdin", action="store_true", help="read its bearer credentials from standard input"
            )
            sub.add_argument("--commit-path", metavar="PATH", help="default /{operation}/commit")
            sub.add_argument("--status-path", metavar="PATH", help="default /plans/{plan_id}")
        disable = actions.add_parser("disable", help="take no more plans for it; pending ones are withdrawn")
        for sub in (create, change, disable):
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
        approvals = 1 if options["approvals"] is None else options["approvals"]
        target = registry.create_target(
            **_fields(options) | {"approvals": approvals, "operations": options["operation"] or ()}
        )
        return _shown(target)

    def _set(self, options: dict[str, Any]) -> dict[str, Any]:
        return _shown(registry.set_target(**_fields(options)))

    def _disable(self, options: dict[str, Any]) -> dict[str, Any]:
        withdrawn = registry.disable_target(name=options["name"])
        return {"target": options["name"], "is_disabled": True, "plans_withdrawn": len(withdrawn)}


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    bearer = None
    if options["bearer_stdin"]:
        bearer = sys.stdin.readline().strip()
        if not bearer:
            raise CommandError("There were no credentials on standard input.")
    return {
        "name": options["name"],
        "base_url": options["base_url"],
        "approvals": options["approvals"],
        "operations": options["operation"],
        "bearer": bearer,
        "commit_path": options["commit_path"],
        "status_path": options["status_path"],
    }


def _shown(target: Target) -> dict[str, Any]:
    where = registry.present_address(target)
    policy = Policy.objects.filter(target=target).order_by("-version")[0]
    return {
        "target": target.name,
        "base_url": target.base_url,
        "operations": list(target.operations),
        "commit_path": where.commit_path,
        "status_path": where.status_path,
        "approvals": policy.approvals,
        "policy_version": policy.version,
    }
