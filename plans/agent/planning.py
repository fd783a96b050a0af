"""Make a plan: find the one there is, or ask for a new one and keep it with its key and token."""

from dataclasses import dataclass

from plans.agent import feeding, json_text, telling, waiting
from plans.agent.errors import AgentError, DeskUnavailable, NotADryRun, PlanInFlight, PlanRefused
from plans.agent.feeding import DryRunAnswer
from plans.agent.http import NoAnswer
from plans.agent.line import Line, is_worth_a_retry
from plans.agent.outcomes import Committed, Ended
from plans.agent.plan import FEEDING, Plan, StoredPlan
from plans.agent.waiting import has_expired
from plans.identifiers import is_identifier
from plans.instants import format_instant, parse_instant
from plans.states import State


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, frozen. `target` is None for a hosted operation, whose target the desk knows."""

    task_id: str
    run: int
    target: str | None
    operation: str
    inputs_json: str
    inputs_sorted: str
    intent: str | None
    replaces: str | None
    summary: str | None
    evidence_json: str | None
    delivery_id: str
    idempotency_key: str


def find_same(line: Line, request: Request) -> Plan | None:
    """The plan there already is of this request, asked about at the desk first: one that ended is not used again.

    A committed one is, where doing it again would be doing it twice: it has an intent, or an earlier run made it and
    this run, going through the same steps, has not met it yet.
    """
    found = line.ledger.find_same(
        request.task_id, request.target, request.operation, request.inputs_sorted, request.intent
    )
    for stored in found:
        if stored.plan.plan_id == request.replaces or (stored.touched_by and not stored.may_be_written):
            continue
        if is_usable(line, stored, request.run):
            line.ledger.take_up(stored.plan, request.run)
            return line.ledger.get_plan(stored.plan).plan
    return None


def is_usable(line: Line, stored: StoredPlan, run: int) -> bool:
    """Whether the plan stands for the same request made now."""
    if stored.state == FEEDING:
        if has_expired(line, stored.plan) or line.ledger.delivery(stored.plan) is None:
            return False
        stored = _fed(line, stored)
    outcome = stored.outcome
    if outcome is None:
        state = _state_now(line, stored.plan)
        if isinstance(state, State):
            may_be_written = stored.may_have_arrived or state is not State.PENDING
            return may_be_written or (_can_be_sent(line, stored.plan) and not has_expired(line, stored.plan))
        outcome = state
    return isinstance(outcome, Committed) and (stored.plan.intent is not None or stored.run != run)


def _can_be_sent(line: Line, plan: Plan) -> bool:
    """False for a plan that was withdrawn here, or kept under another API key: its token is gone."""
    return bool(plan.needs_approval) or line.ledger.token(plan) is not None


def dry_run(line: Line, request: Request) -> Plan:
    """A new plan from the desk, kept with a key made here and now."""
    _refuse_while_unknown(line, request)
    telling.tell_rest(line)
    body = json_text.compose(
        {
            "task_id": request.task_id,
            "inputs": json_text.raw(request.inputs_json),
            "intent": request.intent,
            "replaces": request.replaces,
            "summary": request.summary,
            "evidence": json_text.raw(request.evidence_json) if request.evidence_json else None,
        }
    )
    path = f"/api/v1/operations/{request.operation}/dry-run"
    answer = line.ask_patiently("POST", path, body=body, patience=line.patience())
    if isinstance(answer, NoAnswer) or is_worth_a_retry(answer):
        raise line.error(answer, DeskUnavailable, plan_write="none")
    if answer.status >= 300:
        raise line.error(answer, PlanRefused, plan_write="none")
    found = feeding.read_dry_run(feeding.hide_answer(answer.body))
    if not is_identifier(found.target or "") or found.approval not in ("required", "not_required"):
        raise NotADryRun("The desk's answer to a dry run lacks its target or approval.")
    return _keep_hosted(line, request, found, found.target or "")


def submit(line: Line, request: Request, found: DryRunAnswer) -> Plan:
    """The target's plan, kept and then fed. The delivery is on disk before it is sent."""
    if line.webhook_secret is None:
        raise AgentError("Feeding a plan takes the agent's webhook_secret: give it to Desk.")
    _refuse_while_unknown(line, request)
    telling.tell_rest(line)
    plan = _plan(line, request, found, request.target or "", needs_approval=None)
    delivery = feeding.compose_delivery(
        target=plan.target,
        operation=request.operation,
        task_id=request.task_id,
        inputs_json=request.inputs_json,
        found=found,
        intent=request.intent,
        replaces=request.replaces,
        summary=request.summary,
        evidence_json=request.evidence_json,
        timestamp=format_instant(line.clock.middle()),
    )
    stored = line.ledger.add_plan(
        plan,
        inputs_sorted=request.inputs_sorted,
        run=request.run,
        token=found.plan_token,
        delivery_id=request.delivery_id,
        delivery=delivery,
    )
    return _fed(line, stored).plan


def _fed(line: Line, stored: StoredPlan) -> StoredPlan:
    fed = feeding.deliver(line, stored)
    if fed.state == State.PENDING:
        line.ledger.supersede(fed.plan)
    return fed


def _keep_hosted(line: Line, request: Request, found: DryRunAnswer, target: str) -> Plan:
    plan = _plan(line, request, found, target, needs_approval=found.approval == "required")
    line.ledger.add_plan(plan, inputs_sorted=request.inputs_sorted, run=request.run, token=found.plan_token)
    line.ledger.supersede(plan)
    return plan


def _plan(line: Line, request: Request, found: DryRunAnswer, target: str, *, needs_approval: bool | None) -> Plan:
    return Plan(
        plan_id=found.plan_id,
        target=target,
        operation=request.operation,
        task_id=request.task_id,
        intent=request.intent,
        inputs_json=request.inputs_json,
        actions_json=found.actions_json,
        input_fingerprint=found.input_fingerprint,
        created_at=parse_instant(found.created_at) if found.created_at else line.clock.earliest(),
        expires_at=found.ends,
        idempotency_key=request.idempotency_key,
        review_url=found.review_url or "",
        needs_approval=needs_approval,
        origin="hosted" if request.target is None else "fed",
        replaces=request.replaces,
        summary=request.summary,
    )


def _state_now(line: Line, plan: Plan) -> Ended | State:
    """The state at the desk; raises DeskUnavailable where it cannot be asked, for a guess could plan twice."""
    state = waiting.ask_state(line, plan, line.patience())
    if state is None:
        raise DeskUnavailable(
            f"There is a plan of this already ({plan.plan_id}), and the desk could not be asked about it",
            slug="unreachable", advice="retry_same_key", plan_write="possible", plan_id=plan.plan_id,
        )  # fmt: skip
    return state


def _refuse_while_unknown(line: Line, request: Request) -> None:
    """Raises PlanInFlight where a plan of the same thing may be written at this moment.

    The same thing: the same intent, or the plan to replace; and in the same task, of one operation, whatever two
    different intents do not tell apart.
    """
    for stored in line.ledger.find_in_flight():
        if stored.may_be_written and _is_same_thing(stored, request):
            plan = stored.plan
            state = _state_now(line, plan)
            if isinstance(state, State) and line.ledger.get_plan(plan).may_be_written:
                raise PlanInFlight(plan.plan_id)


def _is_same_thing(stored: StoredPlan, request: Request) -> bool:
    plan = stored.plan
    if plan.plan_id == request.replaces or (plan.intent is not None and plan.intent == request.intent):
        return True
    # What another thread of this run is committing at this moment is not lost: its commit will say.
    is_lost = stored.state == State.UNKNOWN or stored.run != request.run
    is_told_apart = plan.intent is not None and request.intent is not None
    same_place = plan.operation == request.operation and request.target in (None, plan.target)
    return is_lost and not is_told_apart and plan.task_id == request.task_id and same_place
