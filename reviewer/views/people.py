"""People, for admins: who they are, what they may do, and what lets them in."""

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from reviewer import people as registry
from reviewer.access import actor_of
from reviewer.admin_forms import NewPersonForm, RolesForm, TypedNameForm, chosen_plans
from reviewer.models import Person
from reviewer.moments import Clock
from reviewer.people import PersonError
from reviewer.said import in_words
from reviewer.views import PersonRequest, clock_for
from reviewer.views.admin import Outcome, Secret, admin_page, sent, show_admin
from reviewer.words import Badge

PAGE = 100


@admin_page
def people(request: HttpRequest) -> HttpResponse:
    """The list; a POST makes a person, and answers with their page and their first password, this once."""
    request = cast(PersonRequest, request)
    form = NewPersonForm(sent(request, "create"), prefix_of_ids="new-", initial={"roles": ["reviewer"]})
    if form.is_bound and form.is_valid():
        try:
            made, password = registry.create_person(by=actor_of(request.user), **form.cleaned_data)
        except PersonError as error:
            form.refuse(error, "email")
        else:
            done = Outcome(_("The person is made"), _hand_over(), secrets=(_password(password),))
            return _person_page(request, made.pk, done, status=201)
    after = request.GET.get("after", "")
    rows = list(Person.objects.filter(email__gt=after).order_by("email")[: PAGE + 1])
    clock = clock_for(request.user)
    context = {
        "form": form,
        "people": [_row(person, request.user, clock) for person in rows[:PAGE]],
        "more": f"{reverse('people')}?after={rows[PAGE - 1].email}" if len(rows) > PAGE else "",
    }
    return show_admin(request, "reviewer/people.html", context, section="people", status=422 if form.errors else 200)


@admin_page
def person(request: HttpRequest, pk: int) -> HttpResponse:
    """One person; a POST does what its `do` names, and answers with the page as it is then."""
    request = cast(PersonRequest, request)
    found = Person.objects.filter(pk=pk).first()
    if found is None:
        raise Http404
    forms = _forms(request, found)
    do, done, status = request.POST.get("do", ""), None, 200
    try:
        if do not in forms or forms[do].is_valid():
            done = _change(request, found, do, forms.get(do))
    except PersonError as error:
        done, status = Outcome(_("Nothing was changed"), in_words(error.args[0]), "warn", "warn"), 409
    failed = next((form for form in forms.values() if form.is_bound and form.errors), None)
    return _person_page(request, pk, done, forms=forms if failed else None, status=422 if failed else status)


def _forms(request: HttpRequest, found: Person, *, is_sent: bool = True) -> dict[str, Any]:
    def data(do: str) -> Any:
        return sent(request, do) if is_sent else None

    held = [role for role in Person.ROLES if getattr(found, f"is_{role}")]
    return {
        "roles": RolesForm(data("roles"), initial={"roles": held}, prefix_of_ids="may-"),
        "disable": TypedNameForm(data("disable"), name=found.email, prefix_of_ids="end-"),
    }


def _change(request: PersonRequest, found: Person, do: str, form: Any) -> Outcome | None:
    """Carry out what was pressed. Raises `PersonError`."""
    by, email = actor_of(request.user), found.email
    match do:
        case "roles":
            registry.set_roles(email=email, roles=form.cleaned_data["roles"], by=by)
            return Outcome(_("The roles are changed"), _("They count from the person's next request on."))
        case "password":
            _person, password = registry.make_password(email=email, by=by)
            return Outcome(_("A new password is made"), _hand_over(), secrets=(_password(password),))
        case "token":
            _person, token = registry.create_token(email=email, by=by)
            secret = Secret("token", _("Token for the audit API"), token, _("Sent as: Authorization: Bearer …"))
            return Outcome(_("A token is made"), _("Copy it now: only its hash is kept."), secrets=(secret,))
        case "revoke":
            number = next(iter(chosen_plans([request.POST.get("number", "")])), 0)
            registry.revoke_token(email=email, number=number, by=by)
            return Outcome(_("The token is revoked"), _("It opens nothing any more."))
        case "disable":
            registry.disable_person(email=email, by=by)
            return Outcome(_("The person is disabled"), _("Sessions, tokens and sign-in have ended. History stays."))
    return None


def _hand_over() -> str:
    return _("Hand it over safely: it is shown this once, and only its hash is kept.")


def _password(password: str) -> Secret:
    return Secret("password", _("Password"), password)


def _person_page(
    request: PersonRequest,
    pk: int,
    done: Outcome | None,
    *,
    forms: dict[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    found = Person.objects.get(pk=pk)
    if found.pk == request.user.pk:
        request.user.refresh_from_db()
    clock = clock_for(request.user)
    forms = forms or _forms(request, found, is_sent=False)
    tokens = [
        {"number": token.pk, "made": clock.at(token.created_at), "used": clock.at(token.used_at),
         "revoked": clock.at(token.revoked_at)}
        for token in found.tokens.order_by("-pk")[:50]
    ]  # fmt: skip
    context = {
        **_row(found, request.user, clock),
        "tokens": tokens,
        "agents": list(found.agents.order_by("name")[:100]),
        "forms": forms,
        "form": next((form for form in forms.values() if form.is_bound and form.errors), None),
        "done": done,
    }
    return show_admin(request, "reviewer/person.html", context, section="people", status=status)


def _row(found: Person, viewer: Person, clock: Clock) -> dict[str, Any]:
    names = {"reviewer": _("Reviewer"), "auditor": _("Auditor"), "admin": _("Admin")}
    return {
        "one": found,
        "url": reverse("person", args=[found.pk]),
        "badge": Badge("ok", "check", _("Active")) if found.is_active else Badge("mute", "x", _("Disabled")),
        "roles": [names[role] for role in Person.ROLES if getattr(found, f"is_{role}")],
        "is_you": found.pk == viewer.pk,
        "created": clock.at(found.created_at),
        "last_login": clock.at(found.last_login),
    }
