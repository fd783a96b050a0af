"""The statements of a decision and its commit, each prepared once a connection; all under the plan's lock.

By hand and not by the ORM, which would compile anew for every plan what never differs (docs/speed.md). Changes are
`audit.recording`'s `Change`s: the event is written in the statement that makes the change.
"""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

from django.contrib.auth import get_user_model
from django.db import connection

from audit.recording import Actor, Change
from plans import clock
from plans.models import Commit, Plan
from plans.ownership import owned_sql
from plans.states import Outcome, State

_WITHDRAWN: Final = """a.disabled_at IS NOT NULL OR t.disabled_at IS NOT NULL OR t.kind = 'remote' AND p.address_id
        IS DISTINCT FROM (SELECT max(n.id) FROM plans_targetaddress n WHERE n.target_id = t.id)"""
_WRITTEN: Final = """EXISTS (SELECT FROM plans_observedwrite w WHERE NOT w.is_applied AND w.agent_id = p.agent_id
        AND w.target_id = p.target_id AND w.at >= p.created_at AND w.action_targets && p.action_targets
        AND w.plan_id IS DISTINCT FROM p.id)"""
_OF: Final = """plans_plan p JOIN plans_agent a ON a.id = p.agent_id JOIN plans_target t ON t.id = p.target_id"""

_OVERTAKEN: Final = f"SELECT {_WITHDRAWN}, {_WRITTEN} FROM {_OF} WHERE p.id = %s"


class Overtaken(NamedTuple):
    """What may have ended a pending plan although nobody has written that down yet."""

    is_withdrawn: bool
    is_written_to: bool


def look_for_overtaking(plan: Plan) -> Overtaken:
    """Read it now, for a locked plan."""
    with connection.cursor() as cursor:
        cursor.execute(_OVERTAKEN, [plan.pk])
        return Overtaken(*cursor.fetchone())


@dataclass(slots=True)
class Decider:
    """The person who decides, as the rules want to know them."""

    pk: int
    is_active: bool
    is_reviewer: bool


class Standing(NamedTuple):
    """What a decision depends on beside the plan's row, of one moment after its lock: `at`, by the database's clock."""

    at: datetime
    person: Decider
    is_own: bool
    opened_at: datetime | None  # when the person opened the plan's page last
    approval_count: int  # that are not void, whether or not who gave them may still decide
    attempt_count: int
    overtaken: Overtaken


@functools.cache
def _standing() -> str:
    people = get_user_model()._meta.db_table
    return f"""
SELECT clock_timestamp(), u.id, u.is_active, u.is_reviewer, a.owner_id = u.id OR {owned_sql("p", "u.id")}, v.opened_at,
    (SELECT count(*) FROM plans_approval x WHERE x.plan_id = p.id AND x.voided_at IS NULL),
    (SELECT count(*) FROM plans_commit c WHERE c.plan_id = p.id), {_WITHDRAWN}, {_WRITTEN}
FROM {_OF} JOIN {people} u ON u.id = %s LEFT JOIN plans_planview v ON v.plan_id = p.id AND v.person_id = u.id
WHERE p.id = %s
"""


def look(plan: Plan, person_pk: int) -> Standing:
    """Read all of it at once, for a locked plan."""
    with connection.cursor() as cursor:
        cursor.execute(_standing(), [person_pk, plan.pk])
        at, pk, is_active, is_reviewer, is_own, opened_at, approvals, attempts, *overtaken = cursor.fetchone()
    person = Decider(pk, is_active, is_reviewer)
    return Standing(clock.read(at), person, is_own, opened_at, approvals, attempts, Overtaken(*overtaken))


# --- changes, each for the event that tells of it -------------------------------------------------------------------

_APPROVAL: Final[LiteralString] = """
approval AS (
    INSERT INTO plans_approval (plan_id, reviewer_id, seen_digest, reason, approved_at, opened_at, void_reason)
    VALUES (%s, %s, %s, %s, %s, %s, '')
), numbered (seq) AS (UPDATE plans_plan SET event_count = event_count + 1 WHERE id = %s RETURNING event_count)
"""


def approval(
    plan: Plan, *, reviewer_pk: int, seen_digest: str, reason: str, at: datetime, opened_at: datetime | None
) -> Change:
    """Write down one person's yes."""
    return Change(_APPROVAL, [plan.pk, reviewer_pk, seen_digest, reason, at, opened_at, plan.pk])


_ATTEMPT: Final[LiteralString] = """
attempt AS (
    INSERT INTO plans_commit
        (plan_id, number, started_by, started_by_id, started_by_name, started_at, may_have_arrived, detail)
    VALUES (%s, %s, %s, %s, %s, %s, true, '') RETURNING id
), numbered (seq, attempt) AS (
    UPDATE plans_plan SET event_count = event_count + 1{also} WHERE id = %s
    RETURNING event_count, (SELECT id FROM attempt)
)
"""
_ANOTHER: Final[LiteralString] = _ATTEMPT.replace("{also}", "")
_FIRST: Final[LiteralString] = _ATTEMPT.replace(
    "{also}", f", state = '{State.COMMITTING.value}', state_changed_at = %s, claimed_at = %s"
)


def attempt(plan: Plan, number: int, actor: Actor, at: datetime, *, is_claim: bool) -> Change:
    """Write down one more attempt, and give back its key; with the plan's move to `committing` where it `is_claim`."""
    values: list[Any] = [plan.pk, number, actor.type, actor.id, actor.name, at]
    if is_claim:
        return Change(_FIRST, [*values, at, at, plan.pk])
    return Change(_ANOTHER, [*values, plan.pk])


_COMMITTED: Final[LiteralString] = f"""
fences AS (DELETE FROM plans_fence WHERE plan_id = %s),
wish AS (DELETE FROM plans_wish WHERE agent_id = %s AND target_id = %s AND plan_id = %s),
attempt AS (
    UPDATE plans_commit SET outcome = '{Outcome.COMMITTED.value}', settled_at = %s, result = %s, http_status = %s,
        detail = %s
    WHERE id = %s
), write AS (
    INSERT INTO plans_observedwrite (agent_id, target_id, task_id, action_targets, at, plan_id, is_applied)
    VALUES (%s, %s, %s, %s, %s, %s, false)
), numbered (seq) AS (
    UPDATE plans_plan SET state = '{State.COMMITTED.value}', state_changed_at = %s, token_sealed = NULL,
        next_check_at = NULL, event_count = event_count + 1
    WHERE id = %s RETURNING event_count
)
"""


def committed(plan: Plan, made: Commit, at: datetime) -> Change:
    """Close a plan as committed by this attempt, with all that an end and a write entail."""
    return Change(_COMMITTED, [
        plan.pk, plan.agent_id, plan.target_id, plan.plan_id, at, made.result, made.http_status, made.detail, made.pk,
        plan.agent_id, plan.target_id, plan.task.task_id, plan.action_targets, at, plan.pk, at, plan.pk,
    ])  # fmt: skip


# --- a claim that was lost ------------------------------------------------------------------------------------------

_IS_OVERDUE: Final = f"""
SELECT EXISTS (SELECT FROM plans_plan WHERE id = %s AND state = '{State.COMMITTING.value}'
    AND claimed_at <= clock_timestamp() - %s::interval)
"""


def is_overdue(plan_pk: int, after: Any) -> bool:
    """Whether a claim is unsettled for so long, by the database's clock; read without a lock."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_OVERDUE, [plan_pk, after])
        return bool(cursor.fetchone()[0])
