"""The door for exports and evidence packs."""

import tempfile
from functools import partial

from django.http import FileResponse, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from audit.api import for_auditors, reader_of
from audit.evidence import write_pack
from audit.export import CONTENT_TYPES, FORMATS, Export, begin_export, parse_export
from audit.filters import FilterError
from audit.problems import refuse


@partial(for_auditors, methods=("GET",))  # a HEAD would record an export that nobody got
def export(request: HttpRequest) -> HttpResponseBase:
    """Everything that matches, streamed, recorded before the first byte. An unknown filter, form or value is 400."""
    if not request.user.has_perm("audit.export_event"):
        return refuse(request, "forbidden", "Exporting the log takes the role of auditor.")
    try:
        form, asked = parse_export(request.GET.lists(), forms=(*FORMATS, "evidence"))
        begun = begin_export(asked, actor=reader_of(request), via="api", form=form)
        if form == "evidence":
            return _pack(begun)
    except FilterError as error:
        return refuse(request, "malformed", str(error))
    response = StreamingHttpResponse(begun.stream(), content_type=CONTENT_TYPES[form])
    return _named(response, "jsonl" if form == "ocsf" else form)


def _pack(begun: Export) -> HttpResponseBase:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the response
    try:
        write_pack(begun, file)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return _named(FileResponse(file, content_type="application/zip"), "zip")


def _named(response: HttpResponseBase, ending: str) -> HttpResponseBase:
    response["Content-Disposition"] = f'attachment; filename="audit-events.{ending}"'
    response["Cache-Control"] = "no-store"
    return response
