"""The arrival of a plan of which nothing is out of the ordinary, as one statement; see `plans/plain_arrival.py`."""

from django.db import migrations

# Every look here is a statement of its own, made after the agent's lock: what is seen was true under it. Where one of
# them sees what is not plain (a refusal to be, a rival, a wish), nothing is written and null is answered: then
# `plans.intake` goes the long way, and no sentence of a refusal stands here.
FORWARD = """
CREATE FUNCTION plans_receive(
    p_wait text, p_most_pending integer, p_longest interval, p_kept interval,
    p_agent bigint, p_target bigint, p_base_url text, p_address bigint,
    p_policy bigint, p_version integer, p_policy_approvals integer,
    p_webhook_id text, p_body_hash bytea,
    p_intent text, p_inputs text, p_actions text, p_action_targets text[], p_evidence text, p_summary text,
    p_input_fingerprint text, p_inputs_hash bytea, p_data_hash bytea, p_approvals_required integer,
    p_token_hash bytea, p_token_sealed bytea, p_idempotency_key text, p_created_at timestamptz,
    p_expires_at timestamptz, p_shown_before text, p_shown_after text,
    p_kind text, p_actor_type text, p_actor_id text, p_payload_before text, p_payload_after text,
    p_on_behalf_of text, p_agent_name text, p_target_name text, p_plan_id text, p_operation text, p_task_id text,
    p_request_id text
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moment timestamptz;
    created timestamptz;
    created_text text;
    digest text;
    task bigint;
    ended timestamptz;
    plan bigint;
BEGIN
    PERFORM set_config('lock_timeout', p_wait, true);
    PERFORM FROM plans_agent WHERE id = p_agent AND disabled_at IS NULL AND NOT is_paused FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    moment := clock_timestamp();
    created := coalesce(p_created_at, moment);
    IF created > moment OR p_expires_at <= moment OR p_expires_at <= created OR p_expires_at - moment > p_longest THEN
        RETURN NULL;
    END IF;
    SELECT id, ended_at INTO task, ended FROM plans_task WHERE agent_id = p_agent AND task_id = p_task_id;
    IF coalesce(ended >= moment - p_kept, false)
        OR EXISTS (SELECT FROM plans_delivery WHERE agent_id = p_agent AND webhook_id = p_webhook_id)
        OR EXISTS (SELECT FROM plans_plan WHERE agent_id = p_agent AND target_id = p_target AND plan_id = p_plan_id)
        OR NOT EXISTS (
            SELECT FROM plans_target t JOIN plans_agent_targets m ON m.target_id = t.id AND m.agent_id = p_agent
            WHERE t.id = p_target AND t.name = p_target_name AND t.kind = 'remote' AND t.disabled_at IS NULL
            AND t.base_url = p_base_url AND (t.operations = '{}' OR p_operation = ANY (t.operations)))
        OR coalesce((SELECT (y.id, y.version, y.approvals) IS DISTINCT FROM (p_policy, p_version, p_policy_approvals)
            FROM plans_policy y WHERE y.target_id = p_target ORDER BY y.version DESC LIMIT 1), true)
        OR coalesce((SELECT a.id IS DISTINCT FROM p_address FROM plans_targetaddress a WHERE a.target_id = p_target
            ORDER BY a.id DESC LIMIT 1), true)
        OR EXISTS (SELECT FROM plans_plan WHERE agent_id = p_agent AND replaces = p_plan_id AND target_id = p_target)
        OR EXISTS (SELECT FROM plans_wish
            WHERE agent_id = p_agent AND target_id = p_target AND plan_id = p_plan_id)
        OR EXISTS (SELECT FROM plans_observedwrite
            WHERE target_id = p_target AND at >= created AND action_targets && p_action_targets)
        OR (SELECT count(*) FROM plans_plan
            WHERE agent_id = p_agent AND state = 'pending' AND expires_at > moment) >= p_most_pending
    THEN
        RETURN NULL;
    END IF;
    IF p_intent IS NOT NULL THEN
        IF EXISTS (SELECT FROM plans_plan WHERE agent_id = p_agent AND intent = p_intent
            AND state IN ('pending', 'committing', 'unknown', 'committed'))
        THEN
            RETURN NULL;
        END IF;
    ELSIF task IS NOT NULL AND EXISTS (SELECT FROM plans_plan WHERE task_id = task AND operation = p_operation
        AND target_id = p_target AND intent IS NULL AND state = 'pending' AND inputs_hash = p_inputs_hash)
    THEN
        RETURN NULL;
    END IF;
    IF task IS NULL THEN
        INSERT INTO plans_task (agent_id, task_id, created_at) VALUES (p_agent, p_task_id, moment) RETURNING id INTO task;
    END IF;
    INSERT INTO plans_delivery (agent_id, webhook_id, body_hash, received_at)
        SELECT p_agent, p_webhook_id, p_body_hash, clock_timestamp() WHERE p_webhook_id IS NOT NULL;
    INSERT INTO plans_plan (agent_id, target_id, task_id, policy_id, address_id, plan_id, operation, intent,
        target_address, inputs, actions, action_targets, evidence, summary, input_fingerprint, inputs_hash, data_hash,
        has_confirmed_actions, has_been_known_to_target, approvals_required, token_hash, token_sealed, idempotency_key,
        created_at, received_at, expires_at, state, state_changed_at, check_count, mark_count, event_count)
    VALUES (p_agent, p_target, task, p_policy, p_address, p_plan_id, p_operation, p_intent,
        p_base_url, p_inputs, p_actions, p_action_targets, p_evidence, p_summary, p_input_fingerprint, p_inputs_hash,
        p_data_hash, false, false, p_approvals_required, p_token_hash, p_token_sealed, p_idempotency_key,
        created, moment, p_expires_at, 'pending', moment, 0, 0, 1)
    RETURNING id INTO plan;
    created_text := to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
    digest := encode(sha256(convert_to(p_shown_before || created_text || p_shown_after, 'UTF8')), 'hex');
    PERFORM audit_record(p_kind, p_actor_type, p_actor_id,
        p_payload_before || created_text || '","digest":"' || digest || p_payload_after,
        p_on_behalf_of, p_agent_name, p_target_name, p_plan_id, 1, p_operation, p_task_id, p_request_id);
    RETURN plan;
END $$;
"""

BACKWARD = "DROP FUNCTION plans_receive;"


class Migration(migrations.Migration):
    dependencies = [("plans", "0006_owners_and_seen")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
