"""What a line of the log holds of an error: types, codes and places, and nothing of what it says."""

import asyncio
import logging
from pathlib import Path

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils.log import log_response

from plans.demo.models import Customer
from reviewer.logs import LineFormatter
from tests.loops import run_apart

SECRET = "secret detail"


def line_of(message="it failed", *args, error=None, name="plans") -> str:
    """The line of a record, once it is known to be one and to keep the secret."""
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    line = LineFormatter().format(logging.LogRecord(name, logging.ERROR, __file__, 1, message, args, exc_info))
    assert "\n" not in line
    assert SECRET not in line
    return line


def raised(work) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fail() -> None:
    raise KeyError(SECRET)


def fail_from_another() -> None:
    try:
        fail()
    except KeyError as error:
        raise ValueError(SECRET) from error


def fail_on_the_way_out() -> None:
    try:
        fail_from_another()
    except ValueError:
        raise RuntimeError(SECRET)  # noqa: B904 - what was under way is told too


def fail_and_hide() -> None:
    try:
        fail()
    except KeyError:
        raise ValueError(SECRET) from None


def test_an_error_is_its_type_and_its_place():
    line = line_of(error=raised(fail))
    assert ' message="it failed" error=KeyError traceback=' in line
    assert line.endswith(f'test_logs.py:{fail.__code__.co_firstlineno + 1}:fail"')


def test_causes_are_told_by_their_types_and_a_hidden_one_is_not():
    assert ' error="ValueError from KeyError" ' in line_of(error=raised(fail_from_another))
    assert ' error="RuntimeError from ValueError from KeyError" ' in line_of(error=raised(fail_on_the_way_out))
    assert " error=ValueError " in line_of(error=raised(fail_and_hide))


def test_causes_that_lead_to_each_other_have_an_end():
    first, second = KeyError(SECRET), ValueError(SECRET)
    first.__cause__, second.__cause__ = second, first
    assert line_of(error=first).count("KeyError from ValueError") == 2


def test_a_group_names_its_errors_and_where_the_first_of_them_was():
    group = raised(lambda: (_ for _ in ()).throw(ExceptionGroup(SECRET, [raised(fail), OSError(28, SECRET)])))
    line = line_of(error=group)
    assert ' error="ExceptionGroup(KeyError, OSError)" code=ENOSPC ' in line
    assert line.endswith(':fail"')


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)

    __repr__ = __str__


def test_an_error_that_cannot_say_anything_is_told_all_the_same():
    assert " error=Mute" in line_of(error=Mute())
    assert ' message="it failed: Mute" ' in line_of("it failed: %s", Mute(), error=Mute())


@pytest.mark.parametrize("given", [("%s (%r)", KeyError(SECRET), KeyError(SECRET)), (KeyError(SECRET),),
                                   ("%(first)s (%(first)r)", {"first": KeyError(SECRET)})])  # fmt: skip
def test_an_error_in_a_message_is_told_by_its_type(given):
    assert " message=KeyError" in line_of(*given).replace('"', "").replace("KeyError (KeyError)", "KeyError")


def test_other_values_in_a_message_are_told_as_ever():
    assert " message=\"2 of 'a'\"" in line_of("%d of %r", 2, "a")
    assert " message=100%" in line_of("100%")
    assert ' message="100% of a"' in line_of("100%% of %(one)s", {"one": "a"})


def test_an_error_of_the_system_is_told_by_its_code():
    assert " error=FileNotFoundError code=ENOENT " in line_of(error=raised(Path(f"/{SECRET}").read_text))
    for odd in (OSError(SECRET), OSError([], SECRET), OSError(99_999, SECRET)):
        assert "code=" not in line_of(error=odd)


def ask_wrongly() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT '{SECRET}'::int")


def break_a_constraint() -> None:
    Customer.objects.create(customer_id=SECRET, name="Ada", email="ada@example.com", address="1 Old Lane")
    Customer.objects.create(customer_id=SECRET, name="Ada", email="ada@example.com", address="1 Old Lane")


def test_an_error_of_the_database_is_told_by_its_code_and_its_constraint(database):
    line = line_of(error=raised(ask_wrongly))
    assert ' error="DataError from InvalidTextRepresentation" code=22P02 ' in line
    error = raised(break_a_constraint)
    assert SECRET in str(error)
    assert ' error="IntegrityError from UniqueViolation" code="23505 demo_customer_pkey" ' in line_of(error=error)


def test_a_database_that_is_not_there_is_told_without_a_code():
    for error in (DatabaseError(SECRET), psycopg.OperationalError(SECRET)):
        assert "code=" not in line_of(error=error)


def test_celery_and_its_clock_say_what_failed_and_not_why():
    given = {"name": "plans.sweep", "id": "1", "description": "raised unexpected", "exc": SECRET}
    error = raised(fail)
    line = line_of("Task %(name)s[%(id)s] %(description)s: %(exc)s", given, error=error, name="celery.app.trace")
    assert ' message="Task plans.sweep raised unexpected" error=KeyError traceback=' in line
    line = line_of("Message Error: %s\n%s", error, SECRET, error=error, name="celery.beat")
    assert line.endswith(' message="A periodic task could not be sent" error=KeyError')


def test_a_task_of_an_event_loop_that_nobody_asked_says_its_type_alone(caplog):
    async def main() -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "Task exception was never retrieved", "exception": raised(fail), "task": SECRET}
        )
        asyncio.get_running_loop().call_exception_handler({"message": "Task was destroyed", "task": SECRET})

    run_apart(main())
    lines = [LineFormatter().format(record) for record in caplog.records]
    assert SECRET not in "".join(lines)
    assert ' message="Task exception was never retrieved" error=KeyError ' in lines[0]
    assert lines[1].endswith(' message="Task was destroyed"')


def test_a_record_whose_error_is_gone_is_a_line():
    record = logging.LogRecord("plans", logging.ERROR, __file__, 1, "it failed", (), (None, None, None))
    assert LineFormatter().format(record).endswith(' message="it failed"')


@pytest.mark.parametrize(("status", "level"), [(503, "WARNING"), (500, "ERROR"), (502, "ERROR")])
def test_that_a_target_is_away_is_no_error_of_the_desk(caplog, status, level):
    request = RequestFactory().get("/plans/")
    with caplog.at_level(logging.INFO, logger="django.request"):
        log_response("%s: %s", "Away", request.path, response=HttpResponse(status=status), request=request)
    assert [record.levelname for record in caplog.records] == [level]
