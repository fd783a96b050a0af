"""One plan: its page, and the decisions on it. The answer to a decision is the page, which shows what is true now."""

from collections.abc import Callable
from typing import Any, Final, cast

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from audit.kinds import Kind
from audit.queries import find_story
from plans import plan_facts, queries, review
from plans.errors import DecisionRefused
from plans.models import Commit, Plan
from plans.recheck import recheck_plan
from plans.schema import shown_digest
from plans.states import ENDS, State
from plans.viewing import record_view
from reviewer import moved, plan_basis, plan_page, presence, rivals, story, words
from reviewer.access import requires_role
from reviewer.forms import SettleForm
from reviewer.models import Person
from reviewer.moments import Clock
from reviewer.rows import changed_at, url_of
from reviewer.views import MaybePersonRequest, PersonRequest, clock_for, show, sign_in_and_return_to
from reviewer.views.parts import show_part

STATUS_OF_OUTCOME: Final = {
    State.COMMITTED: 200,
    State.PENDING: 200,
    State.REJECTED: 200,
    State.COMMITTING: 202,
    State.UNKNOWN: 202,
    State.CONFLICTED: 409,
    State.ABANDONED: 410,
    State.REFUSED: 422,
}
"""CONTRACT section 8: the status of the page that answers a decision, by the state the plan is left in."""

PLAN_AGAIN: Final = frozenset({State.CONFLICTED, State.ABANDONED, State.REFUSED})
"""Ends without a write, after which the agent can be asked for a new plan."""

_ALL = Person.ROLES


@requires_role(*_ALL)
@require_safe
def plan(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponse:
    """The page. That it was opened is an event, and what a person's time to decide is measured from."""
    person_request = cast(PersonRequest, request)
    pk = _find_pk(agent, target, plan_id)
    if request.method == "GET" and not person_request.htmx:
        record_view(plan_pk=pk, person=person_request.user)
    return _page(person_request, pk)


@requires_role(*_ALL)
@require_safe
def news(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponse:
    """What the page asks for by itself: who else has it open, and, where it is not as it was shown any more, one
    sentence and a way to see it. That it asks says that this person has it open.

    A part, never a page: somebody who opens its address is sent to the plan.
    """
    person_request = cast(PersonRequest, request)
    pk = _find_pk(agent, target, plan_id)
    if not person_request.htmx or person_request.htmx.history_restore_request:
        return HttpResponseRedirect(url_of(agent, target, plan_id))
    facts = plan_facts.get_plan_facts(pk)
    state, reason = plan_page.state_of(facts)
    is_as_shown = request.GET.get("state") == state and request.GET.get("digest") == shown_digest(facts.plan)
    is_as_shown = is_as_shown and request.GET.get("approvals") == str(len(facts.live_approvals))
    if request.method == "GET":
        presence.note(plan_pk=pk, person_pk=person_request.user.pk)
    attempt, rejection = facts.last_attempt, facts.fact("rejection")
    clock = clock_for(person_request.user, facts.now)
    context = {
        "is_news": not is_as_shown,
        "looking": presence.find_others([pk], person_request.user).get(pk, []),
        "state": state,
        "badge": words.badge_of(state, reason),
        "is_changed": request.GET.get("state") == state,
        "who": str(rejection.reviewer) if rejection else _approver_of(attempt),
        "at": clock.at(changed_at(facts.plan, facts.now)),
        "url": url_of(agent, target, plan_id),
    }
    return show_part(request, "reviewer/_news.html", context)


def _approver_of(attempt: Commit | None) -> str:
    """Who approved what this attempt wrote: nobody, where an agent began it."""
    return attempt.started_by_name if attempt is not None and attempt.started_by == "person" else ""


@requires_role(*_ALL)
@require_safe
def recheck(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponse:
    """What has moved since the dry run, read now: the part that the page loads, or the page with it, for a browser
    without scripts. May take as long as the target does; changes nothing, and Approve never waits for it."""
    person_request = cast(PersonRequest, request)
    found = plan_facts.find_plan(agent, target, plan_id)
    if found is None:
        raise Http404
    found_now = recheck_plan(found)
    clock = clock_for(person_request.user)
    read = moved.in_words(found, found_now, clock)
    if person_request.htmx and not person_request.htmx.history_restore_request:
        context = {"recheck": read, "urls": {"recheck": url_of(agent, target, plan_id, name="plan-recheck")}}
        return render(request, "reviewer/_recheck.html", context | {"is_part": True, "plan": found})
    if request.method == "GET":
        record_view(plan_pk=found.pk, person=person_request.user)
    return _page(person_request, found.pk, recheck=read)


def _decision(decide: Callable[[PersonRequest, int], Plan]) -> Callable[..., HttpResponseBase]:
    """A view that takes one decision: only by POST, only by somebody signed in, and never done by signing in."""

    @require_POST
    def view(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return sign_in_and_return_to(cast(MaybePersonRequest, request), url_of(agent, target, plan_id))
        return decide_signed_in(request, agent, target, plan_id)

    @requires_role(*_ALL)
    def decide_signed_in(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponse:
        person_request = cast(PersonRequest, request)
        pk = _find_pk(agent, target, plan_id)
        try:
            left = decide(person_request, pk)
        except DecisionRefused as refused:
            response = _page(person_request, pk, status=refused.status, refused=refused)
        else:
            response = _page(person_request, pk, status=STATUS_OF_OUTCOME[State(left.state)], is_outcome=True)
        response["HX-Push-Url"] = "false"  # the address stays the plan's own, which takes GET
        return response

    return view


def _approve(request: PersonRequest, pk: int) -> Plan:
    return review.approve_plan(
        plan_pk=pk,
        person=request.user,
        seen_digest=request.POST.get("digest", ""),
        fact=request.POST.get("fact", ""),
        reason=request.POST.get("reason", ""),
    )


def _reject(request: PersonRequest, pk: int) -> Plan:
    return review.reject_plan(
        plan_pk=pk,
        person=request.user,
        seen_digest=request.POST.get("digest", ""),
        reason=request.POST.get("reason", ""),
    )


def _settle(request: PersonRequest, pk: int) -> Plan:
    form = SettleForm(request.POST)
    made = form.cleaned_data["was_made"] if form.is_valid() else None
    settled = review.settle_unknown(
        plan_pk=pk, person=request.user, was_made=made, reason=request.POST.get("reason", "")
    )
    settled.state = State.COMMITTED.value  # settling is not refused, whichever way it went: the page answers 200
    return settled


def _replan(request: PersonRequest, pk: int) -> Plan:
    asked = review.request_replan(plan_pk=pk, person=request.user)
    asked.state = State.COMMITTED.value  # asking is done, whatever the plan's own end was: the page answers 200
    return asked


approve = _decision(_approve)
reject = _decision(_reject)
settle = _decision(_settle)
replan = _decision(_replan)


def _find_pk(agent: str, target: str, plan_id: str) -> int:
    pk = plan_facts.find_plan_pk(agent, target, plan_id)
    if pk is None:
        raise Http404
    return pk


def _page(
    request: PersonRequest,
    pk: int,
    *,
    status: int = 200,
    refused: DecisionRefused | None = None,
    is_outcome: bool = False,
    recheck: moved.Reading | None = None,
) -> HttpResponse:
    """The page of the plan as it is in the database now, whatever was decided before."""
    facts = plan_facts.get_plan_facts(pk)
    clock = clock_for(request.user, facts.now)
    context = _facts_in_words(facts, request.user, clock) | {
        "refused": refused,
        "is_outcome": is_outcome,
        "recheck": recheck,
        "typed": {name: request.POST.get(name, "") for name in ("fact", "reason", "was_made")} if refused else {},
    }
    section = "history" if context["is_end"] else "inbox"
    return show(request, "reviewer/plan.html", context, section=section, clock=clock, status=status)


def _facts_in_words(facts: plan_facts.PlanFacts, person: Person, clock: Clock) -> dict[str, Any]:
    """Everything that the templates print, by name; no template asks the database for more."""
    plan, (state, reason) = facts.plan, plan_page.state_of(facts)
    cards = plan_page.cards_of(plan, state)
    verb, record, more = plan_page.title_of(cards)
    names = (plan.agent.name, plan.target.name, plan.plan_id)
    events = find_story(agent=names[0], target=names[1], plan_id=names[2])
    actions = ("approve", "reject", "settle", "replan", "news", "recheck")
    return {
        "plan": plan,
        "state": state,
        "reason": reason,
        "is_end": State(state) in ENDS,
        "badge": words.badge_of(state, reason),
        "title": {"verb": verb, "record": record, "more": more},
        "urls": {"plan": url_of(*names)} | {name: url_of(*names, name=f"plan-{name}") for name in actions},
        "when": plan_page.moments_of(facts, clock),
        "cards": cards,
        "has_index": len(cards) >= plan_page.INDEX_FROM,
        "action_words": words.changes(plan_page.count_actions(plan)),
        "record_words": words.records(len(plan.action_targets)),
        "risks": plan_page.risks_of(plan, cards) if state == State.PENDING else [],
        "checks": plan_page.checks_of(facts, cards),
        "story": story.lines_of(events.events, person, clock),
        "is_story_cut": events.is_cut,
        "is_replan_asked": any(event.kind == Kind.PLAN_REPLAN_REQUESTED for event in events.events),
        **_decision_in_words(facts, person, clock, state),
        **_ends_in_words(facts),
        **_basis_in_words(facts, clock),
        "live_path": "/".join(names),
        "looking": presence.find_others([plan.pk], person).get(plan.pk, []) if State(state) not in ENDS else [],
    }


def _decision_in_words(facts: plan_facts.PlanFacts, person: Person, clock: Clock, state: str) -> dict[str, Any]:
    """What can be decided, by whom, and until when."""
    plan = facts.plan
    left = plan.expires_at - clock.now
    settle_from = plan.expires_at + settings.STATE_TRUSTED_AFTER
    next_plan = queries.find_next_waiting(person, but=plan.pk, now=clock.now)
    return {
        "digest": shown_digest(plan),
        "decision": plan_page.decision_of(facts, person, state),
        "approvals": plan_page.approvers(facts, person, clock),
        "approval_count": len(facts.live_approvals),
        "left": clock.left(plan.expires_at),
        "seconds_left": max(0, int(left.total_seconds())),
        "seconds_in_all": max(1, int((plan.expires_at - plan.created_at).total_seconds())),
        "may_settle": state == State.UNKNOWN and person.is_reviewer and person.pk not in facts.owners,
        "can_settle_now": clock.now >= settle_from,
        "settle_from": clock.at(settle_from),
        "may_replan": person.is_reviewer and plan.state in PLAN_AGAIN and plan.replaced_by_id is None,
        "next_url": url_of(*next_plan) if next_plan else "",
    }


def _ends_in_words(facts: plan_facts.PlanFacts) -> dict[str, Any]:
    """What became of the plan."""
    members, value = plan_basis.result_of(facts)
    return {
        "attempt": facts.last_attempt,
        "attempt_count": len(facts.attempts),
        "rejection": facts.fact("rejection"),
        "refusal": facts.fact("refusal"),
        "conflict": facts.fact("conflict"),
        "changed": plan_basis.changed_fields(facts),
        "result_members": members,
        "result_value": value,
    }


def _basis_in_words(facts: plan_facts.PlanFacts, clock: Clock) -> dict[str, Any]:
    """What the plan stands on, and its kin."""
    plan = facts.plan
    return {
        "inputs": plan_basis.inputs_of(plan),
        "evidence": plan_basis.evidence_of(plan),
        "replaces": plan_basis.link_to(facts.replaced_plan),
        "replaces_unknown": plan.replaces if facts.replaced_plan is None else "",
        "replaced_by": plan_basis.link_to(plan.replaced_by),
        "differences": plan_basis.differences_of(plan, facts.replaced_plan),
        "rivals": [rivals.effect_on(plan, other, clock) for other in facts.rivals],
        "are_rivals_cut": len(facts.rivals) == plan_facts.MOST_RIVALS,
    }
