"""How fast people decide is read from the decisions of 30 days, and not from all there ever were."""

import pytest
from django.db import connection

from plans import pace, roster

pytestmark = pytest.mark.usefixtures("database")


@pytest.mark.parametrize("statement", [pace._BY_POLICY, pace._BY_AGENT], ids=["policy", "agent"])
def test_decisions_are_found_by_their_time(statement):
    values = {**pace._SPANS, "person": 1, "agents": [1]}
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        try:
            cursor.execute(f"EXPLAIN {statement}", values)
            told = " ".join(line for (line,) in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan")
    assert "plans_approvals_by_time" in told
    assert "plans_rejections_by_time" in told


def test_the_plans_of_a_day_are_found_without_the_older_ones():
    with connection.cursor() as cursor:
        # Of few plans any index will do, and sorting them costs nothing.
        cursor.execute("SET enable_seqscan = off; SET enable_sort = off")
        try:
            cursor.execute(f"EXPLAIN {roster._DAYS}", [roster.DAY_CAP, [1]])
            told = " ".join(line for (line,) in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan; RESET enable_sort")
    assert "Index Cond: ((agent_id = a.id) AND (received_at >" in told
