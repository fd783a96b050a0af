"""The inbox: what needs somebody, the unknown first, then by urgency. No decision is ever made from a list."""

import re
from datetime import datetime
from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from plans import queries
from plans.instants import parse_instant
from plans.queries import HistoryFilters
from reviewer import presence
from reviewer.access import requires_role
from reviewer.forms import InboxForm
from reviewer.models import Person
from reviewer.rows import GROUP_SOON, row_of
from reviewer.views import PersonRequest, capped, clock_for, show
from reviewer.views.parts import show_part

MOST_WATCHED = 200


@requires_role(*Person.ROLES)
@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """A page of plans that wait; the first page also holds what is unknown or was contradicted.

    Filters stand in the address; an unknown value is said, never answered with an empty list.
    """
    request = cast(PersonRequest, request)
    form = InboxForm(request.GET)
    is_valid = form.is_valid()
    given = {name: value for name, value in form.cleaned_data.items() if value} if is_valid else {}
    only_unknown = request.GET.get("show") == "unknown"
    only = HistoryFilters(**{"text" if name == "q" else name: value for name, value in given.items()})
    found = queries.find_inbox(request.user, after=read_key(request.GET.get("after", "")), only=only)
    clock = clock_for(request.user, found.now)
    shown = [*found.unknown, *found.contradicted, *found.pending] if is_valid else []
    looking = presence.find_others([plan.pk for plan in shown], request.user)
    rows = {plan.pk: row_of(plan, clock, looking.get(plan.pk, ())) for plan in shown}
    pending = [plan for plan in found.pending if not only_unknown and is_valid]
    older = write_key(found.next_key) if found.next_key and not only_unknown and is_valid else ""
    context = {
        "form": form,
        "given": given,
        "is_filtered": bool(given) or not is_valid,
        "unknown": [rows[plan.pk] for plan in found.unknown if is_valid],
        "contradicted": [rows[plan.pk] for plan in found.contradicted if is_valid and not only_unknown],
        "soon": [rows[plan.pk] for plan in pending if plan.expires_at - found.now < GROUP_SOON],
        "later": [rows[plan.pk] for plan in pending if plan.expires_at - found.now >= GROUP_SOON],
        "watched": list(rows)[:MOST_WATCHED],
        "only_unknown": only_unknown,
        "is_continued": "after" in request.GET,
        "older": f"?{urlencode({**given, 'after': older})}" if older else "",
        "unknown_url": f"?{urlencode({**given, 'show': 'unknown'})}",
        "decide_url": f"{reverse('inbox')}?{urlencode(given)}" if given else reverse("inbox"),
        "newest": found.newest,
        "is_empty": not (found.unknown or found.contradicted or pending),
        "wrote_alone": None,
    }
    if context["is_empty"] and not given:
        context["wrote_alone"] = queries.count_unasked(found.now)
    return show(request, "reviewer/inbox.html", context, section="inbox", clock=clock, status=200 if is_valid else 422)


@requires_role(*Person.ROLES)
@require_safe
def fresh(request: HttpRequest) -> HttpResponse:
    """What the inbox asks for by itself: how many plans are new, and how the shown rows stand now. Moves nothing.

    A part, never a page: somebody who opens its address is sent to the inbox.
    """
    request = cast(PersonRequest, request)
    if not request.htmx or request.htmx.history_restore_request:
        return HttpResponseRedirect(reverse("inbox"))
    since = _whole(request.GET.get("since", "")) or 0
    pks = [pk for pk in map(_whole, request.GET.getlist("row")[:MOST_WATCHED]) if pk]
    counts = queries.count_waiting(request.user)
    clock = clock_for(request.user)
    looking = presence.find_others(pks, request.user)
    count = queries.count_waiting(request.user, since=since).to_decide
    context = {
        "arrived": capped(count) if count else "",
        "arrived_count": count,
        "waiting": counts.to_decide,
        "waiting_text": capped(counts.to_decide),
        "unknown_text": capped(counts.unknown) if counts.unknown else "",
        "rows": [row_of(plan, clock, looking.get(plan.pk, ())) for plan in queries.find_states(request.user, pks)],
    }
    return show_part(request, "reviewer/_fresh.html", context)


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
