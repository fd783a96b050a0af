"""Reads JSON bodies as strictly as the API promises: one meaning per text, numbers kept as written, bounded work."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Hashable, Iterator
from itertools import accumulate
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

MAX_BYTES: Final = 1024 * 1024
"""Size of the largest body that is read, in bytes."""

MAX_DEPTH: Final = 32
"""Levels of arrays and objects; `[]` is one level."""

MAX_POINTER: Final = 1000
"""Characters of the longest pointer in an error; beyond it the pointer stops at an ancestor."""


class Number:
    """A JSON number as the text received: `1.10` stays `1.10`, and equals neither `1.1` nor the string "1.10"."""

    __slots__ = ("text",)
    text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Number does not change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Number does not change")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.text == other.text

    def __hash__(self) -> int:
        return hash((Number, self.text))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Number({self.text!r})"

    def __reduce__(self) -> tuple[type[Number], tuple[str]]:
        return Number, (self.text,)


Json: TypeAlias = "bool | str | Number | list[Json] | dict[str, Json] | None"
Segment: TypeAlias = str | int
T = TypeVar("T")


class StrictJsonError(ValueError):
    """The body is not what every door takes. Holds a reason and a place, never a value of the body.

    `is_syntax`: answer 400 `malformed`; else 422 `invalid`. `reason` is one of `too-large` (413), `empty`, `bom`,
    `not-utf8`, `too-deep`, `not-json`, `duplicate-key` (syntax) and `nul`, `lone-surrogate`, `non-finite`.
    """

    def __init__(self, reason: str, *, is_syntax: bool, pointer: str | None, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.is_syntax = is_syntax
        self.pointer = pointer
        self.detail = detail


class InvalidBody(ValueError):
    """The body is strict JSON of the wrong shape (422): `errors` lists (JSON pointer, sentence), no values of it."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer or '(body)'}: {detail}" for pointer, detail in errors))
        self.errors = errors


# --- what the parser's hooks leave in the tree where something is wrong ---------------------------------------------


class _Flaw:
    """Stands in the tree for what may not be there, until its pointer is known."""

    __slots__ = ("pairs", "reason")

    def __init__(self, reason: str, pairs: list[tuple[str, Any]] | None = None) -> None:
        self.reason = reason
        self.pairs = pairs


class _Numbers(dict[str, object]):
    """Text to Number, made once per text: a body of a million equal numbers costs one object."""

    def __missing__(self, text: str) -> Number:
        number = self[text] = Number(text)
        return number


_DETAILS: Final = {
    "duplicate-key": "The object{place} has a duplicate key: one member name is used twice.",
    "not-number": "NaN and Infinity are not JSON{place}.",
    "non-finite": "The number{place} is too large: no finite double holds it. Send it as a string.",
    "nul": "U+0000 is not accepted{place}.",
    "nul-key": "U+0000 is not accepted in a member name{place}.",
    "lone-surrogate": "Half of a surrogate pair is not a character{place}.",
    "lone-surrogate-key": "Half of a surrogate pair is not a character, in a member name{place}.",
}
_SYNTAX_FLAWS: Final = ("duplicate-key", "not-number")
# Only these escapes can spell U+0000 or half a pair. After an escaped backslash they match in vain, and harm nothing.
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def loads(body: bytes) -> Json:
    """The tree of a body that keeps every rule; refuses all else with StrictJsonError, and raises nothing else.

    Every number in it is a Number. A syntax flaw (400) is told before a forbidden value (422), and of several of one
    kind the first in the document. Work is linear in the size of the body, and its recursion is bounded.
    """
    text = _text(body)
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _syntax("too-deep", f"The body nests deeper than {MAX_DEPTH} levels.")
    tree, flaws = _parse(text)
    if flaws or _SUSPECT.search(body):
        _raise_first_flaw(tree, flaws)
    return cast("Json", tree)


def canonical(tree: Json) -> bytes:
    """The form in which equal data is equal: members sorted, strings decoded, numbers as written. UTF-8 JSON.

    Two bodies have one form exactly when they differ only in the order of members, white space and escapes.
    """
    parts: list[str] = []
    _write(tree, parts.append)
    return "".join(parts).encode()


def decode(body: bytes, shape: type[T]) -> T:
    """The body as this msgspec type; msgspec.Raw fields hold their JSON text exactly as received.

    Refuses what `loads` refuses with StrictJsonError, and every other difference from the type with InvalidBody.
    """
    loads(body)
    return decode_part(body, shape)


def decode_part(part: bytes, shape: type[T]) -> T:
    """As `decode`, for a part of a body that `loads` has taken: what it refuses stands in no part of that one."""
    try:
        return cast(T, _decoder(cast(Hashable, shape)).decode(part))
    except msgspec.DecodeError as error:  # a ValidationError is one
        message = str(error)
    # Raised out here so that the library's own message, which may quote the body, is not chained to ours.
    raise InvalidBody([_explain(message, loads(part))])


def pointer_to(*segments: Segment) -> str:
    """The JSON pointer (RFC 6901) of these member names and indexes; it stops before a name that cannot be shown.

    A name with U+0000 or half a surrogate pair, or one that makes the pointer longer than MAX_POINTER, ends it early.
    """
    pointer = ""
    for segment in segments:
        name = str(segment)
        step = "/" + name.replace("~", "~0").replace("/", "~1")
        if len(pointer) + len(step) > MAX_POINTER or "\0" in name or _SURROGATE.search(name):
            break
        pointer += step
    return pointer


# --- parsing --------------------------------------------------------------------------------------------------------


def _syntax(reason: str, detail: str, pointer: str | None = None) -> StrictJsonError:
    return StrictJsonError(reason, is_syntax=True, pointer=pointer, detail=detail)


def _text(body: bytes) -> str:
    if len(body) > MAX_BYTES:
        raise _syntax("too-large", f"The body is larger than {MAX_BYTES} bytes.")
    if not body:
        raise _syntax("empty", "The body is empty.")
    if body.startswith(b"\xef\xbb\xbf"):
        raise _syntax("bom", "The body starts with a byte order mark.")
    try:
        return str(body, "utf-8", "strict")
    except UnicodeDecodeError as error:
        at = error.start
    raise _syntax("not-utf8", f"The body is not UTF-8: byte {at + 1} is wrong.")


def _depth(text: str) -> int:
    """The deepest nesting up to the first syntax error, without recursion.

    With the escapes gone, every second piece between quotes lies outside strings. A backslash outside a string spoils
    the count only after itself, where no parser gets to.
    """
    bare = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    brackets = bare.encode().translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _parse(text: str) -> tuple[object, bool]:
    """The tree, and whether a hook left a _Flaw in it."""
    has_flaws = False
    numbers = _Numbers()

    def members(pairs: list[tuple[str, Any]]) -> object:
        nonlocal has_flaws
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        has_flaws = True
        return _Flaw("duplicate-key", pairs)

    def fraction(digits: str) -> object:
        nonlocal has_flaws
        if not math.isinf(float(digits)):
            return numbers[digits]
        has_flaws = True
        return _Flaw("non-finite")

    def constant(_name: str) -> object:
        nonlocal has_flaws
        has_flaws = True
        return _Flaw("not-number")

    decoder = json.JSONDecoder(
        object_pairs_hook=members, parse_int=numbers.__getitem__, parse_float=fraction, parse_constant=constant
    )
    try:
        return decoder.decode(text), has_flaws
    except json.JSONDecodeError as error:
        line, column = error.lineno, error.colno
    # Out here, because the parser's error holds the whole body, and would be chained to ours.
    raise _syntax("not-json", f"The body is not JSON: see line {line}, column {column}.")


def _raise_first_flaw(tree: object, has_flaws: bool) -> None:
    first: tuple[str, tuple[Segment, ...]] | None = None
    for reason, path in _flaws(tree, ()):
        if reason in _SYNTAX_FLAWS:
            first = (reason, path)
            break
        first = first or (reason, path)
        if not has_flaws:
            break
    if first is None:
        return
    reason, path = first
    pointer = pointer_to(*path)
    detail = _DETAILS[reason].format(place=f" at {pointer}" if pointer else "")
    is_syntax = reason in _SYNTAX_FLAWS
    slug = "not-json" if reason == "not-number" else reason.removesuffix("-key") if not is_syntax else reason
    raise StrictJsonError(slug, is_syntax=is_syntax, pointer=pointer, detail=detail)


def _flaws(node: object, path: tuple[Segment, ...]) -> Iterator[tuple[str, tuple[Segment, ...]]]:
    """Every flaw with its path, in document order. A flaw in a member name is told at the object that holds it."""
    if isinstance(node, str):
        if reason := _flaw_of_text(node):
            yield reason, path
        return
    if isinstance(node, list):
        for index, item in enumerate(node):
            if item.__class__ is not Number and item is not None:
                yield from _flaws(item, (*path, index))
        return
    pairs: list[tuple[str, Any]] = []
    if isinstance(node, _Flaw):
        yield node.reason, path
        pairs = node.pairs or []
    elif isinstance(node, dict):
        pairs = list(node.items())
    for name, value in pairs:
        if reason := _flaw_of_text(name):
            yield f"{reason}-key", path
        yield from _flaws(value, (*path, name))


def _flaw_of_text(text: str) -> str | None:
    if text.isascii():
        return "nul" if "\0" in text else None
    if "\0" in text:
        return "nul"
    return "lone-surrogate" if _SURROGATE.search(text) else None


def _write(node: Json, write: Callable[[str], None]) -> None:
    if isinstance(node, str):
        write(encode_basestring(node))
    elif isinstance(node, Number):
        write(node.text)
    elif node is None or node is True or node is False:
        write("null" if node is None else "true" if node else "false")
    elif isinstance(node, list):
        separator = "["
        for item in node:
            write(separator)
            _write(item, write)
            separator = ","
        write("]" if node else "[]")
    elif isinstance(node, dict):
        separator = "{"
        for name in sorted(node):
            write(separator)
            write(encode_basestring(name))
            write(":")
            _write(node[name], write)
            separator = ","
        write("}" if node else "{}")
    else:
        raise TypeError(f"{type(node).__name__} is not part of a strict JSON tree")


# --- typed bodies ---------------------------------------------------------------------------------------------------


@functools.cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


# The forms of msgspec's messages: a sentence, and unless it is the root, " - at `$.member[3]`" or "`$.map[...]`".
_AT = re.compile(r"(?s)(?P<text>.*?)(?: - at `(?P<path>(?:key in `)?\$[^`]*)`)?")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"(?s)Object contains unknown field `(.*)`")
_STEPS = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_EXPECTED = re.compile(r"Expected `[^`]*`(?:, got `[^`]*`| of (?:length|at least|at most)[^`'\"]*| [<>]=? -?[\d.e+]+)?")
_TYPE_NAMES: Final = {"int": "integer", "str": "string", "bool": "boolean", "float": "number"}


def _explain(message: str, tree: Json) -> tuple[str, str]:
    """One (pointer, sentence) for a message of msgspec: names of the schema pass, nothing of the body does."""
    # An unknown member may be named so that the message reads two ways: the member that is really there decides.
    for text, path in _readings(message):
        if unknown := _UNKNOWN.fullmatch(text):
            node = _follow(tree, path)
            if isinstance(node, dict) and unknown[1] in node:
                return pointer_to(*path, unknown[1]), "This member is not known here."
    text, path = _readings(message)[0]
    if missing := _MISSING.fullmatch(text):
        return pointer_to(*path, missing[1]), "This member is required."
    pointer = pointer_to(*path)
    if text.startswith("Object contains unknown field"):
        return pointer, "This object has a member that is not known here."
    if text.startswith("Invalid enum value"):
        return pointer, "This is not one of the accepted values."
    if "out of range" in text:
        return pointer, "This number is out of range."
    if text.startswith("Expected `str` matching regex"):
        return pointer, "This text does not have the accepted form."
    if _EXPECTED.fullmatch(text):
        return pointer, re.sub(r"\b(int|str|bool|float)\b", lambda m: _TYPE_NAMES[m[1]], text) + "."
    return pointer, "This value is not accepted here."


def _readings(message: str) -> list[tuple[str, list[Segment]]]:
    """The ways to read the message as text and place, the likeliest first."""
    found = _AT.fullmatch(message)
    readings: list[tuple[str, list[Segment]]] = [(message, [])]
    if found and found["path"]:
        at = message.rindex(" - at `")
        readings.insert(0, (message[:at], _path(message[at + 7 : -1])))
    return readings


def _path(place: str) -> list[Segment]:
    """The known part of a place: it ends at the first member of a map, which msgspec does not name."""
    path: list[Segment] = []
    if place.startswith("$"):
        for name, index in _STEPS.findall(place):
            if index == "...":
                break
            path.append(int(index) if index else name)
    return path


def _follow(tree: Json, path: list[Segment]) -> Json:
    node = tree
    for step in path:
        if isinstance(node, dict) and isinstance(step, str):
            node = node.get(step)
        elif isinstance(node, list) and isinstance(step, int) and step < len(node):
            node = node[step]
        else:
            return None
    return node
