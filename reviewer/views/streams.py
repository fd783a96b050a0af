"""Streams, for admins: where the log is sent on to, how far each destination has come, its pause and its end."""

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from audit.proofs import read_size
from audit.recording import Actor
from plans.registry_rules import RegistryError
from reviewer.access import actor_of
from reviewer.admin_forms import NewStreamForm, TypedNameForm
from reviewer.moments import Clock
from reviewer.said import in_words
from reviewer.streams.changing import BeyondTheLog, StreamRefused, create_stream, remove_stream, switch_stream
from reviewer.streams.models import Stream
from reviewer.streams.sending import Lag, lag_of
from reviewer.views import PersonRequest, clock_for
from reviewer.views.admin import Outcome, Secret, admin_page, sent, show_admin
from reviewer.words import Badge

PAGE = 50


@admin_page
def streams(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes a destination, and answers with its page and its secret, this once."""
    request = cast(PersonRequest, request)
    form = NewStreamForm(sent(request, "create"), prefix_of_ids="new-", size=read_size())
    if form.is_bound and form.is_valid():
        try:
            stream, secret = create_stream(by=actor_of(request.user), **form.cleaned_data)
        except RegistryError as error:
            form.refuse(error, "url")
        except StreamRefused as error:
            form.refuse(error, "from_index" if isinstance(error, BeyondTheLog) else "name")
        else:
            text = _("Copy it now: it is shown this once, and only a sealed copy is kept.")
            hint = _("The destination checks the signature of every delivery with it.")
            shown = Secret("stream-secret", _("Signing secret"), secret.reveal(), hint)
            done = Outcome(_("The destination is made"), text, secrets=(shown,))
            return _stream_page(request, stream, done, status=201)
    return _list_page(request, form=form, status=422 if form.errors else 200)


@admin_page
def stream(request: HttpRequest, name: str) -> HttpResponse:
    """One destination; a POST does what its `do` names. Where it removed it, the answer is the list without it."""
    request = cast(PersonRequest, request)
    found = Stream.objects.filter(name=name).first()
    if found is None:
        raise Http404
    removing = TypedNameForm(sent(request, "remove"), name=name, prefix_of_ids="end-")
    do, by = request.POST.get("do", ""), actor_of(request.user)
    try:
        if do == "remove" and removing.is_valid():
            remove_stream(name=name, by=by)
            text = _("%(name)s is sent nothing any more; its secret and its place in the log are forgotten.")
            return _list_page(request, done=Outcome(_("The destination is removed"), text % {"name": name}))
        done = _switch(name, do, by)
    except StreamRefused as error:
        return _list_page(request, done=_unchanged(error), status=409)
    failed = removing if removing.errors else None
    found.refresh_from_db()
    return _stream_page(request, found, done, failed=failed, status=422 if failed else 200)


def _switch(name: str, do: str, by: Actor) -> Outcome | None:
    """Pause or resume, where that was pressed. Raises StreamRefused."""
    match do:
        case "pause":
            switch_stream(name=name, is_paused=True, by=by)
            return Outcome(_("The destination is paused"), _("It keeps its place: nothing is left out."))
        case "resume":
            switch_stream(name=name, is_paused=False, by=by)
            return Outcome(_("The destination is sent to again"), _("From where it stopped, within seconds."))
    return None


def _unchanged(error: StreamRefused) -> Outcome:
    return Outcome(_("Nothing was changed"), in_words(error.args[0]), "warn", "warn")


def _list_page(
    request: PersonRequest, *, form: NewStreamForm | None = None, done: Outcome | None = None, status: int = 200
) -> HttpResponse:
    clock = clock_for(request.user)
    after = request.GET.get("after", "")
    rows = list(Stream.objects.filter(name__gt=after).order_by("name")[: PAGE + 1])
    size = read_size()
    context = {
        "form": form or NewStreamForm(prefix_of_ids="new-", size=size),
        "size": size,
        "streams": [_row(row, clock) for row in rows[:PAGE]],
        "more": f"{reverse('streams')}?after={rows[PAGE - 1].name}" if len(rows) > PAGE else "",
        "done": done,
    }
    return show_admin(request, "reviewer/streams.html", context, section="streams", status=status)


def _stream_page(
    request: PersonRequest,
    stream: Stream,
    done: Outcome | None,
    *,
    failed: TypedNameForm | None = None,
    status: int = 200,
) -> HttpResponse:
    clock = clock_for(request.user)
    context = _row(stream, clock) | {
        "created": clock.at(stream.created_at),
        "next_try": clock.at(stream.next_try_at) if stream.failures and not stream.is_paused else None,
        "done": done,
        "form": failed,
        "disabling": failed or TypedNameForm(name=stream.name, prefix_of_ids="end-"),
    }
    return show_admin(request, "reviewer/stream.html", context, section="streams", status=status)


def _row(stream: Stream, clock: Clock) -> dict[str, Any]:
    lag = lag_of(stream)
    return {
        "stream": stream,
        "url": reverse("stream", args=[stream.name]),
        "badge": _badge(stream, lag),
        "behind": lag.events,
        "since": clock.at(lag.since) if lag.events else None,
        "delivered": clock.at(stream.delivered_at),
    }


def _badge(stream: Stream, lag: Lag) -> Badge:
    """How a destination is doing."""
    if stream.is_paused:
        return Badge("mute", "hold", _("Paused"))
    if stream.last_error:
        return Badge("bad", "x", _("Failing"))
    return Badge("info", "refresh", _("Catching up")) if lag.events else Badge("ok", "check", _("Up to date"))
