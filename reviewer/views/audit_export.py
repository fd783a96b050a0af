"""Exports from the page: a small one is the answer itself, a large one is made by a worker and waits as a download."""

import tempfile
from typing import Any, cast
from uuid import UUID

from django.db import transaction
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from audit.evidence import write_pack
from audit.export import CONTENT_TYPES, begin_export, parse_export
from audit.filters import FilterError
from audit.kinds import Kind
from audit.queries import count_events
from audit.recording import record
from audit.windows import TakesTooLongError, patience
from reviewer import audit_jobs, audit_presets
from reviewer.access import actor_of, requires_role
from reviewer.audit_search import address_of, label_of, pairs_of_log, read_asked, value_of
from reviewer.models import AuditJob, Person
from reviewer.moments import Clock
from reviewer.views import PersonRequest, clock_for, show

SMALL = 9_999
"""Events that are streamed at once; what has more, or is not counted in time, is made by a worker."""
SMALL_PACK = 500
SHOWN = 100
FORM_NAMES = {"jsonl": "JSON lines", "csv": "CSV", "ocsf": "OCSF", "evidence": "Evidence"}


@requires_role("auditor")
@require_POST
def export(request: HttpRequest) -> HttpResponseBase:
    """Exports what a search matches. The export is an event before a byte of it is given. 422 for what cannot be."""
    request = cast(PersonRequest, request)
    clock = clock_for(request.user)
    form = request.POST.get("form", "")
    try:
        query = _query_of(request.POST.get("query", ""), clock)
        named = QueryDict(query, mutable=True)
        named["format"] = form
        form, asked = parse_export(named.lists(), forms=audit_jobs.FORMS)
        if _is_small(asked.filters, form):
            return _at_once(request.user, form, asked)
        job = audit_jobs.ask_export(person=request.user, form=form, query=query)
    except (FilterError, audit_jobs.JobRefusedError) as error:
        return _list(request, clock, problem=str(error), status=422)
    return redirect("audit-job", pk=job.pk)


def _query_of(query: str, clock: Clock) -> str:
    """The search as the log's filters name it: what is counted back from now is counted once."""
    lists = read_asked(QueryDict(query)).lists(clock.now)
    return urlencode([(name, value) for name, values in lists for value in values])


def _is_small(filters: Any, form: str) -> bool:
    try:
        with patience():
            count = count_events(filters)
    except TakesTooLongError:
        return False
    return count.is_exact and count.value <= (SMALL_PACK if form == "evidence" else SMALL)


def _at_once(person: Person, form: str, asked: Any) -> HttpResponseBase:
    begun = begin_export(asked, actor=actor_of(person), via="page", form=form)
    if form != "evidence":
        return _named(StreamingHttpResponse(begun.stream(), content_type=CONTENT_TYPES[form]), form)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the response
    try:
        write_pack(begun, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return _named(FileResponse(file, content_type="application/zip"), form)


def _named(response: HttpResponseBase, form: str) -> HttpResponseBase:
    ending = {"ocsf": "ocsf.jsonl", "evidence": "zip"}.get(form, form)
    response["Content-Disposition"] = f'attachment; filename="audit-events.{ending}"'
    response["Cache-Control"] = "no-store"
    return response


@requires_role("auditor")
@require_safe
def exports(request: HttpRequest) -> HttpResponse:
    """The person's exports, newest first."""
    request = cast(PersonRequest, request)
    return _list(request, clock_for(request.user))


def _list(request: PersonRequest, clock: Clock, *, status: int = 200, **context: Any) -> HttpResponse:
    jobs = AuditJob.objects.filter(person=request.user, kind="export").order_by("-created_at", "-pk")[:SHOWN]
    context["jobs"] = [line_of_job(job, clock) for job in jobs]
    return show(request, "reviewer/audit_exports.html", context, section="audit", clock=clock, status=status)


@requires_role("auditor")
@require_safe
def job(request: HttpRequest, pk: UUID) -> HttpResponse:
    """How far an export has come; its download once it is there. Only its own person's."""
    request = cast(PersonRequest, request)
    found = _own(request.user, pk)
    clock = clock_for(request.user)
    context = {"job": line_of_job(found, clock)}
    if request.htmx:
        response = show(request, "reviewer/_audit_job.html", context, section="audit", clock=clock)
        if found.state not in audit_jobs.OPEN:
            response.status_code = 286  # htmx stops polling
        return response
    return show(request, "reviewer/audit_job.html", context, section="audit", clock=clock)


@requires_role("auditor")
@require_safe
def download(request: HttpRequest, pk: UUID) -> HttpResponseBase:
    """The file of a finished export, while it is kept; recorded as audit.read. Only its own person's."""
    request = cast(PersonRequest, request)
    found = _own(request.user, pk)
    if found.state != "done" or not found.expires_at or found.expires_at <= clock_for(request.user).now:
        raise Http404
    with transaction.atomic(durable=True):
        record(Kind.AUDIT_READ, actor=actor_of(request.user), data={"via": "page", "export": str(found.pk)})
    kind = CONTENT_TYPES.get(found.form, "application/zip")
    response = StreamingHttpResponse(audit_jobs.read_file(found), content_type=kind)
    response["Content-Length"] = str(found.byte_count)
    return _named(response, found.form)


@requires_role("auditor")
@require_POST
def stop(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Stops an export, or throws its file away."""
    request = cast(PersonRequest, request)
    audit_jobs.stop_job(_own(request.user, pk))
    return redirect("audit-exports")


def _own(person: Person, pk: UUID) -> AuditJob:
    found = AuditJob.objects.filter(pk=pk, person=person, kind="export").first()
    if found is None:
        raise Http404
    return found


def line_of_job(job: AuditJob, clock: Clock) -> dict[str, Any]:
    """A job as its pages show it."""
    titles = audit_presets.titles()
    pairs = pairs_of_log(job.query)
    is_open = job.state in audit_jobs.OPEN
    return {
        "pk": job.pk,
        "url": reverse("audit-job", args=[job.pk]),
        "form": FORM_NAMES.get(job.form, job.form),
        "filters": [(label_of(name), value_of(name, value, titles)) for name, value in pairs],
        "search": address_of(pairs),
        "is_forgotten": audit_jobs.is_forgotten(job, clock.now),
        "state": job.state,
        "is_open": is_open,
        "is_late": is_open and audit_jobs.age_of(job, clock.now) > audit_jobs.LOST_AFTER,
        "done": job.done,
        "total": job.total,
        "done_text": f"{job.done:,}",
        "total_text": f"{job.total:,}",
        "percent": job.done * 100 // job.total if job.total else 0,
        "size": _size(job.byte_count),
        "problem": job.problem,
        "is_erased": job.state == "expired" and job.problem == audit_jobs.ERASED,
        "asked": clock.at(job.created_at),
        "ended": clock.at(job.ended_at),
        "expires": clock.at(job.expires_at),
    }


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return _("%(count)d bytes") % {"count": count}
