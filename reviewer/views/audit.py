"""The log as auditors search it: every filter in the address, facets, a histogram, the events; one read a search."""

from collections.abc import Callable
from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from audit.canonical import format_at
from audit.facets import DIMENSIONS, Facets, count_facets
from audit.filters import FilterError, Filters, Search, parse_search
from audit.histogram import Histogram, draw_histogram
from audit.kinds import Kind
from audit.queries import Count, Page, SearchTooLongError, search_events
from audit.windows import TakesTooLongError
from audit.words import looking_once
from reviewer import audit_presets
from reviewer.access import actor_of, requires_role
from reviewer.audit_drawing import draw_bars
from reviewer.audit_rows import line_of, words_of
from reviewer.audit_search import KEYS, LAST_CHOICES, OUTCOME_CHOICES, Asked, address_of, label_of, read_asked, value_of
from reviewer.models import SavedSearch
from reviewer.moments import Clock
from reviewer.views import PersonRequest, clock_for, show

PAGE = 50
FIELDS = ("agent", "target", "operation", "plan_id", "task_id", "actor")


@requires_role("auditor")
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """A page of events, newest first. What cannot be asked for is said (422), never answered with an empty list."""
    request = cast(PersonRequest, request)
    asked = read_asked(request.GET)
    if not asked.is_canonical:
        return redirect(address_of(asked.pairs, cursor=asked.cursor))
    clock = clock_for(request.user)
    context = _form(asked)
    status = 200
    try:
        search = parse_search(asked.lists(clock.now))
        search = Search(search.filters, "desc", PAGE, search.cursor)
        with looking_once():
            # Before the reading is an event, so that what stands around the list counts what the list does.
            around = {} if request.htmx else _around(search.filters, asked, clock)
            found = search_events(reader=actor_of(request.user), search=search, via="page")
            context |= _found(found, search.filters, asked, clock) | around
    except (FilterError, SearchTooLongError) as error:
        status, context["problem"] = 422, str(error)
    context |= {
        "saved": SavedSearch.objects.filter(person=request.user).order_by("name", "pk"),
        "saved_name": asked.query and _suggest_name(asked),
    }
    return show(request, "reviewer/audit.html", context, section="audit", clock=clock, status=status)


def _form(asked: Asked) -> dict[str, Any]:
    titles = audit_presets.titles()
    preset = asked.given("preset")
    return {
        "asked": asked,
        "given": {name: asked.given(name) for name in ("q", "last", "from", "to", "preset", *FIELDS)},
        "kinds": asked.all("kind"),
        "kind_groups": _kind_groups(asked.all("kind")),
        "last_choices": LAST_CHOICES,
        "outcomes": asked.all("outcome"),
        "outcome_choices": OUTCOME_CHOICES,
        "text_fields": [(name, label_of(name), asked.given(name)) for name in FIELDS],
        "has_text_fields": any(asked.given(name) for name in (*FIELDS, "from", "to")),
        "presets": [(name, title, address_of([("preset", name)]), name == preset) for name, title in titles.items()],
        "preset_title": titles.get(preset, ""),
        "preset_meaning": audit_presets.MEANINGS.get(preset, ""),
        "tags": [
            (label_of(name), value_of(name, value, titles), address_of(asked.without(name, value)))
            for name, value in asked.pairs
        ],
        "unknown_keys": asked.unknown_keys,
        "unknown_text": ", ".join(asked.unknown_keys),
        "known_keys": KEYS,
        "is_continued": bool(asked.cursor),
        "newest": address_of(asked.pairs),
        "export_query": asked.query,
    }


def _kind_groups(chosen: list[str]) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """The kinds in families, for a select; several chosen at once stay as hidden fields instead."""
    families: dict[str, list[tuple[str, str, bool]]] = {}
    for kind in Kind:
        choice = (kind.value, words_of(kind), chosen == [kind.value])
        families.setdefault(kind.value.partition(".")[0], []).append(choice)
    return list(families.items())


def _found(found: Page, filters: Filters, asked: Asked, clock: Clock) -> dict[str, Any]:
    # What is counted back from now would be another search a moment later, and a cursor belongs to one search.
    pairs = asked.pairs
    if asked.given("last") and filters.from_at:
        pairs = (*asked.without("last"), ("from", format_at(filters.from_at)))
    return {
        "has_readings": bool(filters.words) and any(event.kind == Kind.AUDIT_READ for event in found.events),
        "events": [line_of(event, clock) for event in found.events],
        "count": found.count,
        "count_text": count_text(found.count),
        "older": address_of(pairs, cursor=found.next_cursor) if found.next_cursor else "",
    }


def count_text(count: Count) -> str:
    """A count as people read it: exact, or with a plus where there may be more."""
    return f"{count.value:,}" if count.is_exact else f"{count.value:,}+"


def _around(filters: Filters, asked: Asked, clock: Clock) -> dict[str, Any]:
    """What stands around the list: what the answer says in numbers, histogram, facets; each may be late alone."""
    readings: dict[str, Callable[[], Any]] = {
        "table": lambda: audit_presets.table_of(filters, clock),
        "histogram": lambda: _histogram(draw_histogram(filters, now=clock.now), asked, clock),
        "facets": lambda: _facets(count_facets(filters), asked),
    }
    around: dict[str, Any] = {}
    for name, read in readings.items():
        try:
            around[name] = read()
        except TakesTooLongError as error:
            around["slow"] = str(error)
    return around


def _histogram(histogram: Histogram | None, asked: Asked, clock: Clock) -> dict[str, Any] | None:
    if histogram is None:
        return None
    links = [address_of(asked.between(bar.start, bar.end)) for bar in histogram.bars]
    return draw_bars(histogram, links, clock)


def _facets(facets: Facets, asked: Asked) -> dict[str, Any]:
    labels = {"kind": _("Event"), "agent": _("Agent"), "target": _("Target"), "operation": _("Operation"),
              "actor": _("Actor")}  # fmt: skip
    plus = "" if facets.is_exact else "+"
    groups = []
    for name in DIMENSIONS:
        values = []
        for facet in facets.values[name]:
            is_on = facet.value in asked.all(name)
            pairs = asked.without(name, facet.value) if is_on else asked.with_one(name, facet.value)
            values.append((facet.value, f"{facet.count:,}{plus}", address_of(pairs), is_on))
        if values:
            groups.append((name, labels[name], values, facets.more.get(name, 0)))
    return {"groups": groups, "is_exact": facets.is_exact, "seen": f"{facets.seen:,}"}


def _suggest_name(asked: Asked) -> str:
    titles = audit_presets.titles()
    return " · ".join(value_of(name, value, titles) for name, value in asked.pairs)[:80]
