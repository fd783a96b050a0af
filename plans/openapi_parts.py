"""What the OpenAPI document is put together from: shapes of answers, members of problems, parameters, limits."""

from typing import Annotated, Any, Final, Literal

import msgspec
from django.conf import settings
from msgspec import UNSET, Meta, Raw, UnsetType

from audit import filters, presets
from audit.kinds import Kind
from plans import api, callbacks, identifiers, intake, schema, signatures, strict_json, waiting
from plans.schema import Identifier, Instant
from plans.states import AbandonReason, State

Json = dict[str, Any]

# --- answers --------------------------------------------------------------------------------------------------------

StateName = Annotated[str, Meta(extra_json_schema={"enum": [state.value for state in State]})]
AbandonReasonName = Annotated[str, Meta(extra_json_schema={"enum": [reason.value for reason in AbandonReason]})]
ReviewUrl = Annotated[str, Meta(description="The plan's page for people.", extra_json_schema={"format": "uri"})]


class Answer(msgspec.Struct, frozen=True):
    """Shapes below are of what the doors answer. More members may come: callers overlook those they don't know."""


class PlanBrief(Answer, frozen=True):
    """What a list tells of a plan."""

    plan_id: Identifier
    target: Identifier
    state: StateName


class PlanBriefs(Answer, frozen=True):
    """The agent's own plans that the request was about, as they are now."""

    plans: list[PlanBrief]


class FeedAnswer(PlanBrief, frozen=True):
    """A fed plan as it stands."""

    review_url: ReviewUrl
    idempotency_key: Annotated[str, Meta(description="The one key under which the plan commits at a remote target.")]


class DryRunAnswer(PlanBrief, frozen=True):
    """A hosted plan with its token, which is told this once."""

    plan_token: schema.Token
    expires_at: Instant
    input_fingerprint: schema.Fingerprint
    actions: schema.Actions
    created_at: Instant
    approval: Literal["required", "not_required"]
    review_url: ReviewUrl


class CommitAnswer(Answer, frozen=True):
    """The stored answer of a commit: the same bytes whenever it is asked for."""

    plan_id: Identifier
    state: Literal["committed"]
    committed_at: Instant
    result: Annotated[Raw, Meta(description="As the target wrote it; null where none is known.")]


class CommittingAnswer(Answer, frozen=True):
    """Another attempt of this plan is under way: ask for its state."""

    plan_id: Identifier
    state: Literal["committing"]


class Changed(Answer, frozen=True):
    """A field that moved since the plan was made. A value that the target did not tell is left out."""

    target: str
    field: str
    planned: Raw | UnsetType = UNSET
    current: Raw | UnsetType = UNSET


class ConflictFacts(Answer, frozen=True):
    """Why a plan conflicted. `detail` stands where the target did not say what changed."""

    changed: list[Changed]
    plan_created_at: Instant
    detail: str | UnsetType = UNSET


class AbandonmentFacts(Answer, frozen=True):
    """Why and when a plan was abandoned."""

    reason: AbandonReasonName
    at: Instant


class SaidNo(Answer, frozen=True):
    """A reviewer's or a target's no: its reason and when."""

    reason: str
    at: Instant


class PlanDocument(PlanBrief, frozen=True):
    """One plan as it stands. The members that tell of an end are there once the plan has ended so."""

    operation: Identifier
    task_id: Identifier
    intent: Identifier | None
    created_at: Instant
    expires_at: Instant
    input_fingerprint: schema.Fingerprint
    idempotency_key: str
    review_url: ReviewUrl
    result: Annotated[Raw, Meta(description="Of a committed plan, as the target wrote it.")] | UnsetType = UNSET
    committed_at: Instant | UnsetType = UNSET
    conflict: ConflictFacts | UnsetType = UNSET
    abandonment: AbandonmentFacts | UnsetType = UNSET
    rejection: SaidNo | UnsetType = UNSET
    refusal: SaidNo | UnsetType = UNSET
    replaces: Identifier | UnsetType = UNSET
    replaced_by: Identifier | UnsetType = UNSET


class PlanPage(Answer, frozen=True):
    """Own plans, newest first. `next_cursor` is null on the last page."""

    plans: list[PlanDocument]
    next_cursor: str | None


class CallbackBody(Answer, frozen=True):
    """News of a plan: its document of the moment the news is of."""

    type: Literal[
        "plan.approved", "plan.unknown", "plan.replan_requested", "plan.committed", "plan.conflicted", "plan.rejected",
        "plan.refused", "plan.abandoned",
    ]  # fmt: skip
    timestamp: Instant
    data: PlanDocument


# --- problems -------------------------------------------------------------------------------------------------------

SLUG_PATTERN: Final = r"/problems/{slug}$"
PLAN: Final[Json] = {"plan_id": {"type": "string"}}
ENDED: Final[Json] = {**PLAN, "plan_state": {"enum": [state.value for state in State]}}
SECONDS: Final[Json] = {"retry_after_seconds": {"type": "integer", "minimum": 0}}
_instant: Final[Json] = {"type": "string", "format": "date-time"}

REQUIRED_MEMBERS: Final[dict[str, Json]] = {
    "conflict": {
        **ENDED,
        "plan_created_at": _instant,
        "changed": {"type": "array", "items": {"$ref": "#/components/schemas/Changed"}},
    },
    "expired": {**ENDED, "expired_at": _instant},
    "abandoned": {**ENDED, "reason": {"enum": [one.value for one in AbandonReason if one != AbandonReason.EXPIRED]}},
    "refused": ENDED,
    "rejected": {**ENDED, "reason": {"type": "string"}},
    "approval-required": {**PLAN, "review_url": {"type": "string", "format": "uri"}},
    "outcome-unknown": {**ENDED, **SECONDS},
    "key-reused": {"bound_plan_id": {"type": "string"}},
    "fingerprint-required": PLAN,
    "fingerprint-mismatch": PLAN,
    "ambiguous-plan": PLAN,
    "too-many": SECONDS,
    "too-large": {"max_bytes": {"const": strict_json.MAX_BYTES}},
}
"""Members that a problem of this slug always has beside those of every problem."""

OPTIONAL_MEMBERS: Final[dict[str, Json]] = {
    "fenced": {"fenced_by": {"type": "string", "description": "The plan in the way, told to its own agent alone."}},
    "malformed": {"pointer": {"type": "string", "description": "Where in the body, as a JSON pointer."}},
    "plan-id-taken": PLAN,
    "intent-taken": PLAN,
    "not-replaceable": PLAN,
    "unavailable": {**ENDED, **SECONDS},
}
"""Members that a problem of this slug may have."""

NEXT: Final = (
    "replan", "wait", "poll", "retry_same_key", "read_plan", "fix_request", "check_status", "ask", "stop",
)  # fmt: skip

PROBLEM: Final[Json] = {
    "type": "object",
    "title": "Problem",
    "description": (
        "A refusal (RFC 9457). The last segment of `type` is its slug. `plan_write` says whether the plan was written, "
        "and is there only where that is known under lock: absent means `possible`. `next` says what to do."
    ),
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "plan_write": {"enum": ["none", "done", "possible"]},
        "next": {"enum": list(NEXT)},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                "required": ["pointer", "detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "instance"],
}

# --- parameters and headers -----------------------------------------------------------------------------------------

_identifier: Final[Json] = {"type": "string", "pattern": identifiers.IDENTIFIER_PATTERN}


def parameter(name: str, where: str, text: str, shape: Json | None = None, *, is_required: bool = False) -> Json:
    """A parameter object; an identifier unless told otherwise."""
    described = {"name": name, "in": where, "description": text, "schema": shape or _identifier}
    return described | ({"required": True} if is_required or where == "path" else {})


PATH: Final = {
    "agent": parameter("agent", "path", "The name under which the agent is registered."),
    "operation": parameter("operation", "path", "The name of a hosted operation."),
    "plan_id": parameter("plan_id", "path", "The plan's id, as one encoded path segment."),
    "task_id": parameter("task_id", "path", "The agent's task."),
    "event_id": parameter("event_id", "path", "The event's id.", {"type": "string", "format": "uuid"}),
    "path": parameter("path", "path", "Level and place of a tile, c2sp.org/tlog-tiles.", {"type": "string"}),
}
TARGET: Final = parameter("target", "query", "Needed only where plans of this id are at several targets.")
WAIT: Final = parameter(
    "wait",
    "query",
    "Hold the answer until the plan ends, at most so many seconds.",
    {"type": "integer", "minimum": 0, "maximum": api.MAX_WAIT, "default": 0},
)
CURSOR: Final = parameter("cursor", "query", "`next_cursor` of the page before.", {"type": "string"})
LIST: Final = (
    parameter("task_id", "query", "Plans of this task."),
    parameter("state", "query", "Plans in this state.", {"enum": [state.value for state in State]}),
    parameter("intent", "query", "Plans of this intent."),
    CURSOR,
)
KEY: Final = parameter(
    "Idempotency-Key",
    "header",
    "The caller's key, bare or in quotes: made once per plan and sent again with every repetition.",
    {"type": "string", "pattern": rf'^(?:{identifiers.IDEMPOTENCY_KEY}|"{identifiers.IDEMPOTENCY_KEY}")$(?!\n)'},
    is_required=True,
)
SIGNED: Final = (
    parameter(
        "webhook-id",
        "header",
        "The delivery's id: the same for every repetition of it.",
        {"type": "string", "pattern": rf"^{identifiers.WEBHOOK_ID}$(?!\n)"},
        is_required=True,
    ),
    parameter(
        "webhook-timestamp",
        "header",
        f"Seconds since 1970, at most {signatures.TOLERANCE} away from now.",
        {"type": "integer"},
        is_required=True,
    ),
    parameter(
        "webhook-signature",
        "header",
        "One or more signatures `v1,<base64>`, parted by spaces: HMAC-SHA256 over `id.timestamp.body`.",
        {"type": "string", "maxLength": signatures.MAX_HEADER},
        is_required=True,
    ),
)
_filter: Final[Json] = {"type": "string", "minLength": 1, "maxLength": filters.MAX_CHARACTERS}
EVENTS: Final = (
    parameter(
        "kind", "query", "Any of these kinds; may be repeated.",
        {"type": "array", "items": {"enum": [kind.value for kind in Kind]}},
    ),
    parameter("agent", "query", "Of this agent.", _filter),
    parameter("target", "query", "At this target.", _filter),
    parameter("plan_id", "query", "Of this plan.", _filter),
    parameter("operation", "query", "Of this operation.", _filter),
    parameter("task_id", "query", "Of this task.", _filter),
    parameter("actor", "query", "By this actor: its id, or `type:id`.", _filter),
    parameter("from", "query", "At or after this instant.", _instant),
    parameter("to", "query", "Before this instant.", _instant),
    parameter("q", "query", f"At most {filters.MAX_WORDS} words. Each is the beginning of a word of the event,"
              f" in either case; a number, or one of fewer than {filters.STEM} letters, is a whole one.", _filter),
    parameter("preset", "query", "Only the answers to this question.", {"enum": [*presets.PRESETS]}),
    parameter(
        "order", "query", "Newest first, or `asc` for reading on where the last reading ended.",
        {"enum": ["desc", "asc"], "default": "desc"},
    ),
    CURSOR,
    parameter(
        "limit", "query", "Events on a page.",
        {"type": "integer", "minimum": 1, "maximum": filters.MAX_LIMIT, "default": filters.DEFAULT_LIMIT},
    ),
)  # fmt: skip

EXPORT: Final = (
    parameter(
        "format", "query", "The form of the export.",
        {"enum": ["jsonl", "csv", "ocsf", "evidence"]}, is_required=True,
    ),
    parameter(
        "from_index", "query", "The place in the log from which on to export.",
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1, "default": 0},
    ),
    *(each for each in EVENTS if each["name"] not in ("order", "cursor", "limit")),
)  # fmt: skip

HEADERS: Final[dict[str, Json]] = {
    "X-Request-Id": {"description": "The name of this request in the log.", "schema": {"type": "string"}},
    "Cache-Control": {"description": "Nothing is to be stored.", "schema": {"type": "string"}},
    "Idempotent-Replayed": {"description": "This answer was given before.", "schema": {"const": "true"}},
    "Location": {"description": "Where the plan's state is.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}},
    "Allow": {"description": "The methods that this address takes.", "schema": {"type": "string"}},
    "WWW-Authenticate": {"description": "How to say who is asking.", "schema": {"type": "string"}},
}

SECURITY: Final[dict[str, Json]] = {
    "agentKey": {"type": "http", "scheme": "bearer", "description": "The agent's API key."},
    "personToken": {"type": "http", "scheme": "bearer", "description": "The token of a person who is an auditor."},
    "webhookSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "Standard Webhooks 1.0 with a secret of the agent; two are live during a rotation.",
    },
}


def limits() -> Json:
    """Every limit that a caller can meet: its number and what it is of."""
    rows: list[tuple[str, Any, str]] = [
        ("body_bytes", strict_json.MAX_BYTES, "Bytes of a request body."),
        ("body_levels", strict_json.MAX_DEPTH, "Levels of arrays and objects in a body; `[]` is one."),
        ("identifier", identifiers.IDENTIFIER, "Form of plan_id, task_id, target, operation and intent."),
        ("idempotency_key", identifiers.IDEMPOTENCY_KEY, "Form of a key, bare or in quotes."),
        ("webhook_id", identifiers.WEBHOOK_ID, "Form of a delivery's id."),
        ("webhook_tolerance_seconds", signatures.TOLERANCE, "Seconds that webhook-timestamp may be off, either way."),
        ("plan_token_bytes", schema.MAX_TOKEN_BYTES, "Bytes of a plan token, at least 1."),
        ("input_fingerprint_characters", schema.MAX_FINGERPRINT, "Characters of a fingerprint, not all blank."),
        ("plan_lifetime_seconds", _seconds(settings.PLAN_LIFETIME), "Life of a hosted plan."),
        ("plan_max_lifetime_seconds", _seconds(settings.PLAN_MAX_LIFETIME), "How far ahead expires_at may be."),
        ("actions", schema.MAX_ACTIONS, "Actions of a plan, at least 1; no target and field twice."),
        ("action_target_characters", schema.MAX_ACTION_TARGET, "Characters of an action's target and field."),
        ("action_op", schema.OP.pattern, "Form of an action's op."),
        ("summary_characters", schema.MAX_SUMMARY, "Characters of a summary."),
        ("evidence", schema.MAX_EVIDENCE, "Pieces of evidence; their URLs are https, and never fetched."),
        ("written_targets", schema.MAX_WRITTEN_TARGETS, "Records that one observed write may name."),
        ("hosted_integer", 2**53 - 1, "Size of an integer, either way, in a hosted operation's inputs."),
        ("pending_plans", intake.MAX_PENDING, "Pending plans of an agent; beyond it 429."),
        ("wait_seconds", api.MAX_WAIT, "Seconds for which the state of a plan can be waited for."),
        ("waits", waiting.AT_ONCE, "Waiting requests of an agent at once; beyond it 429."),
        ("commit_wait_seconds", _seconds(settings.LOCK_WAIT), "Seconds that a commit waits for another one's end."),
        ("wishes_kept_days", settings.WISHES_KEPT_FOR.days, "Days that an abandonment waits for its plan to arrive."),
        ("audit_page", filters.MAX_LIMIT, "Events on a page of the log."),
        ("audit_filter_characters", filters.MAX_CHARACTERS, "Characters of a filter."),
        ("audit_words", filters.MAX_WORDS, "Words of a search."),
        ("callback_days", callbacks.GIVE_UP_AFTER.days, "Days for which a callback is tried again."),
    ]
    return {name: {"limit": limit, "description": text} for name, limit, text in rows}


def _seconds(duration: Any) -> int:
    return int(duration.total_seconds())
