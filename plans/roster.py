"""The read side for admins: agents, targets, deliveries, and the plans that nobody left may decide."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from plans.models import Agent, AgentSecret, Callback, Plan, Policy, Target
from plans.ownership import owned_sql
from plans.policies import MAX_APPROVALS

PAGE: Final = 100
CALLBACKS_PAGE: Final = 50
COUNT_CAP: Final = 99
DAY_CAP: Final = 999


# --- plans that nobody left may decide --------------------------------------------------------------------------------

# With more reviewers than any policy asks for, no plan can be short of them, and none is looked at.
_UNDECIDABLE = """
    WITH r AS (SELECT count(*) AS reviewers FROM {person} WHERE is_reviewer AND is_active)
    SELECT {columns}
    FROM r, plans_plan p
    JOIN plans_agent a ON a.id = p.agent_id
    JOIN plans_target t ON t.id = p.target_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS owners FROM {person} x
        WHERE x.is_reviewer AND x.is_active AND (x.id = a.owner_id OR {owned})
    ) o
    WHERE r.reviewers <= %(most)s AND p.state = 'pending' AND p.approvals_required > 0
      AND p.expires_at > clock_timestamp()
      AND p.approvals_required > r.reviewers - o.owners
"""


@dataclass(frozen=True, slots=True)
class Undecidable:
    """A pending plan that needs more people than there are who may decide it."""

    agent: str
    target: str
    plan_id: str
    expires_at: datetime
    needed: int
    eligible: int


def find_undecidable(limit: int = 10) -> list[Undecidable]:
    """The plans that will expire unless an admin names another reviewer, the most urgent first."""
    columns = """a.name, t.name, p.plan_id, p.expires_at, p.approvals_required,
        r.reviewers - o.owners"""
    statement = _undecidable(columns) + " ORDER BY p.expires_at, p.id LIMIT %(limit)s"
    with connection.cursor() as cursor:
        cursor.execute(statement, {"most": MAX_APPROVALS, "limit": limit})
        return [Undecidable(*row) for row in cursor.fetchall()]


def count_undecidable() -> int:
    """How many there are, at most COUNT_CAP + 1."""
    statement = f"SELECT count(*) FROM ({_undecidable('1')} LIMIT %(limit)s) u"
    with connection.cursor() as cursor:
        cursor.execute(statement, {"most": MAX_APPROVALS, "limit": COUNT_CAP + 1})
        (count,) = cursor.fetchone()
    return int(count)


def _undecidable(columns: str) -> str:
    person = connection.ops.quote_name(get_user_model()._meta.db_table)
    return _UNDECIDABLE.format(person=person, columns=columns, owned=owned_sql("p", "x.id"))


# --- agents and targets ---------------------------------------------------------------------------------------------


def find_agents(*, after: str = "", limit: int = PAGE) -> list[Agent]:
    """Agents by name from `after` on, each with `last_plan_at`, `pending_count`, `hour_count` and `day_count` (plans of
    the last hour and of 24, at most DAY_CAP + 1), its owner, its targets, and when it was `seen`."""
    agents = _with_last_plan(Agent.objects.filter(name__gt=after) if after else Agent.objects.all(), "agent")
    found = list(agents.select_related("owner", "seen").prefetch_related("targets").order_by("name")[:limit])
    _count_days(found)
    return found


def find_agent(name: str) -> Agent | None:
    """One agent as in the list, or None."""
    agents = _with_last_plan(Agent.objects.filter(name=name), "agent")
    found = agents.select_related("owner", "seen").prefetch_related("targets").first()
    if found is not None:
        _count_days([found])
    return found


_DAYS = """
    SELECT a.id, d.hour, d.day FROM plans_agent a CROSS JOIN LATERAL (
        SELECT count(*) AS day,
            count(*) FILTER (WHERE n.received_at > statement_timestamp() - interval '1 hour') AS hour
        FROM (SELECT p.received_at FROM plans_plan p
              WHERE p.agent_id = a.id AND p.received_at > statement_timestamp() - interval '24 hours'
              ORDER BY p.received_at DESC LIMIT %s) n
    ) d WHERE a.id = ANY(%s)
"""


def _count_days(agents: Sequence[Agent]) -> None:
    """Give each agent its counts: cut off, so that one that runs wild does not slow the page down."""
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, [DAY_CAP + 1, [agent.pk for agent in agents]])
        counts = {pk: (hour, day) for pk, hour, day in cursor.fetchall()}
    for agent in agents:
        agent.hour_count, agent.day_count = counts.get(agent.pk, (0, 0))  # type: ignore[attr-defined]  # for the page


def count_agents() -> tuple[int, int]:
    """How many agents may plan, and how many are paused."""
    alive = Agent.objects.filter(disabled_at=None)
    counts = alive.aggregate(
        active=Count("pk", filter=Q(is_paused=False)), paused=Count("pk", filter=Q(is_paused=True))
    )
    return counts["active"], counts["paused"]


def find_live_secrets(agent: Agent) -> list[AgentSecret]:
    """The secrets that count now, without what they say; the newest of a purpose first."""
    rows = AgentSecret.objects.filter(agent=agent, retired_at=None)
    return list(rows.only("purpose", "created_at").order_by("purpose", "-id"))


def find_targets(*, after: str = "", limit: int = PAGE) -> list[Target]:
    """Targets by name from `after` on, each with `last_plan_at`, `pending_count` and `agent_count`."""
    targets = _with_last_plan(Target.objects.filter(name__gt=after) if after else Target.objects.all(), "target")
    return list(targets.annotate(agent_count=_agents()).order_by("name")[:limit])


def find_target(name: str) -> Target | None:
    """One target as in the list, or None."""
    targets: QuerySet[Target] = _with_last_plan(Target.objects.filter(name=name), "target")
    return targets.annotate(agent_count=_agents()).first()


def newest_policies(targets: Sequence[Target]) -> dict[int, Policy]:
    """The policy that each target's next plan is received under, by the target's pk."""
    rows = Policy.objects.filter(target__in=targets).order_by("target_id", "-version").distinct("target_id")
    return {policy.target_id: policy for policy in rows}


def find_policies(target: Target, limit: int = 50) -> list[Policy]:
    """The versions of a target's policy, the newest first, each with `pending_count`."""
    waits = Count("plans", filter=Q(plans__state="pending"))
    return list(Policy.objects.filter(target=target).annotate(pending_count=waits).order_by("-version")[:limit])


def find_older_pending(target: Target, newest: Policy, limit: int = PAGE) -> list[Plan]:
    """Pending plans of a target that stand under an older policy than `newest`, the most urgent first."""
    plans = Plan.objects.pending().filter(target=target).exclude(policy=newest)
    return list(plans.select_related("agent", "target", "policy").order_by("expires_at", "id")[:limit])


def _with_last_plan(rows: QuerySet[Any], of: str) -> QuerySet[Any]:
    plans = Plan.objects.filter(**{of: OuterRef("pk")})
    newest = plans.order_by("-received_at", "-id").values("received_at")[:1]
    waiting = plans.filter(state="pending").order_by().values(of).annotate(count=Count("*")).values("count")
    annotated: QuerySet[Any] = rows.annotate(last_plan_at=Subquery(newest), pending_count=Subquery(waiting))
    return annotated


def _agents() -> Count:
    return Count("agents", filter=Q(agents__disabled_at=None))


# --- deliveries -----------------------------------------------------------------------------------------------------

WAITING, DELIVERED, GIVEN_UP = "waiting", "delivered", "given-up"
_OUTCOMES: Final = {
    WAITING: Q(next_try_at__isnull=False),
    DELIVERED: Q(delivered_at__isnull=False),
    GIVEN_UP: Q(gave_up_at__isnull=False),
}


def find_callbacks(
    *, agent: str = "", outcome: str = "", before: int | None = None, limit: int = CALLBACKS_PAGE
) -> list[Callback]:
    """News for agents, the newest first, by key, each with its plan, its agent and all attempts to deliver it."""
    rows = Callback.objects.select_related("agent", "plan__target").prefetch_related("tries").defer("body")
    if agent:
        rows = rows.filter(agent__name=agent)
    if outcome:
        rows = rows.filter(_OUTCOMES[outcome])
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-pk")[:limit])
