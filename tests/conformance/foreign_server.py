"""Three doors for karmasakshi-protocol, as thin as they can be: python foreign_server.py FILE; prints its port.

Run by an interpreter that has it installed. Form (JSON, members, header) is checked here; the rest is its engine's.
"""

import itertools
import json
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from karmasakshi.adapters.sqlite_db import RowEffectRequest, SQLiteRowAdapter
from karmasakshi.audit.journal import AuditJournal
from karmasakshi.crypto import Keyring, generate_signing_key
from karmasakshi.domain.common import Principal
from karmasakshi.domain.enums import PrincipalType
from karmasakshi.engine import EngineContext, KarmaSakshiEngine
from karmasakshi.errors import (
    GrantError,
    GrantExpiredError,
    GrantManifestMismatchError,
    KarmaSakshiError,
    StaleManifestError,
)
from karmasakshi.grants.model import ScopeConstraints
from karmasakshi.stores.memory import InMemoryGrantStore

AGENT = Principal(principal_id="agent", principal_type=PrincipalType.AGENT)
PERSON = Principal(principal_id="person", principal_type=PrincipalType.HUMAN)
STATES = {"authorized": "pending", "committing": "committing", "committed": "committed", "failed": "refused"}

Answer = tuple[int, dict[str, Any]]


class Doors:
    def __init__(self, file: str) -> None:
        self.key = generate_signing_key("issuer")
        self.engine = KarmaSakshiEngine(
            EngineContext(
                keyring=Keyring([self.key.verification_key()]),
                grant_store=InMemoryGrantStore(),
                audit=AuditJournal(),
            )
        )
        self.adapter = SQLiteRowAdapter(file)
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("INSERT INTO ledger_accounts (id, balance, version) VALUES ('ACC-104', 100, 0)")
        self.numbers = itertools.count()
        self.sealed: dict[str, Any] = {}
        self.grants: dict[str, Any] = {}

    def dry_run(self, inputs: dict[str, Any], seconds: int) -> Answer:
        plan = next(self.numbers)  # two dry runs at once are two
        request = RowEffectRequest(
            operation="update",
            row_id="ACC-104",
            actor=AGENT,
            principal=PERSON,
            new_balance=int(inputs["balance"]) + plan,
            idempotency_key=f"plan-{plan}",
            nonce=f"plan-{plan}",
            ttl_seconds=seconds,
        )
        sealed = self.engine.seal(self.engine.prepare(self.adapter, request, context=None), self.key)
        manifest = sealed.manifest
        now = datetime.now(UTC)
        grant = self.engine.authorize(
            sealed,
            issuer=PERSON,
            subject=AGENT,
            audience=(self.adapter.adapter_id,),
            allowed_effect_types=(manifest.effect_type,),
            scope=ScopeConstraints(),
            not_before=now - timedelta(seconds=1),
            expires_at=manifest.expires_at,
            signing_key=self.key,
        )
        self.sealed[sealed.seal.manifest_hash] = sealed
        self.grants[grant.grant_id] = grant
        action = {"op": "update", "target": manifest.target_resource, "field": "balance"}
        change = {"from": manifest.parameters["previous_balance"], "to": manifest.parameters["new_balance"]}
        return 201, {
            "plan_id": manifest.manifest_id,
            "plan_token": grant.grant_id,
            "expires_at": manifest.expires_at.isoformat(),
            "input_fingerprint": sealed.seal.manifest_hash,
            "actions": [{**action, **change}],
        }

    def commit(self, body: Any, key: str | None) -> Answer:
        if not key:
            return problem(400, "key-required")
        if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
            return problem(422, "invalid")
        if set(body) != {"plan_token", "input_fingerprint"}:
            return problem(428 if set(body) == {"plan_token"} else 422, "invalid")
        grant, sealed = self.grants.get(body["plan_token"]), self.sealed.get(body["input_fingerprint"])
        if grant is None:
            return problem(404, "never-planned")
        if sealed is None:
            return problem(412, "fingerprint-mismatch")
        try:
            result = self.engine.commit(sealed, grant, self.adapter, context=None)
        except StaleManifestError as error:
            changed = {"target": sealed.manifest.target_resource, "said": str(error)}
            return problem(409, "conflict", changed=[changed])
        except GrantExpiredError:
            return problem(410, "expired")
        except GrantManifestMismatchError:
            return problem(412, "fingerprint-mismatch")
        except GrantError as error:
            return problem(422, type(error).__name__)
        except KarmaSakshiError as error:
            return problem(422, type(error).__name__)
        if not result.success:
            return problem(422, "refused", detail=result.detail)
        return 200, {"reference": result.provider_reference, "detail": result.detail}

    def state(self, plan_id: str) -> Answer:
        if plan_id not in {sealed.manifest.manifest_id for sealed in self.sealed.values()}:
            return problem(404, "unknown-plan")
        state = self.engine.get_lifecycle_state(plan_id).value
        return 200, {"plan_id": plan_id, "state": STATES.get(state.lower(), state)}


def problem(status: int, slug: str, **members: Any) -> Answer:
    return status, {"type": f"https://foreign.example/{slug}", "status": status, **members}


def members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a member stands there twice")
    return dict(pairs)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    doors: Doors

    def do_GET(self) -> None:
        self.answer(*self.doors.state(self.path.rpartition("/")[2]))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        raw = self.rfile.read(length)
        try:
            body = json.loads(raw.decode(), object_pairs_hook=members_once)
        except (ValueError, RecursionError):
            self.answer(*problem(400, "malformed"))
            return
        url = urlsplit(self.path)
        if url.path == "/dry-run":
            self.answer(*self.doors.dry_run(body, int(parse_qs(url.query).get("seconds", ["300"])[0])))
        else:
            self.answer(*self.doors.commit(body, self.headers.get("Idempotency-Key")))

    def answer(self, status: int, told: dict[str, Any]) -> None:
        content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        pass


if __name__ == "__main__":
    Handler.doors = Doors(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
