"""Ask a remote target what it says of a pending plan, and believe it over the agent."""

from datetime import datetime

from django.db import transaction

from audit.kinds import Kind
from plans import clock, ending, plan_sql, strict_json, vault
from plans.bulkhead import AT_ONCE, place_at
from plans.chronicle import target_actor, tell
from plans.commit import address, attempt_that_arrived, remote_target
from plans.errors import Sentence, Unavailable
from plans.faultpoints import reach
from plans.instants import format_instant_exact, parse_instant
from plans.locks import lock_plan
from plans.models import Plan
from plans.states import AbandonReason, State
from plans.targets.base import StateReply

ENDED_AT_TARGET = frozenset({"conflicted", "refused", "rejected", "expired", "abandoned"})
MISMATCH = "plan-mismatch"


def confirm_plan(*, plan_pk: int) -> Plan:
    """Read the state of a pending remote plan at its target, and act on it. Hosted and other plans are left alone.

    Committed there: `commit.unapproved`, then committed. Ended there: abandoned (`withdrawn`). Told there otherwise
    than the agent told it: refused (`plan-mismatch`). The same: confirmed. Raises `Unavailable` where the target gave
    no answer, or has as many calls as it may have. Holds no lock while it asks; may be repeated.
    """
    plan, at = plan_sql.get_plan_to_send(plan_pk)
    if plan.is_hosted or plan.state != State.PENDING.value or plan.token_sealed is None:
        return plan
    if at >= plan.expires_at:  # dead, whatever its target says, and even if that is down
        return plan
    with place_at(plan.target_id, patience=AT_ONCE):
        reply = remote_target().state(address(plan), plan_id=plan.plan_id, token=vault.open_token(plan))
    if reply.state is None and not reply.is_missing:
        sentence = "The target did not say what it knows of this plan. %(detail)s"
        raise Unavailable(Sentence(sentence, detail=Sentence(reply.detail)), retry_after_seconds=5)
    reach("target-confirmed", plan_pk)
    return plan if _is_told_before(plan, reply) else _act_on(plan_pk, reply)


def _is_told_before(plan: Plan, reply: StateReply) -> bool:
    """Whether a target says nothing that is not on record: then nothing is written, and no lock is needed.

    What it is compared with was received with the plan and never changes, or was confirmed and stays so.
    """
    if reply.state is None:
        return True
    if reply.state == State.COMMITTED.value or reply.state in ENDED_AT_TARGET or not plan.has_been_known_to_target:
        return False
    return (reply.actions is None or plan.has_confirmed_actions) and difference_of(plan, reply) is None


@transaction.atomic(durable=True)
def _act_on(plan_pk: int, reply: StateReply) -> Plan:
    plan = lock_plan(plan_pk)
    at = clock.now()
    if plan.state != State.PENDING.value or reply.state is None:
        return plan
    actor = target_actor(plan)
    difference = difference_of(plan, reply)
    is_living = reply.state != State.COMMITTED.value and reply.state not in ENDED_AT_TARGET
    plan.has_been_known_to_target = True
    plan.has_confirmed_actions |= is_living and difference is None and reply.actions is not None
    plan.save(update_fields=["has_been_known_to_target", "has_confirmed_actions"])
    if reply.state == State.COMMITTED.value:
        _commit_unapproved(plan, reply, at)
    elif reply.state in ENDED_AT_TARGET:
        ending.give_up(plan, AbandonReason.WITHDRAWN, actor=actor, at=at, data={"target_says": reply.state})
    elif difference is not None:
        ending.refuse(plan, f"{MISMATCH}: {difference}", kind=Kind.PLAN_REFUSED, actor=actor, at=at)
    return plan


def _commit_unapproved(plan: Plan, reply: StateReply, at: datetime) -> None:
    """The target wrote it and nobody here approved: the log says so before it says committed."""
    actor = target_actor(plan)
    tell(plan, Kind.COMMIT_UNAPPROVED, actor=actor, data={"approvals_required": plan.approvals_required})
    ending.commit(plan, attempt_that_arrived(plan, actor=actor, at=at), reply.result, actor=actor, at=at)


def difference_of(plan: Plan, reply: StateReply) -> str | None:
    """The first thing the target tells otherwise than the agent did, in words without values; None for none."""
    if reply.input_fingerprint is not None and reply.input_fingerprint != plan.input_fingerprint:
        return "the target has another input fingerprint"
    if reply.expires_at is not None and not _same_instant(reply.expires_at, plan.expires_at):
        return f"the target has another expiry than {format_instant_exact(plan.expires_at)}"
    if reply.actions is not None and not _same_json(reply.actions, plan.actions):
        return "the target has other actions"
    return None


def _same_instant(text: str, instant: datetime) -> bool:
    try:
        return parse_instant(text) == instant
    except ValueError:
        return False


def _same_json(one: str, other: str) -> bool:
    """Equal data: members in any order, numbers as written."""
    try:
        first, second = strict_json.loads(one.encode()), strict_json.loads(other.encode())
    except strict_json.StrictJsonError:
        return False
    return strict_json.canonical(first) == strict_json.canonical(second)
