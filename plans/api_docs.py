"""Doors that describe the doors: tools for language models, the OpenAPI document, and its page for people."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from plans import openapi, tools
from plans.auth import authenticate
from plans.doors import door, json_answer
from plans.identifiers import IDENTIFIER_PATTERN
from plans.openapi_parts import Json

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@door("GET")
def list_tools(request: HttpRequest) -> HttpResponse:
    """A dry-run and a commit tool of every hosted operation that the agent may use."""
    return json_answer(msgspec.json.encode(tools.ToolsAnswer(tools.tools_for(authenticate(request)))))


@door("GET")
def read_openapi(request: HttpRequest) -> HttpResponse:
    """The OpenAPI document. The same for everybody, and for nobody in particular."""
    return json_answer(openapi.encoded())


@door("GET")
def read_docs(request: HttpRequest) -> HttpResponse:
    """The document as a page."""
    response = HttpResponse(_page())
    response["Cache-Control"] = "no-store"
    response["Content-Security-Policy"] = PAGE_POLICY
    return response


@functools.cache
def _page() -> str:
    return render_to_string("api/docs.html", page_of(openapi.document()))


# --- from the document to the page ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object, a parameter or a header, as a row."""

    name: str
    where: str
    kind: SafeString
    is_required: bool
    text: SafeString


@dataclass(frozen=True, slots=True)
class Shape:
    """A schema of the document, or all alternatives of one."""

    name: str
    text: SafeString
    members: tuple[Member, ...]
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a door."""

    status: str
    text: SafeString
    shapes: SafeString
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One door and method."""

    id: str
    method: str
    path: str
    title: str
    text: SafeString
    asks: str
    parameters: tuple[Member, ...]
    body: SafeString
    replies: tuple[Reply, ...]


def page_of(document: Json) -> dict[str, Any]:
    """What the template shows: the doors by tag, callbacks, schemas, limits."""
    entries = [
        (operation["tags"][0], _entry(method, path, operation, document))
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method != "head"
    ]
    callbacks = [_entry("post", "your URL", item["post"], document) for item in document["webhooks"].values()]
    groups = [(tag["name"], [one for name, one in entries if name == tag["name"]]) for tag in document["tags"]]
    schemas = document["components"]["schemas"]
    return {
        "info": document["info"],
        "intro": _prose(document["info"]["description"]),
        "server": document["servers"][0]["url"],
        "groups": [*groups, ("Callbacks", callbacks)],
        "shapes": [_shape(name, schema) for name, schema in schemas.items() if not name.endswith("Problem")],
        "problems": [_shape(name, schema) for name, schema in schemas.items() if name.endswith("Problem")],
        "limits": [(name, row["limit"], row["description"]) for name, row in document["x-limits"].items()],
    }


def _entry(method: str, path: str, operation: Json, document: Json) -> Entry:
    names = [name for one in operation["security"] for name in one]
    body = operation.get("requestBody")
    return Entry(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        title=operation["summary"],
        text=_prose(operation["description"]),
        asks=" ".join(document["components"]["securitySchemes"][name]["description"] for name in names),
        parameters=tuple(
            Member(one["name"], one["in"], _kind(one["schema"]), one.get("required", False), _prose(one["description"]))
            for one in operation["parameters"]
        ),
        body=_kind(body["content"]["application/json"]["schema"]) if body else SafeString(),
        replies=tuple(_reply(status, reply) for status, reply in operation["responses"].items()),
    )


def _reply(status: str, reply: Json) -> Reply:
    shapes = [content["schema"] for content in reply.get("content", {}).values()]
    text = format_html_join(mark_safe("<br>"), "{}", ((_prose(line),) for line in reply["description"].split("\n\n")))
    headers = tuple(name for name in reply.get("headers", {}) if name not in ("X-Request-Id", "Cache-Control"))
    return Reply(status, text, _joined(dict.fromkeys(_kind(shape) for shape in shapes)), headers)


def _shape(name: str, schema: Json) -> Shape:
    required = schema.get("required", ())
    members = tuple(
        Member(member, "", _kind(one), member in required, _rules(one))
        for member, one in schema.get("properties", {}).items()
    )
    if "oneOf" in schema and all("properties" in one for one in schema["oneOf"]):
        members = tuple(_alternatives(schema["oneOf"]))
    return Shape(name, _prose(schema.get("description", "")), members, schema.get("additionalProperties") is False)


def _alternatives(schemas: Iterable[Json]) -> Iterator[Member]:
    """The members of every alternative, one after the other, under the alternative's title."""
    for schema in schemas:
        for member, one in schema["properties"].items():
            yield Member(member, schema["title"], _kind(one), member in schema["required"], _rules(one))


def _kind(schema: Json) -> SafeString:
    """The type in words, names of schemas as links to them."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return format_html('<a href="#{}">{}</a>', name, name)
    if schema.get("pattern") == IDENTIFIER_PATTERN:
        return format_html('<a href="#{}">identifier</a>', "limits")
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return _joined(_kind(one) for one in schema[key])
    if "const" in schema:
        return format_html("<code>{}</code>", _literal(schema["const"]))
    if "enum" in schema:
        return _joined(format_html("<code>{}</code>", _literal(value)) for value in schema["enum"])
    if schema.get("type") == "array":
        return format_html("list of {}", _kind(schema.get("items", {})))
    return escape(schema.get("type", "any JSON"))


def _rules(schema: Json) -> SafeString:
    """The description, and every keyword that narrows the value."""
    told = (
        "type",
        "const",
        "enum",
        "items",
        "description",
        "title",
        "properties",
        "required",
        "$ref",
        "anyOf",
        "oneOf",
    )
    if schema.get("pattern") == IDENTIFIER_PATTERN:
        return _prose(schema.get("description", ""))
    items = schema.get("items", {})
    rules = [(key, value) for key, value in schema.items() if key not in told]
    rules += [(f"each {key}", value) for key, value in items.items() if key not in told]
    listed = format_html_join(", ", "{} <code>{}</code>", ((key, _literal(value)) for key, value in rules))
    return format_html("{} {}", _prose(schema.get("description", "")), listed)


def _literal(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _joined(pieces: Iterable[SafeString]) -> SafeString:
    return format_html_join(" or ", "{}", ((piece,) for piece in pieces))


def _prose(text: str) -> SafeString:
    """A description, with what stands between backticks as code."""
    return format_html_join(
        "",
        "{}",
        (
            (format_html("<code>{}</code>", piece) if place % 2 else piece,)
            for place, piece in enumerate(text.split("`"))
        ),
    )
