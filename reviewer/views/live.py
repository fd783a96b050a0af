"""Live hints: that there is something new to see, never what. Who is told so is who may see it."""

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from plans.live import find_plans
from plans.waiting import HOLD, Hold
from reviewer import presence


@require_GET
def live(request: HttpRequest) -> HttpResponse:
    """A stream of hints (text/event-stream), `?plan=<agent>/<target>/<plan id>` for each plan that the page shows;
    with `?here=1` the first of them is the page itself, and others are told that this person has it open.

    `plans`: the inbox has changed; `plan:<agent>/<target>/<plan id>`: that plan has. The first of each comes at once.
    401 and 403 end a browser's attempts; so does 204, which says that this server has no event loop: poll.
    """
    if not request.user.is_authenticated:
        return HttpResponse(status=401)
    if not request.user.has_perm("plans.view_plan"):
        return HttpResponse(status=403)
    hold: Hold | None = request.META.get(HOLD)
    if hold is None:
        return HttpResponse(status=204)
    hold.listens, hold.plans = True, find_plans(request.GET.getlist("plan"))
    if request.GET.get("here") and hold.plans:
        here = {"plan_pk": next(iter(hold.plans)), "person_pk": request.user.pk}
        presence.note(**here)
        hold.left = partial(presence.leave, **here)
    response = HttpResponse(content_type="text/event-stream")
    response["X-Accel-Buffering"] = "no"  # nginx would keep hints back until it has a buffer full
    return response
