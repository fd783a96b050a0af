"""Events by their places in the tree: places first, then the events by both parts of their key.

Neighbours in the tree lie on the same pages. A list of keys visits each of those once; a join would go down an index
for each event.
"""
# ruff: noqa: S608 - statements are put together from constants; every value is a parameter.

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from audit.filters import Filters, build_matching, build_words
from audit.proofs import ask_django

Row: TypeAlias = tuple[Any, ...]
Placed: TypeAlias = tuple[int, datetime, UUID]
"""An event's place, its time and its id, as audit_sequence has them."""


def find_placed(
    filters: Filters, columns: str, placed: Sequence[Placed], *, sure: Collection[int] = ()
) -> list[tuple[int, Row]]:
    """What matches of those events, in the order of places, each with its place.

    `columns` begin with the event's id. Of the `sure` places it is known that they have the words.
    """
    found: list[Row] = []
    if by_words := [one for one in placed if filters.words and one[0] not in sure]:
        words, patterns = build_words(filters.words)
        # Payloads by a list of their own, once: whoever expects few events would look each up.
        listed = "SELECT event_id, body FROM audit_payload WHERE event_id = ANY(%s)"
        payloads = f"WITH listed AS MATERIALIZED ({listed}) SELECT * FROM listed"
        source = f"audit_event e LEFT JOIN ({payloads}) p ON p.event_id = e.id"
        parameters = [[event_id for _, _, event_id in by_words], *patterns]
        found += _find(filters, f"SELECT {columns} FROM {source} WHERE {words}", parameters, by_words)
    if others := [one for one in placed if not filters.words or one[0] in sure]:
        found += _find(filters, f"SELECT {columns} FROM audit_event e WHERE true", [], others)
    place_of = {event_id: index for index, _, event_id in placed}
    return sorted(((place_of[row[0]], row) for row in found), key=lambda one: one[0])


def _find(filters: Filters, statement: str, parameters: list[Any], placed: Sequence[Placed]) -> list[Row]:
    conditions, of_conditions = build_matching(filters)
    conditions += ["e.at = ANY(%s)", "e.id = ANY(%s)"]
    of_conditions += [[at for _, at, _ in placed], [event_id for _, _, event_id in placed]]
    return ask_django(f"{statement} AND {' AND '.join(conditions)}", [*parameters, *of_conditions])
