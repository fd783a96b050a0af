"""The page on which people say how they want to be told, and the two scripts of web push."""

import base64
from typing import Any, cast

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from reviewer.access import requires_role
from reviewer.models import Person
from reviewer.moments import Clock, zone_of
from reviewer.notifications import changing, sealed, sending
from reviewer.notifications.changing import CannotChange
from reviewer.notifications.forms import ChatForm, EscalationForm, PreferenceForm, PushForm
from reviewer.notifications.models import Channel, Escalation, Preference
from reviewer.notifications.routing import is_away, may_stand_in, preference_of
from reviewer.notifications.transports import NotDelivered
from reviewer.said import in_words
from reviewer.views import PersonRequest, clock_for, show
from reviewer.views.admin import Outcome, sent
from reviewer.words import Badge

FAILING_SHOWN = 50


@requires_role("reviewer", "admin")
@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponse:
    """How whoever asks is told. Every press answers with the page and what became of it."""
    request = cast(PersonRequest, request)
    with timezone.override(zone_of(request.user.time_zone)):
        preference = preference_of(request.user)
        forms = _forms(request, preference)
        done, status = _pressed(request, forms, preference) if request.method == "POST" else (None, 200)
        failed = any(form.is_bound and form.errors for form in forms.values())
        if not failed:
            preference = preference_of(request.user)
            forms = _forms(request, preference, is_sent=False)
        return _page(request, forms, preference, done, 422 if failed else status)


@require_safe
def push_script(request: HttpRequest) -> HttpResponse:
    """The page's script, which subscribes this browser. Holds nothing about anybody."""
    return HttpResponse(render_to_string("notifications/push.js"), content_type="text/javascript; charset=utf-8")


@require_safe
def worker_script(request: HttpRequest) -> HttpResponse:
    """The service worker: shows what was pushed, and opens its page. It reads no page and answers no request."""
    return HttpResponse(render_to_string("notifications/worker.js"), content_type="text/javascript; charset=utf-8")


def _forms(request: PersonRequest, preference: Preference, *, is_sent: bool = True) -> dict[str, Any]:
    def data(do: str) -> Any:
        return sent(request, do) if is_sent else None

    paces = changing.paces_of(request.user)
    forms: dict[str, Any] = {
        "save": PreferenceForm(data("save"), person=request.user, preference=preference, paces=paces),
        "chat": ChatForm(data("chat")),
        "push": PushForm(data("push")),
    }
    if "admin" in request.user.roles:
        named = Escalation.objects.filter(pk=1).values_list("person_id", flat=True).first()
        forms["escalation"] = EscalationForm(data("escalation"), named=named, prefix_of_ids="hears-")
    return forms


def _pressed(request: PersonRequest, forms: dict[str, Any], preference: Preference) -> tuple[Outcome | None, int]:
    """Carry out what was pressed; a refusal is said at its form, or above the page where it has none."""
    do = request.POST.get("do", "")
    if do in ("test", "on", "off", "remove"):
        return _press_channel(request, do)
    form = forms.get(do)
    if form is None:
        raise Http404
    if not form.is_valid():
        return None, 422
    try:
        return _change(request, do, form, preference), 200
    except CannotChange as refused:
        form.refuse(refused, next(iter(form.fields)) if do in ("chat", "escalation") else None)
        return None, 422


def _change(request: PersonRequest, do: str, form: Any, preference: Preference) -> Outcome:
    person = request.user
    match do:
        case "save":
            changing.save_preference(person=person, values=form.values(preference), paces=form.paces())
            return Outcome(_("Saved"))
        case "chat":
            channel = changing.add_chat(person=person, address=form.cleaned_data["address"])
            return Outcome(_("The channel is added"), _("Send yourself a test: %(label)s") % {"label": channel.label})
        case "push":
            browser = request.headers.get("User-Agent", "")
            channel = changing.add_push(person=person, **form.cleaned_data, browser=browser)
            return Outcome(_("This browser is told from now on"), channel.label)
        case _:
            changing.name_escalation(by=person, person=form.named())
            return Outcome(_("Saved"))


def _press_channel(request: PersonRequest, do: str) -> tuple[Outcome, int]:
    number = request.POST.get("channel", "")
    pk = int(number) if number.isascii() and number.isdigit() and len(number) < 19 else 0
    try:
        if do == "test":
            return _test(changing.get_own_channel(request.user, pk))
        if do == "remove":
            channel = changing.remove_channel(person=request.user, pk=pk)
            return Outcome(_("The channel is removed"), channel.label), 200
        channel = changing.switch_channel(person=request.user, pk=pk, is_on=do == "on")
        return Outcome(_("The channel is on") if channel.is_on else _("The channel is off"), channel.label), 200
    except Channel.DoesNotExist:
        return Outcome(_("There is no such channel any more"), css="warn", icon="warn"), 404
    except CannotChange as refused:
        return Outcome(_("Nothing was changed"), in_words(refused.args[0]), css="warn", icon="warn"), 409


def _test(channel: Channel) -> tuple[Outcome, int]:
    try:
        sending.send_test(channel)
    except NotDelivered as failure:
        return Outcome(_("The test did not get out"), in_words(failure.sentence), css="bad", icon="x"), 200
    return Outcome(
        _("The test is sent"), _("If it does not arrive, look where %(label)s keeps it.") % {"label": channel.label}
    ), 200


def _page(
    request: PersonRequest, forms: dict[str, Any], preference: Preference, done: Outcome | None, status: int
) -> HttpResponse:
    clock = clock_for(request.user)
    failed = next((form for form in forms.values() if form.is_bound and form.errors), None)
    stand_in = preference.stand_in
    kinds = [Channel.EMAIL, Channel.PUSH, Channel.CHAT]
    own = sorted(Channel.objects.filter(person=request.user).order_by("pk"), key=lambda one: kinds.index(one.kind))
    is_admin = "admin" in request.user.roles
    context = {
        "forms": forms,
        "form": failed,
        "done": done,
        "channels": [_row(channel, clock) for channel in own],
        "vapid": base64.urlsafe_b64encode(sealed.vapid_public_key()).decode().rstrip("="),
        "is_away": is_away(preference, clock.now),
        "away_until": clock.at(preference.away_until),
        "stand_in": stand_in,
        "stand_in_cannot": stand_in is not None and not may_stand_in(stand_in, request.user),
        "zone": zone_of(request.user.time_zone).key.replace("_", " "),
        "failing": _failing(clock) if is_admin else [],
    }
    return show(request, "notifications/settings.html", context, section="settings", clock=clock, status=status)


def _failing(clock: Clock) -> list[dict[str, Any]]:
    """Channels of anybody that fail now, for admins: whose, since when, and why; never where to."""
    rows: QuerySet[Channel] = Channel.objects.filter(failing_since__isnull=False, person__is_active=True)
    return [_row(channel, clock) for channel in rows.select_related("person").order_by("failing_since")[:FAILING_SHOWN]]


def _row(channel: Channel, clock: Clock) -> dict[str, Any]:
    names = {Channel.EMAIL: _("E-mail"), Channel.CHAT: _("Chat"), Channel.PUSH: _("Browser")}
    person: Person = channel.person
    is_missing = channel.kind == Channel.EMAIL and not settings.EMAIL_HOST
    if is_missing:
        badge = Badge("mute", "hold", _("Not set up"))
    elif not channel.is_on:
        badge = Badge("mute", "hold", _("Off"))
    elif channel.failing_since is not None:
        badge = Badge("bad", "warn", _("Fails"))
    else:
        badge = Badge("ok", "check", _("On"))
    return {
        "channel": channel,
        "person": person,
        "kind": names[channel.kind],
        "label": person.email if channel.kind == Channel.EMAIL else channel.label,
        "badge": badge,
        "is_missing": is_missing,
        "sent": clock.at(channel.last_sent_at),
        "failing": clock.at(channel.failing_since),
        "is_removable": channel.kind != Channel.EMAIL,
    }
