"""What auditors may ask for, read strictly: an unknown filter or value is refused with a sentence, never ignored."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal

from audit.canonical import format_at, parse_at
from audit.kinds import Kind
from audit.presets import PRESETS, narrow_kinds

Order = Literal["desc", "asc"]

MAX_LIMIT: Final = 500
DEFAULT_LIMIT: Final = 100
MAX_CHARACTERS: Final = 512
MAX_WORDS: Final = 8
KEPT: Final = 16
"""The index of words has the first so many characters of a word."""
STEM: Final = 3
"""A word is searched for by its beginning from so many letters on; a shorter one is meant whole."""
UUID_SHAPE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-([0-9a-f]{12})", re.IGNORECASE)
ACTOR_TYPES: Final = ("agent", "person", "system", "target")


class FilterError(ValueError):
    """The search cannot be answered as it was asked; the message is a sentence for whoever asked."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which events are meant. Every filter given must hold; `kinds` are alternatives; `from_at <= at < to_at`."""

    kinds: tuple[Kind, ...] = ()
    agent: str | None = None
    target: str | None = None
    plan_id: str | None = None
    operation: str | None = None
    task_id: str | None = None
    actor: str | None = None
    from_at: datetime | None = None
    to_at: datetime | None = None
    words: tuple[str, ...] = ()
    preset: str | None = None

    def as_data(self) -> dict[str, str | list[str]]:
        """The filters that are set, by their names in the API: what an audit.read tells."""
        data: dict[str, str | list[str]] = {}
        if self.kinds:
            data["kind"] = [kind.value for kind in self.kinds]
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str):
                data[field.name] = value
        if self.from_at is not None:
            data["from"] = format_at(self.from_at)
        if self.to_at is not None:
            data["to"] = format_at(self.to_at)
        if self.words:
            data["q"] = " ".join(self.words)
        return data


@dataclass(frozen=True, slots=True)
class Search:
    """A page that is asked for: of which events, in which order, how many (1 to 500), and from where on."""

    filters: Filters = Filters()
    order: Order = "desc"
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None


_NAMES: Final = ("agent", "target", "plan_id", "operation", "task_id", "actor")
_KNOWN: Final = ("kind", *_NAMES, "from", "to", "q", "preset", "order", "cursor", "limit")


def parse_search(query: Iterable[tuple[str, list[str]]], *, is_form: bool = False) -> Search:
    """The search that a query string's parameters ask for (`request.GET.lists()`).

    Refuses (FilterError): a parameter that does not exist, one given twice (`kind` may be), a value that cannot be
    meant, dates in the wrong order. `is_form`: a blank value is a field left empty, and means nothing.
    """
    given = {name: [value for value in values if value.strip() or not is_form] for name, values in query}
    one: dict[str, str] = {}
    for name, values in given.items():
        if name not in _KNOWN:
            raise FilterError(f"There is no filter {name[:64]!r}. There are: {', '.join(_KNOWN)}.")
        if name != "kind" and len(values) > 1:
            raise FilterError(f"The filter {name} was given {len(values)} times; it takes one value.")
        if values:
            one[name] = values[0]
    filters = Filters(
        kinds=_narrow_kinds(_parse_kinds(given.get("kind", [])), one.get("preset")),
        from_at=_parse_time("from", one),
        to_at=_parse_time("to", one),
        words=_parse_words(one),
        preset=one.get("preset"),
        **{name: _parse_name(name, one[name]) for name in _NAMES if name in one},
    )
    if filters.from_at is not None and filters.to_at is not None and filters.from_at >= filters.to_at:
        raise FilterError("The dates are reversed: from must be before to.")
    return Search(filters=filters, order=_parse_order(one), limit=_parse_limit(one), cursor=one.get("cursor"))


def _parse_kinds(values: list[str]) -> tuple[Kind, ...]:
    kinds: set[Kind] = set()
    for value in values:
        try:
            kinds.add(Kind(value))
        except ValueError as error:
            raise FilterError(f"There is no kind of event {value[:64]!r}.") from error
    return tuple(sorted(kinds))


def _narrow_kinds(kinds: tuple[Kind, ...], preset: str | None) -> tuple[Kind, ...]:
    if preset is None:
        return kinds
    if preset not in PRESETS:
        raise FilterError(f"There is no preset {preset[:64]!r}. There are: {', '.join(PRESETS)}.")
    try:
        return narrow_kinds(PRESETS[preset], kinds)
    except ValueError as error:
        raise FilterError(str(error)) from error


def _parse_name(name: str, value: str) -> str:
    # U+FFFD is what bytes that are no UTF-8 were read as.
    if not value or len(value) > MAX_CHARACTERS or not value.isprintable() or "\ufffd" in value:
        raise FilterError(f"The filter {name} takes 1 to {MAX_CHARACTERS} printable characters.")
    return value


def _parse_time(name: str, one: dict[str, str]) -> datetime | None:
    if name not in one:
        return None
    try:
        return parse_at(one[name])
    except ValueError as error:
        hint = " (a + in an address is written %2B)" if " " in one[name] else ""
        raise FilterError(f"The filter {name} cannot be read{hint}. {error}") from error


def _parse_words(one: dict[str, str]) -> tuple[str, ...]:
    if "q" not in one:
        return ()
    words = tuple(_parse_name("q", one["q"]).split())
    if not 1 <= len(words) <= MAX_WORDS:
        raise FilterError(f"The filter q takes 1 to {MAX_WORDS} words.")
    return words


def _parse_order(one: dict[str, str]) -> Order:
    match one.get("order", "desc"):
        case "desc":
            return "desc"
        case "asc":
            return "asc"
    raise FilterError("The order is desc (newest first) or asc.")


def _parse_limit(one: dict[str, str]) -> int:
    text = one.get("limit", str(DEFAULT_LIMIT))
    # isdigit() alone admits other scripts' digits, and int() accepts signs, spaces and underscores.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT)) and 1 <= int(text) <= MAX_LIMIT):
        raise FilterError(f"The limit is a whole number from 1 to {MAX_LIMIT}.")
    return int(text)


def build_conditions(filters: Filters) -> tuple[list[str], list[Any]]:
    """The WHERE conditions on audit_event `e`, without kinds and words, and their parameters."""
    conditions: list[str] = []
    parameters: list[Any] = []
    for column in ("agent", "target", "plan_id", "operation", "task_id"):
        value = getattr(filters, column)
        if value is not None:
            conditions.append(f"e.{column} = %s")
            parameters.append(value)
    if filters.actor is not None:
        actor_type, actor_id = split_actor(filters.actor)
        if actor_type is not None:
            conditions.append("e.actor_type = %s AND e.actor_id = %s")
            parameters += [actor_type, actor_id]
        else:
            conditions.append("e.actor_id = %s")
            parameters.append(actor_id)
    if filters.from_at is not None:
        conditions.append("e.at >= %s")
        parameters.append(filters.from_at)
    if filters.to_at is not None:
        conditions.append("e.at < %s")
        parameters.append(filters.to_at)
    if filters.preset is not None and PRESETS[filters.preset].condition:
        conditions.append(PRESETS[filters.preset].condition)
    return conditions, parameters


def split_actor(actor: str) -> tuple[str | None, str]:
    """The type and the id that an actor is asked for by: `person:7`, or the id alone."""
    actor_type, colon, actor_id = actor.partition(":")
    return (actor_type, actor_id) if colon and actor_type in ACTOR_TYPES else (None, actor)


def build_matching(filters: Filters) -> tuple[list[str], list[Any]]:
    """build_conditions() and the kinds: everything that is asked for but the words."""
    conditions, parameters = build_conditions(filters)
    if filters.kinds:
        conditions.append("e.kind = ANY(%s)")
        parameters.append([kind.value for kind in filters.kinds])
    return conditions, parameters


def build_words(words: tuple[str, ...]) -> tuple[str, list[Any]]:
    """The condition that an event `e` or its payload `p` has every word, and its parameters.

    A word is there where a word of the text begins with it, whatever the case of letters; whole, where it ends in a
    number, or in fewer letters than STEM. This is what the index of words tells, and every other door asks.
    """
    conditions: list[str] = []
    parameters: list[Any] = []
    for word in words:
        condition, of_word = _build_word(word)
        if UUID_SHAPE.fullmatch(word):
            condition, of_word = f"(e.id = %s OR {condition})", [word, *of_word]
        conditions.append(condition)
        parameters += of_word
    return " AND ".join(conditions), parameters


# Of the event's id, which is random but for its time, only the last part counts: as the database's audit_told().
_TOLD: Final = (
    "concat_ws(' ', right(e.id::text, 12), e.kind, e.actor_id, e.on_behalf_of, e.agent, e.target, e.plan_id,"
    " e.operation, e.task_id, e.request_id, p.body)"
)
# A payload is JSON, where a line's end is \n: the letter of an escape is part of no word. As audit_words().
_ESCAPED: Final = r'\\[bfnrt\\"]'
_LETTERS: Final = f"lower(regexp_replace({_TOLD}, '{_ESCAPED}', ' ', 'g'))"


def _build_word(word: str) -> tuple[str, list[Any]]:
    escaped = json.dumps(word, ensure_ascii=False)[1:-1]
    spelled = re.sub(_ESCAPED, " ", escaped)
    before = "(?<![[:alnum:]])" if spelled[0].isalnum() else ""
    behind = "(?![[:alnum:]])" if spelled[-1].isalnum() and not may_go_on(find_last_run(spelled)) else ""
    pattern = f"{before}(?:{'|'.join(_spell_ways(spelled))}){behind}"
    condition, parameters = f"{_LETTERS} ~ lower(%s)", [pattern]
    if runs := re.findall(r"[0-9A-Za-z]+", spelled):
        # Most events have it not, and ILIKE tells so sooner.
        condition, parameters = f"({_TOLD} ILIKE %s AND {condition})", [f"%{max(runs, key=len)}%", pattern]
    if escaped != spelled:
        # A quotation mark or a backslash was taken for a blank, as in the text: that it is one, the text itself tells.
        first = r"(?<!\\)(?:\\\\)*" if escaped[0] == "\\" else ""  # not the second half of an escaped backslash
        told = f"{first}(?:{'|'.join(_spell_ways(escaped))})"
        condition, parameters = f"({condition} AND {_TOLD} ~* %s)", [*parameters, told]
    return condition, parameters


def may_go_on(run: str) -> bool:
    """Whether a word that ends in these letters and digits is meant as the beginning of words, not as a whole one.

    In some word's beginning short ones and numbers are nearly everywhere. Of KEPT and more the index knows no end.
    """
    return len(run) >= KEPT or (len(run) >= STEM and not run.isdigit())


def find_last_run(word: str) -> str:
    """The letters and digits that a word ends in."""
    end = next((place for place in range(len(word), 0, -1) if not word[place - 1].isalnum()), 0)
    return word[end:]


def _spell_ways(word: str) -> list[str]:
    """Regular expressions for the word with its letters beyond ASCII as themselves, and as the escapes of JSON."""
    literal = "".join(one if one.isalnum() or not one.isascii() else f"\\{one}" for one in word)
    if word.isascii():
        return [literal]
    return [literal, re.sub(r"[^\x00-\x7f]", lambda found: _spell_escapes(found[0]), literal)]


def _spell_escapes(character: str) -> str:
    return f"(?:{'|'.join(escape.replace(chr(92), chr(92) * 2) for escape in find_escapes(character))})"


def find_escapes(character: str) -> list[str]:
    """How JSON may spell a character beyond ASCII by escapes, in either case of its letter, the given one first."""
    given = json.dumps(character)[1:-1]
    others = (json.dumps(other)[1:-1] for other in (character.lower(), character.upper()))
    return list(dict.fromkeys([given, *(other for other in others if len(other) == len(given) and "\\u" in other)]))
