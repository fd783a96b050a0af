"""The feed's statements, each prepared once a connection: before its agent's lock, the lock, what is known, the plan.

By hand and not by the ORM, which would compile anew for every plan what never differs (docs/speed.md). No other module
of a plan's arrival holds SQL. The plan's event is written by `audit.recording`, in the statement that inserts the plan.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

from django.conf import settings
from django.db import connection

from audit.recording import Change
from plans import clock
from plans.locks import still_limited, wait_text
from plans.models import AgentSecret, Plan, Target
from plans.states import HOLDS_INTENT, State

# --- before the lock ------------------------------------------------------------------------------------------------

_KNOCK: Final = f"""
SELECT clock.at, a.id, a.name, a.owner_id, ARRAY(
        SELECT s.sealed FROM plans_agentsecret s
        WHERE s.agent_id = a.id AND s.purpose = '{AgentSecret.WEBHOOK}' AND s.retired_at IS NULL ORDER BY s.id DESC
    ), d.body_hash
FROM (SELECT clock_timestamp() AS at) clock
LEFT JOIN plans_agent a ON a.name = %s::text AND a.disabled_at IS NULL
LEFT JOIN plans_delivery d ON d.agent_id = a.id AND d.webhook_id = %s::text
"""  # noqa: S608 - made of our own constants


class Sender(NamedTuple):
    """The agent that a delivery is addressed to, as far as the feed needs it."""

    pk: int
    name: str
    owner_id: int


class Knock(NamedTuple):
    """Who is knocked at, when, and whether this delivery's id is bound; read in one statement, and before any lock."""

    at: datetime
    sender: Sender | None
    sealed_secrets: Sequence[bytes]
    body_hash: bytes | None


def knock(name: str | None, webhook_id: str | None) -> Knock:
    """Look up a living agent with its live webhook secrets, newest first and sealed, and what this id was bound to.

    None for a name or an id that cannot be one: the statement, and the time it takes, is the same.
    """
    with connection.cursor() as cursor:
        cursor.execute(_KNOCK, [name, webhook_id])
        at, pk, agent_name, owner_id, sealed, body_hash = cursor.fetchone()
    sender = None if pk is None else Sender(pk, agent_name, owner_id)
    return Knock(clock.read(at), sender, sealed, None if body_hash is None else bytes(body_hash))


_PLACE: Final = f"""
SELECT t.id, t.base_url, y.id, y.version, y.approvals,
    (SELECT a.id FROM plans_targetaddress a WHERE a.target_id = t.id ORDER BY a.id DESC LIMIT 1)
FROM plans_target t CROSS JOIN LATERAL (
    SELECT id, version, approvals FROM plans_policy WHERE target_id = t.id ORDER BY version DESC LIMIT 1) y
WHERE t.name = %s AND t.kind = '{Target.REMOTE}'
"""  # noqa: S608 - made of our own constants


class Place(NamedTuple):
    """Where a plan goes, as it was a while ago: `receive` takes it only where it still is so."""

    target_pk: int
    base_url: str
    policy_pk: int
    policy_version: int
    policy_approvals: int | None
    address_pk: int


def find_place(target: str) -> Place | None:
    """A remote target as it is at this moment, without a lock."""
    with connection.cursor() as cursor:
        cursor.execute(_PLACE, [target])
        found = cursor.fetchone()
    return None if found is None else Place._make(found)


# --- all at once, where nothing is out of the ordinary --------------------------------------------------------------

_RECEIVE: Final = f"SELECT plans_receive({', '.join(['%s'] * 42)})"


def receive(parameters: Sequence[Any]) -> int | None:
    """Lock the agent and record a plan in one statement, which is its own transaction (migration 0007).

    None, and nothing done, where anything is not plain. Raises `LockTimeout`, and what the unique constraints say.
    """
    with still_limited(), connection.cursor() as cursor:
        cursor.execute(_RECEIVE, parameters)
        (plan_pk,) = cursor.fetchone()
    return None if plan_pk is None else int(plan_pk)


# --- the lock -------------------------------------------------------------------------------------------------------

# The limit is set by the statement that waits: rows are locked after its conditions have been looked at.
LOCK = """
SELECT disabled_at IS NOT NULL, is_paused FROM plans_agent
WHERE id = %s AND set_config('lock_timeout', %s, true) IS NOT NULL FOR NO KEY UPDATE
"""


class Standing(NamedTuple):
    """Whether an agent may feed, read with its row locked."""

    is_disabled: bool
    is_paused: bool


def lock_sender(agent_pk: int) -> Standing:
    """As `locks.lock_agent`, in one round trip. Raises `LockTimeout`; any later lock is waited for as long at most."""
    with still_limited(), connection.cursor() as cursor:
        cursor.execute(LOCK, [agent_pk, wait_text()])
        return Standing(*cursor.fetchone())


# --- what is known of a plan that arrives ---------------------------------------------------------------------------

_PENDING: Final = State.PENDING.value
_HOLDERS: Final = ", ".join(f"'{state.value}'" for state in sorted(HOLDS_INTENT))
_LOOK: Final = f"""
WITH fed AS (
    SELECT %s::bigint AS agent, %s::text AS webhook_id, %s::text AS target, %s::text AS plan_id, %s::text AS operation,
        %s::text AS task_id, %s::text AS intent, %s::text AS replaces, %s::bytea AS inputs_hash,
        %s::timestamptz AS created_at, %s::text[] AS touched, %s::interval AS kept_for, clock_timestamp() AS at
)
SELECT fed.at, d.body_hash, same.id, same.data_hash,
    t.id, t.kind = '{Target.HOSTED}', t.base_url, t.operations,
    t.disabled_at IS NULL AND EXISTS (
        SELECT FROM plans_agent_targets m WHERE m.agent_id = fed.agent AND m.target_id = t.id),
    k.id, k.ended_at,
    (SELECT count(*) FROM plans_plan p
        WHERE p.agent_id = fed.agent AND p.state = '{_PENDING}' AND p.expires_at > fed.at),
    y.id, y.version, y.approvals,
    (SELECT a.id FROM plans_targetaddress a WHERE a.target_id = t.id ORDER BY a.id DESC LIMIT 1),
    EXISTS (SELECT FROM plans_plan p WHERE p.agent_id = fed.agent AND p.replaces = fed.plan_id AND p.target_id = t.id
        AND p.received_at >= fed.at - fed.kept_for),
    (SELECT w.reason FROM plans_wish w WHERE w.agent_id = fed.agent AND w.target_id = t.id AND w.plan_id = fed.plan_id
        AND w.wished_at >= fed.at - fed.kept_for),
    o.own, o.others,
    CASE WHEN fed.intent IS NOT NULL THEN EXISTS (
        SELECT FROM plans_plan p WHERE p.agent_id = fed.agent AND p.intent = fed.intent AND p.state IN ({_HOLDERS}))
    ELSE EXISTS (
        SELECT FROM plans_plan p WHERE p.task_id = k.id AND p.operation = fed.operation AND p.target_id = t.id
        AND p.intent IS NULL AND p.state = '{_PENDING}' AND p.inputs_hash = fed.inputs_hash)
    END OR EXISTS (
        SELECT FROM plans_plan p WHERE p.agent_id = fed.agent AND p.target_id = t.id AND p.plan_id = fed.replaces)
FROM fed
LEFT JOIN plans_delivery d ON d.agent_id = fed.agent AND d.webhook_id = fed.webhook_id
LEFT JOIN plans_target t ON t.name = fed.target
LEFT JOIN plans_plan same ON same.agent_id = fed.agent AND same.target_id = t.id AND same.plan_id = fed.plan_id
LEFT JOIN plans_task k ON k.agent_id = fed.agent AND k.task_id = fed.task_id
LEFT JOIN LATERAL (
    SELECT id, version, approvals FROM plans_policy WHERE target_id = t.id ORDER BY version DESC LIMIT 1
) y ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE w.agent_id = fed.agent) AS own, count(*) FILTER (WHERE w.agent_id <> fed.agent)
        AS others
    FROM plans_observedwrite w WHERE w.target_id = t.id AND w.at >= coalesce(fed.created_at, fed.at)
        AND w.action_targets && fed.touched
) o
"""  # noqa: S608 - made of our own constants


class Known(NamedTuple):
    """What the desk knows when a plan arrives, of one moment; `at` is that moment, by the database's clock."""

    at: datetime
    body_hash: bytes | None  # what the delivery's id is bound to
    same_pk: int | None  # the plan of this id at this target, whatever it says
    same_hash: bytes | None
    target_pk: int | None
    is_hosted: bool
    base_url: str
    operations: Sequence[str]
    is_registered: bool  # the target, for this agent, and not disabled
    task_pk: int | None
    task_ended_at: datetime | None
    pending_count: int
    policy_pk: int
    policy_version: int
    policy_approvals: int | None
    address_pk: int | None
    has_replacer: bool
    wished: str | None  # the reason of an abandonment that came first
    own_writes: int  # to what it touches, since it was made
    others_writes: int
    has_rivals: bool  # perhaps: plans that it replaces, or of its intent, or of its task and inputs


class Question(NamedTuple):
    """What `look` asks by. `touched` and `created_at` may be empty where they could not be read."""

    agent_pk: int
    webhook_id: str | None
    target: str
    plan_id: str
    operation: str
    task_id: str
    intent: str | None
    replaces: str | None
    inputs_hash: bytes
    created_at: datetime | None
    touched: Sequence[str]


def look(question: Question) -> Known:
    """All that is known of a plan that arrives. Its agent's lock must be held, in a statement before this one.

    `has_rivals` is a hint to lock them and look closer; that it is false is sure, as only who has the agent's lock
    makes plans.
    """
    with connection.cursor() as cursor:
        parameters: list[Any] = [*question, settings.WISHES_KEPT_FOR]
        cursor.execute(_LOOK, parameters)
        known = Known._make(cursor.fetchone())
    return known._replace(at=clock.read(known.at))


# --- the plan -------------------------------------------------------------------------------------------------------

_GIVEN: Final[dict[LiteralString, LiteralString]] = {
    "agent_id": "bigint", "target_id": "bigint", "policy_id": "bigint", "address_id": "bigint", "plan_id": "text",
    "operation": "text", "intent": "text", "replaces": "text", "target_address": "text", "inputs": "text",
    "actions": "text", "action_targets": "text[]", "evidence": "text", "summary": "text", "planned_state": "text",
    "input_fingerprint": "text", "inputs_hash": "bytea", "data_hash": "bytea", "has_confirmed_actions": "boolean",
    "has_been_known_to_target": "boolean", "approvals_required": "smallint", "token_hash": "bytea",
    "token_sealed": "bytea", "idempotency_key": "text", "created_at": "timestamptz", "received_at": "timestamptz",
    "expires_at": "timestamptz", "state": "text", "mark_count": "integer",
}  # fmt: skip
"""Columns of the plan, and what its row is told as."""

_MADE: Final[dict[LiteralString, LiteralString]] = {
    "task_id": "coalesce(task_pk, (SELECT id FROM task))",
    "state_changed_at": "received_at",
    "check_count": "0",
    "event_count": "1",  # `plan.received`, in the same breath
}
_ALSO: Final[dict[LiteralString, LiteralString]] = {
    "task_pk": "bigint", "task_name": "text", "webhook_id": "text", "body_hash": "bytea",
}  # fmt: skip
_INSERT: Final[LiteralString] = f"""
given AS (SELECT {", ".join(f"%s::{kind} AS {name}" for name, kind in (_GIVEN | _ALSO).items())}),
task AS (
    INSERT INTO plans_task (agent_id, task_id, created_at)
    SELECT agent_id, task_name, received_at FROM given WHERE task_pk IS NULL RETURNING id
), delivery AS (
    INSERT INTO plans_delivery (agent_id, webhook_id, body_hash, received_at)
    SELECT agent_id, webhook_id, body_hash, clock_timestamp() FROM given WHERE webhook_id IS NOT NULL
    ON CONFLICT ON CONSTRAINT plans_webhook_id_is_bound_once DO NOTHING
), numbered (seq, id) AS (
    INSERT INTO plans_plan ({", ".join((*_GIVEN, *_MADE))})
    SELECT {", ".join((*_GIVEN, *_MADE.values()))} FROM given RETURNING event_count, id
)
"""  # noqa: S608 - made of our own constants
assert {*_GIVEN, *_MADE} <= {field.column for field in Plan._meta.concrete_fields}


def insertion(
    plan: dict[str, Any], *, task_pk: int | None, task_id: str, webhook_id: str | None, body_hash: bytes | None
) -> Change:
    """Insert a plan (columns by name), its task where it is new, and bind its delivery; for the event to carry out.

    Gives back the plan's key. A delivery that is bound stays as it was: `look` has told to which bytes. Raises, as it
    is carried out, what the unique constraints say.
    """
    return Change(_INSERT, [*(plan[name] for name in _GIVEN), task_pk, task_id, webhook_id, body_hash])
