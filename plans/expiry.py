"""The sweep that ends plans whose promise has run out. Whoever meets such a plan earlier ends it just the same."""

from django.db import transaction

from plans import clock, ending
from plans.faultpoints import reach
from plans.models import Plan

BATCH = 100


def expire_due(limit: int = 1_000) -> int:
    """End pending plans past their expiry, in short transactions of at most 100. Returns how many.

    Safe on many workers at once: a row that somebody else holds is skipped, and left to them or to the next sweep.
    """
    done = 0
    while done < limit:
        batch = _expire_batch(min(BATCH, limit - done))
        done += batch
        if batch == 0:
            break
    return done


@transaction.atomic(durable=True)
def _expire_batch(limit: int) -> int:
    due = list(
        Plan.objects.pending()
        .filter(expires_at__lte=clock.now())
        .select_related("agent", "target", "task")
        .select_for_update(of=("self",), no_key=True, skip_locked=True)
        .order_by("expires_at", "id")[:limit]
    )
    at = clock.now()
    for plan in due:
        ending.expire(plan, at=at)
        reach("expiry-written", plan.pk)
    return len(due)
