"""News for agents, for admins: each delivery with its attempts, and one more attempt at a press."""

from typing import Any, cast

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from plans import callbacks as deliveries
from plans import roster
from plans.models import Callback
from reviewer.access import actor_of
from reviewer.admin_forms import CallbacksForm, chosen_plans
from reviewer.moments import Clock
from reviewer.rows import url_of
from reviewer.said import kept_in_words
from reviewer.views import PersonRequest, clock_for
from reviewer.views.admin import Outcome, admin_page, show_admin
from reviewer.words import Badge


@admin_page
def callbacks(request: HttpRequest) -> HttpResponse:
    """The list, the newest first, by filters in the address; a POST has one of them tried again at once."""
    request = cast(PersonRequest, request)
    done, missing = _repeat(request) if request.method == "POST" else (None, False)
    form = CallbacksForm(request.GET)
    given = {name: value for name, value in form.cleaned_data.items() if value} if form.is_valid() else {}
    clock = clock_for(request.user)
    before = next(iter(chosen_plans([request.GET.get("before", "")])), None)
    rows = roster.find_callbacks(**given, before=before, limit=roster.CALLBACKS_PAGE + 1) if form.is_valid() else []
    older = {**given, "before": rows[roster.CALLBACKS_PAGE - 1].pk} if len(rows) > roster.CALLBACKS_PAGE else {}
    context = {
        "form": form,
        "callbacks": [_row(row, clock) for row in rows[: roster.CALLBACKS_PAGE]],
        "done": done,
        "is_filtered": bool(given),
        "is_continued": before is not None,
        "here": request.get_full_path(),
        "newest": _address(given),
        "older": _address(older) if older else "",
    }
    status = 404 if missing else 422 if form.errors else 200
    return show_admin(request, "reviewer/callbacks.html", context, section="callbacks", status=status)


def _repeat(request: PersonRequest) -> tuple[Outcome, bool]:
    """Queue one callback again, and whether there was none of that key."""
    pk = next(iter(chosen_plans([request.POST.get("callback", "")])), 0)
    try:
        callback = deliveries.repeat(callback_pk=pk, by=actor_of(request.user))
    except Callback.DoesNotExist:
        return Outcome(_("There is no such callback"), "", "warn", "warn"), True
    text = _("%(kind)s to %(agent)s is tried again within seconds, under the same id. Reload to see the attempt.")
    return Outcome(_("Queued again"), text % {"kind": callback.kind, "agent": callback.agent.name}), False


def _row(callback: Callback, clock: Clock) -> dict[str, Any]:
    tries = [
        {
            "at": clock.at(attempt.tried_at, exact=True),
            "detail": kept_in_words(attempt.detail),
            "is_delivered": attempt.is_delivered,
        }
        for attempt in sorted(callback.tries.all(), key=lambda attempt: attempt.pk)
    ]
    return {
        "callback": callback,
        "badge": badge_of(callback),
        "url": url_of(callback.agent.name, callback.plan.target.name, callback.plan.plan_id),
        "queued": clock.at(callback.queued_at),
        "next": clock.at(callback.next_try_at),
        "tries": tries,
        "may_repeat": callback.agent.disabled_at is None and bool(callback.agent.callback_url),
    }


def badge_of(callback: Callback) -> Badge:
    """How far a callback has come."""
    if callback.delivered_at is not None:
        return Badge("ok", "check", _("Delivered"))
    if callback.gave_up_at is not None:
        return Badge("bad", "x", _("Given up"))
    return Badge("warn", "refresh", _("Failing")) if callback.try_count else Badge("info", "clock", _("Waiting"))


def _address(query: dict[str, Any]) -> str:
    return f"{reverse('callbacks')}?{urlencode(query)}" if query else reverse("callbacks")
