"""An agent presents token, fingerprint and key: the commit door of CONTRACT 5.2, in that section's order."""

import hmac
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from audit.kinds import Kind
from audit.recording import record_capped
from plans import answers, clock, ending, vault
from plans.bulkhead import AT_ONCE, place_at
from plans.chronicle import SWEEP, agent_actor, tell
from plans.commit import Call, carry_out, claim, settle_overdue, unavailable
from plans.errors import (
    ApprovalRequired,
    FingerprintMismatch,
    FingerprintRequired,
    Invalid,
    KeyReused,
    NeverPlanned,
    Refused,
    StillCommitting,
    TargetBusy,
    Unavailable,
    UnknownTarget,
)
from plans.faultpoints import reach
from plans.hosted_commit import apply_hosted
from plans.locks import LockTimeout, lock_plan, still_limited
from plans.models import Agent, Approval, IdempotencyKey, Plan
from plans.states import State

POLL = 0.1  # seconds between two looks at an attempt of somebody else
UNCONFIRMED_RETRY_AFTER = 5  # seconds; targets are asked about the plans they have received as often


@dataclass(frozen=True, slots=True)
class Presented:
    """What an agent presents to have a plan committed. `repr` shows the key and the plan alone."""

    key: str
    plan_id: str | None
    token: str
    fingerprint: str | None

    def __repr__(self) -> str:
        return f"Presented({self.key!r}, {self.plan_id!r})"


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """A plan that has an answer for this commit, and whether it had it before."""

    plan: Plan
    is_replayed: bool


def commit_by_agent(*, agent: Agent, operation: str, presented: Presented, plan: Plan | None = None) -> CommitAnswer:
    """Commit the plan that the token names, or answer what became of it. May be repeated with the same key.

    `plan`, where the door names one, must be the token's. Raises what CONTRACT 5.2 lists, and `StillCommitting` where
    somebody else's attempt did not settle within the waiting time. Locks the plan; nothing while a target is called.
    """
    try:
        return _answer(_commit(agent, operation, presented, plan))
    except KeyReused as error:
        data = {"bound_plan_id": error.members["bound_plan_id"], "key": presented.key}
        _record_stranger(agent, Kind.COMMIT_KEY_REUSED, operation, data)
        raise


def _commit(agent: Agent, operation: str, presented: Presented, plan: Plan | None) -> CommitAnswer:
    payload = vault.hash_of(f"{presented.token}\x00{presented.fingerprint or ''}".encode(), purpose="commit-payload")
    _check_key(agent, operation, presented, payload)
    found = _named(agent, operation, presented, plan)
    _check_fingerprint(agent, found, presented)
    if found.state == State.COMMITTING.value:
        settle_overdue(found.pk)
    with ExitStack() as places:
        outcome = _attempt_in_time(found, agent, presented, payload, places)
        if isinstance(outcome, Refused):
            raise outcome
        if isinstance(outcome, Call):
            outcome = CommitAnswer(carry_out(outcome), is_replayed=False)
    return outcome


def _attempt_in_time(
    found: Plan, agent: Agent, presented: Presented, payload: bytes, places: ExitStack
) -> Call | CommitAnswer | Refused:
    """Look until somebody else's attempt has settled. Waiting takes a place at the target too: it holds a thread."""
    until = time.monotonic() + settings.LOCK_WAIT.total_seconds()
    while True:
        claimed = time.monotonic()
        try:
            outcome = _attempt(found.pk, agent, presented, payload, claimed, places)
        except TargetBusy:
            places.enter_context(place_at(found.target_id))  # a moment's patience, with no row locked
            continue
        if outcome is not None:
            return outcome
        if time.monotonic() >= until:
            raise StillCommitting(found.pk)
        try:
            places.enter_context(place_at(found.target_id, patience=AT_ONCE))
        except TargetBusy:
            raise StillCommitting(found.pk) from None
        time.sleep(POLL)


def _answer(outcome: CommitAnswer) -> CommitAnswer:
    """The answer, where it is 200; else raises what stands for the plan's state."""
    plan = outcome.plan
    match State(plan.state):
        case State.COMMITTED:
            return outcome
        case State.PENDING:
            raise unavailable(plan)
        case State.COMMITTING:
            raise StillCommitting(plan.pk)
        case _:
            refusal = answers.refusal_of(plan)
            if outcome.is_replayed:
                refusal.headers["Idempotent-Replayed"] = "true"
            raise refusal


def _check_key(agent: Agent, operation: str, presented: Presented, payload: bytes) -> None:
    bound = IdempotencyKey.objects.filter(agent=agent, operation=operation, key=presented.key).first()
    if bound is not None and not hmac.compare_digest(bytes(bound.payload_hash), payload):
        raise _key_reused(bound)


def _key_reused(bound: IdempotencyKey) -> KeyReused:
    return KeyReused("This key is bound to another token or fingerprint.", bound_plan_id=bound.plan.plan_id)


def _named(agent: Agent, operation: str, presented: Presented, named: Plan | None) -> Plan:
    """The plan of the token: of the door's operation and of the presented `plan_id`, where one of those is of them.

    Two targets may give out the same token. Which plan is meant is not guessed.
    """
    rows = Plan.objects.select_related("agent", "target", "task", "policy")
    rows = rows.filter(agent=agent, token_hash=vault.token_hash(presented.token))
    if named is not None:
        rows = rows.filter(target=named.target)
    found = list(rows.order_by("pk"))
    if not found:
        _record_stranger(agent, Kind.COMMIT_NEVER_PLANNED, operation, {"key": presented.key})
        raise NeverPlanned("The token names no plan of this agent.")
    found = [plan for plan in found if plan.operation == operation] or found
    found = [plan for plan in found if plan.plan_id == presented.plan_id] or found
    plan = found[0]
    if len(found) > 1:
        raise Invalid(
            "The token is that of plans at several targets.",
            [("/plan_id", "must say which of them; where they have the same, commit at the plan's own address")],
        )
    if named is not None and named.pk != plan.pk:
        raise Invalid("The token is another plan's.", [("/plan_token", "is not the token of the plan in the address")])
    if plan.operation != operation:
        raise Invalid("The token is of another operation.", [("/plan_token", f"is of the operation {plan.operation}")])
    if presented.plan_id is not None and presented.plan_id != plan.plan_id:
        raise Invalid("The plan_id is not the token's.", [("/plan_id", "is not the plan that the token names")])
    return plan


def _check_fingerprint(agent: Agent, plan: Plan, presented: Presented) -> None:
    if presented.fingerprint is None or not presented.fingerprint.strip():
        raise FingerprintRequired("Present the plan's input_fingerprint with its token.", plan_id=plan.plan_id)
    if not hmac.compare_digest(presented.fingerprint.encode(), plan.input_fingerprint.encode()):
        _record_stranger(agent, Kind.COMMIT_FINGERPRINT_MISMATCHED, plan.operation, {}, plan)
        raise FingerprintMismatch("The plan was made with another input_fingerprint.", plan_id=plan.plan_id)


def _record_stranger(agent: Agent, kind: Kind, operation: str, data: dict[str, Any], plan: Plan | None = None) -> None:
    """Tell what a caller can trigger at will, in a transaction of its own: the refusal itself changes nothing."""
    with transaction.atomic(durable=True):
        record_capped(
            kind,
            bucket=agent.name,
            actor=agent_actor(agent),
            on_behalf_of=str(agent.owner_id),
            agent=agent.name,
            target=plan.target.name if plan else None,
            plan_id=plan.plan_id if plan else None,
            operation=operation,
            task_id=plan.task.task_id if plan else None,
            data=data,
        )


@transaction.atomic(durable=True)
def _attempt(
    plan_pk: int, agent: Agent, presented: Presented, payload: bytes, claimed: float, places: ExitStack
) -> Call | CommitAnswer | Refused | None:
    """One look at the locked plan: its answer, a refusal, an attempt to make, or None where another one is running.

    An attempt at a remote target has its place there, in `places`, before anything is claimed.
    """
    try:
        plan = lock_plan(plan_pk)
    except LockTimeout:
        raise StillCommitting(plan_pk) from None
    reach("plan-locked", plan.pk)
    at = clock.now()
    actor = agent_actor(agent)
    state = State(plan.state)
    if state is State.COMMITTING:
        return None
    if state is State.UNKNOWN:
        return CommitAnswer(plan, is_replayed=False)
    if state is not State.PENDING:
        return _ended(plan, agent, presented, payload, at)
    if at >= plan.expires_at:
        ending.expire(plan, at=at, actor=actor)
        _bind(plan, agent, presented, payload, at)
        return CommitAnswer(plan, is_replayed=False)
    if (overtaken := ending.overtaken_by(plan)) is not None:
        ending.abandon(plan, overtaken, actor=SWEEP, at=at)
        _bind(plan, agent, presented, payload, at)
        return CommitAnswer(plan, is_replayed=False)
    given = Approval.objects.filter(plan=plan, voided_at=None).count()
    if given < plan.approvals_required:
        sentence = (
            f"{plan.approvals_required} approvals are needed, {given} given. A person decides on the plan's page."
        )
        return ApprovalRequired(sentence, plan_id=plan.plan_id, review_url=answers.review_url(plan))
    if not agent.targets.filter(pk=plan.target_id).exists():  # taken from it since: nothing says yes to this plan then
        taken = UnknownTarget("Its target is not registered for this agent any more.", plan_id=plan.plan_id)
        taken.plan_write = "none"
        return taken
    if plan.is_held_back:
        # Nobody has to approve, so nothing tells the agent when to come back but this: it keeps its token, and does.
        refusal = Unavailable(
            "Its target has not confirmed this plan yet, and the policy asks for that. Nothing was sent.",
            plan_id=plan.plan_id,
            retry_after_seconds=UNCONFIRMED_RETRY_AFTER,
        )
        refusal.headers["Retry-After"] = str(UNCONFIRMED_RETRY_AFTER)
        return refusal
    if not plan.is_hosted:
        places.enter_context(place_at(plan.target_id, patience=AT_ONCE))  # waiting for one would hold the plan's row
    _bind(plan, agent, presented, payload, at)
    attempt = claim(plan, actor=actor, at=at)
    if attempt is None:
        return CommitAnswer(plan, is_replayed=False)
    if not plan.is_hosted:
        return Call(plan.pk, attempt.pk, claimed)
    apply_hosted(plan, attempt)
    return CommitAnswer(plan, is_replayed=False)


def _ended(plan: Plan, agent: Agent, presented: Presented, payload: bytes, at: Any) -> CommitAnswer:
    """The stored answer of a plan that ended: a replay for the same key, and for any key where it was committed."""
    is_known = _bind(plan, agent, presented, payload, at)
    is_replayed = is_known or plan.state == State.COMMITTED.value
    if plan.state == State.COMMITTED.value:
        tell(plan, Kind.COMMIT_REPLAYED, actor=agent_actor(agent), data={"key": presented.key})
    return CommitAnswer(plan, is_replayed=is_replayed)


def _bind(plan: Plan, agent: Agent, presented: Presented, payload: bytes, at: Any) -> bool:
    """Bind the caller's key to this payload. True where it was bound to it before; raises `KeyReused` for another.

    A second request with the same key waits here for the first one's transaction, then finds what it bound.
    """
    with still_limited():
        bound, is_new = IdempotencyKey.objects.get_or_create(
            agent=agent,
            operation=plan.operation,
            key=presented.key,
            defaults={"plan": plan, "payload_hash": payload, "bound_at": at},
        )
    if not is_new and not hmac.compare_digest(bytes(bound.payload_hash), payload):
        raise _key_reused(bound)
    return not is_new
