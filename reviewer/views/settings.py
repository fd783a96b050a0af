"""How the desk looks and listens to one person."""

from typing import cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from reviewer.access import requires_sign_in
from reviewer.forms import SettingsForm
from reviewer.views import PersonRequest, clock_for, show


@requires_sign_in
@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """Zone, theme and single keys of whoever asks; saved, they show at once."""
    request = cast(PersonRequest, request)
    form = SettingsForm(request.POST or None, instance=request.user)
    if request.method == "POST" and form.is_valid():
        request.user.save(update_fields=list(form.cleaned_data))
        return HttpResponseRedirect(f"{reverse('settings')}?saved=1")
    status = 422 if form.errors else 200
    if form.errors:
        request.user.refresh_from_db()
    context = {"form": form, "is_saved": request.GET.get("saved") == "1"}
    return show(
        request, "reviewer/settings.html", context, section="settings", clock=clock_for(request.user), status=status
    )
