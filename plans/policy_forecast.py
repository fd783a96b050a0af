"""What a policy would ask of people, told before it is made: by the plans that its target received of late."""

from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Final

from django.db import connection

from audit.windows import TakesTooLongError, patience
from plans import policies
from plans.models import Plan, Policy, Target
from plans.policy_change import approvals_under
from plans.targets.operations import OperationFailed

DAYS: Final = 7
MOST: Final = 10_000
"""So many plans are looked at, the newest: a target of a million a week answers like any other."""
FEWER: Final = 500
"""So many are looked at instead where MOST took too long: they can be large, and an operation slow to ask."""
PATIENCE: Final = timedelta(seconds=2)
FIRST: Final = 0.75
"""The share of PATIENCE that looking at MOST may take."""

# Plans that every rule treats alike are one row. Only what a rule is about is found out here, and no rule applied but
# one: `is_grave` is `policies.guard_of(actions) is not None`, and tests/plans/test_policy_forecast.py holds the two
# against each other. JSON is read only of a text in which something grave can stand: small letters are spelled as
# themselves or by `\u006_` and `\u007_`, and `false` is in one way. Inputs and actions are sent where the operation has
# to be asked: `approvals_required` is not its number, but that of the policy which the plan stands under.
_ALIKE: Final = r"""
    SELECT p.approvals_required, p.has_confirmed_actions, y.is_guarded, y.refuses_unconfirmed,
        CASE WHEN p.actions COLLATE "C" ~ 'delete|reversible"[ \t\n\r]*:[ \t\n\r]*false|\\u00[67]' THEN EXISTS (
            SELECT FROM json_array_elements(p.actions::json) a
            WHERE a ->> 'op' = 'delete' OR (a -> 'reversible')::text = 'false'
        ) ELSE false END AS is_grave,
        CASE WHEN o.is_asked THEN p.operation END, CASE WHEN o.is_asked THEN p.inputs END,
        CASE WHEN o.is_asked THEN p.actions END, count(*)
    FROM (
        SELECT policy_id, approvals_required, has_confirmed_actions, operation, inputs, actions FROM plans_plan
        WHERE target_id = %(target)s AND received_at > statement_timestamp() - make_interval(days => %(days)s)
        ORDER BY received_at DESC, id DESC LIMIT %(most)s
    ) p
    JOIN plans_policy y ON y.id = p.policy_id
    CROSS JOIN LATERAL (SELECT %(is_by_operation)s AND y.approvals IS NOT NULL AS is_asked) o
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
"""


@dataclass(slots=True)
class Asked:
    """What a rule asks of people over some plans. A plan that is held back counts as that and as nothing else."""

    people: int = 0
    """Plans that at least one person has to approve."""
    approvals: int = 0
    facts: int = 0
    """Plans of which a fact has to be typed before they are approved."""
    nobody: int = 0
    held_back: int = 0
    """Plans that can't be approved, for their target has not confirmed them until now."""

    def add(self, count: int, *, needed: int, has_fact: bool, is_held_back: bool) -> None:
        """Count so many plans that are alike."""
        if is_held_back:
            self.held_back += count
        elif needed == 0:
            self.nobody += count
        else:
            self.people += count
            self.approvals += count * needed
            self.facts += count if has_fact else 0


@dataclass(slots=True)
class Forecast:
    """What was asked over the plans of the last DAYS, and what would have been."""

    plans: int = 0
    asked: Asked = field(default_factory=Asked)
    """By the version that each plan stands under."""
    would_ask: Asked = field(default_factory=Asked)
    most: int = MOST
    """So many were looked at, the newest."""

    @property
    def is_cut(self) -> bool:
        """Whether there may be more plans than were looked at, which are the newest then."""
        return self.plans >= self.most


def forecast(target: Target, rule: Policy) -> Forecast:
    """What `rule`, which need not be saved, would ask over the plans that the target received in the last DAYS.

    One statement that reads at most MOST plans by an index, and locks nothing; where that takes too long, one more that
    reads at most FEWER. Both together end after PATIENCE, or with the operation that is asked then. Raises
    `TakesTooLongError`, and `OperationFailed` where an operation that the rule leaves the number to can't say it.
    """
    end = monotonic() + PATIENCE.total_seconds()
    try:
        return _count(target, rule, MOST, PATIENCE * FIRST)
    except TakesTooLongError:
        left = timedelta(seconds=end - monotonic())
        if left < timedelta(milliseconds=1):  # nothing would be no limit at all
            raise
        return _count(target, rule, FEWER, left)


def _count(target: Target, rule: Policy, most: int, length: timedelta) -> Forecast:
    end = monotonic() + length.total_seconds()
    told = Forecast(most=most)
    given = {"target": target.pk, "days": DAYS, "most": most, "is_by_operation": rule.approvals is None}
    # By a cursor of the database's: inputs and actions are up to a megabyte a plan, and are never here all at once.
    with patience(length), connection.chunked_cursor() as cursor:
        cursor.execute(_ALIKE, given)
        for needed, is_confirmed, was_guarded, was_refusing, is_grave, operation, inputs, actions, count in cursor:
            plan = Plan(
                target=target, policy=rule, operation=operation or "", inputs=inputs, actions=actions,
                approvals_required=needed, has_confirmed_actions=is_confirmed,
            )  # fmt: skip
            told.plans += count
            told.asked.add(
                count,
                needed=needed,
                has_fact=was_guarded or is_grave,
                is_held_back=policies.is_held_back(
                    refuses_unconfirmed=was_refusing, is_hosted=target.is_hosted, is_confirmed=is_confirmed
                ),
            )
            told.would_ask.add(
                count,
                needed=_needed(plan, rule, end),
                has_fact=rule.is_guarded or is_grave,
                is_held_back=plan.is_held_back,
            )
    return told


def _needed(plan: Plan, rule: Policy, end: float) -> int:
    """How many people the rule asks for; where the operation was not asked again, its number is the plan's."""
    if not plan.operation:
        return policies.approvals_needed(of_policy=rule.approvals, of_operation=plan.approvals_required)
    # What an operation does is its own, and may be a question to the database for each plan.
    try:
        if monotonic() < end:
            return approvals_under(rule, plan)
    except OperationFailed:
        if monotonic() < end:
            raise
    raise TakesTooLongError("The operation took too long to say how many people approve.")
