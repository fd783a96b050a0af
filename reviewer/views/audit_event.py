"""One event, its proof, its leaf, and the story of a plan; each reading is an event of its own."""

from typing import Any, cast
from uuid import UUID

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from audit.api import parse_id
from audit.kinds import Kind
from audit.notes import NoteError
from audit.proofs import NotSequencedError, prove_event, read_checkpoint, read_leaf
from audit.queries import get_event, read_event
from audit.recording import Payload, record
from audit.signing import KeyMissing, read_verifier
from audit.stories import tell_story
from reviewer.access import actor_of, requires_role
from reviewer.audit_rows import line_of
from reviewer.audit_story import stages_of
from reviewer.models import Person
from reviewer.rows import url_of
from reviewer.views import PersonRequest, clock_for, show


@requires_role("auditor")
@require_safe
def event(request: HttpRequest, event_id: str) -> HttpResponse:
    """One event with its record and what its proof is made of; recorded as audit.read."""
    request = cast(PersonRequest, request)
    asked = _parse(event_id)
    found = read_event(reader=actor_of(request.user), event_id=asked, via="page")
    if found is None:
        raise Http404
    clock = clock_for(request.user)
    leaf, salt = read_leaf(asked, found.at)
    checkpoint = read_checkpoint()
    context: dict[str, Any] = {
        "row": line_of(found, clock),
        "event": found,
        "leaf": leaf.decode(),
        "leaf_hash": found.leaf_hash.hex(),
        "salt": salt.hex() if salt is not None else "",
        "checkpoint": checkpoint,
        "note_lines": checkpoint.note.splitlines() if checkpoint else [],
        "signed": clock.at(checkpoint.signed_at) if checkpoint else None,
        "is_proven": checkpoint is not None and found.index is not None and found.index < checkpoint.size,
        "key": _key(),
    }
    return show(request, "reviewer/audit_event.html", context, section="audit", clock=clock)


@requires_role("auditor")
@require_safe
def proof(request: HttpRequest, event_id: str) -> HttpResponse:
    """The event's `.tlog-proof`, for anybody's program to check; recorded as audit.read."""
    request = cast(PersonRequest, request)
    asked = _parse(event_id)
    try:
        text = prove_event(asked)
    except NotSequencedError as error:
        clock = clock_for(request.user)
        context = {"sentence": f"{error} {_('Ask again in a few seconds.')}", "back": _event_url(asked)}
        return show(request, "reviewer/audit_wait.html", context, section="audit", clock=clock, status=503)
    if text is None:
        raise Http404
    _record_read(request.user, {"proof_of": str(asked)})
    return _file(text.encode(), f"{asked}.tlog-proof", "text/plain; charset=utf-8")


@requires_role("auditor")
@require_safe
def leaf(request: HttpRequest, event_id: str) -> HttpResponse:
    """The bytes that are hashed for the event's place in the tree; recorded as audit.read."""
    request = cast(PersonRequest, request)
    asked = _parse(event_id)
    found = get_event(asked)
    if found is None:
        raise Http404
    content, _salt = read_leaf(asked, found.at)
    _record_read(request.user, {"leaf_of": str(asked)})
    return _file(content, f"{asked}.leaf", "application/octet-stream")


@requires_role("auditor")
@require_safe
def key(request: HttpRequest) -> HttpResponse:
    """The key that checkpoints are verified with, as text."""
    text = _key()
    if not text:
        raise Http404
    return _file(f"{text}\n".encode(), "plandesk-log.key", "text/plain; charset=utf-8")


@requires_role("auditor")
@require_safe
def story(request: HttpRequest, agent: str, target: str, plan_id: str) -> HttpResponse:
    """A plan's story, stage by stage with its gaps; recorded as audit.read, once."""
    request = cast(PersonRequest, request)
    clock = clock_for(request.user)
    told = tell_story(agent=agent, target=target, plan_id=plan_id, now=clock.now)
    _record_read(
        request.user,
        {"story": {"agent": agent, "target": target, "plan_id": plan_id}, "found": told is not None},
    )
    if told is None:
        raise Http404
    first = told.events[0]
    context: dict[str, Any] = {
        "agent": agent,
        "target": target,
        "plan_id": plan_id,
        "operation": first.operation or "",
        "task_id": first.task_id or "",
        "stages": stages_of(told, clock),
        "events": [line_of(event, clock) for event in told.events],
        "missing": told.missing,
        "is_cut": told.is_cut,
        "erased": sum(event.is_erased for event in told.events),
        "plan_url": url_of(agent, target, plan_id),
    }
    return show(request, "reviewer/audit_story.html", context, section="audit", clock=clock)


def _parse(event_id: str) -> UUID:
    asked = parse_id(event_id)
    if asked is None:
        raise Http404
    return asked


def _event_url(event_id: UUID) -> str:
    return reverse("audit-event", args=[event_id])


def _key() -> str:
    try:
        return str(read_verifier())
    except (KeyMissing, NoteError):
        return ""


def _record_read(reader: Person, data: dict[str, Payload]) -> None:
    with transaction.atomic():
        record(Kind.AUDIT_READ, actor=actor_of(reader), data={"via": "page", **data})


def _file(content: bytes, name: str, content_type: str) -> HttpResponse:
    response = HttpResponse(content, content_type=content_type, headers={"Cache-Control": "no-store"})
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
