"""The door of MCP at `/mcp` (streamable HTTP), and what it tells of itself to OAuth clients (RFC 9728).

Every request stands for itself: any process answers any of them, in a thread like every other door's, whole, and to
its end whether or not its client is still there.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from plans import strict_json
from plans.agent.toolbox import OWN_TOOLS, Tool, ToolAnswer
from plans.auth import authenticate
from plans.desk_task import DeskTask
from plans.doors import check_json, door, json_answer, raw_body
from plans.errors import Forbidden, Invalid, Unauthenticated
from plans.identifiers import is_identifier

if TYPE_CHECKING:
    from plans.mcp import http

PATH: Final = "/mcp"
METADATA: Final = "/.well-known/oauth-protected-resource"

TASK_HEADER: Final = "Plandesk-Task"
"""Names the agent's task that a request belongs to."""

TASK: Final = "mcp"
"""The task of requests that name none."""

_READ: Final = ("accept", "content-type")
"""Headers that the protocol reads, beside its own: it learns neither the key nor the address."""

_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600  # JSON-RPC 2.0, section 5.1


@door("POST")
def serve(request: HttpRequest) -> HttpResponse:
    """One message of a client, answered under the revision it names. GET and DELETE are 405: there is no session.

    Wrong origin, key, type or size are refused as at every door; what is wrong with the message, in the protocol.
    """
    _check_origin(request)
    try:
        agent = authenticate(request)
    except Unauthenticated as refused:
        refused.headers["WWW-Authenticate"] = _challenge(request)
        raise
    task_id = request.headers.get(TASK_HEADER, TASK)
    if not is_identifier(task_id):
        raise Invalid(f"The header {TASK_HEADER} must be 1 to 128 of letters, digits and _ . : -")
    check_json(request)
    body = raw_body(request)
    try:
        strict_json.loads(body)
    except strict_json.StrictJsonError as error:
        return _not_read(error)
    reply = _answered(request, body, _Tools(DeskTask(request, agent, task_id), body))
    response = HttpResponse(reply.body, status=reply.status)
    del response["Content-Type"]
    for name in ("content-type", "allow"):
        if name in reply.headers:
            response[name] = reply.headers[name]
    response["Cache-Control"] = "no-store"
    return response


@door("GET", "HEAD")
def describe(request: HttpRequest) -> HttpResponse:
    """What protects `/mcp`: API keys as bearer tokens, which admins of the desk give out, and no server issues."""
    return json_answer(
        {
            "resource": settings.BASE_URL + PATH,
            "resource_name": "Plandesk",
            "bearer_methods_supported": ["header"],
            "resource_documentation": f"{settings.BASE_URL}/api/v1/docs",
        }
    )


class _Tools:
    """The tools of one request."""

    def __init__(self, task: DeskTask, body: bytes) -> None:
        self._task = task
        self._body = body

    def list(self) -> Sequence[Tool]:
        return self._task.toolbox(with_operations=True).tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        is_own = any(tool.name == name for tool in OWN_TOOLS)
        return self._task.toolbox(with_operations=not is_own).call(name, self._as_written() if arguments else {})

    def _as_written(self) -> dict[str, Any]:
        """The arguments with their numbers as they stand in the body: `1.10` is not `1.1` (CONTRACT section 4)."""
        found: dict[str, Any] = json.loads(self._body, parse_float=_number, parse_int=_number)["params"]["arguments"]
        return found


def _number(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _answered(request: HttpRequest, body: bytes, tools: _Tools) -> "http.Reply":
    from plans.mcp import http  # noqa: PLC0415 - it takes a second to load, and most commands of this code never speak

    return http.answer(http.Posted(PATH, _headers(request), body), tools)


def _check_origin(request: HttpRequest) -> None:
    """403 for a page of another site, whose address may lead here only for this browser. Programs send no Origin."""
    origin = request.headers.get("Origin")
    if origin is not None and origin not in (f"{request.scheme}://{request.get_host()}", settings.BASE_URL):
        raise Forbidden("Pages of other sites may not call this.")


def _challenge(request: HttpRequest) -> str:
    """RFC 9728 section 5.1. An error is named only where a key was sent (RFC 6750 section 3.1)."""
    error = ', error="invalid_token"' if "Authorization" in request.headers else ""
    return f'Bearer realm="plandesk"{error}, resource_metadata="{settings.BASE_URL}{METADATA}{PATH}"'


def _headers(request: HttpRequest) -> dict[str, str]:
    names = [name for name in request.headers if name.lower() in _READ or name.lower().startswith("mcp-")]
    return {name: request.headers[name] for name in names}


def _not_read(error: strict_json.StrictJsonError) -> HttpResponse:
    code = _PARSE_ERROR if error.is_syntax else _INVALID_REQUEST
    document = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": error.detail}}
    return json_answer(msgspec.json.encode(document), 400)
