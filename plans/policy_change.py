"""Policies in new versions, and the explicit decision that puts a pending plan under a newer one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import transaction

from audit.kinds import Kind
from audit.recording import Actor, record
from plans import clock, ending, policies
from plans.chronicle import tell
from plans.errors import Sentence
from plans.locks import LockTimeout, lock_plan
from plans.models import Approval, Plan, Policy, Target
from plans.states import State
from plans.targets import operations
from plans.targets.operations import OperationFailed

VOIDED = "policy-applied"


class PolicyError(Exception):
    """Why a policy is refused: one sentence."""


@dataclass(frozen=True, slots=True)
class Application:
    """What became of one plan. `why_not` is one sentence; empty where the plan now stands under the newest policy."""

    plan: Plan
    why_not: str
    approvals_voided: int = 0


def newest_policy(target: Target) -> Policy:
    """What plans that are received now stand under."""
    return Policy.objects.filter(target=target).order_by("-version")[0]


@transaction.atomic(durable=True)
def change_policy(
    *, target_name: str, approvals: int | None, is_guarded: bool, refuses_unconfirmed: bool, by: Actor
) -> Policy:
    """The next version of a target's policy, for plans received from now on; the newest one where nothing differs.

    `approvals` None: the operation says how many, which only a hosted one can. Locks the target. Raises `PolicyError`.
    """
    target = Target.objects.select_for_update(no_key=True).filter(name=target_name).first()
    if target is None:
        raise PolicyError(Sentence("There is no target %(target_name)r.", target_name=target_name))
    if approvals is None and not target.is_hosted:
        raise PolicyError(Sentence("A remote target's policy says itself how many people approve."))
    return next_version(
        target, by=by, approvals=approvals, is_guarded=is_guarded, refuses_unconfirmed=refuses_unconfirmed
    )


def next_version(target: Target, *, by: Actor, **wanted: Any) -> Policy:
    """The newest policy with `wanted` changed, as a new version with its event. The caller has locked the target."""
    approvals = wanted.get("approvals")
    if approvals is not None and not 0 <= approvals <= policies.MAX_APPROVALS:
        raise PolicyError(
            Sentence("Approvals are a number from 0 to %(max_approvals)s.", max_approvals=policies.MAX_APPROVALS)
        )
    before = newest_policy(target)
    now = {name: getattr(before, name) for name in ("approvals", "is_guarded", "refuses_unconfirmed")}
    changed = {name: {"from": now[name], "to": value} for name, value in wanted.items() if now[name] != value}
    if not changed:
        return before
    after = Policy.objects.create(target=target, version=before.version + 1, created_at=clock.now(), **(now | wanted))
    record(Kind.POLICY_CHANGED, actor=by, target=target.name, data={"version": after.version, **changed})
    return after


def apply_newest_policy(*, target_name: str, plan_pks: Sequence[int], by: Actor) -> list[Application]:
    """Put these pending plans of a target under its newest policy, each in its own transaction, by ascending pk.

    Approvals that were given under the older one become void: they were given to something else. A plan that was
    decided, expired or put under it meanwhile is left as it is, and told so; so is one whose operation fails when it
    is asked how many people approve. May be repeated.
    """
    pks = Plan.objects.filter(target__name=target_name, pk__in=plan_pks).order_by("pk").values_list("pk", flat=True)
    return [_try(pk, by) for pk in list(pks)]


def _try(plan_pk: int, by: Actor) -> Application:
    try:
        return _apply(plan_pk, by)
    except LockTimeout:
        plan = Plan.objects.select_related("agent", "target").get(pk=plan_pk)
        return Application(plan, "It is being decided right now.")


@transaction.atomic(durable=True)
def _apply(plan_pk: int, by: Actor) -> Application:
    plan = lock_plan(plan_pk)
    at = clock.now()
    if plan.state != State.PENDING.value:
        return Application(plan, "It does not wait for a decision any more.")
    if at >= plan.expires_at:
        ending.expire(plan, at=at)
        return Application(plan, "It has expired.")
    newest = newest_policy(plan.target)
    if newest.pk == plan.policy_id:
        return Application(plan, "It stands under the newest policy already.")
    before = (plan.policy.version, plan.approvals_required)
    try:
        with transaction.atomic():  # the operation may have broken off a statement of its own
            needed = approvals_under(newest, plan)
    except OperationFailed:
        return Application(plan, Sentence("Its operation failed when it was asked how many people have to approve."))
    voided = Approval.objects.filter(plan=plan, voided_at=None).update(voided_at=at, void_reason=VOIDED)
    plan.policy, plan.approvals_required = newest, needed
    plan.save(update_fields=["policy", "approvals_required"])
    tell(plan, Kind.PLAN_POLICY_APPLIED, actor=by, data={
        "version": {"from": before[0], "to": newest.version},
        "approvals_required": {"from": before[1], "to": plan.approvals_required},
        "approvals_voided": voided,
    })  # fmt: skip
    return Application(plan, "", voided)


def approvals_under(policy: Policy, plan: Plan) -> int:
    """How many people the policy asks for. Raises `OperationFailed` where it leaves that to an operation that fails.

    An operation that is gone, or that does not read these inputs any more, can't be asked: it stays with what the plan
    needs now, and with one person at least. A statement of the operation's that fails spoils the caller's transaction.
    """
    of_operation = None
    if policy.approvals is None and plan.is_hosted:
        of_operation = _ask_operation(plan)
    if of_operation is None:
        of_operation = max(1, plan.approvals_required)
    return policies.approvals_needed(of_policy=policy.approvals, of_operation=of_operation)


def _ask_operation(plan: Plan) -> int | None:
    """What the plan's operation says; None where it can't be asked."""
    operation = operations.get_operation(plan.operation)
    if operation is None:
        return None
    # The page on which a policy is mended must not fall with the operation.
    with operations.guarded(plan.operation, "asked how many people approve"):
        try:
            inputs = msgspec.json.decode(plan.inputs, type=operation.Inputs)
        except msgspec.ValidationError:
            return None
        return operations.people_asked(operation, inputs, operations.decode_actions(plan.actions))
