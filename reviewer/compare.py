"""Where two texts differ, as spans to mark: by words where that is quick, else by what they begin and end with."""

import re
from difflib import SequenceMatcher
from typing import Final, TypeAlias

from plans.changes import Kind, Row

Span: TypeAlias = tuple[int, int]
"""Start and end of a marked part, in characters."""

LONG: Final = 24
"""Texts up to this many characters are compared by eye (the difference is the value)."""
_MOST_WORDS: Final = 600
"""SequenceMatcher is quadratic; longer texts are compared by their common beginning and end."""

_WORD = re.compile(r"""\s+|[^\s,;:"'{}\[\]()]+|.""")


def differing(row: Row) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """The parts to mark in the value before and after; nothing for short texts and for values of other types."""
    before, after = row.before, row.after
    if {before.kind, after.kind} - {Kind.TEXT, Kind.JSON} or before == after:
        return (), ()
    if max(len(before.text), len(after.text)) <= LONG:
        return (), ()
    old, new = _WORD.findall(before.text), _WORD.findall(after.text)
    if len(old) > _MOST_WORDS or len(new) > _MOST_WORDS:
        return _between(before.text, after.text)
    old_at, new_at = _offsets(old), _offsets(new)
    gone, come = [], []
    for tag, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if b > a:
            gone.append((old_at[a], old_at[b]))
        if d > c:
            come.append((new_at[c], new_at[d]))
    return tuple(gone), tuple(come)


def _offsets(words: list[str]) -> list[int]:
    offsets = [0]
    for word in words:
        offsets.append(offsets[-1] + len(word))
    return offsets


def _between(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    end = next((at for at in range(shorter - start) if old[-1 - at] != new[-1 - at]), shorter - start)
    return _span(start, len(old) - end), _span(start, len(new) - end)


def _span(start: int, end: int) -> tuple[Span, ...]:
    return ((start, end),) if end > start else ()
