"""A session ends when nobody has used it for SESSION_IDLE. What a page asks by itself is not use."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

SIGNED_IN_AT: Final = "signed_in_at"
USED_AT: Final = "used_at"
NOTED_EVERY: Final = 60.0
"""Seconds. A session is written at most this often, however fast its pages are opened."""


def start(session: SessionBase) -> None:
    """Note that somebody signed in just now."""
    session[SIGNED_IN_AT] = session[USED_AT] = time.time()


class IdleSessionMiddleware:
    """Ends a session that was left alone, and notes use; its end 12 hours after signing in stays where it was."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and SESSION_KEY in request.session:
            now = time.time()
            used_at = request.session.get(USED_AT)
            if used_at is not None and now - used_at > settings.SESSION_IDLE.total_seconds():
                request.session.flush()
                request.user = AnonymousUser()
            elif used_at is None or (now - used_at >= NOTED_EVERY and _is_by_hand(request)):
                _note(request.session, now)
        return self.get_response(request)


def _is_by_hand(request: HttpRequest) -> bool:
    """False for what pages ask by themselves: every swap that only reads, and the stream of hints."""
    if request.method not in ("GET", "HEAD"):
        return True
    return request.headers.get("HX-Request") != "true" and request.path_info != reverse("live")


def _note(session: SessionBase, now: float) -> None:
    """A session that is saved would live its whole age again, so its end is written as an instant."""
    session[USED_AT] = now
    since = session.setdefault(SIGNED_IN_AT, now)
    session.set_expiry(datetime.fromtimestamp(since + settings.SESSION_COOKIE_AGE, UTC))
