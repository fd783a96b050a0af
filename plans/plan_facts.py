"""The read side for people: one plan with all that is known of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.contrib.auth import get_user_model

from plans import plan_sql
from plans.models import Approval, Commit, ConflictChange, Plan
from plans.ownership import owner_pks
from plans.queries import OVERDUE_AFTER
from plans.states import State

_RELATED = ("agent__owner", "target", "task", "policy", "replaced_by__agent", "replaced_by__target")
_ENDS = ("rejection__reviewer", "refusal", "abandonment", "conflict")
_HAVE_ENDS = frozenset({State.REJECTED, State.REFUSED, State.ABANDONED, State.CONFLICTED})


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """One plan and everything that is known of it, as of `now`."""

    plan: Plan
    now: datetime
    approvals: list[Approval]
    attempts: list[Commit]
    conflict_changes: list[ConflictChange]
    replaced_plan: Plan | None
    rivals: list[Plan]
    eligible_people: int
    owners: frozenset[int]
    """Who owns its agent, or owned it since the plan was received: they decide nothing of it."""

    @property
    def live_approvals(self) -> list[Approval]:
        return [approval for approval in self.approvals if approval.voided_at is None]

    @property
    def state(self) -> str:
        """The state that is true by the clock: a claim that is overdue is unknown, whoever reads it first."""
        plan = self.plan
        if plan.state == State.COMMITTING and plan.claimed_at and self.now - plan.claimed_at >= OVERDUE_AFTER:
            return State.UNKNOWN
        return plan.state

    @property
    def is_past_expiry(self) -> bool:
        return self.now >= self.plan.expires_at

    def fact(self, name: str) -> Any:
        """The plan's rejection, refusal, abandonment or conflict; None where there is none."""
        return getattr(self.plan, name, None)

    @property
    def last_attempt(self) -> Commit | None:
        return self.attempts[-1] if self.attempts else None


def find_plan(agent: str, target: str, plan_id: str) -> Plan | None:
    """The plan by its public names, or None."""
    return (
        Plan.objects.select_related(*_RELATED).filter(agent__name=agent, target__name=target, plan_id=plan_id).first()
    )


def find_plan_pk(agent: str, target: str, plan_id: str) -> int | None:
    """The key of the plan by its public names, or None: all that a decision needs, which reads the plan under lock."""
    return plan_sql.find_pk(agent, target, plan_id)


def get_plan_facts(pk: int) -> PlanFacts:
    """All there is to show of a plan; raises Plan.DoesNotExist. A fixed number of statements, however long its life."""
    shown = plan_sql.get_shown_plan(pk)
    plan = _with_ends(shown.plan)
    conflict = getattr(plan, "conflict", None)
    approvals = plan_sql.find_approvals(plan.pk)
    is_pending = plan.state == State.PENDING
    owners = owner_pks(plan)
    return PlanFacts(
        plan=plan,
        now=shown.now,
        approvals=approvals,
        attempts=plan_sql.find_attempts(plan.pk),
        conflict_changes=list(conflict.changes.order_by("position")) if conflict else [],
        replaced_plan=_replaced(plan) if plan.replaces or shown.has_replaced else None,
        rivals=_rivals(plan) if is_pending else [],
        eligible_people=_count_eligible(owners) if is_pending else 0,
        owners=owners,
    )


def _with_ends(plan: Plan) -> Plan:
    """The plan with what became of it: read anew where an end has a row that says so, else known to have none."""
    if plan.state in _HAVE_ENDS or plan.replaced_by_id is not None:
        return Plan.objects.select_related(*_RELATED, *_ENDS).get(pk=plan.pk)
    plan._state.fields_cache |= dict.fromkeys(("rejection", "refusal", "abandonment", "conflict", "replaced_by"))
    return plan


def _replaced(plan: Plan) -> Plan | None:
    """The plan that this one takes the place of: named by the agent, else the one it was found to supersede."""
    earlier = Plan.objects.select_related("agent", "target").order_by("-received_at", "-id")
    if plan.replaces:
        named = earlier.filter(agent_id=plan.agent_id, target_id=plan.target_id, plan_id=plan.replaces).first()
        if named is not None:
            return named
    # All of the few there are: a LIMIT could make the planner walk every plan by receipt to find that there is none.
    return next(iter(earlier.filter(replaced_by_id=plan.pk)), None)


MOST_RIVALS: Final = 10
"""Rivals that a page shows; with so many, there may be more."""


def _rivals(plan: Plan) -> list[Plan]:
    """Other pending plans that touch one of this plan's records at the same target: approving one may undo them."""
    return list(
        Plan.objects.pending()
        .select_related("agent", "target")
        .only("plan_id", "operation", "agent__name", "target__name", "expires_at", "actions", "planned_state")
        .filter(target_id=plan.target_id, action_targets__overlap=plan.action_targets)
        .exclude(pk=plan.pk)
        .order_by("expires_at", "id")[:MOST_RIVALS]
    )


def _count_eligible(owners: frozenset[int]) -> int:
    """How many people may decide a plan of these, those included who approved it already and may still."""
    people = get_user_model()._default_manager.filter(is_reviewer=True, is_active=True)
    return people.exclude(pk__in=owners).count()
