"""The page of the demonstration: the story of invoice 4412, each step pressed by the visitor. Served only in a demo."""

from collections.abc import Iterable
from typing import Final, cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from plans.agent import AgentError, DeskUnavailable
from plans.demo import story, tour
from plans.demo.agents import NoDemonstration
from plans.demo.steps import describe_invoice, next_of, steps_of
from plans.errors import CannotPlan, Sentence
from reviewer.access import requires_role
from reviewer.said import in_words
from reviewer.views import PersonRequest, clock_for, show
from reviewer.words import badge_of

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
            request.session[RETRIED] = {
                "plan": outcome.plan_id,
                "result": outcome.result,
                "is_replayed": outcome.replayed,
            }
        elif step in PLAYED:
            PLAYED[step]()
        else:
            return _page(request, notice=_("There is no such step."), status=404)
    except DeskUnavailable as error:
        return _page(
            request, notice=_("The agent could not reach the desk: %(why)s") % {"why": error.detail}, status=503
        )
    except (CannotPlan, NoDemonstration, tour.CannotPlay, AgentError) as refusal:
        return _page(request, notice=in_words(refusal.args[0] if refusal.args else str(refusal)), status=409)
    return HttpResponseRedirect(f"{reverse('demo')}#{step}")


def _page(request: PersonRequest, *, notice: str = "", status: int = 200) -> HttpResponse:
    told = story.get_story()
    steps = steps_of(told, _retried(request, told))
    context = {
        "told": told,
        "steps": [{"step": step, "answer": _in_words(step.answer)} for step in steps],
        "next": next_of(steps),
        "invoice": _in_words(describe_invoice(told.invoice)),
        "notice": notice,
    }
    return show(request, "demo/story.html", context, section="demo", clock=clock_for(request.user), status=status)


def _retried(request: PersonRequest, told: story.Story) -> tuple[story.Fact, ...]:
    """What the retry of this telling answered to this visitor; no table keeps it, so their session does."""
    kept = request.session.get(RETRIED)
    if told.second is None or not kept or "result" not in kept or kept["plan"] != told.second.plan_id:
        return ()
    return story.facts_of_retry(kept["result"], is_replayed=kept["is_replayed"])


def _in_words(facts: Iterable[story.Fact]) -> list[dict[str, str]]:
    """What the story says, in the reader's language, and a plan's state as every page says it."""
    return [{"name": _own(fact.name), "text": _text(fact), "href": fact.href} for fact in facts]


def _text(fact: story.Fact) -> str:
    if fact.plan is None:
        return _own(fact.text)
    abandonment = getattr(fact.plan, "abandonment", None)
    return badge_of(fact.plan.state, abandonment.reason if abandonment else "").text


def _own(text: str) -> str:
    """Ours is said in the reader's language; what the billing system or an agent wrote stays as it is."""
    return in_words(text) if isinstance(text, Sentence) else text


urlpatterns = [
    path("", tell, name="demo"),
    path("<slug:step>", play, name="demo_step"),
]
