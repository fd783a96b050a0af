"""What the clock does for the log: months made ahead, counters tidied."""

from celery import shared_task
from django.conf import settings
from django.db import connection

MONTHS_AHEAD = 12


@shared_task(name="audit.keep_house")  # type: ignore[untyped-decorator]  # celery has no types
def keep_house() -> None:
    """Makes the partitions of the coming year and forgets counters nobody asks for. May be repeated; daily will do."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT audit_ensure_partitions(%s)", [MONTHS_AHEAD])
        cursor.execute("SELECT audit_tidy_counters(%s)", [settings.EVENT_CAP_PER_MINUTE])
