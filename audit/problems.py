"""Refusals to machines that ask the log, as problem documents (RFC 9457)."""

import json

from django.conf import settings
from django.http import HttpRequest, HttpResponse

# Status, title, what to do next, and the headers that belong to it.
_PROBLEMS: dict[str, tuple[int, str, str, dict[str, str]]] = {
    "malformed": (400, "The request cannot be read", "fix_request", {}),
    "unauthenticated": (401, "Nobody is signed in", "fix_request", {"WWW-Authenticate": "Bearer"}),
    "forbidden": (403, "This is not for you", "stop", {}),
    "not-found": (404, "There is nothing here", "stop", {}),
    "method-not-allowed": (405, "This can only be read", "fix_request", {"Allow": "GET, HEAD"}),
    "unavailable": (503, "Not in time", "fix_request", {"Retry-After": "60"}),
}


def refuse(request: HttpRequest, slug: str, detail: str) -> HttpResponse:
    """The answer that says no: `slug` is one of CONTRACT's, `detail` a sentence for whoever asked."""
    status, title, following, headers = _PROBLEMS[slug]
    document = {
        "type": f"{settings.BASE_URL}/problems/{slug}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.path,
        "plan_write": "none",
        "next": following,
    }
    return HttpResponse(
        json.dumps(document),
        status=status,
        content_type="application/problem+json",
        headers={"Cache-Control": "no-store", **headers},
    )


def refuse_for_now(request: HttpRequest, detail: str) -> HttpResponse:
    """`unavailable`, because it is a matter of seconds: the sequencer has not come so far."""
    response = refuse(request, "unavailable", detail)
    document = {**json.loads(response.content), "title": "Not yet", "next": "poll"}
    response.content = json.dumps(document).encode()
    response["Retry-After"] = "2"
    return response
