"""Erasing what events say: a person's right. Salt and payload go, the proof stays valid, and an event tells of it."""
# ruff: noqa: S608 - statements are put together from constants; every value is a parameter.

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from django.db import connections, transaction

from audit.filters import FilterError, Filters, build_matching, build_words
from audit.kinds import Kind
from audit.proofs import advance
from audit.recording import Actor, Payload, record_as_owner

MAX_EVENTS: Final = 100_000
# So many ids fit well into one payload.
PER_EVENT: Final = 1000
MAX_REASON: Final = 1000


_drops: list[Callable[[], int]] = []


class ErasureRefused(Exception):
    """Nothing was erased; the message is a sentence for whoever asked."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What an erasure would take, and what of the rest must stay and why (`log`, `held`, `minimum`)."""

    ids: tuple[UUID, ...]
    kinds: Mapping[str, int]
    kept: Mapping[str, int]
    copies: int = 0
    """How many files with copies were thrown away, where it was erased."""

    @property
    def fingerprint(self) -> str:
        """Names exactly these events: what was looked at is what goes."""
        return hashlib.sha256(b"".join(event_id.bytes for event_id in sorted(self.ids))).hexdigest()[:16]


def find_erasable(filters: Filters, event_ids: Sequence[UUID] = ()) -> Selection:
    """The dry run: what matches the filters, of these events where some are given, and still has its payload.

    Reads over the owner's connection and changes nothing, except that what is pending gets its place. Refuses
    (FilterError) a selection of everything, and one of more than MAX_EVENTS.
    """
    if not filters.as_data() and not event_ids:
        raise FilterError("Say what to erase: an event, or a filter.")
    advance()
    return _find(filters, event_ids)


def erase(
    filters: Filters, event_ids: Sequence[UUID] = (), *, fingerprint: str, reason: str, actor: Actor
) -> Selection:
    """Erases exactly what the dry run of that fingerprint found, in one transaction, with events (audit.erased).

    Needs the owner's role. Locks holds and rules against change until it ends. Refuses (ErasureRefused) where the
    selection is another by now: an event came, a hold was placed, somebody was faster. Refuses a blank reason. Copies
    that are kept beside the log go in the same transaction.
    """
    check_reason(reason)
    advance()
    with transaction.atomic(using="owner", durable=True):
        _ask("LOCK TABLE audit_hold, audit_retention IN SHARE MODE", [], is_read=False)
        selection = _find(filters, event_ids)
        if selection.fingerprint != fingerprint:
            raise ErasureRefused(
                f"What matches is not what was looked at: it is {selection.fingerprint} now, with"
                f" {len(selection.ids)} payloads. Nothing was erased. Look again."
            )
        told = _tell_selection(filters, reason)
        for start in range(0, len(selection.ids), PER_EVENT):
            remove_payloads(Kind.AUDIT_ERASED, selection.ids[start : start + PER_EVENT], actor=actor, data=told)
        return replace(selection, copies=drop_copies() if selection.ids else 0)


def add_copies(drop: Callable[[], int]) -> None:
    """Tells the log who keeps copies of what its events say. May be repeated.

    `drop` throws those away that may have been made before now, over the owner's connection, in the transaction that is
    open there, and keeps others from being begun until that ends; it returns how many.
    """
    if drop not in _drops:
        _drops.append(drop)


def drop_copies() -> int:
    """Throws away every copy that may hold what goes in this transaction, which must be open; returns how many."""
    return sum(drop() for drop in _drops)


def _tell_selection(filters: Filters, reason: str) -> dict[str, Payload]:
    """How it was found, for an event that stays for good: that it was by words, and not which. They may be a person's
    name, and what goes is named by its ids."""
    told: dict[str, Payload] = {"reason": reason, "filters": replace(filters, words=()).as_data()}
    return {**told, "by_words": True} if filters.words else told


def check_reason(reason: str) -> None:
    """Refuses (ErasureRefused) a reason that is none, or is too long to keep."""
    if not reason.strip() or len(reason) > MAX_REASON or "\x00" in reason:
        raise ErasureRefused(f"A reason is needed, of 1 to {MAX_REASON} characters.")


def remove_payloads(kind: Kind, ids: Sequence[UUID], *, actor: Actor, data: Mapping[str, Payload]) -> int:
    """Takes the payloads of these events away, and says so in one event of `kind` that names each; returns how many.

    In the owner's transaction, which must be open. The database refuses it for all where one of them must stay.
    """
    gone = [
        row[0] for row in _ask("DELETE FROM audit_payload WHERE event_id = ANY(%s) RETURNING event_id", [list(ids)])
    ]
    if gone:
        events: list[Payload] = [str(event_id) for event_id in sorted(gone)]
        record_as_owner(kind, actor=actor, data={**data, "count": len(events), "events": events})
    return len(gone)


def _find(filters: Filters, event_ids: Sequence[UUID]) -> Selection:
    conditions, parameters = build_matching(filters)
    if filters.words:
        words, patterns = build_words(filters.words)
        conditions.append(words)
        parameters += patterns
    if event_ids:
        conditions.append("s.event_id = ANY(%s)")
        parameters.append(list(event_ids))
    rows = _ask(
        "SELECT s.event_id, e.kind, audit_why_kept(e) FROM audit_sequence s"
        " JOIN audit_event e ON e.at = s.at AND e.id = s.event_id"
        f" JOIN audit_payload p ON p.event_id = s.event_id WHERE {' AND '.join(conditions)} LIMIT {MAX_EVENTS + 1}",
        parameters,
    )
    if len(rows) > MAX_EVENTS:
        raise FilterError(f"More than {MAX_EVENTS} events match. Narrow the selection, by time for instance.")
    free = [row for row in rows if row[2] is None]
    return Selection(
        tuple(row[0] for row in free),
        Counter(row[1] for row in free),
        Counter(row[2] for row in rows if row[2] is not None),
    )


def _ask(statement: str, parameters: Sequence[Any], *, is_read: bool = True) -> list[tuple[Any, ...]]:
    with connections["owner"].cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall()) if is_read else []
