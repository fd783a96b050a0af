"""All that one feed leaves in the database, as one statement: what the feed is held against."""

import json
from collections.abc import Mapping

UNIQUE = ("task_id", "webhook_id", "plan_id", "idempotency_key", "token_hash", "body_hash", "data_hash")
"""What differs from feed to feed. pgbench, which has no such values, has PostgreSQL make them."""

PARAMETERS = (
    "agent", "target", "policy", "address", "inputs", "actions", "touched", "fingerprint", "sealed",
    "lives", "agent_name", "owner", "target_name", "payload",
)  # fmt: skip

_STATEMENT = """
WITH task AS (
    INSERT INTO plans_task (agent_id, task_id, created_at) VALUES ({agent}::bigint, {task_id}, clock_timestamp())
    RETURNING id
), delivery AS (
    INSERT INTO plans_delivery (agent_id, webhook_id, body_hash, received_at)
    VALUES ({agent}::bigint, {webhook_id}, {body_hash}, clock_timestamp())
), plan AS (
    INSERT INTO plans_plan (agent_id, target_id, task_id, policy_id, plan_id, operation, target_address, address_id,
        inputs, actions, action_targets, evidence, summary, input_fingerprint, inputs_hash, data_hash,
        has_confirmed_actions, has_been_known_to_target, approvals_required, token_hash, token_sealed, idempotency_key,
        created_at, received_at, expires_at, state, state_changed_at, check_count, mark_count, event_count)
    SELECT {agent}::bigint, {target}::bigint, task.id, {policy}::bigint, {plan_id}, 'limit.update', '',
        {address}::bigint, {inputs}, {actions}, ARRAY[{touched}], '', '', {fingerprint}, {data_hash},
        {data_hash}, false, false, 1, {token_hash}, convert_to({sealed}, 'UTF8'), {idempotency_key}, now(), now(),
        now() + make_interval(secs => {lives}::int), 'pending', now(), 0, 0, 1
    FROM task RETURNING plan_id
)
SELECT plan_id FROM plan, audit_record('plan.received', 'agent', {agent_name}, {payload}, {owner}, {agent_name},
    {target_name}, plan_id, 1, 'limit.update', 'task')
"""


def for_psycopg() -> str:
    """With named parameters, texts told as such."""
    texts = {name: f"%({name})s::text" for name in (*PARAMETERS, *UNIQUE)}
    numbers = {name: f"%({name})s" for name in ("agent", "target", "policy", "address", "lives")}
    hashes = {name: f"%({name})s::bytea" for name in ("token_hash", "body_hash", "data_hash")}
    return _STATEMENT.format(**{**texts, **numbers, **hashes})


def for_pgbench() -> str:
    """As a script; every parameter is a variable of pgbench."""
    fresh = dict.fromkeys(UNIQUE, "gen_random_uuid()::text")
    hashes = dict.fromkeys(("token_hash", "body_hash", "data_hash"), "sha256(uuid_send(gen_random_uuid()))")
    values = {name: f":{name}" if name in ("agent", "target") else f":{name}::text" for name in PARAMETERS}
    values |= {name: f":{name}" for name in ("policy", "address", "lives")}
    one_line = " ".join(_STATEMENT.format(**{**values, **fresh, **hashes}).split())
    return one_line + ";\n"


def payload(agent_name: str, fingerprint: str, inputs: str, actions: str) -> str:
    """The event's payload, as long as the feed's own: it holds inputs and actions whole."""
    data = {
        "input_fingerprint": fingerprint, "expires_at": "2026-12-01T09:41:11.000000Z",
        "created_at": "2026-12-01T09:31:11.000000Z", "digest": "0" * 64, "intent": None, "replaces": None,
        "approvals_required": 1, "policy_version": 1, "inputs": json.loads(inputs), "actions": json.loads(actions),
    }  # fmt: skip
    return json.dumps({"actor_name": agent_name, "data": data}, separators=(",", ":"))


def parameters(
    world: Mapping[str, str], *, inputs: str, actions: str, fingerprint: str, touched: str, sealed: str
) -> dict[str, str]:
    """Everything but what is unique. `world`: the ids and names of agent, target, policy, address and owner."""
    return {
        **world, "inputs": inputs, "actions": actions, "touched": touched, "lives": "600",
        "fingerprint": fingerprint, "sealed": sealed,
        "payload": payload(world["agent_name"], fingerprint, inputs, actions),
    }  # fmt: skip
