"""The auditors' door over the site's own middleware: who may, what is refused, and that reading leaves a trace."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.test import Client

from audit.canonical import RawJson
from audit.kinds import Kind
from audit.models import Event
from audit.recording import Actor
from tests.audit.auditing import assert_problem
from tests.audit.making import make_event

EVENTS = "/api/v1/audit/events"


@pytest.fixture(autouse=True)
def _addresses(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.audit.urls"


def reads() -> list[Event]:
    return list(Event.objects.filter(kind="audit.read").select_related("payload").order_by("at"))


def test_an_event_goes_out_as_the_contract_says_with_numbers_as_received(client: Client) -> None:
    recorded = make_event(
        Kind.PLAN_RECEIVED,
        actor=Actor("agent", "refund-bot", "Refund bot é"),
        agent="refund-bot",
        target="billing",
        plan_id="plan_1",
        plan_seq=1,
        operation="refund",
        task_id="ticket-1",
        on_behalf_of="person:7",
        request_id="req-1",
        data={"inputs": RawJson('{"amount": 1.10, "big":9007199254740993, "x":1e2}')},
    )
    response = client.get(f"{EVENTS}/{recorded.id}")
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response["Cache-Control"] == "no-store"
    assert '"data":{"inputs":{"amount": 1.10, "big":9007199254740993, "x":1e2}}' in response.content.decode()
    assert json.loads(response.content) == {
        "id": recorded.id,
        "kind": "plan.received",
        "at": recorded.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "actor": {"type": "agent", "id": "refund-bot", "name": "Refund bot é"},
        "on_behalf_of": "person:7",
        "agent": "refund-bot",
        "target": "billing",
        "plan_id": "plan_1",
        "operation": "refund",
        "task_id": "ticket-1",
        "request_id": "req-1",
        "data": {"inputs": {"amount": 1.1, "big": 9007199254740993, "x": 100.0}},
    }
    listed = json.loads(client.get(EVENTS, {"plan_id": "plan_1"}).content)
    assert [event["id"] for event in listed["events"]] == [recorded.id]
    assert listed["next_cursor"] is None
    assert listed["count"] == {"value": 1, "exact": True}


def test_an_erased_event_says_so(client: Client, owner_connection: psycopg.Connection[Any]) -> None:
    recorded = make_event(data={"a": 1})
    owner_connection.execute("DELETE FROM audit_payload")
    event = json.loads(client.get(f"{EVENTS}/{recorded.id}").content)
    assert (event["data"], event["erased"], event["actor"]["name"]) == (None, True, None)


@pytest.mark.parametrize("path", [EVENTS, f"{EVENTS}/6f0c1b1e-7c1d-4f6e-9a53-0d3b8f1e2a44"])
def test_nobody_reads_without_a_token_nor_without_the_role(
    path: str, database: None, auditor: Any, make_person: Callable[..., Any], client: Client
) -> None:
    assert_problem(Client().get(path), 401, "unauthenticated")
    assert_problem(Client(headers={"Authorization": "Bearer pdp_wrong"}).get(path), 401, "unauthenticated")
    auditor.is_auditor, auditor.is_reviewer = False, True
    auditor.save()
    assert_problem(client.get(path), 403, "forbidden")
    assert reads() == []


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_the_log_is_only_read(method: str, client: Client) -> None:
    response = getattr(client, method)(EVENTS)
    assert_problem(response, 405, "method-not-allowed")
    assert response["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "query",
    [
        "colour=red",
        "kind=plan.invented",
        "kind=",
        "agent=",
        "agent=a&agent=b",
        "from=2026-03-14T09:31:12",
        "from=2026-03-14T09:31:12+01:00",
        "from=2026-03-14T09:31:12Z&to=2026-03-14T09:31:11Z",
        "limit=501",
        "order=up",
        "cursor=made-up",
        "q=%00",
        "plan_id=%ff%fe",
        "task_id=%00",
        "%00=1",
    ],
)
def test_l130_an_unknown_filter_or_value_is_400_and_never_an_empty_page(query: str, client: Client) -> None:
    assert_problem(client.get(f"{EVENTS}?{query}"), 400, "malformed")
    assert reads() == []


@pytest.mark.parametrize(
    "event_id",
    [
        "1",
        "x" * 5000,
        "%00",
        "6f0c1b1e-7c1d-4f6e-9a53-0d3b8f1e2a44",
        "{6f0c1b1e-7c1d-4f6e-9a53-0d3b8f1e2a44}",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
def test_an_id_of_no_event_is_404(event_id: str, client: Client) -> None:
    assert_problem(client.get(f"{EVENTS}/{event_id}"), 404, "not-found")


def test_a_search_is_recorded_once_and_its_further_pages_are_not(client: Client, auditor: Any) -> None:
    for _ in range(5):
        make_event(agent="a")
    query: dict[str, Any] = {"agent": "a", "kind": ["plan.viewed", "plan.approved"], "limit": "2"}
    ids = []
    while True:
        page = json.loads(client.get(EVENTS, query).content)
        ids += [event["id"] for event in page["events"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert len(set(ids)) == 5
    (read,) = reads()
    assert (read.actor_type, read.actor_id) == ("person", str(auditor.pk))
    assert json.loads(read.payload.body) == {
        "actor_name": "Zoë",
        "data": {"via": "api", "filters": {"kind": ["plan.approved", "plan.viewed"], "agent": "a"}, "order": "desc"},
    }


def test_reading_one_event_is_recorded_whether_or_not_it_exists(client: Client) -> None:
    recorded, missing = make_event(), uuid4()
    client.get(f"{EVENTS}/{recorded.id}")
    client.get(f"{EVENTS}/{missing}")
    assert [json.loads(read.payload.body)["data"] for read in reads()] == [
        {"via": "api", "event_id": recorded.id, "found": True},
        {"via": "api", "event_id": str(missing), "found": False},
    ]


def test_an_ascending_reading_always_gets_a_cursor(client: Client) -> None:
    page = json.loads(client.get(EVENTS, {"order": "asc", "agent": "a"}).content)
    assert page["events"] == []
    recorded = make_event(agent="a")
    page = json.loads(client.get(EVENTS, {"order": "asc", "agent": "a", "cursor": page["next_cursor"]}).content)
    assert [event["id"] for event in page["events"]] == [recorded.id]
    assert page["next_cursor"] is not None


def test_l119_an_event_keeps_the_name_its_actor_had(client: Client, auditor: Any) -> None:
    client.get(EVENTS)
    auditor.name = "Somebody Else"
    auditor.save()
    page = json.loads(client.get(EVENTS, {"kind": "audit.read"}).content)
    assert [event["actor"]["name"] for event in page["events"]] == ["Zoë"]
