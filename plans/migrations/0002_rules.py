"""What no constraint can say: which moves a plan may make, what never changes, and that every end has its fact."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION plans_check_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> NEW.state AND NOT (OLD.state, NEW.state) IN (
        ('pending', 'committing'), ('pending', 'rejected'), ('pending', 'abandoned'),
        ('pending', 'committed'), ('pending', 'refused'),
        ('committing', 'committed'), ('committing', 'conflicted'), ('committing', 'refused'),
        ('committing', 'abandoned'), ('committing', 'unknown'), ('committing', 'pending'),
        ('unknown', 'committed'), ('unknown', 'conflicted'), ('unknown', 'refused'), ('unknown', 'abandoned')
    ) THEN
        RAISE EXCEPTION 'a plan does not go from % to %', OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_plan_moves';
    END IF;
    IF (OLD.agent_id, OLD.target_id, OLD.task_id, OLD.plan_id, OLD.operation, OLD.target_address, OLD.address_id, OLD.inputs,
        OLD.actions, OLD.action_targets, OLD.evidence, OLD.summary, OLD.input_fingerprint, OLD.inputs_hash,
        OLD.data_hash, OLD.token_hash, OLD.idempotency_key, OLD.created_at, OLD.received_at, OLD.expires_at)
       IS DISTINCT FROM
       (NEW.agent_id, NEW.target_id, NEW.task_id, NEW.plan_id, NEW.operation, NEW.target_address, NEW.address_id, NEW.inputs,
        NEW.actions, NEW.action_targets, NEW.evidence, NEW.summary, NEW.input_fingerprint, NEW.inputs_hash,
        NEW.data_hash, NEW.token_hash, NEW.idempotency_key, NEW.created_at, NEW.received_at, NEW.expires_at)
       OR (OLD.intent, OLD.replaces, OLD.planned_state) IS DISTINCT FROM (NEW.intent, NEW.replaces, NEW.planned_state)
    THEN
        RAISE EXCEPTION 'what was received of a plan never changes'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_plan_is_immutable';
    END IF;
    IF OLD.state IN ('committed', 'conflicted', 'rejected', 'refused', 'abandoned') AND (
        OLD.state_changed_at <> NEW.state_changed_at OR NEW.token_sealed IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'an end is final'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_end_is_final';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER plans_plan_moves BEFORE UPDATE ON plans_plan
    FOR EACH ROW EXECUTE FUNCTION plans_check_move();

CREATE FUNCTION plans_check_end() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    has_fact boolean;
    now_state text;
BEGIN
    SELECT state INTO now_state FROM plans_plan WHERE id = NEW.id;
    has_fact := CASE now_state
        WHEN 'committed' THEN EXISTS (SELECT FROM plans_commit WHERE plan_id = NEW.id AND outcome = 'committed')
        WHEN 'conflicted' THEN EXISTS (SELECT FROM plans_conflict WHERE plan_id = NEW.id)
        WHEN 'rejected' THEN EXISTS (SELECT FROM plans_rejection WHERE plan_id = NEW.id)
        WHEN 'refused' THEN EXISTS (SELECT FROM plans_refusal WHERE plan_id = NEW.id)
        WHEN 'abandoned' THEN EXISTS (SELECT FROM plans_abandonment WHERE plan_id = NEW.id)
        ELSE NOT EXISTS (SELECT FROM plans_commit WHERE plan_id = NEW.id AND outcome = 'committed')
    END;
    IF NOT has_fact THEN
        RAISE EXCEPTION 'a plan is % without the fact that says so', now_state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_end_has_its_fact';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER plans_end_has_its_fact AFTER INSERT OR UPDATE OF state ON plans_plan
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION plans_check_end();

CREATE FUNCTION plans_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is a fact: it is never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_facts_are_final';
END $$;
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_rejection
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_conflict
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_conflictchange
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_abandonment
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_refusal
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_facts_are_final BEFORE UPDATE OR DELETE ON plans_policy
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_plan_is_kept BEFORE DELETE ON plans_plan
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_approval_is_kept BEFORE DELETE ON plans_approval
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_attempt_is_kept BEFORE DELETE ON plans_commit
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();
CREATE TRIGGER plans_key_is_kept BEFORE UPDATE OR DELETE ON plans_idempotencykey
    FOR EACH ROW EXECUTE FUNCTION plans_refuse_change();

CREATE FUNCTION plans_check_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.plan_id, OLD.number, OLD.started_by, OLD.started_by_id, OLD.started_at)
       IS DISTINCT FROM (NEW.plan_id, NEW.number, NEW.started_by, NEW.started_by_id, NEW.started_at)
       OR (OLD.outcome IS NOT NULL AND OLD.outcome <> 'unknown' AND OLD.outcome IS DISTINCT FROM NEW.outcome)
       OR (OLD.outcome = 'unknown' AND NEW.outcome IS NULL)
    THEN
        RAISE EXCEPTION 'an attempt that was settled stays as it was'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'plans_attempt_is_settled_once';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER plans_attempt_is_settled_once BEFORE UPDATE ON plans_commit
    FOR EACH ROW EXECUTE FUNCTION plans_check_attempt();
"""

BACKWARD = """
DROP TRIGGER plans_attempt_is_settled_once ON plans_commit;
DROP TRIGGER plans_key_is_kept ON plans_idempotencykey;
DROP TRIGGER plans_attempt_is_kept ON plans_commit;
DROP TRIGGER plans_approval_is_kept ON plans_approval;
DROP TRIGGER plans_plan_is_kept ON plans_plan;
DROP TRIGGER plans_facts_are_final ON plans_policy;
DROP TRIGGER plans_facts_are_final ON plans_refusal;
DROP TRIGGER plans_facts_are_final ON plans_abandonment;
DROP TRIGGER plans_facts_are_final ON plans_conflictchange;
DROP TRIGGER plans_facts_are_final ON plans_conflict;
DROP TRIGGER plans_facts_are_final ON plans_rejection;
DROP TRIGGER plans_end_has_its_fact ON plans_plan;
DROP TRIGGER plans_plan_moves ON plans_plan;
DROP FUNCTION plans_check_attempt(), plans_refuse_change(), plans_check_end(), plans_check_move();
"""


class Migration(migrations.Migration):
    dependencies = [("plans", "0001_plans")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
