"""A target's JSON, taken as it comes: whatever RFC 8259 allows is read, member by member, each as the text received.

Our own doors are stricter (`plans/strict_json.py`), and may be: what they refuse, its sender mends. A target's answer
says what was done to the world; one odd member more must not hide that.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from plans.strict_json import MAX_DEPTH, StrictJsonError, loads

MAX_NAME: Final = 512
"""Characters that are kept of a record's or field's name: as many as an action may have, and as an index can hold."""

REDACTED: Final = "[plan token]"
_CUT: Final = "…"
_MARKS: Final = b"\xef\xbb\xbf\xff\xfe\x00"  # of a byte order, and what UTF-16 and UTF-32 put between
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_LITERAL: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON.")


# Numbers stay text: neither their digits nor their size is looked at, for which Python has limits and JSON none.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def text_of(body: bytes) -> str | None:
    """The body's text where all of it is one JSON text, else None (also where it nests some 1,000 levels deep)."""
    try:
        text = body.decode()
        _DECODER.decode(text)
    except (ValueError, RecursionError):  # that it is not UTF-8, and not JSON, are both a ValueError
        return None
    return text


def is_like_object(body: bytes) -> bool:
    """Whether the body starts as an object does, whatever follows and in whatever encoding."""
    return body.lstrip(_MARKS + b" \t\r\n")[:1] == b"{"


def is_flat_enough(text: str) -> bool:
    """Whether a JSON text nests no deeper than anything that is stored here, and read again."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return True
    try:
        loads(text.encode())
    except StrictJsonError as error:
        return error.reason != "too-deep"
    return True


def members_of(text: str | None) -> list[tuple[str, str]]:
    """Name and value of every member of an object's text, in its order, repeated ones too; [] for anything else."""
    first = _skip(text or "", 0)
    if text is None or text[first] != "{":
        return []
    found = []
    at = _skip(text, first + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # the colon
        start, at = at, _end(text, at)
        found.append((str(name), text[start:at]))
        at = _next(text, at)
    return found


def elements_of(text: str) -> Iterator[str]:
    """The values of an array's text, one after the other; none for anything else."""
    first = _skip(text, 0)
    at = _skip(text, first + 1)
    while text[first] == "[" and text[at] != "]":
        start, at = at, _end(text, at)
        yield text[start:at]
        at = _next(text, at)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _end(text: str, at: int) -> int:
    end: int = _DECODER.raw_decode(text, at)[1]
    return end


def _next(text: str, at: int) -> int:
    """Where the next member starts, or the object or array ends."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def string_of(text: str | None) -> str | None:
    """The string that a JSON text spells, halves of a surrogate pair included; None for any other value."""
    if text is None or not text.startswith('"'):
        return None
    said: Any = _DECODER.decode(text)
    return str(said)


def redact(text: str, token: str) -> str:
    """`text` without the token's own text, and without what no column takes: U+0000, and half a surrogate pair."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text.replace(token, REDACTED)).replace(
        "\x00", "\N{REPLACEMENT CHARACTER}"
    )


def shorten(text: str, most: int) -> str:
    """At most so many characters of `text`; one that was longer ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + _CUT


def redact_json(text: str, token: str) -> str:
    """JSON text as received; only a string or name in it that holds the token, however escaped, is spelled anew.

    And one with half a surrogate pair, which is no character, and which no reader of ours takes: what it holds is then
    the escape's own six characters.
    """
    if "\\" not in text and token not in text:
        return text
    return _LITERAL.sub(lambda found: _without(found[0], token), text)


def _without(literal: str, token: str) -> str:
    if "\\" not in literal and token not in literal:
        return literal
    said = string_of(literal) or ""
    clean = _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", said).replace(token, REDACTED)
    return literal if clean == said else json.dumps(clean, ensure_ascii=False)
