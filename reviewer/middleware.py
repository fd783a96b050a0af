"""What every request and answer gets: an id, the peer's address, strict headers; error reports that show nothing."""

import ipaddress
import secrets
from collections.abc import Callable, ItemsView
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLResolver
from django.urls.resolvers import RegexPattern
from django.utils.cache import patch_vary_headers
from django.views.debug import SafeExceptionReporterFilter

from audit.context import set_request_id

Next = Callable[[HttpRequest], HttpResponse]

MACHINES: Final = ("/webhooks/", "/api/v1/")
PEOPLE: Final = "/api/v1/audit/"


class RequestIdMiddleware:
    """Names each request, for its events and log lines; the caller finds the name in `X-Request-Id`."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = "req_" + secrets.token_hex(12)
        set_request_id(name)
        try:
            response = self.get_response(request)
        finally:
            set_request_id(None)
        response["X-Request-Id"] = name
        return response


class PeerAddressMiddleware:
    """REMOTE_ADDR is who is connected, unless that is one of TRUSTED_PROXIES: then the last address it did not add."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        peer = request.META.get("REMOTE_ADDR", "")
        if _is_trusted(peer):
            request.META["REMOTE_ADDR"] = _told_by_proxies(request.META.get("HTTP_X_FORWARDED_FOR", "")) or peer
        else:
            request.META.pop("HTTP_X_FORWARDED_FOR", None)
            request.META.pop("HTTP_X_FORWARDED_PROTO", None)
        return self.get_response(request)


class PageHeadersMiddleware:
    """A Content-Security-Policy on everything; nothing is stored unless it says so; swaps and pages are kept apart."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", settings.CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Cache-Control", "no-store")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, ["HX-Request"])
        return response


class MachineDoorsMiddleware:
    """Takes machines to their doors past all that is for people: sessions, who is signed in, messages, swaps, files.

    The audit API is not among them: who asks there is a person. What no door has goes the way of every page.
    """

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response
        self.doors = URLResolver(RegexPattern(r"^/"), "plans.urls")

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        if not path.startswith(MACHINES) or path.startswith(PEOPLE):
            return self.get_response(request)
        try:
            found = self.doors.resolve(path)
        except Resolver404:
            return self.get_response(request)
        request.get_host()  # refuses a name that is not ours, as CommonMiddleware does
        request.resolver_match = found
        response: HttpResponse = found.func(request, *found.args, **found.kwargs)
        if not response.streaming and not response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))
        return response


class NothingShownFilter(SafeExceptionReporterFilter):
    """Error reports without the values of variables, settings, form fields, headers or environment."""

    def is_active(self, request: HttpRequest | None) -> bool:
        return True

    def get_traceback_frame_variables(self, request: HttpRequest | None, tb_frame: Any) -> ItemsView[str, Any]:
        return {}.items()

    def get_safe_settings(self) -> dict[str, Any]:
        return {}

    def get_safe_request_meta(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def get_safe_cookies(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def get_post_parameters(self, request: HttpRequest | None) -> dict[str, Any]:
        return {}


def _is_trusted(address: str) -> bool:
    if not settings.TRUSTED_PROXIES:
        return False
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in settings.TRUSTED_PROXIES)


def _told_by_proxies(header: str) -> str | None:
    for part in reversed(header.split(",")):
        try:
            address = str(ipaddress.ip_address(part.strip()))
        except ValueError:
            return None
        if not _is_trusted(address):
            return address
    return None
