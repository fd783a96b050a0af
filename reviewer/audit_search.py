"""What an auditor asks for, as it stands in the address: read from a form, taken apart, written again as links."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from audit.canonical import format_at
from audit.filters import FilterError
from audit.kinds import Kind

Pair = tuple[str, str]

LAST: Final = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
LAST_CHOICES: Final = [
    ("1h", _("Last hour")), ("24h", _("Last 24 hours")), ("7d", _("Last 7 days")), ("30d", _("Last 30 days")),
]  # fmt: skip
LABELS: Final = {
    "preset": _("Question"), "last": _("Time"), "from": _("From"), "to": _("Before"), "kind": _("Event"),
    "outcome": _("Outcome"),
    "agent": _("Agent"), "target": _("Target"), "operation": _("Operation"), "plan_id": _("Plan"), "task_id": _("Task"),
    "actor": _("Actor"), "q": _("Words"),
}  # fmt: skip
# What may stand before a colon in the search box, and the filter that it means.
_KEYS: Final = {
    "agent": "agent", "target": "target", "operation": "operation", "op": "operation", "plan": "plan_id",
    "plan_id": "plan_id", "task": "task_id", "task_id": "task_id", "actor": "actor", "kind": "kind", "event": "kind",
    "from": "from", "to": "to", "before": "to", "last": "last", "preset": "preset", "outcome": "outcome",
}  # fmt: skip
# An event holds records and fields among everything else it tells: what stands behind these is a word to look for.
_WORD_KEYS: Final = frozenset({"record", "field"})
KEYS: Final = ", ".join(f"{key}:" for key in (*_KEYS, *sorted(_WORD_KEYS)))
OUTCOMES: Final[dict[str, Kind]] = {
    "written": Kind.COMMIT_SUCCEEDED, "conflict": Kind.COMMIT_CONFLICTED, "unknown": Kind.COMMIT_UNKNOWN,
    "rejected": Kind.PLAN_REJECTED, "expired": Kind.PLAN_EXPIRED, "abandoned": Kind.PLAN_ABANDONED,
    "refused": Kind.COMMIT_REFUSED,
}  # fmt: skip
OUTCOME_CHOICES: Final = [
    ("written", _("Written")), ("conflict", _("Conflict")), ("unknown", _("Unknown")), ("rejected", _("Rejected")),
    ("refused", _("Refused by the target")), ("expired", _("Expired")), ("abandoned", _("Not done, for any reason")),
]  # fmt: skip
_KINDS: Final = tuple(kind.value for kind in Kind)
_WORD: Final = re.compile(r'"([^"]*)"|(\S+)')
# An address (https://...), a time or a Windows path is no filter.
_LIKE_A_FILTER: Final = re.compile(r"[A-Za-z_]{2,}:(?![/\\])")
_DAY: Final = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of an address in their order, without a place to go on from; `cursor` apart."""

    pairs: tuple[Pair, ...]
    cursor: str = ""
    is_canonical: bool = True
    """Whether the address is already the one that such a search is linked by."""

    def given(self, name: str) -> str:
        return next((value for key, value in self.pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    def without(self, name: str, value: str | None = None) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair[0] != name or (value is not None and pair[1] != value))

    def with_one(self, name: str, value: str) -> tuple[Pair, ...]:
        """With that filter, in place of another value of it; kinds add up."""
        return (*(self.pairs if name == "kind" else self.without(name)), (name, value))

    def between(self, start: datetime, end: datetime) -> tuple[Pair, ...]:
        rest = tuple(pair for pair in self.pairs if pair[0] not in ("from", "to", "last"))
        return (*rest, ("from", format_at(start)), ("to", format_at(end)))

    def lists(self, now: datetime) -> list[tuple[str, list[str]]]:
        """As audit.filters reads them: a time counted back from now is an instant there, an outcome the kind of event
        that tells of it. Refuses (FilterError) what there is none of, a filter, a time, an outcome or a kind, and says
        what there is."""
        found: dict[str, list[str]] = {}
        for name, value in self.pairs:
            if name not in LABELS:
                raise FilterError(f"There is no filter {name[:64]!r} on this page. There are: {', '.join(LABELS)}.")
            if name == "last":
                found.setdefault("from", []).append(self._since(value, now))
            elif name == "outcome" and value not in OUTCOMES:
                raise FilterError(f"There is no outcome {value[:64]!r}. There are: {', '.join(OUTCOMES)}.")
            elif name == "kind" and value not in _KINDS:
                raise FilterError(f"There is no kind of event {value[:64]!r}. There are: {', '.join(_near(value))}.")
            elif name != "outcome":
                found.setdefault(name, []).append(_unquoted(value) if name == "q" else value)
        if outcomes := [OUTCOMES[value].value for value in self.all("outcome")]:
            found["kind"] = _both(outcomes, self.all("kind"))
        return list(found.items()) + ([("cursor", [self.cursor])] if self.cursor else [])

    def _since(self, last: str, now: datetime) -> str:
        if last not in LAST:
            raise FilterError(f"The filter last is one of {', '.join(LAST)}.")
        if self.given("from"):
            raise FilterError("Give either last or from: both say since when.")
        return format_at(now - LAST[last])

    @property
    def unknown_keys(self) -> list[str]:
        """Words that look like filters of the search box, and are none."""
        return [word for word in self.given("q").split() if _LIKE_A_FILTER.match(word) and _as_filter(word) is None]

    @property
    def query(self) -> str:
        return urlencode(self.pairs)


def read_asked(query: QueryDict) -> Asked:
    """What an address asks for. Blank fields mean nothing; `key:value` in the search box is the filter it names."""
    pairs: list[Pair] = []
    given = [(name, value) for name, values in query.lists() for value in values]
    for name, value in given:
        if name == "cursor" or not value.strip():
            continue
        if name == "q":
            pairs += _take_apart(value)
        elif name in ("from", "to"):
            pairs.append((name, spell_instant(value)))
        else:
            pairs.append((name, value))
    kept = tuple(dict.fromkeys(pairs))
    cursor = query.get("cursor", "")
    is_canonical = list(kept) == [pair for pair in given if pair[0] != "cursor"]
    return Asked(kept, cursor, is_canonical)


def _take_apart(text: str) -> list[Pair]:
    """Filters, then the words that are none. A word in quotation marks is always a word."""
    pairs: list[Pair] = []
    words: list[str] = []
    for quoted, word in _WORD.findall(text):
        if word and (pair := _as_filter(word)) is not None:
            if pair[0] == "q":
                words += _quoted([pair[1]])
            else:
                pairs.append(pair)
        elif word:
            words.append(word)
        words += _quoted(quoted.split())
    return [*pairs, ("q", " ".join(words))] if words else pairs


def _as_filter(word: str) -> Pair | None:
    """What a word with a colon means, where its key is one of ours; `q` for one that is looked for as a word."""
    key, _colon, value = word.partition(":")
    key = key.lower()
    if not value:
        return None
    if key in _WORD_KEYS:
        return "q", value
    name = _KEYS.get(key)
    if name in ("from", "to"):
        return name, spell_instant(value)
    return (name, value.lower() if name == "outcome" else value) if name is not None else None


def _near(kind: str) -> Sequence[str]:
    """The kinds of the same family; all of them, where there is no such family."""
    family = kind.partition(".")[0] + "."
    return [one for one in _KINDS if one.startswith(family)] or _KINDS


def _both(outcomes: list[str], kinds: list[str]) -> list[str]:
    """The kinds that tell of these outcomes, of those asked for where some were; none is no answer."""
    kept = [kind for kind in outcomes if kind in kinds or not kinds]
    if not kept:
        raise FilterError(f"No such event tells of that outcome: {', '.join(outcomes)} would. Take one of them away.")
    return kept


def spell_instant(text: str) -> str:
    """A day, or a day and a time, is in UTC; anything else is left to be refused or read as it stands."""
    found = _DAY.fullmatch(text.strip())
    return f"{found[1]}T{found[2] or '00:00'}:00Z" if found else text.strip()


def _quoted(words: Iterable[str]) -> list[str]:
    """As they are written in the search box: a word that looks like a filter there stands in quotation marks."""
    return [f'"{word}"' if _as_filter(word) is not None or _LIKE_A_FILTER.match(word) else word for word in words]


def _unquoted(words: str) -> str:
    return " ".join(word[1:-1] if len(word) > 2 and word[0] == word[-1] == '"' else word for word in words.split())


def address_of(pairs: Iterable[Pair], view: str = "audit", cursor: str = "") -> str:
    """The address of a search, under which it stays."""
    query = [*pairs, *([("cursor", cursor)] if cursor else [])]
    return f"{reverse(view)}?{urlencode(query)}" if query else reverse(view)


def pairs_of(query: str) -> tuple[Pair, ...]:
    """The filters that a stored query string names."""
    return read_asked(QueryDict(query)).pairs


def pairs_of_log(query: str) -> tuple[Pair, ...]:
    """The filters of a query that `Asked.lists` made, as the page asks for them: its words stay words."""
    given = [(name, value) for name, values in QueryDict(query).lists() for value in values]
    return tuple((name, " ".join(_quoted(value.split())) if name == "q" else value) for name, value in given)


def hidden(asked: Asked, *shown: str) -> list[Pair]:
    """The filters that a form has no field for, and must not lose."""
    return [pair for pair in asked.pairs if pair[0] not in shown]


def label_of(name: str) -> str:
    return str(LABELS.get(name, name))


def value_of(name: str, value: str, presets: Mapping[str, str]) -> str:
    """A filter's value as a person reads it."""
    if name == "preset":
        return presets.get(value, value)
    if name in ("last", "outcome"):
        return str(dict(LAST_CHOICES if name == "last" else OUTCOME_CHOICES).get(value, value))
    return value
