"""Web push (RFC 8030, 8188, 8291, 8292): one encrypted message to the browser that subscribed."""

import base64
import binascii
import hashlib
import json
import time
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings
from py_vapid import Vapid02

from plans.errors import Sentence
from plans.outgoing import NoAnswer, NotSent, exchange, is_public
from reviewer.notifications import sealed
from reviewer.notifications.texts import Text
from reviewer.notifications.transports import TIMEOUT, NotDelivered

KEEP_FOR: Final = timedelta(hours=1)
"""How long a push service keeps a message for a browser that is not there."""

TOKEN_LIVES: Final = timedelta(hours=12)  # RFC 8292: at most 24 h
MAX_BODY: Final = 3_000  # RFC 8030 asks services to take 4096 bytes, encryption included
POINT, SECRET = 65, 16
GONE: Final = (404, 410)


class BadSubscription(Exception):
    """Why what a browser sent is no subscription: one sentence."""


def subscription(endpoint: str, p256dh: str, auth: str) -> str:
    """A browser's subscription as it is sealed. Raises `BadSubscription`."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise BadSubscription(Sentence("The browser's push service has no valid address.")) from None
    is_tls = parts.scheme == "https" or (parts.scheme == "http" and settings.NOTIFY_ALLOW_PRIVATE)
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    host = parts.hostname or ""
    if not is_tls or not host or ":" in host or parts.username or len(endpoint) > 1_000 or port == 0 or not is_plain:
        raise BadSubscription(Sentence("The browser's push service has no valid address."))
    if len(_bytes(p256dh)) != POINT or len(_bytes(auth)) != SECRET:
        raise BadSubscription(Sentence("The browser's keys are not those of a subscription."))
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _bytes(p256dh))
    except ValueError:
        raise BadSubscription(Sentence("The browser's keys are not those of a subscription.")) from None
    return json.dumps({"endpoint": endpoint, "p256dh": p256dh, "auth": auth})


def label_of(endpoint: str, browser: str) -> str:
    """What is shown of a subscription: the browser's own name for itself in a word, and its push service."""
    names = {"Firefox": "Firefox", "Edg": "Edge", "OPR": "Opera", "Chrome": "Chrome", "Safari": "Safari"}
    name = next((shown for mark, shown in names.items() if f"{mark}/" in browser), "Browser")
    return f"{name}, {urlsplit(endpoint).hostname}"[:120]


def send(kept: str, text: Text, key: UUID, *, is_urgent: bool) -> None:
    """One message to one browser; the same key replaces itself there. Raises `NotDelivered`."""
    data: dict[str, str] = json.loads(kept)
    endpoint = urlsplit(data["endpoint"])
    body = _encrypted(_payload(text, key), data)
    audience = f"{endpoint.scheme}://{endpoint.netloc}"
    claims = {"aud": audience, "exp": int(time.time() + TOKEN_LIVES.total_seconds()), "sub": _contact()}
    headers = {
        **_vapid().sign(claims),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(int(KEEP_FOR.total_seconds())),
        "Urgency": "high" if is_urgent else "normal",
        "Topic": hashlib.sha256(key.bytes).hexdigest()[:32],  # at most 32 characters, RFC 8030 section 5.4
    }
    may_connect = None if settings.NOTIFY_ALLOW_PRIVATE else is_public
    try:
        answer = exchange(
            "POST", data["endpoint"], headers=headers, body=body, timeout=TIMEOUT, may_connect=may_connect
        )
    except (NotSent, NoAnswer) as error:
        raise NotDelivered(error.args[0]) from None
    if answer.status in GONE:
        raise NotDelivered(Sentence("The browser has ended this subscription."), is_gone=True)
    if not 200 <= answer.status < 300:
        raise NotDelivered(Sentence("The push service answered %(status)d.", status=answer.status))


def _payload(text: Text, key: UUID) -> bytes:
    """Facts and a path on this site; the worker shows them and opens the page, and can do nothing else."""
    body = {"title": text.subject[:200], "body": text.short[:1_500], "path": text.path, "tag": key.hex}
    encoded = json.dumps(body).encode()
    if len(encoded) > MAX_BODY:
        encoded = json.dumps({**body, "body": text.short[:300]}).encode()
    return encoded


def _encrypted(payload: bytes, data: dict[str, str]) -> bytes:
    key: Any = ec.generate_private_key(ec.SECP256R1())
    secret = {"dh": _bytes(data["p256dh"]), "auth_secret": _bytes(data["auth"])}
    return bytes(http_ece.encrypt(payload, private_key=key, version="aes128gcm", **secret))


def _vapid() -> Any:
    vapid: Any = Vapid02(conf={"no-strict": True})
    vapid.private_key = sealed.vapid_private_key()
    return vapid


def _contact() -> str:
    """Whom a push service may write to (RFC 8292, 2.1): the desk itself where it has TLS, else a mail address."""
    if settings.BASE_URL.startswith("https://"):
        return settings.BASE_URL
    return f"mailto:plandesk@{urlsplit(settings.BASE_URL).hostname}"


def _bytes(text: str) -> bytes:
    """base64url, with or without its padding; empty where it is neither."""
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""
