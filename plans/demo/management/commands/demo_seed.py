"""Sets the demonstration up: billing rows, people, targets and agents. May be repeated: what is there stays."""

import io
import json
import os
import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

import msgspec
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from plans import registry
from plans.demo.agents import AGENT_TARGETS
from plans.demo.credentials import (
    AgentSecrets,
    Credentials,
    default_path,
    read_credentials,
    write_credentials,
)
from plans.demo.seed import seed_billing
from plans.models import Agent, Target
from plans.registry_rules import RegistryError

REMOTE_TARGET: Final = "billing-remote"
OWNER: Final = "ada@plandesk.example"
PEOPLE: Final = (
    ("mara@plandesk.example", "Mara Lindholm", "reviewer"),
    ("tomas@plandesk.example", "Tomás Aguirre", "reviewer"),
    ("ines@plandesk.example", "Inês Duarte", "auditor"),
    (OWNER, "Ada Okonkwo", "admin"),
)


class Command(BaseCommand):
    help = (
        "Set the demonstration up. Passwords of people made now are printed this once; `person password EMAIL` gives "
        "somebody a new one. The agents' secrets go into a file that only its owner can read."
    )

    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        port = os.environ.get("DEMO_BILLING_PORT")
        parser.add_argument(
            "--remote-url",
            default=f"http://127.0.0.1:{port}" if port else None,
            help="where demo_billing is served; without it the remote target stays as it is, or is left out",
        )
        parser.add_argument("--credentials", type=Path, default=default_path(), help="default: %(default)s")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["credentials"]
        try:
            rows = seed_billing()
            people = [_person(*person) for person in PEOPLE]
            credentials = _with_bearers(path, options["remote_url"])
            registry.ensure_hosted_targets()
            _set_remote_target(credentials)
            credentials = _with_agents(path, credentials)
        except (RegistryError, OSError, ValueError) as error:
            raise CommandError(str(error)) from error
        document = {
            "is_fresh": any(person["password"] for person in people),
            "rows_added": rows,
            "people": people,
            "agents": sorted(credentials.agents),
            "targets": list(Target.objects.order_by("name").values_list("name", flat=True)),
            "credentials": str(path),
        }
        self.stdout.write(json.dumps(document) if options["json"] else _told(document))


def _person(email: str, name: str, role: str) -> dict[str, Any]:
    """Somebody of the demonstration; the password only where they are made now."""
    document: dict[str, Any] = {"email": email, "name": name, "role": role, "password": None}
    if not get_user_model().objects.filter(email=email).exists():
        made = io.StringIO()
        call_command("person", "create", email, "--name", name, "--role", role, "--json", stdout=made)
        document["password"] = json.loads(made.getvalue())["password"]
    return document


def _with_bearers(path: Path, remote_url: str | None) -> Credentials:
    """The kept credentials, or new ones. On disk before anything is registered with them."""
    kept = read_credentials(path)
    if kept is None:
        kept = Credentials(
            billing_url=remote_url or "",
            desk_bearer=secrets.token_urlsafe(32),
            agent_bearer=secrets.token_urlsafe(32),
            agents={},
        )
        is_known = Target.objects.filter(name=REMOTE_TARGET).exists()
        write_credentials(path, kept)
        if is_known:
            registry.set_target(name=REMOTE_TARGET, bearer=kept.desk_bearer)
    elif remote_url and remote_url != kept.billing_url:
        kept = msgspec.structs.replace(kept, billing_url=remote_url)
        write_credentials(path, kept)
    return kept


def _set_remote_target(credentials: Credentials) -> None:
    target = Target.objects.filter(name=REMOTE_TARGET).first()
    if target is None and credentials.billing_url:
        registry.create_target(
            name=REMOTE_TARGET,
            base_url=credentials.billing_url,
            operations=["refund", "address.update"],
            bearer=credentials.desk_bearer,
        )
    elif target is not None and credentials.billing_url not in ("", target.base_url):
        registry.set_target(name=REMOTE_TARGET, base_url=credentials.billing_url)


def _with_agents(path: Path, credentials: Credentials) -> Credentials:
    """The credentials with those of every agent whose target is there; lost secrets are replaced by new ones."""
    owner = get_user_model().objects.get(email=OWNER)
    for name, targets in AGENT_TARGETS.items():
        is_known = Agent.objects.filter(name=name).exists()
        if (is_known and name in credentials.agents) or Target.objects.filter(name__in=targets).count() < len(targets):
            continue
        if is_known:
            made = registry.rotate_agent(name=name)
        else:
            made = registry.create_agent(name=name, owner=owner, targets=targets)
        agents = {**credentials.agents, name: AgentSecrets(made.api_key, made.webhook_secret)}
        credentials = msgspec.structs.replace(credentials, agents=agents)
        write_credentials(path, credentials)
    return credentials


def _told(document: dict[str, Any]) -> str:
    if not document["is_fresh"]:
        return (
            "The demonstration is set up already. A forgotten password is replaced by "
            "`manage.py person password mara@plandesk.example`."
        )
    lines = ["Sign in as (passwords are shown this once):"]
    lines += [
        f"  {person['email']:<24} {person['role']:<9} {person['password'] or '(as before)'}"
        for person in document["people"]
    ]
    return "\n".join(lines)
