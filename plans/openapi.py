"""The OpenAPI document of the machines' doors, generated from their table and the structs and refusals it names."""

import functools
from collections.abc import Sequence
from typing import Final

import msgspec
from django.conf import settings

from plans import errors, schema
from plans import openapi_parts as parts
from plans.errors import Refused
from plans.openapi_doors import ANY, DOORS, FED, Door, Given
from plans.openapi_parts import Json

_TEXT: Final = (
    "How machines talk to the desk: agents feed plans, plan and commit hosted operations and follow their plans; "
    "auditors' programs read the log. Bodies are strict UTF-8 JSON without unknown members; instants are RFC 3339 with "
    "an offset and are answered in UTC. Inputs, actions, evidence, results and changed values are kept and answered as "
    "the text received. `x-limits` lists every limit."
)
_ALWAYS: Final = ("X-Request-Id", "Cache-Control")
_OF_REFUSAL: Final[dict[type[Refused], tuple[str, ...]]] = {
    errors.Unauthenticated: ("WWW-Authenticate",),
    errors.BadSignature: ("WWW-Authenticate",),
    errors.MethodNotAllowed: ("Allow",),
    errors.TooMany: ("Retry-After",),
    errors.Unavailable: ("Retry-After",),
    errors.OutcomeUnknown: ("Location", "Retry-After"),
}


@functools.cache
def document() -> Json:
    """The OpenAPI 3.1 document of every door under `/api/v1` and `/webhooks`. Not to be changed by its callers."""
    paths: dict[str, Json] = {}
    for door in DOORS:
        item = paths.setdefault(door.path, {})
        for method in door.methods:
            item[method.lower()] = _operation(door, method)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Plandesk", "version": "1", "summary": "Plan, review, commit once.", "description": _TEXT},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [{"url": settings.BASE_URL}],
        "tags": [{"name": name} for name in dict.fromkeys(door.tag for door in DOORS)],
        "paths": paths,
        "webhooks": {"planNews": {"post": _callback()}},
        "components": {
            "schemas": _schemas(),
            "headers": parts.HEADERS,
            "securitySchemes": parts.SECURITY,
        },
        "x-limits": parts.limits(),
    }


@functools.cache
def encoded() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())


def _operation(door: Door, method: str) -> Json:
    described: Json = {
        "operationId": door.id if method != "HEAD" else f"{door.id}Head",
        "tags": [door.tag],
        "summary": door.title,
        "description": door.text,
        "security": [{door.asks: []}] if door.asks else [],
        "parameters": [*_path_parameters(door), *door.parameters],
    }
    if door.body is not None:
        described["requestBody"] = {
            "required": door.is_body_required,
            "content": {"application/json": {"schema": _ref(door.body.__name__)}},
        }
    answers = {str(status): _given(given, method) for status, given in door.answers.items()}
    refused: dict[int, list[type[Refused]]] = {}
    for refusal in dict.fromkeys((*door.refusals, *ANY)):
        refused.setdefault(refusal.status, []).append(refusal)
    answers |= {str(status): _refused(refused[status], method) for status in sorted(refused)}
    return {**described, "responses": answers}


def _path_parameters(door: Door) -> list[Json]:
    return [parts.PATH[part[1:-1]] for part in door.path.split("/") if part.startswith("{")]


def _given(given: Given, method: str) -> Json:
    media_types = (given.media_type, *given.or_media_types)
    return _response(given.when, media_types, [shape.__name__ for shape in given.shapes], given.headers, method)


def _refused(refusals: Sequence[type[Refused]], method: str) -> Json:
    lines = [f"`{one.slug}`: {_sentence(one)}" + (f" Next: `{one.next}`." if one.next else "") for one in refusals]
    names = [problem_name(one.slug) for one in refusals]
    headers = [header for one in refusals for header in _OF_REFUSAL.get(one, ())]
    return _response("\n\n".join(lines), ("application/problem+json",), names, headers, method)


def _sentence(refusal: type[Refused]) -> str:
    return refusal.title + ("" if refusal.title.endswith("?") else ".")


def _response(text: str, media_types: Sequence[str], names: Sequence[str], headers: Sequence[str], method: str) -> Json:
    shape: Json = {"oneOf": [_ref(name) for name in names]} if len(names) > 1 else {}
    if len(names) == 1:
        shape = _ref(names[0])
    elif not names:
        shape = {"type": "object" if media_types[0] == "application/json" else "string"}
    response: Json = {
        "description": text,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in dict.fromkeys((*_ALWAYS, *headers))},
    }
    if method == "HEAD":
        return response
    return {**response, "content": {media_type: {"schema": shape} for media_type in media_types}}


def _callback() -> Json:
    return {
        "operationId": "planNews",
        "tags": ["Callbacks"],
        "summary": "News of a plan, at the agent's registered URL",
        "description": (
            "Signed per Standard Webhooks with the callback's own secret. Tried again with growing pauses, with the "
            "same id and a fresh timestamp, until a 2xx."
        ),
        "security": [{"webhookSignature": []}],
        "parameters": list(parts.SIGNED),
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("CallbackBody")}}},
        "responses": {"2XX": {"description": "Taken."}},
    }


# --- its schemas ----------------------------------------------------------------------------------------------------


def problem_name(slug: str) -> str:
    """The name of a problem's schema: `never-planned` is `NeverPlannedProblem`."""
    return "".join(part.capitalize() for part in slug.split("-")) + "Problem"


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> Json:
    shapes: list[type[msgspec.Struct]] = [schema.FedAction, schema.Evidence, parts.Changed, parts.CallbackBody]
    shapes += FED.values()
    for door in DOORS:
        shapes += [shape for given in door.answers.values() for shape in given.shapes]
        shapes += [door.body] if door.body is not None else []
    _, made = msgspec.json.schema_components(list(dict.fromkeys(shapes)), ref_template="#/components/schemas/{name}")
    made["CommitBody"]["required"] = list(schema.COMMIT_REQUIRES)
    made["Envelope"] = _feed_body(made["Envelope"])
    kinds = dict.fromkeys(one for door in DOORS for one in (*door.refusals, *ANY))
    made |= {problem_name(one.slug): _problem(one) for one in kinds}
    made["Problem"] = parts.PROBLEM
    return dict(sorted(made.items()))


def _feed_body(envelope: Json) -> Json:
    """One alternative per type of event, so that `data` is held against the shape of its type."""
    alternatives = [
        {
            **envelope,
            "title": kind,
            "properties": {**envelope["properties"], "type": {"const": kind}, "data": _ref(shape.__name__)},
        }
        for kind, shape in FED.items()
    ]
    return {"title": "Envelope", "description": envelope["description"], "oneOf": alternatives}


def _problem(kind: type[Refused]) -> Json:
    """The problem of one slug. Written out, not `allOf`, so that readers and generators see every member at once."""
    required = parts.REQUIRED_MEMBERS.get(kind.slug, {})
    members: Json = {
        **parts.PROBLEM["properties"],
        "type": {"type": "string", "format": "uri", "pattern": parts.SLUG_PATTERN.format(slug=kind.slug)},
        "status": {"const": kind.status},
        **required,
        **parts.OPTIONAL_MEMBERS.get(kind.slug, {}),
    }
    always = [*parts.PROBLEM["required"], *required]
    if kind.next is not None:
        members["next"] = {"const": kind.next}
        always.append("next")
    if kind.plan_write is not None and kind is not errors.Unavailable:  # it may not know
        members["plan_write"] = {"const": kind.plan_write}
        always.append("plan_write")
    return {
        "type": "object",
        "title": kind.slug,
        "description": f"{_sentence(kind)} Status {kind.status}.",
        "properties": members,
        "required": always,
    }
