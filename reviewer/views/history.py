"""Every plan there ever was, by filters that stand in the address, so that a link stays."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from plans import queries
from plans.queries import HistoryFilters
from reviewer.access import requires_role
from reviewer.forms import HistoryForm
from reviewer.models import Person
from reviewer.rows import row_of
from reviewer.views import PersonRequest, clock_for, show
from reviewer.views.inbox import read_key, write_key


@requires_role(*Person.ROLES)
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """A page of plans, newest first; an unknown value of a filter is said, never answered with an empty list."""
    request = cast(PersonRequest, request)
    form = HistoryForm(request.GET)
    is_valid = form.is_valid()
    cleaned = {name: value for name, value in form.cleaned_data.items() if value} if is_valid else {}
    given = {name: value.isoformat() if isinstance(value, date) else value for name, value in cleaned.items()}
    filters = _filters(cleaned)
    found = queries.find_history(request.user, filters, before=read_key(request.GET.get("before", "")))
    clock = clock_for(request.user, found.now)
    context = {
        "form": form,
        "rows": [row_of(plan, clock) for plan in found.rows] if is_valid else [],
        "applied": [(form.fields[name].label, _value(form, name, value), _without(given, name))
                    for name, value in given.items()],
        "older": _address({**given, "before": write_key(found.next_key)}) if found.next_key and is_valid else "",
        "is_continued": bool(request.GET.get("before")),
        "newest": _address(given),
    }  # fmt: skip
    return show(
        request, "reviewer/history.html", context, section="history", clock=clock, status=200 if is_valid else 422
    )


def _filters(cleaned: dict[str, Any]) -> HistoryFilters:
    """Days are UTC's, and the last one is meant whole."""
    names = {"q": "text", "by": "decided_by"}
    values = {names.get(name, name): value for name, value in cleaned.items()}
    if "since" in values:
        values["since"] = datetime.combine(values["since"], time(), UTC)
    if "until" in values:
        values["until"] = datetime.combine(values["until"], time(), UTC) + timedelta(days=1)
    if "decided_by" in values:
        values["decided_by"] = int(values["decided_by"])
    return HistoryFilters(**values)


def _value(form: HistoryForm, name: str, value: str) -> str:
    choices = getattr(form.fields[name], "choices", None)
    return str(dict(choices).get(value, value)) if choices else value


def _without(given: dict[str, str], name: str) -> str:
    return _address({other: value for other, value in given.items() if other != name})


def _address(query: dict[str, str]) -> str:
    return f"{reverse('history')}?{urlencode(query)}" if query else reverse("history")
