"""What an auditor's page draws beside the events: histogram, facets and charts, each against its own time limit."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.benchmarks.measuring import ROUNDS, Series, note


def run_views() -> None:
    """Print the seconds of each, of everything, of a month, and of a frequent agent."""
    from django.db import connection

    from audit.charts import PATIENCE as CHARTS_PATIENCE
    from audit.charts import read_numbers
    from audit.facets import count_facets
    from audit.filters import Filters
    from audit.histogram import draw_histogram
    from audit.windows import PATIENCE

    with connection.cursor() as cursor:
        cursor.execute("SELECT max(at), min(agent) FROM audit_event WHERE agent IS NOT NULL")
        newest, agent = cursor.fetchone()
    limit = PATIENCE.total_seconds()
    searches = {
        "everything": Filters(),
        "30 days": Filters(from_at=newest - timedelta(days=30), to_at=newest),
        "a frequent agent": Filters(agent=agent),
    }
    for name, filters in searches.items():
        _tell(f"histogram, {name}", limit, lambda filters=filters: draw_histogram(filters, now=newest))  # type: ignore[misc]
        _tell(f"facets, {name}", limit, lambda filters=filters: count_facets(filters))  # type: ignore[misc]
    for days in (7, 30, 90):
        span = Filters(from_at=newest - timedelta(days=days), to_at=newest)
        _tell(f"charts, {days} days", CHARTS_PATIENCE.total_seconds(), lambda span=span: read_numbers(span))  # type: ignore[misc]


def _tell(what: str, limit: float, work: Callable[[], Any]) -> None:
    from audit.windows import TakesTooLongError

    taken = Series()
    for turn in range(ROUNDS + 1):
        began = time.perf_counter()
        try:
            work()
        except TakesTooLongError:
            note(f"{what:<54} given up after {limit:.0f} s, as it says")
            return
        if turn > 0:
            taken.add(time.perf_counter() - began)
    slowest = max(taken.values)
    note(f"{what:<54} {taken.middle:6.2f} s  (slowest {slowest:.2f}) of at most {limit:.0f}")
