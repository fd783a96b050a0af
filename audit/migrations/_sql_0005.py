"""What is on hold stays on hold, and what the log stands on is not emptied: refusals that were missing."""

FORWARDS = """
-- Row triggers do not stop TRUNCATE. An emptied outbox loses events, emptied rules lose every minimum.
CREATE TRIGGER audit_hold_keep_all BEFORE TRUNCATE ON audit_hold
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_retention_keep_all BEFORE TRUNCATE ON audit_retention
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_pending_keep_all BEFORE TRUNCATE ON audit_pending
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_counter_keep_all BEFORE TRUNCATE ON audit_counter
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();

-- A rule is replaced, never taken away: without one there is no minimum.
CREATE TRIGGER audit_retention_keep BEFORE DELETE ON audit_retention
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();

-- A hold is released, once. What it covers, and since when, is what it was placed with.
CREATE TRIGGER audit_hold_release BEFORE UPDATE ON audit_hold FOR EACH ROW
    WHEN (OLD.released_at IS NOT NULL OR NEW.released_at IS NULL
        OR (OLD.id, OLD.name, OLD.reason, OLD.kinds, OLD.agent, OLD.target, OLD.plan_id, OLD.operation, OLD.task_id,
            OLD.actor, OLD.from_at, OLD.to_at, OLD.placed_at)
        IS DISTINCT FROM (NEW.id, NEW.name, NEW.reason, NEW.kinds, NEW.agent, NEW.target, NEW.plan_id, NEW.operation,
            NEW.task_id, NEW.actor, NEW.from_at, NEW.to_at, NEW.placed_at))
    EXECUTE FUNCTION audit_refuse_change();
-- The outbox's rows are taken, never changed.
CREATE TRIGGER audit_pending_keep BEFORE UPDATE ON audit_pending
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
"""

BACKWARDS = """
DROP TRIGGER audit_hold_keep_all ON audit_hold;
DROP TRIGGER audit_retention_keep_all ON audit_retention;
DROP TRIGGER audit_pending_keep_all ON audit_pending;
DROP TRIGGER audit_counter_keep_all ON audit_counter;
DROP TRIGGER audit_retention_keep ON audit_retention;
DROP TRIGGER audit_hold_release ON audit_hold;
DROP TRIGGER audit_pending_keep ON audit_pending;
"""
