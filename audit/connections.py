"""Connections of their own, for what must not share the request's: long reads, locks that belong to a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

_DJANGO_S_OWN = {"cursor_factory", "context", "prepare_threshold"}


def open_connection(purpose: str = "log") -> psycopg.Connection[Any]:
    """A new connection to the application's database, as its role, in autocommit; the server knows its purpose."""
    wanted = {name: value for name, value in connection.get_connection_params().items() if name not in _DJANGO_S_OWN}
    return psycopg.connect(**wanted, autocommit=True, application_name=f"plandesk {purpose}")


@contextmanager
def one_snapshot(purpose: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose every statement sees the same moment, and changes nothing."""
    with open_connection(purpose) as opened, opened.transaction():
        opened.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield opened


@contextmanager
def same_snapshot(first: psycopg.Connection[Any], purpose: str = "log") -> Iterator[psycopg.Connection[Any]]:
    """Another connection that sees the moment of `first`, which is in one_snapshot(), and changes nothing."""
    name = first.execute("SELECT pg_export_snapshot()").fetchall()[0][0]
    with open_connection(purpose) as opened, opened.transaction():
        opened.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        opened.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(name))
        yield opened
