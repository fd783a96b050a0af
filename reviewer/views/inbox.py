"""The inbox: what needs somebody, the unknown first, then by urgency. No decision is ever made from a list."""

import re
from datetime import datetime
from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from plans import queries
from plans.instants import parse_instant
from plans.states import State
from reviewer.access import requires_role
from reviewer.models import Person
from reviewer.rows import GROUP_SOON, badge_now, row_of
from reviewer.views import PersonRequest, capped, clock_for, show

MOST_WATCHED = 200


@requires_role(*Person.ROLES)
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """A page of plans that wait; the first page also holds what is unknown or was contradicted."""
    request = cast(PersonRequest, request)
    only_unknown = request.GET.get("show") == "unknown"
    found = queries.find_inbox(request.user, after=read_key(request.GET.get("after", "")))
    clock = clock_for(request.user, found.now)
    pending = [] if only_unknown else found.pending
    first = [row_of(plan, clock) for plan in pending if plan.expires_at - found.now < GROUP_SOON]
    later = [row_of(plan, clock) for plan in pending if plan.expires_at - found.now >= GROUP_SOON]
    context = {
        "unknown": [row_of(plan, clock) for plan in found.unknown],
        "contradicted": [] if only_unknown else [row_of(plan, clock) for plan in found.contradicted],
        "soon": first,
        "later": later,
        "only_unknown": only_unknown,
        "is_continued": "after" in request.GET,
        "older": write_key(found.next_key) if found.next_key and not only_unknown else "",
        "newest": found.newest,
        "is_empty": not (found.unknown or found.contradicted or pending),
    }
    return show(request, "reviewer/inbox.html", context, section="inbox", clock=clock)


@requires_role(*Person.ROLES)
@require_safe
def fresh(request: HttpRequest) -> HttpResponse:
    """The poll of the inbox: how many plans are new, and which shown rows no longer stand as shown. Moves nothing.

    A part, never a page: somebody who opens its address is sent to the inbox.
    """
    request = cast(PersonRequest, request)
    if not request.htmx or request.htmx.history_restore_request:
        return HttpResponseRedirect(reverse("inbox"))
    since = _whole(request.GET.get("since", "")) or 0
    pks = [pk for pk in map(_whole, request.GET.getlist("row")[:MOST_WATCHED]) if pk]
    counts = queries.count_waiting(request.user)
    rows = queries.find_states(pks) if pks else []
    clock = clock_for(request.user)
    context = {
        "arrived": capped(count) if (count := queries.count_waiting(request.user, since=since).to_decide) else "",
        "arrived_count": count,
        "waiting": counts.to_decide,
        "waiting_text": capped(counts.to_decide),
        "gone": [
            (plan.pk, badge_now(plan, clock))
            for plan in rows
            if plan.state != State.PENDING or plan.expires_at <= clock.now
        ],
    }
    return render(request, "reviewer/_fresh.html", context)


def write_key(key: tuple[datetime, int]) -> str:
    """A place in a list as it stands in an address."""
    return f"{key[0].isoformat().replace('+00:00', 'Z')}_{key[1]}"


def read_key(text: str) -> tuple[datetime, int] | None:
    """The place that `write_key` wrote; None for anything else: a list then starts at its beginning."""
    instant, _, pk = text.rpartition("_")
    number = _whole(pk)
    try:
        return (parse_instant(instant), number) if number is not None else None
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None
