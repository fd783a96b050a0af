"""The secrets of plans, targets and agents: sealed into their rows, opened where they are used, found by keyed hash."""

import functools
import secrets

from django.db import connection, transaction

from plans import sealing, strict_json
from plans.models import LookupKey, Plan, TargetAddress


@functools.cache
def lookup_key() -> bytes:
    """The installation's key for keyed hashes; made on first use. It stays when sealing keys rotate."""
    row = LookupKey.objects.filter(pk=1).first()
    if row is None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO plans_lookupkey (id, sealed) VALUES (1, %s) ON CONFLICT DO NOTHING",
                [sealing.seal(secrets.token_bytes(32), purpose="lookup-key")],
            )
        row = LookupKey.objects.get(pk=1)
    return sealing.unseal(row.sealed, purpose="lookup-key")


def hash_of(value: bytes, *, purpose: str) -> bytes:
    """The keyed hash under which a secret or a foreign text is found again."""
    return sealing.keyed_hash(value, purpose=purpose, key=lookup_key())


def inputs_hash(inputs: strict_json.Json) -> bytes:
    """The keyed hash by which equal inputs are found, in whatever order and spacing they were written."""
    return hash_of(strict_json.canonical(inputs), purpose="inputs")


def token_hash(token: str) -> bytes:
    """The keyed hash of a plan token."""
    return hash_of(token.encode(), purpose="plan-token")


def seal_token(token: str) -> bytes:
    """A plan token as it is kept while its plan lives."""
    return sealing.seal(token.encode(), purpose="plan-token")


def open_token(plan: Plan) -> str:
    """The token of a plan that has not ended. Never log, store or return what this gives."""
    if plan.token_sealed is None:
        raise sealing.SealError("the plan has ended: its token is destroyed")
    return sealing.unseal(plan.token_sealed, purpose="plan-token").decode()


def open_credentials(address: TargetAddress) -> str | None:
    """The bearer credentials of a target's address, or None where it has none."""
    if address.credentials_sealed is None:
        return None
    return sealing.unseal(address.credentials_sealed, purpose=f"target:{address.target.name}").decode()


def seal_credentials(target_name: str, bearer: str) -> bytes:
    """A target's bearer credentials as they are kept."""
    return sealing.seal(bearer.encode(), purpose=f"target:{target_name}")
