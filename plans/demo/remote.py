"""The billing system's own two-phase writes: what its HTTP server does with a dry run, a commit and a look-up.

It stands for somebody else's system: it keeps its plans itself, computes its own fingerprints, and knows nothing of
the desk. Its answers are those of CONTRACT section 6.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
from django.db import IntegrityError, transaction

from plans import clock, identifiers, strict_json
from plans.demo import shipping
from plans.demo.models import RemoteApplication, RemotePlan
from plans.demo.operations import RefundInvoice, UpdateAddress
from plans.errors import CannotPlan
from plans.fingerprints import fingerprint
from plans.instants import format_instant
from plans.targets.operations import Operation, changed_fields, decode_actions, dump, encode_actions

PLAN_LIFETIME: Final = timedelta(minutes=10)
PROBLEMS: Final = "https://billing.example/problems/"
T = TypeVar("T")


class RemoteRefund(RefundInvoice):
    """The same refund, made by the billing server itself."""

    made_by = "billing-remote"


OPERATIONS: Final[Mapping[str, Operation]] = {"refund": RemoteRefund(), "address.update": UpdateAddress()}


class DryRunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a dry run takes."""

    inputs: msgspec.Raw


class CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a commit takes: the plan itself stays here, so nothing of it is sent again."""

    plan_token: str
    input_fingerprint: str

    def __repr__(self) -> str:
        return "CommitBody()"


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, JSON text and headers of one answer."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """A request that gets a problem document; nothing was written for it."""

    def __init__(self, status: int, slug: str, detail: str, **members: Any) -> None:
        super().__init__(detail)
        problem = {"type": PROBLEMS + slug, "title": slug.replace("-", " "), "status": status, "detail": detail}
        self.answer = Answer(status, dump(problem | members), {"Content-Type": "application/problem+json"})


def dry_run(*, operation: str, body: bytes, lifetime: timedelta = PLAN_LIFETIME) -> Answer:
    """201 with a new plan; nothing is written but the plan. Raises Refusal. May be repeated: each makes a plan."""
    planner = _operation(operation)
    inputs = _decode(bytes(_decode(body, DryRunBody).inputs), planner.Inputs)
    state = planner.read(inputs, lock=False)
    try:
        actions = planner.plan(inputs, state)
    except CannotPlan as error:
        raise Refusal(422, "cannot-plan", error.detail) from error
    token = "pt_" + secrets.token_urlsafe(32)
    created_at = clock.now()
    plan = RemotePlan.objects.create(
        plan_id="rplan_" + secrets.token_hex(6),
        token_hash=hash_token(token),
        operation=operation,
        inputs=msgspec.json.encode(inputs).decode(),
        planned_state=dump(state),
        actions=encode_actions(actions),
        input_fingerprint=fingerprint({"operation": operation, "inputs": msgspec.to_builtins(inputs), "state": state}),
        created_at=created_at,
        expires_at=created_at + lifetime,
    )
    return Answer(201, dump({"plan_id": plan.plan_id, "plan_token": token, **_promise(plan)}))


def commit(*, operation: str, key: str | None, body: bytes) -> Answer:
    """Write one plan, at most once; every end is kept with its answer, and given again for the same key.

    Locks the plan, then the rows it writes. A second request for the same plan waits for the first and gets its answer.
    409 with what `changed` since the dry run, 410 at or past its expiry: both are ends, and nothing was written.
    """
    key = _key(key)
    sent = _decode(body, CommitBody)
    try:
        with transaction.atomic():
            return _commit(_operation(operation), key, sent)
    except IntegrityError as error:
        constraint = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)
        if constraint != "demo_remote_key_is_bound_once":
            raise
        raise Refusal(422, "key-reused", "This key was used for another plan.") from error


def look_up(*, plan_id: str) -> Answer:
    """The state of one plan and what it promised, without its token; 404 where there is none."""
    plan = RemotePlan.objects.filter(pk=plan_id).first()
    if plan is None:
        raise Refusal(404, "unknown-plan", "There is no plan of this id.")
    state = RemotePlan.EXPIRED if plan.state == RemotePlan.PENDING and clock.now() >= plan.expires_at else plan.state
    told = {"plan_id": plan.plan_id, "state": state, **_promise(plan)}
    if plan.state == RemotePlan.COMMITTED:
        told["result"] = json.loads(plan.answer_body)
    return Answer(200, dump(told))


def look_up_shipments(*, invoice_id: str) -> Answer:
    """Where the goods of an invoice are: the read `shipping.lookup`. An unknown invoice has no shipments."""
    return Answer(200, dump({"invoice_id": invoice_id, "shipments": shipping.look_up(invoice_id)}))


def _commit(planner: Operation, key: str, sent: CommitBody) -> Answer:
    plan = (
        RemotePlan.objects.select_for_update()
        .filter(token_hash=hash_token(sent.plan_token), operation=planner.name)
        .first()
    )
    is_bound_elsewhere = RemotePlan.objects.filter(idempotency_key=key).exclude(pk=plan.pk if plan else "").exists()
    if is_bound_elsewhere:
        raise Refusal(422, "key-reused", "This key was used for another plan.")
    if plan is None:
        raise Refusal(404, "never-planned", "This token names no plan.")
    if sent.input_fingerprint != plan.input_fingerprint:
        if plan.idempotency_key == key:
            raise Refusal(422, "key-reused", "This key was used with another fingerprint.")
        raise Refusal(412, "fingerprint-mismatch", "This is not the plan's fingerprint.")
    if plan.state != RemotePlan.PENDING:
        return _stored(plan)
    if clock.now() >= plan.expires_at:
        expired = Refusal(410, "expired", "The plan has expired.", expired_at=format_instant(plan.expires_at))
        return _end(plan, RemotePlan.EXPIRED, key, expired.answer)
    return _write(planner, plan, key)


def _write(planner: Operation, plan: RemotePlan, key: str) -> Answer:
    inputs = msgspec.json.decode(plan.inputs, type=planner.Inputs)
    changed = changed_fields(json.loads(plan.planned_state), planner.read(inputs, lock=True))
    if changed:
        conflict = Refusal(
            409,
            "conflict",
            "An input changed after the plan was made; nothing was written.",
            changed=changed,
            plan_created_at=format_instant(plan.created_at),
        )
        return _end(plan, RemotePlan.CONFLICTED, key, conflict.answer)
    result = planner.apply(inputs, decode_actions(plan.actions))
    RemoteApplication.objects.create(plan=plan, idempotency_key=key, applied_at=clock.now())
    return _end(plan, RemotePlan.COMMITTED, key, Answer(200, dump(result)))


def _end(plan: RemotePlan, state: str, key: str, answer: Answer) -> Answer:
    plan.state, plan.ended_at, plan.idempotency_key = state, clock.now(), key
    plan.answer_status, plan.answer_body = answer.status, answer.body
    plan.save(update_fields=["state", "ended_at", "idempotency_key", "answer_status", "answer_body"])
    return answer


def _stored(plan: RemotePlan) -> Answer:
    assert plan.answer_status is not None
    headers = {"Idempotent-Replayed": "true"}
    if plan.answer_status >= 400:
        headers["Content-Type"] = "application/problem+json"
    return Answer(plan.answer_status, plan.answer_body, headers)


def _promise(plan: RemotePlan) -> dict[str, Any]:
    return {
        "input_fingerprint": plan.input_fingerprint,
        "created_at": format_instant(plan.created_at),
        "expires_at": format_instant(plan.expires_at),
        "actions": json.loads(plan.actions),
    }


def _operation(name: str) -> Operation:
    found = OPERATIONS.get(name)
    if found is None:
        raise Refusal(404, "unknown-operation", "There is no such operation.")
    return found


def _key(header: str | None) -> str:
    if header is None:
        raise Refusal(400, "key-required", "An Idempotency-Key header is required.")
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not identifiers.is_idempotency_key(key):
        raise Refusal(400, "key-invalid", "The Idempotency-Key is malformed.")
    return key


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return strict_json.decode(body, shape)
    except strict_json.StrictJsonError as error:
        raise Refusal(400 if error.is_syntax else 422, "malformed", error.detail) from None
    except strict_json.InvalidBody as error:
        errors = [{"pointer": pointer, "detail": detail} for pointer, detail in error.errors]
        raise Refusal(422, "invalid", "A value is not acceptable.", errors=errors) from None


def hash_token(token: str) -> str:
    """What a token is known by here."""
    return hashlib.sha256(token.encode()).hexdigest()
