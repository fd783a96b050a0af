"""Retention as SQL: rules per kind, legal holds, and the trigger that keeps a payload whoever wants it gone."""

TABLES = """
-- Of a kind, or of every kind without a rule of its own ('*'): how long a payload stays at least, and when it may go.
CREATE TABLE audit_retention (
    kind text NOT NULL CONSTRAINT audit_retention_pkey PRIMARY KEY,
    minimum_days integer NOT NULL CONSTRAINT audit_retention_minimum_sane CHECK (minimum_days BETWEEN 0 AND 36525),
    dispose_after_days integer,
    CONSTRAINT audit_retention_kind_form CHECK (kind = '*' OR kind ~ '^[a-z]+\\.[a-z_]+$'),
    CONSTRAINT audit_retention_minimum_first CHECK (dispose_after_days BETWEEN greatest(minimum_days, 1) AND 36525)
);

-- Nothing that a hold in force covers may be erased. An event is covered where everything that is given is its own.
CREATE TABLE audit_hold (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT audit_hold_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT audit_hold_name_length CHECK (length(name) BETWEEN 1 AND 128),
    reason text NOT NULL CONSTRAINT audit_hold_reason_length CHECK (length(reason) BETWEEN 1 AND 1000),
    kinds text[],
    agent text,
    target text,
    plan_id text,
    operation text,
    task_id text,
    actor text,
    from_at timestamptz,
    to_at timestamptz,
    placed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at timestamptz
);
CREATE UNIQUE INDEX audit_hold_in_force ON audit_hold (name) WHERE released_at IS NULL;
"""

KEEPING = """
-- Why the payload of that event must stay, in a word; null where it may go.
CREATE FUNCTION audit_why_kept(e audit_event) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE
        -- Without these nobody could tell an erasure from a theft.
        WHEN e.kind IN ('audit.erased', 'audit.disposed', 'audit.held', 'log.changed') THEN 'log'
        WHEN EXISTS (
            SELECT FROM audit_hold AS h
            WHERE h.released_at IS NULL
                AND (h.kinds IS NULL OR e.kind = ANY(h.kinds))
                AND (h.agent IS NULL OR h.agent = e.agent)
                AND (h.target IS NULL OR h.target = e.target)
                AND (h.plan_id IS NULL OR h.plan_id = e.plan_id)
                AND (h.operation IS NULL OR h.operation = e.operation)
                AND (h.task_id IS NULL OR h.task_id = e.task_id)
                AND (h.actor IS NULL OR h.actor IN (e.actor_id, e.actor_type || ':' || e.actor_id))
                AND (h.from_at IS NULL OR e.at >= h.from_at)
                AND (h.to_at IS NULL OR e.at < h.to_at)
        ) THEN 'held'
        WHEN e.at > clock_timestamp() - make_interval(days => coalesce((
            SELECT r.minimum_days FROM audit_retention AS r WHERE r.kind IN (e.kind, '*')
            ORDER BY r.kind = '*' LIMIT 1), 0)) THEN 'minimum'
    END
$$;

-- After the statement, over all it took: a hold is looked up once an event, and one payload that must stay saves all.
CREATE FUNCTION audit_keep_payload() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    kept uuid;
    why text;
BEGIN
    -- Whoever places a hold, or lengthens a minimum, comes before or after this, never in between.
    LOCK TABLE audit_hold, audit_retention IN SHARE MODE;
    -- An id (UUIDv7) tells the millisecond of its event, and with it the month to look into.
    SELECT e.id, audit_why_kept(e) INTO kept, why
    FROM (
        SELECT event_id, to_timestamp(('x' || left(replace(event_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
            AS since FROM gone
    ) AS g
    JOIN audit_event AS e
        ON e.id = g.event_id AND e.at >= g.since AND e.at < g.since + interval '2 milliseconds'
    WHERE audit_why_kept(e) IS NOT NULL LIMIT 1;
    IF kept IS NOT NULL THEN
        RAISE EXCEPTION 'The payload of event % must stay: %.', kept,
            CASE why WHEN 'held' THEN 'a hold covers it' WHEN 'minimum' THEN 'its time is not up'
                ELSE 'it tells of the log itself' END
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_payload_kept AFTER DELETE ON audit_payload REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION audit_keep_payload();
CREATE TRIGGER audit_hold_keep BEFORE DELETE ON audit_hold FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
"""

RIGHTS = """
REVOKE ALL ON audit_retention, audit_hold FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_why_kept(audit_event), audit_keep_payload() FROM PUBLIC;
"""

FORWARDS = TABLES + KEEPING + RIGHTS

BACKWARDS = """
DROP TRIGGER audit_payload_kept ON audit_payload;
DROP FUNCTION audit_keep_payload(), audit_why_kept(audit_event);
DROP TABLE audit_hold, audit_retention;
"""
