"""The sweep that finds what is new for whom: rows are compared with rows, so it may run twice, late, or die halfway."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from audit.kinds import TERMINAL_KINDS, Kind
from plans import clock, roster
from plans.models import Plan
from plans.ownership import owned_sql
from plans.states import ENDS
from reviewer.notifications.models import Channel, Delivery, Escalation, Mark
from reviewer.notifications.occasions import DECIDING, URGENT, Occasion
from reviewer.notifications.routing import Reader, find_readers, principals, routes
from reviewer.notifications.timing import due_at

BATCH: Final = 500
UNKNOWN_FOR: Final = timedelta(seconds=30)
"""So long the desk tries to find out by itself before it tells anybody."""

LOOKS_BACK: Final = timedelta(minutes=10)
"""A transaction may commit this long after its event took its time."""

CATCHES_UP: Final = timedelta(days=1)
"""After a longer standstill, ends before this are old news."""

KEPT: Final = timedelta(days=30)

# Each finds (plan_id, target_id, owner_id, principal_id): whom a plan concerns, told already or not.
_MAY_DECIDE = f"""
    SELECT p.id AS plan_id, p.target_id, a.owner_id, u.id AS principal_id
    FROM plans_plan p
    JOIN plans_agent a ON a.id = p.agent_id
    JOIN reviewer_person u ON u.is_reviewer AND u.is_active AND u.id <> a.owner_id
        AND NOT {owned_sql("p", "u.id")}
"""
_UNDECIDED = "p.state = 'pending' AND p.approvals_required > 0 AND p.expires_at > clock_timestamp()"
_HAS_NOT_APPROVED = """NOT EXISTS (SELECT 1 FROM plans_approval y
    WHERE y.plan_id = p.id AND y.reviewer_id = u.id AND y.voided_at IS NULL)"""
_FOUND: Final = {
    Occasion.WAITING: f"{_MAY_DECIDE} WHERE {_UNDECIDED} AND {_HAS_NOT_APPROVED}",
    Occasion.SOON: f"""{_MAY_DECIDE} WHERE {_UNDECIDED} AND {_HAS_NOT_APPROVED} AND
        p.expires_at - clock_timestamp() <= least((p.expires_at - p.received_at) / 3, %(soon)s::interval)""",
    Occasion.ESCALATED: f"""
        SELECT p.id AS plan_id, p.target_id, a.owner_id, u.id AS principal_id
        FROM plans_plan p JOIN plans_agent a ON a.id = p.agent_id JOIN reviewer_person u ON u.is_active
        WHERE {_UNDECIDED} AND
        p.expires_at - clock_timestamp() <= least((p.expires_at - p.received_at) / 6, %(escalate)s::interval)""",
    Occasion.UNDECIDABLE: f"""
        SELECT p.id AS plan_id, p.target_id, a.owner_id, u.id AS principal_id
        FROM plans_plan p JOIN plans_agent a ON a.id = p.agent_id JOIN reviewer_person u ON u.is_active
        WHERE {_UNDECIDED} AND p.id = ANY (%(undecidable)s::bigint[])""",
    # First whoever approved it and waits for the answer; everybody who may settle it, once that can be done by hand.
    Occasion.UNKNOWN: f"""{_MAY_DECIDE} WHERE p.state = 'unknown'
        AND p.unknown_since <= clock_timestamp() - %(unknown_for)s::interval
        AND (clock_timestamp() > p.expires_at + %(settled_from)s::interval
             OR NOT {_HAS_NOT_APPROVED}
             OR NOT EXISTS (SELECT 1 FROM plans_approval o JOIN reviewer_person w ON w.id = o.reviewer_id
                            WHERE o.plan_id = p.id AND o.voided_at IS NULL AND w.is_active))""",
    Occasion.ENDED: """
        SELECT p.id AS plan_id, p.target_id, a.owner_id, u.id AS principal_id
        FROM audit_event v
        JOIN plans_agent a ON a.name = v.agent
        JOIN plans_target t ON t.name = v.target
        JOIN plans_plan p ON p.agent_id = a.id AND p.target_id = t.id AND p.plan_id = v.plan_id
        JOIN plans_approval y ON y.plan_id = p.id AND y.voided_at IS NULL
        JOIN reviewer_person u ON u.id = y.reviewer_id AND u.is_active
        WHERE v.kind = ANY (%(end_kinds)s::text[]) AND v.at > %(since)s AND p.state = ANY (%(ends)s::text[])
          AND (p.state <> 'committed' OR v.kind = 'commit.resolved')""",
}  # fmt: skip
_TELL = """
WITH route AS (
    SELECT * FROM unnest(%(principals)s::bigint[], %(recipients)s::bigint[]) AS r (principal_id, recipient_id)
), found AS ({found}), told AS (
    SELECT f.plan_id, f.principal_id,
           CASE WHEN %(decides)s::boolean AND (r.recipient_id = f.owner_id OR EXISTS (
                    SELECT FROM plans_plan p WHERE p.id = f.plan_id AND {owned})) THEN f.principal_id
                ELSE r.recipient_id END AS person_id
    FROM found f JOIN route r ON r.principal_id = f.principal_id
    WHERE NOT EXISTS (SELECT 1 FROM notifications_mute m
                      WHERE m.person_id = f.principal_id AND m.target_id = f.target_id)
), made AS (
INSERT INTO notifications_notice (plan_id, person_id, for_person_id, occasion, made_at)
SELECT DISTINCT ON (t.plan_id, t.person_id)
       t.plan_id, t.person_id, nullif(t.principal_id, t.person_id), %(occasion)s::text, clock_timestamp()
FROM told t
WHERE NOT EXISTS (SELECT 1 FROM notifications_notice n
                  WHERE n.plan_id = t.plan_id AND n.person_id = t.person_id AND n.occasion = %(occasion)s::text)
  AND NOT (%(decides)s::boolean AND t.principal_id <> t.person_id AND EXISTS (
      SELECT 1 FROM plans_approval y
      WHERE y.plan_id = t.plan_id AND y.reviewer_id = t.person_id AND y.voided_at IS NULL))
ORDER BY t.plan_id, t.person_id, (t.principal_id <> t.person_id)
LIMIT %(batch)s
ON CONFLICT DO NOTHING
RETURNING id, person_id, plan_id
)
SELECT m.id, m.person_id, p.target_id FROM made m JOIN plans_plan p ON p.id = m.plan_id ORDER BY m.id
"""


def find_news() -> int:
    """Writes down who is to hear of what, once each, and when it is due over which channel. Returns how many notices.

    A notice and its deliveries are one transaction, so whoever dies leaves both or neither, and the next sweep finds
    what is left. Two sweeps at once find the same and write it once. Locks nothing of a plan.
    """
    now = clock.now()
    readers = find_readers(now)
    escalation = Escalation.objects.filter(pk=1).values_list("person_id", flat=True).first()
    facts = _facts(now)
    made = 0
    for occasion in Occasion:
        meant = principals(readers, occasion, escalation)
        pairs = [route for route in routes(readers, occasion) if route.principal in meant]
        if pairs and not (occasion is Occasion.UNDECIDABLE and not facts["undecidable"]):
            route = {"principals": [pair.principal for pair in pairs], "recipients": [pair.recipient for pair in pairs]}
            count = _tell(occasion, {**facts, **route}, readers)
            made += count
            if occasion is Occasion.ENDED and count == BATCH:
                return made  # there is more in the log than one sweep tells: the next one reads it again
    _move_mark(now)
    return made


@transaction.atomic(durable=True)
def forget_old() -> int:
    """Deletes notices of plans that ended, and messages, after 30 days. Returns how many notices."""
    limit = clock.now() - KEPT
    with connection.cursor() as cursor:
        cursor.execute(
            """DELETE FROM notifications_delivery d USING notifications_notice n, plans_plan p
               WHERE d.notice_id = n.id AND p.id = n.plan_id AND n.made_at < %s AND p.state = ANY (%s)""",
            [limit, _ended()],
        )
        cursor.execute(
            """DELETE FROM notifications_notice n USING plans_plan p
               WHERE p.id = n.plan_id AND n.made_at < %s AND p.state = ANY (%s)""",
            [limit, _ended()],
        )
        count = int(cursor.rowcount)
        cursor.execute(
            """DELETE FROM notifications_message m WHERE m.made_at < %s AND m.next_try_at IS NULL
               AND NOT EXISTS (SELECT 1 FROM notifications_delivery d WHERE d.message_id = m.id)""",
            [limit],
        )
    return count


@transaction.atomic(durable=True)
def _tell(occasion: Occasion, facts: dict[str, Any], readers: dict[int, Reader]) -> int:
    statement = _TELL.format(found=_FOUND[occasion], owned=owned_sql("p", "r.recipient_id"))
    values = {**facts, "occasion": occasion.value, "decides": occasion in DECIDING, "batch": BATCH}
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        rows = cursor.fetchall()
    _queue(rows, readers, is_urgent=occasion in URGENT)
    return len(rows)


def _queue(rows: Sequence[tuple[int, int, int]], readers: dict[int, Reader], *, is_urgent: bool) -> None:
    now = clock.now()
    deliveries: list[Delivery] = []
    for notice, person, target in rows:
        reader = readers[person]
        at = due_at(now, reader.rhythm(target), is_urgent=is_urgent)
        deliveries += [Delivery(notice_id=notice, channel_id=channel, due_at=at) for channel in reader.channels]
    # A channel that was removed since the readers were read takes its deliveries with it.
    Delivery.objects.bulk_create(_of_channels_that_are(deliveries))


def _of_channels_that_are(deliveries: list[Delivery]) -> list[Delivery]:
    named = {delivery.channel_id for delivery in deliveries}
    kept = Channel.objects.filter(pk__in=named).order_by("pk").select_for_update(no_key=True)
    there = set(kept.values_list("pk", flat=True))
    return [delivery for delivery in deliveries if delivery.channel_id in there]


def _facts(now: datetime) -> dict[str, Any]:
    read_until = Mark.objects.filter(pk=1).values_list("read_until", flat=True).first() or now
    return {
        "soon": settings.NOTIFY_SOON,
        "escalate": settings.NOTIFY_ESCALATE,
        "unknown_for": UNKNOWN_FOR,
        "settled_from": settings.STATE_TRUSTED_AFTER,
        "since": max(read_until - LOOKS_BACK, now - CATCHES_UP),
        "end_kinds": sorted({*(kind.value for kind in TERMINAL_KINDS - {Kind.COMMIT_SUCCEEDED}), "commit.resolved"}),
        "ends": _ended(),
        "undecidable": _undecidable(),
    }


def _undecidable() -> list[int]:
    found = roster.find_undecidable(limit=100)
    names = {(one.agent, one.target, one.plan_id) for one in found}
    plans = Plan.objects.pending().filter(plan_id__in=sorted({one.plan_id for one in found}))
    rows = plans.values_list("pk", "agent__name", "target__name", "plan_id")
    return [pk for pk, *name in rows if tuple(name) in names]


def _ended() -> list[str]:
    return sorted(state.value for state in ENDS)


@transaction.atomic(durable=True)
def _move_mark(now: datetime) -> None:
    Mark.objects.bulk_create(
        [Mark(pk=1, read_until=now)], update_conflicts=True, unique_fields=["id"], update_fields=["read_until"]
    )
