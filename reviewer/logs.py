"""The form of log lines: one a record, `key=value`, JSON-quoted where needed; requests appear by their id alone."""

import errno
import json
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import psycopg

from audit.context import current_request_id

MOST_CAUSES: Final = 5
"""How far an error is followed back, and how many errors of a group are named."""


class LineFormatter(logging.Formatter):
    """One line per record. Of an error: its type and its causes' types, its codes, its place.

    Never its message, nor the values of variables: either may quote what somebody sent or what a row holds.
    """

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        fields: dict[str, str | None] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": current_request_id(),
            "message": _message(record, error),
        }
        if error is not None:
            chain = list(_causes(error))
            fields["error"] = " from ".join(_name(one) for one in chain)
            fields["code"] = " ".join(code for one in chain for part in (one, *_members(one)) for code in _codes(part))
            if record.name != "celery.beat":  # its stack is the same at every tick while the broker is away
                fields["traceback"] = " > ".join(_places(error))
        return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value)


class DeliberateFilter(logging.Filter):
    """Makes a warning of what Django calls an error: a 503, which says that a target or the database is away."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", None) == HTTPStatus.SERVICE_UNAVAILABLE:
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return True


def _message(record: logging.LogRecord, error: BaseException | None) -> str:
    """What the record says, with errors in it by their types."""
    if error is not None and record.name == "celery.beat":
        return "A periodic task could not be sent"
    if error is not None and record.name == "celery.app.trace" and isinstance(record.args, Mapping):
        # Celery puts the whole of the error into its message.
        return f"Task {record.args.get('name')} {record.args.get('description')}"
    if isinstance(record.args, Mapping):
        values: Any = {key: _without_message(value) for key, value in record.args.items()}
    else:
        values = tuple(_without_message(value) for value in record.args or ())
    text = str(_without_message(record.msg))
    text = text % values if values else text
    # What follows asyncio's first line is `repr` of a task with its error, or of what it was given.
    return text.partition("\n")[0] if record.name == "asyncio" else text


class _Bare(str):
    """A text that `%r` does not quote."""

    __slots__ = ()
    __repr__ = str.__str__


def _without_message(value: object) -> object:
    return _Bare(_name(value)) if isinstance(value, BaseException) else value


def _name(error: BaseException) -> str:
    members = ", ".join(type(one).__name__ for one in _members(error))
    return f"{type(error).__name__}({members})" if members else type(error).__name__


def _members(error: BaseException) -> Sequence[BaseException]:
    return error.exceptions[:MOST_CAUSES] if isinstance(error, BaseExceptionGroup) else ()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, what that was raised from, and so on."""
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _codes(error: BaseException) -> Iterator[str]:
    """What no input can change: PostgreSQL's code and its constraint; the system's error."""
    if isinstance(error, psycopg.Error):
        yield from filter(None, (error.diag.sqlstate, error.diag.constraint_name))
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno in errno.errorcode:
        yield errno.errorcode[error.errno]


def _places(error: BaseException) -> Iterator[str]:
    """Where the error was raised; of a group, where its first error was, too."""
    for frame in traceback.extract_tb(error.__traceback__):
        yield f"{frame.filename}:{frame.lineno}:{frame.name}"
    for member in _members(error)[:1]:
        yield from _places(member)


def _quoted(value: str) -> str:
    plain = value.isascii() and value.isprintable() and not set(value) & set(' "=\\')
    return value if plain else json.dumps(value, ensure_ascii=False)
