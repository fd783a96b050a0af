"""Every kind of event there is; nothing else is ever recorded."""

from enum import StrEnum


class Kind(StrEnum):
    """The kinds of events. A kind's text is what callers read and filter by, so it never changes its meaning."""

    FEED_REFUSED = "feed.refused"
    PLAN_RECEIVED = "plan.received"
    PLAN_VIEWED = "plan.viewed"
    PLAN_MARKED = "plan.marked"
    PLAN_APPROVED = "plan.approved"
    PLAN_REJECTED = "plan.rejected"
    PLAN_REFUSED = "plan.refused"
    PLAN_EXPIRED = "plan.expired"
    PLAN_ABANDONED = "plan.abandoned"
    PLAN_POLICY_APPLIED = "plan.policy_applied"
    PLAN_REPLAN_REQUESTED = "plan.replan_requested"
    DECISION_REFUSED = "decision.refused"
    COMMIT_STARTED = "commit.started"
    COMMIT_UNSENT = "commit.unsent"
    COMMIT_SUCCEEDED = "commit.succeeded"
    COMMIT_REPLAYED = "commit.replayed"
    COMMIT_CONFLICTED = "commit.conflicted"
    COMMIT_REFUSED = "commit.refused"
    COMMIT_UNKNOWN = "commit.unknown"
    COMMIT_RESOLVED = "commit.resolved"
    COMMIT_UNAPPROVED = "commit.unapproved"
    COMMIT_CONTRADICTED = "commit.contradicted"
    COMMIT_NEVER_PLANNED = "commit.never_planned"
    COMMIT_KEY_REUSED = "commit.key_reused"
    COMMIT_FINGERPRINT_MISMATCHED = "commit.fingerprint_mismatched"
    WRITE_OBSERVED = "write.observed"
    TASK_ENDED = "task.ended"
    WEBHOOK_REJECTED = "webhook.rejected"
    CALLBACK_DELIVERED = "callback.delivered"
    CALLBACK_FAILED = "callback.failed"
    LOGIN_SUCCEEDED = "login.succeeded"
    LOGIN_FAILED = "login.failed"
    AGENT_CHANGED = "agent.changed"
    TARGET_CHANGED = "target.changed"
    POLICY_CHANGED = "policy.changed"
    PERSON_CHANGED = "person.changed"
    AUDIT_READ = "audit.read"
    AUDIT_EXPORTED = "audit.exported"
    AUDIT_VERIFIED = "audit.verified"
    AUDIT_ERASED = "audit.erased"
    AUDIT_DISPOSED = "audit.disposed"
    AUDIT_HELD = "audit.held"
    LOG_CHANGED = "log.changed"


# Every plan that ended has exactly one of these.
TERMINAL_KINDS = frozenset(
    {
        Kind.COMMIT_SUCCEEDED,
        Kind.COMMIT_CONFLICTED,
        Kind.COMMIT_REFUSED,
        Kind.PLAN_REJECTED,
        Kind.PLAN_REFUSED,
        Kind.PLAN_ABANDONED,
    }
)

# What strangers can trigger at will: listed up to a number a minute and bucket, then counted (recording.record_capped).
CAPPED_KINDS = frozenset(
    {
        Kind.WEBHOOK_REJECTED,
        Kind.LOGIN_FAILED,
        Kind.COMMIT_NEVER_PLANNED,
        Kind.COMMIT_KEY_REUSED,
        Kind.COMMIT_FINGERPRINT_MISMATCHED,
        Kind.FEED_REFUSED,
    }
)

# The one bucket that all agent names share which nobody registered: a stranger must not make buckets at will.
UNKNOWN_AGENT_BUCKET = "unknown-agent"
