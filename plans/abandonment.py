"""What an agent gives up: one plan, a whole task, or plans whose inputs it has just dirtied."""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from audit.kinds import Kind
from audit.recording import record
from plans import clock, ending
from plans.chronicle import agent_actor, tell
from plans.deliveries import Received, bind
from plans.errors import UnknownTarget
from plans.faultpoints import reach
from plans.locks import LockTimeout, lock_agent, lock_plan
from plans.models import Agent, ObservedWrite, Plan, PlanQuerySet, Target, Task, Wish
from plans.states import BUSY, AbandonReason, State


@transaction.atomic(durable=True)
def abandon_plan(
    *, agent: Agent, target_name: str, plan_id: str, reason: AbandonReason, delivery: Received | None = None
) -> list[Plan]:
    """Abandon one pending plan. May be repeated.

    A plan that is not known yet, or is being committed, is left as it is and the wish is kept: it applies when the
    plan arrives, or falls back to pending. A plan that ended stays as it ended. An agent gives up its own plans also at
    a target that was taken from it. Locks the agent, then the plan.
    """
    agent = lock_agent(agent.pk)
    bind(agent.pk, delivery)
    own = Plan.objects.filter(agent=agent, target__name=target_name, plan_id=plan_id)
    pk = own.values_list("pk", flat=True).first()
    if pk is None:
        target = agent.targets.filter(name=target_name).first()
        if target is None:
            raise UnknownTarget("This target is not registered for this agent.")
        _keep_wish(agent, target, plan_id, reason, clock.now())
        return []
    plan = lock_plan(pk)
    _abandon_locked(plan, reason)
    return [plan]


@transaction.atomic(durable=True)
def end_task(*, agent: Agent, task_id: str, delivery: Received | None = None) -> list[Plan]:
    """End a task: its pending plans are abandoned (`task_ended`), its busy ones keep the wish. May be repeated.

    A plan of the task that arrives within the next 7 days is abandoned on arrival. Returns all plans of the task that
    were in flight, as they are now.
    """
    agent = lock_agent(agent.pk)
    bind(agent.pk, delivery)
    at = clock.now()
    task, is_new = Task.objects.get_or_create(agent=agent, task_id=task_id, defaults={"created_at": at})
    if task.ended_at is None or is_new:
        task.ended_at = at
        task.save(update_fields=["ended_at"])
        record(
            Kind.TASK_ENDED,
            actor=agent_actor(agent),
            on_behalf_of=str(agent.owner_id),
            agent=agent.name,
            task_id=task_id,
        )
    plans = [lock_plan(pk) for pk in _in_flight_pks(Plan.objects.filter(task=task))]
    for plan in plans:
        _abandon_locked(plan, AbandonReason.TASK_ENDED)
    return plans


@transaction.atomic(durable=True)
def observe_write(
    *,
    agent: Agent,
    task_id: str,
    target_name: str,
    targets: Sequence[str],
    written_at: datetime | None,
    delivery: Received | None = None,
) -> list[Plan]:
    """A write by the agent that no plan tells of: its own older pending plans on these targets are dead.

    Others' are marked for their reviewers. Returns the agent's own plans that it ended. May be repeated: the same
    write at the same time (where none is said, that of the delivery's first arrival) is told, held and marked once.
    """
    agent = lock_agent(agent.pk)
    bound_at = bind(agent.pk, delivery)
    target = agent.targets.filter(name=target_name).first()
    if target is None:
        raise UnknownTarget("This target is not registered for this agent.")
    write, is_new = ObservedWrite.objects.get_or_create(
        agent=agent,
        target=target,
        task_id=task_id,
        action_targets=sorted(set(targets)),
        at=written_at or bound_at or clock.now(),
        plan=None,
        is_applied=True,
    )
    if not is_new:
        return []
    record(
        Kind.WRITE_OBSERVED,
        actor=agent_actor(agent),
        on_behalf_of=str(agent.owner_id),
        agent=agent.name,
        target=target.name,
        task_id=task_id,
        data={"targets": write.action_targets, "source": "told"},
    )
    return _apply_write(write)


def apply_commit_writes(limit: int = 100) -> int:
    """Hold the desk's own commits against older pending plans on the same targets. Returns how many were applied.

    Each is a short transaction that starts with the agent; safe on many workers at once, and when repeated.
    """
    pks = list(ObservedWrite.objects.filter(is_applied=False).order_by("id").values_list("pk", flat=True)[:limit])
    return sum(_try_commit_write(pk) for pk in pks)


def apply_write_of(plan: Plan) -> None:
    """The same for one plan that was just committed, so that nobody has to wait for the sweep. Never fails for a lock:
    the plan is committed, and the sweep comes."""
    pk = ObservedWrite.objects.filter(plan=plan, is_applied=False).values_list("pk", flat=True).first()
    if pk is not None:
        _try_commit_write(pk)


def _try_commit_write(write_pk: int) -> bool:
    try:
        return _apply_commit_write(write_pk)
    except LockTimeout:
        return False  # the next sweep finds it again


@transaction.atomic(durable=True)
def _apply_commit_write(write_pk: int) -> bool:
    write = ObservedWrite.objects.select_related("agent", "target").get(pk=write_pk)
    rows = Agent.objects.select_for_update(no_key=True, skip_locked=True)
    if rows.filter(pk=write.agent_id).first() is None:
        return False  # an intake of this agent is under way: nobody's answer waits for it, the next sweep comes
    if not ObservedWrite.objects.filter(pk=write_pk, is_applied=False).update(is_applied=True):
        return False
    _apply_write(write)
    return True


def _apply_write(write: ObservedWrite) -> list[Plan]:
    """End the writer's older pending plans on what was written, and mark those of others. The agent is locked."""
    touched = Plan.objects.filter(
        target=write.target, action_targets__overlap=write.action_targets, created_at__lte=write.at
    ).exclude(pk__in=[write.plan_id] if write.plan_id else [])
    ended: list[Plan] = []
    data = {"written": sorted(write.action_targets), "by_plan": write.plan.plan_id if write.plan else None}
    for pk in _in_flight_pks(touched):
        plan = lock_plan(pk)
        if State(plan.state) in BUSY and plan.agent_id == write.agent_id:
            _keep_wish(plan.agent, plan.target, plan.plan_id, AbandonReason.INPUTS_CHANGED, clock.now())
        elif plan.state != State.PENDING.value:
            continue
        elif plan.agent_id == write.agent_id:
            at = clock.now()
            ending.give_up(plan, AbandonReason.INPUTS_CHANGED, actor=agent_actor(write.agent), at=at, data=data)
            ended.append(plan)
        else:
            Plan.objects.filter(pk=pk).update(mark_count=F("mark_count") + 1)
            tell(plan, Kind.PLAN_MARKED, actor=agent_actor(write.agent), data={"written": data["written"]})
    return ended


def _abandon_locked(plan: Plan, reason: AbandonReason) -> None:
    if State(plan.state) in BUSY:
        _keep_wish(plan.agent, plan.target, plan.plan_id, reason, clock.now())
    elif plan.state == State.PENDING.value:
        ending.give_up(plan, reason, actor=agent_actor(plan.agent), at=clock.now())
        reach("abandonment-written", plan.pk)


def _keep_wish(agent: Agent, target: Target, plan_id: str, reason: AbandonReason, at: datetime) -> None:
    Wish.objects.get_or_create(
        agent=agent, target=target, plan_id=plan_id, defaults={"reason": reason.value, "wished_at": at}
    )


def _in_flight_pks(plans: PlanQuerySet) -> list[int]:
    """Ascending, the order in which plans are locked."""
    return list(plans.in_flight().order_by("pk").values_list("pk", flat=True))


def forget_old(limit: int = 1000) -> int:
    """Delete wishes and observed writes older than 7 days: what they were kept for can't arrive any more."""
    before = clock.now() - settings.WISHES_KEPT_FOR
    wishes = Wish.objects.filter(wished_at__lt=before).values_list("pk", flat=True)[:limit]
    writes = ObservedWrite.objects.filter(Q(is_applied=True), at__lt=before).values_list("pk", flat=True)[:limit]
    gone, _ = Wish.objects.filter(pk__in=list(wishes)).delete()
    more, _ = ObservedWrite.objects.filter(pk__in=list(writes)).delete()
    return gone + more
