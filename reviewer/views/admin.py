"""What the pages for admins share: what became of a press, secrets that are shown once, plans nobody may decide."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_http_methods

from plans import roster
from reviewer.access import requires_role
from reviewer.rows import url_of
from reviewer.views import PersonRequest, clock_for, show

View = Callable[Concatenate[HttpRequest, ...], HttpResponseBase]


@dataclass(frozen=True, slots=True)
class Secret:
    """Something that is shown in one answer and never again: in no address, session, log or store."""

    id: str
    label: str
    value: str = field(repr=False)
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a press: colour, icon and words say the same."""

    title: str
    text: str = ""
    css: str = "ok"
    icon: str = "check"
    secrets: tuple[Secret, ...] = ()


def admin_page(view: View) -> View:
    """A page for admins: others are refused with 403. Only its POST changes anything, and answers with the page."""
    return requires_role("admin")(require_http_methods(["GET", "HEAD", "POST"])(view))


def sent(request: HttpRequest, do: str) -> Any:
    """What was posted for one of a page's forms, or None where another form (or none) was sent."""
    return request.POST if request.method == "POST" and request.POST.get("do") == do else None


def show_admin(
    request: PersonRequest, template: str, context: dict[str, Any], *, section: str, status: int = 200
) -> HttpResponse:
    """A page in the shell, with the plans that nobody left may decide above it. Reads them after all changes."""
    clock = clock_for(request.user)
    waiting = [
        {"plan": plan, "url": url_of(plan.agent, plan.target, plan.plan_id), "expires": clock.at(plan.expires_at)}
        for plan in roster.find_undecidable()
    ]
    context = {"undecided": waiting, "is_admin_page": True} | context
    return show(request, template, context, section=section, clock=clock, status=status)
