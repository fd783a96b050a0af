"""How the desk looks and listens to one person, their password, and how fast they have decided."""

from typing import Any, Final, cast

from allauth.core import ratelimit
from django.contrib.auth import update_session_auth_hash
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from plans import pace
from reviewer import people, speed
from reviewer.access import actor_of, is_page_here, requires_sign_in
from reviewer.forms import PasswordForm, SettingsForm
from reviewer.models import Person
from reviewer.people import PersonError
from reviewer.said import in_words
from reviewer.views import PersonRequest, clock_for, show

TIME_FIRST: Final = {"utc": False, "local": True}


@requires_sign_in
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """Zone, theme, order of times and single keys of whoever asks; saved, they show at once."""
    request = cast(PersonRequest, request)
    form = SettingsForm(request.POST or None, instance=request.user)
    if request.method == "POST" and form.is_valid():
        request.user.save(update_fields=list(form.cleaned_data))
        return HttpResponseRedirect(f"{reverse('settings')}?saved=1")
    status = 422 if form.errors else 200
    if form.errors:
        request.user.refresh_from_db()
    return _page(request, form=form, status=status)


@requires_sign_in
@require_POST
def look(request: HttpRequest) -> HttpResponse:
    """Keep a theme or the order of times for whoever asks. A script gets nothing (204), a browser its page again."""
    person = cast(PersonRequest, request).user
    theme, first = request.POST.get("theme", ""), request.POST.get("time_first", "")
    if theme in Person.THEMES:
        person.theme = theme
        person.save(update_fields=["theme"])
    if first in TIME_FIRST:
        person.is_local_time_first = TIME_FIRST[first]
        person.save(update_fields=["is_local_time_first"])
    if "X-Requested-With" in request.headers:
        return HttpResponse(status=204 if theme in Person.THEMES or first in TIME_FIRST else 422)
    back = request.POST.get("next", "")
    return HttpResponseRedirect(back if is_page_here(back) else reverse("inbox"))


@requires_sign_in
@require_POST
def password(request: HttpRequest) -> HttpResponse:
    """A new password by whoever knows the old one. Their other sessions end; this one goes on.

    Five tries in five minutes with a wrong old one, then 429: a session left open is no place to guess at it.
    """
    request = cast(PersonRequest, request)
    form = PasswordForm(request.POST, person=request.user)
    # Counted before it is looked at, so that guesses that come at once count too.
    if not ratelimit.consume(request, action="present_password", user=request.user):
        return _page(request, password_form=form.refuse_tries(), status=429)
    is_valid = form.is_valid()
    if "present" in form.cleaned_data:
        ratelimit.clear(request, action="present_password", user=request.user)
    if not is_valid:
        return _page(request, password_form=form, status=422)
    try:
        changed = people.set_password(
            email=request.user.email,
            password=form.cleaned_data["new"],
            present=form.cleaned_data["present"],
            by=actor_of(request.user),
        )
    except PersonError as error:
        form.add_error("new", in_words(error.args[0]))
        return _page(request, password_form=form, status=422)
    update_session_auth_hash(request, changed)
    return HttpResponseRedirect(f"{reverse('settings')}?saved=password")


def _page(
    request: PersonRequest,
    *,
    form: SettingsForm | None = None,
    password_form: PasswordForm | None = None,
    status: int = 200,
) -> HttpResponse:
    context: dict[str, Any] = {
        "form": form or SettingsForm(instance=request.user),
        "password_form": password_form or PasswordForm(person=request.user),
        "saved": request.GET.get("saved", ""),
        "pace": speed.own_line(pace.find_own_pace(request.user.pk)) if request.user.is_reviewer else None,
    }
    clock = clock_for(request.user)
    return show(request, "reviewer/settings.html", context, section="settings", clock=clock, status=status)
