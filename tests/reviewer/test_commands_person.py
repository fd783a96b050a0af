"""`manage.py person`, in processes of its own."""

import json

import pytest

from reviewer.access import find_person_by_token
from reviewer.models import Person

pytestmark = pytest.mark.slow


def test_a_person_is_created_with_a_password_shown_once(manage):
    done = manage("person", "create", "Ada@Example.com", "--role", "reviewer", "--role", "admin", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    person = Person.objects.get()
    assert document == {
        "email": "ada@example.com",
        "name": "",
        "roles": ["reviewer", "admin"],
        "is_active": True,
        "password": document["password"],
    }
    assert person.check_password(document["password"])
    assert "password" not in manage("person", "roles", "ada@example.com", "--role", "auditor", "--json").stdout


def test_a_password_comes_from_standard_input_and_is_not_printed(manage):
    done = manage(
        "person", "create", "a@example.com", "--role", "admin", "--password-stdin", stdin="a long enough password\n"
    )
    assert done.returncode == 0, done.stderr
    assert "long enough" not in done.stdout + done.stderr
    assert Person.objects.get().check_password("a long enough password")


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (["create", "a@example.com", "--role", "owner"], None, "invalid choice"),
        (["create", "a@example.com"], None, "--role"),
        (["create", "a@example.com", "--role", "admin", "--password-stdin"], "", "no password on standard input"),
        (["create", "a@example.com", "--role", "admin", "--password-stdin"], "short\n", "too short"),
        (["disable", "nobody@example.com"], None, "There is no person nobody@example.com."),
        (["token", "nobody@example.com"], None, "There is no person nobody@example.com."),
    ],
)
def test_a_refusal_is_a_sentence_and_a_code(manage, arguments, stdin, sentence):
    done = manage("person", *arguments, stdin=stdin)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not Person.objects.exists()


def test_a_token_is_given_and_ends_with_the_person(manage, make_person):
    make_person("auditor", email="aud@example.com")
    token = manage("person", "token", "aud@example.com").stdout.strip()
    assert find_person_by_token(token) == Person.objects.get()
    assert json.loads(manage("person", "disable", "aud@example.com", "--json").stdout)["is_active"] is False
    assert find_person_by_token(token) is None
    assert Person.objects.count() == 1


@pytest.mark.parametrize("command", [["person"], ["person", "create"], ["up"], ["migrate"]])
def test_every_command_has_help(manage, command):
    done = manage(*command, "--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout
