"""The same leaves, commitments and ids for half of the work: what an event costs is what its expressions cost."""

FORWARDS = r"""
-- The members of a leaf in RFC 8785's order. row_to_json() of it is RFC 8785: no blanks, and to_json()'s escapes.
CREATE TYPE audit_leaf_members AS (
    actor_id text, actor_type text, agent text, at text, commitment text, id uuid, kind text, nonce text,
    on_behalf_of text, operation text, plan_id text, plan_seq integer, request_id text, target text, task_id text,
    version integer
);
REVOKE ALL ON TYPE audit_leaf_members FROM PUBLIC;

CREATE OR REPLACE FUNCTION audit_leaf(
    id uuid, kind text, at timestamptz, actor_type text, actor_id text, on_behalf_of text, agent text, target text,
    plan_id text, plan_seq integer, operation text, task_id text, request_id text, commitment bytea, nonce bytea
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT convert_to(row_to_json(ROW(actor_id, actor_type, agent,
        to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), encode(commitment, 'hex'), id, kind,
        encode(nonce, 'hex'), on_behalf_of, operation, plan_id, plan_seq, request_id, target, task_id, 1
        )::audit_leaf_members)::text, 'UTF8')
$$;

-- HMAC-SHA256 (RFC 2104) with a key of 32 bytes. The other 32 of the block are the padding itself. bit_send() puts the
-- number of bits, four bytes, before them.
CREATE OR REPLACE FUNCTION audit_commitment(salt bytea, message bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(
        substr(bit_send(('x' || encode(salt, 'hex'))::bit(256) # ('x' || repeat('5c', 32))::bit(256)), 5)
        || decode(repeat('5c', 32), 'hex')
        || sha256(
            substr(bit_send(('x' || encode(salt, 'hex'))::bit(256) # ('x' || repeat('36', 32))::bit(256)), 5)
            || decode(repeat('36', 32), 'hex')
            || message))
$$;

-- UUIDv7 (RFC 9562, 5.7): milliseconds of `at`, then its microseconds in the 12 bits of rand_a, then the variant and 62
-- bits of the eight bytes of `chance`. The id therefore names the partition of its event to within a millisecond.
DROP FUNCTION audit_new_id(timestamptz);
CREATE FUNCTION audit_new_id(at timestamptz, chance bytea DEFAULT substr(uuid_send(gen_random_uuid()), 9))
RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(
        substr(int8send((extract(epoch FROM at) * 1000000)::bigint / 1000), 3, 6)
        || int2send((28672 + (extract(epoch FROM at) * 1000000)::bigint % 1000 * 4096 / 1000)::smallint)
        || set_byte(chance, 0, get_byte(chance, 0) & 63 | 128), 'hex')::uuid
$$;
REVOKE ALL ON FUNCTION audit_new_id(timestamptz, bytea) FROM PUBLIC;

CREATE OR REPLACE FUNCTION audit_record(
    p_kind text, p_actor_type text, p_actor_id text, p_payload text, p_on_behalf_of text DEFAULT NULL,
    p_agent text DEFAULT NULL, p_target text DEFAULT NULL, p_plan_id text DEFAULT NULL, p_plan_seq integer DEFAULT NULL,
    p_operation text DEFAULT NULL, p_task_id text DEFAULT NULL, p_request_id text DEFAULT NULL,
    OUT event_id uuid, OUT recorded_at timestamptz
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    -- 244 random bits, and nobody learns them: a hash of them is the salt, another one the nonce and the id's chance.
    -- There is no other source of randomness without an extension, and each call opens a device.
    entropy bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    new_salt bytea := sha256('\x00'::bytea || entropy);
    told bytea := sha256('\x01'::bytea || entropy);
BEGIN
    recorded_at := clock_timestamp();
    event_id := audit_new_id(recorded_at, substr(told, 17, 8));
    IF to_regclass('public.' || audit_partition_name(recorded_at)) IS NULL THEN
        PERFORM audit_make_partition(recorded_at);
    END IF;
    INSERT INTO audit_event (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq,
        operation, task_id, request_id, leaf)
    VALUES (event_id, recorded_at, p_kind, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target, p_plan_id,
        p_plan_seq, p_operation, p_task_id, p_request_id,
        audit_leaf(event_id, p_kind, recorded_at, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target,
            p_plan_id, p_plan_seq, p_operation, p_task_id, p_request_id,
            audit_commitment(new_salt, convert_to(p_payload, 'UTF8')), substr(told, 1, 16)));
    INSERT INTO audit_payload (event_id, salt, body) VALUES (event_id, new_salt, p_payload);
    INSERT INTO audit_pending (at, event_id) VALUES (recorded_at, event_id);
END $$;
"""
