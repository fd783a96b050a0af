"""The one clock that decides: the database's."""

from datetime import datetime

from django.db import connection


def now() -> datetime:
    """The database's wall clock at this moment (not the transaction's start), aware, UTC.

    Read it after the lock: a moment read before may be earlier than what the lock waited for.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    assert isinstance(moment, datetime)
    return moment
