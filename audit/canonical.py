"""The bytes that are committed to: payload text, commitment, leaf, and the one spelling of a time."""

import functools
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import TypeAlias

import msgspec
import rfc8785


class RawJson(str):
    """Foreign JSON text, embedded into a payload exactly as it was received (`1.10` stays `1.10`)."""

    __slots__ = ()


Payload: TypeAlias = "bool | int | str | datetime | Mapping[str, Payload] | Sequence[Payload] | None"

LEAF_VERSION = 1
# Size of an entry in a tile is a 16-bit number (c2sp.org/tlog-tiles).
LEAF_MAX_BYTES = 65_535
SALT_BYTES = 32

_AT = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:[Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:tokens?|secrets?|passwords?|passwd|passphrase|api_?keys?|credentials?|authorization|bearer)(?:_|$)"
)


class PayloadError(ValueError):
    """What was handed over cannot be an event's payload; the message is a sentence."""


def format_at(at: datetime) -> str:
    """`at` as the log spells every time: RFC 3339, UTC, six decimals, `Z`. Refuses a time without a zone."""
    if at.tzinfo is None:
        raise ValueError("A time in the log needs a zone.")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").zfill(26) + "Z"


def parse_at(text: str) -> datetime:
    """The instant that RFC 3339 `text` names, in UTC. Refuses one without an offset, with a sentence (ValueError)."""
    if _AT.fullmatch(text) is None:
        raise ValueError("A time must be RFC 3339 with an offset, as in 2026-03-14T09:31:12Z.")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError("There is no such time.") from error


def serialise_payload(actor_name: str | None, data: Mapping[str, Payload]) -> str:
    """The payload's text as it is stored and committed to: `{"actor_name": ..., "data": {...}}` without spaces.

    RawJson is embedded as received; everything else is written once, in the order given. Refuses floats (two spellings
    of one number), RawJson that is not one JSON text, and member names of our own that announce a secret.
    """
    return f'{{"actor_name":{_text(actor_name)},"data":{_value(data)}}}'


def _text(value: str | None) -> str:
    if value is None:
        return "null"
    text = encode_basestring(value)
    if text.isascii():
        return text
    # A lone surrogate has no UTF-8; its escape has.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _value(value: Payload) -> str:
    match value:
        case RawJson():
            text = _checked(value)
        case None | str():
            text = _text(value)
        case bool():
            text = "true" if value else "false"
        case int():
            text = int.__repr__(value)
        case datetime():
            text = _text(format_at(value))
        case Mapping():
            text = "{" + ",".join(f"{_name(name)}:{_value(member)}" for name, member in value.items()) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray):
            text = "[" + ",".join(map(_value, value)) + "]"
        case _:
            raise PayloadError(f"A payload cannot hold a {type(value).__name__}.")
    return text


@functools.lru_cache(maxsize=1024)
def _name(name: str) -> str:
    if not isinstance(name, str):
        raise PayloadError("A member of a payload is named by text.")
    if _SECRET_NAME.search(name.lower().replace("-", "_")) is not None:
        raise PayloadError(f"An event must not hold {name!r}: its name announces a secret.")
    return _text(name)


def _checked(raw: RawJson) -> str:
    """`raw` as it is, once it is known to be exactly one JSON text: a fragment would forge its neighbours."""
    try:
        msgspec.json.decode(raw.encode(), type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise PayloadError("Foreign JSON in a payload must be one well-formed JSON text.") from error
    return str(raw)


def commit_to(salt: bytes, payload: bytes) -> bytes:
    """The commitment that the leaf holds: HMAC-SHA256, keyed by the payload's own salt, over its bytes as stored."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"A salt has {SALT_BYTES} bytes.")
    return hmac.digest(salt, payload, hashlib.sha256)


def build_leaf(
    *,
    event_id: str,
    kind: str,
    at: datetime,
    actor_type: str,
    actor_id: str,
    on_behalf_of: str | None,
    agent: str | None,
    target: str | None,
    plan_id: str | None,
    plan_seq: int | None,
    operation: str | None,
    task_id: str | None,
    request_id: str | None,
    commitment: bytes,
    nonce: bytes,
) -> bytes:
    """The leaf of an event: RFC 8785 JSON. The database builds the same bytes (function audit_leaf); this is the check.

    Whoever verifies hashes the stored bytes and never builds them anew.
    """
    leaf = rfc8785.dumps(
        {
            "version": LEAF_VERSION,
            "id": event_id,
            "kind": kind,
            "at": format_at(at),
            "actor_type": actor_type,
            "actor_id": actor_id,
            "on_behalf_of": on_behalf_of,
            "agent": agent,
            "target": target,
            "plan_id": plan_id,
            "plan_seq": plan_seq,
            "operation": operation,
            "task_id": task_id,
            "request_id": request_id,
            "commitment": commitment.hex(),
            "nonce": nonce.hex(),
        }
    )
    if len(leaf) > LEAF_MAX_BYTES:
        raise ValueError(f"A leaf has at most {LEAF_MAX_BYTES} bytes.")
    return leaf
