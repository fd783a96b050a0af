"""Roles, people's tokens, and the addresses that redirects lead to."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.http import HttpResponse
from django.test import RequestFactory

from audit.models import Event
from reviewer import people
from reviewer.access import find_person_by_token, is_page_here, requires_role
from reviewer.middleware import PeerAddressMiddleware
from reviewer.models import Person, PersonToken


def visit(user, *roles, method="get", **headers):
    request = getattr(RequestFactory(SERVER_NAME="localhost"), method)("/history/?kind=x", headers=headers)
    request.user = user
    return requires_role(*roles)(lambda _: HttpResponse("in"))(request)


@pytest.mark.parametrize(
    ("role", "permissions"),
    [
        ("reviewer", {"plans.view_plan", "plans.decide_plan"}),
        ("auditor", {"plans.view_plan", "audit.view_event", "audit.export_event"}),
        ("admin", {"plans.view_plan", "plans.manage_agents", "plans.manage_targets", "reviewer.manage_people"}),
    ],
)
def test_a_role_is_exactly_its_permissions(make_person, role, permissions):
    person = make_person(role)
    every = {"plans.view_plan", "plans.decide_plan", "audit.view_event", "audit.export_event"}
    every |= {"plans.manage_agents", "plans.manage_targets", "reviewer.manage_people", "audit.delete_event"}
    assert {permission for permission in every if person.has_perm(permission)} == permissions


def test_a_disabled_person_has_no_role_and_no_permission(make_person):
    person = make_person("reviewer", "admin")
    person.is_active = False
    assert person.roles == ()
    assert not person.has_perm("plans.view_plan")


def test_people_with_the_role_are_let_in_and_others_are_refused(make_person):
    assert visit(make_person("auditor"), "auditor", "admin").content == b"in"
    with pytest.raises(PermissionDenied, match="role auditor or admin"):
        visit(make_person("reviewer"), "auditor", "admin")


def test_a_role_that_does_not_exist_is_a_mistake_in_the_code():
    with pytest.raises(ValueError, match="owner"):
        requires_role("owner")


def test_v99_strangers_are_sent_to_the_sign_in_page_and_back():
    assert visit(AnonymousUser(), "reviewer")["Location"] == "/login/?next=%2Fhistory%2F%3Fkind%3Dx"
    answer = visit(
        AnonymousUser(), "reviewer", **{"HX-Request": "true", "HX-Current-URL": "http://localhost/plans/a/b/c/"}
    )
    assert answer.headers["HX-Redirect"] == "/login/?next=%2Fplans%2Fa%2Fb%2Fc%2F"


def test_v100_after_a_post_the_way_back_is_the_page_not_the_action():
    answer = visit(AnonymousUser(), "reviewer", method="post", Referer="http://localhost/plans/a/b/c/")
    assert answer["Location"] == "/login/?next=%2Fplans%2Fa%2Fb%2Fc%2F"
    answer = visit(AnonymousUser(), "reviewer", method="post", Referer="http://evil.example/plans/")
    assert answer["Location"] == "/login/"


@pytest.mark.parametrize(
    "url", ["", None, "x", "//e", "/\\e", "/\te", "https:e", "javascript:alert(1)", "/\x00", "/ x"]
)
def test_a136_what_is_not_a_page_here(url):
    assert not is_page_here(url)


@pytest.mark.parametrize("url", ["/", "/plans/a/b/c/", "/history/?q=a%20b&next=//e"])
def test_a136_what_is_a_page_here(url):
    assert is_page_here(url)


def test_a_token_opens_until_it_is_revoked(database):
    people.create_person(email="aud@example.com", roles=["auditor"])
    person, token = people.create_token(email="aud@example.com")
    assert find_person_by_token(token) == person
    assert token.encode() not in bytes(PersonToken.objects.get().token_hash)
    PersonToken.objects.get().refresh_from_db()
    assert PersonToken.objects.get().used_at is not None
    people.disable_person(email="aud@example.com")
    assert find_person_by_token(token) is None
    assert find_person_by_token(token + "x") is None
    assert find_person_by_token("") is None


def test_a_token_needs_an_auditor(make_person):
    make_person("reviewer", email="ada@example.com")
    with pytest.raises(people.PersonError, match="is not an active auditor"):
        people.create_token(email="ada@example.com")


def test_changes_of_people_are_events_without_secrets(database):
    _, password = people.create_person(email="Ada@Example.com", roles=["reviewer"])
    people.set_roles(email="ada@example.com", roles=["auditor"])
    people.set_roles(email="ada@example.com", roles=["auditor"])
    people.set_password(email="ada@example.com", password="quite another one")
    _, token = people.create_token(email="ada@example.com")
    people.disable_person(email="ada@example.com")
    people.disable_person(email="ada@example.com")
    assert list(Event.objects.values_list("kind", flat=True)) == ["person.changed"] * 5
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(p::text, ' ') FROM audit_payload p")
        told = cursor.fetchone()[0]
    for secret in (password, "quite another one", token):
        assert secret not in told


def test_a_new_password_ends_sessions(make_person):
    person = make_person("reviewer", email="ada@example.com")
    before = person.get_session_auth_hash()
    people.set_password(email="ada@example.com", password="quite another one")
    person.refresh_from_db()
    assert person.get_session_auth_hash() != before


@pytest.mark.parametrize(
    ("email", "roles", "password", "sentence"),
    [
        ("not an address", ["reviewer"], None, "is not an e-mail address"),
        ("a@example.com", [], None, "at least one role"),
        ("a@example.com", ["owner"], None, "no role 'owner'"),
        ("a@example.com", ["reviewer"], "short", "too short"),
    ],
)
def test_a_bad_person_is_refused_and_nothing_is_kept(database, email, roles, password, sentence):
    with pytest.raises(people.PersonError, match=sentence):
        people.create_person(email=email, roles=roles, password=password)
    assert not Person.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("reviewer_person_email_is_unique", {"email": "ada@example.com"}),
        ("reviewer_person_email_is_lower_case", {"email": "Bob@example.com"}),
        ("reviewer_person_theme_is_known", {"email": "bob@example.com", "theme": "pink"}),
    ],
)
def test_the_database_keeps_people_in_order(make_person, constraint, change):
    make_person("reviewer", email="ada@example.com")
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Person.objects.create(**change)


def test_the_database_keeps_token_hashes_apart(make_person):
    person = make_person("auditor")
    PersonToken.objects.create(person=person, token_hash=b"x" * 32)
    with pytest.raises(IntegrityError, match="reviewer_person_token_hash_is_unique"), transaction.atomic():
        PersonToken.objects.create(person=person, token_hash=b"x" * 32)


def peer(settings_, remote, forwarded, trusted):
    settings_.TRUSTED_PROXIES = trusted
    seen = {}

    def view(request):
        seen.update(request.META)
        return HttpResponse()

    PeerAddressMiddleware(view)(RequestFactory().get("/", REMOTE_ADDR=remote, HTTP_X_FORWARDED_FOR=forwarded))
    return seen["REMOTE_ADDR"]


def test_l129_only_a_trusted_proxy_is_believed(settings):
    import ipaddress

    proxies = [ipaddress.ip_network("10.0.0.0/8")]
    assert peer(settings, "198.51.100.7", "203.0.113.9", []) == "198.51.100.7"
    assert peer(settings, "198.51.100.7", "203.0.113.9", proxies) == "198.51.100.7"
    assert peer(settings, "10.0.0.1", "203.0.113.9", proxies) == "203.0.113.9"
    assert peer(settings, "10.0.0.1", "203.0.113.9, 198.51.100.1, 10.0.0.2", proxies) == "198.51.100.1"
    assert peer(settings, "10.0.0.1", "203.0.113.9, rubbish", proxies) == "10.0.0.1"
