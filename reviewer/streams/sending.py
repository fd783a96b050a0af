"""The log sent on by signed webhook: at least once, in the order of places, each destination at its own pace."""

import json
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from django.conf import settings
from django.db import close_old_connections, connection, transaction

from audit.canonical import format_at
from audit.export_sql import LINE, SPAN, bound
from audit.proofs import advance, ask_django, read_checkpoint, read_size
from plans import clock
from plans.errors import Sentence, keep
from plans.outgoing import NoAnswer, NotSent, exchange, is_public
from plans.sealing import SealError
from plans.signatures import sign
from reviewer.streams.changing import open_secret
from reviewer.streams.models import Stream

MAX_EVENTS: Final = 200
MAX_BYTES: Final = 1024 * 1024
"""Of a delivery's events; a larger one goes alone."""
TIMEOUT: Final = timedelta(seconds=15)
LEASE: Final = timedelta(minutes=1)
RUN_FOR: Final = 20.0
"""Seconds after which a destination gets no other delivery for now: those that came due meanwhile have waited."""
AT_ONCE: Final = 8
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600))
"""How long to wait after each failure in a row; the last one repeats, for ever: nothing is left out."""

PATIENCE: Final = 4.0
"""Seconds that a turn waits for its destinations: less than from one turn to the next."""

logger = logging.getLogger(__name__)

# One thread of a worker waits for destinations, and no longer than that: the others keep the plans going.
_at_work = threading.Lock()
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="stream")
_busy: set[Future[int]] = set()
"""The threads' work that had not ended when it was last looked at, by whoever holds the lock."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a destination is behind: so many events, the oldest of them recorded then."""

    events: int
    since: datetime | None


def lag_of(stream: Stream) -> Lag:
    """What the destination has not taken yet, of what has a place in the tree."""
    rows = ask_django("SELECT at FROM audit_sequence WHERE index = %s", [stream.next_index])
    return Lag(max(read_size() - stream.next_index, 0), rows[0][0] if rows else None)


def send_due() -> int:
    """One turn: each destination that is due, in a thread of its own; returns how many deliveries were taken in it.

    One turn of a process at a time. It ends after PATIENCE: a destination that takes longer goes on in its thread, up
    to RUN_FOR and one delivery more, and later turns serve the others meanwhile. Each is leased by one conditional
    update, so that workers share them and none is sent to by two; who dies leaves a lease that ends. No transaction is
    open during a call.
    """
    if not _at_work.acquire(blocking=False):
        return 0
    try:
        _busy.difference_update([sending for sending in _busy if sending.done()])
        advance()
        begun: list[Future[int]] = []
        while len(_busy) < AT_ONCE and (pk := _lease()) is not None:
            begun.append(_threads.submit(_send_all, pk, time.monotonic() + RUN_FOR))
            _busy.add(begun[-1])
        done, late = wait(begun, PATIENCE)
        for sending in late:
            sending.add_done_callback(_tell_failure)
        return sum(sending.result() for sending in done)
    finally:
        _at_work.release()


def _tell_failure(sending: Future[int]) -> None:
    if (error := sending.exception()) is not None:
        logger.error("a stream's destination was not served", exc_info=error)


def _lease() -> int | None:
    with transaction.atomic(durable=True):
        now = clock.now()
        stream = (
            Stream.objects.filter(is_paused=False, next_try_at__lte=now)
            .select_for_update(no_key=True, skip_locked=True)
            .order_by("next_try_at", "id")
            .first()
        )
        if stream is None:
            return None
        stream.next_try_at = now + LEASE
        stream.save(update_fields=["next_try_at"])
        return int(stream.pk)


def _send_all(pk: int, until: float) -> int:
    close_old_connections()
    try:
        done = 0
        while _send(pk):
            done += 1
            if time.monotonic() >= until:
                Stream.objects.filter(pk=pk).update(next_try_at=clock.now())
                break
        return done
    finally:
        connection.close()


def _send(pk: int) -> bool:
    """The next delivery of a destination; whether it took one and may want more."""
    stream = Stream.objects.filter(pk=pk, is_paused=False).first()
    if stream is None:
        return False
    lines = _read(stream.next_index, read_size())
    if not lines:
        is_short = read_size() < stream.next_index
        sent = Sentence("The log is shorter than what was sent, %(sent)d events.", sent=stream.next_index)
        said = keep(sent) if is_short else ""
        Stream.objects.filter(pk=pk).update(next_try_at=clock.now(), last_error=said)
        return False
    following = stream.next_index + len(lines)
    error = _deliver(stream, following, lines)
    with transaction.atomic(durable=True):
        now = clock.now()
        if error is None:
            changed = {"next_index": following, "delivered_at": now, "failures": 0, "last_error": ""}
            # Only from where it stood: whoever's lease ran out meanwhile changes nothing twice.
            Stream.objects.filter(pk=pk, next_index=stream.next_index).update(**changed, next_try_at=now + LEASE)
            return True
        pause = PAUSES[min(stream.failures, len(PAUSES) - 1)]
        failed = {"failures": stream.failures + 1, "last_error": keep(error), "next_try_at": now + pause}
        Stream.objects.filter(pk=pk, next_index=stream.next_index).update(**failed)
        return False


def _read(start: int, size: int) -> Sequence[str]:
    """The events from place `start` on as JSON texts (those of a JSONL export), as many as one delivery holds."""
    condition = f"s.index >= {start:d} AND s.index < {min(start + MAX_EVENTS, size):d}"
    (span,) = ask_django(SPAN + condition, [])
    if span[0] is None:
        return []
    lines: list[str] = []
    length = 0
    with connection.cursor() as cursor:
        cursor.execute(bound(LINE, condition, cast(Any, span)), None)
        for (line,) in cursor.fetchall():
            length += len(line.encode())
            if lines and length > MAX_BYTES:
                break
            lines.append(line)
    return lines


def _deliver(stream: Stream, following: int, lines: Sequence[str]) -> Sentence | None:
    """Sends it once; None where it was taken, else why not. No redirects; the answer is not kept."""
    now = clock.now()
    checkpoint = read_checkpoint()
    head = {"type": "audit.events", "timestamp": format_at(now)}
    data = {
        "stream": stream.name,
        "first_index": stream.next_index,
        "next_index": following,
        "checkpoint": None if checkpoint is None else checkpoint.note,
    }
    try:
        secret = open_secret(stream)
    except SealError as error:
        return Sentence("The secret cannot be opened: %(why)s.", why=error)
    body = f'{json.dumps(head)[:-1]}, "data": {json.dumps(data)[:-1]}, "events": [{",".join(lines)}]}}}}'.encode()
    webhook_id = f"events_{stream.pk}_{stream.next_index}_{following}"
    timestamp = int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, webhook_id, timestamp, body),
    }
    may_connect = None if settings.CALLBACK_ALLOW_PRIVATE else is_public
    try:
        answer = exchange("POST", stream.url, headers=headers, body=body, timeout=TIMEOUT, may_connect=may_connect)
    except (NotSent, NoAnswer) as error:
        return cast(Sentence, error.args[0])
    if 200 <= answer.status < 300:
        return None
    return Sentence("The destination answered %(status)d.", status=answer.status)
