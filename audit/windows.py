"""What readings over many events share: the newest so many that match, and the patience to wait for an answer."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from audit.filters import Filters, build_conditions, build_words
from audit.queries import COUNT_CAP, is_by_words
from audit.words import TimeIsUpError, limited, select_newest

PATIENCE: Final = timedelta(seconds=5)
_TOO_MANY: Final = "Too many events would have to be read. Narrow the search, by time."


class TakesTooLongError(Exception):
    """The answer was not there in time: so many events would have to be read for it."""


@contextmanager
def patience(length: timedelta = PATIENCE) -> Iterator[None]:
    """What is read inside ends after `length`, each statement of it at the latest (TakesTooLongError)."""
    try:
        with limited(length), transaction.atomic(), connection.cursor() as cursor:
            milliseconds = length // timedelta(milliseconds=1)
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
            yield
            # A transaction around this one goes on with the patience it had.
            cursor.execute("SELECT set_config('statement_timeout', '0', true)")
    except TimeIsUpError as error:
        raise TakesTooLongError(_TOO_MANY) from error
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TakesTooLongError(_TOO_MANY) from error
        raise


def fetch(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class Window:
    """A SELECT of the newest events that match, and its parameters.

    `is_cut`: it is of words, and looks through the newest events alone, of more that may have them.
    """

    statement: str
    parameters: list[Any]
    is_cut: bool = False


def window(filters: Filters, columns: str, limit: int) -> Window:
    """The newest `limit` events `e` that match: id, time and `columns`. To be asked for with patience().

    With words: those that have them, of the newest events that may, as audit.queries counts them.
    """
    if is_by_words(filters):
        return Window(*select_newest(filters, f"e.id, e.at, {columns}"))
    conditions, parameters = build_conditions(filters)
    if filters.to_at is None:
        conditions.append("e.at < statement_timestamp() + interval '1 day'")
    where = " AND ".join(conditions) or "true"
    order = f"ORDER BY e.at DESC, e.id DESC LIMIT {limit:d}"
    wanted = "e.*" if filters.words else f"e.id, e.at, {columns}"
    if filters.kinds:
        # A window of each kind, merged: an index on (kind, at, id) gives no order across several kinds.
        page = f"(SELECT {wanted} FROM audit_event e WHERE e.kind = %s AND {where} {order})"
        parameters = [value for kind in filters.kinds for value in (kind.value, *parameters)]
        found = f"SELECT * FROM ({' UNION ALL '.join([page] * len(filters.kinds))}) AS e {order}"
    else:
        found = f"SELECT {wanted} FROM audit_event e WHERE {where} {order}"
    if not filters.words:
        return Window(found, parameters)
    ((many,),) = fetch(f"SELECT count(*) FROM ({found}) AS counted", parameters)
    words, patterns = build_words(filters.words)
    joined = f"({found}) AS e LEFT JOIN audit_payload p ON p.event_id = e.id"
    statement = f"SELECT e.id, e.at, {columns} FROM {joined} WHERE {words}"
    return Window(statement, [*parameters, *patterns], is_cut=many > COUNT_CAP)
