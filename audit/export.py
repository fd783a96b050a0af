"""Exports: every event that matches, in the order of places, streamed with constant memory, closed by a checkpoint."""
# ruff: noqa: S608 - statements are put together from constants; every value is a parameter or a number.

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

import psycopg
from django.db import transaction

from audit.ahead import read_ahead
from audit.canonical import format_at
from audit.connections import one_snapshot, same_snapshot
from audit.export_sql import COPY_CSV, COPY_LINES, CSV_COLUMNS, CSV_ROW, LINE, SPAN, bound
from audit.filters import FilterError, Filters, build_matching, build_words, parse_search
from audit.kinds import Kind
from audit.ocsf import translate_closing, translate_line
from audit.proofs import StoredCheckpoint, advance, ask_django, count_pending, read_checkpoint, read_size
from audit.recording import Actor, Payload, record
from audit.signing import KeyMissing, read_verifier

Format = Literal["jsonl", "csv", "ocsf"]
FORMATS: Final = get_args(Format)
CONTENT_TYPES: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "ocsf": "application/x-ndjson",
}
# So many places of the log at a time.
CHUNK: Final = 5000
READERS: Final = 2
BUFFER: Final = 64 * 1024
# The sequencer signs within so many seconds, where it runs.
SIGNED_WITHIN: Final = 3.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be exported: in which form, which events, from which place on (to go on where another one ended)."""

    form: Format
    filters: Filters
    from_index: int = 0

    def as_data(self) -> dict[str, Payload]:
        return {"format": self.form, "filters": self.filters.as_data(), "from_index": self.from_index}


def parse_export(query: Iterable[tuple[str, list[str]]], *, forms: tuple[str, ...] = FORMATS) -> tuple[str, Request]:
    """The form, and the export that a query string asks for; refuses as parse_search does, and an unknown form."""
    given = dict(query)
    rest = {name: values for name, values in given.items() if name not in ("format", "from_index")}
    for name in ("order", "cursor", "limit"):
        if name in rest:
            raise FilterError(f"An export takes no {name}: it is everything that matches, in the order of places.")
    form = _one(given, "format", "")
    if form not in forms:
        raise FilterError(f"The format is one of {', '.join(forms)}.")
    start = _one(given, "from_index", "0")
    if not (start.isascii() and start.isdigit() and len(start) < 16):
        raise FilterError("from_index is a whole number: the place from which on to export.")
    search = parse_search(rest.items())
    return form, Request(cast(Format, form if form in FORMATS else "jsonl"), search.filters, int(start))


def _one(given: dict[str, list[str]], name: str, default: str) -> str:
    values = given.get(name, [default])
    if len(values) != 1:
        raise FilterError(f"{name} was given {len(values)} times; it takes one value.")
    return values[0]


class Export:
    """One export under way, over a connection of its own that sees one moment. Close it, or read it to its end."""

    def __init__(self, request: Request, size: int, checkpoint: StoredCheckpoint | None) -> None:
        self.request = request
        self.size = size
        self.checkpoint = checkpoint
        self.rows = 0
        self._stack = ExitStack()
        self._connection = self._stack.enter_context(one_snapshot("export"))
        try:
            self.pending = count_pending(self.ask)
            self._find()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives the connection back. May be repeated."""
        self._stack.close()

    @property
    def is_everything(self) -> bool:
        """Whether no filter leaves anything out."""
        return not self.request.filters.as_data()

    def _find(self) -> None:
        """Counts what matches; of a filter, keeps the places on the server, in a cursor that is already sorted."""
        if self.is_everything:
            self.rows = max(self.size - self.request.from_index, 0)
            self._plan_ranges(self._connection)
            return
        conditions, parameters = build_matching(self.request.filters)
        source = "audit_event e JOIN audit_sequence s ON s.event_id = e.id"
        if self.request.filters.words:
            source += " LEFT JOIN audit_payload p ON p.event_id = e.id"
            words, patterns = build_words(self.request.filters.words)
            conditions.append(words)
            parameters += patterns
        conditions += ["s.index >= %s", "s.index < %s"]
        parameters += [self.request.from_index, self.size]
        self._places = psycopg.ServerCursor(self._connection, "places", scrollable=True)
        self._stack.callback(self._places.close)
        query = f"SELECT s.index FROM {source} WHERE {' AND '.join(conditions)} ORDER BY s.index"
        self._places.execute(cast(Any, query), parameters)
        moved = self._connection.execute("MOVE FORWARD ALL IN places").rowcount
        self._connection.execute("MOVE ABSOLUTE 0 IN places")
        self.rows = max(moved, 0)

    def chunks(self) -> Iterator[str]:
        """Conditions on `s.index`, each for the next places to export."""
        if self.is_everything:
            for start in range(self.request.from_index, self.size, CHUNK):
                yield f"s.index >= {start:d} AND s.index < {min(start + CHUNK, self.size):d}"
            return
        while places := self._places.fetchmany(CHUNK):
            yield "s.index = ANY('{" + ",".join(str(int(index)) for (index,) in places) + "}')"

    def copy(self, copy: str, query: str) -> Iterator[list[bytes]]:
        """The rows of `query` at these places, each as COPY sends it, chunk by chunk.

        Of more than one chunk those to come are made meanwhile, by connections that see the same moment: making a line
        costs the database more than sending it on costs us.
        """

        def read(reader: psycopg.Connection[Any], condition: str) -> list[bytes]:
            (span,) = reader.execute(cast(Any, SPAN + condition)).fetchall()
            if span[0] is None:
                return []
            statement = copy.format(query=bound(query, condition, span))
            with reader.cursor().copy(cast(Any, statement)) as copied:
                return [bytes(row) for row in copied]

        if self.rows <= CHUNK:
            yield from filter(None, (read(self._connection, condition) for condition in self.chunks()))
            return
        with ExitStack() as stack:
            readers = [stack.enter_context(same_snapshot(self._connection, "export")) for _ in range(READERS)]
            for reader in readers:
                self._plan_ranges(reader)
            for _, rows in stack.enter_context(closing(read_ahead(readers, self.chunks(), read))):
                if rows:
                    yield rows

    def _plan_ranges(self, connection: psycopg.Connection[Any]) -> None:
        """Ranges of neighbours are joined; a planner that expects few rows would look each up by itself."""
        if self.is_everything:
            connection.execute("SET LOCAL enable_nestloop = off")

    def ask(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        """A statement in the export's own moment."""
        return self._connection.execute(cast(Any, statement), parameters).fetchall()

    def closing(self) -> dict[str, Any]:
        """What the last record says: how many there are, what was asked, and the checkpoint over them."""
        try:
            key: str | None = str(read_verifier())
        except KeyMissing:
            key = None
        checkpoint = self.checkpoint
        return {
            **self.request.as_data(),
            "rows": self.rows,
            "next_index": max(self.size, self.request.from_index),
            "not_sequenced": self.pending,
            "checkpoint": None if checkpoint is None else checkpoint.note,
            "signed_at": None if checkpoint is None else format_at(checkpoint.signed_at),
            "key": key,
        }

    def stream(self, progress: Progress = lambda *_: None) -> Iterator[bytes]:
        """The export's bytes, in pieces. It ends with a closing record, or was cut."""
        try:
            done = 0
            yield self.head()
            for rows in self.lines():
                done += len(rows)
                yield b"".join(rows)
                progress(done, self.rows)
            if done != self.rows:
                raise RuntimeError(f"{done} events were exported of {self.rows}: the log is damaged; verify it.")
            yield write_closing(self.request.form, self.closing())
        finally:
            self.close()

    def head(self) -> bytes:
        """What stands before the first record."""
        return (",".join(CSV_COLUMNS) + "\r\n").encode() if self.request.form == "csv" else b""

    def lines(self) -> Iterator[list[bytes]]:
        """The records alone, chunk by chunk: an export that is made in several goes puts head and end around them."""
        match self.request.form:
            case "jsonl":
                yield from self.copy(COPY_LINES, LINE)
            case "csv":
                # RFC 4180 ends a record with CR LF; COPY with LF.
                yield from ([row[:-1] + b"\r\n" for row in rows] for rows in self.copy(COPY_CSV, CSV_ROW))
            case "ocsf":
                yield from ([translate_line(row) for row in rows] for rows in self.copy(COPY_LINES, LINE))


def write_closing(form: Format, closing: dict[str, Any]) -> bytes:
    """The closing record in that form: `closing` as Export.closing() gave it."""
    if form == "jsonl":
        return json.dumps({"export": closing}, ensure_ascii=False).encode() + b"\n"
    if form == "ocsf":
        return translate_closing(closing)
    text = io.StringIO()
    members = {"kind": "export", "at": closing["signed_at"], "data": json.dumps(closing, ensure_ascii=False)}
    csv.writer(text).writerow([members.get(name, "") for name in CSV_COLUMNS])
    return text.getvalue().encode()


def begin_export(request: Request, *, actor: Actor, via: str, form: str | None = None) -> Export:
    """An export, found and counted, and recorded (audit.exported) before a byte of it is given.

    It holds everything that was committed when it began: what had no place yet gets one first. Where the sequencer
    runs, it waits seconds for the signature that covers all of it. Locks nothing; each call is one more export.
    """
    advance()
    checkpoint, size = _wait_for_signature(read_size())
    export = Export(request, size, checkpoint)
    try:
        with transaction.atomic():
            data = {**request.as_data(), "via": via, "rows": export.rows, "size": size}
            record(Kind.AUDIT_EXPORTED, actor=actor, data=data if form is None else {**data, "format": form})
    except BaseException:
        export.close()
        raise
    return export


def _wait_for_signature(size: int) -> tuple[StoredCheckpoint | None, int]:
    """The newest checkpoint, and the size to export: the checkpoint's own where it covers `size`, else `size`."""
    deadline = time.monotonic() + SIGNED_WITHIN
    while True:
        checkpoint = read_checkpoint()
        if checkpoint is not None and checkpoint.size >= size:
            return checkpoint, checkpoint.size
        if checkpoint is None or time.monotonic() > deadline or not _is_sequenced():
            return checkpoint, size
        time.sleep(0.1)


def _is_sequenced() -> bool:
    """Whether a sequencer leads: it holds its lock."""
    return bool(
        ask_django(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND objid = (hashtext('audit_sequencer')::bigint & 4294967295)::oid",
            [],
        )
    )
