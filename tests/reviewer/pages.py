"""What the page tests share: a signed-in client, the address of a plan, and what stands in an answer."""

import json
import re
from html import unescape
from typing import Any

from django.test import Client

from audit.models import Event
from plans.models import Plan
from plans.schema import shown_digest
from reviewer.models import Person
from tests.makers import make_person, reread


def client_of(person: Person | None = None, **roles: Any) -> Client:
    """A client with a live session of this person (a new reviewer where none is given)."""
    client = Client(**roles)
    client.force_login(person or make_person("reviewer"), backend="reviewer.access.PersonBackend")
    return client


def url_of(plan: Plan, action: str = "") -> str:
    """The plan's page, or one of its actions."""
    base = f"/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/"
    return f"{base}{action}/" if action else base


def approval(plan: Plan, **fields: str) -> dict[str, str]:
    """What the approve form of the page as it is now posts."""
    return {"digest": shown_digest(reread(plan)), **fields}


def state_in(response: Any) -> str:
    """The state that the page shows."""
    found = re.search(r'id="plan" data-state="(\w+)"', response.content.decode())
    assert found, response.content.decode()[:400]
    return found[1]


def text_of(response: Any) -> str:
    """The words of a page, without markup, in one line."""
    body = re.sub(r"<(script|style|svg|template).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def admin_and_client() -> tuple[Person, Client]:
    """An admin who is nothing else, signed in."""
    person = make_person("admin")
    return person, client_of(person)


def told_of(kind: str) -> list[tuple[str, str]]:
    """Who changed what, of all events of a kind, oldest first: (actor, `change`)."""
    events = Event.objects.filter(kind=kind).select_related("payload").order_by("at", "id")
    return [
        (f"{event.actor_type}:{event.actor_id}", json.loads(event.payload.body)["data"].get("change", ""))
        for event in events
    ]
