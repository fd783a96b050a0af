"""Refusals to machines that ask the log, as problem documents (RFC 9457).

The agents' doors answer these slugs too, with the same title, `next` and `plan_write`: a test compares the two.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse


@dataclass(frozen=True, slots=True)
class Problem:
    """What every refusal of one slug says. `plan_write`: reading the log writes no plan, and 503 says so."""

    status: int
    title: str
    next: str
    plan_write: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


PROBLEMS: Final = {
    "malformed": Problem(400, "The request cannot be read", "fix_request"),
    "unauthenticated": Problem(
        401, "Who is asking?", "fix_request", headers={"WWW-Authenticate": 'Bearer realm="plandesk"'}
    ),
    "forbidden": Problem(403, "Not allowed", "stop"),
    "not-found": Problem(404, "There is nothing here", "stop"),
    "method-not-allowed": Problem(
        405, "This method is not allowed here", "fix_request", headers={"Allow": "GET, HEAD"}
    ),
    "unavailable": Problem(503, "Not now", "retry_same_key", "none"),
}
"""Of each slug that the log answers."""

SOON: Final = 2
LATER: Final = 60
"""Seconds until it is worth asking again: for what the sequencer is about to do, and for anything else."""


def refuse(request: HttpRequest, slug: str, detail: str, *, retry_after_seconds: int | None = None) -> HttpResponse:
    """The answer that says no: `slug` is one of PROBLEMS, `detail` a sentence for whoever asked."""
    kind = PROBLEMS[slug]
    document: dict[str, Any] = {
        "type": f"{settings.BASE_URL}/problems/{slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "instance": request.path,
    }
    if kind.plan_write is not None:
        document["plan_write"] = kind.plan_write
    document["next"] = kind.next
    headers = {"Cache-Control": "no-store", **kind.headers}
    if kind.status == 503:
        document["retry_after_seconds"] = retry_after_seconds or LATER
        headers["Retry-After"] = str(document["retry_after_seconds"])
    return HttpResponse(
        json.dumps(document), status=kind.status, content_type="application/problem+json", headers=headers
    )


def refuse_for_now(request: HttpRequest, detail: str) -> HttpResponse:
    """`unavailable`, because it is a matter of seconds: the sequencer has not come so far."""
    return refuse(request, "unavailable", detail, retry_after_seconds=SOON)
