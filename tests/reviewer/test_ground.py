"""The ground that tests stand on."""

from django.db import connection

from reviewer.models import Person


def test_tests_run_as_the_restricted_role(database):
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)")
        assert cursor.fetchone() == ("plandesk", False)


def test_a_person_is_kept(make_person):
    make_person("reviewer")
    assert Person.objects.count() == 1


def test_the_next_test_finds_an_empty_database(database):
    assert Person.objects.count() == 0
