"""Every refusal of the desk: its slug, its HTTP status, what it says of the plan, and what to do next."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

Next = Literal["replan", "wait", "poll", "retry_same_key", "read_plan", "fix_request", "check_status", "ask", "stop"]
PlanWrite = Literal["none", "done", "possible"]


class Sentence(str):
    """A sentence for people, in English, that knows its template and values: a page can say it in another language.

    The templates are found by name for the files of translations (`manage.py makemessages`).
    """

    __slots__ = ("template", "values")
    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> "Sentence":
        made = super().__new__(cls, template % values if values else template)
        made.template, made.values = template, values
        return made

    @classmethod
    def of(cls, template: str, values: dict[str, Any]) -> "Sentence":
        """One whose template or values somebody else may have spelled: never raises, whatever they hold."""
        made = super().__new__(cls, fill(template, values))
        made.template, made.values = template, values
        return made


_PLACE: Final = re.compile(r"%(?:%|\((\w+)\)([sdr]))")


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values put in. Unlike `%`, it never raises and knows no width: a place that it cannot fill
    stays as it is spelled."""

    def one(place: re.Match[str]) -> str:
        name = place[1]
        if name is None:
            return "%"
        if name not in values:
            return place[0]
        return repr(values[name]) if place[2] == "r" else str(values[name])

    return _PLACE.sub(one, template) if values else template


_KEPT: Final = '{"sentence": '


def keep(sentence: Sentence) -> str:
    """A sentence for a column of text that nothing else writes, from which `kept` says it in any language later."""
    if not sentence.values and not sentence.startswith(_KEPT):
        return str(sentence)
    plain = {name: value if isinstance(value, int) else str(value) for name, value in sentence.values.items()}
    return _KEPT + json.dumps(sentence.template) + ', "values": ' + json.dumps(plain) + "}"


def kept(text: str) -> str:
    """What `keep` wrote, as a sentence again; any other text is given back as it is.

    Only for a column that `keep` writes: what somebody else says must not be taken for a sentence of the desk.
    """
    if not text.startswith(_KEPT):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    template, values = found["sentence"], found.get("values")
    if not isinstance(template, str) or not isinstance(values, dict):
        return text
    if not all(isinstance(value, str | int) for value in values.values()):
        return text
    return Sentence.of(template, values)


class Refused(Exception):
    """A request the desk did not carry out. One subclass per slug of the contract.

    `detail` is a sentence for whoever reads the answer. `members` go into the problem document beside the
    standard ones; they never hold a token, a secret, or anything of another agent.
    """

    slug: ClassVar[str]
    status: ClassVar[int]
    title: ClassVar[str]
    next: ClassVar[Next | None] = None
    plan_write: PlanWrite | None = None  # None: not known, which callers must take for `possible`

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.sentence = detail  # what a page can say in another language
        self.detail = str(detail)
        self.members: Mapping[str, Any] = members
        self.headers: dict[str, str] = {}


class Unauthenticated(Refused):
    slug, status, title = "unauthenticated", 401, "Who is asking?"
    next = "fix_request"

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail, **members)
        self.headers["WWW-Authenticate"] = 'Bearer realm="plandesk"'  # RFC 6750 asks for a parameter


class BadSignature(Refused):
    """A delivery that no live secret of the agent signed just now. Its challenge names how the feed is signed."""

    slug, status, title = "bad-signature", 401, "The signature does not fit"
    next = "fix_request"

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail, **members)
        self.headers["WWW-Authenticate"] = 'Standard-Webhooks realm="plandesk"'


class Forbidden(Refused):
    slug, status, title = "forbidden", 403, "Not allowed"
    next = "stop"


class AgentPaused(Refused):
    slug, status, title = "agent-paused", 403, "This agent is paused"
    next = "ask"


class NotFound(Refused):
    slug, status, title = "not-found", 404, "There is nothing here"
    next = "stop"


class UnknownTarget(Refused):
    slug, status, title = "unknown-target", 404, "This target is not registered for this agent"
    next = "ask"


class UnknownOperation(Refused):
    slug, status, title = "unknown-operation", 404, "This operation is not registered"
    next = "fix_request"


class MethodNotAllowed(Refused):
    slug, status, title = "method-not-allowed", 405, "This method is not allowed here"
    next = "fix_request"


class TooLarge(Refused):
    slug, status, title = "too-large", 413, "The body is too large"
    next = "fix_request"


class NotJson(Refused):
    slug, status, title = "not-json", 415, "The body must be application/json"
    next = "fix_request"


class Malformed(Refused):
    slug, status, title = "malformed", 400, "The request cannot be read"
    next = "fix_request"


class AmbiguousPlan(Refused):
    slug, status, title = "ambiguous-plan", 400, "Several targets know a plan of this id"
    next = "fix_request"


class Invalid(Refused):
    """A well-formed request with a wrong value; `errors` names each place by its JSON pointer."""

    slug, status, title = "invalid", 422, "A value is not acceptable"
    next = "fix_request"

    def __init__(self, detail: str, errors: Sequence[tuple[str, str]] = (), **members: Any) -> None:
        if errors:
            members["errors"] = [{"pointer": pointer, "detail": text} for pointer, text in errors]
        super().__init__(detail, **members)


class PlanIdTaken(Refused):
    slug, status, title = "plan-id-taken", 422, "Another plan has this id"
    next = "stop"


class IntentTaken(Refused):
    slug, status, title = "intent-taken", 422, "A plan of this intent is being written or was written"
    next = "check_status"


class TokenTaken(Refused):
    slug, status, title = "token-taken", 422, "Another plan has this token"
    next = "stop"


class NotReplaceable(Refused):
    slug, status, title = "not-replaceable", 422, "The plan to replace may have been written"
    next = "check_status"


class DeliveryReused(Refused):
    slug, status, title = "delivery-reused", 422, "This webhook-id was used for another body"
    next = "stop"


class CannotPlan(Refused):
    """The operation says that these inputs cannot be planned; nothing is recorded but that."""

    slug, status, title = "cannot-plan", 422, "The operation can't plan this"
    next = "stop"
    plan_write: PlanWrite | None = "none"


class Fenced(Refused):
    slug, status, title = "fenced", 423, "Another plan is writing to the same place"
    next = "wait"
    plan_write: PlanWrite | None = "none"


class TooMany(Refused):
    slug, status, title = "too-many", 429, "Too many"
    next = "wait"


class Unavailable(Refused):
    """Nothing was sent and nothing written; the same request may be made again, a commit with the same key."""

    slug, status, title = "unavailable", 503, "Not now"
    next = "retry_same_key"
    plan_write: PlanWrite | None = "none"


class TargetBusy(Unavailable):
    """As many calls as one target may have at once are under way; nothing was claimed for this one."""


class KeyRequired(Refused):
    slug, status, title = "key-required", 400, "An Idempotency-Key header is required"
    next = "fix_request"
    plan_write: PlanWrite | None = "none"


class KeyInvalid(Refused):
    slug, status, title = "key-invalid", 400, "The Idempotency-Key header is malformed"
    next = "fix_request"
    plan_write: PlanWrite | None = "none"


class KeyReused(Refused):
    slug, status, title = "key-reused", 422, "This key was used for another payload"
    next = "check_status"
    plan_write: PlanWrite | None = "none"


class NeverPlanned(Refused):
    slug, status, title = "never-planned", 404, "This token names no plan"
    next = "check_status"
    plan_write: PlanWrite | None = "none"


class FingerprintRequired(Refused):
    slug, status, title = "fingerprint-required", 428, "The plan's input fingerprint is required"
    next = "fix_request"
    plan_write: PlanWrite | None = "none"


class FingerprintMismatch(Refused):
    slug, status, title = "fingerprint-mismatch", 412, "This is not the plan's input fingerprint"
    next = "read_plan"
    plan_write: PlanWrite | None = "none"


class ApprovalRequired(Refused):
    slug, status, title = "approval-required", 403, "A person has to approve this plan first"
    next = "wait"
    plan_write: PlanWrite | None = "none"


class PlanConflicted(Refused):
    slug, status, title = "conflict", 409, "An input changed after the plan was made"
    next = "replan"
    plan_write: PlanWrite | None = "none"


class PlanExpired(Refused):
    slug, status, title = "expired", 410, "The plan has expired"
    next = "replan"
    plan_write: PlanWrite | None = "none"


class PlanAbandoned(Refused):
    slug, status, title = "abandoned", 410, "The plan was abandoned"
    next = "ask"
    plan_write: PlanWrite | None = "none"


class PlanRefused(Refused):
    slug, status, title = "refused", 422, "The target said no"
    next = "stop"
    plan_write: PlanWrite | None = "none"


class PlanRejected(Refused):
    slug, status, title = "rejected", 403, "A reviewer rejected this plan"
    next = "stop"
    plan_write: PlanWrite | None = "none"


class OutcomeUnknown(Refused):
    slug, status, title = "outcome-unknown", 504, "The target gave no trustworthy answer"
    next = "poll"
    plan_write: PlanWrite | None = "possible"


class StillCommitting(Exception):
    """An attempt of that plan is under way and did not settle while this request waited: answered 202 to agents."""

    def __init__(self, plan_pk: int) -> None:
        super().__init__(plan_pk)
        self.plan_pk = plan_pk


class DecisionRefused(Exception):
    """A person's decision that was not taken. The reason is recorded as `decision.refused`.

    `status` is that of the page (CONTRACT section 8); `code` is a stable word for the log and for tests.
    """

    def __init__(self, code: str, status: int, sentence: str, *, field: str | None = None) -> None:
        super().__init__(sentence)
        self.code, self.status, self.sentence, self.field = code, status, sentence, field
