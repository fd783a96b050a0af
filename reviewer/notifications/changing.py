"""What people change about being told, each with its event: preferences, channels, whom admins name for escalation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from audit.kinds import Kind
from audit.recording import record
from plans.errors import Sentence
from plans.instants import format_instant
from plans.models import Target
from reviewer.access import actor_of
from reviewer.models import Person
from reviewer.notifications import chat, push, sealed
from reviewer.notifications.models import Channel, Escalation, Mute, Preference, TargetPace
from reviewer.notifications.routing import may_stand_in, preference_of
from reviewer.notifications.timing import NEVER

MAX_CHANNELS: Final = 20


class CannotChange(Exception):
    """Why a change is refused: one sentence."""


@transaction.atomic(durable=True)
def save_preference(*, person: Person, values: Mapping[str, Any], paces: Mapping[Target, str]) -> Preference:
    """Replaces how a person is told, and of plans under the policies of these targets how often: by a pace, `never`, or
    empty for as of the others. May be repeated; an event tells what changed, and none is written where nothing did.

    Refuses a stand-in without the role, and away without a time or backwards. Locks the preference.
    """
    preference_of(person)
    preference = Preference.objects.select_for_update(no_key=True).get(person=person)
    stand_in = values.get("stand_in")
    if stand_in is not None and not may_stand_in(stand_in, person):
        raise CannotChange(Sentence("A stand-in has the same role as you, and is somebody else."))
    changed = {name: value for name, value in values.items() if getattr(preference, name) != value}
    for name, value in changed.items():
        setattr(preference, name, value)
    preference.save(update_fields=list(changed))
    told = _keep_paces(person, paces)
    if changed or told:
        details = {name: _plain(value) for name, value in changed.items()}
        _record(person, "notifications_changed", {**details, **told})
    return preference


def paces_of(person: Person) -> dict[int, str]:
    """How often this person hears of plans at a target, by its key, where it is not as of the others; also `never`."""
    paces = dict(TargetPace.objects.filter(person=person).values_list("target_id", "pace"))
    return paces | dict.fromkeys(Mute.objects.filter(person=person).values_list("target_id", flat=True), NEVER)


def _keep_paces(person: Person, wanted: Mapping[Target, str]) -> dict[str, Any]:
    """Keep what is not as before; what of it is told: by each target's name, empty where it is as of the others."""
    before = paces_of(person)
    changed = {target: pace for target, pace in wanted.items() if before.get(target.pk, "") != pace}
    Mute.objects.filter(person=person, target__in=changed).delete()
    TargetPace.objects.filter(person=person, target__in=changed).delete()
    Mute.objects.bulk_create([Mute(person=person, target=target) for target, pace in changed.items() if pace == NEVER])
    TargetPace.objects.bulk_create(
        [TargetPace(person=person, target=one, pace=pace) for one, pace in changed.items() if pace not in ("", NEVER)]
    )
    return {"targets": {target.name: pace for target, pace in changed.items()}} if changed else {}


@transaction.atomic(durable=True)
def add_chat(*, person: Person, address: str) -> Channel:
    """A chat service by its Apprise address, which is sealed and never shown again. Refuses what is not on the list."""
    address = address.strip()
    try:
        label = chat.label_of(address)
    except chat.BadAddress as error:
        raise CannotChange(error.args[0]) from None
    return _add(person, Channel.CHAT, address, label)


@transaction.atomic(durable=True)
def add_push(*, person: Person, endpoint: str, p256dh: str, auth: str, browser: str) -> Channel:
    """A browser's push subscription. The same browser again replaces its keys, and is told again."""
    try:
        kept = push.subscription(endpoint, p256dh, auth)
    except push.BadSubscription as error:
        raise CannotChange(error.args[0]) from None
    marked = sealed.address_hash(endpoint)
    known = Channel.objects.select_for_update(no_key=True).filter(person=person, address_hash=marked).first()
    if known is not None:
        known.sealed = sealed.seal_address(kept, person_pk=person.pk)
        known.is_on, known.failing_since, known.last_failure = True, None, ""
        known.save(update_fields=["sealed", "is_on", "failing_since", "last_failure"])
        _record(person, "notification_channel_renewed", {"kind": known.kind, "label": known.label})
        return known
    return _add(person, Channel.PUSH, kept, push.label_of(endpoint, browser), marked=marked)


def _add(person: Person, kind: str, address: str, label: str, *, marked: bytes | None = None) -> Channel:
    preference_of(person)
    Preference.objects.select_for_update(no_key=True).get(person=person)  # one at a time, or the count means nothing
    if Channel.objects.filter(person=person).count() >= MAX_CHANNELS:
        raise CannotChange(Sentence("You have %(most)d channels already. Remove one first.", most=MAX_CHANNELS))
    try:
        with transaction.atomic():
            channel = Channel.objects.create(
                person=person,
                kind=kind,
                label=label,
                sealed=sealed.seal_address(address, person_pk=person.pk),
                address_hash=marked or sealed.address_hash(address),
            )
    except IntegrityError:
        raise CannotChange(Sentence("You have this channel already.")) from None
    _record(person, "notification_channel_added", {"kind": kind, "label": label})
    return channel


@transaction.atomic(durable=True)
def switch_channel(*, person: Person, pk: int, is_on: bool) -> Channel:
    """A channel of one's own on or off. May be repeated; refuses somebody else's as if there were none."""
    channel = _own(person, pk)
    if channel.is_on != is_on:
        channel.is_on = is_on
        channel.save(update_fields=["is_on"])
        what = "notification_channel_on" if is_on else "notification_channel_off"
        _record(person, what, {"kind": channel.kind, "label": channel.label})
    return channel


@transaction.atomic(durable=True)
def remove_channel(*, person: Person, pk: int) -> Channel:
    """Destroys a channel of one's own and what was sealed for it. E-mail can only be switched off."""
    channel = _own(person, pk)
    if channel.kind == Channel.EMAIL:
        raise CannotChange(Sentence("E-mail can be switched off, not removed."))
    _record(person, "notification_channel_removed", {"kind": channel.kind, "label": channel.label})
    channel.delete()
    return channel


@transaction.atomic(durable=True)
def name_escalation(*, by: Person, person: Person | None) -> None:
    """Who hears of plans that nobody decides: this person, or every admin (None). By an admin; may be repeated."""
    if "admin" not in by.roles:
        raise CannotChange(Sentence("Only an admin names who hears of plans that nobody decides."))
    if person is not None and not (person.is_active and {"reviewer", "admin"} & set(person.roles)):
        raise CannotChange(Sentence("Who hears of plans that nobody decides is a reviewer or an admin."))
    Escalation.objects.bulk_create([Escalation(pk=1)], ignore_conflicts=True)
    row = Escalation.objects.select_for_update().get(pk=1)
    if row.person_id == (person.pk if person else None):
        return
    row.person = person
    row.save(update_fields=["person"])
    named = person or by
    data = {"person": str(named.pk), "email": named.email, "change": "escalation_named"}
    record(Kind.PERSON_CHANGED, actor=actor_of(by), data={**data, "named": person.email if person else "every admin"})


def get_own_channel(person: Person, pk: int) -> Channel:
    """A channel of this person's. Raises `Channel.DoesNotExist`, for somebody else's too."""
    return Channel.objects.get(person=person, pk=pk)


def _own(person: Person, pk: int) -> Channel:
    return Channel.objects.select_for_update(no_key=True).get(person=person, pk=pk)


def _plain(value: Any) -> Any:
    """A value as an event holds it."""
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Person):
        return value.email
    return value if value is None or isinstance(value, bool | int | list | str) else str(value)


def _record(person: Person, change: str, details: Mapping[str, Any]) -> None:
    data = {"person": str(person.pk), "email": person.email, "change": change, **details}
    record(Kind.PERSON_CHANGED, actor=actor_of(person), data=data)
