"""The fingerprint of a hosted operation: SHA-256 over the RFC 8785 form of what was planned and against which state."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import rfc8785

from plans.strict_json import Json, Number, Segment, loads, pointer_to

MAX_INTEGER: Final = 2**53 - 1
"""Largest integer that every JSON parser keeps exact (RFC 7493, 2.2)."""

Value: TypeAlias = "bool | int | float | str | Number | Sequence[Value] | Mapping[str, Value] | None"
_Plain: TypeAlias = "bool | int | float | str | list[_Plain] | dict[str, _Plain] | None"
_INTEGER = re.compile(r"-?[0-9]+")
_MAX_DIGITS: Final = len(str(MAX_INTEGER))


class FingerprintRefused(ValueError):
    """The value has no exact RFC 8785 form (422 `invalid`). Holds a reason and a place, never the value.

    `reason`: `unsafe-integer`, `non-finite` or `lone-surrogate`.
    """

    def __init__(self, reason: str, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.pointer = pointer
        self.detail = detail


def fingerprint(value: Value | Json) -> str:
    """`sha256:<hex>` of the value's RFC 8785 form. Takes plain Python data, a tree of strict_json, or a mix of both.

    Members in any order and numbers of one value in any spelling give one fingerprint. Integers beyond
    ±(2^53-1), written without fraction and exponent, are refused: they would be rounded silently.
    """
    return "sha256:" + hashlib.sha256(canonical_form(value)).hexdigest()


def fingerprint_of_text(text: bytes) -> str:
    """The fingerprint of one JSON text. Refuses what `strict_json.loads` refuses, and what `fingerprint` does."""
    return fingerprint(loads(text))


def canonical_form(value: Value | Json) -> bytes:
    """The RFC 8785 bytes under the fingerprint; refuses as `fingerprint` does."""
    return rfc8785.dumps(_plain(value, ()))


def _plain(value: object, path: tuple[Segment, ...]) -> _Plain:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Number):
        return _number(value.text, path)
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        return _finite(value, path)
    if isinstance(value, Mapping):
        return {_text(name, path): _plain(member, (*path, name)) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, (*path, index)) for index, item in enumerate(value)]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _number(text: str, path: tuple[Segment, ...]) -> int | float:
    if not _INTEGER.fullmatch(text):
        return _finite(float(text), path)
    # The length is looked at first, because Python refuses to convert more than 4,300 digits.
    return _integer(int(text) if len(text.lstrip("-")) <= _MAX_DIGITS else MAX_INTEGER + 1, path)


def _integer(value: int, path: tuple[Segment, ...]) -> int:
    if -MAX_INTEGER <= value <= MAX_INTEGER:
        return value
    detail = "An integer beyond plus or minus 9007199254740991 is not exact everywhere: send it as a string."
    raise FingerprintRefused("unsafe-integer", pointer_to(*path), detail)


def _finite(value: float, path: tuple[Segment, ...]) -> float:
    if not math.isfinite(value):
        raise FingerprintRefused("non-finite", pointer_to(*path), "The number is not finite.")
    return value


def _text(value: object, path: tuple[Segment, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a member name is a string, not {type(value).__name__}")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        detail = "Half of a surrogate pair is not a character."
        raise FingerprintRefused("lone-surrogate", pointer_to(*path), detail)
    return value
