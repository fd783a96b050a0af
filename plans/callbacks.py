"""Callbacks to agents: queued with the change they tell of, delivered by the clock, signed per Standard Webhooks."""

import secrets
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from msgspec import Raw

from audit.kinds import Kind
from audit.recording import Actor, record
from plans import answers, auth, clock
from plans.chronicle import SWEEP, tell
from plans.errors import Sentence, keep
from plans.instants import format_instant
from plans.models import AgentSecret, Callback, CallbackTry, Plan
from plans.outgoing import NoAnswer, NotSent, exchange, is_public
from plans.signatures import sign

TIMEOUT: Final = timedelta(seconds=15)
LEASE: Final = timedelta(minutes=1)
GIVE_UP_AFTER: Final = timedelta(days=3)  # CONTRACT 5.4
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800))
"""How long to wait after each failed attempt; the last one repeats."""


def queue(plan: Plan, kind: str, *, at: datetime) -> None:
    """Queue the news `kind` with the plan's state document of this moment, where the agent has a callback URL.

    Called inside the transaction of the change; sends nothing. The body is fixed here: every attempt sends it again.
    """
    if not plan.agent.callback_url:
        return
    body = answers.encode(
        {"type": kind, "timestamp": format_instant(at), "data": Raw(answers.encode(answers.document(plan)))}
    )
    Callback.objects.create(
        agent=plan.agent,
        plan=plan,
        kind=kind,
        webhook_id=f"msg_{secrets.token_hex(16)}",
        body=body.decode(),
        queued_at=at,
        next_try_at=at,
    )


def deliver_due(limit: int = 50) -> int:
    """Try the callbacks that are due, one after the other. Returns how many were tried.

    Each is leased for a minute by one conditional update first, so that several workers share the work; a worker that
    dies leaves its callback to be tried again, with the same id. No transaction is open while an agent is called.
    """
    done = 0
    for _ in range(limit):
        pk = _lease()
        if pk is None:
            break
        _deliver(pk)
        done += 1
    return done


@transaction.atomic(durable=True)
def repeat(*, callback_pk: int, by: Actor) -> Callback:
    """Have a callback tried again at once, with the same id, whatever became of it before. `Callback.DoesNotExist`."""
    callback = Callback.objects.select_for_update(no_key=True, of=("self",)).select_related("agent").get(pk=callback_pk)
    callback.next_try_at, callback.delivered_at, callback.gave_up_at = clock.now(), None, None
    callback.save(update_fields=["next_try_at", "delivered_at", "gave_up_at"])
    data = {"change": "callback_repeated", "callback": callback.kind, "webhook_id": callback.webhook_id}
    record(Kind.AGENT_CHANGED, actor=by, agent=callback.agent.name, data=data)
    return callback


@transaction.atomic(durable=True)
def _lease() -> int | None:
    at = clock.now()
    callback = (
        Callback.objects.filter(next_try_at__lte=at)
        .select_for_update(no_key=True, skip_locked=True)
        .order_by("next_try_at", "id")
        .first()
    )
    if callback is None:
        return None
    callback.next_try_at = at + LEASE
    callback.save(update_fields=["next_try_at"])
    return callback.pk


def _deliver(callback_pk: int) -> None:
    callback = Callback.objects.select_related("agent").get(pk=callback_pk)
    status, detail = _call(callback)
    _note(callback_pk, status, detail)


def _call(callback: Callback) -> tuple[int | None, Sentence]:
    """Send it once: the status of the answer, or None and why there was none. No redirects; the answer is not kept."""
    agent = callback.agent
    if agent.disabled_at is not None or not agent.callback_url:
        return None, Sentence("The agent is disabled or has no callback URL any more.")
    live = AgentSecret.objects.filter(agent=agent, purpose=AgentSecret.CALLBACK, retired_at=None).order_by("-id")
    secret = auth.open_secret(agent, live[0])
    body = callback.body.encode()
    timestamp = int(clock.now().timestamp())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": callback.webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, callback.webhook_id, timestamp, body),
    }
    may_connect = None if settings.CALLBACK_ALLOW_PRIVATE else is_public
    try:
        answer = exchange(
            "POST", agent.callback_url, headers=headers, body=body, timeout=TIMEOUT, may_connect=may_connect
        )
    except (NotSent, NoAnswer) as error:
        return None, error.args[0]
    return answer.status, Sentence("The agent answered %(status)d.", status=answer.status)


@transaction.atomic(durable=True)
def _note(callback_pk: int, status: int | None, detail: Sentence) -> None:
    callback = Callback.objects.select_for_update(no_key=True).get(pk=callback_pk)
    at = clock.now()
    is_delivered = status is not None and 200 <= status < 300
    CallbackTry.objects.create(
        callback=callback, tried_at=at, http_status=status, detail=keep(detail), is_delivered=is_delivered
    )
    callback.try_count += 1
    if is_delivered:
        callback.next_try_at, callback.delivered_at, callback.gave_up_at = None, at, None
    elif at - callback.queued_at >= GIVE_UP_AFTER:
        callback.next_try_at, callback.gave_up_at = None, at
    else:
        callback.next_try_at = at + PAUSES[min(callback.try_count, len(PAUSES)) - 1]
    callback.save(update_fields=["next_try_at", "delivered_at", "gave_up_at", "try_count"])
    plan = Plan.objects.select_related("agent", "target", "task").get(pk=callback.plan_id)
    kind = Kind.CALLBACK_DELIVERED if is_delivered else Kind.CALLBACK_FAILED
    data = {"callback": callback.kind, "webhook_id": callback.webhook_id, "attempt": callback.try_count}
    tell(plan, kind, actor=SWEEP, data={**data, "status": status, "detail": str(detail)})
