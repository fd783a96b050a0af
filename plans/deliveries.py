"""Webhook ids that got a final answer: the same id with other bytes is refused, with the same bytes it is welcome."""

import hmac
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from django.db import connection, transaction

from plans.errors import DeliveryReused
from plans.locks import lock_agent
from plans.models import Delivery


@dataclass(frozen=True, slots=True)
class Received:
    """One delivery: its id, and the keyed hash of the very bytes that were signed."""

    webhook_id: str
    body_hash: bytes = field(repr=False)


def check_same(body_hash: bytes | memoryview, received: Received) -> None:
    """Raise `DeliveryReused` where the id is bound to other bytes."""
    if not hmac.compare_digest(bytes(body_hash), received.body_hash):
        raise DeliveryReused("This webhook-id was used for another body.")


def bind(agent_pk: int, received: Received | None) -> datetime | None:
    """Bind the id to its bytes, in the transaction that carries the delivery out; its caller has locked the agent.

    Returns when this delivery was bound first, which a redelivery finds again; None where there is no delivery. Raises
    `DeliveryReused`. One round trip where the id is new.
    """
    if received is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO plans_delivery (agent_id, webhook_id, body_hash, received_at)
            VALUES (%s, %s, %s, clock_timestamp())
            ON CONFLICT ON CONSTRAINT plans_webhook_id_is_bound_once DO NOTHING RETURNING received_at
            """,
            [agent_pk, received.webhook_id, received.body_hash],
        )
        if (bound := cursor.fetchone()) is not None:
            return cast("datetime", bound[0])
    known = Delivery.objects.get(agent_id=agent_pk, webhook_id=received.webhook_id)
    check_same(known.body_hash, received)
    return known.received_at


@transaction.atomic(durable=True)
def bind_final(agent_pk: int, received: Received) -> None:
    """Bind the id of a delivery whose final answer changes nothing else: refused for good, or told before."""
    lock_agent(agent_pk)
    bind(agent_pk, received)
