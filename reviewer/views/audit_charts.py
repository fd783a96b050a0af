"""The charts' page; its numbers are one reading of the log, and recorded as one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from audit.canonical import format_at
from audit.charts import read_numbers, span_of
from audit.filters import FilterError, Filters, parse_search
from audit.kinds import Kind
from audit.recording import Payload, record
from audit.windows import TakesTooLongError
from reviewer.access import actor_of, requires_role
from reviewer.audit_charts import charts_of
from reviewer.audit_search import address_of, spell_instant
from reviewer.moments import Clock
from reviewer.views import PersonRequest, clock_for, show

SPANS = [("7", _("7 days")), ("30", _("30 days")), ("90", _("90 days"))]
FIELDS = [("agent", _("Agent")), ("target", _("Target")), ("operation", _("Operation"))]
KNOWN = ("days", "from", "to", *(name for name, _label in FIELDS))


@requires_role("auditor")
@require_safe
def charts(request: HttpRequest) -> HttpResponse:
    """Six charts of the days asked for, 30 unless told otherwise; 422 for what cannot be drawn."""
    request = cast(PersonRequest, request)
    clock = clock_for(request.user)
    given = {name: request.GET.get(name, "").strip() for name in KNOWN}
    given["days"] = given["days"] or ("" if given["from"] else "30")
    context: dict[str, Any] = {
        "given": given,
        "fields": [(name, label, given[name]) for name, label in FIELDS],
        "spans": SPANS,
    }
    status = 200
    try:
        filters = _read(request, given, clock)
        numbers = read_numbers(filters)
    except (FilterError, TakesTooLongError, ValueError) as error:
        status, context["problem"] = 422, str(error)
    else:
        with transaction.atomic(durable=True):
            data: dict[str, Payload] = {"via": "page", "charts": True, "filters": filters.as_data()}
            record(Kind.AUDIT_READ, actor=actor_of(request.user), data=data)
        context |= {"charts": charts_of(numbers, clock), "search": _search(filters)}
        context["since"], context["until"] = clock.at(filters.from_at), clock.at(filters.to_at)
    return show(request, "reviewer/audit_charts.html", context, section="audit", clock=clock, status=status)


def _read(request: HttpRequest, given: dict[str, str], clock: Clock) -> Filters:
    unknown = set(request.GET) - set(KNOWN)
    if unknown:
        raise FilterError(f"There is no filter {min(unknown)[:64]!r} of charts. There are: {', '.join(KNOWN)}.")
    lists = [(name, [spell_instant(given[name]) if name in ("from", "to") else given[name]])
             for name in KNOWN if name != "days" and given[name]]  # fmt: skip
    filters = parse_search(lists).filters
    if filters.from_at is None:
        if given["days"] not in dict(SPANS):
            raise FilterError(f"The filter days is one of {', '.join(days for days, _label in SPANS)}.")
        since, until = span_of(filters.to_at or clock.now, int(given["days"]))
        return replace(filters, from_at=since, to_at=until)
    return replace(filters, to_at=filters.to_at or clock.now + timedelta(seconds=1))


def _search(filters: Filters) -> str:
    assert filters.from_at is not None
    assert filters.to_at is not None
    named = [(name, getattr(filters, name)) for name, _label in FIELDS if getattr(filters, name)]
    return address_of([*named, ("from", format_at(filters.from_at)), ("to", format_at(filters.to_at))])
