"""Let time pass for a plan without waiting for it: every instant it holds is moved back, as its owner."""

from typing import Any

from plans.models import Plan

PLAN_INSTANTS = (
    "created_at", "received_at", "expires_at", "state_changed_at", "claimed_at", "unknown_since", "next_check_at",
)  # fmt: skip
COMMIT_INSTANTS = ("started_at", "settled_at")


def pass_time(owner_connection: Any, plan: Plan, seconds: float) -> None:
    """So many seconds pass for this plan and its attempts, by the only clock that decides."""
    _move_back(owner_connection, "plans_plan", PLAN_INSTANTS, "id", plan.pk, seconds)
    _move_back(owner_connection, "plans_commit", COMMIT_INSTANTS, "plan_id", plan.pk, seconds)


def pass_time_to_expiry(owner_connection: Any, plan: Plan, seconds: float = 0) -> None:
    """Time passes until so many seconds after the plan's expiry."""
    with owner_connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM plans_plan WHERE id = %s", [plan.pk]
        )
        (left,) = cursor.fetchone()
    pass_time(owner_connection, plan, float(left) + seconds)


def _move_back(connection: Any, table: str, columns: tuple[str, ...], key: str, pk: int, seconds: float) -> None:
    moved = ", ".join(f"{column} = {column} - make_interval(secs => %s)" for column in columns)
    connection.execute("SET session_replication_role = replica")  # what was received never changes, says a trigger
    connection.execute(f"UPDATE {table} SET {moved} WHERE {key} = %s", [seconds] * len(columns) + [pk])
    connection.execute("SET session_replication_role = origin")
