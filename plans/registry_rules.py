"""What names, addresses and numbers of agents and targets must keep to, whoever registers them."""

import ipaddress
import re
import urllib.parse
from collections.abc import Sequence

from django.conf import settings

from plans.errors import Sentence
from plans.identifiers import is_identifier
from plans.outgoing import is_private_by_name
from plans.policies import MAX_APPROVALS


class RegistryError(Exception):
    """Why a change of an agent or a target is refused: one sentence."""


def check_name(name: str) -> None:
    """An identifier of the contract. Raises `RegistryError`."""
    if not is_identifier(name):
        raise RegistryError(
            Sentence("%(name)r is no name: 1 to 128 of letters, digits, _ . : - after a letter or digit.", name=name)
        )


def check_operations(names: Sequence[str]) -> None:
    """Each an identifier. Raises `RegistryError`."""
    for name in names:
        check_name(name)


def check_approvals(approvals: int) -> None:
    """How many people a target can ask for. Raises `RegistryError`."""
    if not 0 <= approvals <= MAX_APPROVALS:
        raise RegistryError(
            Sentence("Approvals are a number from 0 to %(max_approvals)s.", max_approvals=MAX_APPROVALS)
        )


def checked_path(path: str) -> str:
    """A path template: starts with a slash, knows only {operation} and {plan_id}."""
    unknown = set(re.findall(r"{([^}]*)}", path)) - {"operation", "plan_id"}
    if not path.startswith("/") or unknown or re.search(r"[\s#\x00-\x1f]", path):
        raise RegistryError(
            Sentence("%(path)r is no path: it starts with / and may hold {operation} and {plan_id}.", path=path)
        )
    return path


def check_url(url: str, *, what: str) -> None:
    """https, or http on loopback; no user, no query, no fragment. Raises `RegistryError`."""
    parts = urllib.parse.urlsplit(url)
    try:
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        port_is_fine = False
    if parts.scheme not in ("https", "http") or not parts.hostname or not port_is_fine:
        raise RegistryError(Sentence("The %(what)s must be an https address.", what=what))
    if parts.username or parts.password or parts.query or parts.fragment or re.search(r"[\s\x00-\x1f]", url):
        raise RegistryError(Sentence("The %(what)s holds nothing but scheme, host, port and path.", what=what))
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise RegistryError(Sentence("The %(what)s must be https, unless it is on loopback.", what=what))


def check_callback_url(url: str) -> None:
    """An address as above, and not a private one by its spelling, unless CALLBACK_ALLOW_PRIVATE. A name is asked about
    when it is called, of the very address that is connected to. Raises `RegistryError`."""
    check_url(url, what=Sentence("callback URL"))
    if not settings.CALLBACK_ALLOW_PRIVATE and is_private_by_name(urllib.parse.urlsplit(url).hostname or ""):
        raise RegistryError(Sentence("The callback URL leads to a private, loopback or link-local address."))


def is_loopback(host: str) -> bool:
    """True for localhost and loopback addresses as written; a name that resolves to one is not meant."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
