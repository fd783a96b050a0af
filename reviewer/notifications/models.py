"""Who is told what, where and when, and what became of it. Rows are the queue; the broker only wakes who reads them.

Lock order: Channel -> Message; nothing of a plan is ever locked here.
"""

from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from plans.models import Plan, Target
from reviewer.notifications.occasions import Occasion


def every_occasion() -> list[str]:
    """What somebody is told of who has said nothing."""
    return [occasion.value for occasion in Occasion]


def _one_of(field: str, *values: str) -> Q:
    return Q(**{f"{field}__in": sorted(values)})


class Preference(models.Model):
    """How one person wants to be told. Made with its defaults the first time the person is looked at."""

    person = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preference")
    occasions = ArrayField(models.CharField(max_length=16), default=every_occasion)
    pace = models.CharField(max_length=8, default="at_once")
    every_minutes = models.PositiveSmallIntegerField(default=30)
    daily_at = models.TimeField(default="09:00")
    quiet_from = models.TimeField(null=True)
    quiet_to = models.TimeField(null=True)
    urgent_breaks_through = models.BooleanField(default=False)
    away_from = models.DateTimeField(null=True)
    away_until = models.DateTimeField(null=True)
    stand_in = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="stands_in_for"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=_one_of("pace", "at_once", "every", "daily"), name="notifications_pace_is_known"
            ),
            models.CheckConstraint(
                condition=Q(every_minutes__gte=5, every_minutes__lte=1440), name="notifications_every_5_to_1440_minutes"
            ),
            models.CheckConstraint(
                condition=Q(quiet_from__isnull=True, quiet_to__isnull=True)
                | Q(quiet_from__isnull=False, quiet_to__isnull=False),
                name="notifications_quiet_has_both_ends",
            ),
            models.CheckConstraint(
                condition=Q(away_from__isnull=True, away_until__isnull=True)
                | Q(away_from__isnull=False, away_until__isnull=False, away_from__lt=F("away_until")),
                name="notifications_away_ends_after_it_starts",
            ),
            models.CheckConstraint(
                condition=Q(stand_in__isnull=True) | ~Q(stand_in=F("person")),
                name="notifications_nobody_stands_in_for_self",
            ),
        ]

    def __str__(self) -> str:
        return f"preference of {self.person_id}"


class Mute(models.Model):
    """A target that a person wants to hear nothing of."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="mutes")
    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="mutes")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["person", "target"], name="notifications_target_is_muted_once")]

    def __str__(self) -> str:
        return f"mute {self.person_id} {self.target_id}"


class TargetPace(models.Model):
    """How often a person hears of plans under a target's policy, where that is not as they hear of the others."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="paces")
    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="paces")
    pace = models.CharField(max_length=8)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "target"], name="notifications_one_pace_per_target"),
            models.CheckConstraint(
                condition=_one_of("pace", "at_once", "every", "daily"), name="notifications_target_pace_is_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pace} {self.person_id} {self.target_id}"


class Escalation(models.Model):
    """Who hears of plans that nobody decides: the named person, or every admin where nobody is named. One row."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="notifications_escalation_is_one")]

    def __str__(self) -> str:
        return "escalation"


class Channel(models.Model):
    """One way to reach a person. What it needs to know is sealed; `label` is all that is ever shown of it."""

    EMAIL, CHAT, PUSH = "email", "chat", "push"

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="channels")
    kind = models.CharField(max_length=8)
    label = models.CharField(max_length=120)
    sealed = models.BinaryField(null=True)  # null: the account's own e-mail address
    address_hash = models.BinaryField(null=True)  # keyed: the same address is added once
    is_on = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now())
    tested_at = models.DateTimeField(null=True)
    last_message_at = models.DateTimeField(null=True)
    last_sent_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)
    last_failure = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="email", sealed__isnull=True, address_hash__isnull=True)
                | (_one_of("kind", "chat", "push") & Q(sealed__isnull=False, address_hash__isnull=False)),
                name="notifications_channel_has_what_it_needs",
            ),
            models.UniqueConstraint(
                fields=["person"], condition=Q(kind="email"), name="notifications_one_mail_channel_per_person"
            ),
            models.UniqueConstraint(fields=["person", "address_hash"], name="notifications_address_is_once_per_person"),
        ]

    def __str__(self) -> str:
        return self.label


class Notice(models.Model):
    """One person is to hear of one plan for one reason: the row that keeps anything from being told twice."""

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    for_person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    occasion = models.CharField(max_length=16)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "person", "occasion"], name="notifications_nobody_is_told_twice"),
            models.CheckConstraint(condition=_one_of("occasion", *Occasion), name="notifications_occasion_is_known"),
        ]
        indexes = [models.Index(fields=["made_at"], name="notifications_by_age")]

    def __str__(self) -> str:
        return f"{self.occasion} {self.plan_id} to {self.person_id}"


class Message(models.Model):
    """What goes over a channel at once: some notices, or a test. Tried until it is sent, given up or has no point."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    key = models.UUIDField()  # the same at every attempt, so that whoever receives it twice can tell
    made_at = models.DateTimeField()
    next_try_at = models.DateTimeField(null=True)
    try_count = models.PositiveSmallIntegerField(default=0)
    reached = ArrayField(models.PositiveSmallIntegerField(), default=list)  # receivers of a chat address that have it
    sent_at = models.DateTimeField(null=True)
    gave_up_at = models.DateTimeField(null=True)
    dropped_at = models.DateTimeField(null=True)  # when it was due, nothing in it was true any more

    OPEN: ClassVar[Q] = Q(sent_at__isnull=True, gave_up_at__isnull=True, dropped_at__isnull=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key"], name="notifications_message_key_is_unique"),
            models.CheckConstraint(
                condition=Q(
                    next_try_at__isnull=False, sent_at__isnull=True, gave_up_at__isnull=True, dropped_at__isnull=True
                )
                | Q(next_try_at__isnull=True, sent_at__isnull=False, gave_up_at__isnull=True, dropped_at__isnull=True)
                | Q(next_try_at__isnull=True, sent_at__isnull=True, gave_up_at__isnull=False, dropped_at__isnull=True)
                | Q(next_try_at__isnull=True, sent_at__isnull=True, gave_up_at__isnull=True, dropped_at__isnull=False),
                name="notifications_message_waits_or_ended",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at", "id"], condition=Q(next_try_at__isnull=False), name="notifications_messages_due"
            )
        ]

    def __str__(self) -> str:
        return f"message {self.pk}"


class Delivery(models.Model):
    """One notice over one channel: due at a time, then part of a message, or dropped because it was true no more."""

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    due_at = models.DateTimeField()
    message = models.ForeignKey(Message, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    dropped_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["notice", "channel"], name="notifications_once_per_channel")]
        indexes = [
            models.Index(
                fields=["channel", "due_at"],
                condition=Q(message__isnull=True, dropped_at__isnull=True),
                name="notifications_deliveries_due",
            )
        ]

    def __str__(self) -> str:
        return f"delivery {self.pk}"


class VapidKey(models.Model):
    """The installation's key towards push services (RFC 8292), sealed; made once. Browsers subscribe to it."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    sealed = models.BinaryField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="notifications_vapid_key_is_one")]

    def __str__(self) -> str:
        return "VAPID key"


class Mark(models.Model):
    """How far the log has been read for ends of plans. One row."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    read_until = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="notifications_mark_is_one")]

    def __str__(self) -> str:
        return f"read until {self.read_until}"
