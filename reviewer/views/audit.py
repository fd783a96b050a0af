"""The log as a list, for auditors: the same search as the API, which is recorded, once a search."""

from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from audit.filters import FilterError, Search, parse_search
from audit.kinds import Kind
from audit.queries import EventRow, SearchTooLongError, search_events
from reviewer.access import actor_of, requires_role
from reviewer.moments import Clock
from reviewer.rows import url_of
from reviewer.views import PersonRequest, clock_for, show

PAGE = 50
TEXT_FILTERS = ("agent", "target", "plan_id", "operation", "task_id", "actor", "from", "to", "q")


@requires_role("auditor")
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """A page of events, newest first. What cannot be asked for is said (422), never answered with an empty list."""
    request = cast(PersonRequest, request)
    clock = clock_for(request.user)
    given = {name: values for name, values in request.GET.lists() if any(value.strip() for value in values)}
    context: dict[str, Any] = {
        "kinds": [kind.value for kind in Kind],
        "kind": request.GET.get("kind", ""),
        "given": {name: request.GET.get(name, "") for name in TEXT_FILTERS},
        "is_continued": "cursor" in given,
        "newest": reverse("audit"),
    }
    status = 200
    try:
        asked = parse_search(given.items(), is_form=True)
        search = Search(asked.filters, "desc", PAGE, asked.cursor)
        found = search_events(reader=actor_of(request.user), search=search, via="page")
    except (FilterError, SearchTooLongError) as error:
        status, context["problem"] = 422, str(error)
    else:
        rest = [(name, value) for name, values in given.items() if name != "cursor" for value in values]
        context |= {
            "events": [_event(event, clock) for event in found.events],
            "count": found.count,
            "older": _address([*rest, ("cursor", found.next_cursor)]) if found.next_cursor else "",
            "newest": _address(rest),
            "is_filtered": bool(rest),
        }
    return show(request, "reviewer/audit.html", context, section="audit", clock=clock, status=status)


def _event(event: EventRow, clock: Clock) -> dict[str, Any]:
    has_page = event.agent and event.target and event.plan_id
    return {
        "id": event.id,
        "kind": event.kind,
        "at": clock.at(event.at, exact=True),
        "who": event.actor_name or event.actor_id,
        "actor": f"{event.actor_type}:{event.actor_id}",
        "event": event,
        "url": url_of(str(event.agent), str(event.target), str(event.plan_id)) if has_page else "",
    }


def _address(query: list[tuple[str, str]]) -> str:
    return f"{reverse('audit')}?{urlencode(query)}" if query else reverse("audit")
