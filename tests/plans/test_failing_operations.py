"""An operation whose own code raises: named to its agent by its error's class, logged so, and nothing of it stays."""

import json
from typing import Any

import msgspec
import pytest
from django.db import connection, transaction
from django.test import Client

from audit.models import Event
from plans import recheck
from plans.demo.models import Customer
from plans.demo.operations import AddressInputs, UpdateAddress
from plans.errors import CannotPlan
from plans.models import Plan
from plans.targets import operations
from plans.targets.operations import Action, OperationFailed
from reviewer.logs import LineFormatter
from tests.hosted_plans import make_billing_agent, plan_address
from tests.loops import call_apart
from tests.makers import MadeAgent, reread
from tests.plans.demo.makers import make_customer
from tests.plans.http import Answer, keep_to_the_rules
from tests.plans.mcp.over_http import headers_for, tool_call

pytestmark = pytest.mark.usefixtures("database")

SECRET = "secret detail"
OLD_ADDRESS = "12 Harbour Street, Cork"
INPUTS = {"customer_id": "77", "address": "1 New Road"}


@pytest.fixture
def agent() -> MadeAgent:
    make_customer("77", OLD_ADDRESS)
    return make_billing_agent()


def dry_run(agent: MadeAgent) -> Answer:
    """One over the real door, in this process, where the operation's code can be changed."""
    response = Client().post(
        "/api/v1/operations/address.update/dry-run",
        json.dumps({"task_id": "task-1", "inputs": INPUTS}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {agent.api_key}"},
    )
    return keep_to_the_rules(Answer(response.status_code, response.headers, response.content))


def nothing_is_left() -> bool:
    return not Plan.objects.exists() and Customer.objects.get(pk="77").address == OLD_ADDRESS


def said_in(caplog: Any) -> list[str]:
    """The lines of the log, once it is known that the secret is in none of them, nor in what they were made of."""
    assert SECRET not in caplog.text
    lines = [LineFormatter().format(record) for record in caplog.records]
    assert SECRET not in "".join(lines)
    return [record.getMessage() for record in caplog.records if record.name.startswith("plans")]


class Picky(msgspec.Struct, forbid_unknown_fields=True):
    customer_id: str
    address: str

    def __post_init__(self) -> None:
        raise KeyError(SECRET)


def fail(*_: Any, **__: Any) -> Any:
    raise KeyError(SECRET)


def fail_half_written(*_: Any, **__: Any) -> Any:
    Customer.objects.update(address="half written")
    raise KeyError(SECRET)


def fail_in_a_group(*_: Any, **__: Any) -> Any:
    raise ExceptionGroup(SECRET, [KeyError(SECRET)])


def ask_wrongly(*_: Any, **__: Any) -> Any:
    Customer.objects.update(address="half written")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT '{SECRET}'::int")


def break_with(code: str) -> Any:
    def run(*_: Any, **__: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION '{SECRET}' USING ERRCODE = '{code}'; END $$")

    return run


def pass_an_error_over(self: Any, inputs: Any, *, lock: bool) -> Any:
    try:
        ask_wrongly()
    except Exception:  # as careless code does: PostgreSQL has given up the transaction
        return {"customer/77": {"address": OLD_ADDRESS}}


def break_off_inside(self: Any, inputs: Any, *, lock: bool) -> Any:
    try:
        with transaction.atomic(savepoint=False):
            fail_half_written()
    except KeyError:  # as careless code does: Django has given up the transaction
        return {"customer/77": {"address": OLD_ADDRESS}}


def planning(**more: Any) -> Any:
    return lambda *_: [Action("update", "customer/77", **{"field": "address", "from_": "a", "to": "b", **more})]


FAILURES = {
    "inputs": ("Inputs", Picky, "KeyError"),
    "read": ("read", fail, "KeyError"),
    "half-written": ("read", fail_half_written, "KeyError"),
    "group": ("read", fail_in_a_group, "ExceptionGroup"),
    "no-state": ("read", lambda *_, **__: None, "AttributeError"),
    "surrogate": ("read", lambda *_, **__: {"customer/77": {"address": "\ud800"}}, "UnicodeEncodeError"),
    "too-large": ("read", lambda *_, **__: {"customer/77": {"address": 2**53}}, "FingerprintRefused"),
    "asks-wrongly": ("read", ask_wrongly, "InvalidTextRepresentation"),
    "passed-over": ("read", pass_an_error_over, "ValueError"),
    "broken-off": ("read", break_off_inside, "ValueError"),
    "serialization": ("read", break_with("40001"), "SerializationFailure"),
    "deadlock": ("read", break_with("40P01"), "DeadlockDetected"),
    "lock": ("read", break_with("55P03"), "LockNotAvailable"),
    "plan": ("plan", fail_half_written, "KeyError"),
    "nul": ("plan", planning(to="\0"), "StrictJsonError"),
    "no-word": ("plan", planning(field=""), "ValueError"),
    "approvals": ("approvals", fail_half_written, "KeyError"),
    "none": ("approvals", lambda *_: None, "ValueError"),
    "too-many": ("approvals", lambda *_: 2**15, "ValueError"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_an_operation_that_fails_is_named_in_the_answer_and_nothing_is_planned(agent, failure, monkeypatch, caplog):
    part, broken, name = FAILURES[failure]
    events = Event.objects.count()
    with monkeypatch.context() as patched:
        patched.setattr(UpdateAddress, part, broken)
        answer = dry_run(agent)
    problem = answer.is_problem(503, "unavailable", following="retry_same_key", plan_write="none")
    assert problem["detail"] == f"The operation address.update failed: {name}. Nothing was planned."
    assert SECRET not in answer.body.decode()
    assert nothing_is_left()
    assert Event.objects.count() == events
    assert said_in(caplog) == [f"hosted operation address.update failed with {name} when asked for a dry run"]
    assert dry_run(agent).status == 201, "the connection goes on"


def test_an_operation_that_says_no_is_told_in_its_words_and_what_it_wrote_is_undone(agent, monkeypatch, caplog):
    def refuse(*_: Any) -> Any:
        Customer.objects.update(address="half written")
        raise CannotPlan("This customer is blocked.")

    monkeypatch.setattr(UpdateAddress, "plan", refuse)
    assert dry_run(agent).is_problem(422, "cannot-plan")["detail"] == "This customer is blocked."
    assert nothing_is_left()
    assert said_in(caplog) == []


def lose_the_connection(*_: Any, **__: Any) -> Any:
    Customer.objects.update(address="half written")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def test_a_lost_connection_is_the_databases_failure_and_not_the_operations(agent, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(UpdateAddress, "read", lose_the_connection)
        answer = dry_run(agent)
    problem = answer.is_problem(503, "unavailable", following="retry_same_key", plan_write=None)
    assert problem["detail"] == "The desk can't reach its database. Try the same again."
    connection.close()
    assert nothing_is_left()
    assert not any("hosted operation" in line for line in said_in(caplog))
    assert dry_run(agent).status == 201


def test_what_a_model_is_told_names_the_operation_and_its_error_alone(agent, monkeypatch, caplog):
    monkeypatch.setattr(UpdateAddress, "read", fail)
    sent = tool_call("address_update_dry_run", {"inputs": INPUTS})
    headers = headers_for(sent, agent.api_key)
    answer = call_apart(
        lambda: Client().post("/mcp", json.dumps(sent), content_type="application/json", headers=headers)
    )
    told = answer.json()["result"]["structuredContent"]
    detail = "The operation address.update failed: KeyError. Nothing was planned."
    assert (told["outcome"], told["detail"]) == ("unavailable", detail)
    assert SECRET not in answer.content.decode()
    assert nothing_is_left()
    said_in(caplog)


def test_what_failed_is_not_kept_with_what_is_raised_instead():
    with pytest.raises(OperationFailed) as failed, operations.guarded("refund", "asked"):
        raise KeyError(SECRET)
    assert (failed.value.operation, failed.value.name) == ("refund", "KeyError")
    assert failed.value.__suppress_context__


def test_a_reading_that_fails_is_told_by_its_class_and_the_plan_stays(agent, monkeypatch, caplog):
    plan = plan_address(agent=agent.agent).plan
    monkeypatch.setattr(UpdateAddress, "read", fail)
    found = recheck.recheck_plan(reread(plan))
    assert (found.was_read, found.moved, found.sentence) == (False, (), "The operation failed: KeyError.")
    assert reread(plan).state == "pending"
    assert said_in(caplog) == ["hosted operation address.update failed with KeyError when its inputs were read again"]


def test_a_reading_of_inputs_that_the_operation_no_longer_takes_is_told_too(agent, monkeypatch):
    plan = plan_address(agent=agent.agent).plan
    monkeypatch.setattr(UpdateAddress, "Inputs", AddressInputs)
    assert recheck.recheck_plan(reread(plan)).was_read
    monkeypatch.setattr(UpdateAddress, "Inputs", msgspec.defstruct("Other", [("other", str)]))
    assert recheck.recheck_plan(reread(plan)).sentence == "The operation failed: ValidationError."


def test_a_reading_that_loses_the_connection_is_the_databases_failure(agent, monkeypatch, caplog):
    plan = reread(plan_address(agent=agent.agent).plan)
    monkeypatch.setattr(UpdateAddress, "read", lose_the_connection)
    with pytest.raises(operations.DatabaseError):
        recheck.recheck_plan(plan)
    connection.close()
    assert said_in(caplog) == []
