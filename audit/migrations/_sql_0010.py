"""What was only counted keeps its number for good, and whose address it was for thirty days."""

FORWARDS = r"""
-- Forgets the counters that never passed the cap, an hour after their minute. Of those that did, thirty days after it,
-- the address: a minute's sign-ins that failed are one counter then, of no address, with as many beyond the cap as all
-- had. May be repeated.
CREATE OR REPLACE FUNCTION audit_tidy_counters(p_cap integer) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    gone integer;
BEGIN
    DELETE FROM audit_counter WHERE minute < clock_timestamp() - interval '1 hour' AND counted <= p_cap;
    GET DIAGNOSTICS gone = ROW_COUNT;
    WITH old AS (
        DELETE FROM audit_counter
        WHERE kind = 'login.failed' AND bucket <> '' AND minute < clock_timestamp() - interval '30 days'
        RETURNING kind, minute, counted
    )
    INSERT INTO audit_counter AS c (kind, bucket, minute, counted)
    SELECT kind, '', minute, p_cap + sum(counted - p_cap) FROM old GROUP BY kind, minute
    ON CONFLICT (kind, bucket, minute) DO UPDATE SET counted = c.counted + excluded.counted - p_cap;
    RETURN gone;
END $$;
"""
