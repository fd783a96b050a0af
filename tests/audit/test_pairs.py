"""Every pair of filters has its index, in every month."""

from itertools import combinations
from typing import Any

import psycopg

FILTERED = ("kind", "agent", "target", "operation", "actor_id")


def test_a_month_that_is_made_later_has_an_index_for_every_pair_of_filters(
    owner_connection: psycopg.Connection[Any],
) -> None:
    with owner_connection.transaction(force_rollback=True):
        owner_connection.execute("SELECT audit_make_partition('2041-03-15 12:00Z')")
        rows = owner_connection.execute(
            "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'audit_event_204103'::regclass"
        ).fetchall()
    indexes = [definition.partition("(")[2].partition(")")[0] for (definition,) in rows]
    for one, other in combinations(FILTERED, 2):
        assert {f"{one}, {other}, at, id", f"{other}, {one}, at, id"} & set(indexes), (one, other)
