"""The only writer of the log: every event passes here, in the transaction of the change it tells of."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, LiteralString, NamedTuple

from django.conf import settings
from django.db import connection, connections

from audit.canonical import Payload, PayloadError, RawJson, serialise_payload
from audit.context import current_request_id
from audit.kinds import CAPPED_KINDS, UNKNOWN_AGENT_BUCKET, Kind

__all__ = [
    "SWEEP",
    "SYSTEM",
    "UNKNOWN_AGENT_BUCKET",
    "Actor",
    "Change",
    "Numbering",
    "Payload",
    "PayloadError",
    "Prepared",
    "RawJson",
    "Recorded",
    "prepare",
    "record",
    "record_as_owner",
    "record_capped",
]

# Ten texts of this many characters, each escaped as six bytes, still make a leaf that fits into a tile.
MAX_CHARACTERS: Final = 1024

_RECORD = """
SELECT event_id, recorded_at FROM audit_record(%s, %s, %s, %s, %s, %s, %s, %s, %s::integer, %s, %s, %s)
"""
_RECORD_CHANGE = """
WITH {expressions}
SELECT event_id, recorded_at, numbered.*
FROM numbered, audit_record(%s, %s, %s, %s, %s, %s, %s, %s, numbered.seq, %s, %s, %s)
"""
_RECORD_CAPPED = """
SELECT event_id, recorded_at
FROM audit_record_capped(%s::integer, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::integer, %s, %s, %s)
"""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it, as known at that moment: the log refers to nobody's row."""

    type: Literal["agent", "person", "system", "target"]
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Numbering:
    """A counter of the caller's: `statement` takes it one further and returns it, in the statement that records.

    Two round trips would be one too many for what happens with every event of a plan.
    """

    statement: LiteralString
    key: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the caller's, carried out by the very statement that records it: where round trips are counted.

    `expressions` are common table expressions, whose values are `parameters`. The last, `numbered (seq, ...)`, gives
    one row: the event's number, and what else the caller wants back. Where it gives none, nothing is recorded.
    """

    expressions: LiteralString
    parameters: Sequence[Any] = field(repr=False)


class _Subject(NamedTuple):
    """What an event is about, in the order of audit_record's parameters."""

    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    plan_seq: int | None
    operation: str | None
    task_id: str | None
    request_id: str | None


class Prepared(NamedTuple):
    """An event as audit_record's parameters, checked and spelled."""

    kind: str
    actor_type: str
    actor_id: str
    payload: str
    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    plan_seq: int | None
    operation: str | None
    task_id: str | None
    request_id: str | None


SYSTEM: Final = Actor("system", "plandesk", "Plandesk")
SWEEP: Final = Actor("system", "sweep", "Sweep")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The event that was written: its id, its time by the database's clock, and its number where one was taken.

    `returned` is what a `Change` gave back beside the number.
    """

    id: str
    at: datetime
    plan_seq: int | None = None
    returned: tuple[Any, ...] = ()


def record(
    kind: Kind,
    *,
    actor: Actor,
    data: Mapping[str, Payload] | None = None,
    on_behalf_of: str | None = None,
    agent: str | None = None,
    target: str | None = None,
    plan_id: str | None = None,
    plan_seq: int | Numbering | Change | None = None,
    operation: str | None = None,
    task_id: str | None = None,
    request_id: str | None = None,
) -> Recorded:
    """Writes one event, its payload and its place in the outbox, in one round trip, in the caller's transaction.

    Refuses to work outside a transaction (RuntimeError): what it tells of could be rolled back without it. Refuses a
    kind that is not registered or is capped (ValueError), and data that names a secret (PayloadError). Locks nothing.
    Each call is one more event. `request_id` is the context's unless given. `plan_seq` is the plan's own counter, which
    the caller has locked with the plan, a `Numbering` that locks it and counts, or a `Change` that makes the row.
    """
    if kind in CAPPED_KINDS:
        raise ValueError(f"{kind} can be triggered by strangers at will: use record_capped.")
    if isinstance(plan_seq, Numbering):
        plan_seq = Change(_numbered(plan_seq.statement), [plan_seq.key])
    number = None if isinstance(plan_seq, Change) else plan_seq
    subject = _Subject(on_behalf_of, agent, target, plan_id, number, operation, task_id, request_id)
    row = _row(kind, actor, data, subject)
    recorded = _execute_change(plan_seq, row) if isinstance(plan_seq, Change) else _execute(_RECORD, row)
    if recorded is None:
        raise RuntimeError("audit_record gave no answer.")
    return recorded


def prepare(
    kind: Kind,
    *,
    actor: Actor,
    data: Mapping[str, Payload],
    on_behalf_of: str | None,
    agent: str,
    target: str,
    plan_id: str,
    operation: str,
    task_id: str,
) -> Prepared:
    """What a database function of the caller's hands to audit_record, in the statement that makes the change.

    Checked as record() checks. Nothing is written here.
    """
    subject = _Subject(on_behalf_of, agent, target, plan_id, None, operation, task_id, None)
    return Prepared._make(_spelled(kind, actor, data, subject))


def record_as_owner(kind: Kind, *, actor: Actor, data: Mapping[str, Payload]) -> Recorded:
    """As record(), over the owner's connection and in its transaction: for what only the log's owner may change."""
    owner = connections["owner"]
    if not owner.in_atomic_block:
        raise RuntimeError("An event is written in the transaction of the change it tells of; there is none.")
    payload = serialise_payload(actor.name, data)
    with owner.cursor() as cursor:
        cursor.execute(
            "SELECT event_id, recorded_at FROM audit_record(%s, %s, %s, %s)",
            [kind.value, actor.type, _checked("actor's id", actor.id), payload],
        )
        event_id, at = cursor.fetchone()
    return Recorded(str(event_id), at)


def record_capped(
    kind: Kind,
    *,
    bucket: str,
    actor: Actor,
    data: Mapping[str, Payload] | None = None,
    on_behalf_of: str | None = None,
    agent: str | None = None,
    target: str | None = None,
    plan_id: str | None = None,
    plan_seq: int | None = None,
    operation: str | None = None,
    task_id: str | None = None,
    request_id: str | None = None,
) -> Recorded | None:
    """As record(), for kinds that strangers can trigger at will: beyond EVENT_CAP_PER_MINUTE only counted (None).

    `bucket` is the agent's name or the peer's address; UNKNOWN_AGENT_BUCKET for every name that nobody registered.
    Locks the counter of kind, bucket and minute until the transaction ends: give it a short one of its own. What was
    counted and not listed is read by audit.summaries.find_counted.
    """
    if kind not in CAPPED_KINDS:
        raise ValueError(f"{kind} is not a capped kind: every one of it is listed.")
    subject = _Subject(on_behalf_of, agent, target, plan_id, plan_seq, operation, task_id, request_id)
    row = _row(kind, actor, data, subject)
    return _execute(_RECORD_CAPPED, [settings.EVENT_CAP_PER_MINUTE, _checked("bucket", bucket), *row])


def _row(kind: Kind, actor: Actor, data: Mapping[str, Payload] | None, subject: _Subject) -> list[str | int | None]:
    """The arguments of audit_record in its order, checked."""
    if not connection.in_atomic_block:
        raise RuntimeError("An event is written in the transaction of the change it tells of; there is none.")
    return _spelled(kind, actor, data, subject)


def _spelled(kind: Kind, actor: Actor, data: Mapping[str, Payload] | None, subject: _Subject) -> list[str | int | None]:
    if subject.request_id is None:
        subject = subject._replace(request_id=current_request_id())
    return [
        Kind(kind).value,
        actor.type,
        _checked("actor's id", actor.id),
        serialise_payload(actor.name, data or {}),
        *(_checked(name, value) for name, value in subject._asdict().items()),
    ]


def _checked(name: str, text: str | int | None) -> str | int | None:
    if isinstance(text, str) and (len(text) > MAX_CHARACTERS or "\x00" in text):
        raise ValueError(f"An event's {name} has at most {MAX_CHARACTERS} characters, and no U+0000.")
    return text


def _execute(statement: str, row: list[str | int | None]) -> Recorded | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, row)
        answer = cursor.fetchone()
    if answer is None or answer[0] is None:
        return None
    return Recorded(str(answer[0]), answer[1])


@functools.cache
def _numbered(statement: LiteralString) -> LiteralString:
    return f"numbered (seq) AS ({statement})"


@functools.cache
def _recording(expressions: LiteralString) -> str:
    """One and the same text for the same change, so that the server finds the statement that it has prepared."""
    return _RECORD_CHANGE.format(expressions=expressions)


def _execute_change(change: Change, row: list[str | int | None]) -> Recorded | None:
    """None where there is nothing to number: no row has that key."""
    place = 4 + _Subject._fields.index("plan_seq")
    with connection.cursor() as cursor:
        cursor.execute(_recording(change.expressions), [*change.parameters, *row[:place], *row[place + 1 :]])
        answer = cursor.fetchone()
    return None if answer is None else Recorded(str(answer[0]), answer[1], answer[2], tuple(answer[3:]))
