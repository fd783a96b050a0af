"""The shapes of what agents send, the rules that shapes cannot say, and the digest of what a person is shown."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from plans import identifiers, strict_json
from plans.instants import format_instant_exact
from plans.states import AGENT_REASONS

MAX_ACTIONS: Final = 1_000
MAX_EVIDENCE: Final = 50
MAX_SUMMARY: Final = 2_000
MAX_ACTION_TARGET: Final = 512
MAX_FINGERPRINT: Final = 512
MAX_TOKEN_BYTES: Final = 4_096
MAX_WRITTEN_TARGETS: Final = 1_000
OP: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
WITHOUT_INTENT: Final = frozenset({"update", "delete"})
"""Kinds of change that may be repeated without doubling; every other one requires an intent."""

Errors = list[tuple[str, str]]
T = TypeVar("T")

# What follows publishes rules in the OpenAPI document and has msgspec check none of them: the functions below do, with
# a sentence for every place at once.
Identifier = Annotated[str, Meta(extra_json_schema={"pattern": identifiers.IDENTIFIER_PATTERN, "maxLength": 128})]
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_ACTION_TARGET, "pattern": r"\S"})]
Token = Annotated[
    str,
    Meta(
        description=f"The plan's secret: 1 to {MAX_TOKEN_BYTES} bytes of UTF-8, never parsed.",
        extra_json_schema={"minLength": 1, "maxLength": MAX_TOKEN_BYTES},
    ),
]
Fingerprint = Annotated[
    str,
    Meta(
        description="The target's own hash over inputs and state: presented verbatim, computed by nobody else.",
        extra_json_schema={"minLength": 1, "maxLength": MAX_FINGERPRINT, "pattern": r"\S"},
    ),
]
Summary = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_SUMMARY})]
Inputs = Annotated[Raw, Meta(description="Kept and shown as received.", extra_json_schema={"type": "object"})]
EvidenceList = Annotated[
    Raw,
    Meta(
        extra_json_schema={
            "type": "array",
            "maxItems": MAX_EVIDENCE,
            "items": {"$ref": "#/components/schemas/Evidence"},
        }
    ),
]
Actions = Annotated[
    Raw,
    Meta(
        description="What would be written. No target and field stands here twice. Kept and shown as received.",
        extra_json_schema={
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_ACTIONS,
            "items": {"$ref": "#/components/schemas/FedAction"},
        },
    ),
]
Reason = Annotated[str, Meta(extra_json_schema={"enum": sorted(AGENT_REASONS)})]
WrittenTargets = Annotated[list[Name], Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_WRITTEN_TARGETS})]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A closed object: an unknown member is an error."""


class FedAction(Shape, frozen=True, rename={"from_": "from"}):
    """One action as an agent fed it; values are the JSON text received."""

    op: Annotated[
        str,
        Meta(
            description="`update`, `delete` or another short word, which then requires an `intent`.",
            extra_json_schema={"pattern": rf"^{OP.pattern}$(?!\n)"},
        ),
    ]
    target: Name
    field: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_ACTION_TARGET})] | UnsetType = UNSET
    from_: Raw | UnsetType = UNSET
    to: Annotated[Raw, Meta(description="Required, except where `op` is `delete`.")] | UnsetType = UNSET
    reversible: bool | UnsetType = UNSET


class Evidence(Shape, frozen=True):
    """What an agent looked at before it planned. Shown as text, never fetched."""

    tool: str
    note: str | UnsetType = UNSET
    url: Annotated[str, Meta(extra_json_schema={"pattern": r"^https://[^\s/]+"})] | UnsetType = UNSET


class PlanBody(Shape, frozen=True):
    """The answer of the target's dry run, inside a feed."""

    plan_id: Identifier
    plan_token: Token
    expires_at: Instant
    input_fingerprint: Fingerprint
    actions: Actions

    def __repr__(self) -> str:
        return f"PlanBody({self.plan_id!r})"


class FedPlan(Shape, frozen=True):
    """`data` of a `plan.created`."""

    task_id: Identifier
    target: Identifier
    operation: Identifier
    inputs: Inputs
    plan: PlanBody
    summary: Summary | UnsetType = UNSET
    evidence: EvidenceList | UnsetType = UNSET
    intent: Identifier | UnsetType = UNSET
    replaces: Identifier | UnsetType = UNSET
    created_at: Instant | UnsetType = UNSET


class FedAbandonment(Shape, frozen=True):
    """`data` of a `plan.abandoned`."""

    plan_id: Identifier
    target: Identifier
    reason: Reason


class FedTaskEnd(Shape, frozen=True):
    """`data` of a `task.ended`."""

    task_id: Identifier


class FedWrite(Shape, frozen=True):
    """`data` of a `write.observed`."""

    task_id: Identifier
    target: Identifier
    targets: WrittenTargets
    at: Instant | UnsetType = UNSET


class Envelope(Shape, frozen=True):
    """A Standard Webhooks body."""

    type: str
    timestamp: Instant
    data: Raw

    def __repr__(self) -> str:
        return f"Envelope({self.type!r})"


class DryRun(Shape, frozen=True):
    """The body of a hosted dry run."""

    task_id: Identifier
    inputs: Inputs
    intent: Identifier | UnsetType = UNSET
    replaces: Identifier | UnsetType = UNSET
    summary: Summary | UnsetType = UNSET
    evidence: EvidenceList | UnsetType = UNSET


class CommitBody(Shape, frozen=True):
    """The body of a commit: token and fingerprint, and nothing else but the id that the token must be of."""

    plan_token: Token | UnsetType = UNSET
    input_fingerprint: Fingerprint | UnsetType = UNSET
    plan_id: Identifier | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"CommitBody({self.plan_id!r})"


COMMIT_REQUIRES: Final = ("plan_token", "input_fingerprint")
"""Members without which no commit is made: their absence has refusals of its own (422, 428)."""


class NothingBody(Shape, frozen=True):
    """The body of a request that has nothing to say."""


class AbandonBody(Shape, frozen=True):
    """The body of an abandonment through the API."""

    reason: Reason


class WriteBody(Shape, frozen=True):
    """The body of an observed write through the API."""

    target: Identifier
    targets: WrittenTargets
    at: Instant | UnsetType = UNSET


def text(raw: Raw) -> str:
    """The JSON text of a raw value, exactly as received."""
    return bytes(raw).decode()


def check_identifiers(**values: str | UnsetType | None) -> Errors:
    """One error per value that is no identifier; keys are pointers with `__` for `/`."""
    return [
        ("/" + name.replace("__", "/"), "must be 1 to 128 of letters, digits, _ . : - and start with a letter or digit")
        for name, value in values.items()
        if isinstance(value, str) and not identifiers.is_identifier(value)
    ]


def check_prose(summary: str | UnsetType, evidence: Raw | UnsetType, at: str) -> Errors:
    """What a summary and pieces of evidence must keep to; `at` is the pointer of the object they stand in.

    `evidence` is a part of a body that `strict_json` has taken.
    """
    errors: Errors = []
    if isinstance(summary, str) and len(summary) > MAX_SUMMARY:
        errors.append((f"{at}/summary", f"must be at most {MAX_SUMMARY} characters"))
    if isinstance(evidence, Raw):
        pieces, found = _decode_list(evidence, list[Evidence], f"{at}/evidence")
        errors += found
        if len(pieces) > MAX_EVIDENCE:
            errors.append((f"{at}/evidence", f"must hold at most {MAX_EVIDENCE} pieces"))
        errors += [
            (f"{at}/evidence/{place}/url", "must be an https address")
            for place, piece in enumerate(pieces)
            if isinstance(piece.url, str) and not re.match(r"https://[^\s/]+", piece.url)
        ]
    return errors


def check_actions(raw: Raw, at: str, *, has_intent: bool) -> tuple[list[FedAction], Errors]:
    """The actions of a feed, and every rule of section 4 and 5.1 that they break.

    `raw` is a part of a body that `strict_json` has taken.
    """
    actions, errors = _decode_list(raw, list[FedAction], at)
    if errors:
        return [], errors
    if not 1 <= len(actions) <= MAX_ACTIONS:
        return [], [(at, f"must hold 1 to {MAX_ACTIONS} actions")]
    seen: set[tuple[str, str | None]] = set()
    for place, action in enumerate(actions):
        errors += [(f"{at}/{place}/{member}", sentence) for member, sentence in _action_errors(action)]
        if action.op not in WITHOUT_INTENT and not has_intent:
            errors.append(("/intent", f"is required where an action is neither update nor delete (action {place})"))
        name = (action.target, action.field if isinstance(action.field, str) else None)
        if name in seen:
            errors.append((f"{at}/{place}/target", "this target and field stand in an earlier action already"))
        seen.add(name)
    return actions, errors


def _action_errors(action: FedAction) -> Iterator[tuple[str, str]]:
    if not OP.fullmatch(action.op):
        yield "op", "must be a short lower-case word: update, delete or another"
    if not action.target.strip() or len(action.target) > MAX_ACTION_TARGET:
        yield "target", f"must be 1 to {MAX_ACTION_TARGET} characters and not blank"
    if isinstance(action.field, str) and not 1 <= len(action.field) <= MAX_ACTION_TARGET:
        yield "field", f"must be 1 to {MAX_ACTION_TARGET} characters"
    if action.to is UNSET and action.op != "delete":
        yield "to", "is required, except where op is delete"


def _decode_list(raw: Raw, shape: type[list[T]], at: str) -> tuple[list[T], Errors]:
    try:
        return strict_json.decode_part(bytes(raw), shape), []
    except strict_json.InvalidBody as error:
        return [], [(at + pointer, detail) for pointer, detail in error.errors]


def check_token(token: str) -> str | None:
    """Why this is no plan token, or None. The sentence never holds the token."""
    if not 1 <= len(token.encode()) <= MAX_TOKEN_BYTES:
        return f"must be 1 to {MAX_TOKEN_BYTES} bytes"
    return None


def holds_text(tree: Any, needle: str, *, but: tuple[str, ...]) -> bool:
    """True where `needle` stands in any string of `tree`, member names included, other than at the path `but`."""
    todo: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while todo:
        value, path = todo.pop()
        if isinstance(value, dict):
            if any(needle in name for name in value):
                return True
            todo += [(member, (*path, name)) for name, member in value.items()]
        elif isinstance(value, list):
            todo += [(member, (*path, "")) for member in value]
        elif path != but and needle in str(value):
            return True
    return False


class Shown(NamedTuple):
    """All that a reviewer is shown of a plan and that a decision is bound to, in the order in which it is hashed.

    What was received, the policy it stands under, and how often others wrote to its targets. Not the approvals given
    so far: a second reviewer decides on the same thing as the first.
    """

    agent: str
    target: str
    target_address: str
    plan_id: str
    operation: str
    task_id: str
    intent: str | None
    replaces: str | None
    inputs: str
    actions: str
    evidence: str
    summary: str
    input_fingerprint: str
    created_at: str
    expires_at: str
    policy_version: int
    approvals_required: int
    mark_count: int


def digested(shown: Shown) -> str:
    """The text that is hashed, in ASCII."""
    return json.dumps(["plandesk.digest.v1", *shown], ensure_ascii=True, separators=(",", ":"))


def digest_of(shown: Shown) -> str:
    """SHA-256 (64 hex) of what is shown: what a decision names."""
    return hashlib.sha256(digested(shown).encode()).hexdigest()


as_shown = format_instant_exact


def shown_digest(plan: Any) -> str:
    """The digest of a plan as it stands, read with its agent, target, task and policy."""
    return digest_of(Shown(
        plan.agent.name, plan.target.name, plan.target_address, plan.plan_id, plan.operation, plan.task.task_id,
        plan.intent, plan.replaces, plan.inputs, plan.actions, plan.evidence, plan.summary, plan.input_fingerprint,
        as_shown(plan.created_at), as_shown(plan.expires_at), plan.policy.version,
        plan.approvals_required, plan.mark_count,
    ))  # fmt: skip


def action_targets(actions: Sequence[FedAction] | Sequence[Any]) -> list[str]:
    """The distinct targets that actions touch, sorted: the order in which fences are taken."""
    return sorted({action.target for action in actions})
