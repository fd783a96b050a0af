"""Where a reading continues: sealed text that belongs to one search of one reader."""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.core import signing

from audit.canonical import format_at, parse_at
from audit.filters import FilterError, Search

MAX_CHARACTERS: Final = 16_384
_REFUSED: Final = "The cursor is not one of this search by this reader. Search again without it; from= says since when."


@dataclass(frozen=True, slots=True)
class ByIndex:
    """Ascending: all that matched below place `index` was given. `id` is the event at the place before it."""

    index: int
    id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ByTime:
    """Behind the event `(at, id)`. Of an ascending reading: among those with a place below `edge`, up to `until`."""

    at: datetime
    id: UUID
    until: datetime | None = None
    edge: ByIndex | None = None


Cursor = ByTime | ByIndex

_signer = signing.Signer(salt="audit.cursor")


def seal(cursor: Cursor, search: Search, reader: str) -> str:
    """`cursor` as text. Signed, so that a page without a recorded search before it cannot be made up."""
    members = json.loads(json.dumps(asdict(cursor), default=_spell))
    return _signer.sign_object(
        {"v": 2, "form": type(cursor).__name__, "search": _digest(search, reader), "cursor": members}, compress=True
    )


def unseal(text: str, search: Search, reader: str) -> Cursor:
    """The cursor that seal() wrote for an equal search and reader; refuses every other text (FilterError)."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(_REFUSED)
    try:
        sealed = _signer.unsign_object(text)
    except (signing.BadSignature, ValueError) as error:
        raise FilterError(_REFUSED) from error
    if sealed["v"] != 2 or sealed["search"] != _digest(search, reader):
        raise FilterError(_REFUSED)
    members = dict(sealed["cursor"])
    if sealed["form"] == "ByIndex":
        return _read_place(members)
    until, edge = members["until"], members["edge"]
    return ByTime(
        at=parse_at(members["at"]),
        id=UUID(members["id"]),
        until=None if until is None else parse_at(until),
        edge=None if edge is None else _read_place(edge),
    )


def _spell(value: object) -> str:
    return format_at(value) if isinstance(value, datetime) else str(value)


def _read_place(members: dict[str, Any]) -> ByIndex:
    return ByIndex(members["index"], None if members["id"] is None else UUID(members["id"]))


def _digest(search: Search, reader: str) -> str:
    about = json.dumps([search.filters.as_data(), search.order, reader], sort_keys=True)
    return hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:32]
