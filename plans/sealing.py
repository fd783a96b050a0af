"""Tokens and credentials at rest: sealed under a key of the environment, found by a keyed hash."""

import functools
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

KEY_ID_BYTES: Final = 8
NONCE_BYTES: Final = 12  # AES-GCM, NIST SP 800-38D section 8.2


class SealError(Exception):
    """A sealed value cannot be opened: its key is gone, or it was sealed for another place."""


@functools.lru_cache(maxsize=16)
def key_id(key: bytes) -> bytes:
    """The public name of a sealing key: the first 8 bytes of a labelled hash."""
    return hashlib.sha256(b"plandesk seal key id\x00" + key).digest()[:KEY_ID_BYTES]


def seal(value: bytes, *, purpose: str) -> bytes:
    """Encrypt and authenticate `value` under the newest key, bound to `purpose`. AES-256-GCM, random nonce."""
    key = _keys()[0]
    nonce = secrets.token_bytes(NONCE_BYTES)
    return key_id(key) + nonce + _cipher(key).encrypt(nonce, value, purpose.encode())


def unseal(sealed: bytes | memoryview, *, purpose: str) -> bytes:
    """The value that was sealed for `purpose`. Raises `SealError`, whose text holds nothing secret."""
    sealed = bytes(sealed)
    name, nonce, body = (
        sealed[:KEY_ID_BYTES],
        sealed[KEY_ID_BYTES : KEY_ID_BYTES + NONCE_BYTES],
        sealed[KEY_ID_BYTES + NONCE_BYTES :],
    )
    for key in _keys():
        if key_id(key) == name:
            try:
                return _cipher(key).decrypt(nonce, body, purpose.encode())
            except InvalidTag:
                raise SealError("a sealed value does not belong where it was found") from None
    raise SealError(f"the sealing key {name.hex()} is not in SEAL_KEYS")


def keyed_hash(value: bytes, *, purpose: str, key: bytes) -> bytes:
    """HMAC-SHA256 by which a secret is found again without being kept. `key` is the installation's lookup key."""
    return hmac.digest(key, purpose.encode() + b"\x00" + value, "sha256")


@functools.lru_cache(maxsize=16)
def _cipher(key: bytes) -> AESGCM:
    """What is derived of a sealing key, which the settings hold anyway; what was sealed under it is never kept."""
    return AESGCM(key)


def _keys() -> Sequence[bytes]:
    keys: Sequence[bytes] = settings.SEAL_KEYS
    if not keys:
        raise SealError("SEAL_KEYS is empty")
    return keys
