"""A task as tools for a language model, whatever framework runs it: plan each hosted operation, commit, read, abandon.

A model sees no token, names no key, and cannot give inputs to a commit.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, get_args

import msgspec

from plans.agent.awaiting import AsyncTask
from plans.agent.errors import AgentError, DeskError, DeskUnavailable, PlanInFlight, StoreError
from plans.agent.http import NoAnswer
from plans.agent.outcomes import Outcome, Waiting
from plans.agent.plan import Plan
from plans.agent.task import AbandonReason, Task
from plans.instants import format_instant

Json: TypeAlias = dict[str, Any]

REASONS: Final = get_args(AbandonReason)

NEXT: Final = {
    "planned": "Nothing is written yet. Commit it with commit_plan, these plan_id and input_fingerprint word for word.",
    "committed": "Done, once. Report it once.",
    "conflict": "The world moved and nothing was written. Make a new dry run and show the new plan.",
    "expired": "The promise has ended and nothing was written. Make a new dry run.",
    "stale": "This agent wrote to what the plan touches, so it was not sent. Make a new dry run.",
    "abandoned": "Planned and not done. Ask whoever gave the task.",
    "rejected": "A reviewer said no. Stop, and report the reason.",
    "refused": "The target said no and nothing was written. Stop, and report the reason.",
    "waiting": "Not decided yet. People decide at review_url. Read it later with get_plan, and plan nothing anew.",
    "unknown": "It may have been written. Commit the same plan again, or read it with get_plan; never plan it anew.",
    "unavailable": "The desk is down or busy. Make the same call again later.",
    "error": "This call wrote nothing. Mend it, or stop and report it.",
    "unsure": "Whether it was written is not known. Stop, and report it.",
}
"""What a model is to do about each outcome (CONTRACT section 7)."""

NEXT_WHILE: Final = {
    "committing": "It is being written at this moment. Read it with get_plan, and plan nothing anew.",
    "fenced": "Another plan is being written there, and nothing of this one is. Commit the same plan again later.",
}
"""The same while it waits for something else than people."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its name, what a model is told of it, and the JSON Schema of its arguments, a closed object."""

    name: str
    description: str
    schema: Json = dataclasses.field(repr=False)
    kind: Literal["plan", "commit", "read", "abandon"] = "plan"


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool says: its members always hold `outcome` and `next`. Never a token.

    `is_error` is True only for a call that was wrong or refused before there was a plan. What becomes of a plan
    (waiting, unknown, a conflict, an expiry) is a result.
    """

    members: Json
    is_error: bool = False

    @property
    def text(self) -> str:
        """The members as JSON text."""
        return json.dumps(self.members, ensure_ascii=False)


class Work(Protocol):
    """What the tools act on: a task of the SDK, or, inside a desk, the desk itself for one agent's task."""

    def dry_run(
        self, operation: str, inputs: Mapping[str, object], *, intent: str | None = None, summary: str | None = None
    ) -> Plan:
        """As `Task.dry_run`."""

    def find(self, plan_id: str) -> Plan | None:
        """As `Task.find`."""

    def commit(self, plan: Plan) -> Outcome:
        """As `Task.commit`."""

    def wait(self, plan: Plan, timeout: float | None = None) -> Outcome:
        """As `Task.wait`; it is asked with a timeout of 0 alone."""

    def abandon(self, plan: Plan, reason: AbandonReason = "intent_changed") -> Outcome:
        """As `Task.abandon`."""


class _Published(msgspec.Struct, frozen=True):
    """A tool as `GET /api/v1/tools` publishes it (CONTRACT 5.3)."""

    name: str
    operation: str
    step: str
    description: str
    model: Json
    wire: Json


class _Answer(msgspec.Struct, frozen=True):
    tools: list[_Published]


class Toolbox:
    """The tools of one task. `Toolbox.of(task)` asks the desk which hosted operations this agent may use."""

    def __init__(self, work: Work, published: Mapping[str, _Published]) -> None:
        self._work = work
        self.published = published
        self.tools = [*(Tool(one.name, one.description, one.model) for one in published.values()), *OWN_TOOLS]

    @classmethod
    def of(cls, task: Task) -> "Toolbox":
        """The tools there are now. Raises DeskUnavailable or DeskError where the desk does not say."""
        line = task._line
        answer = line.ask_patiently("GET", "/api/v1/tools", patience=line.patience())
        if isinstance(answer, NoAnswer) or answer.status != 200:
            raise line.error(answer, plan_write="none")
        try:
            return cls(task, read_published(answer.body))
        except msgspec.DecodeError:
            raise line.error(answer, plan_write="none") from None

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Does what the tool says. Unknown or missing arguments are an error, and then nothing is sent.

        Raises LookupError for a name that is no tool, and nothing for what desk, store or network do: that is answered.
        """
        tool = next((one for one in self.tools if one.name == name), None)
        if tool is None:
            raise LookupError(name)
        if wrong := _what_is_wrong(tool.schema, arguments):
            return _error(wrong)
        act: dict[str, Callable[[Mapping[str, Any]], ToolAnswer]] = {
            "commit_plan": self._commit,
            "get_plan": self._get,
            "abandon_plan": self._abandon,
        }
        try:
            return act[name](arguments) if name in act else self._plan(self.published[name], arguments)
        except PlanInFlight as error:
            return _answer("unknown", {"plan_id": error.plan_id, "detail": str(error)})
        except DeskError as error:
            return untold(error)
        except StoreError as error:
            if name != "commit_plan":
                return _error(str(error))
            # It may have been sent and applied before the store failed: planning it anew could write it twice.
            return _answer("unknown", {"plan_id": arguments["plan_id"], "detail": str(error)})
        except (AgentError, ValueError) as error:
            return _error(str(error))

    def undecided(self, plan_id: object, fingerprint: object) -> ToolAnswer | None:
        """The answer to show while people still have to decide this plan; None where commit_plan has more to say."""
        plan = self._work.find(str(plan_id))
        if plan is None or not plan.needs_approval or plan.input_fingerprint != fingerprint:
            return None
        try:
            outcome = self._work.wait(plan, timeout=0)
        except AgentError:
            return None  # the commit meets it too, and answers it
        return _told(outcome) if isinstance(outcome, Waiting) and outcome.reason == "approval" else None

    def _plan(self, tool: _Published, arguments: Mapping[str, Any]) -> ToolAnswer:
        filled = {name: value for name, value in arguments.items() if value is not None}
        inputs = _without_nulls(filled.pop("inputs"), tool.wire["properties"]["inputs"])
        plan = self._work.dry_run(tool.operation, inputs, **filled)
        return _answer("planned", _shown(plan))

    def _commit(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        plan = self._work.find(arguments["plan_id"])
        if plan is None:
            return _error(f"This task has no plan {arguments['plan_id']}; nothing was sent.", slug="never-planned")
        if plan.input_fingerprint != arguments["input_fingerprint"]:
            return _error("This is not the plan's input_fingerprint; nothing was sent.", slug="fingerprint-mismatch")
        return _told(self._work.commit(plan))

    def _get(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        plan = self._work.find(arguments["plan_id"])
        if plan is None:
            return _error(f"This task has no plan {arguments['plan_id']}.", slug="never-planned")
        told = _told(self._work.wait(plan, timeout=0))
        is_for_people = told.members["outcome"] == "waiting" and told.members["reason"] == "approval"
        if is_for_people and plan.needs_approval is False:
            told = _answer("planned", {})
        return ToolAnswer({**_shown(plan), **told.members})

    def _abandon(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        plan = self._work.find(arguments["plan_id"])
        if plan is None:
            return _error(f"This task has no plan {arguments['plan_id']}.", slug="never-planned")
        if arguments["reason"] not in REASONS:
            return _error(f"The reason must be one of {', '.join(REASONS)}; nothing was abandoned.")
        return _told(self._work.abandon(plan, arguments["reason"]))


class AsyncToolbox:
    """`Toolbox` for asyncio: the same calls, each awaited. A cancelled one stops as the SDK's calls do."""

    def __init__(self, task: AsyncTask, box: Toolbox) -> None:
        self._task = task
        self._box = box
        self.tools = box.tools

    @classmethod
    async def of(cls, task: AsyncTask) -> "AsyncToolbox":
        """As `Toolbox.of`."""
        return cls(task, await task._call(Toolbox.of))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """As `Toolbox.call`."""
        return await self._task._call(lambda _: self._box.call(name, arguments))

    async def undecided(self, plan_id: object, fingerprint: object) -> ToolAnswer | None:
        """As `Toolbox.undecided`."""
        return await self._task._call(lambda _: self._box.undecided(plan_id, fingerprint))


def read_published(body: bytes) -> dict[str, _Published]:
    """The dry-run tools, by name, in an answer of `GET /api/v1/tools`. Raises msgspec.DecodeError for anything else."""
    return {one.name: one for one in msgspec.json.decode(body, type=_Answer).tools if one.step == "dry_run"}


def _closed(**properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_PLAN_ID: Final = {"type": "string", "description": "The plan_id that the dry run answered."}

OWN_TOOLS: Final = (
    Tool(
        "commit_plan",
        "Commit a plan that a dry run of this task made. Writes exactly what was planned, once, and may be repeated: "
        "it finishes the same attempt. Takes no inputs; to change anything make a new dry run. Where people decide, it "
        "answers waiting, with the address of the decision.",
        _closed(
            plan_id=_PLAN_ID,
            input_fingerprint={
                "type": "string",
                "description": "The input_fingerprint that the same dry run answered, word for word.",
            },
        ),
        "commit",
    ),
    Tool(
        "get_plan",
        "Read what became of a plan of this task. Writes nothing.",
        _closed(plan_id=_PLAN_ID),
        "read",
    ),
    Tool(
        "abandon_plan",
        "Withdraw a plan of this task that is no longer wanted, and say why. Answers what became of it: it may have "
        "been committed a moment ago.",
        _closed(
            plan_id=_PLAN_ID,
            reason={"type": "string", "enum": list(REASONS), "description": "Why it is no longer wanted."},
        ),
        "abandon",
    ),
)
"""What a task offers beside its hosted operations."""


def _what_is_wrong(schema: Json, arguments: Mapping[str, Any]) -> str | None:
    """Arguments against the top of a schema; what is inside `inputs` the desk checks."""
    properties: Json = schema["properties"]
    if unknown := sorted(set(arguments) - set(properties)):
        return f"Unknown arguments: {', '.join(unknown)}. Known are {', '.join(properties)}. Nothing was sent."
    for name, one in properties.items():
        is_optional = {"type": "null"} in one.get("anyOf", ())
        value = arguments.get(name)
        kind = dict if name == "inputs" else str
        if value is None and is_optional:
            continue
        if not isinstance(value, kind):
            what = "an object" if kind is dict else "a text"
            return f"The argument {name} must be {what}. Nothing was sent."
    return None


def _without_nulls(value: Any, wire: Json) -> Any:
    """A strict model writes null for what it leaves out; where the wire form takes no null, that member goes."""
    if isinstance(value, list):
        return [_without_nulls(one, wire.get("items") or {}) for one in value]
    if not isinstance(value, dict):
        return value
    shapes = [wire, *wire.get("anyOf", ())]
    properties: Json = next((shape["properties"] for shape in shapes if "properties" in shape), {})
    return {
        name: _without_nulls(member, properties.get(name) or {})
        for name, member in value.items()
        if member is not None or name not in properties or _takes_null(properties[name])
    }


def _takes_null(wire: Json) -> bool:
    kinds = wire.get("type")
    if kinds is None and not wire.keys() & {"enum", "const", "anyOf"}:
        return True
    named = kinds if isinstance(kinds, list) else [kinds]
    return "null" in named or None in wire.get("enum", ()) or any(_takes_null(one) for one in wire.get("anyOf", ()))


def _shown(plan: Plan) -> Json:
    return {
        "plan_id": plan.plan_id,
        "input_fingerprint": plan.input_fingerprint,
        "target": plan.target,
        "operation": plan.operation,
        "actions": plan.actions,
        "expires_at": format_instant(plan.expires_at),
        "needs_approval": plan.needs_approval,
        "review_url": plan.review_url,
    }


def _told(outcome: Outcome) -> ToolAnswer:
    members = cast(Json, _plain(dataclasses.asdict(outcome)))
    told = _answer(type(outcome).__name__.lower(), members)
    if isinstance(outcome, Waiting) and outcome.reason in NEXT_WHILE:
        told.members["next"] = NEXT_WHILE[outcome.reason]
    return told


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _answer(outcome: str, members: Json) -> ToolAnswer:
    return ToolAnswer({"outcome": outcome, **members, "next": NEXT[outcome]})


def untold(error: DeskError) -> ToolAnswer:
    """What a tool answers where the desk did not: nothing was sent, or a refusal of the desk."""
    if isinstance(error, DeskUnavailable):
        return _answer("unavailable", {"detail": error.detail})
    return _error(error.detail, slug=error.slug, is_sure=error.plan_write == "none")


def _error(detail: str, *, slug: str = "invalid", is_sure: bool = True) -> ToolAnswer:
    advice = NEXT["error"] if is_sure else NEXT["unsure"]
    return ToolAnswer({"outcome": "error", "slug": slug, "detail": detail, "next": advice}, is_error=True)
