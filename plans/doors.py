"""What all doors for machines share: reading a body, and turning a refusal into a problem document."""

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from plans import answers, strict_json
from plans.errors import (
    Invalid,
    Malformed,
    MethodNotAllowed,
    NotFound,
    NotJson,
    Refused,
    TooLarge,
    Unavailable,
)
from plans.identifiers import is_identifier
from plans.locks import LockTimeout

logger = logging.getLogger(__name__)
T = TypeVar("T")
View = Callable[..., HttpResponse]
NAMED = {"plan_id": "plan", "task_id": "task", "operation": "operation"}
NAMES = NAMED.keys()


def door(*methods: str) -> Callable[[View], View]:
    """Make a view a door: these methods, no CSRF (nobody's browser is signed in here), refusals as problems.

    The database gone in mid-request answers 503 without `plan_write`: what was under way may have been written.
    """

    def wrap(view: View) -> View:
        @functools.wraps(view)
        def opened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                if request.method not in methods:
                    refusal = MethodNotAllowed(f"This address takes {' and '.join(methods)}.")
                    refusal.headers["Allow"] = ", ".join(methods)
                    raise refusal
                for name in NAMES & kwargs.keys():
                    if not is_identifier(kwargs[name]):
                        raise NotFound(f"There is no such {NAMED[name]}.")
                return view(request, *args, **kwargs)
            except Refused as refused:
                return problem(request, refused)
            except LockTimeout:
                return problem(
                    request, Unavailable("Somebody else is at work on the same rows.", retry_after_seconds=2)
                )
            except (DatabaseError, InterfaceError) as error:
                logger.error("the database failed under %s: %s", request.path, type(error).__name__)
                return _database_gone(request)

        return csrf_exempt(opened)

    return wrap


def json_answer(document: Any, status: int = 200, **headers: str) -> HttpResponse:
    """A JSON answer; foreign JSON in it as received."""
    content = document if isinstance(document, bytes) else answers.encode(document)
    response = HttpResponse(content, status=status, content_type="application/json")
    response["Cache-Control"] = "no-store"
    for name, value in headers.items():
        response[name.replace("_", "-")] = value
    return response


def problem(request: HttpRequest, refused: Refused) -> HttpResponse:
    """The problem document (RFC 9457) of a refusal. Deterministic: the same refusal gives the same bytes."""
    document: dict[str, Any] = {
        "type": f"{settings.BASE_URL}/problems/{refused.slug}",
        "title": refused.title,
        "status": refused.status,
        "detail": refused.detail,
        "instance": request.path,
    }
    if refused.plan_write is not None:
        document["plan_write"] = refused.plan_write
    if refused.next is not None:
        document["next"] = refused.next
    document |= {name: value for name, value in refused.members.items() if value is not None}
    response = HttpResponse(answers.encode(document), status=refused.status, content_type="application/problem+json")
    response["Cache-Control"] = "no-store"
    if "retry_after_seconds" in refused.members:
        response["Retry-After"] = str(refused.members["retry_after_seconds"])
    for name, value in refused.headers.items():
        response[name] = value
    return response


def _database_gone(request: HttpRequest) -> HttpResponse:
    refused = Unavailable("The desk can't reach its database. Try the same again.", retry_after_seconds=5)
    refused.plan_write = None  # a commit may have gone through before the connection went
    return problem(request, refused)


def raw_body(request: HttpRequest) -> bytes:
    """The body as sent, at most 1 MiB. Raises 413, and 400 where it did not arrive whole."""
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length) > strict_json.MAX_BYTES:
        raise _too_large()
    stream: Any = request
    if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        stream = request.META["wsgi.input"]  # Django reads nothing where no length is given
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := stream.read(strict_json.MAX_BYTES + 1 - size):
            pieces.append(piece)
            size += len(piece)
            if size > strict_json.MAX_BYTES:
                raise _too_large()
    except OSError:
        raise Malformed("The body did not arrive whole.") from None
    return b"".join(pieces)


def _too_large() -> TooLarge:
    return TooLarge(f"A body has at most {strict_json.MAX_BYTES} bytes.", max_bytes=strict_json.MAX_BYTES)


def check_json(request: HttpRequest) -> None:
    """415 for anything but JSON in UTF-8, as it is."""
    if request.META.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        raise NotJson("Send the body without a Content-Encoding.")
    kind, _, parameters = request.META.get("CONTENT_TYPE", "").partition(";")
    charset = parameters.lower().replace('"', "").replace(" ", "")
    if kind.strip().lower() != "application/json" or (charset and charset != "charset=utf-8"):
        raise NotJson("Send Content-Type: application/json, in UTF-8.")


def read_json(request: HttpRequest, shape: type[T]) -> T:
    """The body in this shape. Raises 413, 415, 400 and 422 of CONTRACT section 4."""
    check_json(request)
    return parsed(raw_body(request), shape)


def parsed(body: bytes, shape: type[T]) -> T:
    """A body in this shape."""
    return parsed_whole(body, shape)[1]


def parsed_whole(body: bytes, shape: type[T]) -> tuple[strict_json.Json, T]:
    """A body as the strict tree of it, and in this shape."""
    try:
        tree = strict_json.loads(body)
    except strict_json.StrictJsonError as error:
        raise refusal_of(error) from None
    return tree, parsed_part(body, shape, "")


def parsed_part(part: bytes, shape: type[T], at: str) -> T:
    """A part of a body that was read already, in this shape; `at` is the pointer of its place."""
    try:
        return strict_json.decode_part(part, shape)
    except strict_json.InvalidBody as error:
        raise Invalid(
            "The body has not the expected shape.", [(at + where, text) for where, text in error.errors]
        ) from None


def refusal_of(error: strict_json.StrictJsonError) -> Refused:
    """413, 400 or 422 for what the strict loader refuses."""
    if error.reason == "too-large":
        return _too_large()
    if error.is_syntax:
        return Malformed(error.detail, pointer=error.pointer)
    return Invalid(error.detail, [(error.pointer or "", error.detail)])


def still_committing(plan_document: dict[str, Any], location: str) -> HttpResponse:
    """202: another attempt of this plan is under way."""
    return json_answer(plan_document, 202, Location=location, Retry_After="1")
