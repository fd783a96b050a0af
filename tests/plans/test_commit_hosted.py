"""Hosted commits: one transaction that re-reads, writes, checks and records, or leaves nothing but its refusal."""

import threading
import time
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection

from audit.models import Event
from plans import answers
from plans.demo.models import REFUNDED, Customer, Invoice, Refund
from plans.demo.operations import RefundInvoice, UpdateAddress
from plans.errors import (
    ApprovalRequired,
    CannotPlan,
    DecisionRefused,
    FingerprintMismatch,
    FingerprintRequired,
    Invalid,
    KeyReused,
    NeverPlanned,
    PlanAbandoned,
    PlanConflicted,
    PlanExpired,
    PlanRefused,
    PlanRejected,
    StillCommitting,
    Unavailable,
)
from plans.locks import LockTimeout
from plans.models import Agent, Approval, Fence, IdempotencyKey, ObservedWrite, Target
from plans.review import reject_plan
from plans.schema import shown_digest
from plans.targets import operations
from plans.viewing import record_view
from tests.hosted_plans import NEW_ADDRESS, make_billing_agent, plan_address, plan_hosted, plan_refund
from tests.makers import events_of, make_person, reread
from tests.racing import at_once, holding, holding_plan, in_background, wait_for_waiter, wait_until

pytestmark = pytest.mark.usefixtures("database")

OLD_ADDRESS = "12 Harbour Street, Cork"
UNSENT = ["plan.received", "commit.started", "commit.unsent"]


def address_of(customer_id: str = "77") -> str:
    return Customer.objects.get(pk=customer_id).address


def nothing_was_written() -> bool:
    is_untouched = set(Customer.objects.values_list("address", flat=True)) <= {OLD_ADDRESS}
    return is_untouched and not Refund.objects.exists() and not Invoice.objects.exclude(refunded_cents=0).exists()


# --- applied --------------------------------------------------------------------------------------------------------


def test_an_agent_commits_what_needs_nobody_and_gets_the_stored_result_ever_after():
    hosted = plan_address()
    first = hosted.commit("key-1")
    assert (first.plan.state, first.is_replayed) == ("committed", False)
    assert address_of() == NEW_ADDRESS
    same_key, other_key = hosted.commit("key-1"), hosted.commit("key-2")
    assert same_key.is_replayed
    assert other_key.is_replayed
    bodies = {answers.committed(answer.plan) for answer in (first, same_key, other_key)}
    assert len(bodies) == 1
    assert b'"result":{"address":"1 New Road, Galway","customer_id":"77"}' in bodies.pop()
    assert events_of(hosted.plan) == [
        "plan.received",
        "commit.started",
        "commit.succeeded",
        "commit.replayed",
        "commit.replayed",
    ]
    done = reread(hosted.plan)
    assert done.token_sealed is None
    assert [attempt.outcome for attempt in done.commits.all()] == ["committed"]
    assert ObservedWrite.objects.get(plan=done).action_targets == ["customer/77"]


def test_a_reviewer_approves_and_it_is_written_in_the_same_call():
    hosted = plan_refund()
    assert hosted.approve().state == "committed"
    assert Invoice.objects.get().refunded_cents == 20_000
    assert Refund.objects.get().amount_cents == 20_000
    assert events_of(hosted.plan) == ["plan.received", "plan.approved", "commit.started", "commit.succeeded"]


def test_a_large_refund_waits_for_the_second_person():
    hosted = plan_refund(amount_cents=100_000, total_cents=100_000)
    assert hosted.approve().state == "pending"
    assert nothing_was_written()
    assert hosted.approve().state == "committed"
    assert Invoice.objects.get().status == REFUNDED
    assert events_of(hosted.plan) == [
        "plan.received",
        "plan.approved",
        "plan.approved",
        "commit.started",
        "commit.succeeded",
    ]


def test_an_agent_gets_the_result_of_what_a_person_approved():
    hosted = plan_refund()
    with pytest.raises(ApprovalRequired):
        hosted.commit("key-1")
    assert not IdempotencyKey.objects.exists()  # a missing approval binds nothing
    hosted.approve()
    assert hosted.commit("key-1").is_replayed
    assert events_of(hosted.plan)[-2:] == ["commit.succeeded", "commit.replayed"]


def test_what_moved_and_came_back_is_no_conflict():
    hosted = plan_address()
    Customer.objects.update(address="3 Quay, Kinsale")
    Customer.objects.update(address=OLD_ADDRESS, name="Another Name Ltd")
    assert hosted.commit().plan.state == "committed"


# --- conflict, field by field ---------------------------------------------------------------------------------------


def test_every_field_that_moved_is_named_with_its_planned_and_its_current_value():
    hosted = plan_refund(amount_cents=48_000)
    Invoice.objects.update(total_cents=50_000, refunded_cents=10)
    done = hosted.approve()
    assert done.state == "conflicted"
    rows = [(row.target, row.field, row.planned, row.current) for row in done.conflict.changes.order_by("position")]
    assert rows == [
        ("invoice/4412", "refunded_cents", "0", "10"),
        ("invoice/4412", "total_cents", "48000", "50000"),
    ]
    assert not Refund.objects.exists()
    assert Invoice.objects.get().refunded_cents == 10
    assert events_of(hosted.plan) == ["plan.received", "plan.approved", "commit.started", "commit.conflicted"]
    assert [attempt.outcome for attempt in done.commits.all()] == ["conflicted"]


def test_a_conflict_is_the_stored_answer_and_its_key_is_bound():
    hosted = plan_address()
    Customer.objects.update(address="3 Quay, Kinsale")
    for is_again in (False, True):
        with pytest.raises(PlanConflicted) as moved:
            hosted.commit("key-1")
        assert moved.value.members["changed"] == [
            {
                "target": "customer/77",
                "field": "address",
                "planned": moved.value.members["changed"][0]["planned"],
                "current": moved.value.members["changed"][0]["current"],
            }
        ]
        assert bytes(moved.value.members["changed"][0]["planned"]) == b'"12 Harbour Street, Cork"'
        assert bytes(moved.value.members["changed"][0]["current"]) == b'"3 Quay, Kinsale"'
        assert (moved.value.headers.get("Idempotent-Replayed") == "true") is is_again
    assert address_of() == "3 Quay, Kinsale"
    assert events_of(hosted.plan) == ["plan.received", "commit.started", "commit.conflicted"]


def test_a_record_that_went_away_is_a_conflict():
    hosted = plan_address()
    Customer.objects.all().delete()
    with pytest.raises(PlanConflicted):
        hosted.commit()
    [change] = reread(hosted.plan).conflict.changes.all()
    assert (change.target, change.field, change.planned, change.current) == ("customer/77", "exists", "true", "false")


@pytest.mark.parametrize(
    ("planned", "current"), [(1, True), (1, "1"), (0, False), (0, None), (False, None), ("", None), ([], {}), (1, 10)]
)
def test_values_that_look_alike_are_different_values(planned, current):
    for one, other in ((planned, current), (current, planned)):
        [change] = operations.changed_fields({"r": {"f": one}}, {"r": {"f": other}})
        assert change == {"target": "r", "field": "f", "planned": one, "current": other}
        assert operations.changed_fields({"r": {"f": one}}, {"r": {"f": one}}) == []


def test_a_field_that_the_record_gained_or_lost_moved():
    assert operations.changed_fields({"r": {"a": 1}}, {"r": {"b": 1}}) == [
        {"target": "r", "field": "a", "planned": 1, "current": None},
        {"target": "r", "field": "b", "planned": None, "current": 1},
    ]


def test_the_second_of_two_plans_on_one_record_conflicts_with_the_first():
    agents = make_billing_agent().agent, make_billing_agent().agent
    one = plan_address(address="1 First Street", agent=agents[0])
    other = plan_address(address="2 Second Street", agent=agents[1])
    assert one.commit().plan.state == "committed"
    with pytest.raises(PlanConflicted):
        other.commit()
    assert address_of() == "1 First Street"


# --- no, and failures -----------------------------------------------------------------------------------------------


def test_an_operation_that_says_no_while_it_applies_refuses_the_plan_and_writes_nothing(monkeypatch):
    def say_no(self, inputs, actions):
        Customer.objects.update(address="half written")
        raise CannotPlan("This customer is blocked.")

    monkeypatch.setattr(UpdateAddress, "apply", say_no)
    hosted = plan_address()
    for _ in range(2):
        with pytest.raises(PlanRefused, match="This customer is blocked"):
            hosted.commit()
    assert nothing_was_written()
    assert events_of(hosted.plan) == ["plan.received", "commit.started", "commit.refused"]
    assert reread(hosted.plan).refusal.reason == "This customer is blocked."


def lie_about_the_value(self, inputs, actions):
    Customer.objects.update(address="somewhere else")
    return {}


def do_nothing(self, inputs, actions):
    return {}


def delete_the_record(self, inputs, actions):
    Customer.objects.all().delete()
    return {}


def break_a_constraint(self, inputs, actions):
    Customer.objects.update(address="half written")
    Customer.objects.update(address=" ")


def raise_anything(self, inputs, actions):
    Customer.objects.update(address="half written")
    raise RuntimeError("secret detail of the operation")


def answer_a_float(self, inputs, actions):
    Customer.objects.update(address=NEW_ADDRESS)
    return {"rate": float("nan")}


@pytest.mark.parametrize(
    "apply",
    [lie_about_the_value, do_nothing, delete_the_record, break_a_constraint, raise_anything, answer_a_float],
    ids=lambda apply: apply.__name__,
)
def test_an_operation_that_breaks_leaves_the_plan_pending_and_nothing_written(monkeypatch, apply):
    hosted = plan_address()
    with monkeypatch.context() as broken:
        broken.setattr(UpdateAddress, "apply", apply)
        with pytest.raises(Unavailable) as failed:
            hosted.commit("key-1")
    assert (failed.value.status, failed.value.next, failed.value.plan_write) == (503, "retry_same_key", "none")
    assert failed.value.headers["Retry-After"]
    assert "secret detail" not in failed.value.detail
    assert nothing_was_written()
    assert events_of(hosted.plan) == UNSENT
    plan = reread(hosted.plan)
    assert (plan.state, plan.claimed_at, plan.token_sealed is None) == ("pending", None, False)
    [attempt] = plan.commits.all()
    assert (attempt.outcome, attempt.may_have_arrived) == ("unsent", False)
    assert not ObservedWrite.objects.exists()
    # The same key again, once the operation works: a real second attempt.
    assert hosted.commit("key-1").plan.state == "committed"
    assert events_of(hosted.plan) == [*UNSENT, "commit.started", "commit.succeeded"]


def test_an_operation_that_is_gone_says_so_and_leaves_the_plan_pending(monkeypatch):
    hosted = plan_refund()
    monkeypatch.delitem(operations._operations, hosted.plan.operation)
    with pytest.raises(DecisionRefused) as refused:
        hosted.approve()
    assert refused.value.code == "nothing-sent"
    assert "The operation is not registered any more." in str(refused.value)
    assert reread(hosted.plan).state == "pending"
    assert nothing_was_written()


def test_nothing_of_foreign_code_that_failed_reaches_the_log(monkeypatch, caplog):
    monkeypatch.setattr(UpdateAddress, "apply", raise_anything)
    with pytest.raises(Unavailable):
        plan_address().commit()
    assert "RuntimeError" in caplog.text
    assert "secret detail" not in caplog.text


def test_an_approval_that_wrote_nothing_is_void_and_the_same_person_may_approve_again(monkeypatch):
    hosted = plan_refund()
    person = make_person("reviewer")
    with monkeypatch.context() as broken:
        broken.setattr(RefundInvoice, "apply", raise_anything)
        with pytest.raises(DecisionRefused) as failed:
            hosted.approve(person)
    assert (failed.value.code, failed.value.status) == ("nothing-sent", 503)
    assert Approval.objects.get().void_reason == "unsent"
    assert nothing_was_written()
    assert events_of(hosted.plan) == ["plan.received", "plan.approved", "commit.started", "commit.unsent"]
    assert hosted.approve(person).state == "committed"
    assert events_of(hosted.plan)[4:] == ["plan.approved", "commit.started", "commit.succeeded"]


def test_an_operation_that_is_not_registered_any_more_writes_nothing(monkeypatch):
    hosted = plan_address()
    monkeypatch.setattr(operations, "_operations", {})
    with pytest.raises(Unavailable):
        hosted.commit()
    assert events_of(hosted.plan) == UNSENT


def test_a_connection_lost_in_the_middle_leaves_no_trace_and_the_same_key_works(monkeypatch):
    hosted = plan_address()

    def lose_the_connection(self, inputs, actions):
        Customer.objects.update(address="half written")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as broken:
        broken.setattr(UpdateAddress, "apply", lose_the_connection)
        with pytest.raises(DatabaseError):
            hosted.commit("key-1")
    connection.close()
    assert nothing_was_written()
    assert reread(hosted.plan).state == "pending"
    assert events_of(hosted.plan) == ["plan.received"]
    assert not IdempotencyKey.objects.exists()
    assert hosted.commit("key-1").plan.state == "committed"


# --- waiting --------------------------------------------------------------------------------------------------------


def test_a_deadlock_of_two_operations_undoes_one_which_commits_when_tried_again(monkeypatch):
    agent = make_billing_agent().agent
    plans = [plan_address(name, agent=agent) for name in ("77", "78")]
    both_have_written = threading.Barrier(2)
    apply = UpdateAddress.apply

    def crosswise(self, inputs, actions):
        result = apply(self, inputs, actions)
        both_have_written.wait(10)
        other = {"77": "78", "78": "77"}[inputs.customer_id]
        Customer.objects.filter(pk=other).update(name="Touched")
        return result

    with monkeypatch.context() as crossed:
        crossed.setattr(UpdateAddress, "apply", crosswise)
        results = at_once(*(lambda hosted=hosted: hosted.commit(f"key-{hosted.plan.pk}") for hosted in plans))
    lost = [place for place, result in enumerate(results) if isinstance(result, Unavailable)]
    assert len(lost) == 1, results
    won, loser = plans[1 - lost[0]], plans[lost[0]]
    assert events_of(won.plan) == ["plan.received", "commit.started", "commit.succeeded"]
    assert events_of(loser.plan) == UNSENT
    assert "Deadlock" in reread(loser.plan).commits.get().detail
    assert address_of(loser.plan.action_targets[0].partition("/")[2]) == OLD_ADDRESS
    assert loser.commit(f"key-{loser.plan.pk}").plan.state == "committed"
    assert address_of("77") == address_of("78") == NEW_ADDRESS


def test_rows_that_somebody_else_holds_too_long_send_nothing_and_leave_the_plan_pending(settings):
    settings.LOCK_WAIT = timedelta(milliseconds=200)
    address, refund = plan_address(), plan_refund()
    with holding("SELECT 1 FROM demo_customer FOR UPDATE"), pytest.raises(Unavailable) as busy:
        address.commit()
    assert busy.value.status == 503
    assert events_of(address.plan) == UNSENT
    with holding("SELECT 1 FROM demo_invoice FOR UPDATE"), pytest.raises(DecisionRefused) as decision:
        refund.approve()
    assert (decision.value.code, decision.value.status) == ("nothing-sent", 503)
    assert events_of(refund.plan) == ["plan.received", "plan.approved", "commit.started", "commit.unsent"]
    assert nothing_was_written()
    assert address.commit().plan.state == "committed"
    assert refund.approve().state == "committed"


def test_expiry_is_decided_after_the_rows_were_waited_for(settings):
    settings.PLAN_LIFETIME = timedelta(milliseconds=600)
    hosted = plan_address()
    with holding("SELECT 1 FROM demo_customer FOR UPDATE"):
        committing = in_background(hosted.commit)
        wait_for_waiter()
        time.sleep(0.7)
    with pytest.raises(PlanExpired) as expired:
        committing()
    assert expired.value.status == 410
    assert nothing_was_written()
    assert events_of(hosted.plan) == ["plan.received", "commit.started", "plan.expired", "plan.abandoned"]
    assert [attempt.outcome for attempt in reread(hosted.plan).commits.all()] == ["expired"]
    assert reread(hosted.plan).abandonment.reason == "expired"


def test_a_change_that_was_waited_for_is_seen():
    hosted = plan_address()
    with holding("UPDATE demo_customer SET address = '3 Quay, Kinsale'") as other:
        committing = in_background(hosted.commit)
        wait_for_waiter()
        other.commit()
    with pytest.raises(PlanConflicted):
        committing()
    assert address_of() == "3 Quay, Kinsale"


def test_who_finds_the_plan_held_by_somebody_else_stops_waiting_and_that_is_told(settings):
    settings.LOCK_WAIT = timedelta(milliseconds=200)
    hosted = plan_refund()
    person = make_person("reviewer")
    with holding_plan(hosted.plan.pk):
        started = time.monotonic()
        with pytest.raises(DecisionRefused) as busy:
            hosted.approve(person)
        assert (busy.value.code, busy.value.status) == ("busy", 409)
        with pytest.raises(DecisionRefused) as busy:
            reject_plan(plan_pk=hosted.plan.pk, person=person, seen_digest=shown_digest(hosted.plan), reason="No")
        assert busy.value.code == "busy"
        with pytest.raises(StillCommitting):
            hosted.commit()
        assert time.monotonic() - started < 5
        # Told at once, while the row is still held.
        assert Event.objects.filter(plan_id=hosted.plan.plan_id, kind="decision.refused").count() == 2
    assert not IdempotencyKey.objects.exists()
    assert not Approval.objects.exists()
    assert hosted.approve(person).state == "committed"


def test_opening_the_page_of_a_plan_that_is_being_written_does_not_wait():
    hosted = plan_refund()
    person = make_person("reviewer")
    with holding_plan(hosted.plan.pk):
        in_background(lambda: record_view(plan_pk=hosted.plan.pk, person=person))(5)
    assert Event.objects.filter(plan_id=hosted.plan.plan_id, kind="plan.viewed").count() == 1


def test_the_same_key_on_two_plans_at_once_binds_one_of_them_and_the_other_is_refused(monkeypatch):
    agent = make_billing_agent().agent
    one, other = plan_address("77", agent=agent), plan_address("78", agent=agent)
    is_writing, may_go_on = threading.Event(), threading.Event()
    apply = UpdateAddress.apply

    def slowly(self, inputs, actions):
        is_writing.set()
        assert may_go_on.wait(10)
        return apply(self, inputs, actions)

    monkeypatch.setattr(UpdateAddress, "apply", slowly)
    first = in_background(lambda: one.commit("key-1"))
    assert is_writing.wait(10)
    second = in_background(lambda: other.commit("key-1"))
    wait_for_waiter()
    may_go_on.set()
    assert first().plan.state == "committed"
    with pytest.raises(KeyReused) as reused:
        second()
    assert reused.value.members["bound_plan_id"] == one.plan.plan_id
    assert reread(other.plan).state == "pending"
    assert events_of(other.plan) == ["plan.received"]
    assert address_of("78") == OLD_ADDRESS
    assert Event.objects.filter(kind="commit.key_reused").count() == 1


def test_a_key_that_another_commit_holds_too_long_is_answered_503_and_not_as_under_way(monkeypatch, settings):
    settings.LOCK_WAIT = timedelta(milliseconds=200)
    agent = make_billing_agent().agent
    one, other = plan_address("77", agent=agent), plan_address("78", agent=agent)
    is_writing, may_go_on = threading.Event(), threading.Event()
    apply = UpdateAddress.apply

    def slowly(self, inputs, actions):
        is_writing.set()
        assert may_go_on.wait(10)
        return apply(self, inputs, actions)

    monkeypatch.setattr(UpdateAddress, "apply", slowly)
    first = in_background(lambda: one.commit("key-1"))
    assert is_writing.wait(10)
    try:
        with pytest.raises(LockTimeout):  # the door's 503; `StillCommitting` would be another plan's 202
            other.commit("key-1")
    finally:
        may_go_on.set()
        first()
    assert events_of(other.plan) == ["plan.received"]


# --- refusals at the door, none of which writes -----------------------------------------------------------------------


def test_what_is_refused_before_the_claim_leaves_the_plan_as_it_was_and_binds_nothing():
    hosted = plan_address()
    stranger = make_billing_agent().agent
    for changes, refusal in (
        ({"token": "pt_unknown"}, NeverPlanned),
        ({"fingerprint": None}, FingerprintRequired),
        ({"fingerprint": "  "}, FingerprintRequired),
        ({"fingerprint": "sha256:other"}, FingerprintMismatch),
        ({"plan_id": "plan_other"}, Invalid),
    ):
        with pytest.raises(refusal):
            hosted.commit("key-1", **changes)
    foreign = plan_address("78", agent=stranger)
    with pytest.raises(NeverPlanned):
        hosted.commit("key-1", token=foreign.token, fingerprint=foreign.plan.input_fingerprint)
    assert not IdempotencyKey.objects.exists()
    assert events_of(hosted.plan) == ["plan.received"]
    assert nothing_was_written()
    assert hosted.commit("key-1").plan.state == "committed"


def test_ended_plans_answer_their_end_and_write_nothing(settings):
    rejected, abandoned = plan_refund("1"), plan_address("77")
    person = make_person("reviewer")
    reject_plan(plan_pk=rejected.plan.pk, person=person, seen_digest=shown_digest(rejected.plan), reason="Too much")
    with pytest.raises(PlanRejected) as no:
        rejected.commit()
    assert no.value.members["reason"] == "Too much"
    plan_hosted(
        "address.update",
        {"customer_id": "77", "address": "9 Else"},
        agent=abandoned.plan.agent,
        replaces=abandoned.plan.plan_id,
    )
    with pytest.raises(PlanAbandoned) as gone:
        abandoned.commit()
    assert gone.value.members["reason"] == "superseded"
    settings.PLAN_LIFETIME = timedelta(milliseconds=50)
    late = plan_address("79")
    time.sleep(0.06)
    for _ in range(2):
        with pytest.raises(PlanExpired):
            late.commit()
    assert events_of(late.plan) == ["plan.received", "plan.expired", "plan.abandoned"]
    assert nothing_was_written()


@pytest.mark.parametrize("change", ["agent disabled", "target disabled"])
def test_a_plan_whose_agent_or_target_went_while_it_came_in_is_withdrawn_by_its_decision(change):
    hosted = plan_refund()
    rows = Agent.objects.filter(pk=hosted.plan.agent_id) if "agent" in change else Target.objects.all()
    rows.update(disabled_at=hosted.plan.created_at)
    with pytest.raises(DecisionRefused) as gone:
        hosted.approve()
    assert gone.value.status == 410
    assert events_of(hosted.plan) == ["plan.received", "plan.abandoned", "decision.refused"]
    assert reread(hosted.plan).abandonment.reason == "withdrawn"
    with pytest.raises(PlanAbandoned):
        hosted.commit()
    assert nothing_was_written()


def test_a_hosted_commit_leaves_no_fence_and_is_never_seen_committing():
    hosted = plan_address()
    with holding("SELECT 1 FROM demo_customer FOR UPDATE"):
        committing = in_background(hosted.commit)
        wait_for_waiter()
        assert reread(hosted.plan).state == "pending"
    committing()
    wait_until(lambda: reread(hosted.plan).state == "committed")
    assert not Fence.objects.exists()
