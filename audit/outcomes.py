"""Outcomes that were unknown: since when, how each was found out, and how long that took."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from audit.filters import Filters
from audit.kinds import TERMINAL_KINDS, Kind
from audit.queries import COUNT_CAP
from audit.windows import fetch, patience, window

# Members of what commit.resolved tells; our own texts, written without spaces.
_HOW: Final = """substring(p.body from '"how":"([a-z]+)"')"""


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """One plan whose outcome was not known. `how` it was found out: answer, state, person, unsent; "" where it only
    ended, or is still unknown (`known_at` None)."""

    agent: str
    target: str
    plan_id: str
    operation: str
    unknown_at: datetime
    known_at: datetime | None
    how: str

    @property
    def took(self) -> timedelta | None:
        return None if self.known_at is None else self.known_at - self.unknown_at


@dataclass(frozen=True, slots=True)
class UnknownOutcomes:
    """One for each plan, oldest first. Not `is_exact`: of the newest COUNT_CAP events alone."""

    found: list[UnknownOutcome]
    is_exact: bool


def find_unknown_outcomes(filters: Filters) -> UnknownOutcomes:
    """The plans with a `commit.unknown` that matches, each once, with how that ended. Raises TakesTooLongError.

    What ended them is looked for in the whole log: a search over a day tells of what was found out the day after.
    """
    asked = replace(filters, kinds=(Kind.COMMIT_UNKNOWN,), preset=None)
    ends = [Kind.COMMIT_RESOLVED.value, *(kind.value for kind in sorted(TERMINAL_KINDS))]
    with patience():
        newest = window(asked, "e.agent, e.target, e.plan_id, e.operation", COUNT_CAP + 1)
        rows = fetch(
            f"WITH seen AS MATERIALIZED ({newest.statement}), plan AS (SELECT agent, target, plan_id, min(operation)"
            " AS operation, min(at) AS unknown_at, count(*) AS many FROM seen GROUP BY agent, target, plan_id)"
            f" SELECT plan.agent, plan.target, plan.plan_id, plan.operation, plan.unknown_at, known.at, known.how,"
            " sum(plan.many) OVER ()::bigint FROM plan LEFT JOIN LATERAL"
            f" (SELECT e.at, CASE WHEN e.kind = '{Kind.COMMIT_RESOLVED}' THEN {_HOW} END AS how FROM audit_event e"
            "  LEFT JOIN audit_payload p ON p.event_id = e.id WHERE e.plan_id = plan.plan_id AND e.agent = plan.agent"
            "  AND e.target = plan.target AND e.kind = ANY(%s) AND e.at >= plan.unknown_at ORDER BY e.at, e.id LIMIT 1"
            " ) AS known ON true ORDER BY plan.unknown_at, plan.plan_id",
            [*newest.parameters, ends],
        )
    found = [
        UnknownOutcome(row[0] or "", row[1] or "", row[2] or "", row[3] or "", row[4], row[5], row[6] or "")
        for row in rows
    ]
    return UnknownOutcomes(found, is_exact=not newest.is_cut and (not rows or rows[0][7] <= COUNT_CAP))
