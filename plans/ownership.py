"""Whose agent it was: nobody decides a plan of an agent that they owned at any time since the plan was received."""

from typing import Any, Final

from django.db import connection
from django.db.models import Exists, OuterRef

from plans.models import FormerOwner, Plan

NEVER_DECIDES: Final = "plans_owner_never_decides"
"""The name under which the database refuses an owner's approval or rejection."""


def owner_pks(plan: Plan) -> frozenset[int]:
    """Everybody who owns the plan's agent, or owned it at any time since the plan was received. One statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT person_id FROM plans_formerowner WHERE agent_id = %s AND until >= %s",
            [plan.agent_id, plan.received_at],
        )
        return frozenset({plan.agent.owner_id, *(row[0] for row in cursor.fetchall())})


def has_owned(plan: Plan, person: str = "pk") -> Exists:
    """Whether the row's `person` (the name of a column) owned the plan's agent since its receipt and does no more."""
    return Exists(
        FormerOwner.objects.filter(agent_id=plan.agent_id, person_id=OuterRef(person), until__gte=plan.received_at)
    )


def is_own(plan: Plan, person: Any) -> bool:
    """Whether the plan is of an agent of this person's: of one annotated with `has_owned`."""
    return bool(person.pk == plan.agent.owner_id or person.has_owned)


def owned_sql(plan: str, person: str) -> str:
    """The same as an SQL condition, of a row with `agent_id` and `received_at` and of a person's key."""
    return f"""EXISTS (SELECT FROM plans_formerowner fo WHERE fo.agent_id = {plan}.agent_id
        AND fo.person_id = {person} AND fo.until >= {plan}.received_at)"""
