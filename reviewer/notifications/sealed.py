"""What channels need to know, sealed at rest, and the installation's key towards push services."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.db import connection

from plans import resealing, sealing, vault
from reviewer.notifications.models import Channel, VapidKey

PURPOSE_OF_KEY = "vapid-key"


def seal_address(address: str, *, person_pk: int) -> bytes:
    """A chat URL or a push subscription as it is kept: bound to its person."""
    return sealing.seal(address.encode(), purpose=_purpose(person_pk))


def open_address(channel: Channel) -> str:
    """What was sealed. Never log, store or show what this gives."""
    if channel.sealed is None:
        raise sealing.SealError("this channel has nothing sealed")
    return sealing.unseal(channel.sealed, purpose=_purpose(channel.person_id)).decode()


def address_hash(address: str) -> bytes:
    """The keyed hash under which the same address is found again."""
    return vault.hash_of(address.encode(), purpose="notification-address")


def vapid_private_key() -> ec.EllipticCurvePrivateKey:
    """The installation's P-256 key, made the first time anybody asks; two who ask at once get the same."""
    row = VapidKey.objects.filter(pk=1).first()
    if row is None:
        fresh = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO notifications_vapidkey (id, sealed) VALUES (1, %s) ON CONFLICT DO NOTHING",
                [sealing.seal(fresh, purpose=PURPOSE_OF_KEY)],
            )
        row = VapidKey.objects.get(pk=1)
    key = serialization.load_der_private_key(sealing.unseal(row.sealed, purpose=PURPOSE_OF_KEY), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def vapid_public_key() -> bytes:
    """The public half as browsers take it: the uncompressed point, 65 bytes."""
    point = serialization.PublicFormat.UncompressedPoint
    return vapid_private_key().public_key().public_bytes(serialization.Encoding.X962, point)


def register() -> None:
    """Tells the rotation of sealing keys where this app keeps sealed values. May be repeated."""
    resealing.add_place(Channel, "sealed", lambda row: _purpose(row.person_id))
    resealing.add_place(VapidKey, "sealed", lambda row: PURPOSE_OF_KEY)


def _purpose(person_pk: int) -> str:
    return f"channel:{person_pk}"
