"""System checks of what notifications need from the environment."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning

LOCAL = ("localhost", "127.0.0.1", "::1")


def check_mail(**_: Any) -> list[CheckMessage]:
    """A mail server is spoken to in one way, and a password does not cross a network in the open."""
    found: list[CheckMessage] = []
    if settings.EMAIL_USE_TLS and settings.EMAIL_USE_SSL:
        sentence = "EMAIL_USE_TLS (STARTTLS) and EMAIL_USE_SSL (TLS from the start) exclude each other."
        found.append(Error(sentence, id="notifications.E001"))
    is_open = not settings.EMAIL_USE_TLS and not settings.EMAIL_USE_SSL
    if settings.EMAIL_HOST_PASSWORD and is_open and settings.EMAIL_HOST not in LOCAL:
        hint = "Set EMAIL_USE_TLS=1 or EMAIL_USE_SSL=1."
        found.append(
            CheckWarning(
                "The mail server's password crosses the network in the open.", hint=hint, id="notifications.W001"
            )
        )
    return found


def register_all() -> None:
    """Register the checks of this app."""
    register(check_mail, Tags.security)
