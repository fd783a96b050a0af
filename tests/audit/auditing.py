"""What the log's doors answer, as tests read it."""

import json
from typing import Any

from audit.models import Event


def told(kind: str) -> list[dict[str, Any]]:
    """What the events of that kind say, in their order."""
    events = Event.objects.filter(kind=kind).select_related("payload").order_by("at")
    return [json.loads(event.payload.body)["data"] for event in events]


def assert_problem(response: Any, status: int, slug: str) -> None:
    document = json.loads(response.content)
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json"), document
    assert response["Cache-Control"] == "no-store"
    assert document["type"].rsplit("/", 1)[1] == slug
    assert document["status"] == status
    assert document["detail"].endswith(".")
    assert document["instance"] == response.wsgi_request.path
