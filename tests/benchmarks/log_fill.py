"""Fills the log with events as a desk's years would: plans in flight side by side, some agents busy and most not.

By SQL as the owner of the tables, month by month, past the one writer: leaves, commitments, places and tiles are the
real ones (the database's own functions make them), so that everything can be verified and exported.
"""

import os
import threading
import time

from tests.benchmarks.measuring import note
from tests.benchmarks.world import Production

EVENTS = int(os.environ.get("BENCH_EVENTS", "1000000"))
MONTHS = 12
"""Of which the last one is now."""
STEPS = 8
"""Events of a plan, the last of which is one that belongs to no plan."""
BATCH = 50_000

_MADE = """
WITH made AS (
    SELECT g, %(since)s::timestamptz + g * %(step)s::interval AS at, g / 80 * 10 + g %% 10 AS plan, g / 10 %% 8 AS step
    FROM generate_series(%(first)s::bigint, %(last)s) AS g
), lots AS (
    SELECT *, (hashint8(plan) + 2147483648)::float8 / 4294967296 AS a,
        (hashint8(plan + 1000000007) + 2147483648)::float8 / 4294967296 AS b,
        (hashint8(plan + 2000000011) + 2147483648)::float8 / 4294967296 AS c,
        (hashint8(g + 3000000019) + 2147483648)::float8 / 4294967296 AS d
    FROM made
), named AS (
    SELECT *, 'agent-' || lpad((40 * a ^ 3)::int::text, 2, '0') AS agent_name,
        'target-' || lpad((12 * b ^ 2)::int::text, 2, '0') AS target_name,
        CASE WHEN step < 7 THEN (ARRAY['limit.update', 'refund.create', 'account.close', 'order.cancel',
            'address.change', 'invoice.write_off', 'price.set', 'user.invite', 'role.grant', 'stock.correct'])
            [1 + (least(9, 10 * (0.7 * b ^ 2 + 0.3 * c ^ 2)))::int] END AS operation_name,
        (1 + (60 * d ^ 2)::int)::text AS person, 'plan_' || md5(plan::text) AS plan_name,
        CASE step WHEN 0 THEN 'plan.received' WHEN 1 THEN 'plan.viewed'
            WHEN 2 THEN CASE WHEN c < 0.2 THEN 'plan.marked' ELSE 'plan.viewed' END
            WHEN 3 THEN CASE WHEN c < 0.9 THEN 'plan.approved' WHEN c < 0.95 THEN 'plan.rejected'
                ELSE 'plan.expired' END
            WHEN 4 THEN CASE WHEN c < 0.9 THEN 'commit.started' ELSE 'plan.abandoned' END
            WHEN 5 THEN CASE WHEN c < 0.8 THEN 'commit.succeeded' WHEN c < 0.87 THEN 'commit.conflicted'
                WHEN c < 0.89 THEN 'commit.refused' WHEN c < 0.9 THEN 'commit.unknown' ELSE 'callback.failed' END
            WHEN 6 THEN CASE WHEN c BETWEEN 0.89 AND 0.9 THEN 'commit.resolved' ELSE 'callback.delivered' END
            ELSE CASE WHEN d < 0.3 THEN 'audit.read' WHEN d < 0.6 THEN 'login.succeeded'
                WHEN d < 0.9 THEN 'write.observed' WHEN d < 0.97 THEN 'commit.never_planned'
                WHEN d < 0.999 THEN 'task.ended' ELSE 'policy.changed' END END AS kind
    FROM lots
), told AS (
    SELECT *, audit_new_id(at) AS id,
        CASE WHEN kind IN ('plan.viewed', 'plan.approved', 'plan.rejected', 'audit.read', 'login.succeeded',
                'policy.changed') THEN 'person'
            WHEN kind IN ('plan.received', 'task.ended') THEN 'agent'
            WHEN kind IN ('commit.succeeded', 'commit.conflicted', 'write.observed', 'commit.never_planned')
                THEN 'target' ELSE 'system' END AS actor_type,
        sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) AS salt
    FROM named
), whole AS (
    SELECT *, CASE actor_type WHEN 'person' THEN person WHEN 'agent' THEN agent_name WHEN 'target' THEN target_name
            ELSE 'engine' END AS actor_id,
        CASE WHEN step < 7 OR kind IN ('write.observed', 'commit.never_planned', 'task.ended') THEN agent_name
            END AS agent,
        CASE WHEN step < 7 OR kind IN ('write.observed', 'commit.never_planned') THEN target_name END AS target,
        CASE WHEN step < 7 THEN plan_name END AS plan_id,
        CASE WHEN kind = 'task.ended' OR step < 7 THEN 'task-' || plan / 20 END AS task_id
    FROM told
), spelled AS (
    SELECT *, audit_payload_text(
        CASE actor_type WHEN 'person' THEN 'Zoë Reviewer ' || person WHEN 'system' THEN 'Plandesk' ELSE actor_id END,
        CASE WHEN kind = 'plan.received' THEN '{"action_targets":["ledger/ACC-' || plan || '"],"actions":1,'
            || '"approvals_required":1,"created_at":"2026-12-01T09:31:11.000000Z","digest":"' || md5(g::text)
            || md5(plan::text) || '","expires_at":"2026-12-01T09:41:11.000000Z","input_fingerprint":"sha256:'
            || md5(plan::text) || '","intent":null,"policy_version":1,"replaces":null}'
        WHEN kind IN ('plan.approved', 'plan.rejected') THEN '{"digest":"' || md5(g::text) || md5(plan::text)
            || '","opened_at":"' || to_char((at - c * d * interval '10 minutes') AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '","reason":"As agreed with account ' || plan || '"}'
        WHEN kind = 'plan.abandoned' THEN '{"reason":"' || CASE WHEN c < 0.95 THEN 'rejected'
            WHEN c < 0.96 THEN 'inputs_changed' ELSE 'expired' END || '"}'
        ELSE '{"attempt":1,"commit_key":"pdk_' || md5(plan::text) || '","note":"' || md5(g::text) || '"}' END) AS body
    FROM whole
)
"""
_INSERT = """
INSERT INTO audit_event (id, at, kind, actor_type, actor_id, agent, target, plan_id, plan_seq, operation, task_id, leaf)
SELECT id, at, kind, actor_type, actor_id, agent, target, plan_id, CASE WHEN step < 7 THEN step + 1 END,
    operation_name, task_id,
    audit_leaf(id, kind, at, actor_type, actor_id, NULL, agent, target, plan_id,
        CASE WHEN step < 7 THEN (step + 1)::int END, operation_name, task_id, NULL,
        audit_commitment(salt, convert_to(body, 'UTF8')), uuid_send(gen_random_uuid()))
"""
_FILL = (
    _MADE
    + ", kept AS MATERIALIZED (SELECT * FROM spelled),"
    + " payloads AS (INSERT INTO audit_payload (event_id, salt, body) SELECT id, salt, body FROM kept ORDER BY id),"
    + " events AS ("
    + _INSERT
    + " FROM kept ORDER BY at RETURNING id, at, leaf_hash),"
    + " places AS (INSERT INTO audit_sequence (index, event_id, at)"
    + " SELECT %(first)s + row_number() OVER (ORDER BY at, id) - 1, id, at FROM events)"
    + " SELECT audit_extend_tiles(%(first)s, string_agg(leaf_hash, ''::bytea ORDER BY at, id)) FROM events"
)

_SIZES = """
SELECT what, sum(size) FROM (
    SELECT CASE WHEN relname ~ '^audit_event_' AND relkind = 'r' THEN 'events'
        WHEN relname ~ '^audit_event' THEN 'their indexes'
        WHEN relname ~ '^audit_payload' THEN 'payloads' WHEN relname ~ '^audit_sequence' THEN 'places'
        WHEN relname ~ '^audit_word' THEN 'words' ELSE 'the rest' END AS what, pg_relation_size(oid) AS size
    FROM pg_class WHERE relkind IN ('r', 'i', 't')) AS parts GROUP BY what ORDER BY 2 DESC
"""

_INDEXES = """
SELECT replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') FROM pg_index
WHERE indrelid = 'audit_event'::regclass AND NOT indisprimary
"""
_DROP = """
DO $$ BEGIN EXECUTE (SELECT 'DROP INDEX ' || string_agg(indexrelid::regclass::text, ', ') FROM pg_index
    WHERE indrelid = 'audit_event'::regclass AND NOT indisprimary); END $$
"""


def fill_log(ground: Production, events: int = EVENTS) -> None:
    """`events` events over the last MONTHS months in an empty log, each at its place in the tree."""
    began = time.monotonic()
    with ground.connect_as_owner() as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        row = connection.execute(
            "SELECT since, (clock_timestamp() - interval '1 minute' - since) / %s FROM"
            " (SELECT date_trunc('month', clock_timestamp()) - make_interval(months => %s) AS since) AS span",
            [events, MONTHS - 1],
        ).fetchone()
        assert row is not None
        since, step = row
        connection.execute(
            "SELECT audit_make_partition(%s::timestamptz + make_interval(months => ahead))"
            " FROM generate_series(0, %s) AS ahead",
            [since, MONTHS - 1],
        )
        # An index is made at once in a fraction of the time that it takes to grow.
        indexes = [definition for (definition,) in connection.execute(_INDEXES).fetchall()]
        connection.execute(_DROP)
        filled = threading.Event()
        reader = threading.Thread(target=_read_words, args=(ground, filled))
        reader.start()
        try:
            for first in range(0, events, BATCH):
                last = min(first + BATCH, events) - 1
                connection.execute(_FILL, {"since": since, "step": step, "first": first, "last": last})
        finally:
            filled.set()
            reader.join()
        connection.execute("SET maintenance_work_mem = '1GB'")
        for definition in indexes:
            connection.execute(definition)
        connection.execute("VACUUM ANALYZE")
        sizes = connection.execute(_SIZES).fetchall()
    note(f"{events:,} events over {MONTHS} months, with all that belongs to them: {time.monotonic() - began:.0f} s")
    note("; ".join(f"{name} {int(size) / 1e9:.2f} GB" for name, size in sizes))


def settle_log(ground: Production) -> None:
    """What the sequencer and autovacuum do in their time: words are read, dead rows are gone."""
    done = threading.Event()
    done.set()
    _read_words(ground, done)
    with ground.connect_as_owner() as connection:
        connection.execute("VACUUM ANALYZE")


def _read_words(ground: Production, filled: threading.Event) -> None:
    """Reads words into their index while there are any, or may be."""
    took, blocks = 0.0, 0
    with ground.connect_as_owner() as connection:
        while True:
            is_last = filled.is_set()
            began = time.monotonic()
            row = connection.execute("SELECT audit_read_words(32)").fetchone()
            assert row is not None
            took, blocks = took + time.monotonic() - began, blocks + int(str(row[0]))
            if row == (0,):
                if is_last:
                    break
                time.sleep(1)
    note(f"words: {took / max(blocks, 1) / 256 * 1e6:.0f} µs an event, beside the rest")
