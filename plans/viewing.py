"""That a person opened a plan's page."""

from typing import Any

from django.db import transaction

from audit.kinds import Kind
from plans import clock
from plans.chronicle import person_actor, tell
from plans.models import Plan, PlanView


@transaction.atomic(durable=True)
def record_view(*, plan_pk: int, person: Any) -> None:
    """Tell that a person opened the plan's page, and keep when: approval speed is measured from it.

    Does not wait for who is deciding the plan right now.
    """
    plan = Plan.objects.select_related("agent", "target", "task").get(pk=plan_pk)
    tell(plan, Kind.PLAN_VIEWED, actor=person_actor(person), is_numbered=False)
    view = PlanView(plan=plan, person=person, opened_at=clock.DatabaseClock())
    PlanView.objects.bulk_create(
        [view], update_conflicts=True, unique_fields=["plan", "person"], update_fields=["opened_at"]
    )
