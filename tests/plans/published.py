"""The published OpenAPI document as a judge: is this answer one that it tells of, is this body one that it takes?"""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from plans import openapi
from plans.instants import parse_instant
from plans.models import Target
from tests.fixtures import Site
from tests.makers import MadeAgent, make_agent
from tests.plans.http import Answer, Caller, keep_to_the_rules, send

_formats = FormatChecker(formats=())


@_formats.checks("date-time", raises=ValueError)
def _is_instant(value: object) -> bool:
    return not isinstance(value, str) or parse_instant(value) is not None


class Published:
    """The document, for judging. Answers are held against closed shapes: a member that it does not tell of fails."""

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        self.document = copy.deepcopy(openapi.document()) if document is None else document
        self._open = self._registry(self.document)
        closed = copy.deepcopy(self.document)
        for node in _objects(closed["components"]["schemas"]):
            node.setdefault("additionalProperties", False)
        self._closed = self._registry(closed)

    def _registry(self, document: Any) -> Any:
        return Registry().with_resource(
            "urn:openapi", Resource.from_contents(document, default_specification=DRAFT202012)
        )

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """The operation at this address. A fixed segment goes before one that is a parameter."""
        segments = urlsplit(path).path.split("/")
        found = []
        for template, item in self.document["paths"].items():
            parts = template.split("/")
            if len(parts) == len(segments) and all(
                a == b or a.startswith("{") for a, b in zip(parts, segments, strict=True)
            ):
                found.append((template.count("{"), template, item))
        assert found, f"no door at {path}"
        item = min(found, key=lambda one: one[0])[2]
        # A method that a door does not take is answered as its own methods tell.
        return dict(item.get(method.lower()) or next(iter(item.values())))

    def judge(self, method: str, path: str, answer: Answer) -> None:
        """Fails for a status, a header or a member that the document does not tell of, and for one that is missing."""
        operation = self.operation(method, path)
        told = operation["responses"].get(str(answer.status))
        assert told is not None, (method, path, answer.status, answer.body[:300])
        for name, reference in told["headers"].items():
            shape = self.document["components"]["headers"][reference["$ref"].rsplit("/", 1)[-1]]["schema"]
            if name in answer.headers:
                value = answer.headers[name]
                value = int(value) if shape.get("type") == "integer" else value
                self._check(shape, value, self._open)
            else:
                assert name == "Idempotent-Replayed", (name, method, path, answer.status)
        kind = answer.headers["Content-Type"].partition(";")[0]
        assert kind in told["content"], (method, path, kind)
        if kind.endswith("json"):
            self._check(told["content"][kind]["schema"], answer.json, self._closed)

    def takes(self, operation_id: str, body: Any) -> bool:
        """Whether the document lets this body in at the operation."""
        for item in self.document["paths"].values():
            for operation in item.values():
                if operation["operationId"] == operation_id:
                    shape = operation["requestBody"]["content"]["application/json"]["schema"]
                    return not list(self._validator(shape, self._open).iter_errors(body))
        raise LookupError(operation_id)

    def slugs(self) -> set[str]:
        """Of every problem that the document tells of."""
        schemas = self.document["components"]["schemas"]
        return {schema["title"] for name, schema in schemas.items() if name.endswith("Problem") and name != "Problem"}

    def _check(self, schema: Any, value: Any, registry: Any) -> None:
        errors = list(self._validator(schema, registry).iter_errors(value))
        assert not errors, json.dumps(value)[:600] + "\n" + "\n".join(_told(error) for error in errors)

    @staticmethod
    def _validator(schema: Any, registry: Any) -> Any:
        # References are into the document, wherever the schema was taken from.
        placed = json.loads(re.sub(r'"#/components', '"urn:openapi#/components', json.dumps(schema)))
        return Draft202012Validator(placed, registry=registry, format_checker=_formats)


class Judged(Caller):
    """A caller that holds every answer against the document."""

    published: Published

    def get(self, path: str, **how: Any) -> Answer:
        return self._judged("GET", path, super().get(path, **how))

    def post(self, path: str, document: Any = None, **how: Any) -> Answer:
        return self._judged("POST", path, super().post(path, document, **how))

    def deliver(self, body: bytes, **how: Any) -> Answer:
        return self._judged("POST", f"/webhooks/{self.agent.name}", super().deliver(body, **how))

    def send(self, method: str, path: str, **how: Any) -> Answer:
        return self._judged(method, path, keep_to_the_rules(send(self.site, method, path, **how)))

    def _judged(self, method: str, path: str, answer: Answer) -> Answer:
        self.published.judge(method, path, answer)
        return answer


def judged(site: Site, published: Published, target: Target, made: MadeAgent | None = None) -> Judged:
    caller = Judged(site, made or make_agent(target), target)
    caller.published = published
    return caller


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield node
        for child in node.values():
            yield from _objects(child)
    elif isinstance(node, list):
        for child in node:
            yield from _objects(child)


def _told(error: Any) -> str:
    inner = "; ".join(_told(one) for one in error.context or ())
    return f"{error.json_path}: {error.message[:200]}" + (f" ({inner})" if inner else "")
