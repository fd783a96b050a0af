"""Bring one plan up to date for whoever looks at it: what the sweeps would find is true before they find it."""

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from plans import clock, ending
from plans.commit import settle_overdue
from plans.models import Agent, Plan
from plans.states import State


def bring_up_to_date(plan: Plan) -> Plan:
    """The plan as it is now: expired where it is due, unknown where its claim never settled. May be repeated.

    Looks first and locks only where there is something to change; a row that somebody else holds is being decided, and
    is left to them: reading a plan never waits.
    """
    if plan.state == State.PENDING.value and clock.now() >= plan.expires_at:
        _expire(plan.pk)
    elif plan.state == State.COMMITTING.value:
        settle_overdue(plan.pk)
    else:
        return plan
    return Plan.objects.select_related("agent", "target", "task", "policy", "replaced_by").get(pk=plan.pk)


def bring_all_up_to_date(agent: Agent) -> None:
    """The same for every plan of an agent, so that a search by state finds what is true."""
    at = clock.now()
    is_due = Q(state=State.PENDING.value, expires_at__lte=at)
    is_overdue = Q(state=State.COMMITTING.value, claimed_at__lte=at - settings.CLAIM_OVERDUE_AFTER)
    for plan in Plan.objects.of_agent(agent).filter(is_due | is_overdue).order_by("pk"):
        bring_up_to_date(plan)


@transaction.atomic(durable=True)
def _expire(plan_pk: int) -> None:
    rows = Plan.objects.pending().select_related("agent", "target", "task")
    plan = rows.select_for_update(of=("self",), no_key=True, skip_locked=True).filter(pk=plan_pk).first()
    at = clock.now()
    if plan is not None and at >= plan.expires_at:
        ending.expire(plan, at=at)
