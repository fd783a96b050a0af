"""Shows how a text is really spelled: marks what hides, moves, pads or imitates what a person believes to read."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "plain", "control", "bidi", "invisible", "tag", "space", "composition", "lookalike", "unassigned"
]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, exactly as it is. `label` says what it is, and is empty for a `plain` one.

    `is_warning`: a person should be told before deciding; the other marks (a line feed, the joiner inside an emoji)
    are only worth showing.
    """

    text: str
    kind: Kind = "plain"
    label: str = ""
    is_warning: bool = False

    @property
    def is_plain(self) -> bool:
        return self.kind == "plain"


# A mark before it is cut out of the text: start, end, kind, label, is_warning.
_Mark: TypeAlias = tuple[int, int, Kind, str, bool]

_SENTENCES: Final[dict[Kind, str]] = {
    "bidi": "Characters that change the order of what you see",
    "tag": "Hidden tag characters",
    "invisible": "Characters that are not visible",
    "control": "Control characters",
    "space": "Spaces that are easy to miss",
    "lookalike": "Characters that look like others",
    "composition": "Combining marks, or letters that have a second spelling",
    "unassigned": "Characters without a known shape",
}
_RIGHT_TO_LEFT: Final = (
    "Right-to-left letters beside others: parts may be shown in another order than they are sent in."
)
_NAMED: Final = 3
_MAX_NAMES: Final = 5
_MAX_PER_BASE: Final = 2
"""Combining marks on one letter that no ordinary spelling goes beyond without a composed form; more pile up."""

_CONTROL_NAMES: Final = {
    0: "null", 7: "bell", 8: "backspace", 9: "tab", 10: "line feed", 11: "line tabulation", 12: "form feed",
    13: "carriage return", 27: "escape", 127: "delete", 0x85: "next line",
}  # fmt: skip
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Default_Ignorable_Code_Point beyond the category Cf (Unicode, DerivedCoreProperties.txt), and the empty Braille cell.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_EMOJI_GLUE: Final = frozenset("\u200d\ufe0f")

# Letters drawn like an ASCII one (a choice of Unicode's confusables.txt, UTS 39), by script.
_PAIRS: Final = (
    ("\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u0443\u0445", "acdehijlopqsyx"),
    ("\u051d\u04af\u0475\u043a\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e", "wyvkABCEHIJKMO"),
    ("\u0420\u0405\u0422\u0425\u0423\u04ae\u050c\u0474\u051c\u04c0", "PSTXYYGVWI"),
    ("\u03bf\u03bd\u03b9\u03ba\u03c1\u03c5\u03b1\u03b3\u03c7\u03f2\u03f3\u03b7\u03c9\u0391", "ovikpuayxcjnwA"),
    ("\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03f9", "BEZHIKMNOPTYXC"),
    ("\u037f\u0585\u0578\u057d\u0570\u0581\u0566\u0555\u054f\u053c", "JonuhgqOSL"),
    ("\u13a0\u13a1\u13a2\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13c0\u13c3\u13da\u13df\u13e2", "DRTAJEWMHGZSCP"),
    ("\u13e6\u13de\u13f4\u13d9\u13a5", "KLBVi"),
    ("\u0251\u0261\u1d0f\ua731\u1d04\u1d20\u1d21\u1d22\u01c0", "agoscvwzl"),
)
_LOOKS_LIKE: Final = {ord(odd): plain for odds, plains in _PAIRS for odd, plain in zip(odds, plains, strict=True)}
_PUNCTUATION: Final = dict(
    zip("\u2010\u2011\u2013\u2212\u2024\u2044\u2215\u2236\ua789\u02d7", "----.//::-", strict=True)
)
_ALPHABETS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET", "GEORGIAN")

_ORDINARY = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_SPACES = re.compile(r"\A +| +\Z|  +")
_ODD = re.compile(r"([^\x20-\x7e])\1*")
_WORD = re.compile(r"[^\s!-/:-@\[-^`{-~]+")
_CHUNK = re.compile(r"\S+")
_JAMO = re.compile("[\uac00-\ud7a3]?[\u1100-\u11ff]+")
_ASCII_LETTER = re.compile(r"[A-Za-z]")


def tokens(text: str) -> list[Piece]:
    """The text cut into plain and marked pieces that join to exactly the text; nothing is left out, however long.

    Defined for every string. A run of one marked character is one piece that tells how many there are. [] for "".
    """
    if not text or _ORDINARY.fullmatch(text):
        return [Piece(text)] if text else []
    pieces: list[Piece] = []
    at = 0
    for start, end, kind, label, is_warning in sorted(_chosen(text)):
        if start > at:
            pieces.append(Piece(text[at:start]))
        pieces.append(Piece(text[start:end], kind, label, is_warning))
        at = end
    if at < len(text):
        pieces.append(Piece(text[at:]))
    return pieces


def has_deception(text: str) -> list[str]:
    """One short warning per kind of thing in the text that could mislead its reader; [] where there is none.

    A warning names the first few characters it is about, and says how many more there are.
    """
    found: dict[Kind, list[str]] = {}
    for piece in tokens(text):
        if piece.is_warning and piece.label not in found.setdefault(piece.kind, []):
            found[piece.kind].append(piece.label)
    warnings = [f"{sentence}: {_list(found[kind])}." for kind, sentence in _SENTENCES.items() if kind in found]
    return [*warnings, _RIGHT_TO_LEFT] if _mixes_directions(text) else warnings


def _list(labels: list[str]) -> str:
    shown = ", ".join(labels[:_NAMED])
    return f"{shown} and {len(labels) - _NAMED} more" if len(labels) > _NAMED else shown


def _mixes_directions(text: str) -> bool:
    if text.isascii():
        return False
    directions = {unicodedata.bidirectional(character) for character in set(text)}
    return not directions.isdisjoint(("R", "AL")) and not directions.isdisjoint(("L", "EN"))


def _chosen(text: str) -> Iterator[_Mark]:
    """The marks that stay where several claim one character: the earlier in this order wins, whole."""
    taken = bytearray(len(text))
    for marks in (_spaces(text), _syllables(text), _compositions(text), _characters(text), _words(text)):
        for mark in marks:
            start, end = mark[:2]
            if not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                yield mark


# --- single characters ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _name(character: str) -> str:
    code = ord(character)
    name = unicodedata.name(character, "").lower() or _CONTROL_NAMES.get(code, "")
    if not name:
        category = unicodedata.category(character)
        name = {"Cc": "control character", "Co": "private use", "Cs": "half of a pair"}.get(category, "unassigned")
    return f"U+{code:04X} {name}"


@functools.lru_cache(maxsize=4096)
def _classify(character: str) -> tuple[Kind, str] | None:
    code, category = ord(character), unicodedata.category(character)
    if 0x20 <= code < 0x7F:
        return None
    kind: Kind | None = None
    if character in _BIDI:
        kind = "bidi"
    elif 0xE0000 <= code <= 0xE007F:
        kind = "tag"
    elif category == "Cc":
        kind = "control"
    elif category == "Cf" or character in _BLANK or any(low <= code <= high for low, high in _SELECTORS):
        kind = "invisible"
    elif category in ("Zs", "Zl", "Zp"):
        kind = "space"
    elif category in ("Cn", "Co", "Cs"):
        kind = "unassigned"
    if kind:
        return kind, _name(character)
    if category[0] in "LN" or 0xFF01 <= code <= 0xFF5E:
        plain = unicodedata.normalize("NFKC", character)
        if len(plain) == 1 and plain.isascii() and category not in ("No", "Lm") and character not in "\xaa\xba":
            return "lookalike", f"{_name(character)}, looks like {plain}"
    return None


def _characters(text: str) -> Iterator[_Mark]:
    for found in _ODD.finditer(text):
        character = found[1]
        classified = _classify(character)
        if classified is None:
            continue
        kind, label = classified
        start, end = found.span()
        count = f" \u00d7{end - start}" if end - start > 1 else ""
        yield start, end, kind, label + count, not _is_harmless(text, start, end, kind)


def _is_harmless(text: str, start: int, end: int, kind: Kind) -> bool:
    """Line breaks and tabs of ordinary writing, the glue inside emoji, and the full-width signs of East Asian text."""
    character = text[start]
    if character in "\n\t" or text[start : start + 2] == "\r\n":
        return True
    if character in _EMOJI_GLUE and end - start == 1 and start:
        is_inside = character == "\ufe0f" or unicodedata.category(text[end : end + 1] or "x") == "So"
        return is_inside and (unicodedata.category(text[start - 1]) in ("So", "Sk") or text[start - 1] == "\ufe0f")
    if kind == "lookalike" and unicodedata.category(character)[0] in "PS":
        around = text[max(0, start - 1) : start] + text[end : end + 1]
        return not any(neighbour.isascii() and neighbour.isalnum() for neighbour in around)
    return False


def _spaces(text: str) -> Iterator[_Mark]:
    for found in _SPACES.finditer(text):
        start, end = found.span()
        place = "leading " if start == 0 else "trailing " if end == len(text) else ""
        label = f"{end - start} {place}space{'s' if end - start > 1 else ''}"
        yield start, end, "space", label, True


# --- letters with marks, and letters that have two spellings --------------------------------------------------------


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" and _classify(character) is None


def _compositions(text: str) -> Iterator[_Mark]:
    """Letters that NFC would respell, marks that stand alone, and marks piled on one letter."""
    at = 0
    while found := _ODD.search(text, at):
        start = found.start()
        if not _is_mark(text[start]):
            yield from _singletons(text[start], *found.span())
            at = found.end()
            continue
        end = start + 1
        while end < len(text) and _is_mark(text[end]):
            end += 1
        at = end
        has_base = start > 0 and text[start - 1] > " " and _classify(text[start - 1]) is None
        cluster = text[start - has_base : end]
        count = end - start
        is_respelled = unicodedata.normalize("NFC", cluster) != cluster
        # Scripts that need their marks (Arabic, Hebrew, Devanagari, Thai) are left alone; these have composed letters.
        has_letters_composed = has_base and (cluster[0].isascii() or _script(cluster[0]) is not None)
        if is_respelled or not has_base or has_letters_composed or count > _MAX_PER_BASE:
            names = [one if one.isascii() else _name(one) for one in dict.fromkeys(cluster)]
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            yield start - has_base, end, "composition", " + ".join(names[:_MAX_NAMES]) + more, True


def _singletons(character: str, start: int, end: int) -> Iterator[_Mark]:
    """Characters that are only another spelling of one (the ohm sign)."""
    composed = unicodedata.normalize("NFC", character)
    if composed != character:
        reads_as = " ".join(f"U+{ord(part):04X}" for part in composed)
        yield start, end, "composition", f"{_name(character)}, also spelled {reads_as}", True


def _syllables(text: str) -> Iterator[_Mark]:
    """Korean syllables written in parts, which look like the whole ones."""
    for found in _JAMO.finditer(text):
        if unicodedata.normalize("NFC", found[0]) != found[0]:
            yield *found.span(), "composition", f"{_name(found[0][0])}, a syllable written in parts", True


# --- words ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    """The alphabet a letter belongs to, of those whose letters are drawn alike."""
    if not character.isalpha():
        return None
    first = unicodedata.name(character, "").partition(" ")[0]
    return first if first in _ALPHABETS else None


def _words(text: str) -> Iterator[_Mark]:
    if text.isascii():
        return
    imitated = _imitated_scripts(text)
    for chunk in _CHUNK.finditer(text):
        if chunk[0].isascii():
            continue
        yield from _signs(text, *chunk.span())
        has_ascii_letter = _ASCII_LETTER.search(chunk[0]) is not None
        for word in _WORD.finditer(text, *chunk.span()):
            if not word[0].isascii():
                yield from _word(word[0], word.start(), imitated, has_ascii_letter)


def _imitated_scripts(text: str) -> frozenset[str]:
    """Scripts other than Latin all of whose letters in this text are drawn like ASCII ones: nothing gives them away."""
    is_told: dict[str, bool] = {}
    for character in set(text):
        script = _script(character)
        if script and script != "LATIN":
            is_told[script] = is_told.get(script, False) or ord(character) not in _LOOKS_LIKE
    return frozenset(script for script, told in is_told.items() if not told)


def _word(word: str, offset: int, imitated: frozenset[str], has_ascii_letter: bool) -> Iterator[_Mark]:
    scripts = Counter(script for character in word if (script := _script(character)))
    zeros = {ord(character) - unicodedata.decimal(character) for character in word if character.isdecimal()}
    odd = {script for character in word if (script := _script(character)) and ord(character) not in _LOOKS_LIKE}
    # The word is taken to be in the script that something gives away, then in the one with most letters.
    ranked = sorted(scripts, key=lambda script: (script not in odd, -scripts[script], script != "LATIN"))
    main = ranked[0] if ranked else ""
    is_imitation = len(scripts) == 1 and not odd
    for index, character in enumerate(word):
        if character.isascii() and main in ("", "LATIN"):
            continue
        script = _script(character)
        plain = _LOOKS_LIKE.get(ord(character))
        label = ""
        if script and script != main:
            label = f"looks like {plain}" if plain else f"among {main.lower()} letters"
        elif plain and (script == "LATIN" or (is_imitation and (script in imitated or has_ascii_letter))):
            label = f"looks like {plain}"
        elif character.isdecimal() and len(zeros) > 1 and not character.isascii():
            label = f"among other digits, reads {unicodedata.decimal(character)}"
        if label:
            yield offset + index, offset + index + 1, "lookalike", f"{_name(character)}, {label}", True


def _signs(text: str, start: int, end: int) -> Iterator[_Mark]:
    """Signs drawn like `-`, `.`, `/` or `:` inside a name: between ASCII letters or digits."""
    for at in range(max(start, 1), min(end, len(text) - 1)):
        plain = _PUNCTUATION.get(text[at])
        if plain and all(text[side].isascii() and text[side].isalnum() for side in (at - 1, at + 1)):
            # An en dash between numbers is how a range is written.
            is_range = text[at] == "\u2013" and text[at - 1].isdigit() and text[at + 1].isdigit()
            yield at, at + 1, "lookalike", f"{_name(text[at])}, looks like {plain}", not is_range
