"""Where the log is sent on to, and how far each destination has come."""

from django.db import models


class Stream(models.Model):
    """A destination and its cursor: every event below place `next_index` was taken by it."""

    name = models.CharField(max_length=128)
    url = models.CharField(max_length=2000)
    sealed = models.BinaryField()
    """The signing secret, sealed."""
    next_index = models.BigIntegerField(default=0)
    is_paused = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    next_try_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)
    """In a row, since the last delivery."""
    last_error = models.TextField(default="", blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("name",), name="streams_name_is_unique"),
            models.CheckConstraint(condition=models.Q(next_index__gte=0), name="streams_cursor_is_a_place"),
        )

    def __str__(self) -> str:
        return self.name
