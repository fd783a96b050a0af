"""The one clock that decides: the database's."""

from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, Func


def now() -> datetime:
    """The database's wall clock at this moment (not the transaction's start), aware, UTC.

    Read it after the lock: a moment read before may be earlier than what the lock waited for.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    return read(moment)


def read(moment: Any) -> datetime:
    """The clock's reading that a statement brought with what else it looked up. Every reading passes here."""
    assert isinstance(moment, datetime)
    return moment


class DatabaseClock(Func):
    """The same clock inside a query, for what looks before it locks. Django's `Now()` is the transaction's start."""

    function = "clock_timestamp"
    output_field = DateTimeField()
