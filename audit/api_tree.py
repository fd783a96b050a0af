"""The door to the tree: one event's proof, the checkpoint, the verifier key, tiles, verification."""

import json

from django.db import transaction
from django.http import HttpRequest, HttpResponse

from audit.api import for_auditors, parse_id, reader_of
from audit.kinds import Kind
from audit.problems import refuse, refuse_for_now
from audit.proofs import NotSequencedError, prove_event, read_checkpoint, read_tile
from audit.recording import Payload, record
from audit.signing import KeyMissing, read_verifier
from audit.tiles import TilePath
from audit.verification import AlreadyVerifyingError, verify_log


@for_auditors
def show_proof(request: HttpRequest, event_id: str) -> HttpResponse:
    """The event's `.tlog-proof` under the newest checkpoint; recorded as audit.read."""
    asked = parse_id(event_id)
    if asked is None:
        return refuse(request, "not-found", "No event has this id.")
    try:
        proof = prove_event(asked)
    except NotSequencedError as error:
        return refuse_for_now(request, f"{error} Ask again in a few seconds.")
    if proof is None:
        return refuse(request, "not-found", "No event has this id.")
    _record_read(request, {"proof_of": str(asked)})
    return _text(proof, f"{asked}.tlog-proof")


@for_auditors
def show_checkpoint(request: HttpRequest) -> HttpResponse:
    """The newest signed checkpoint, with its cosignatures (a signed note)."""
    checkpoint = read_checkpoint()
    if checkpoint is None:
        return refuse_for_now(request, "No checkpoint was signed yet. Ask again in a few seconds.")
    return _text(checkpoint.note)


@for_auditors
def show_key(request: HttpRequest) -> HttpResponse:
    """The key that checkpoints are verified with. Pin it: a key that came with what it verifies proves little."""
    try:
        return _text(f"{read_verifier()}\n")
    except KeyMissing as missing:
        return refuse(request, "unavailable", str(missing))


@for_auditors
def show_tile(request: HttpRequest, path: str) -> HttpResponse:
    """A tile of hashes, or of leaves (`entries`, recorded as audit.read): c2sp.org/tlog-tiles."""
    asked = TilePath.parse(path)
    content = None if asked is None else read_tile(asked)
    if asked is None or content is None:
        return refuse(request, "not-found", "The tree of the newest checkpoint has no such tile.")
    if asked.level is None:
        _record_read(request, {"tile": str(asked)})
    return HttpResponse(content, content_type="application/octet-stream", headers={"Cache-Control": "no-store"})


@for_auditors
def verify(request: HttpRequest) -> HttpResponse:
    """Verifies the whole log now: 200 whatever it finds, with `whole`, and the first bad index on damage."""
    try:
        report = verify_log(actor=reader_of(request), via="api")
    except (KeyMissing, AlreadyVerifyingError) as refused:
        return refuse(request, "unavailable", str(refused))
    text = json.dumps(report.as_data())
    return HttpResponse(text, content_type="application/json", headers={"Cache-Control": "no-store"})


def _record_read(request: HttpRequest, data: dict[str, Payload]) -> None:
    with transaction.atomic():
        record(Kind.AUDIT_READ, actor=reader_of(request), data={"via": "api", **data})


def _text(text: str, name: str | None = None) -> HttpResponse:
    response = HttpResponse(text, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})
    if name is not None:
        response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
