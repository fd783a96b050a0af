"""The same leaves, commitments and ids once more, with fewer expressions, and such as the planner can open."""

FORWARDS = r"""
-- UUIDv7 (RFC 9562, 5.7): milliseconds of `at`, then its microseconds in the 12 bits of rand_a, then the variant and 62
-- bits of the eight bytes of `chance`. STABLE, as date_part() is: said to be more, it would be called and not opened.
-- A double holds microseconds exactly until the year 2255.
CREATE OR REPLACE FUNCTION audit_new_id(
    at timestamptz, chance bytea DEFAULT substr(uuid_send(gen_random_uuid()), 9)
) RETURNS uuid LANGUAGE sql STABLE AS $$
    SELECT encode(
        int8send((date_part('epoch', at) * 1000000)::bigint / 1000 * 65536 + 28672
            + (date_part('epoch', at) * 1000000)::bigint % 1000 * 4096 / 1000)
        || set_byte(chance, 0, get_byte(chance, 0) & 63 | 128), 'hex')::uuid
$$;

CREATE OR REPLACE FUNCTION audit_record(
    p_kind text, p_actor_type text, p_actor_id text, p_payload text, p_on_behalf_of text DEFAULT NULL,
    p_agent text DEFAULT NULL, p_target text DEFAULT NULL, p_plan_id text DEFAULT NULL, p_plan_seq integer DEFAULT NULL,
    p_operation text DEFAULT NULL, p_task_id text DEFAULT NULL, p_request_id text DEFAULT NULL,
    OUT event_id uuid, OUT recorded_at timestamptz
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    -- 64 bytes made of 244 random bits, which nobody learns: 32 are the salt, 16 the nonce, eight the id's chance.
    -- There is no other source of randomness without an extension, and each call opens a device.
    chance bytea := sha512(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
BEGIN
    recorded_at := clock_timestamp();
    event_id := audit_new_id(recorded_at, substr(chance, 49, 8));
    IF to_regclass('public.' || audit_partition_name(recorded_at)) IS NULL THEN
        PERFORM audit_make_partition(recorded_at);
    END IF;
    INSERT INTO audit_event (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq,
        operation, task_id, request_id, leaf)
    VALUES (event_id, recorded_at, p_kind, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target, p_plan_id,
        p_plan_seq, p_operation, p_task_id, p_request_id,
        audit_leaf(event_id, p_kind, recorded_at, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target,
            p_plan_id, p_plan_seq, p_operation, p_task_id, p_request_id,
            audit_commitment(substr(chance, 1, 32), convert_to(p_payload, 'UTF8')), substr(chance, 33, 16)));
    INSERT INTO audit_payload (event_id, salt, body) VALUES (event_id, substr(chance, 1, 32), p_payload);
    INSERT INTO audit_pending (at, event_id) VALUES (recorded_at, event_id);
END $$;
"""
