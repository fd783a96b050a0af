"""The log's tables, functions and triggers, as SQL: what Django cannot say (partitions, definer rights, refusals)."""

TABLES = """
CREATE TABLE audit_event (
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    on_behalf_of text,
    agent text,
    target text,
    plan_id text,
    plan_seq integer,
    operation text,
    task_id text,
    request_id text,
    leaf bytea NOT NULL,
    leaf_hash bytea NOT NULL GENERATED ALWAYS AS (sha256('\\x00'::bytea || leaf)) STORED,
    CONSTRAINT audit_event_pkey PRIMARY KEY (at, id),
    CONSTRAINT audit_event_kind_form CHECK (kind ~ '^[a-z]+\\.[a-z_]+$'),
    CONSTRAINT audit_event_actor_type_known CHECK (actor_type IN ('agent', 'person', 'system', 'target')),
    CONSTRAINT audit_event_plan_seq_positive CHECK (plan_seq > 0),
    CONSTRAINT audit_event_leaf_fits_tile CHECK (octet_length(leaf) <= 65535)
) PARTITION BY RANGE (at);

CREATE INDEX audit_event_kind ON audit_event (kind, at, id);
CREATE INDEX audit_event_actor ON audit_event (actor_id, at, id);
CREATE INDEX audit_event_agent ON audit_event (agent, at, id) WHERE agent IS NOT NULL;
CREATE INDEX audit_event_target ON audit_event (target, at, id) WHERE target IS NOT NULL;
CREATE INDEX audit_event_plan ON audit_event (plan_id, at, id) WHERE plan_id IS NOT NULL;
CREATE INDEX audit_event_operation ON audit_event (operation, at, id) WHERE operation IS NOT NULL;
CREATE INDEX audit_event_task ON audit_event (task_id, at, id) WHERE task_id IS NOT NULL;

CREATE TABLE audit_payload (
    event_id uuid NOT NULL CONSTRAINT audit_payload_pkey PRIMARY KEY,
    salt bytea NOT NULL CONSTRAINT audit_payload_salt_length CHECK (octet_length(salt) = 32),
    body text NOT NULL
);

-- The outbox: what no tree holds yet. Read as a whole, so that whoever commits late is found like everybody else.
CREATE TABLE audit_pending (
    at timestamptz NOT NULL,
    event_id uuid NOT NULL,
    CONSTRAINT audit_pending_pkey PRIMARY KEY (at, event_id)
);

CREATE TABLE audit_counter (
    kind text NOT NULL,
    bucket text NOT NULL,
    minute timestamptz NOT NULL,
    counted integer NOT NULL,
    CONSTRAINT audit_counter_pkey PRIMARY KEY (kind, bucket, minute)
);
CREATE INDEX audit_counter_minute ON audit_counter (minute);
"""

TRIGGERS = """
CREATE FUNCTION audit_refuse_change() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'The audit log is append-only: % on % is refused.', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $$;

-- Row triggers are cloned to every partition, also to a future one; TRUNCATE's are not: audit_make_partition adds them.
CREATE TRIGGER audit_event_keep BEFORE UPDATE OR DELETE ON audit_event
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_event_keep_all BEFORE TRUNCATE ON audit_event
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
-- A payload may be erased (by whom, is a question of grants); it may not be exchanged.
CREATE TRIGGER audit_payload_keep BEFORE UPDATE ON audit_payload
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_payload_keep_all BEFORE TRUNCATE ON audit_payload
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
"""

PARTITIONS = """
CREATE FUNCTION audit_partition_name(at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT 'audit_event_' || to_char(at AT TIME ZONE 'UTC', 'YYYYMM')
$$;

-- Made beside the log and then attached: ATTACH lets writers and readers of the other months go on, where
-- CREATE TABLE ... PARTITION OF would stop them until this transaction ends.
CREATE FUNCTION audit_make_partition(at timestamptz) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    name text := audit_partition_name(at);
    month timestamp := date_trunc('month', at AT TIME ZONE 'UTC');
    grantee text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('audit_make_partition'));
    IF to_regclass('public.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.audit_event INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE public.audit_event ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        name, month::text || '+00', (month + interval '1 month')::text || '+00');
    EXECUTE format('CREATE TRIGGER audit_event_keep_all BEFORE TRUNCATE ON public.%I '
        'FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change()', name);
    -- The database's default privileges are not for the log: it is read and written through its parent.
    FOR grantee IN
        SELECT DISTINCT CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE pg_class.oid = to_regclass('public.' || name) AND acl.grantee <> relowner
    LOOP
        EXECUTE format('REVOKE ALL ON public.%I FROM %s', name, grantee);
    END LOOP;
    RETURN true;
END $$;

-- This month and the `months` after it, at most 120. Returns how many were missing. May be repeated.
CREATE FUNCTION audit_ensure_partitions(months integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    made integer := 0;
    month timestamp := date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC');
BEGIN
    FOR ahead IN 0 .. least(months, 120) LOOP
        IF to_regclass('public.' || audit_partition_name((month + ahead * interval '1 month') AT TIME ZONE 'UTC'))
                IS NULL
            AND audit_make_partition((month + ahead * interval '1 month') AT TIME ZONE 'UTC')
        THEN
            made := made + 1;
        END IF;
    END LOOP;
    RETURN made;
END $$;
"""

BYTES = """
-- HMAC-SHA256 (RFC 2104) with a key of 32 bytes. The other 32 of the block are the padding itself.
CREATE FUNCTION audit_commitment(salt bytea, message bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(
        int8send(('x' || encode(substr(salt, 1, 8), 'hex'))::bit(64)::bigint # 6655295901103053916)
        || int8send(('x' || encode(substr(salt, 9, 8), 'hex'))::bit(64)::bigint # 6655295901103053916)
        || int8send(('x' || encode(substr(salt, 17, 8), 'hex'))::bit(64)::bigint # 6655295901103053916)
        || int8send(('x' || encode(substr(salt, 25, 8), 'hex'))::bit(64)::bigint # 6655295901103053916)
        || decode(repeat('5c', 32), 'hex')
        || sha256(
            int8send(('x' || encode(substr(salt, 1, 8), 'hex'))::bit(64)::bigint # 3906369333256140342)
            || int8send(('x' || encode(substr(salt, 9, 8), 'hex'))::bit(64)::bigint # 3906369333256140342)
            || int8send(('x' || encode(substr(salt, 17, 8), 'hex'))::bit(64)::bigint # 3906369333256140342)
            || int8send(('x' || encode(substr(salt, 25, 8), 'hex'))::bit(64)::bigint # 3906369333256140342)
            || decode(repeat('36', 32), 'hex')
            || message))
$$;

-- UUIDv7 (RFC 9562, 5.7): milliseconds of `at`, then its microseconds in the 12 bits of rand_a, then randomness.
-- The id therefore names the partition of its event to within a millisecond.
CREATE FUNCTION audit_new_id(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(
        substr(int8send((us / 1000)::bigint), 3, 6)
        || int2send((28672 + us % 1000 * 4096 / 1000)::smallint)
        || substr(uuid_send(gen_random_uuid()), 9, 8), 'hex')::uuid
    FROM (SELECT (extract(epoch FROM at) * 1000000)::bigint) AS clock (us)
$$;

-- RFC 8785: to_json() of a text escapes exactly what RFC 8785 escapes, in the same way; names are in order.
CREATE FUNCTION audit_leaf(
    id uuid, kind text, at timestamptz, actor_type text, actor_id text, on_behalf_of text, agent text, target text,
    plan_id text, plan_seq integer, operation text, task_id text, request_id text, commitment bytea, nonce bytea
) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT convert_to(
        '{"actor_id":' || to_json(actor_id)
        || ',"actor_type":' || to_json(actor_type)
        || ',"agent":' || coalesce(to_json(agent)::text, 'null')
        || ',"at":"' || to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || '","commitment":"' || encode(commitment, 'hex')
        || '","id":"' || id
        || '","kind":' || to_json(kind)
        || ',"nonce":"' || encode(nonce, 'hex')
        || '","on_behalf_of":' || coalesce(to_json(on_behalf_of)::text, 'null')
        || ',"operation":' || coalesce(to_json(operation)::text, 'null')
        || ',"plan_id":' || coalesce(to_json(plan_id)::text, 'null')
        || ',"plan_seq":' || coalesce(plan_seq::text, 'null')
        || ',"request_id":' || coalesce(to_json(request_id)::text, 'null')
        || ',"target":' || coalesce(to_json(target)::text, 'null')
        || ',"task_id":' || coalesce(to_json(task_id)::text, 'null')
        || ',"version":1}', 'UTF8')
$$;

-- A payload's text, for statements that make theirs in SQL: `data` is the text of a JSON object.
CREATE FUNCTION audit_payload_text(actor_name text, data text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '{"actor_name":' || coalesce(to_json(actor_name)::text, 'null') || ',"data":' || coalesce(data, '{}') || '}'
$$;
"""

RECORD = """
-- The only way into the log. `payload` is the text of {"actor_name": ..., "data": {...}}, kept byte by byte.
CREATE FUNCTION audit_record(
    p_kind text, p_actor_type text, p_actor_id text, p_payload text, p_on_behalf_of text DEFAULT NULL,
    p_agent text DEFAULT NULL, p_target text DEFAULT NULL, p_plan_id text DEFAULT NULL, p_plan_seq integer DEFAULT NULL,
    p_operation text DEFAULT NULL, p_task_id text DEFAULT NULL, p_request_id text DEFAULT NULL,
    OUT event_id uuid, OUT recorded_at timestamptz
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    -- 366 random bits (a UUID has 122), as 32 bytes; there is no other source of randomness without an extension.
    new_salt bytea :=
        sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
BEGIN
    recorded_at := clock_timestamp();
    event_id := audit_new_id(recorded_at);
    IF to_regclass('public.' || audit_partition_name(recorded_at)) IS NULL THEN
        PERFORM audit_make_partition(recorded_at);
    END IF;
    INSERT INTO audit_event (id, at, kind, actor_type, actor_id, on_behalf_of, agent, target, plan_id, plan_seq,
        operation, task_id, request_id, leaf)
    VALUES (event_id, recorded_at, p_kind, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target, p_plan_id,
        p_plan_seq, p_operation, p_task_id, p_request_id,
        audit_leaf(event_id, p_kind, recorded_at, p_actor_type, p_actor_id, p_on_behalf_of, p_agent, p_target,
            p_plan_id, p_plan_seq, p_operation, p_task_id, p_request_id,
            audit_commitment(new_salt, convert_to(p_payload, 'UTF8')), uuid_send(gen_random_uuid())));
    INSERT INTO audit_payload (event_id, salt, body) VALUES (event_id, new_salt, p_payload);
    INSERT INTO audit_pending (at, event_id) VALUES (recorded_at, event_id);
END $$;

-- The same for what strangers can trigger at will: counts always, records only the first `p_cap` of a minute.
CREATE FUNCTION audit_record_capped(
    p_cap integer, p_bucket text, p_kind text, p_actor_type text, p_actor_id text, p_payload text,
    p_on_behalf_of text DEFAULT NULL, p_agent text DEFAULT NULL, p_target text DEFAULT NULL,
    p_plan_id text DEFAULT NULL, p_plan_seq integer DEFAULT NULL, p_operation text DEFAULT NULL,
    p_task_id text DEFAULT NULL, p_request_id text DEFAULT NULL, OUT event_id uuid, OUT recorded_at timestamptz
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    so_far integer;
BEGIN
    INSERT INTO audit_counter AS c (kind, bucket, minute, counted)
    VALUES (p_kind, p_bucket, date_trunc('minute', clock_timestamp()), 1)
    ON CONFLICT (kind, bucket, minute) DO UPDATE SET counted = c.counted + 1
    RETURNING c.counted INTO so_far;
    IF so_far <= p_cap THEN
        SELECT r.event_id, r.recorded_at INTO event_id, recorded_at
        FROM audit_record(p_kind, p_actor_type, p_actor_id, p_payload, p_on_behalf_of, p_agent, p_target, p_plan_id,
            p_plan_seq, p_operation, p_task_id, p_request_id) AS r;
    END IF;
END $$;

-- Forgets the counters that never passed the cap, an hour after their minute. May be repeated.
CREATE FUNCTION audit_tidy_counters(p_cap integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    gone integer;
BEGIN
    DELETE FROM audit_counter WHERE minute < clock_timestamp() - interval '1 hour' AND counted <= p_cap;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
END $$;
"""

RIGHTS = """
REVOKE ALL ON FUNCTION audit_refuse_change(), audit_partition_name(timestamptz), audit_make_partition(timestamptz),
    audit_ensure_partitions(integer), audit_commitment(bytea, bytea), audit_new_id(timestamptz),
    audit_leaf(uuid, text, timestamptz, text, text, text, text, text, text, integer, text, text, text, bytea, bytea),
    audit_payload_text(text, text),
    audit_record(text, text, text, text, text, text, text, text, integer, text, text, text),
    audit_record_capped(integer, text, text, text, text, text, text, text, text, text, integer, text, text, text),
    audit_tidy_counters(integer)
FROM PUBLIC;
REVOKE ALL ON audit_event, audit_payload, audit_pending, audit_counter FROM PUBLIC;
SELECT audit_ensure_partitions(12);
"""

FORWARDS = TABLES + TRIGGERS + PARTITIONS + BYTES + RECORD + RIGHTS

BACKWARDS = """
DROP TABLE audit_event, audit_payload, audit_pending, audit_counter CASCADE;
DROP FUNCTION audit_record_capped(integer, text, text, text, text, text, text, text, text, text, integer, text, text,
    text);
DROP FUNCTION audit_record(text, text, text, text, text, text, text, text, integer, text, text, text);
DROP FUNCTION audit_tidy_counters(integer), audit_payload_text(text, text),
    audit_leaf(uuid, text, timestamptz, text, text, text, text, text, text, integer, text, text, text, bytea, bytea),
    audit_new_id(timestamptz), audit_commitment(bytea, bytea), audit_ensure_partitions(integer),
    audit_make_partition(timestamptz), audit_partition_name(timestamptz), audit_refuse_change();
"""
