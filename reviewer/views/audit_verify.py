"""Verification from the page: what is proven, against which checkpoint and witness, what is not, what is damaged."""

import json
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from audit.notes import NoteError, Verifier
from audit.proofs import count_pending, read_checkpoint, read_cosigned, read_size
from audit.signing import KeyMissing, read_verifier
from reviewer import audit_jobs
from reviewer.access import requires_role
from reviewer.models import AuditJob
from reviewer.moments import Clock, short
from reviewer.views import PersonRequest, clock_for, show

SHORT = 5_000
"""Events that are verified at once; a longer log is verified by a worker."""
SHOWN = 20


@requires_role("auditor")
@require_http_methods(["GET", "HEAD", "POST"])
def verify(request: HttpRequest) -> HttpResponse:
    """The log's state and its verifications; POST verifies it, at once where it is short."""
    request = cast(PersonRequest, request)
    if request.method == "POST":
        is_short = read_size() + count_pending() <= SHORT
        job = (audit_jobs.verify_now if is_short else audit_jobs.ask_verification)(person=request.user)
        return redirect("audit-report", pk=job.pk)
    clock = clock_for(request.user)
    jobs = AuditJob.objects.filter(kind="verification").select_related("person").order_by("-created_at", "-pk")
    context = {
        "log": _log(clock),
        "witnesses": _witnesses(clock),
        "jobs": [_line(job, clock) for job in jobs[:SHOWN]],
    }
    return show(request, "reviewer/audit_verify.html", context, section="audit", clock=clock)


@requires_role("auditor")
@require_safe
def report(request: HttpRequest, pk: UUID) -> HttpResponse:
    """One verification: how far it has come, or what it found. Every auditor may read it."""
    request = cast(PersonRequest, request)
    job = AuditJob.objects.filter(pk=pk, kind="verification").select_related("person").first()
    if job is None:
        raise Http404
    clock = clock_for(request.user)
    context = {"job": _line(job, clock), "report": json.loads(job.closing) if job.closing else None}
    if request.htmx:
        response = show(request, "reviewer/_audit_report.html", context, section="audit", clock=clock)
        if job.state not in audit_jobs.OPEN:
            response.status_code = 286  # htmx stops polling
        return response
    return show(request, "reviewer/audit_report.html", context, section="audit", clock=clock)


def _line(job: AuditJob, clock: Clock) -> dict[str, Any]:
    told = json.loads(job.closing) if job.closing else {}
    is_open = job.state in audit_jobs.OPEN
    return {
        "pk": job.pk,
        "who": str(job.person),
        "state": job.state,
        "is_open": is_open,
        "is_late": is_open and audit_jobs.age_of(job, clock.now) > audit_jobs.LOST_AFTER,
        "is_whole": told.get("whole"),
        "first_bad_index": told.get("first_bad_index"),
        "size": (told.get("checkpoint") or {}).get("size"),
        "done": job.done,
        "total": job.total,
        "percent": job.done * 100 // job.total if job.total else 0,
        "done_text": f"{job.done:,}",
        "total_text": f"{job.total:,}",
        "problem": job.problem,
        "asked": clock.at(job.created_at),
        "ended": clock.at(job.ended_at),
        "took": short(job.ended_at - job.created_at) if job.ended_at else "",
    }


def _log(clock: Clock) -> dict[str, Any]:
    """The log as it stands: how long, what of it is signed, with which key."""
    checkpoint = read_checkpoint()
    size = read_size()
    try:
        key = str(read_verifier())
    except (KeyMissing, NoteError) as error:
        key, missing = "", str(error)
    else:
        missing = ""
    return {
        "size": f"{size:,}",
        "pending": count_pending(),
        "unsigned": size - (checkpoint.size if checkpoint else 0),
        "checkpoint": checkpoint,
        "root": checkpoint.root.hex() if checkpoint else "",
        "signed": clock.at(checkpoint.signed_at) if checkpoint else None,
        "key": key,
        "missing": missing,
    }


def _witnesses(clock: Clock) -> list[dict[str, Any]]:
    """Each configured witness, and the newest checkpoint that it cosigned."""
    lines = []
    for address, key in settings.AUDIT_WITNESSES:
        size, at = read_cosigned(key) or (None, None)
        lines.append({"name": _name(key), "address": address, "size": size, "at": clock.at(at)})
    return lines


def _name(key: str) -> str:
    try:
        return Verifier.parse(key).name
    except NoteError:
        return _("a key that cannot be read")
