"""What these tests share: the doubles, people with channels, and a sweep of it all."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reviewer.models import Person
from reviewer.notifications.finding import find_news
from reviewer.notifications.models import Channel, Preference
from reviewer.notifications.routing import preference_of
from reviewer.notifications.sending import send_due
from tests.browser.conftest import axe, browser
from tests.makers import make_person
from tests.reviewer.notifications.doubles import MailServer, WebServer, running

__all__ = ["axe", "browser"]


@pytest.fixture
def mail_server(settings: Any) -> Iterator[MailServer]:
    """A mail server that the desk of this process sends through."""
    with running(MailServer()) as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


@pytest.fixture
def web_server(settings: Any) -> Iterator[WebServer]:
    """A service on a private address, and a desk that may call those."""
    with running(WebServer()) as server:
        settings.NOTIFY_ALLOW_PRIVATE = True
        yield server


@pytest.fixture
def make_reader(database: None) -> Callable[..., Person]:
    """`make_reader("reviewer", pace="daily")`: a person with this preference and e-mail on."""

    def make(*roles: str, name: str = "", email: str = "", time_zone: str = "UTC", **preference: Any) -> Person:
        person: Person = make_person(*(roles or ("reviewer",)), name=name, email=email, time_zone=time_zone)
        preference_of(person)
        Preference.objects.filter(person=person).update(**preference)
        return person

    return make


def sweep() -> tuple[int, int]:
    """One beat of the clock: how many notices were new, how many messages were tried."""
    return find_news(), send_due()


def calm(person: Person) -> None:
    """As if this person's last message were long ago."""
    Channel.objects.filter(person=person).update(last_message_at=None)
