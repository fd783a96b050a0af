"""Every kind of event is shown by a test that walks the path which records it."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from audit.kinds import Kind
from plans import callbacks
from plans.models import Agent
from plans.review import record_view, reject_plan, request_replan
from plans.schema import shown_digest
from plans.states import State
from reviewer.installation import PROJECT
from tests.makers import events_of, kinds_recorded, make_agent, make_person, make_plan, make_target
from tests.plans.test_strangers import Inside

SHOWN_BY = {
    Kind.FEED_REFUSED:
        "plans/test_webhook_door::a_feed_that_holds_no_plan_is_told_with_its_places_and_none_of_its_values",
    Kind.PLAN_RECEIVED: "plans/test_intake::a_fed_plan_is_recorded_pending_with_its_event",
    Kind.PLAN_VIEWED: "audit/test_kinds::a_view_and_a_rejection_are_told",
    Kind.PLAN_MARKED: "plans/test_webhook_door::a_write_ends_own_older_plans_and_marks_those_of_others",
    Kind.PLAN_APPROVED: "plans/test_expiry::an_expired_plan_destroys_its_token_and_keeps_the_approvals_it_had",
    Kind.PLAN_REJECTED: "audit/test_kinds::a_view_and_a_rejection_are_told",
    Kind.PLAN_REFUSED: "plans/test_confirm::a_plan_that_its_target_tells_otherwise_is_refused_before_anybody_approves",
    Kind.PLAN_EXPIRED: "plans/test_expiry::the_actor_of_an_expiry_is_whoever_met_it",
    Kind.PLAN_ABANDONED: "plans/test_expiry::an_expiry_is_called_back",
    Kind.PLAN_POLICY_APPLIED:
        "reviewer/test_targets_page::chosen_plans_are_put_under_the_newest_policy_and_their_approvals_become_void",
    Kind.PLAN_REPLAN_REQUESTED: "audit/test_kinds::a_wish_for_a_new_plan_and_its_callback_are_told",
    Kind.DECISION_REFUSED: "plans/test_expiry::x24_at_its_expiry_and_after_it_a_plan_is_dead_for_everybody",
    Kind.COMMIT_STARTED: "plans/test_abandonment::a_wish_during_a_commit_applies_where_nothing_was_sent",
    Kind.COMMIT_UNSENT: "plans/test_abandonment::a_wish_during_a_commit_applies_where_nothing_was_sent",
    Kind.COMMIT_SUCCEEDED: "plans/test_overdue::an_answer_that_comes_after_the_claim_was_called_lost_still_counts",
    Kind.COMMIT_REPLAYED: "plans/test_api_operations::another_key_on_a_committed_plan_gets_the_stored_answer_too",
    Kind.COMMIT_CONFLICTED: "plans/test_commit_hosted::a_conflict_is_the_stored_answer_and_its_key_is_bound",
    Kind.COMMIT_REFUSED:
        "plans/test_commit_hosted::an_operation_that_says_no_while_it_applies_refuses_the_plan_and_writes_nothing",
    Kind.COMMIT_UNKNOWN: "plans/test_abandonment::an_unknown_plan_is_never_given_up_and_its_wish_ends_with_it",
    Kind.COMMIT_RESOLVED: "plans/test_overdue::an_answer_that_comes_after_the_claim_was_called_lost_still_counts",
    Kind.COMMIT_UNAPPROVED:
        "plans/test_confirm::a_pending_plan_that_its_target_calls_committed_was_committed_without_approval",
    Kind.COMMIT_CONTRADICTED: "plans/test_overdue::a_late_success_against_an_end_is_told_and_changes_nothing",
    Kind.COMMIT_NEVER_PLANNED:
        "plans/test_api_operations::a_token_that_names_no_plan_of_this_agent_is_404_whosever_it_is",
    Kind.COMMIT_KEY_REUSED:
        "plans/test_api_operations::i60_the_same_key_with_another_payload_is_422_and_says_what_it_is_bound_to",
    Kind.COMMIT_FINGERPRINT_MISMATCHED:
        "plans/test_api_operations::a_missing_fingerprint_is_428_and_another_ones_is_412_and_the_plan_stays",
    Kind.WRITE_OBSERVED: "plans/test_webhook_door::a_busy_plan_is_left_alone_and_the_wish_is_kept",
    Kind.TASK_ENDED: "plans/test_abandonment::a_task_that_ends_in_ten_places_at_once_ends_once",
    Kind.WEBHOOK_REJECTED:
        "plans/test_webhook_door::"
        "what_a_stranger_sends_is_listed_sixty_times_a_minute_under_no_name_and_then_counted",
    Kind.CALLBACK_DELIVERED: "audit/test_kinds::a_wish_for_a_new_plan_and_its_callback_are_told",
    Kind.CALLBACK_FAILED: "audit/test_kinds::a_wish_for_a_new_plan_and_its_callback_are_told",
    Kind.LOGIN_SUCCEEDED: "reviewer/test_signin::a_person_signs_in_and_it_is_an_event",
    Kind.LOGIN_FAILED: "reviewer/test_signin::a_wrong_password_and_an_unknown_address_get_the_same_answer",
    Kind.AGENT_CHANGED: "reviewer/test_agents_page::pause_and_resume_are_one_press_each_and_say_what_they_do",
    Kind.TARGET_CHANGED:
        "reviewer/test_targets_page::a_remote_target_is_registered_and_its_credentials_are_never_shown",
    Kind.POLICY_CHANGED:
        "reviewer/test_targets_page::a_new_version_is_an_event_and_leaves_waiting_plans_under_theirs",
    Kind.PERSON_CHANGED: "reviewer/test_access::changes_of_people_are_events_without_secrets",
    Kind.AUDIT_READ: "audit/test_api_tree::an_event_s_proof_leads_from_its_leaf_to_the_signed_root",
    Kind.AUDIT_EXPORTED: "reviewer/test_audit_exports::l128_a_small_export_is_the_answer_and_an_event",
    Kind.AUDIT_VERIFIED: "audit/test_verification::a_verification_is_an_event",
    Kind.AUDIT_ERASED: "audit/test_retention::an_erasure_leaves_every_proof_valid_and_is_an_event",
    Kind.AUDIT_DISPOSED: "audit/test_retention::disposal_takes_what_is_due_and_a_hold_beats_it",
    Kind.AUDIT_HELD: "audit/test_retention::a_hold_beats_an_erasure_and_its_release_ends_that",
    Kind.LOG_CHANGED: "audit/test_retention::a_minimum_keeps_a_payload_and_its_kind_s_rule_comes_first",
}  # fmt: skip


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_shown_by_a_test(kind: Kind) -> None:
    file, _, name = SHOWN_BY[kind].partition("::")
    text = Path(PROJECT / "tests" / f"{file}.py").read_text()
    shown = [
        ast.get_source_segment(text, node) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == f"test_{name}"
    ]
    assert len(shown) == 1, f"{kind} is shown by no test"
    assert f'"{kind.value}"' in shown[0] or re.search(rf"\bKind\.{kind.name}\b", shown[0]), f"{name} shows no {kind}"


def test_a_view_and_a_rejection_are_told(database: None) -> None:
    plan, person = make_plan(), make_person("reviewer")
    record_view(plan_pk=plan.pk, person=person)
    reject_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(plan), reason="Not this one")
    assert kinds_recorded()[-3:] == ["plan.received", "plan.viewed", "plan.rejected"]


def test_a_wish_for_a_new_plan_and_its_callback_are_told(database: None, settings: Any) -> None:
    settings.CALLBACK_ALLOW_PRIVATE = True
    target = make_target()
    made = make_agent(target, callback_url="https://agent.example/hook")
    plan = make_plan(State.CONFLICTED, made=made, target=target)
    hears_not, hears = Inside((500, "")), Inside()
    try:
        Agent.objects.filter(pk=made.agent.pk).update(callback_url=f"http://127.0.0.1:{hears_not.port}/hook")
        assert callbacks.deliver_due() == 1
        assert events_of(plan)[-1] == "callback.failed"
        Agent.objects.filter(pk=made.agent.pk).update(callback_url=f"http://127.0.0.1:{hears.port}/hook")
        request_replan(plan_pk=plan.pk, person=make_person("reviewer"))
        assert events_of(plan)[-1] == "plan.replan_requested"
        assert callbacks.deliver_due() == 1
        assert events_of(plan)[-1] == "callback.delivered"
    finally:
        hears_not.stop()
        hears.stop()
