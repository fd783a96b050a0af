"""The feed's work without Django and its ORM: signature, strict JSON, checks, sealing, and one prepared statement."""

import hashlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import reviewer.wsgi  # isort: skip  # loads the apps, which everything below needs

import psycopg
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server import Server

from plans import schema, sealing, signatures, strict_json, vault
from reviewer.bundled import die_with_parent
from tests.benchmarks import statement
from tests.ground import free_port

WORLD: dict[str, str] = json.loads(os.environ["BENCH_WORLD"])
SECRETS = [signatures.parse_secret(os.environ["BENCH_SECRET"])]
STATEMENT = statement.for_psycopg()
assert reviewer.wsgi.application
_mine = threading.local()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """One signed feed, received."""
    body = environ["wsgi.input"].read()
    webhook_id = signatures.verify(
        SECRETS,
        webhook_id=environ.get("HTTP_WEBHOOK_ID"),
        timestamp=environ.get("HTTP_WEBHOOK_TIMESTAMP"),
        signature=environ.get("HTTP_WEBHOOK_SIGNATURE"),
        body=body,
        now=time.time(),
    )
    envelope = strict_json.decode(body, schema.Envelope)
    tree: Any = strict_json.loads(bytes(envelope.data))
    fed = strict_json.decode(bytes(envelope.data), schema.FedPlan)
    actions, errors = schema.check_actions(fed.plan.actions, "/data/plan/actions", has_intent=False)
    errors += schema.check_prose(fed.summary, fed.evidence, "/data")
    assert not errors
    assert not schema.holds_text(tree, fed.plan.plan_token, but=("plan", "plan_token"))
    vault.hash_of(strict_json.canonical(strict_json.loads(bytes(fed.inputs))), purpose="inputs")
    values: dict[str, Any] = statement.parameters(
        WORLD,
        inputs=schema.text(fed.inputs),
        actions=schema.text(fed.plan.actions),
        fingerprint=fed.plan.input_fingerprint,
        touched=schema.action_targets(actions)[0],
        sealed=sealing.seal(fed.plan.plan_token.encode(), purpose="plan-token").hex(),
    )
    values |= {
        "task_id": fed.task_id,
        "webhook_id": webhook_id,
        "plan_id": fed.plan.plan_id,
        "idempotency_key": f"pdk_{secrets.token_hex(16)}",
        "token_hash": vault.token_hash(fed.plan.plan_token),
        "body_hash": hashlib.sha256(body).digest(),
        "data_hash": vault.hash_of(strict_json.canonical(tree), purpose="feed-data"),
    }
    with _connection().cursor() as cursor:
        cursor.execute(STATEMENT, values, prepare=True)
        cursor.fetchone()
    answer = json.dumps(
        {"plan_id": values["plan_id"], "state": "pending", "idempotency_key": values["idempotency_key"]}
    )
    start_response("201 Created", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
    return [answer.encode()]


def _connection() -> psycopg.Connection[Any]:
    if not hasattr(_mine, "connection"):
        _mine.connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    connection: psycopg.Connection[Any] = _mine.connection
    return connection


def main() -> None:
    """Serve, with as many workers and threads as the desk."""
    port = free_port()
    vault.lookup_key()
    server = Server(
        "tests.benchmarks.bare:application", address="127.0.0.1", port=port, interface=Interfaces.WSGI, workers=2,
        blocking_threads=16, http=HTTPModes.http1, websockets=False, log_level=LogLevels.error,
    )  # fmt: skip

    def load(*_: Any) -> Callable[..., Any]:
        die_with_parent()
        return application

    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.serve(target_loader=load, wrap_loader=False)


if __name__ == "__main__":
    main()
