"""The log's tables as Django sees them: to read. They are made by SQL and written by recording.py alone."""
# ruff: noqa: DJ001 - in a log, absent and empty are two facts.

from typing import Any, NoReturn

from django.db import models


class ReadOnlyModel(models.Model):
    """A row that the application may only read; the database says so too (grants, triggers)."""

    class Meta:
        abstract = True

    def save(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("The log is written by audit.recording alone.")

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("Nothing is deleted from the log.")


class Event(ReadOnlyModel):
    """What happened, once. Partitioned by month: fetch one by audit.queries.get_event, which knows where to look."""

    id = models.UUIDField(primary_key=True)
    at = models.DateTimeField()
    kind = models.TextField()
    actor_type = models.TextField()
    actor_id = models.TextField()
    on_behalf_of = models.TextField(null=True)
    agent = models.TextField(null=True)
    target = models.TextField(null=True)
    plan_id = models.TextField(null=True)
    plan_seq = models.IntegerField(null=True)
    operation = models.TextField(null=True)
    task_id = models.TextField(null=True)
    request_id = models.TextField(null=True)
    leaf = models.BinaryField()
    leaf_hash = models.BinaryField()

    class Meta:
        managed = False
        db_table = "audit_event"
        default_permissions = ("view",)
        permissions = (("export_event", "Can export events"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Payload(ReadOnlyModel):
    """What an event says beyond its ids, and the salt of its commitment. Gone once erased; the proof stays."""

    event = models.OneToOneField(
        Event, on_delete=models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="payload"
    )
    salt = models.BinaryField()
    body = models.TextField()

    class Meta:
        managed = False
        db_table = "audit_payload"
        default_permissions = ()

    def __str__(self) -> str:
        return f"payload of {self.pk}"
