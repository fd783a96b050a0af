"""Answers to what no view answered: problem documents for machines, short pages for people."""

import sys
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy

from plans import doors
from plans import errors as refusals
from plans.locks import LockTimeout

MACHINE_PATHS = ("/api/", "/webhooks", "/mcp", "/.well-known/")
REFUSALS: dict[int, type[refusals.Refused]] = {
    400: refusals.Malformed,
    403: refusals.Forbidden,
    404: refusals.NotFound,
    503: refusals.Unavailable,
}
SENTENCES = {
    400: gettext_lazy("The request could not be read."),
    403: gettext_lazy("You may not see this page."),
    404: gettext_lazy("There is no such page."),
    429: gettext_lazy("Too many attempts. Wait a few minutes, then try again."),
    500: gettext_lazy(
        "Something went wrong here. What was under way is either done or not: look at it again before you repeat it."
    ),
    503: gettext_lazy(
        "The desk is not available right now. What was under way is either done or not: look at it again in a moment."
    ),
}


def is_for_machines(request: HttpRequest) -> bool:
    return request.path_info.startswith(MACHINE_PATHS)


def problem(request: HttpRequest, status: int, detail: str, **members: Any) -> HttpResponse:
    """What the doors for machines answer of such a refusal. What was under way may have been written, for all it knows:
    `plan_write` is absent, which means `possible`."""
    refused = REFUSALS[status](detail, **members)
    refused.plan_write = None
    return doors.problem(request, refused)


def page(request: HttpRequest, status: int, detail: str = "") -> HttpResponse:
    """One sentence and one way on; without the database, for it may be what is broken."""
    context = {"status": status, "sentence": SENTENCES[status], "detail": detail}
    return render(None if status >= 500 else request, f"{status}.html", context, status=status)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_for_machines(request):
        return problem(request, 400, str(SENTENCES[400]))
    return page(request, 400)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_for_machines(request):
        return problem(request, 403, "You may not do this.")
    return page(request, 403, str(exception)[:200])


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_for_machines(request):
        return problem(request, 404, "There is nothing at this address.")
    return page(request, 404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Our fault, or the database's. Nothing is promised about what was under way: `plan_write` is absent, which means
    `possible`, and the page says to look again."""
    if is_for_machines(request):
        return problem(request, 503, "Something went wrong here.", retry_after_seconds=5)
    failed = sys.exc_info()[1]
    return page(request, 503 if isinstance(failed, (DatabaseError, InterfaceError, LockTimeout)) else 500)


def too_many(request: HttpRequest) -> HttpResponse:
    """allauth's limits on signing in end here."""
    response = page(request, 429)
    response["Retry-After"] = "60"
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The session of this page is gone, mostly through a new sign-in in another tab. Nothing was done."""
    if is_for_machines(request):
        return problem(request, 403, "You may not do this.")
    template = "reviewer/_session_changed.html" if request.headers.get("HX-Request") == "true" else "403_csrf.html"
    return render(request, template, {"status": 403}, status=403)
