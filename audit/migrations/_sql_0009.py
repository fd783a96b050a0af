"""One statement an event, and nothing in it that a caller's search_path could bend: a setting costs a writer 3 %."""

FORWARDS = r"""
-- What audit_record opens (the planner puts their bodies in place of the calls) has its names bound here, once: read
-- anew as text, `||` and substr() would be whatever the caller's search_path says they are.
CREATE OR REPLACE FUNCTION audit_new_id(
    at timestamptz, chance bytea DEFAULT substr(uuid_send(gen_random_uuid()), 9)
) RETURNS uuid LANGUAGE sql STABLE
RETURN encode(
    int8send((date_part('epoch', at) * 1000000)::bigint / 1000 * 65536 + 28672
        + (date_part('epoch', at) * 1000000)::bigint % 1000 * 4096 / 1000)
    || set_byte(chance, 0, get_byte(chance, 0) & 63 | 128), 'hex')::uuid;

CREATE OR REPLACE FUNCTION audit_leaf(
    id uuid, kind text, at timestamptz, actor_type text, actor_id text, on_behalf_of text, agent text, target text,
    plan_id text, plan_seq integer, operation text, task_id text, request_id text, commitment bytea, nonce bytea
) RETURNS bytea LANGUAGE sql STABLE
RETURN convert_to(row_to_json(ROW(actor_id, actor_type, agent,
    to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), encode(commitment, 'hex'), id, kind,
    encode(nonce, 'hex'), on_behalf_of, operation, plan_id, plan_seq, request_id, target, task_id, 1
    )::audit_leaf_members)::text, 'UTF8');

CREATE OR REPLACE FUNCTION audit_commitment(salt bytea, message bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
RETURN sha256(
    substr(bit_send(('x' || encode(salt, 'hex'))::bit(256) # ('x' || repeat('5c', 32))::bit(256)), 5)
    || decode(repeat('5c', 32), 'hex')
    || sha256(
        substr(bit_send(('x' || encode(salt, 'hex'))::bit(256) # ('x' || repeat('36', 32))::bit(256)), 5)
        || decode(repeat('36', 32), 'hex')
        || message));

CREATE OR REPLACE FUNCTION audit_partition_name(at timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN 'audit_event_' || to_char(at AT TIME ZONE 'UTC', 'YYYYMM');

CREATE FUNCTION audit_lacks_partition(at timestamptz) RETURNS boolean LANGUAGE sql STABLE
RETURN to_regclass('public.' || audit_partition_name(at)) IS NULL;

-- 64 bytes made of 244 random bits, which nobody learns: 32 are an event's salt, 16 its nonce, eight its id's chance.
-- There is no other source of randomness without an extension, and each call opens a device.
CREATE FUNCTION audit_chance() RETURNS bytea LANGUAGE sql VOLATILE
RETURN sha512(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

-- No search_path of its own, hence no operator and no name without its schema.
CREATE OR REPLACE FUNCTION audit_record(
    p_kind text, p_actor_type text, p_actor_id text, p_payload text, p_on_behalf_of text DEFAULT NULL,
    p_agent text DEFAULT NULL, p_target text DEFAULT NULL, p_plan_id text DEFAULT NULL, p_plan_seq integer DEFAULT NULL,
    p_operation text DEFAULT NULL, p_task_id text DEFAULT NULL, p_request_id text DEFAULT NULL,
    OUT event_id uuid, OUT recorded_at timestamptz
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
    chance pg_catalog.bytea := public.audit_chance();
BEGIN
    recorded_at := pg_catalog.clock_timestamp();
    event_id := public.audit_new_id(recorded_at, pg_catalog.substr(chance, 49, 8));
    IF public.audit_lacks_partition(recorded_at) THEN
        PERFORM public.audit_make_partition(recorded_at);
    END IF;
    WITH event AS (
        INSERT INTO public.audit_event (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id,
            plan_seq, operation, task_id, request_id, leaf)
        VALUES (event_id, recorded_at, p_kind, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target, p_plan_id,
            p_plan_seq, p_operation, p_task_id, p_request_id,
            public.audit_leaf(event_id, p_kind, recorded_at, p_actor_type, p_actor_id, p_on_behalf_of, p_agent,
                p_target, p_plan_id, p_plan_seq, p_operation, p_task_id, p_request_id,
                public.audit_commitment(pg_catalog.substr(chance, 1, 32), pg_catalog.convert_to(p_payload, 'UTF8')),
                pg_catalog.substr(chance, 33, 16)))
    ), payload AS (
        INSERT INTO public.audit_payload (event_id, salt, body)
        VALUES (event_id, pg_catalog.substr(chance, 1, 32), p_payload)
    )
    INSERT INTO public.audit_pending (at, event_id) VALUES (recorded_at, event_id);
END $$;
REVOKE ALL ON FUNCTION audit_lacks_partition(timestamptz), audit_chance() FROM PUBLIC;
"""
