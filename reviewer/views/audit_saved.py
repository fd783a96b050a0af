"""Saved searches: a name and a link that stays. Every auditor may open the link; its owner renames and deletes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.filters import FilterError, parse_search
from audit.kinds import Kind
from audit.recording import record
from reviewer import audit_presets
from reviewer.access import actor_of, requires_role
from reviewer.audit_search import address_of, label_of, pairs_of, read_asked, value_of
from reviewer.models import Person, SavedSearch
from reviewer.moments import Clock
from reviewer.views import PersonRequest, clock_for, show

MAX_SAVED = 200


class SavedSearchError(Exception):
    """Why a search is not saved or renamed: one sentence."""


@requires_role("auditor")
@require_http_methods(["GET", "HEAD", "POST"])
def saved(request: HttpRequest) -> HttpResponse:
    """The person's saved searches; POST saves one more and shows it among them."""
    request = cast(PersonRequest, request)
    clock = clock_for(request.user)
    if request.method != "POST":
        return _list(request, clock)
    try:
        save_search(request.user, request.POST.get("name", ""), request.POST.get("query", ""), clock)
    except SavedSearchError as error:
        given = {"name": request.POST.get("name", ""), "query": request.POST.get("query", "")}
        return _list(request, clock, problem=str(error), given=given, status=422)
    return redirect("audit-saved")


@requires_role("auditor")
@require_safe
def saved_search(request: HttpRequest, pk: UUID) -> HttpResponse:
    """The link that stays: it leads to the search as it is saved now."""
    return redirect(address_of(pairs_of(_get(pk).query)))


@requires_role("auditor")
@require_POST
def change_saved(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Renames or deletes (`action=delete`) one's own saved search."""
    request = cast(PersonRequest, request)
    one = _get(pk)
    if one.person_id != request.user.pk:
        raise PermissionDenied("Only who saved a search changes it.")
    try:
        if request.POST.get("action") == "delete":
            _delete(one)
        else:
            _rename(one, request.POST.get("name", ""))
    except SavedSearchError as error:
        typed = {"pk": one.pk, "name": request.POST.get("name", "")}
        return _list(request, clock_for(request.user), problem=str(error), renaming=typed, status=422)
    return redirect("audit-saved")


def save_search(person: Person, name: str, query: str, clock: Clock) -> SavedSearch:
    """Saves it, with its event. Refuses a name that is blank, too long or taken, and a search that cannot be asked."""
    asked = read_asked(QueryDict(query))
    try:
        parse_search(asked.lists(clock.now))
    except FilterError as error:
        raise SavedSearchError(str(error)) from error
    if len(asked.query) > SavedSearch.MAX_QUERY:
        raise SavedSearchError(_("The search is too long to be saved."))
    if SavedSearch.objects.filter(person=person).count() >= MAX_SAVED:
        raise SavedSearchError(_("%(count)d searches are saved already: delete one first.") % {"count": MAX_SAVED})
    one = SavedSearch(person=person, name=_checked(name), query=asked.query)
    with _named_once(), transaction.atomic(durable=True):
        one.save(force_insert=True)
        _tell(one, "saved")
    return one


def _locked(one: SavedSearch) -> SavedSearch:
    """As it is now, and stays; 404 where it was deleted meanwhile."""
    found = SavedSearch.objects.select_for_update(of=("self",)).select_related("person").filter(pk=one.pk).first()
    if found is None:
        raise Http404
    return found


def _rename(one: SavedSearch, name: str) -> None:
    wanted = _checked(name)
    with _named_once(), transaction.atomic(durable=True):
        one = _locked(one)
        if one.name == wanted:
            return
        one.name = wanted
        one.save(update_fields=["name"])
        _tell(one, "renamed")


def _delete(one: SavedSearch) -> None:
    with transaction.atomic(durable=True):
        one = _locked(one)
        _tell(one, "deleted")
        one.delete()


@contextmanager
def _named_once() -> Iterator[None]:
    """A name that the database refuses is said in words."""
    try:
        yield
    except IntegrityError as error:
        if "reviewer_saved_search_name_is_unique" not in str(error):
            raise
        raise SavedSearchError(_("You have a saved search of that name already.")) from error


def _checked(name: str) -> str:
    name = " ".join(name.split())
    if not name or not name.isprintable():
        raise SavedSearchError(_("Give the search a name."))
    if len(name) > 80:
        raise SavedSearchError(_("A name has at most 80 characters."))
    return name


def _tell(one: SavedSearch, change: str) -> None:
    """Which one, by its id: this event is never erased, and what a search is called and asks for may name a person."""
    data = {"change": f"search_{change}", "search": str(one.pk)}
    record(Kind.LOG_CHANGED, actor=actor_of(one.person), data=data)


def _get(pk: UUID) -> SavedSearch:
    found = SavedSearch.objects.select_related("person").filter(pk=pk).first()
    if found is None:
        raise Http404
    return found


def _list(request: PersonRequest, clock: Clock, *, status: int = 200, **context: Any) -> HttpResponse:
    titles = audit_presets.titles()
    rows = [
        {
            "one": one,
            "url": reverse("audit-saved-search", args=[one.pk]),
            "link": request.build_absolute_uri(reverse("audit-saved-search", args=[one.pk])),
            "filters": [(label_of(name), value_of(name, value, titles)) for name, value in pairs_of(one.query)],
            "made": clock.at(one.created_at),
        }
        for one in SavedSearch.objects.filter(person=request.user).order_by("name", "pk")
    ]
    return show(
        request, "reviewer/audit_saved.html", {"rows": rows, **context}, section="audit", clock=clock, status=status
    )
