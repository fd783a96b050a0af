"""Tokens at rest: sealed under the agent's API key, so that what a store holds opens nothing without that key."""

import base64
import hashlib
import hmac
import secrets as randomness
from typing import Final

from plans.agent.secrets import Secret

_MARK: Final = "s1."
_NONCE: Final = 16
_TAG: Final = 32


class Seal:
    """Seals texts under what is derived from an API key: SHAKE-256 is the stream, HMAC-SHA256 covers place and text.

    Standard library only, because the SDK installs next to anything. Under another API key nothing opens.
    """

    def __init__(self, api_key: Secret) -> None:
        key = api_key.reveal().encode()
        self._stream = Secret(_derive(key, b"stream").hex())
        self._tag = Secret(_derive(key, b"tag").hex())

    def seal(self, text: Secret, place: str) -> str:
        """The text, sealed for this place alone."""
        nonce = randomness.token_bytes(_NONCE)
        sealed = nonce + self._mix(nonce, text.reveal().encode())
        return _MARK + base64.b64encode(sealed + self._sign(place, sealed)).decode()

    def open(self, sealed: str, place: str) -> Secret | None:
        """The text; None where it was sealed under another key, for another place, or changed since."""
        if not sealed.startswith(_MARK):
            return None
        try:
            held = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
        except ValueError:
            return None
        body, tag = held[:-_TAG], held[-_TAG:]
        if not hmac.compare_digest(tag, self._sign(place, body)):
            return None
        return Secret(self._mix(body[:_NONCE], body[_NONCE:]).decode())

    def _mix(self, nonce: bytes, text: bytes) -> bytes:
        stream = hashlib.shake_256(bytes.fromhex(self._stream.reveal()) + nonce).digest(len(text))
        return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))

    def _sign(self, place: str, sealed: bytes) -> bytes:
        where = place.encode()
        message = len(where).to_bytes(4) + where + sealed
        return hmac.digest(bytes.fromhex(self._tag.reveal()), message, "sha256")


def _derive(key: bytes, what: bytes) -> bytes:
    return hmac.digest(key, b"plandesk agent store v1 " + what, "sha256")
