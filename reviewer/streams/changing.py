"""Destinations made, paused, resumed and removed; each change is an event of the log."""

import re

from django.db import IntegrityError, transaction

from audit.kinds import Kind
from audit.proofs import read_size
from audit.recording import Actor, Payload, record
from plans import clock, resealing, sealing
from plans.errors import Sentence
from plans.registry_rules import check_callback_url
from plans.signatures import Secret, make_secret
from reviewer.streams.models import Stream

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


class StreamRefused(Exception):
    """Nothing was changed; the message is a sentence."""


class BeyondTheLog(StreamRefused):
    """The place from which on to send is not there yet."""


def create_stream(*, name: str, url: str, from_index: int = 0, by: Actor) -> tuple[Stream, Secret]:
    """A destination that gets every event from place `from_index` on, and its secret, given this once.

    Refuses (StreamRefused, or the registry's refusal of an address inside) a name that is taken.
    """
    if NAME.fullmatch(name) is None:
        raise StreamRefused(Sentence("A stream's name has letters, digits and _.:- in it, 128 at most."))
    if from_index < 0:
        raise StreamRefused(Sentence("The place from which on to send is 0 or more."))
    if from_index > (size := read_size()):
        raise BeyondTheLog(Sentence("The log has only %(size)s events so far.", size=size))
    check_callback_url(url)
    secret = make_secret()
    now = clock.now()
    try:
        with transaction.atomic(durable=True):
            stream = Stream.objects.create(
                name=name,
                url=url,
                sealed=sealing.seal(secret.key, purpose=_purpose(name)),
                next_index=from_index,
                created_at=now,
                next_try_at=now,
            )
            _record(by, "stream_created", stream)
    except IntegrityError:
        raise StreamRefused(Sentence("There is a stream %(name)s already.", name=name)) from None
    return stream, secret


def switch_stream(*, name: str, is_paused: bool, by: Actor) -> Stream:
    """Pauses a stream, or resumes it at once, where it stopped. May be repeated; StreamRefused where there is none."""
    with transaction.atomic(durable=True):
        stream = _lock(name)
        if stream.is_paused != is_paused:
            stream.is_paused, stream.next_try_at, stream.failures = is_paused, clock.now(), 0
            stream.save(update_fields=["is_paused", "next_try_at", "failures"])
            _record(by, "stream_paused" if is_paused else "stream_resumed", stream)
    return stream


def remove_stream(*, name: str, by: Actor) -> None:
    """Forgets a destination, its secret and its cursor."""
    with transaction.atomic(durable=True):
        stream = _lock(name)
        _record(by, "stream_removed", stream)
        stream.delete()


def open_secret(stream: Stream) -> Secret:
    """What the destination knows its deliveries by. Never log, store or show it."""
    return Secret(sealing.unseal(stream.sealed, purpose=_purpose(stream.name)))


def register() -> None:
    """Tells the rotation of sealing keys where secrets are. May be repeated."""
    resealing.add_place(Stream, "sealed", lambda row: _purpose(row.name))


def _lock(name: str) -> Stream:
    stream = Stream.objects.select_for_update(no_key=True).filter(name=name).first()
    if stream is None:
        raise StreamRefused(Sentence("There is no stream %(name)s.", name=name[:128]))
    return stream


def _record(by: Actor, change: str, stream: Stream) -> None:
    data: dict[str, Payload] = {
        "change": change,
        "stream": stream.name,
        "url": stream.url,
        "next_index": stream.next_index,
    }
    record(Kind.LOG_CHANGED, actor=by, data=data)


def _purpose(name: str) -> str:
    return f"stream:{name}"
