"""How a plan is told to machines: its state document, and the answer that its end gives to a commit."""

import json
import urllib.parse
from typing import Any

import msgspec
from django.conf import settings
from msgspec import Raw

from plans.errors import (
    OutcomeUnknown,
    PlanAbandoned,
    PlanConflicted,
    PlanExpired,
    PlanRefused,
    PlanRejected,
    Refused,
)
from plans.instants import format_instant
from plans.models import Commit, Plan
from plans.states import AbandonReason, State

UNTOLD = "the target did not say what changed"


def review_url(plan: Plan) -> str:
    """The plan's page for people."""
    return _page(plan.agent.name, plan.target.name, plan.plan_id)


def _page(*names: str) -> str:
    return f"{settings.BASE_URL}/plans/{'/'.join(urllib.parse.quote(name, safe='') for name in names)}/"


def state_url(plan: Plan) -> str:
    """The plan's state for its agent."""
    plan_id = urllib.parse.quote(plan.plan_id, safe="")
    return f"/api/v1/plans/{plan_id}?" + urllib.parse.urlencode({"target": plan.target.name})


def encode(document: Any) -> bytes:
    """JSON bytes of a document in which foreign JSON stands as `msgspec.Raw`, spelled as received."""
    return msgspec.json.encode(document)


def brief(plan: Plan) -> dict[str, Any]:
    """What a list answers of a plan."""
    return {"plan_id": plan.plan_id, "target": plan.target.name, "state": plan.state}


def fed(plan: Plan) -> dict[str, Any]:
    """The answer to a feed."""
    return just_fed(plan.agent.name, plan.target.name, plan.plan_id, plan.state, plan.idempotency_key)


def just_fed(agent: str, target: str, plan_id: str, state: str, idempotency_key: str) -> dict[str, Any]:
    """The same, of a plan that nobody has to read again to tell of it."""
    return {
        "plan_id": plan_id,
        "target": target,
        "state": state,
        "review_url": _page(agent, target, plan_id),
        "idempotency_key": idempotency_key,
    }


def document(plan: Plan) -> dict[str, Any]:
    """The state document of CONTRACT 5.3: what there is to tell is there, and nothing else."""
    told: dict[str, Any] = {
        "plan_id": plan.plan_id,
        "target": plan.target.name,
        "operation": plan.operation,
        "task_id": plan.task.task_id,
        "intent": plan.intent,
        "state": plan.state,
        "created_at": format_instant(plan.created_at),
        "expires_at": format_instant(plan.expires_at),
        "input_fingerprint": plan.input_fingerprint,
        "idempotency_key": plan.idempotency_key,
        "review_url": review_url(plan),
    }
    match State(plan.state):
        case State.COMMITTED:
            told["result"] = result(plan)
            told["committed_at"] = format_instant(plan.state_changed_at)
        case State.CONFLICTED:
            told["conflict"] = {"changed": changed(plan), "plan_created_at": format_instant(plan.created_at)}
            if plan.conflict.detail:
                told["conflict"]["detail"] = plan.conflict.detail
        case State.ABANDONED:
            told["abandonment"] = {"reason": plan.abandonment.reason, "at": format_instant(plan.abandonment.at)}
        case State.REJECTED:
            told["rejection"] = {"reason": plan.rejection.reason, "at": format_instant(plan.rejection.rejected_at)}
        case State.REFUSED:
            told["refusal"] = {"reason": plan.refusal.reason, "at": format_instant(plan.refusal.at)}
        case _:
            pass
    if plan.replaces is not None:
        told["replaces"] = plan.replaces
    if plan.replaced_by is not None:
        told["replaced_by"] = plan.replaced_by.plan_id
    return told


def result(plan: Plan) -> Raw | None:
    """The stored result of a committed plan, as the target wrote it; None where none is known."""
    stored = Commit.objects.filter(plan=plan, outcome=State.COMMITTED.value).values_list("result", flat=True).first()
    return None if stored is None else Raw(stored.encode())


def changed(plan: Plan) -> list[dict[str, Any]]:
    """The changed fields of a conflict; a value the target did not give is left out."""
    rows = []
    for change in plan.conflict.changes.order_by("position"):
        row: dict[str, Any] = {"target": change.target, "field": change.field}
        if change.planned is not None:
            row["planned"] = Raw(change.planned.encode())
        if change.current is not None:
            row["current"] = Raw(change.current.encode())
        rows.append(row)
    return rows


def committed(plan: Plan) -> bytes:
    """The body of a commit's 200. The same bytes whenever it is asked again."""
    return encode(
        {
            "plan_id": plan.plan_id,
            "state": plan.state,
            "committed_at": format_instant(plan.state_changed_at),
            "result": result(plan),
        }
    )


def refusal_of(plan: Plan) -> Refused:
    """The refusal that an ended or unknown plan gives to a commit. The same members whenever it is asked again."""
    about: dict[str, Any] = {"plan_id": plan.plan_id, "plan_state": plan.state}
    match State(plan.state):
        case State.CONFLICTED:
            rows = changed(plan)
            about |= {"plan_created_at": format_instant(plan.created_at), "changed": rows}
            return PlanConflicted(_conflict_sentence(plan, rows), **about)
        case State.ABANDONED if plan.abandonment.reason == AbandonReason.EXPIRED.value:
            when = format_instant(plan.expires_at)
            return PlanExpired(f"The plan expired at {when}; nothing was written.", expired_at=when, **about)
        case State.ABANDONED:
            reason = plan.abandonment.reason
            return PlanAbandoned(f"The plan was abandoned: {reason}.", reason=reason, **about)
        case State.REFUSED:
            return PlanRefused(plan.refusal.reason, **about)
        case State.REJECTED:
            return PlanRejected("A reviewer rejected this plan.", reason=plan.rejection.reason, **about)
        case _:
            unknown = OutcomeUnknown("The outcome is not known yet; the desk is finding out.", **about)
            unknown.headers |= {"Location": state_url(plan), "Retry-After": "5"}
            unknown.members = {**unknown.members, "retry_after_seconds": 5}
            return unknown


def _conflict_sentence(plan: Plan, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return f"Nothing was written: {plan.conflict.detail or UNTOLD}."
    names = ", ".join(json.dumps(f"{row['target']} {row['field']}".strip(), ensure_ascii=False) for row in rows[:10])
    return f"Nothing was written: {names} changed after the plan was made."
