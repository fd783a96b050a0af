"""What live hints are made from: values that change when there is something new to see, and say nothing else."""

from collections.abc import Mapping, Sequence
from typing import Final

from django.db import connection

from plans.models import Plan

MOST_PLANS: Final = 50
"""Plans that one page may ask hints of: as many as a list shows."""

# Everything that an inbox shows first, and the newest plan for what comes below: exact, and cheap at any size.
_INBOX = """
SELECT coalesce((SELECT max(id) FROM plans_plan), 0),
    (SELECT hashtextextended(string_agg(concat_ws(',', id, mark_count, given), ';' ORDER BY id), 0) FROM (
        SELECT p.id, p.mark_count,
               (SELECT count(*) FROM plans_approval a WHERE a.plan_id = p.id AND a.voided_at IS NULL) AS given
        FROM plans_plan p WHERE p.state = 'pending' AND p.expires_at > clock_timestamp()
        ORDER BY p.expires_at, p.id LIMIT 100
    ) first),
    (SELECT hashtextextended(string_agg(concat_ws(',', id, state), ';' ORDER BY id), 0) FROM (
        SELECT id, state FROM plans_plan WHERE state = 'unknown'
        UNION ALL SELECT id, state FROM plans_plan WHERE state = 'committing'
    ) busy),
    (SELECT max(at) FROM audit_event WHERE kind = 'commit.contradicted')
"""

# Not `event_count`: that a page was opened is an event too, and a hint of it would open the page again.
_PLANS = """
SELECT p.id, concat_ws(',', p.state, p.state_changed_at, p.mark_count, p.has_confirmed_actions,
    p.policy_id, p.replaced_by_id,
    (SELECT concat_ws('/', count(*), count(*) FILTER (WHERE a.voided_at IS NULL))
     FROM plans_approval a WHERE a.plan_id = p.id),
    p.state = 'pending' AND p.expires_at <= clock_timestamp())
FROM plans_plan p WHERE p.id = ANY(%s)
"""


def inbox_now() -> str:
    """A value that is another one when the inbox's beginning, or the newest plan, is another one."""
    with connection.cursor() as cursor:
        cursor.execute(_INBOX)
        return repr(cursor.fetchone())


def plans_now(plan_pks: Sequence[int]) -> dict[int, str]:
    """For each of these plans a value that is another one when its page has something new to show."""
    if not plan_pks:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_PLANS, [list(plan_pks)])
        return dict(cursor.fetchall())


def find_plans(paths: Sequence[str]) -> Mapping[int, str]:
    """The plans of these public paths (`agent/target/plan_id`), by their pk. Unknown ones are left out."""
    wanted = set(paths[:MOST_PLANS])
    ids = {path.rpartition("/")[2] for path in wanted if "\x00" not in path}
    if not ids:
        return {}
    rows = Plan.objects.filter(plan_id__in=ids).values_list("pk", "agent__name", "target__name", "plan_id")
    found = {pk: f"{agent}/{target}/{plan_id}" for pk, agent, target, plan_id in rows}
    return {pk: path for pk, path in found.items() if path in wanted}
