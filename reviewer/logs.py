"""The form of log lines: one a record, `key=value`, JSON-quoted where needed; requests appear by their id alone."""

import json
import logging
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

from django.db import Error as DatabaseError

from audit.context import current_request_id


class LineFormatter(logging.Formatter):
    """One line per record. Of an error: its place, its type, its message; never the values of variables."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": current_request_id(),
            "message": record.getMessage(),
        }
        error = record.exc_info[1] if record.exc_info else None
        if record.name == "celery.beat" and error is not None:
            # Its message holds the whole stack, at every tick while the broker is away.
            fields |= {"message": "A periodic task could not be sent", "said": spoken(error)}
            error = None
        if error is not None:
            if record.name == "celery.app.trace" and isinstance(record.args, Mapping):
                # Celery puts the whole of the error into its message.
                fields["message"] = f"Task {record.args.get('name')} {record.args.get('description')}"
            fields["error"] = type(error).__name__
            fields["said"] = spoken(error)
            fields["traceback"] = " > ".join(
                f"{frame.filename}:{frame.lineno}:{frame.name}" for frame in traceback.extract_tb(error.__traceback__)
            )
        return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items() if value)


def spoken(error: BaseException) -> str:
    """An error's message; of a database's error only its first line, for the others quote rows."""
    text = str(error)
    return text.partition("\n")[0] if isinstance(error, DatabaseError) else text


def _quoted(value: str) -> str:
    plain = value.isascii() and value.isprintable() and not set(value) & set(' "=\\')
    return value if plain else json.dumps(value, ensure_ascii=False)
