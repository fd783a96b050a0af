"""JSON as text: what a caller passes is frozen into text at once, and texts are put together without reading them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec

from plans import strict_json
from plans.agent.errors import NotJson

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

_LONGEST_INTEGER: Final = 4_000
"""Digits of the longest integer made into an int: CPython refuses more than 4,300 by default. Longer ones stay text."""

DEEPEST: Final = 64
"""Levels of arrays and objects that are made into values: the desk's own are 32 and a few around them, and CPython
gives up at about a thousand. What a target nested deeper stays text."""

_MARKS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""Strings, whose brackets mean nothing, and brackets."""


def freeze(value: object) -> str:
    """The one JSON text of this value, as it is now; later changes to the value change nothing.

    Takes None, bool, int, finite float, Decimal (written with its own digits), str, list, tuple, mappings with text
    keys, and msgspec.Raw (JSON text, which stays as it is). Refuses everything else, and whatever the desk refuses
    (CONTRACT section 4), with NotJson.
    """
    try:
        text = _write(value, "")
        strict_json.loads(text.encode())
    except strict_json.StrictJsonError as error:
        raise NotJson(error.detail) from None
    except UnicodeEncodeError:
        raise NotJson("Half of a surrogate pair is not a character.") from None
    except RecursionError:
        raise NotJson("The value nests too deep, or holds itself.") from None
    return text


def sorted_text(text: str) -> str:
    """The form in which equal data is equal: members in one order, numbers as written. Only for looking plans up."""
    return strict_json.canonical(strict_json.loads(text.encode())).decode()


def compose(members: Mapping[str, object]) -> bytes:
    """A JSON object as UTF-8 bytes; msgspec.Raw members go in as they are, absent (None) ones are left out."""
    return msgspec.json.encode({name: value for name, value in members.items() if value is not None})


def raw(text: str) -> msgspec.Raw:
    """A JSON text that goes on as it is."""
    return msgspec.Raw(text.encode())


def members_as_written(text: str) -> dict[str, msgspec.Raw]:
    """The members of an object, each as the text it is: `freeze` writes them again as they stand here."""
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


def read(body: bytes) -> JsonValue:
    """The value of an answer's body. ValueError where it is not JSON. Its numbers and its nesting never are the reason:
    what Python holds no value for, or none that could be written again, is the text it was."""
    value: JsonValue = json.loads(
        _shallow(body.decode()), parse_int=_integer, parse_float=_fraction, parse_constant=_refuse
    )
    return value


def _shallow(text: str) -> str:
    """The text, with whatever lies deeper than `DEEPEST` levels as a string of its own text."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return text
    pieces: list[str] = []
    done = depth = since = 0
    for mark in _MARKS.finditer(text):
        match mark[0]:
            case "[" | "{":
                depth += 1
                since = mark.start() if depth == DEEPEST + 1 else since
            case "]" | "}":
                if depth == DEEPEST + 1:
                    pieces += text[done:since], json.dumps(text[since : mark.end()])
                    done = mark.end()
                depth -= 1
    return "".join([*pieces, text[done:]])


def _integer(digits: str) -> Any:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else digits


def _fraction(digits: str) -> Any:
    value = float(digits)
    return value if math.isfinite(value) else digits  # an infinity could not be written as JSON again


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _write(value: object, at: str) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, int):
        return _write_integer(value, at)
    if isinstance(value, float | Decimal):
        return _write_fraction(value, at)
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise NotJson(f"A member name must be text, at {at or 'the top'}.")
        pairs = [f"{_write(str(name), at)}:{_write(item, f'{at}/{name}')}" for name, item in value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return "[" + ",".join(_write(item, f"{at}/{place}") for place, item in enumerate(value)) + "]"
    raise NotJson(f"{type(value).__name__} is not JSON, at {at or 'the top'}.")


def _write_integer(value: int, at: str) -> str:
    try:
        return int.__repr__(value)
    except ValueError:
        raise NotJson(f"The integer is too long, at {at or 'the top'}.") from None


def _write_fraction(value: float | Decimal, at: str) -> str:
    if not math.isfinite(value):
        raise NotJson(f"NaN and Infinity are not JSON, at {at or 'the top'}.")
    return str(value) if isinstance(value, Decimal) else float.__repr__(value)
