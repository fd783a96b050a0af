"""The page of the demonstration: the story of invoice 4412, each step pressed by the visitor. Served only in a demo."""

from typing import Final, cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.views.decorators.http import require_POST, require_safe

from plans.agent import AgentError, DeskUnavailable
from plans.demo import story, tour
from plans.demo.agents import NoDemonstration
from plans.demo.steps import describe_invoice, next_of, steps_of
from plans.errors import CannotPlan
from reviewer.access import requires_role
from reviewer.views import PersonRequest, clock_for, show

RETRIED: Final = "demo_retried"
PLAYED: Final = {
    "start": tour.start,
    "interfere": tour.refund_by_somebody_else,
    "replan": tour.replan,
    "end": tour.end,
}


@requires_role("reviewer")
@require_safe
def tell(request: HttpRequest) -> HttpResponse:
    """Where the story stands. Changes nothing."""
    return _page(cast(PersonRequest, request))


@requires_role("reviewer")
@require_POST
def play(request: HttpRequest, step: str) -> HttpResponse:
    """Plays one step, and shows the page: 409 where it does not fit, 503 where the desk had no time for it."""
    request = cast(PersonRequest, request)
    try:
        if step == "retry":
            outcome = tour.retry()
            facts = story.facts_of_retry(outcome.result, is_replayed=outcome.replayed)
            request.session[RETRIED] = {"plan": outcome.plan_id, "facts": facts}
        elif step in PLAYED:
            PLAYED[step]()
        else:
            return _page(request, notice="There is no such step.", status=404)
    except DeskUnavailable as error:
        return _page(request, notice=f"The agent could not reach the desk: {error.detail}", status=503)
    except (CannotPlan, NoDemonstration, tour.CannotPlay, AgentError) as refusal:
        return _page(request, notice=str(refusal), status=409)
    return HttpResponseRedirect(f"{reverse('demo')}#{step}")


def _page(request: PersonRequest, *, notice: str = "", status: int = 200) -> HttpResponse:
    told = story.get_story()
    steps = steps_of(told, _retried(request, told))
    context = {
        "told": told,
        "steps": steps,
        "next": next_of(steps),
        "invoice": describe_invoice(told.invoice),
        "notice": notice,
    }
    return show(request, "demo/story.html", context, section="demo", clock=clock_for(request.user), status=status)


def _retried(request: PersonRequest, told: story.Story) -> tuple[story.Fact, ...]:
    """What the retry of this telling answered to this visitor; no table keeps it, so their session does."""
    kept = request.session.get(RETRIED)
    if told.second is None or not kept or kept["plan"] != told.second.plan_id:
        return ()
    return tuple(story.Fact(*fact) for fact in kept["facts"])


urlpatterns = [
    path("", tell, name="demo"),
    path("<slug:step>", play, name="demo_step"),
]
