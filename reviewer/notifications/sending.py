"""Notices become messages, and messages go out: leased, tried with growing pauses, given up, or dropped as untrue."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Exists, F, Func, IntegerField, OuterRef, Q, Value
from django.db.models.functions import Coalesce

from audit.kinds import Kind
from audit.recording import SWEEP, record
from plans import clock
from plans.errors import Sentence, keep
from plans.models import Approval, FormerOwner
from plans.sealing import SealError
from plans.states import State
from reviewer.models import Person
from reviewer.notifications import chat, mail, push, sealed
from reviewer.notifications.models import Channel, Delivery, Message, Mute, Notice
from reviewer.notifications.occasions import DECIDING, URGENT, Occasion
from reviewer.notifications.routing import preference_of, rhythm_of
from reviewer.notifications.texts import Text, test_text, text_of
from reviewer.notifications.timing import end_of_quiet
from reviewer.notifications.transports import NotDelivered

IN_A_MESSAGE: Final = 50
GAP: Final = timedelta(minutes=1)
"""Between two messages over one channel: what happens meanwhile travels together."""

LEASE: Final = timedelta(minutes=5)
"""Longer than any attempt: a mail takes a dozen steps of EMAIL_TIMEOUT at most. Whoever
dies holding it leaves the message to the next, unchanged."""

PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (30, 60, 300, 900, 1_800, 3_600, 7_200, 14_400))
"""How long to wait after each failed attempt. After the last of them the message is given up."""

NEVER_FINISHED: Final = Sentence("The desk stopped in the middle of every attempt. Tell whoever runs it.")

RUN_FOR: Final = 20.0
TEST_EVERY: Final = timedelta(seconds=10)

# One thread of a worker sends, however slow mail servers and chat services are: the others keep the plans going.
_at_work = threading.Lock()


@dataclass(frozen=True, slots=True)
class Leased:
    """A message that is ours to send until its lease is over."""

    pk: int
    key: UUID
    channel: Channel
    notices: tuple[Notice, ...]
    reached: tuple[int, ...]


def send_due() -> int:
    """Make messages of what is due, and send those whose time has come. Returns how many were tried.

    One run of a process at a time, which takes no new message after 20 s. No transaction is open while a message is
    sent. Every attempt at a message says the same under the same key; a worker that dies after the other side took a
    message and before that is written down is the one case in which it goes out again.
    """
    if not _at_work.acquire(blocking=False):
        return 0
    try:
        bundle_due()
        deadline, done = time.monotonic() + RUN_FOR, 0
        while time.monotonic() < deadline and (leased := _lease()) is not None:
            _attempt(leased)
            done += 1
        return done
    finally:
        _at_work.release()


def bundle_due() -> int:
    """Put each channel's due notices, as far as they are still true, into one message. Returns how many messages."""
    now = clock.now()
    due = Delivery.objects.filter(message=None, dropped_at=None, due_at__lte=now)
    channels = due.order_by().values_list("channel_id", flat=True).distinct()
    return sum(_bundle(pk) for pk in channels)


def send_test(channel: Channel) -> None:
    """Send the test over a channel now. Raises `NotDelivered`; at most one test in 10 s."""
    with transaction.atomic():
        held = Channel.objects.select_for_update(no_key=True).get(pk=channel.pk)
        now = clock.now()
        if held.tested_at is not None and now - held.tested_at < TEST_EVERY:
            raise NotDelivered(Sentence("The last test was a moment ago. Wait ten seconds."))
        held.tested_at = now
        held.save(update_fields=["tested_at"])
    held = Channel.objects.select_related("person").get(pk=channel.pk)
    try:
        _carry(held, test_text(), uuid4(), is_urgent=False)
    except NotDelivered as failure:
        _note_channel(held.pk, failure)
        raise
    _note_channel(held.pk, None)


@transaction.atomic(durable=True)
def _bundle(channel_pk: int) -> int:
    channel = (
        Channel.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        .filter(pk=channel_pk, is_on=True, person__is_active=True)
        .first()
    )
    now = clock.now()
    if channel is None or (channel.last_message_at is not None and now < channel.last_message_at + GAP):
        return 0
    due = Delivery.objects.filter(channel=channel, message=None, dropped_at=None, due_at__lte=now)
    ids = list(due.order_by("due_at", "pk").values_list("pk", "notice_id")[:IN_A_MESSAGE])
    true = {notice.pk for notice in _still_true([notice for _, notice in ids], now)}
    Delivery.objects.filter(pk__in=[pk for pk, notice in ids if notice not in true]).update(dropped_at=now)
    kept = [pk for pk, notice in ids if notice in true]
    if not kept:
        return 0
    message = Message.objects.create(channel=channel, key=uuid4(), made_at=now, next_try_at=now)
    Delivery.objects.filter(pk__in=kept).update(message=message)
    channel.last_message_at = now
    channel.save(update_fields=["last_message_at"])
    return 1


def _still_true(pks: Sequence[int], now: datetime) -> list[Notice]:
    """Those notices that still say what is, to somebody who may still know: a decision that was made needs nobody."""
    approved = Approval.objects.filter(plan=OuterRef("plan"), reviewer=OuterRef("person"), voided_at=None)
    waits = Q(plan__state=State.PENDING.value, plan__expires_at__gt=now)
    decided = Q(occasion__in=[Occasion.WAITING.value, Occasion.SOON.value]) & Exists(approved)
    principal = Coalesce(OuterRef("for_person"), OuterRef("person"))
    muted = Mute.objects.filter(person=principal, target=OuterRef("plan__target"))
    former = FormerOwner.objects.filter(
        agent_id=OuterRef("plan__agent_id"), person_id=OuterRef("person"), until__gte=OuterRef("plan__received_at")
    )
    own = Q(occasion__in=[one.value for one in DECIDING]) & (Q(plan__agent__owner=F("person")) | Exists(former))
    may = Q(person__is_reviewer=True) | (Q(person__is_admin=True) & ~Q(occasion__in=[one.value for one in DECIDING]))
    holds = (
        Q(occasion=Occasion.ENDED.value)
        | Q(occasion=Occasion.UNKNOWN.value, plan__state=State.UNKNOWN.value)
        | (~Q(occasion__in=[Occasion.ENDED.value, Occasion.UNKNOWN.value]) & waits & ~decided)
    )
    count = Func(F("plan__actions"), template="json_array_length((%(expressions)s)::json)", output_field=IntegerField())
    rows = (
        Notice.objects.filter(may, holds, ~Exists(muted), ~own, pk__in=pks)
        .select_related("plan__agent", "plan__target", "plan__abandonment", "for_person")
        .defer("plan__actions", "plan__inputs", "plan__evidence", "plan__planned_state", "plan__summary")
        .annotate(action_count=count)
        .order_by("pk")
    )
    notices: list[Notice] = []
    for notice in rows:
        notice.plan.action_count = notice.action_count  # type: ignore[attr-defined]  # annotated above
        notices.append(notice)
    return notices


def _lease() -> Leased | None:
    """The message that has waited longest, if any is due: ours for as long as a lease. Drops those that are
    true no more, and gives up those at whose every attempt a worker died."""
    while True:
        with transaction.atomic(durable=True):
            now = clock.now()
            message = (
                Message.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
                .filter(next_try_at__lte=now)
                .select_related("channel__person")
                .order_by("next_try_at", "pk")
                .first()
            )
            if message is None:
                return None
            held = message.deliveries.order_by("pk").values_list("notice_id", flat=True)
            notices = _still_true(list(held), now)
            channel = message.channel
            if message.try_count > len(PAUSES):
                message.next_try_at, message.gave_up_at = None, now
                message.save(update_fields=["next_try_at", "gave_up_at"])
                failing = {"failing_since": channel.failing_since or now, "last_failure": NEVER_FINISHED}
                Channel.objects.filter(pk=channel.pk).update(**failing)
                continue
            if notices and channel.is_on and channel.person.is_active:
                message.next_try_at = now + LEASE
                message.try_count += 1
                message.save(update_fields=["next_try_at", "try_count"])
                return Leased(message.pk, message.key, channel, tuple(notices), tuple(message.reached))
            message.next_try_at, message.dropped_at = None, now
            message.save(update_fields=["next_try_at", "dropped_at"])


def _attempt(leased: Leased) -> None:
    text = text_of(leased.channel.person, leased.notices, clock.now())
    is_urgent = any(Occasion(notice.occasion) in URGENT for notice in leased.notices)
    failure: NotDelivered | None = None
    try:
        if leased.channel.kind == Channel.CHAT:
            note = partial(_note_reached, leased.pk)
            chat.send(_address(leased.channel), text, reached=leased.reached, note=note)
        else:
            _carry(leased.channel, text, leased.key, is_urgent=is_urgent)
    except NotDelivered as error:
        failure = error
    _note(leased.pk, failure)
    _note_channel(leased.channel.pk, failure)


def _carry(channel: Channel, text: Text, key: UUID, *, is_urgent: bool) -> None:
    match channel.kind:
        case Channel.EMAIL:
            mail.send(channel.person.email, text, key)
        case Channel.CHAT:
            chat.send(_address(channel), text)
        case _:
            push.send(_address(channel), text, key, is_urgent=is_urgent)


def _address(channel: Channel) -> str:
    try:
        return sealed.open_address(channel)
    except SealError:
        why = Sentence("The desk can't open this channel's address any more. Add the channel again.")
        raise NotDelivered(why) from None


def _note_reached(message_pk: int, place: int) -> None:
    """A receiver has it: whatever becomes of the others, and of us, it is not sent to this one again."""
    append = Func(F("reached"), Value(place), function="array_append", output_field=Message._meta.get_field("reached"))
    Message.objects.filter(pk=message_pk).update(reached=append)


@transaction.atomic(durable=True)
def _note(message_pk: int, failure: NotDelivered | None) -> None:
    message = Message.objects.select_for_update(no_key=True).filter(pk=message_pk, next_try_at__isnull=False).first()
    if message is None:
        return  # the channel was removed meanwhile
    now = clock.now()
    if failure is None:
        message.next_try_at, message.sent_at = None, now
    elif failure.is_gone or message.try_count > len(PAUSES):
        message.next_try_at, message.gave_up_at = None, now
    else:
        message.next_try_at = _after_quiet(message, now + PAUSES[message.try_count - 1])
    message.save(update_fields=["next_try_at", "sent_at", "gave_up_at"])


def _after_quiet(message: Message, at: datetime) -> datetime:
    """`at`, or the end of the person's quiet hours, unless something in the message may break through them."""
    person = message.channel.person
    rhythm = rhythm_of(person, preference_of(person))
    occasions = message.deliveries.values_list("notice__occasion", flat=True)
    if rhythm.urgent_breaks_through and any(Occasion(occasion) in URGENT for occasion in occasions):
        return at
    return end_of_quiet(at, rhythm)


@transaction.atomic(durable=True)
def _note_channel(channel_pk: int, failure: NotDelivered | None) -> None:
    """What the person and admins see of a channel. A subscription that is gone is removed, which is an event."""
    channel = Channel.objects.select_for_update(no_key=True).filter(pk=channel_pk).first()
    if channel is None:
        return
    now = clock.now()
    if failure is None:
        channel.last_sent_at, channel.failing_since, channel.last_failure = now, None, ""
    elif failure.is_gone:
        person = Person.objects.get(pk=channel.person_id)
        data = {"person": str(person.pk), "email": person.email, "change": "notification_channel_removed"}
        why = {"kind": channel.kind, "label": channel.label, "reason": str(failure)}
        record(Kind.PERSON_CHANGED, actor=SWEEP, data={**data, **why})
        channel.delete()
        return
    else:
        channel.failing_since, channel.last_failure = channel.failing_since or now, keep(failure.sentence)
    channel.save(update_fields=["last_sent_at", "failing_since", "last_failure"])
