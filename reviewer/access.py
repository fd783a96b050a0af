"""Who may do what: signing in, roles as permissions, people's tokens, and the events of both."""

import hashlib
import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Concatenate
from urllib.parse import urlencode, urlsplit

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy
from django_htmx.http import HttpResponseClientRedirect

from audit.kinds import Kind
from audit.recording import Actor, record, record_capped
from reviewer import idle
from reviewer.models import Person, PersonToken

TOKEN_PREFIX = "pdp_"  # noqa: S105
AUDIT_API = "/api/v1/audit/"
ROLE_PERMISSIONS: dict[str, frozenset[str]] = {
    "reviewer": frozenset({"plans.view_plan", "plans.decide_plan"}),
    "auditor": frozenset({"plans.view_plan", "audit.view_event", "audit.export_event"}),
    "admin": frozenset({"plans.view_plan", "plans.manage_agents", "plans.manage_targets", "reviewer.manage_people"}),
}
# Spent on unknown addresses too, so that the time of an answer does not tell who has an account.
_NOBODYS_PASSWORD = make_password(secrets.token_urlsafe(16))

View = Callable[Concatenate[HttpRequest, ...], HttpResponseBase]


def actor_of(person: Person) -> Actor:
    """The person as an event names them."""
    return Actor("person", str(person.pk), str(person))


class PersonBackend:
    """E-mail and password; permissions follow from roles alone, read with the person at every request."""

    def authenticate(
        self, request: HttpRequest | None, email: str | None = None, password: str | None = None, **_: Any
    ) -> Person | None:
        """The active person of this address and password, else None; takes equally long for unknown addresses."""
        if not email or not password:
            return None
        person = Person.objects.filter(email=email.strip().lower()).first()
        if person is None:
            check_password(password, _NOBODYS_PASSWORD)
            return None
        return person if person.check_password(password) and person.is_active else None

    def get_user(self, user_id: int) -> Person | None:
        return Person.objects.filter(pk=user_id, is_active=True).first()

    def get_all_permissions(self, user: Any, obj: Any = None) -> set[str]:
        if not isinstance(user, Person):
            return set()
        return {permission for role in user.roles for permission in ROLE_PERMISSIONS[role]}

    def has_perm(self, user: Any, perm: str, obj: Any = None) -> bool:
        return perm in self.get_all_permissions(user)


class SignInAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """allauth, closed for signing up, with our notion of a client's address and of a safe way back."""

    error_messages: ClassVar[dict[str, Any]] = {
        **DefaultAccountAdapter.error_messages,
        "email_password_mismatch": gettext_lazy("The e-mail address or the password is wrong."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return str(request.META.get("REMOTE_ADDR") or "unknown")

    def is_safe_url(self, url: str) -> bool:
        return is_page_here(url)

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Says nothing: where somebody is after signing in or out shows that it worked."""


def is_page_here(url: str | None) -> bool:
    """Whether `url` is a path on this site: no scheme, no host, no way of a browser to read one into it."""
    if not url or not url.startswith("/") or "\\" in url or any(ord(character) <= 0x20 for character in url):
        return False
    return url_has_allowed_host_and_scheme(url, allowed_hosts=None)


def sign_in_url(request: HttpRequest) -> str:
    """The sign-in page, coming back to the page the person looks at; never to an address that only takes POST."""
    current = request.headers.get("HX-Current-URL") or request.headers.get("Referer") or ""
    if request.method == "GET" and "HX-Request" not in request.headers:
        back = request.get_full_path()
    else:
        parts = urlsplit(current)
        back = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if parts.netloc != request.get_host():
            back = "/"
    login = resolve_url(settings.LOGIN_URL)
    return f"{login}?{urlencode({'next': back})}" if is_page_here(back) and back != "/" else login


def ask_to_sign_in(request: HttpRequest) -> HttpResponseBase:
    """A redirect to the sign-in page, as a whole page for htmx too."""
    url = sign_in_url(request)
    return HttpResponseClientRedirect(url) if request.headers.get("HX-Request") == "true" else redirect(url)


def requires_role(*roles: str) -> Callable[[View], View]:
    """Lets in people who hold one of `roles`; others are asked to sign in, or refused with 403."""
    unknown = set(roles) - set(Person.ROLES)
    if unknown:
        raise ValueError(f"no such role: {sorted(unknown)}")

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return ask_to_sign_in(request)
            if not set(roles) & set(request.user.roles):
                raise PermissionDenied(f"This page is for people with the role {' or '.join(roles)}.")
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def requires_sign_in(view: View) -> View:
    """Lets in everybody who is signed in, whatever their role."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return view(request, *args, **kwargs) if request.user.is_authenticated else ask_to_sign_in(request)

    return guarded


def hash_token(token: str) -> bytes:
    """SHA-256: the token has 256 random bits, so there is nothing to slow down a guess of."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def find_person_by_token(token: str) -> Person | None:
    """The active owner of a live token, whose last use is noted at most once a minute."""
    if not token.startswith(TOKEN_PREFIX):
        return None
    found = (
        PersonToken.objects.select_related("person")
        .filter(token_hash=hash_token(token), revoked_at=None, person__is_active=True)
        .first()
    )
    if found is None:
        return None
    stale = Q(used_at=None) | Q(used_at__lt=Now() - settings.TOKEN_USE_NOTED_EVERY)
    PersonToken.objects.filter(stale, pk=found.pk).update(used_at=Now())
    return found.person


class PersonTokenMiddleware:
    """Under /api/v1/audit/ a person is who their bearer token says, and nobody without one: cookies do not count."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(AUDIT_API):
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            person = find_person_by_token(token.strip()) if scheme.lower() == "bearer" else None
            request.user = person or AnonymousUser()
        return self.get_response(request)


@transaction.atomic(durable=True)
def record_sign_in(person: Person, address: str) -> None:
    record(Kind.LOGIN_SUCCEEDED, actor=actor_of(person), data={"address": address})


@transaction.atomic(durable=True)
def record_failed_sign_in(email: str, address: str) -> None:
    """A failure, under the address typed: no password, and no word on whether there is such a person."""
    record_capped(
        Kind.LOGIN_FAILED,
        bucket=address,
        actor=Actor("system", "sign-in", "Sign-in"),
        data={"address": address, "email": email[:254]},
    )


def _on_signed_in(sender: Any, request: HttpRequest, user: Person, **_: Any) -> None:
    idle.start(request.session)
    record_sign_in(user, _address(request))


def _on_sign_in_failed(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    record_failed_sign_in(str(credentials.get("email", "")), _address(request))


def _address(request: HttpRequest | None) -> str:
    return str(request.META.get("REMOTE_ADDR") or "unknown") if request is not None else "command line"


def connect() -> None:
    """Hooks the events of signing in into Django's signals. May be repeated."""
    user_logged_in.connect(_on_signed_in, dispatch_uid="reviewer.access.signed_in")
    user_login_failed.connect(_on_sign_in_failed, dispatch_uid="reviewer.access.sign_in_failed")
