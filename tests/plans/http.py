"""An agent at the doors over real HTTP: signed feeds, bearer calls; every answer is held against CONTRACT section 4."""

import base64
import contextlib
import hmac
import itertools
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from plans.models import Plan, Target
from plans.signatures import parse_secret
from tests.fixtures import Site
from tests.makers import MadeAgent, envelope, feed_data, make_agent, make_target

SENTINEL = "sentinel-5d1f0c"
"""In every token that `tests.makers.feed_data` makes, and so in no answer."""

NEXT = {"replan", "wait", "poll", "retry_same_key", "read_plan", "fix_request", "check_status", "ask", "stop"}
UNASKED = object()
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """One answer of a door."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def slug(self) -> str:
        return str(self.json["type"]).rsplit("/", 1)[-1] if self.status >= 400 else ""

    @property
    def is_replayed(self) -> bool:
        return self.headers.get("Idempotent-Replayed") == "true"

    @property
    def pointers(self) -> list[str]:
        return [error["pointer"] for error in self.json["errors"]]

    def is_problem(self, status: int, slug: str, *, following: Any = UNASKED, plan_write: Any = UNASKED) -> Any:
        """The problem document, once it is known to be this one. None: the member is absent."""
        assert (self.status, self.slug) == (status, slug), self.body
        document = self.json
        for name, value in (("next", following), ("plan_write", plan_write)):
            if value is not UNASKED:
                assert document.get(name) == value, self.body
                assert (name in document) == (value is not None), self.body
        return document


def keep_to_the_rules(answer: Answer) -> Answer:
    """Fails the test for an answer that no door may give."""
    assert answer.status < 500 or answer.status in (503, 504), (answer.status, answer.body)
    kind = "application/json" if answer.status < 400 else "application/problem+json"
    assert answer.headers["Content-Type"] == kind, (answer.status, answer.headers, answer.body[:300])
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Request-Id"].startswith("req_")
    assert "Set-Cookie" not in answer.headers
    assert SENTINEL.encode() not in answer.body
    document = json.loads(answer.body.decode("utf-8"))
    assert isinstance(document, dict)
    if answer.status >= 400:
        assert document["status"] == answer.status
        assert document["type"].count("/problems/") == 1
        assert document["title"]
        assert document["detail"]
        assert document["instance"].startswith("/")
        assert document.get("next", "stop") in NEXT
        assert document.get("plan_write", "none") in {"none", "done", "possible"}
        assert all(set(error) == {"pointer", "detail"} for error in document.get("errors", []))
    if answer.status in (429, 503):
        assert int(answer.headers["Retry-After"]) > 0
        assert document["retry_after_seconds"] == int(answer.headers["Retry-After"])
    return answer


def send(site: Site, method: str, path: str, *, headers: Any = None, body: Any = None, **options: Any) -> Answer:
    """One request, exactly as given."""
    response = site.request(method, path, headers=headers or {}, body=body, **options)
    return Answer(response.status, response.headers, response.data)


class Caller:
    """One agent, and the site whose doors it knocks at. `target` is the first one it may feed."""

    def __init__(self, site: Site, made: MadeAgent, target: Target) -> None:
        self.site, self.made, self.target = site, made, target
        self.agent = made.agent
        self.bearer = {"Authorization": f"Bearer {made.api_key}"}

    # --- the feed ---

    def data(self, **changes: Any) -> dict[str, Any]:
        return feed_data(str(changes.pop("target", self.target.name)), **changes)

    def feed(self, data: Any = None, kind: str = "plan.created", **how: Any) -> Answer:
        """One signed delivery of `data` (P0 unless given)."""
        return self.deliver(envelope(self.data() if data is None else data, kind), **how)

    def deliver(self, body: bytes, **how: Any) -> Answer:
        """One delivery of these bytes; `how` as in `signed`."""
        headers = signed(self.made.webhook_secret, body, **how)
        return keep_to_the_rules(send(self.site, "POST", f"/webhooks/{self.agent.name}", headers=headers, body=body))

    # --- the API ---

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        address = path + ("?" + urlencode(query) if query else "")
        return keep_to_the_rules(send(self.site, "GET", address, headers={**self.bearer, **(headers or {})}))

    def post(self, path: str, document: Any = None, *, key: Any = None, body: bytes | None = None) -> Answer:
        headers = {**self.bearer, "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = body if body is not None else b"" if document is None else json.dumps(document).encode()
        return keep_to_the_rules(send(self.site, "POST", path, headers=headers, body=content))

    def dry_run(self, operation: str, inputs: Any, **more: Any) -> Answer:
        document = {"task_id": f"task-{next(_numbers)}", "inputs": inputs, **more}
        return self.post(f"/api/v1/operations/{operation}/dry-run", document)

    def commit(self, operation: str, planned: Any, key: Any = "key-1", **changes: Any) -> Answer:
        """Commit by token; `planned` is the body of a dry run's 201. A change to `...` takes the member out."""
        return self.post(f"/api/v1/operations/{operation}/commit", presented(planned, changes), key=key)

    def commit_plan(self, plan: Mapping[str, Any], key: Any = "key-1", query: str = "", **changes: Any) -> Answer:
        """Commit by plan id; `plan` is the `plan` of a feed, or the body of a dry run's 201."""
        path = f"/api/v1/plans/{quote(plan['plan_id'], safe='')}/commit{query}"
        return self.post(path, presented(plan, changes), key=key)


def make_caller(site: Site, target: Target | None = None, **fields: Any) -> Caller:
    """A new agent that may feed one target (a new remote one unless given)."""
    target = target or make_target(**fields)
    return Caller(site, make_agent(target), target)


def presented(planned: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a commit."""
    body = {name: planned[name] for name in ("plan_token", "input_fingerprint")} | dict(changes)
    return {name: value for name, value in body.items() if value is not ...}


def new_id() -> str:
    """A webhook-id that nobody used before."""
    return f"msg_{next(_numbers)}"


def signed(
    secret: str,
    body: bytes,
    *,
    webhook_id: str | None = None,
    timestamp: int | None = None,
    content_type: str | None = "application/json",
    **headers: Any,
) -> dict[str, Any]:
    """The headers of a delivery; others by keyword (`_` for `-`), `...` or None takes one out."""
    webhook_id = new_id() if webhook_id is None else webhook_id
    timestamp = int(time.time()) if timestamp is None else timestamp
    made: dict[str, Any] = {
        "Content-Type": content_type,
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": digest_of(secret, webhook_id, str(timestamp), body),
    }
    made |= {name.replace("_", "-"): value for name, value in headers.items()}
    return {name: value for name, value in made.items() if value is not ... and value is not None}


def digest_of(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """The right signature, whatever the id: `signatures.sign` makes none for an id that is not acceptable."""
    text = webhook_id.encode("latin-1") + f".{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(parse_secret(secret).key, text, "sha256")).decode()


@contextlib.contextmanager
def raw_connection(site: Site) -> Iterator[tuple[socket.socket, str]]:
    """A connection of our own to the site, and the Host to name: for what no client library would send."""
    host = site.url.removeprefix("http://")
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=20) as connection:
        yield connection, host


def fill_up(plan: Plan, count: int) -> None:
    """So many more pending plans like this one, past every door."""
    rows = []
    for place in range(count):
        row = Plan.objects.get(pk=plan.pk)
        row.pk, row.plan_id, row.idempotency_key = None, f"more_{place}", f"more_{place}"
        row.token_hash = f"more {place}".encode()
        rows.append(row)
    Plan.objects.bulk_create(rows)


def let_expire(owner_connection: Any, plan: Plan) -> None:
    """Move a plan an hour into the past, so that its promise has ended, without waiting for it."""
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute(
        """
        UPDATE plans_plan SET created_at = created_at - interval '1 day', received_at = received_at - interval '1 day',
               expires_at = expires_at - interval '1 day' WHERE id = %s
        """,
        [plan.pk],
    )
    owner_connection.execute("SET session_replication_role = origin")


@contextlib.contextmanager
def without(owner_connection: Any, privilege: str, table: str) -> Iterator[None]:
    """The application's role lacks a privilege for a while: its statement fails, as in a database that is unwell."""
    [[role]] = owner_connection.execute(
        "SELECT grantee FROM information_schema.role_table_grants "
        "WHERE table_name = %s AND privilege_type = %s AND grantee <> current_user",
        [table, privilege],
    ).fetchall()
    owner_connection.execute(f'REVOKE {privilege} ON {table} FROM "{role}"')
    try:
        yield
    finally:
        owner_connection.execute(f'GRANT {privilege} ON {table} TO "{role}"')
