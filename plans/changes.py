"""What a plan would change, value by value, exactly as it was received: foreign JSON taken apart, never re-written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from typing import Final, Literal

import msgspec

KEYWORDS: Final = frozenset({"null", "true", "false"})
"""JSON's own words: they are shown as such, and a text that spells one is shown in quotes."""

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS: Final = 40
"""Numbers longer than this are shown and not subtracted."""


class Kind(StrEnum):
    """What a value is. `UNTOLD` was not said; `ABSENT` is not there; both differ from null, from "" and from 0."""

    UNTOLD = "untold"
    ABSENT = "absent"
    KEYWORD = "keyword"
    NUMBER = "number"
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Value:
    """One foreign value. `raw` is its JSON text as received; `text` is the decoded string of a TEXT, else `raw`."""

    kind: Kind
    raw: str = ""
    text: str = ""

    @property
    def is_told(self) -> bool:
        return self.kind is not Kind.UNTOLD and self.kind is not Kind.ABSENT

    @property
    def is_mistakable(self) -> bool:
        """True for a text that without its quotes would read as another type, or as nothing."""
        if self.kind is not Kind.TEXT:
            return False
        text = self.text.strip()
        if text != self.text or not text or text in KEYWORDS:
            return True
        return bool(_NUMBER.fullmatch(text)) or text[0] + text[-1] in ('""', "{}", "[]")


UNTOLD: Final = Value(Kind.UNTOLD)
ABSENT: Final = Value(Kind.ABSENT)


@dataclass(frozen=True, slots=True)
class Row:
    """One field of a change. `number` is its action's place in the plan, from 1; 0 for what no action names."""

    number: int
    field: str
    before: Value
    after: Value
    is_context: bool = False  # a field of a whole record that stays as it is: it may be folded away

    @property
    def difference(self) -> str:
        """`after - before` with its sign, where both are numbers of a readable length; else ""."""
        if self.before.kind is not Kind.NUMBER or self.after.kind is not Kind.NUMBER:
            return ""
        if (
            max(len(self.before.raw), len(self.after.raw)) > _MAX_DIGITS
            or "e" in (self.before.raw + self.after.raw).lower()
        ):
            return ""
        by = Decimal(self.after.raw) - Decimal(self.before.raw)
        return f"{by:+f}" if by else ""


@dataclass(frozen=True, slots=True)
class Card:
    """Neighbouring actions of one kind on one record, as a reviewer reads them: one table."""

    op: str
    target: str
    is_reversible: bool
    rows: tuple[Row, ...]
    unchanged: tuple[Row, ...]
    first: int
    last: int

    @property
    def kind(self) -> Literal["update", "create", "delete", "other"]:
        match self.op:
            case "update" | "create" | "delete":
                return self.op
            case "insert" | "add" | "append":
                return "create"
        return "other"

    @property
    def has_before(self) -> bool:
        return self.kind in ("update", "delete") or any(row.before.is_told for row in self.rows)

    @property
    def has_after(self) -> bool:
        return self.kind in ("update", "create", "other") or any(row.after.is_told for row in self.rows)

    @property
    def count(self) -> int:
        """How many actions of the plan stand in this card."""
        return self.last - self.first + 1


class _Action(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    op: str
    target: str
    field: str | msgspec.UnsetType = msgspec.UNSET
    from_: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    to: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reversible: bool | msgspec.UnsetType = msgspec.UNSET


_ACTIONS = msgspec.json.Decoder(list[_Action])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


def read_value(raw: str | msgspec.Raw | msgspec.UnsetType | None) -> Value:
    """The value of a JSON text; UNTOLD where there is none. Never raises: a text that cannot be decoded stays JSON."""
    if raw is None or isinstance(raw, msgspec.UnsetType):
        return UNTOLD
    written = (bytes(raw).decode() if isinstance(raw, msgspec.Raw) else raw).strip(" \t\r\n")
    if written in KEYWORDS:
        return Value(Kind.KEYWORD, written, written)
    if written[:1] == '"':
        try:
            return Value(Kind.TEXT, written, _TEXT.decode(written))
        except msgspec.DecodeError:  # half a surrogate pair, as a target may have spelled it
            return Value(Kind.JSON, written, written)
    if written[:1] in "{[":
        return Value(Kind.JSON, written, written)
    return Value(Kind.NUMBER, written, written)


def read_members(raw: str) -> list[tuple[str, Value]]:
    """Name and value of every member of an object's JSON text, in its order; [] for anything else. Never raises."""
    if raw.lstrip()[:1] != "{":
        return []
    try:
        members = _MEMBERS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [(name, read_value(member)) for name, member in members.items()]


def read_cards(actions_text: str, planned_state: str | None = None) -> list[Card]:
    """The actions of a plan as cards, in the order of writing; every action is in exactly one of them.

    `planned_state` (hosted plans) adds the fields of each updated record that stay as they are.
    """
    actions = list(enumerate(_ACTIONS.decode(actions_text), 1))
    state = dict(read_members(planned_state or ""))
    cards = []
    for (op, target, is_reversible), members in groupby(
        actions, key=lambda pair: (pair[1].op, pair[1].target, pair[1].reversible is not False)
    ):
        group = list(members)
        rows = [row for number, action in group for row in _rows(number, action)]
        shown = [row for row in rows if not row.is_context] or rows
        unchanged = [row for row in rows if row.is_context] if shown is not rows else []
        if op == "update" and target in state:
            named = {row.field for row in rows}
            members_now = read_members(state[target].raw)
            unchanged += [Row(0, name, value, value, True) for name, value in members_now if name not in named]
        cards.append(Card(op, target, is_reversible, tuple(shown), tuple(unchanged), group[0][0], group[-1][0]))
    return cards


def _rows(number: int, action: _Action) -> Iterator[Row]:
    """A row per field. An object without a field name is a whole record: its members are the fields."""
    before, after = read_value(action.from_), read_value(action.to)
    if isinstance(action.field, str):
        yield Row(number, action.field, before, after)
        return
    was, will = read_members(before.raw), read_members(after.raw)
    is_record = (was or will) and before.kind in (Kind.JSON, Kind.UNTOLD) and after.kind in (Kind.JSON, Kind.UNTOLD)
    if not is_record or (before.kind is Kind.JSON and not was) or (after.kind is Kind.JSON and not will):
        yield Row(number, "", before, after)
        return
    old, new = dict(was), dict(will)
    for name in dict.fromkeys([*old, *new]):
        is_now = old.get(name, ABSENT) if before.is_told else UNTOLD
        will_be = new.get(name, ABSENT) if after.is_told else UNTOLD
        yield Row(number, name, is_now, will_be, is_now.is_told and is_now == will_be)
