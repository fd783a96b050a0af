"""The agents' API: hosted operations, plans, tasks. CONTRACT 5.2 and 5.3."""

from django.http import HttpRequest, HttpResponse, QueryDict
from msgspec import Raw

from plans import answers
from plans.abandonment import abandon_plan, apply_write_of, end_task, observe_write
from plans.agent_commit import CommitAnswer, Presented, commit_by_agent
from plans.auth import authenticate
from plans.doors import check_json, door, json_answer, parsed, raw_body, read_json, still_committing
from plans.errors import (
    AmbiguousPlan,
    Invalid,
    KeyInvalid,
    KeyRequired,
    Malformed,
    NotFound,
    StillCommitting,
    UnknownTarget,
)
from plans.freshness import bring_all_up_to_date, bring_up_to_date
from plans.idempotency import KeyInvalid as InvalidHeader
from plans.idempotency import KeyMissing, parse_key
from plans.identifiers import is_identifier
from plans.instants import format_instant
from plans.intake import dry_run
from plans.models import Agent, Plan
from plans.requests import abandon_reason, written_at, written_targets
from plans.schema import AbandonBody, CommitBody, DryRun, NothingBody, WriteBody, check_identifiers, check_token
from plans.states import ENDS, State
from plans.waiting import wait_for_end

MAX_WAIT = 30  # seconds
PAGE = 100


@door("POST")
def dry_run_operation(request: HttpRequest, operation: str) -> HttpResponse:
    """Plan a hosted operation: 201 with the plan and, this once, its token."""
    agent = authenticate(request)
    answer = dry_run(agent=agent, operation=operation, request=read_json(request, DryRun))
    plan = answer.plan
    return json_answer(
        {
            "plan_id": plan.plan_id,
            "plan_token": answer.token,
            "target": plan.target.name,
            "state": plan.state,
            "expires_at": format_instant(plan.expires_at),
            "input_fingerprint": plan.input_fingerprint,
            "actions": Raw(plan.actions.encode()),
            "created_at": format_instant(plan.created_at),
            "approval": "required" if plan.approvals_required else "not_required",
            "review_url": answers.review_url(plan),
        },
        201,
    )


@door("POST")
def commit_operation(request: HttpRequest, operation: str) -> HttpResponse:
    """Commit a hosted plan by its token."""
    return _commit(request, authenticate(request), operation, None)


@door("POST")
def commit_plan(request: HttpRequest, plan_id: str) -> HttpResponse:
    """The same for any own plan, by its id and token."""
    agent = authenticate(request)
    _only(request.GET, {"target"})
    plan = _own_plan(agent, plan_id, request.GET)
    return _commit(request, agent, plan.operation, plan)


def _commit(request: HttpRequest, agent: Agent, operation: str, plan: Plan | None) -> HttpResponse:
    body = read_json(request, CommitBody)
    try:
        key = parse_key(request.headers.get("Idempotency-Key"))
    except KeyMissing as error:
        raise KeyRequired(str(error)) from None
    except InvalidHeader as error:
        raise KeyInvalid(str(error)) from None
    presented = _presented(key, body)
    try:
        answer = commit_by_agent(agent=agent, operation=operation, presented=presented, plan=plan)
    except StillCommitting as still:
        return _being_committed(Plan.objects.select_related("target").get(pk=still.plan_pk))
    return _applied(answer)


def _presented(key: str, body: CommitBody) -> Presented:
    token = body.plan_token
    if not isinstance(token, str) or (sentence := check_token(token)) is not None:
        text = sentence if isinstance(token, str) else "is required"
        raise Invalid("Present the plan's token.", [("/plan_token", str(text))])
    plan_id = body.plan_id if isinstance(body.plan_id, str) else None
    fingerprint = body.input_fingerprint if isinstance(body.input_fingerprint, str) else None
    return Presented(key, plan_id, token, fingerprint)


def _applied(answer: CommitAnswer) -> HttpResponse:
    response = json_answer(answers.committed(answer.plan))
    if answer.is_replayed:
        response["Idempotent-Replayed"] = "true"
    else:
        apply_write_of(answer.plan)
    return response


def _being_committed(plan: Plan) -> HttpResponse:
    document = {"plan_id": plan.plan_id, "state": State.COMMITTING.value}
    return still_committing(document, answers.state_url(plan))


@door("GET")
def read_plan(request: HttpRequest, plan_id: str) -> HttpResponse:
    """One own plan; with `wait`, held until it ends or the seconds have passed."""
    agent = authenticate(request)
    _only(request.GET, {"target", "wait"})
    wait = _wait(request.GET)
    plan = bring_up_to_date(_own_plan(agent, plan_id, request.GET))
    if wait and State(plan.state) not in ENDS:
        plan = wait_for_end(plan, agent=agent, seconds=wait, environ=request.META)
    return json_answer(answers.document(plan))


@door("GET")
def list_plans(request: HttpRequest) -> HttpResponse:
    """Own plans, newest first, for an agent that was restarted."""
    agent = authenticate(request)
    _only(request.GET, {"task_id", "state", "intent", "cursor"})
    values = {name: request.GET[name] for name in ("task_id", "intent") if name in request.GET}
    if errors := check_identifiers(**values):
        raise Invalid("A filter has no usable value.", errors)
    state = request.GET.get("state")
    if state is not None and state not in {one.value for one in State}:
        raise Invalid("There is no such state.", [("/state", f"must be one of {', '.join(State)}")])
    cursor = request.GET.get("cursor", "")
    if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Invalid("This cursor is not one of ours.", [("/cursor", "must be a next_cursor of an earlier answer")])
    bring_all_up_to_date(agent)
    rows = Plan.objects.select_related("agent", "target", "task", "policy", "replaced_by").filter(agent=agent)
    if "task_id" in values:
        rows = rows.filter(task__task_id=values["task_id"])
    if "intent" in values:
        rows = rows.filter(intent=values["intent"])
    if state is not None:
        rows = rows.filter(state=state)
    if cursor:
        rows = rows.filter(pk__lt=int(cursor))
    plans = list(rows.order_by("-pk")[: PAGE + 1])
    following = str(plans[PAGE - 1].pk) if len(plans) > PAGE else None
    return json_answer({"plans": [answers.document(plan) for plan in plans[:PAGE]], "next_cursor": following})


@door("POST")
def abandon(request: HttpRequest, plan_id: str) -> HttpResponse:
    """Give up one own plan; kept as a wish where it is not known yet or is being committed."""
    agent = authenticate(request)
    reason = abandon_reason(read_json(request, AbandonBody).reason, "/reason")
    _only(request.GET, {"target"})
    target = request.GET.get("target")
    if target is None:
        target = _own_plan(agent, plan_id, request.GET).target.name
    elif not is_identifier(target):
        raise UnknownTarget("This target is not registered for this agent.")
    plans = abandon_plan(agent=agent, target_name=target, plan_id=plan_id, reason=reason)
    return json_answer({"plans": [answers.brief(plan) for plan in plans]})


@door("POST")
def write(request: HttpRequest, task_id: str) -> HttpResponse:
    """Tell of a write: the agent's own older plans on what it touched are ended."""
    agent = authenticate(request)
    body = read_json(request, WriteBody)
    if errors := check_identifiers(target=body.target):
        raise Invalid("A name is not acceptable.", errors)
    plans = observe_write(
        agent=agent,
        task_id=task_id,
        target_name=body.target,
        targets=written_targets(body.targets, "/targets"),
        written_at=written_at(body.at, "/at"),
    )
    return json_answer({"plans": [answers.brief(plan) for plan in plans]})


@door("POST")
def end(request: HttpRequest, task_id: str) -> HttpResponse:
    """End a task: what it left pending is abandoned. A body, where there is one, is `{}`."""
    agent = authenticate(request)
    if body := raw_body(request):
        check_json(request)
        parsed(body, NothingBody)
    return json_answer({"plans": [answers.brief(plan) for plan in end_task(agent=agent, task_id=task_id)]})


def _own_plan(agent: Agent, plan_id: str, query: QueryDict) -> Plan:
    """The agent's plan of this id; at `target`, which is needed where several targets know one of this id."""
    rows = Plan.objects.select_related("agent", "target", "task", "policy", "replaced_by")
    rows = rows.filter(agent=agent, plan_id=plan_id)
    if "target" in query:
        target = str(query["target"])
        rows = rows.filter(target__name=target if is_identifier(target) else "")
    found = list(rows[:2])
    if not found:
        raise NotFound("There is no such plan of this agent.")
    if len(found) > 1:
        raise AmbiguousPlan("Plans of this id are at several targets: say which with ?target=.", plan_id=plan_id)
    return found[0]


def _wait(query: QueryDict) -> int:
    text = query.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= MAX_WAIT):
        raise Invalid("This is no time to wait.", [("/wait", f"must be 0 to {MAX_WAIT} seconds")])
    return int(text)


def _only(query: QueryDict, known: set[str]) -> None:
    """400 for a parameter that nothing would read, or that stands there twice."""
    for name, values in query.lists():
        if name not in known:
            raise Malformed(f"There is no parameter {name[:80]!r} here; there are {', '.join(sorted(known))}.")
        if len(values) > 1:
            raise Malformed(f"The parameter {name!r} stands there twice.")


@door("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
def nothing_here(request: HttpRequest, rest: str = "") -> HttpResponse:
    """404 for every other address below the API."""
    raise NotFound("There is nothing at this address.")
