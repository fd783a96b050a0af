"""People, for admins: made, given roles, passwords and tokens, and ended; each an event."""

import re

import pytest

from reviewer.access import find_person_by_token
from reviewer.models import Person
from tests.makers import make_person
from tests.reviewer.pages import admin_and_client, client_of, text_of, told_of

pytestmark = pytest.mark.usefixtures("database")


def code_in(answer, name: str) -> str:
    found = re.search(rf'<code id="{name}">([^<]+)</code>', answer.content.decode())
    assert found, text_of(answer)[:400]
    return found[1]


def test_a_person_is_made_with_a_password_shown_once():
    admin, client = admin_and_client()
    made = client.post("/people/", {"do": "create", "email": "New@Example.com", "name": "Nell", "roles": ["reviewer"]})
    assert made.status_code == 201
    person = Person.objects.get(email="new@example.com")
    assert person.roles == ("reviewer",)
    password = code_in(made, "password")
    assert person.check_password(password)
    assert password not in client.get(f"/people/{person.pk}/").content.decode()
    assert told_of("person.changed") == [(f"person:{admin.pk}", "created")]


@pytest.mark.parametrize(
    ("sent", "where", "sentence"),
    [
        ({"email": "nonsense"}, "new-email", "Enter a valid email address."),
        ({"email": "taken@example.com"}, "new-email", "There is already a person taken@example.com."),
        ({"roles": []}, "new-roles_0", "Choose at least one role."),
        ({"roles": ["owner"]}, "new-roles_0", "Select a valid choice"),
    ],
)
def test_a_mistake_is_said_and_makes_nobody(sent, where, sentence):
    _, client = admin_and_client()
    make_person("reviewer", email="taken@example.com")
    page = client.post("/people/", {"do": "create", "email": "a@example.com", "roles": ["reviewer"], **sent})
    assert page.status_code == 422
    assert f'<a href="#{where}">' in page.content.decode()
    assert f'id="{where}"' in page.content.decode()
    assert sentence in text_of(page)
    assert Person.objects.count() == 2


def test_roles_are_replaced_and_the_last_admin_stays_one():
    (admin, client), person = admin_and_client(), make_person("reviewer")
    client.post(f"/people/{person.pk}/", {"do": "roles", "roles": ["auditor", "admin"]})
    person.refresh_from_db()
    assert person.roles == ("auditor", "admin")
    client.post(f"/people/{person.pk}/", {"do": "roles", "roles": ["auditor"]})
    page = client.post(f"/people/{admin.pk}/", {"do": "roles", "roles": ["reviewer"]})
    assert page.status_code == 409
    assert "This is the only admin." in text_of(page)
    page = client.post(f"/people/{admin.pk}/", {"do": "disable", "typed": admin.email})
    assert page.status_code == 409
    admin.refresh_from_db()
    assert admin.roles == ("admin",)


def test_a_new_password_ends_the_persons_sessions():
    (_, client), person = admin_and_client(), make_person("reviewer")
    theirs = client_of(person)
    assert theirs.get("/").status_code == 200
    password = code_in(client.post(f"/people/{person.pk}/", {"do": "password"}), "password")
    assert theirs.get("/").status_code == 302
    person.refresh_from_db()
    assert person.check_password(password)


def test_a_token_is_shown_once_and_ends_by_a_press():
    (_, client), person = admin_and_client(), make_person("auditor")
    page = client.post(f"/people/{person.pk}/", {"do": "token"})
    token = code_in(page, "token")
    assert find_person_by_token(token) == person
    page = client.get(f"/people/{person.pk}/")
    assert token not in page.content.decode()
    number = re.search(r'name="number" value="(\d+)"', page.content.decode())[1]
    assert client.post(f"/people/{person.pk}/", {"do": "revoke", "number": "0"}).status_code == 409
    client.post(f"/people/{person.pk}/", {"do": "revoke", "number": number})
    assert find_person_by_token(token) is None
    assert [change for _, change in told_of("person.changed")] == ["token_created", "token_revoked"]


def test_no_token_for_who_is_no_auditor():
    (_, client), person = admin_and_client(), make_person("reviewer")
    page = client.post(f"/people/{person.pk}/", {"do": "token"})
    assert page.status_code == 409
    assert "is not an active auditor" in text_of(page)


def test_disabling_needs_the_address_typed_and_ends_everything():
    (_, client), person = admin_and_client(), make_person("auditor")
    token = code_in(client.post(f"/people/{person.pk}/", {"do": "token"}), "token")
    theirs = client_of(person)
    assert client.post(f"/people/{person.pk}/", {"do": "disable", "typed": "x"}).status_code == 422
    assert "The person is disabled" in text_of(
        client.post(f"/people/{person.pk}/", {"do": "disable", "typed": person.email})
    )
    assert theirs.get("/").status_code == 302
    assert find_person_by_token(token) is None
    assert client.post(f"/people/{person.pk}/", {"do": "password"}).status_code == 409
