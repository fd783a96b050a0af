"""Make, change and disable people and their tokens; each change with its event."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models.functions import Now

from audit.kinds import Kind
from audit.recording import Actor, record
from plans.errors import Sentence
from reviewer.access import TOKEN_PREFIX, hash_token
from reviewer.models import Person, PersonToken

COMMAND_LINE = Actor("system", "command-line", "Command line")


class PersonError(Exception):
    """Why a change of a person is refused: one sentence."""


@transaction.atomic(durable=True)
def create_person(
    *, email: str, roles: Iterable[str], name: str = "", password: str | None = None, by: Actor = COMMAND_LINE
) -> tuple[Person, str]:
    """A new person and their password: the given one, or one made here that is shown this once.

    Refuses an address that is taken (in any case) or malformed, an unknown role, no role, a weak password.
    """
    email, roles = email.strip().lower(), _checked_roles(roles)
    try:
        validate_email(email)
    except ValidationError:
        raise PersonError(Sentence("%(email)r is not an e-mail address.", email=email)) from None
    if Person.objects.filter(email=email).exists():
        raise PersonError(Sentence("There is already a person %(email)s.", email=email))
    person = Person(email=email, name=name.strip(), **{f"is_{role}": True for role in roles})
    if password is None:
        password = secrets.token_urlsafe(15)
    else:
        _check_password(password, person)
    person.set_password(password)
    person.save()
    _record(person, "created", {"roles": list(roles)}, by)
    return person, password


@transaction.atomic(durable=True)
def set_roles(*, email: str, roles: Iterable[str], by: Actor = COMMAND_LINE) -> Person:
    """Replaces a person's roles. May be repeated; a change that changes nothing leaves no event.

    Refuses to take the role from the last admin, but at the command line, which can name another.
    """
    wanted = set(_checked_roles(roles))
    if "admin" not in wanted:
        _keep_an_admin(email, by)
    person = _locked(email)
    before = [role for role in Person.ROLES if getattr(person, f"is_{role}")]
    if set(before) != wanted:
        for role in Person.ROLES:
            setattr(person, f"is_{role}", role in wanted)
        person.save(update_fields=[f"is_{role}" for role in Person.ROLES])
        after = [role for role in Person.ROLES if role in wanted]
        _record(person, "roles_changed", {"from": before, "to": after}, by)
    return person


@transaction.atomic(durable=True)
def set_password(*, email: str, password: str, present: str | None = None, by: Actor = COMMAND_LINE) -> Person:
    """A new password, which ends the person's sessions (Django ties them to its hash).

    With `present`, only where that is still the password, and the person has not been disabled meanwhile.
    """
    person = _locked(email)
    if present is not None and not (person.is_active and person.check_password(present)):
        raise PersonError(Sentence("This is not your present password any more."))
    _check_password(password, person)
    person.set_password(password)
    person.save(update_fields=["password"])
    _record(person, "password_changed", {}, by)
    return person


@transaction.atomic(durable=True)
def disable_person(*, email: str, by: Actor = COMMAND_LINE) -> Person:
    """Ends a person's access: sessions, tokens, sign-in. Their history stays. May be repeated.

    Refuses to disable the last admin, but at the command line, which can make another.
    """
    _keep_an_admin(email, by)
    person = _locked(email)
    if person.is_active:
        person.is_active = False
        person.save(update_fields=["is_active"])
        PersonToken.objects.filter(person=person, revoked_at=None).update(revoked_at=Now())
        _record(person, "disabled", {}, by)
    return person


@transaction.atomic(durable=True)
def create_token(*, email: str, by: Actor = COMMAND_LINE) -> tuple[Person, str]:
    """A token for the audit API, shown this once. Refuses people who are disabled or no auditors."""
    person = _locked(email)
    if "auditor" not in person.roles:
        raise PersonError(
            Sentence("%(email)s is not an active auditor: a token would open nothing.", email=person.email)
        )
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row = PersonToken.objects.create(person=person, token_hash=hash_token(token))
    _record(person, "token_created", {"number": str(row.pk)}, by)
    return person, token


@transaction.atomic(durable=True)
def revoke_token(*, email: str, number: int, by: Actor = COMMAND_LINE) -> Person:
    """Ends one of a person's tokens. May be repeated; refuses a number that is not theirs."""
    person = _locked(email)
    token = PersonToken.objects.filter(person=person, pk=number).first()
    if token is None:
        raise PersonError(Sentence("%(email)s has no token %(number)s.", email=person.email, number=number))
    if token.revoked_at is None:
        PersonToken.objects.filter(pk=token.pk).update(revoked_at=Now())
        _record(person, "token_revoked", {"number": str(token.pk)}, by)
    return person


@transaction.atomic(durable=True)
def make_password(*, email: str, by: Actor = COMMAND_LINE) -> tuple[Person, str]:
    """A new password made here and shown this once, which ends the person's sessions. Refuses who is disabled."""
    person, password = _locked(email), secrets.token_urlsafe(15)
    if not person.is_active:
        raise PersonError(Sentence("%(email)s is disabled.", email=person.email))
    person.set_password(password)
    person.save(update_fields=["password"])
    _record(person, "password_changed", {}, by)
    return person, password


def _keep_an_admin(email: str, by: Actor) -> None:
    """Locks every admin, so that two of them can't end each other at once."""
    if by.type != "person":
        return
    admins = list(Person.objects.select_for_update().filter(is_admin=True, is_active=True).order_by("pk"))
    if [admin.email for admin in admins] == [email.strip().lower()]:
        raise PersonError(Sentence("This is the only admin. Make somebody else an admin first."))


def _locked(email: str) -> Person:
    try:
        return Person.objects.select_for_update().get(email=email.strip().lower())
    except Person.DoesNotExist:
        raise PersonError(Sentence("There is no person %(email)s.", email=email.strip().lower())) from None


def _checked_roles(roles: Iterable[str]) -> list[str]:
    named = list(dict.fromkeys(roles))
    unknown = [role for role in named if role not in Person.ROLES]
    if unknown:
        raise PersonError(
            Sentence(
                "There is no role %(unknown)r: the roles are %(names)s.",
                unknown=unknown[0],
                names=", ".join(Person.ROLES),
            )
        )
    if not named:
        raise PersonError(Sentence("A person needs at least one role."))
    return named


def _check_password(password: str, person: Person) -> None:
    try:
        validate_password(password, person)
    except ValidationError as error:
        raise PersonError(" ".join(error.messages)) from None


def _record(person: Person, change: str, details: Mapping[str, Any], by: Actor) -> None:
    data = {"person": str(person.pk), "email": person.email, "change": change, **details}
    record(Kind.PERSON_CHANGED, actor=by, data=data)
