"""People from the command line: create, change, disable, give a token."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from reviewer import people
from reviewer.models import Person


class Command(BaseCommand):
    help = "Create and disable people, set their roles and passwords, and make tokens for the audit API."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        create = actions.add_parser("create", help="a new person; without --password-stdin the password is shown once")
        create.add_argument("--name", default="", help="shown beside decisions (default: the address)")
        create.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
        roles = actions.add_parser("roles", help="replace a person's roles")
        for sub in (create, roles):
            sub.add_argument("--role", action="append", required=True, choices=Person.ROLES, help="may be repeated")
        password = actions.add_parser("password", help="a new password from standard input; ends the person's sessions")
        disable = actions.add_parser("disable", help="ends sign-ins, sessions and tokens; the history stays")
        token = actions.add_parser("token", help="a token for the audit API, shown this once")
        for sub in (create, roles, password, disable, token):
            sub.add_argument("email")
            sub.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            document, sentence = getattr(self, f"_{options['action']}")(options)
        except people.PersonError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(document) if options["json"] else sentence)

    def _create(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        given = _password_from_stdin() if options["password_stdin"] else None
        person, password = people.create_person(
            email=options["email"], roles=options["role"], name=options["name"], password=given
        )
        document, sentence = _described(person), f"Created {person.email} ({', '.join(person.roles)})."
        if given is None:
            document["password"] = password
            sentence += f" Password, shown this once: {password}"
        return document, sentence

    def _roles(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        person = people.set_roles(email=options["email"], roles=options["role"])
        return _described(person), f"{person.email} is now {', '.join(person.roles) or 'without access'}."

    def _password(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        person = people.set_password(email=options["email"], password=_password_from_stdin())
        return _described(person), f"{person.email} has a new password."

    def _disable(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        person = people.disable_person(email=options["email"])
        return _described(person), f"Disabled {person.email}."

    def _token(self, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
        person, token = people.create_token(email=options["email"])
        return {"email": person.email, "token": token}, token


def _described(person: Person) -> dict[str, Any]:
    return {
        "email": person.email,
        "name": person.name,
        "roles": list(person.roles),
        "is_active": person.is_active,
    }


def _password_from_stdin() -> str:
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError("There was no password on standard input.")
    return password
