"""Signatures of webhooks and callbacks: Standard Webhooks 1.0, scheme `v1` (HMAC-SHA256) only."""

from __future__ import annotations

import base64
import hmac
import re
import secrets as randomness
from collections.abc import Iterable
from typing import Final, NoReturn

from plans.identifiers import is_webhook_id

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24
MAX_BYTES: Final = 64
"""Bounds of a secret that is taken into use, in bytes (Standard Webhooks 1.0, "Signature scheme")."""

TOLERANCE: Final = 300
"""Seconds a timestamp may differ from now, either way; exactly this much still passes."""

MAX_HEADER: Final = 4096
"""Characters of the longest signature header that is looked at: room for eighty signatures."""

Header = str | bytes | None

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,14}")
# How a version other than `v1` spells its signatures is its own business.
_SIGNATURE = re.compile(r"(v1),([A-Za-z0-9+/]+={0,2})|(?!v1,)[A-Za-z0-9._-]+,\S+")


class BadSignature(Exception):
    """The delivery is not authentic, whatever the reason. `reason` is for our own log, never for an answer.

    One of `no_trusted_keys`, `missing_header`, `invalid_id`, `invalid_timestamp`, `timestamp_too_old`,
    `timestamp_too_new`, `malformed_signature`, `no_matching_signature`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("The signature is not valid.")
        self.reason = reason


class Secret:
    """A signing secret. Shows itself to nobody unless asked by `reveal`; compares in constant time; no pickles."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if not key:
            raise ValueError("A secret is never empty: everybody could sign with it.")
        self._key = bytes(key)

    @property
    def key(self) -> bytes:
        """The raw bytes, for signing and for sealing."""
        return self._key

    def reveal(self) -> str:
        """The text a person hands to the other side: `whsec_` and base64. Shown once, never logged."""
        return PREFIX + base64.b64encode(self._key).decode("ascii")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._key, other._key)

    def __hash__(self) -> int:
        return hash((Secret, self._key))

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled")


def parse_secret(text: str) -> Secret:
    """The secret written as `whsec_<base64>` or as base64 alone. ValueError says what is wrong, never what it reads.

    Refused: keys of the asymmetric scheme, a version before the secret, white space, base64url, missing padding,
    fewer than 24 or more than 64 bytes.
    """
    if not text.strip():
        raise ValueError("The secret is empty.")
    if text.startswith(("whpk_", "whsk_")):
        raise ValueError("This is a key of the asymmetric scheme (whpk_, whsk_); a secret starts with whsec_.")
    if re.match(r"v[0-9]+[a-z]*,", text):
        raise ValueError("The secret starts with a signature version (v1,); a secret starts with whsec_.")
    encoded = text.removeprefix(PREFIX)
    if re.search(r"\s", encoded):
        raise ValueError("The secret holds white space.")
    # Not left to b64decode, which overlooks some wrong padding, and not the same in every Python.
    if not _BASE64.fullmatch(encoded):
        raise ValueError("The secret is not base64 (A-Z a-z 0-9 + / with = padding), with or without whsec_ before it.")
    key = base64.b64decode(encoded)
    if not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise ValueError(f"A secret has {MIN_BYTES} to {MAX_BYTES} bytes, this one has {len(key)}.")
    return Secret(key)


def make_secret() -> Secret:
    """A new random secret of 32 bytes."""
    return Secret(randomness.token_bytes(32))


def sign(secret: Secret, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of one delivery: `v1,<base64>` over `<id>.<timestamp>.<body>`; timestamp in seconds."""
    if not is_webhook_id(webhook_id):
        raise ValueError("A webhook-id has 1 to 128 letters, digits, _ or -.")
    if timestamp < 0:
        raise ValueError("A webhook-timestamp is not negative.")
    return "v1," + _digest(secret, webhook_id, str(int(timestamp)), body).decode("ascii")


def verify(
    secrets: Iterable[Secret],
    *,
    webhook_id: Header,
    timestamp: Header,
    signature: Header,
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE,
) -> str:
    """Returns the webhook-id of an authentic delivery; raises BadSignature for any other, and nothing else.

    The headers come as received (None: absent), `body` as the raw bytes, `now` in seconds since 1970 and `tolerance`
    in seconds. One of several signatures by one of several secrets is enough; unknown versions are passed over; one
    malformed signature spoils the header. No secrets: everything is refused. Every secret is tried, in constant time.
    May be repeated: it remembers nothing, so telling duplicates is up to the caller.
    """
    trusted = tuple(secrets)
    if not trusted:
        raise BadSignature("no_trusted_keys")
    received = tuple(_ascii(header) for header in (webhook_id, timestamp, signature))
    if not all(received):
        raise BadSignature("missing_header")
    delivery, at, signatures = received
    if not is_webhook_id(delivery):
        raise BadSignature("invalid_id")
    _check_time(at, now, tolerance)
    candidates = _candidates(signatures)
    is_authentic = False
    for secret in trusted:
        expected = _digest(secret, delivery, at, body)
        for candidate in candidates:
            is_authentic |= hmac.compare_digest(candidate, expected)
    if not is_authentic:
        raise BadSignature("no_matching_signature")
    return delivery


def _ascii(header: Header) -> str:
    """The header as text in which whatever is not ASCII has become `?`, which no header here may hold."""
    if header is None:
        return ""
    text = header.decode("latin-1") if isinstance(header, bytes) else header
    return text[: MAX_HEADER + 1].encode("ascii", "replace").decode("ascii")


def _check_time(text: str, now: float, tolerance: float) -> None:
    if not _TIMESTAMP.fullmatch(text):
        raise BadSignature("invalid_timestamp")
    age = now - int(text)
    if age > tolerance:
        raise BadSignature("timestamp_too_old")
    if age < -tolerance:
        raise BadSignature("timestamp_too_new")


def _candidates(header: str) -> list[bytes]:
    """The `v1` signatures of a header, still in base64."""
    if len(header) > MAX_HEADER:
        raise BadSignature("malformed_signature")
    found = [_SIGNATURE.fullmatch(part) for part in header.split(" ")]
    if None in found:
        raise BadSignature("malformed_signature")
    return [one[2].encode("ascii") for one in found if one is not None and one[1]]


def _digest(secret: Secret, webhook_id: str, timestamp: str, body: bytes) -> bytes:
    signed = b"%b.%b.%b" % (webhook_id.encode("ascii"), timestamp.encode("ascii"), body)
    return base64.b64encode(hmac.digest(secret.key, signed, "sha256"))
