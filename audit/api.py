"""The log's door for auditors' programs. Who asks was settled before; here only what they may."""

from collections.abc import Callable
from functools import wraps
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from audit.canonical import format_at
from audit.filters import FilterError, parse_search
from audit.problems import refuse
from audit.queries import EventRow, SearchTooLongError, read_event, search_events
from audit.recording import Actor


class ActorAnswer(msgspec.Struct):
    type: str
    id: str
    name: str | None


class EventAnswer(msgspec.Struct):
    """An event as CONTRACT section 3 has it. `data` is spliced in as it was stored: 1.10 stays 1.10.

    `index` and `leaf_hash` are there once the event has its place in the tree.
    """

    id: str
    kind: str
    at: str
    actor: ActorAnswer
    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    operation: str | None
    task_id: str | None
    request_id: str | None
    data: msgspec.Raw
    erased: bool | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET
    leaf_hash: str | msgspec.UnsetType = msgspec.UNSET


class CountAnswer(msgspec.Struct):
    value: int
    exact: bool


class PageAnswer(msgspec.Struct):
    events: list[EventAnswer]
    next_cursor: str | None
    count: CountAnswer


View = Callable[..., HttpResponseBase]


def for_auditors(view: View, methods: tuple[str, ...] = ("GET", "HEAD")) -> View:
    """Lets through a reading by somebody who may read the log; refuses anything else with a problem document."""

    @wraps(view)
    def guarded(request: HttpRequest, **arguments: str) -> HttpResponseBase:
        if request.method not in methods:
            refusal = refuse(request, "method-not-allowed", "The log can be read by GET, and changed by nobody.")
            refusal["Allow"] = ", ".join(methods)
            return refusal
        if not request.user.is_authenticated:
            return refuse(request, "unauthenticated", "Send an auditor's token: Authorization: Bearer <token>.")
        if not request.user.has_perm("audit.view_event"):
            return refuse(request, "forbidden", "Reading the log takes the role of auditor.")
        return view(request, **arguments)

    return csrf_exempt(guarded)  # nobody's browser is signed in here


@for_auditors
def list_events(request: HttpRequest) -> HttpResponse:
    """A page of events. An unknown filter or value is 400; a first page is recorded as audit.read."""
    try:
        search = parse_search(request.GET.lists())
        page = search_events(reader=reader_of(request), search=search, via="api")
    except FilterError as error:
        return refuse(request, "malformed", str(error))
    except SearchTooLongError as error:
        return refuse(request, "unavailable", str(error))
    answer = PageAnswer(
        events=[answer_event(event) for event in page.events],
        next_cursor=page.next_cursor,
        count=CountAnswer(page.count.value, page.count.is_exact),
    )
    return _respond(answer)


@for_auditors
def show_event(request: HttpRequest, event_id: str) -> HttpResponse:
    """One event by its id; recorded as audit.read."""
    if request.GET:
        return refuse(request, "malformed", "One event takes no filters.")
    asked = parse_id(event_id)
    if asked is None:
        return refuse(request, "not-found", "No event has this id.")
    event = read_event(reader=reader_of(request), event_id=asked, via="api")
    if event is None:
        return refuse(request, "not-found", "No event has this id.")
    return _respond(answer_event(event))


def parse_id(text: str) -> UUID | None:
    """The id of that text, or None: UUID() also reads braces and missing hyphens; an event has one address."""
    try:
        asked = UUID(text)
    except ValueError:
        return None
    return asked if str(asked) == text else None


def reader_of(request: HttpRequest) -> Actor:
    """Whoever is signed in, as the log names them."""
    return Actor("person", str(request.user.pk), str(request.user))


def answer_event(event: EventRow) -> EventAnswer:
    """The event as it goes out."""
    return EventAnswer(
        id=event.id,
        kind=event.kind,
        at=format_at(event.at),
        actor=ActorAnswer(event.actor_type, event.actor_id, event.actor_name),
        on_behalf_of=event.on_behalf_of,
        agent=event.agent,
        target=event.target,
        plan_id=event.plan_id,
        operation=event.operation,
        task_id=event.task_id,
        request_id=event.request_id,
        data=msgspec.Raw((event.data or "null").encode()),
        erased=True if event.is_erased else msgspec.UNSET,
        index=msgspec.UNSET if event.index is None else event.index,
        leaf_hash=msgspec.UNSET if event.index is None else event.leaf_hash.hex(),
    )


def _respond(answer: msgspec.Struct) -> HttpResponse:
    return HttpResponse(
        msgspec.json.encode(answer), content_type="application/json", headers={"Cache-Control": "no-store"}
    )
