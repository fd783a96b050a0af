"""Who else has a plan's page open: said by their browsers while they show it, and forgotten soon after."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.db import connection, transaction

FRESH: Final = timedelta(seconds=45)
"""Somebody who has not been heard of for so long is gone: two looks of their stream of hints, and some."""

KEPT: Final = timedelta(hours=1)

_NOTE = """
INSERT INTO reviewer_looking (plan_id, person_id, seen_at) VALUES (%s, %s, clock_timestamp())
ON CONFLICT (plan_id, person_id) DO UPDATE SET seen_at = EXCLUDED.seen_at
"""

_OTHERS = """
SELECT l.plan_id, coalesce(nullif(p.name, ''), p.email)
FROM reviewer_looking l JOIN reviewer_person p ON p.id = l.person_id
WHERE l.plan_id = ANY(%s) AND l.person_id <> %s AND l.seen_at > clock_timestamp() - make_interval(secs => %s)
ORDER BY l.plan_id, 2
"""

_NOW = """
SELECT plan_id, person_id FROM reviewer_looking
WHERE seen_at > clock_timestamp() - make_interval(secs => %s) ORDER BY 1, 2
"""

_SWEEP = """
DELETE FROM reviewer_looking WHERE person_id = %s AND seen_at < clock_timestamp() - make_interval(secs => %s)
"""


@transaction.atomic(durable=True)
def note(*, plan_pk: int, person_pk: int) -> None:
    """This person has this plan's page open right now. May be repeated; sweeps what of theirs is long over."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, [plan_pk, person_pk])
        cursor.execute(_SWEEP, [person_pk, KEPT.total_seconds()])


def leave(*, plan_pk: int, person_pk: int) -> None:
    """This person's page of this plan is closed. May be repeated; another tab of theirs says so again by itself."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM reviewer_looking WHERE plan_id = %s AND person_id = %s", [plan_pk, person_pk])


def find_others(plan_pks: Sequence[int], person: Any) -> dict[int, list[str]]:
    """The names of the people, but this one, who have each of these plans open. One statement."""
    found: dict[int, list[str]] = {}
    if plan_pks:
        with connection.cursor() as cursor:
            cursor.execute(_OTHERS, [list(plan_pks), person.pk, FRESH.total_seconds()])
            for pk, name in cursor.fetchall():
                found.setdefault(pk, []).append(name)
    return found


def looking_now() -> dict[int, tuple[int, ...]]:
    """Who looks at what, by the plans' keys: what hints of it are made from."""
    found: dict[int, tuple[int, ...]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_NOW, [FRESH.total_seconds()])
        for plan_pk, person_pk in cursor.fetchall():
            found[plan_pk] = (*found.get(plan_pk, ()), person_pk)
    return found
