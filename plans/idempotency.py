"""Reads the `Idempotency-Key` header: bare or quoted, the same key either way."""

from __future__ import annotations

from typing import Final

from plans.identifiers import is_idempotency_key

HEADER: Final = "Idempotency-Key"


class KeyMissing(ValueError):
    """No key was sent, or a blank one (400 `key-required`)."""


class KeyInvalid(ValueError):
    """What was sent is not one key (400 `key-invalid`). The message names the header and never quotes it."""


def parse_key(header: str | bytes | None) -> str:
    """The key: 1 to 255 of `[A-Za-z0-9_.:-]`, bare or as a string of RFC 8941 (which needs no escapes for these).

    KeyMissing where there is none, KeyInvalid for anything else: parameters, one quote, non-ASCII, and two headers,
    which reach the application joined by a comma.
    """
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    text = (text or "").strip(" \t")
    if not text:
        raise KeyMissing(f"The header {HEADER} is required.")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not is_idempotency_key(text):
        raise KeyInvalid(f"The header {HEADER} must be one key of 1 to 255 letters, digits or _ . : - (quoted or not).")
    return text
