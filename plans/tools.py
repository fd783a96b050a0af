"""Hosted operations as tools for language models: what a model fills and what is sent, as JSON Schema. CONTRACT 5.3."""

import functools
import hashlib
import logging
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from plans import schema
from plans.models import Agent
from plans.targets.operations import Operation, name_of_failure, operations

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Shown = Annotated[dict[str, Any], Meta(description="A JSON Schema 2020-12 of a closed object.")]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
MAX_NAME: Final = 64
"""Characters of the longest tool name that model providers take; they take letters, digits, _ and - alone."""

LARGEST: Final = 2**53 - 1
"""Size of the largest integer of a hosted operation's inputs, either way (RFC 8785)."""

FREEZE_RULE: Final = (
    "Freeze rule: a dry run's answer is a promise about exactly these inputs. From then on they are frozen. Commit "
    "with the answered plan_id and input_fingerprint, word for word; a commit takes no inputs. Do nothing in between "
    "that writes to what the plan touches. To change anything, after such a write, after a conflict, or at or past "
    "expires_at, make a new dry run instead."
)


class Tool(msgspec.Struct, frozen=True):
    """One step of one hosted operation: a name for the model, both forms, and where the wire form is posted."""

    name: str
    operation: str
    step: Literal["dry_run", "commit"]
    description: str
    method: Literal["POST"]
    path: str
    model: Shown
    wire: Shown


class ToolsAnswer(msgspec.Struct, frozen=True):
    """The tools of an agent."""

    tools: list[Tool]


class NotStrict(ValueError):
    """A schema that no strict conversion carries: its objects are open, untyped, or hold themselves."""


def tools_for(agent: Agent) -> list[Tool]:
    """The tools of every hosted operation that the agent may use, by operation. Reads only.

    One whose inputs no tool can hold has none, and once a line in the log: the others' tools are told all the same.
    """
    targets = set(agent.targets.filter(disabled_at=None).values_list("name", flat=True))
    tools: list[Tool] = []
    for operation, name in _named([one for one in operations() if one.target in targets]):
        told, why = _try(operation, name)
        tools += told
        if why:
            _warn(operation.name, why)
    return tools


def why_no_tools(operation: Operation) -> str:
    """Why no tool can hold the operation's inputs: a sentence, or the class of an error; empty where one can."""
    return _try(operation, operation.name)[1]


def _try(operation: Operation, name: str) -> tuple[list[Tool], str]:
    try:
        return _both(operation, name), ""
    except NotStrict as flaw:
        return [], str(flaw)
    except Exception as error:  # its code is anybody's
        return [], f"{name_of_failure(error)}."


@functools.cache
def _warn(operation: str, why: str) -> None:
    logger.warning("hosted operation %s has no tools: %s", operation, why)


def tools_of(hosted: Sequence[Operation]) -> list[Tool]:
    """A dry-run and a commit tool of each. Raises `NotStrict` where an operation's `Inputs` is no closed object."""
    return [tool for operation, name in _named(hosted) for tool in _both(operation, name)]


def _named(hosted: Sequence[Operation]) -> list[tuple[Operation, str]]:
    return list(zip(hosted, _names([one.name for one in hosted]), strict=True))


def _both(operation: Operation, name: str) -> list[Tool]:
    return [_dry_run(operation, name), _commit(operation, name)]


def _dry_run(operation: Operation, name: str) -> Tool:
    inputs = inlined(operation.Inputs)
    wire = inlined(schema.DryRun)
    wire["properties"]["inputs"] = _bounded(inputs)
    wire["required"] += ["intent"] if operation.requires_intent else []
    intent = {
        "type": "string",
        "description": (
            "Name of the business operation, the same whenever it is tried again and another for another one, such as "
            "refund:ticket-9913. 1 to 128 letters, digits and _ . : - after a letter or digit."
        ),
    }
    summary = {
        "type": "string",
        "description": f"What this does and why, for its reviewer; {schema.MAX_SUMMARY} characters at most.",
    }
    model = _closed(
        {
            "inputs": strict(inputs),
            "intent": intent if operation.requires_intent else _nullable(intent),
            "summary": _nullable(summary),
        }
    )
    text = f"{operation.title}: plan it. Writes nothing; answers what would be written. {FREEZE_RULE}"
    return Tool(
        name=f"{name}_dry_run",
        operation=operation.name,
        step="dry_run",
        description=f"{text} {operation.description}",
        method="POST",
        path=f"/api/v1/operations/{operation.name}/dry-run",
        model=model,
        wire={"$schema": DIALECT, **wire},
    )


def _commit(operation: Operation, name: str) -> Tool:
    wire = inlined(schema.CommitBody)
    wire["required"] = list(schema.COMMIT_REQUIRES)
    wire["dependentRequired"] = {"plan_token": ["plan_id"]}
    model = _closed(
        {
            "plan_id": {"type": "string", "description": "The plan_id that the dry run answered."},
            "input_fingerprint": {
                "type": "string",
                "description": "The input_fingerprint that the same dry run answered, word for word.",
            },
        }
    )
    text = f"{operation.title}: commit a plan that its dry run made. Writes exactly what was planned, once."
    return Tool(
        name=f"{name}_commit",
        operation=operation.name,
        step="commit",
        description=f"{text} {FREEZE_RULE}",
        method="POST",
        path=f"/api/v1/operations/{operation.name}/commit",
        model=model,
        wire={"$schema": DIALECT, **wire},
    )


def _names(names: Sequence[str]) -> list[str]:
    """A name for each that providers take, unlike every other: where two would be alike, a piece of a hash is added."""
    room = MAX_NAME - len("_dry_run")
    plain = [re.sub(r"[^A-Za-z0-9_-]", "_", name) for name in names]
    return [
        short
        if len(short) <= room and plain.count(short) == 1
        else f"{short[: room - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        for name, short in zip(names, plain, strict=True)
    ]


# --- schemas --------------------------------------------------------------------------------------------------------


def inlined(shape: type[msgspec.Struct]) -> Json:
    """The struct's JSON Schema with every reference replaced by what it refers to. Raises `NotStrict` for a loop."""
    roots, found = msgspec.json.schema_components([shape, schema.Evidence], ref_template="#/components/schemas/{name}")
    made = _inline(roots[0], found, ())
    assert isinstance(made, dict)
    return made


def _inline(node: Any, found: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inline(one, found, inside) for one in node]
    if not isinstance(node, dict):
        return node
    if isinstance(reference := node.get("$ref"), str):
        name = reference.rsplit("/", 1)[-1]
        if name in inside:
            raise NotStrict(f"{name} holds itself.")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**_inline(found[name], found, (*inside, name)), **beside}
    # A member may be called title; what is dropped is the keyword, whose value is text.
    return {
        key: _inline(value, found, inside)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }


def _bounded(node: Any) -> Any:
    """The same with the bounds of a hosted operation's integers, where they had none."""
    if isinstance(node, list):
        return [_bounded(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: _bounded(value) for key, value in node.items()}
    if made.get("type") == "integer":
        if "exclusiveMinimum" not in made:
            made.setdefault("minimum", -LARGEST)
        if "exclusiveMaximum" not in made:
            made.setdefault("maximum", LARGEST)
    return made


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _nullable(node: Json) -> Json:
    text = f"{node.get('description', '')} Null: none.".strip()
    bare = {key: value for key, value in node.items() if key != "description"}
    return {"anyOf": [bare, {"type": "null"}], "description": text}


_SAID: Final = (
    "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "default",
)  # fmt: skip
"""Keywords that not every strict mode takes: said in the description instead, and held to by the desk."""
_KEPT: Final = frozenset({"type", "enum", "const", "description"})


def strict(node: Any) -> Json:
    """The schema as strict function calling takes it: closed objects, all members required, no rules but types.

    A member that may be left out becomes nullable. Raises `NotStrict` for what cannot be said so: maps, tuples and
    values of any type.
    """
    if not isinstance(node, dict) or not node.keys() & {"type", "enum", "const", "anyOf"}:
        raise NotStrict("A value of any type has no strict schema.")
    rules = ", ".join(f"{key} {node[key]}" for key in _SAID if key in node)
    text = " ".join(part for part in (node.get("description", ""), f"({rules})" if rules else "") if part)
    made = {key: value for key, value in node.items() if key in _KEPT}
    made |= {"description": text} if text else {}
    if "anyOf" in node:
        made["anyOf"] = [strict(one) for one in node["anyOf"]]
    match node.get("type"):
        case "object":
            if node.get("additionalProperties") is not False or "properties" not in node:
                raise NotStrict("An open object has no strict schema.")
            made |= _closed({name: _member(node, name) for name in node["properties"]})
        case "array":
            if "prefixItems" in node or not isinstance(node.get("items"), dict):
                raise NotStrict("A list of several types has no strict schema.")
            made["items"] = strict(node["items"])
    return made


def _member(node: Json, name: str) -> Json:
    made = strict(node["properties"][name])
    is_nullable = {"type": "null"} in made.get("anyOf", ())
    return made if name in node.get("required", ()) or is_nullable else _nullable(made)
