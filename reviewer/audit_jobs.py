"""Long readings of the log behind the request: exports and verifications, slice by slice, whoever takes them up.

Rows are the queue: a worker that dies leaves a job whose beat stops, and another goes on where it was. A slice of an
export and the place it reached are one transaction, so that nothing is in the file twice and nothing is missing.

One file, though a long one: whoever changes a job's row, to claim it, beat, stop or expire it, sees here who else does.
"""

import json
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import IO, Final, cast
from uuid import UUID

from django.db import connection, connections, transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.http import QueryDict

from audit.erasure import add_copies
from audit.evidence import write_pack
from audit.export import Export, Format, Request, begin_export, parse_export, write_closing
from audit.filters import FilterError
from audit.notes import NoteError
from audit.signing import KeyMissing
from audit.verification import AlreadyVerifyingError, verify_log
from plans import clock
from reviewer.access import actor_of
from reviewer.models import AuditJob, AuditJobPart, Person, SavedSearch

FORMS: Final = ("jsonl", "csv", "ocsf", "evidence")
KEPT_FOR: Final = timedelta(hours=24)
SLICE: Final = 25_000
"""Places of the log that one transaction of an export takes it further."""
TURN: Final = 20.0
"""Seconds that one task works on an export before others get the worker's thread."""
LOST_AFTER: Final = timedelta(seconds=30)
BEAT_EVERY: Final = 5.0
ATTEMPTS: Final = 5
KEPT_AT_ONCE: Final = 20
"""Files of one person: each may be as large as the log."""
PIECE: Final = 1024 * 1024
OPEN: Final = ("waiting", "running")
ERASED: Final = "erased"
"""Why an export's file is gone, where events that it may hold were erased or disposed of."""


class JobRefusedError(Exception):
    """Why a job is not taken on: one sentence."""


_LOCK: Final = "reviewer_audit_job/"


def ask_export(*, person: Person, form: str, query: str) -> AuditJob:
    """Writes down an export for a worker to make. `query` is the search as the log's filters name it."""
    if len(query) > SavedSearch.MAX_QUERY:
        raise JobRefusedError("The search is too long for an export of this size. Narrow it by fewer or shorter words.")
    _limit(person)
    job = AuditJob(person=person, kind="export", form=form, query=query)
    job.save(force_insert=True)
    return job


def ask_verification(*, person: Person) -> AuditJob:
    """Writes down a verification for a worker to make; the one that is open already, where there is one."""
    found = AuditJob.objects.filter(kind="verification", state__in=OPEN).order_by("created_at").first()
    return found or AuditJob.objects.create(person=person, kind="verification")


def _limit(person: Person) -> None:
    if AuditJob.objects.filter(person=person, kind="export", state__in=OPEN).count() >= 5:
        raise JobRefusedError("Five of your exports are being made already. Wait for one, or stop one.")
    if AuditJob.objects.filter(person=person, kind="export", state="done").count() >= KEPT_AT_ONCE:
        raise JobRefusedError(f"{KEPT_AT_ONCE} of your files are kept already. Throw one away first.")


def run_due_jobs() -> int:
    """Takes up one job of each kind, and forgets what has expired. Returns how many were worked on. May be repeated.

    One job of a kind is worked on at a time, in the whole installation: sweeps keep their threads.
    """
    expire_jobs()
    worked = 0
    for kind, run in (("export", _run_export), ("verification", _run_verification)):
        job = _claim(kind)
        if job is not None:
            worked += 1
            run(job)
    return worked


@transaction.atomic(durable=True)
def _claim(kind: str) -> AuditJob | None:
    """The job that has waited longest, now running; None where one of that kind runs, or none waits."""
    with connection.cursor() as cursor:  # one worker at a time, or two would each find that none is running
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s))", [_LOCK + kind])
        if cursor.fetchone() != (True,):
            return None
    at = clock.now()
    lost = AuditJob.objects.filter(kind=kind, state="running", beat_at__lt=at - LOST_AFTER)
    # A row that somebody holds is being worked on, however long its last beat is ago.
    found = lost.select_for_update(skip_locked=True).values_list("pk", flat=True)
    AuditJob.objects.filter(pk__in=list(found)).update(state="waiting")
    if AuditJob.objects.filter(kind=kind, state="running").exists():
        return None
    due = AuditJob.objects.filter(kind=kind, state="waiting").select_for_update(skip_locked=True, of=("self",))
    job = due.select_related("person").order_by(F("beat_at").asc(nulls_first=True), "created_at", "pk").first()
    if job is None:
        return None
    if job.attempts >= ATTEMPTS:
        _finish(job, "failed", problem="Several workers in a row ended while they worked on it.")
        return None
    job.state, job.beat_at, job.attempts = "running", at, job.attempts + 1
    job.save(update_fields=["state", "beat_at", "attempts"])
    return job


def _finish(job: AuditJob, state: str, *, problem: str = "") -> None:
    at = clock.now()
    job.state, job.problem, job.ended_at, job.beat_at = state, problem, at, at
    job.expires_at = at + KEPT_FOR if state == "done" and job.kind == "export" else None
    if state == "failed":
        AuditJobPart.objects.filter(job=job).delete()
    job.save(
        update_fields=[
            "state",
            "problem",
            "ended_at",
            "beat_at",
            "expires_at",
            "done",
            "closing",
            "byte_count",
            "total",
        ]
    )


# --- exports --------------------------------------------------------------------------------------------------------


def request_of(job: AuditJob) -> Request:
    """The export that the job's query asks for, as the log's own reader of filters reads it. FilterError."""
    query = QueryDict(job.query, mutable=True)
    query["format"] = job.form
    _form, asked = parse_export(query.lists(), forms=FORMS)
    return asked


def _run_export(job: AuditJob) -> None:
    """One turn of an export: begun and recorded at its first, then slices until the time is up or all is there."""
    try:
        if job.form == "evidence":
            _make_pack(job)
            return
        if not job.closing and not _begin(job):
            return
        deadline = time.monotonic() + TURN
        while job.next_index < job.size:
            if time.monotonic() >= deadline:
                AuditJob.objects.filter(pk=job.pk, state="running").update(state="waiting")
                return
            if not _export_slice(job):
                return
        _close(job)
    except (FilterError, RuntimeError) as error:  # the log is damaged, and says where to look
        with transaction.atomic(durable=True):
            if _is_ours(job):
                _finish(job, "failed", problem=str(error))


def _begin(job: AuditJob) -> bool:
    """Fixes what the export holds, records it, and keeps what its last record will say. False where somebody took the
    job over meanwhile, and goes on with what they fixed."""
    request = request_of(job)
    with _beating(job):
        export = begin_export(request, actor=actor_of(job.person), via="page", form=job.form)
    try:
        size, total, closing = export.size, export.rows, json.dumps(export.closing(), ensure_ascii=False)
    finally:
        export.close()
    with transaction.atomic(durable=True):
        if not _is_ours(job):
            return False
        job.size, job.next_index, job.total, job.closing = size, request.from_index, total, closing
        job.beat_at = clock.now()
        job.save(update_fields=["size", "next_index", "total", "closing", "beat_at"])
    return True


def _export_slice(job: AuditJob) -> bool:
    """The next SLICE places and where that leads, in one transaction. False where the job is not ours any more."""
    asked = request_of(job)
    until = min(job.next_index + SLICE, job.size)
    export = Export(Request(asked.form, asked.filters, job.next_index), until, None)
    try:
        with transaction.atomic(durable=True):
            if not _is_ours(job):
                return False
            if job.byte_count == 0:
                _store(job, [export.head()])
            for rows in export.lines():
                job.done += len(rows)
                _store(job, [b"".join(rows)])
            if job.done > job.total:
                _finish_short(job)
                return False
            job.next_index, job.beat_at, job.attempts = until, clock.now(), 0
            job.save(update_fields=["next_index", "beat_at", "attempts", "done", "byte_count"])
    finally:
        export.close()
    return True


def _is_ours(job: AuditJob) -> bool:
    """Locks the row: whether nobody has taken the job further, stopped it or taken it over meanwhile."""
    now = AuditJob.objects.select_for_update().get(pk=job.pk)
    is_where_it_was = (now.next_index, now.byte_count) == (job.next_index, job.byte_count)
    return now.state == "running" and is_where_it_was and bool(now.closing) == bool(job.closing)


def _close(job: AuditJob) -> None:
    with transaction.atomic(durable=True):
        if not _is_ours(job):
            return
        if job.done != job.total:
            _finish_short(job)
            return
        if job.byte_count == 0:
            _store(job, [request_head(job)])
        _store(job, [write_closing(cast(Format, job.form), json.loads(job.closing))])
        _finish(job, "done")


def _finish_short(job: AuditJob) -> None:
    found, job.done = job.done, min(job.done, job.total)
    _finish(job, "failed", problem=f"{found} events were found of {job.total}: verify the log.")


def request_head(job: AuditJob) -> bytes:
    """What stands before the first record of this job's form."""
    export = Export(Request(cast(Format, job.form), request_of(job).filters), 0, None)
    try:
        return export.head()
    finally:
        export.close()


def _store(job: AuditJob, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        if piece:
            number = AuditJobPart.objects.filter(job=job).count()
            AuditJobPart.objects.create(job=job, number=number, content=zlib.compress(piece, 3))
            job.byte_count += len(piece)


def _make_pack(job: AuditJob) -> None:
    """An evidence pack, from its beginning: at most 100,000 events, so that a lost worker costs little."""
    with _beating(job):
        export = begin_export(request_of(job), actor=actor_of(job.person), via="page", form=job.form)
    job.total, job.done = export.rows, 0
    job.save(update_fields=["total", "done"])
    with tempfile.TemporaryFile() as file:
        write_pack(export, cast(IO[bytes], file), _Beat(job))
        file.seek(0)
        with transaction.atomic(durable=True):
            if not _is_ours(job):
                return
            _store(job, iter(lambda: file.read(PIECE), b""))
            job.done = job.total
            _finish(job, "done")


@contextmanager
def _beating(job: AuditJob) -> Iterator[None]:
    """Says every few seconds that the job is worked on, from a thread: the export inside may count for long."""
    over = threading.Event()

    def beat() -> None:
        try:
            while not over.wait(BEAT_EVERY):
                AuditJob.objects.filter(pk=job.pk, state="running").update(beat_at=clock.now())
        finally:
            connection.close()

    thread = threading.Thread(target=beat, name="audit job beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Beat:
    """Writes down how far a job has come, once a second."""

    def __init__(self, job: AuditJob) -> None:
        self.job = job
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1
            at = clock.now()
            AuditJob.objects.filter(pk=self.job.pk, state="running").update(
                done=min(done, total), total=total, beat_at=at
            )


def read_file(job: AuditJob) -> Iterator[bytes]:
    """The file's bytes, part by part, with the memory of one."""
    number = 0
    while (part := AuditJobPart.objects.filter(job=job, number=number).first()) is not None:
        yield zlib.decompress(part.content)
        number += 1


def stop_job(job: AuditJob) -> None:
    """Ends a job, or throws its file away, and with it what was searched for. May be repeated."""
    with transaction.atomic(durable=True):
        now = AuditJob.objects.select_for_update().get(pk=job.pk)
        AuditJobPart.objects.filter(job=now).delete()
        AuditJob.objects.filter(pk=now.pk).update(
            state="expired", ended_at=now.ended_at or clock.now(), query="", closing=""
        )


def expire_jobs() -> int:
    """Throws away the files whose time is over, and what was searched for; that it was, and when, stays in the log.

    Returns how many. What failed is not searched for again after the same time. May be repeated.
    """
    failed = AuditJob.objects.filter(kind="export", state="failed", ended_at__lte=clock.now() - KEPT_FOR)
    ended = failed | AuditJob.objects.filter(kind="export", state="expired")
    ended.exclude(query="", closing="").update(query="", closing="")
    due = AuditJob.objects.filter(Q(state="done"), expires_at__lte=clock.now())
    pks: list[UUID] = list(due.values_list("pk", flat=True)[:20])
    for pk in pks:
        stop_job(AuditJob(pk=pk))
    return len(pks)


def register() -> None:
    """Tells the log that files of exports are copies of it. May be repeated."""
    add_copies(_drop_files)


def _drop_files() -> int:
    """Ends every export that was begun: what it has read, or will read, may be of before. As audit.erasure.add_copies
    has it: nobody takes an export up before the owner's transaction is over, and then it sees what is left."""
    with connections["owner"].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"{_LOCK}export"])
    begun = Q(state__in=("running", "done")) | Q(state="waiting", beat_at__isnull=False)
    jobs = AuditJob.objects.using("owner").filter(begun, kind="export")
    pks = list(jobs.select_for_update().order_by("pk").values_list("pk", flat=True))
    AuditJobPart.objects.using("owner").filter(job__in=pks).delete()
    jobs.filter(pk__in=pks).update(
        state="expired", problem=ERASED, ended_at=Coalesce("ended_at", Now()), query="", closing=""
    )
    return len(pks)


# --- verifications --------------------------------------------------------------------------------------------------


def _run_verification(job: AuditJob) -> None:
    """The whole log, in one go: it sees one moment, so whoever takes it up after a lost worker starts anew."""
    try:
        report = verify_log(actor=actor_of(job.person), via="page", progress=_Beat(job))
    except AlreadyVerifyingError:
        held = AuditJob.objects.filter(pk=job.pk, state="running", attempts=job.attempts)
        held.update(state="waiting", attempts=F("attempts") - 1)
    except (KeyMissing, NoteError) as refused:
        _end_verification(job, "failed", problem=str(refused))
    else:
        _end_verification(job, "done", closing=json.dumps(report.as_data()))


@transaction.atomic(durable=True)
def _end_verification(job: AuditJob, state: str, *, problem: str = "", closing: str = "") -> None:
    """Ends the job as it was claimed: what was given up or taken over meanwhile is not this worker's to end."""
    now = AuditJob.objects.select_for_update().get(pk=job.pk)
    if (now.state, now.attempts) == ("running", job.attempts):
        now.closing, now.done = closing, now.total if closing else now.done
        _finish(now, state, problem=problem)


def verify_now(*, person: Person) -> AuditJob:
    """A verification in this request, for a log that is short; its result is kept like a worker's."""
    job = AuditJob.objects.create(person=person, kind="verification", state="running", beat_at=clock.now())
    _run_verification(job)
    job.refresh_from_db()
    return job


def is_forgotten(job: AuditJob, now: datetime) -> bool:
    """Whether nobody can say any more, from here, what the job searched for."""
    is_old = job.ended_at is not None and job.ended_at <= now - KEPT_FOR
    return job.state == "expired" or (job.state == "failed" and is_old)


def age_of(job: AuditJob, now: datetime) -> timedelta:
    """How long ago anybody worked on it."""
    return now - (job.beat_at or job.created_at)
