"""Parts of a page that its browser asks for by itself: answered with nothing while they are as they were."""

import hashlib
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render


def show_part(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """The part, named by its content (ETag); 304 without a body to whoever has it already."""
    response = render(request, template, context)
    tag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    if request.headers.get("If-None-Match") == tag:
        response = HttpResponseNotModified()
    response["ETag"] = tag
    return response
