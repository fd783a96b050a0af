"""The table of the machines' doors: what each takes, what it answers, and how it refuses. CONTRACT 5."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from audit.api import EventAnswer, PageAnswer
from plans import errors, schema
from plans import openapi_parts as parts
from plans.errors import Refused
from plans.openapi_parts import Json
from plans.tools import ToolsAnswer

Refusals = tuple[type[Refused], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """One answer that is no refusal: when it is given, its shapes (none: a page), its headers beside those of all."""

    when: str
    shapes: tuple[type[msgspec.Struct], ...] = ()
    headers: tuple[str, ...] = ()
    media_type: str = "application/json"
    or_media_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One address and what it takes and gives. `asks`: the security scheme, empty where anybody may come."""

    id: str
    path: str
    tag: str
    title: str
    text: str
    answers: Mapping[int, Given]
    refusals: Refusals = ()
    methods: tuple[str, ...] = ("GET",)
    asks: str = "agentKey"
    parameters: Sequence[Json] = ()
    body: type[msgspec.Struct] | None = None
    is_body_required: bool = True


# --- what doors share -----------------------------------------------------------------------------------------------

ANY: Final[Refusals] = (errors.MethodNotAllowed, errors.Unavailable)
_AGENT: Final[Refusals] = (errors.Unauthenticated, errors.NotFound)
_BODY: Final[Refusals] = (errors.Malformed, errors.TooLarge, errors.NotJson, errors.Invalid)
_NAMED: Final[Refusals] = (errors.AmbiguousPlan, errors.Malformed)
_COMMIT: Final[Refusals] = (
    errors.KeyRequired, errors.KeyInvalid, errors.KeyReused, errors.NeverPlanned, errors.FingerprintRequired,
    errors.FingerprintMismatch, errors.ApprovalRequired, errors.PlanRejected, errors.PlanConflicted,
    errors.PlanExpired, errors.PlanAbandoned, errors.PlanRefused, errors.Fenced, errors.OutcomeUnknown,
    errors.UnknownTarget,
)  # fmt: skip
_AUDITOR: Final[Refusals] = (errors.Malformed, errors.Unauthenticated, errors.Forbidden)
_COMMIT_TEXT: Final = (
    "Takes the plan's token and fingerprint and nothing else: what is written is what was planned. A 4xx means that "
    "this request wrote nothing and never will; whatever is unfinished or uncertain is 2xx or 5xx. After a timeout or "
    "a 5xx, send the same again with the same key; never a new key, never a new plan while the outcome is unknown."
)
_COMMIT_ANSWERS: Final = {
    200: Given("Committed, now or before.", (parts.CommitAnswer,), ("Idempotent-Replayed",)),
    202: Given("Being committed by another request.", (parts.CommittingAnswer,), ("Location", "Retry-After")),
}
_BRIEFS: Final = {200: Given("Taken; may be repeated.", (parts.PlanBriefs,))}
FED: Final[dict[str, type[msgspec.Struct]]] = {
    "plan.created": schema.FedPlan,
    "plan.abandoned": schema.FedAbandonment,
    "task.ended": schema.FedTaskEnd,
    "write.observed": schema.FedWrite,
}
"""`data` of each type of a feed."""


# --- the table ------------------------------------------------------------------------------------------------------

DOORS: Final[tuple[Door, ...]] = (
    Door(
        id="feed",
        methods=("POST",),
        path="/webhooks/{agent}",
        tag="Feed",
        title="Tell the desk of a plan, an abandonment, a task's end or a write",
        text=(
            "Signed per Standard Webhooks 1.0. The same delivery again, or equal data, is answered with the plan's "
            "present state. 400, 413, 415 and 422 are final; 401, 404, 429 and 5xx are worth a retry."
        ),
        asks="webhookSignature",
        parameters=parts.SIGNED,
        body=schema.Envelope,
        answers={
            201: Given("The plan is recorded.", (parts.FeedAnswer,)),
            200: Given("Known already, or news that makes no plan.", (parts.FeedAnswer, parts.PlanBriefs)),
        },
        refusals=(
            *_BODY,
            errors.BadSignature,
            errors.AgentPaused,
            errors.UnknownTarget,
            errors.UnknownOperation,
            errors.PlanIdTaken,
            errors.IntentTaken,
            errors.TokenTaken,
            errors.NotReplaceable,
            errors.DeliveryReused,
            errors.TooMany,
        ),
    ),
    Door(
        id="dryRun",
        methods=("POST",),
        path="/api/v1/operations/{operation}/dry-run",
        tag="Hosted operations",
        title="Plan a hosted operation",
        text=(
            "Writes nothing. Answers exactly what would be written, and until when that holds. Each call makes a plan "
            "of its own. `intent` is required by operations that create something."
        ),
        body=schema.DryRun,
        answers={201: Given("Planned; the token is told this once.", (parts.DryRunAnswer,))},
        refusals=(
            *_AGENT,
            *_BODY,
            errors.AgentPaused,
            errors.UnknownOperation,
            errors.CannotPlan,
            errors.IntentTaken,
            errors.NotReplaceable,
            errors.Fenced,
            errors.TooMany,
        ),
    ),
    Door(
        id="commitOperation",
        methods=("POST",),
        path="/api/v1/operations/{operation}/commit",
        tag="Hosted operations",
        title="Commit a plan of a hosted operation",
        text=_COMMIT_TEXT,
        parameters=(parts.KEY,),
        body=schema.CommitBody,
        answers=_COMMIT_ANSWERS,
        refusals=(*_AGENT, *_BODY, *_COMMIT),
    ),
    Door(
        id="commitPlan",
        methods=("POST",),
        path="/api/v1/plans/{plan_id}/commit",
        tag="Plans",
        title="Commit an own plan for which nobody is asked, fed ones included",
        text=_COMMIT_TEXT,
        parameters=(parts.TARGET, parts.KEY),
        body=schema.CommitBody,
        answers=_COMMIT_ANSWERS,
        refusals=(*_AGENT, *_BODY, *_COMMIT, errors.AmbiguousPlan),
    ),
    Door(
        id="listPlans",
        path="/api/v1/plans",
        tag="Plans",
        title="Own plans, newest first",
        text="For an agent that was restarted.",
        parameters=parts.LIST,
        answers={200: Given("A page of plans.", (parts.PlanPage,))},
        refusals=(errors.Unauthenticated, errors.Malformed, errors.Invalid),
    ),
    Door(
        id="readPlan",
        path="/api/v1/plans/{plan_id}",
        tag="Plans",
        title="The state of an own plan",
        text="With `wait`, answers once the plan has ended, or when the seconds have passed.",
        parameters=(parts.TARGET, parts.WAIT),
        answers={200: Given("The plan as it stands.", (parts.PlanDocument,))},
        refusals=(*_AGENT, *_NAMED, errors.Invalid, errors.TooMany),
    ),
    Door(
        id="abandonPlan",
        methods=("POST",),
        path="/api/v1/plans/{plan_id}/abandon",
        tag="Plans",
        title="Give up a plan",
        text=(
            "A plan that is being committed stays as it is, and the wish is kept; so is one for a plan that is not "
            "known yet, where `target` says whose it will be."
        ),
        parameters=(parts.TARGET,),
        body=schema.AbandonBody,
        answers=_BRIEFS,
        refusals=(*_AGENT, *_BODY, errors.AmbiguousPlan, errors.UnknownTarget),
    ),
    Door(
        id="observeWrite",
        methods=("POST",),
        path="/api/v1/tasks/{task_id}/writes",
        tag="Tasks",
        title="Tell of a write that no plan tells of",
        text="The agent's own older pending plans on what it touched are abandoned (`inputs_changed`) and answered.",
        body=schema.WriteBody,
        answers=_BRIEFS,
        refusals=(*_AGENT, *_BODY, errors.UnknownTarget),
    ),
    Door(
        id="endTask",
        methods=("POST",),
        path="/api/v1/tasks/{task_id}/end",
        tag="Tasks",
        title="End a task",
        text="What it left pending is abandoned (`task_ended`). Takes no body, or an empty object.",
        body=schema.NothingBody,
        is_body_required=False,
        answers=_BRIEFS,
        refusals=(*_AGENT, *_BODY),
    ),
    Door(
        id="listTools",
        path="/api/v1/tools",
        tag="Descriptions",
        title="Tools for language models",
        text=(
            "A dry-run and a commit tool for every hosted operation that the agent may use. `model` is what a language "
            "model fills; whoever runs it adds the token and the task, and leaves out every null that `wire` does not "
            "take. `wire` is what is then sent."
        ),
        answers={200: Given("The tools.", (ToolsAnswer,))},
        refusals=(errors.Unauthenticated,),
    ),
    Door(
        id="readOpenapi",
        path="/api/v1/openapi.json",
        tag="Descriptions",
        title="This document",
        text="OpenAPI 3.1.",
        asks="",
        answers={200: Given("The document.")},
    ),
    Door(
        id="readDocs",
        path="/api/v1/docs",
        tag="Descriptions",
        title="This document as a page for people",
        text="Made from the document on the server; no scripts.",
        asks="",
        answers={200: Given("The page.", media_type="text/html")},
    ),
    Door(
        id="listEvents",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/events",
        tag="Audit",
        title="Events of the log",
        text="A first page is itself recorded. With `order=asc`, `next_cursor` is always given, and nothing is lost.",
        asks="personToken",
        parameters=parts.EVENTS,
        answers={200: Given("A page of events.", (PageAnswer,))},
        refusals=_AUDITOR,
    ),
    Door(
        id="readEvent",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/events/{event_id}",
        tag="Audit",
        title="One event",
        text="The reading is itself recorded.",
        asks="personToken",
        answers={200: Given("The event.", (EventAnswer,))},
        refusals=(*_AUDITOR, errors.NotFound),
    ),
    Door(
        id="proveEvent",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/events/{event_id}/proof",
        tag="Audit",
        title="The proof of one event",
        text="A `.tlog-proof` file under the newest checkpoint; 503 until the event has its place in the tree.",
        asks="personToken",
        answers={200: Given("The proof.", media_type="text/plain")},
        refusals=(*_AUDITOR, errors.NotFound),
    ),
    Door(
        id="readCheckpoint",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/checkpoint",
        tag="Audit",
        title="The newest signed checkpoint",
        text="A signed note with its cosignatures.",
        asks="personToken",
        answers={200: Given("The checkpoint.", media_type="text/plain")},
        refusals=_AUDITOR,
    ),
    Door(
        id="readKey",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/key",
        tag="Audit",
        title="The key that checkpoints are verified with",
        text="Pin it: a key that came with what it verifies proves little.",
        asks="personToken",
        answers={200: Given("The verifier key.", media_type="text/plain")},
        refusals=_AUDITOR,
    ),
    Door(
        id="readTile",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/tile/{path}",
        tag="Audit",
        title="A tile of the tree",
        text="Hashes at `<L>/<N>`, leaves at `entries/<N>`; a last tile has `.p/<W>`.",
        asks="personToken",
        answers={200: Given("The tile.", media_type="application/octet-stream")},
        refusals=(*_AUDITOR, errors.NotFound),
    ),
    Door(
        id="exportEvents",
        methods=("GET",),
        path="/api/v1/audit/export",
        tag="Audit",
        title="All events that match",
        text="`format` is jsonl, csv, ocsf or evidence; the filters are those of the list. Closed with the checkpoint.",
        asks="personToken",
        parameters=parts.EXPORT,
        answers={
            200: Given(
                "The export, in the form asked for.", (), (), "application/x-ndjson", ("text/csv", "application/zip")
            )
        },
        refusals=_AUDITOR,
    ),
    Door(
        id="verifyLog",
        methods=("GET", "HEAD"),
        path="/api/v1/audit/verify",
        tag="Audit",
        title="Verify the whole log",
        text="200 whatever is found: `whole` says whether it holds, and on damage the first bad index.",
        asks="personToken",
        answers={200: Given("The report.", media_type="application/json")},
        refusals=_AUDITOR,
    ),
)
