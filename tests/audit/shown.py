"""Which test shows each kind of event: when it has run, the log must hold that kind (fixtures.database looks)."""

from collections.abc import Collection

from audit.kinds import Kind

SHOWN_BY: dict[Kind, str] = {
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
    Kind.WRITE_OBSERVED: "plans/test_webhook_door::a_write_ends_own_older_plans_and_marks_those_of_others",
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
"""By kind the test that walks the path which records it, as `file::name` below tests/, without `test_`."""


def claimed_by(node_id: str) -> set[str]:
    """The kinds that the test of this id claims to show, whatever its parameters."""
    file, _, name = node_id.partition("[")[0].removeprefix("tests/").partition("::")
    return {kind.value for kind, test in SHOWN_BY.items() if test == f"{file.removesuffix('.py')}::{name[5:]}"}


def check_shown(node_id: str, recorded: Collection[str]) -> None:
    """Fails where the test of this id claims to show a kind of event that is not in the log."""
    missing = claimed_by(node_id) - set(recorded)
    assert not missing, f"{node_id} is said to show {sorted(missing)}, and recorded {sorted(set(recorded))}."
