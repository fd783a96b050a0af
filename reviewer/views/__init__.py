"""What every page of the desk shares: the shell around it, who asks, and how they come back after signing in."""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from plans.clock import now as database_now
from plans.queries import COUNT_CAP, count_waiting
from plans.roster import count_undecidable
from reviewer.models import Person
from reviewer.moments import Clock


class PersonRequest(HttpRequest):
    """A request by somebody who is signed in, as `requires_role` guarantees."""

    user: Person
    htmx: HtmxDetails


class MaybePersonRequest(HttpRequest):
    """A request by anybody."""

    user: Person | AnonymousUser
    htmx: HtmxDetails


def clock_for(person: Person, now: Any = None) -> Clock:
    """The database's clock in the person's zone. `now` spares a statement where it is known already."""
    return Clock(now or database_now(), person.time_zone)


def capped(count: int) -> str:
    """A count as menus show it: exact up to the cap."""
    return f"{COUNT_CAP}+" if count > COUNT_CAP else str(count)


def show(
    request: PersonRequest,
    template: str,
    context: dict[str, Any],
    *,
    section: str,
    clock: Clock,
    status: int = 200,
) -> HttpResponse:
    """A whole page inside the shell. Its counts are read last, so that they tell what the request itself changed."""
    counts = count_waiting(request.user)
    is_admin = "admin" in request.user.roles
    undecidable = count_undecidable() if is_admin else 0
    shell = {
        "section": section,
        "clock": clock,
        "person": request.user,
        "waiting": counts.to_decide,
        "waiting_text": capped(counts.to_decide),
        "unknown_text": capped(counts.unknown) if counts.unknown else "",
        "may_audit": request.user.has_perm("audit.view_event"),
        "is_admin": is_admin,
        "undecidable": undecidable,
        "undecidable_text": capped(undecidable),
    }
    return render(request, template, shell | context, status=status)


def sign_in_and_return_to(request: MaybePersonRequest, page: str) -> HttpResponse:
    """The sign-in page, coming back to `page`, which takes GET: nothing that was pressed is done by signing in."""
    url = f"{reverse('account_login')}?{urlencode({'next': page})}"
    return HttpResponseClientRedirect(url) if request.htmx else redirect(url)
