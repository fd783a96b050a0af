"""How long payloads stay: a minimum and a rule of disposal per kind, legal holds that beat it, and the disposal."""
# ruff: noqa: S608 - statements are put together from constants; every value is a parameter.

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connections, transaction

from audit.canonical import format_at, parse_at
from audit.erasure import PER_EVENT, ErasureRefused, check_reason, drop_copies, remove_payloads
from audit.filters import Filters
from audit.kinds import Kind
from audit.proofs import advance
from audit.recording import Actor, record_as_owner

MAX_DAYS: Final = 36_525

# What the rules let go at that moment, whatever holds say; a rule of the kind's own comes before the one of the rest.
_DUE: Final = """
    FROM audit_payload p
    JOIN audit_sequence s ON s.event_id = p.event_id
    JOIN audit_event e ON e.at = s.at AND e.id = s.event_id
    CROSS JOIN LATERAL (
        SELECT r.dispose_after_days AS days FROM audit_retention r WHERE r.kind IN (e.kind, '*')
        ORDER BY r.kind = '*' LIMIT 1
    ) AS rule
    WHERE rule.days IS NOT NULL AND e.at <= %s - make_interval(days => rule.days)
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Of `kind` (`*`: every kind without a rule of its own). Days; None: never disposed of by rule."""

    kind: str
    minimum_days: int
    dispose_after_days: int | None


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold in force, and what it covers (by the names of filters)."""

    name: str
    reason: str
    placed_at: datetime
    covers: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Disposal:
    """What the rules let go as of a moment: how many of each kind, and how many must stay (`held`, ...)."""

    as_of: datetime
    kinds: Mapping[str, int]
    kept: Mapping[str, int]
    fingerprint: str
    """Names the moment and exactly these events."""

    @property
    def count(self) -> int:
        return sum(self.kinds.values())


def set_rule(rule: Rule, *, reason: str, actor: Actor) -> None:
    """Sets the rule of a kind, with an event (log.changed). Needs the owner's role. May be repeated."""
    check_reason(reason)
    days = (rule.minimum_days, rule.minimum_days if rule.dispose_after_days is None else rule.dispose_after_days)
    if rule.kind != "*" and rule.kind not in {kind.value for kind in Kind}:
        raise ErasureRefused(f"There is no kind {rule.kind[:64]!r}.")
    if not 0 <= days[0] <= days[1] <= MAX_DAYS or rule.dispose_after_days == 0:
        raise ErasureRefused(
            f"The minimum is 0 to {MAX_DAYS} days, and disposal comes no sooner, after a day at least."
        )
    with transaction.atomic(using="owner", durable=True):
        _ask(
            "INSERT INTO audit_retention (kind, minimum_days, dispose_after_days) VALUES (%s, %s, %s)"
            " ON CONFLICT (kind) DO UPDATE SET minimum_days = excluded.minimum_days,"
            " dispose_after_days = excluded.dispose_after_days RETURNING kind",
            [rule.kind, rule.minimum_days, rule.dispose_after_days],
        )
        told = {"minimum_days": rule.minimum_days, "dispose_after_days": rule.dispose_after_days}
        record_as_owner(
            Kind.LOG_CHANGED, actor=actor, data={"change": "retention_set", "kind": rule.kind, **told, "reason": reason}
        )


def find_rules() -> list[Rule]:
    """Every rule, by kind."""
    return [
        Rule(*row) for row in _ask("SELECT kind, minimum_days, dispose_after_days FROM audit_retention ORDER BY 1", [])
    ]


def place_hold(name: str, filters: Filters, *, reason: str, actor: Actor) -> None:
    """What matches, now and later, stays until the hold is released (audit.held). Needs the owner's role.

    Refuses (ErasureRefused) a name that another hold in force has, words, and presets: they are no facts of an event.
    """
    check_reason(reason)
    if filters.words or filters.preset is not None:
        raise ErasureRefused("A hold is by kind, agent, target, plan, operation, task, actor and time, not by words.")
    if not 1 <= len(name) <= 128 or not name.isprintable():
        raise ErasureRefused("A hold's name has 1 to 128 printable characters.")
    members = (filters.agent, filters.target, filters.plan_id, filters.operation, filters.task_id, filters.actor)
    try:
        with transaction.atomic(using="owner", durable=True):
            _ask(
                "INSERT INTO audit_hold (name, reason, kinds, agent, target, plan_id, operation, task_id, actor,"
                " from_at, to_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
                [name, reason, [k.value for k in filters.kinds] or None, *members, filters.from_at, filters.to_at],
            )
            record_as_owner(
                Kind.AUDIT_HELD,
                actor=actor,
                data={"change": "placed", "hold": name, "reason": reason, "filters": filters.as_data()},
            )
    except IntegrityError:
        raise ErasureRefused(f"A hold {name!r} is in force already.") from None


def release_hold(name: str, *, reason: str, actor: Actor) -> None:
    """Ends the hold of that name (audit.held); refuses (ErasureRefused) where there is none. Needs the owner's role."""
    check_reason(reason)
    with transaction.atomic(using="owner", durable=True):
        if not _ask(
            "UPDATE audit_hold SET released_at = clock_timestamp() WHERE name = %s AND released_at IS NULL"
            " RETURNING id",
            [name],
        ):
            raise ErasureRefused(f"No hold {name!r} is in force.")
        record_as_owner(Kind.AUDIT_HELD, actor=actor, data={"change": "released", "hold": name, "reason": reason})


def find_holds() -> list[Hold]:
    """Every hold in force, the oldest first."""
    rows = _ask(
        "SELECT name, reason, placed_at, to_jsonb(h) - '{id,name,reason,placed_at,released_at}'::text[]"
        " FROM audit_hold h WHERE released_at IS NULL ORDER BY id",
        [],
    )
    covers = [{name: value for name, value in _loaded(row[3]).items() if value is not None} for row in rows]
    return [Hold(row[0], row[1], row[2], covered) for row, covered in zip(rows, covers, strict=True)]


def find_due(as_of: datetime | None = None) -> Disposal:
    """The dry run of a disposal: what the rules let go as of that moment (now); changes nothing.

    Only what has its place in the tree is looked at, so that pending events get theirs first.
    """
    advance()
    return _find_due(as_of)


def _find_due(as_of: datetime | None) -> Disposal:
    ((now,),) = _ask("SELECT clock_timestamp()", [])
    as_of = now if as_of is None else as_of
    if as_of > now:
        raise ErasureRefused("What will be due is not due yet.")
    rows = _ask(
        "SELECT kind, why, count(*), bit_xor(hashtextextended(id::text, 0)) FROM ("
        f"SELECT e.id, e.kind, audit_why_kept(e) AS why {_DUE}) AS due GROUP BY kind, why ORDER BY kind, why",
        [as_of],
    )
    kinds = {row[0]: row[2] for row in rows if row[1] is None}
    kept: dict[str, int] = {}
    mixed = 0
    for _, why, count, mix in rows:
        if why is not None:
            kept[why] = kept.get(why, 0) + count
        else:
            mixed ^= mix
    return Disposal(as_of, kinds, kept, f"{format_at(as_of)}/{sum(kinds.values())}/{mixed % 2**64:016x}")


def dispose(fingerprint: str, *, actor: Actor) -> tuple[int, int]:
    """Disposes of exactly what the dry run of that fingerprint found; returns how many payloads and kept copies went.

    In one transaction, with an event (audit.disposed) for every PER_EVENT of them: all of it or nothing. Holds and
    rules stand still from before it is looked at what is due. Needs the owner's role. Refuses (ErasureRefused) where
    another set is due by now.
    """
    moment, _, _ = fingerprint.partition("/")
    try:
        as_of = parse_at(moment)
    except ValueError:
        raise ErasureRefused("That is no fingerprint of a dry run.") from None
    advance()
    with transaction.atomic(using="owner", durable=True):
        _ask("LOCK TABLE audit_hold, audit_retention IN SHARE MODE", [], is_read=False)
        due = _find_due(as_of)
        if due.fingerprint != fingerprint:
            raise ErasureRefused(
                f"What is due is not what was looked at: it is {due.fingerprint} now. Nothing was disposed of. "
                "Look again."
            )
        done, after = 0, UUID(int=0)
        while True:
            rows = _ask(
                f"SELECT p.event_id, audit_why_kept(e) {_DUE} AND p.event_id > %s"
                f" ORDER BY p.event_id LIMIT {PER_EVENT}",
                [as_of, after],
            )
            ids = [row[0] for row in rows if row[1] is None]
            done += remove_payloads(Kind.AUDIT_DISPOSED, ids, actor=actor, data={"as_of": as_of})
            if len(rows) < PER_EVENT:
                return done, drop_copies() if done else 0
            after = rows[-1][0]


def _loaded(value: Any) -> dict[str, Any]:
    return dict(json.loads(value) if isinstance(value, str) else value)


def _ask(statement: str, parameters: Sequence[Any], *, is_read: bool = True) -> list[tuple[Any, ...]]:
    with connections["owner"].cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall()) if is_read else []
