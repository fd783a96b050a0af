"""How fast people decide: from opening a plan's page to approving it, per person and per policy."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import connection

WITHIN: Final = timedelta(days=30)
QUICK: Final = timedelta(seconds=5)
MANY: Final = 50
MOSTLY: Final = 0.99
"""Where at least MANY decisions of a policy are at least MOSTLY approvals, in a median under QUICK, nobody reads."""

_SPANS: Final = {"within": WITHIN.total_seconds(), "quick": QUICK.total_seconds()}

# Of the statement, not of the moment: no index is read by a clock that moves on within it.
_DECISIONS = """
    SELECT a.plan_id, a.reviewer_id, true AS is_approval, a.approved_at AS at,
           CASE WHEN a.opened_at <= a.approved_at THEN a.approved_at - a.opened_at END AS took
    FROM plans_approval a WHERE a.approved_at > statement_timestamp() - make_interval(secs => %(within)s)
    UNION ALL
    SELECT r.plan_id, r.reviewer_id, false, r.rejected_at, r.rejected_at - v.opened_at
    FROM plans_rejection r
    LEFT JOIN plans_planview v ON v.plan_id = r.plan_id AND v.person_id = r.reviewer_id AND v.opened_at <= r.rejected_at
    WHERE r.rejected_at > statement_timestamp() - make_interval(secs => %(within)s)
"""

_FIGURES = """count(*), count(*) FILTER (WHERE d.is_approval),
    percentile_disc(0.5) WITHIN GROUP (ORDER BY d.took),
    count(*) FILTER (WHERE d.took < make_interval(secs => %(quick)s))"""

_OWN = f"SELECT {_FIGURES} FROM ({_DECISIONS}) d WHERE d.reviewer_id = %(person)s"

_BY_POLICY = f"""
SELECT t.name, p.operation, o.version, {_FIGURES}
FROM ({_DECISIONS}) d
JOIN plans_plan p ON p.id = d.plan_id
JOIN plans_policy o ON o.id = p.policy_id
JOIN plans_target t ON t.id = p.target_id
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 100
"""

_BY_AGENT = f"""
SELECT p.agent_id, {_FIGURES}
FROM ({_DECISIONS}) d JOIN plans_plan p ON p.id = d.plan_id
WHERE p.agent_id = ANY (%(agents)s) GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """Decisions of the last 30 days. `median` and `quick` are of those whose page was opened here before."""

    decisions: int
    approvals: int
    median: timedelta | None
    quick: int

    @property
    def share_approved(self) -> float:
        return self.approvals / self.decisions if self.decisions else 0.0

    @property
    def looks_like_a_stamp(self) -> bool:
        """Enough decisions, hardly a no among them, and most of them faster than a plan can be read."""
        is_fast = self.median is not None and self.median < QUICK
        return self.decisions >= MANY and self.share_approved >= MOSTLY and is_fast


@dataclass(frozen=True, slots=True)
class PolicyPace:
    """The pace of what one policy asks for, by operation."""

    target: str
    operation: str
    version: int
    pace: Pace


def find_own_pace(person_pk: int) -> Pace:
    """How one person decided. Reads the decisions of 30 days."""
    with connection.cursor() as cursor:
        cursor.execute(_OWN, {**_SPANS, "person": person_pk})
        return Pace(*cursor.fetchone())


def find_agent_paces(agents: Sequence[int]) -> dict[int, Pace]:
    """How everybody decided on the plans of these agents, by the agent's key. Reads the decisions of 30 days."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_AGENT, {**_SPANS, "agents": list(agents)})
        return {row[0]: Pace(*row[1:]) for row in cursor.fetchall()}


def find_paces() -> list[PolicyPace]:
    """How everybody decided, by policy and operation, the most decided first. Reads the decisions of 30 days."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_POLICY, _SPANS)
        return [PolicyPace(row[0], row[1], row[2], Pace(*row[3:])) for row in cursor.fetchall()]
