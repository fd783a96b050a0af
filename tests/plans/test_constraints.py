"""What the database itself refuses, each by the name it refuses it under, as the application's own role."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.models import F

from plans import clock, vault
from plans.models import (
    Abandonment,
    Agent,
    AgentSecret,
    Approval,
    Callback,
    Commit,
    Conflict,
    ConflictChange,
    Delivery,
    Fence,
    FormerOwner,
    IdempotencyKey,
    LookupKey,
    ObservedWrite,
    Plan,
    PlanView,
    Policy,
    Refusal,
    Rejection,
    Target,
    Task,
    Wish,
)
from plans.states import ENDS, MOVES, State
from tests.makers import make_agent, make_person, make_plan, make_target, reread

pytestmark = pytest.mark.usefixtures("database")

SECOND = timedelta(seconds=1)


def refuses(name: str, act: Callable[[], Any]) -> None:
    """Fails the test unless the database refuses `act`, at the latest at the transaction's end, under this name."""
    assert refusal_of(act) == name


def refusal_of(act: Callable[[], Any]) -> str | None:
    """The name under which the database refuses `act`; None, with everything undone, where it does not."""
    try:
        with transaction.atomic():
            act()
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            transaction.set_rollback(True)
    except DatabaseError as error:
        return str(error.__cause__.diag.constraint_name)  # type: ignore[union-attr]
    return None


def copy(row: Any, **changes: Any) -> Any:
    """The same row once more, with these changes."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    del values[row._meta.pk.attname]
    return type(row).objects.create(**(values | changes))


def another(plan: Plan, **changes: Any) -> Any:
    """A plan like this one that breaks nothing, but for the changes."""
    fresh = {"plan_id": "plan_other", "token_hash": b"other", "idempotency_key": "other"}
    return copy(plan, **(fresh | changes))


def change(**values: Any) -> Callable[[Any], Any]:
    """Change the row past everything but the database."""
    return lambda row: type(row).objects.filter(pk=row.pk).update(**values)


def more(**changes: Any) -> Callable[[Any], Any]:
    """The same row once more, with these changes."""
    return lambda row: copy(row, **changes)


def plan_with(**changes: Any) -> Callable[[Plan], Any]:
    """A plan that differs from a good one in this alone."""
    return lambda plan: another(plan, **changes)


def attempt(plan: Plan, number: int = 1, **fields: Any) -> Commit:
    return Commit.objects.create(
        plan=plan, number=number, started_by="system", started_by_id="x", started_at=clock.now(), **fields
    )


def attempted(**fields: Any) -> Callable[[Plan], Any]:
    return lambda plan: attempt(plan, settled_at=clock.now(), **fields)


def approval() -> Approval:
    return Approval.objects.create(
        plan=make_plan(), reviewer=make_person("reviewer"), seen_digest="0" * 64, approved_at=clock.now()
    )


def fence() -> Fence:
    plan = make_plan()
    return Fence.objects.create(plan=plan, target=plan.target, action_target="ledger/ACC-104", scope="*")


def key() -> IdempotencyKey:
    plan = make_plan()
    return IdempotencyKey.objects.create(
        agent=plan.agent, operation=plan.operation, key="k", plan=plan, payload_hash=b"x", bound_at=clock.now()
    )


def delivery() -> Delivery:
    made = make_agent()
    return Delivery.objects.create(agent=made.agent, webhook_id="msg_1", body_hash=b"x", received_at=clock.now())


def wish() -> Wish:
    target = make_target()
    made = make_agent(target)
    return Wish.objects.create(agent=made.agent, target=target, plan_id="p", reason="task_ended", wished_at=clock.now())


def callback() -> Callback:
    plan = make_plan()
    at = clock.now()
    return Callback.objects.create(
        agent=plan.agent, plan=plan, kind="plan.approved", webhook_id="msg_1", body="{}", queued_at=at, next_try_at=at
    )


def view() -> PlanView:
    return PlanView.objects.create(plan=make_plan(), person=make_person(), opened_at=clock.now())


def agent() -> Agent:
    return make_agent().agent


def secret() -> AgentSecret:
    return AgentSecret.objects.filter(agent=agent()).earliest("id")


def changed() -> ConflictChange:
    return ConflictChange.objects.get(conflict__plan=make_plan("conflicted"))


def applied() -> Commit:
    return Commit.objects.get(plan=make_plan("committed"))


def policy() -> Policy:
    return Policy.objects.get(target=make_target())


def in_state(state: str, fact: str = "") -> Callable[[], Any]:
    """A plan in this state, or the row that says why it is in it."""
    return lambda: getattr(make_plan(state), fact) if fact else make_plan(state)


def blank_rejection(plan: Plan) -> None:
    person = make_person("reviewer")
    Rejection.objects.create(plan=plan, reviewer=person, seen_digest="x", reason=" \n\t", rejected_at=clock.now())


def approved_by_its_owner(plan: Plan) -> None:
    Approval.objects.create(plan=plan, reviewer=plan.agent.owner, seen_digest="0" * 64, approved_at=clock.now())


BREAKS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "plans_lookup_key_is_one": (make_plan, lambda _: LookupKey.objects.create(id=2, sealed=b"x")),
    "plans_target_name_is_unique": (make_target, more()),
    "plans_target_name_is_an_identifier": (make_target, more(name="a b")),
    "plans_target_address_fits_its_kind": (make_target, more(name="other", base_url="")),
    "plans_policy_version_is_unique": (policy, more()),
    "plans_policy_approvals_at_most_10": (policy, more(version=2, approvals=11)),
    "plans_agent_name_is_unique": (agent, more(api_key_hash=b"other")),
    "plans_agent_api_key_is_unique": (agent, more(name="other")),
    "plans_agent_name_is_an_identifier": (agent, more(name="n\u00e4me", api_key_hash=b"other")),
    "plans_secret_has_a_purpose": (secret, more(purpose="other")),
    "plans_task_id_is_unique_per_agent": (lambda: make_plan().task, more()),
    "plans_task_id_is_an_identifier": (lambda: make_plan().task, more(task_id="-x")),
    "plans_plan_id_is_unique": (make_plan, more(token_hash=b"other", idempotency_key="other")),
    "plans_token_is_unique_per_target": (make_plan, more(plan_id="plan_other", idempotency_key="other")),
    "plans_idempotency_key_is_unique": (make_plan, more(plan_id="plan_other", token_hash=b"other")),
    "plans_intent_is_held_once": (lambda: make_plan(intent="refund:1"), plan_with()),
    "plans_state_is_known": (make_plan, plan_with(state="undecided")),
    "plans_token_lives_as_long_as_the_plan": (make_plan, change(token_sealed=None)),
    "plans_busy_plan_was_claimed": (make_plan, change(state="committing")),
    "plans_unknown_since_when": (in_state("unknown"), change(unknown_since=None)),
    "plans_plan_id_is_an_identifier": (make_plan, plan_with(plan_id="plan 1")),
    "plans_operation_is_an_identifier": (make_plan, plan_with(operation="")),
    "plans_intent_is_an_identifier": (make_plan, plan_with(intent="")),
    "plans_created_before_received": (
        make_plan,
        lambda plan: another(plan, created_at=plan.received_at + timedelta(microseconds=1)),
    ),
    "plans_expires_after_created": (make_plan, lambda plan: another(plan, expires_at=plan.created_at)),
    "plans_summary_at_most_2000": (make_plan, plan_with(summary="x" * 2001)),
    "plans_input_fingerprint_at_most_512": (make_plan, plan_with(input_fingerprint="x" * 513)),
    "plans_plan_has_an_action": (make_plan, plan_with(action_targets=[])),
    "plans_one_approval_per_person": (approval, more()),
    "plans_void_approval_says_why": (approval, change(voided_at=F("approved_at"))),
    "plans_rejection_has_a_reason": (make_plan, blank_rejection),
    "plans_attempt_number_is_unique": (lambda: attempt(make_plan()), more()),
    "plans_plan_is_applied_once": (in_state("committed"), attempted(number=2, outcome="committed")),
    "plans_outcome_is_known": (make_plan, attempted(outcome="lost")),
    "plans_settled_attempt_has_an_outcome": (make_plan, attempted()),
    "plans_unsent_never_arrived": (make_plan, attempted(outcome="unsent")),
    "plans_conflict_change_has_its_place": (changed, more()),
    "plans_abandonment_reason_is_known": (
        make_plan,
        lambda plan: Abandonment.objects.create(plan=plan, reason="bored", at=clock.now()),
    ),
    "plans_fence_one_plan_per_action_target": (fence, more()),
    "plans_key_is_bound_once": (key, more()),
    "plans_webhook_id_is_bound_once": (delivery, more()),
    "plans_one_wish_per_plan": (wish, more()),
    "plans_wish_reason_is_known": (wish, change(reason="bored")),
    "plans_one_view_row_per_person": (view, more()),
    "plans_callback_id_is_unique": (callback, more()),
    "plans_callback_waits_or_ended": (callback, change(delivered_at=F("queued_at"))),
    # Triggers, by the constraint they name.
    "plans_plan_moves": (in_state("abandoned"), change(state="committed")),
    "plans_plan_is_immutable": (make_plan, change(summary="Something else")),
    "plans_end_is_final": (in_state("rejected"), change(state_changed_at=F("state_changed_at") + SECOND)),
    "plans_end_has_its_fact": (make_plan, change(state="rejected", token_sealed=None)),
    "plans_facts_are_final": (in_state("refused", "refusal"), change(reason="Another")),
    "plans_attempt_is_settled_once": (applied, change(outcome="refused")),
    "plans_owner_never_decides": (make_plan, approved_by_its_owner),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_database_refuses_what_must_not_be(name):
    make, act = BREAKS[name]
    row = make()
    refuses(name, lambda: act(row))


def test_every_named_constraint_and_trigger_has_a_test_that_breaks_it():
    models = apps.get_app_config("plans").get_models()
    named = {constraint.name for model in models for constraint in model._meta.constraints}
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT pg_get_functiondef(p.oid) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
            JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND c.relname LIKE 'plans\\_%'
            """
        )
        raised = {name for (text,) in cursor.fetchall() for name in re.findall(r"CONSTRAINT = '(\w+)'", text)}
    assert raised
    assert named | raised == set(BREAKS)


def test_the_role_that_the_application_has_owns_no_table_and_truncates_none():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relowner = current_user::regrole")
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False,)
    for statement in ("TRUNCATE plans_plan CASCADE", "ALTER TABLE plans_plan DISABLE TRIGGER ALL"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


# --- the state machine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", State)
def test_the_database_allows_exactly_the_moves_of_the_state_machine(start):
    plan = make_plan(start) if start is not State.COMMITTING else committing()
    at = clock.now()
    allowed = set()
    for goal in set(State) - {start}:
        values: dict[str, Any] = {"state": goal.value, "claimed_at": at, "unknown_since": at}
        values["token_sealed"] = None if goal in ENDS else b"x"
        refused = refusal_of(lambda: Plan.objects.filter(pk=plan.pk).update(**values))  # noqa: B023
        assert refused in (None, "plans_plan_moves", "plans_end_is_final", "plans_end_has_its_fact")
        if refused in (None, "plans_end_has_its_fact"):  # the last one is not about the move
            allowed.add(goal)
    assert allowed == MOVES.get(start, frozenset())


def committing() -> Plan:
    plan = make_plan()
    at = clock.now()
    Plan.objects.filter(pk=plan.pk).update(state="committing", state_changed_at=at, claimed_at=at)
    return reread(plan)


STANDING = {
    "policy_id", "approvals_required", "replaced_by_id", "has_confirmed_actions", "has_been_known_to_target",
    "token_sealed", "state", "state_changed_at", "claimed_at", "unknown_since", "next_check_at", "check_count",
    "mark_count", "event_count",
}  # fmt: skip
"""What may change of a plan: where it stands. A new column is one or the other, or the test below fails."""


def test_what_was_received_of_a_plan_never_changes_whichever_column_it_is():
    plan = make_plan(intent="refund:1", replaces="plan_before", summary="Said")
    other = make_plan()
    columns = {field.attname: field for field in Plan._meta.concrete_fields if not field.primary_key}
    for name in sorted(columns.keys() - STANDING):
        value = getattr(plan, name)
        changed: Any = getattr(other, name) if columns[name].is_relation else changed_value(value)
        refuses("plans_plan_is_immutable", lambda: Plan.objects.filter(pk=plan.pk).update(**{name: changed}))  # noqa: B023
        if columns[name].null:
            now_or_then = None if value is not None else "x"
            refuses("plans_plan_is_immutable", lambda: Plan.objects.filter(pk=plan.pk).update(**{name: now_or_then}))  # noqa: B023


def changed_value(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return bytes(value) + b"x"
    if isinstance(value, list):
        return [*value, "x"]
    if isinstance(value, str) or value is None:
        return f"{value or ''}x"
    return value + SECOND


@pytest.mark.parametrize("state", sorted(ENDS))
def test_every_end_needs_its_own_fact_and_no_other(state):
    facts: dict[str, Callable[[Plan], Any]] = {
        "committed": lambda plan: attempt(plan, outcome="committed", settled_at=clock.now()),
        "conflicted": lambda plan: Conflict.objects.create(plan=plan, at=clock.now()),
        "rejected": lambda plan: Rejection.objects.create(
            plan=plan, reviewer=make_person("reviewer"), seen_digest="x", reason="No", rejected_at=clock.now()
        ),
        "refused": lambda plan: Refusal.objects.create(plan=plan, reason="No", at=clock.now()),
        "abandoned": lambda plan: Abandonment.objects.create(plan=plan, reason="expired", at=clock.now()),
    }
    for name, make_fact in facts.items():
        plan = committing() if state == "conflicted" else make_plan()

        def end(plan: Plan = plan, make_fact: Callable[[Plan], Any] = make_fact) -> None:
            make_fact(plan)
            Plan.objects.filter(pk=plan.pk).update(state=state, token_sealed=None)

        if name == state:
            with transaction.atomic():
                end()
        else:
            refuses("plans_end_has_its_fact", end)


def test_a_committed_attempt_and_a_plan_that_goes_on_contradict_each_other():
    plan = committing()

    def act() -> None:
        attempt(plan, outcome="committed", settled_at=clock.now())
        Plan.objects.filter(pk=plan.pk).update(state="pending", claimed_at=None)

    refuses("plans_end_has_its_fact", act)


# --- facts ----------------------------------------------------------------------------------------------------------


def handed_over() -> Agent:
    """An agent with another owner than it had; the database writes down who that was."""
    made = agent()
    Agent.objects.filter(pk=made.pk).update(owner=make_person("admin"))
    return made


FACTS: dict[str, Callable[[], Any]] = {
    "Rejection": lambda: Rejection.objects.filter(plan=make_plan("rejected")),
    "Conflict": lambda: Conflict.objects.filter(plan=make_plan("conflicted")),
    "ConflictChange": lambda: ConflictChange.objects.filter(conflict__plan=make_plan("conflicted")),
    "Abandonment": lambda: Abandonment.objects.filter(plan=make_plan("abandoned")),
    "Refusal": lambda: Refusal.objects.filter(plan=make_plan("refused")),
    "Policy": lambda: Policy.objects.filter(target=make_target()),
    "IdempotencyKey": lambda: IdempotencyKey.objects.filter(pk=key().pk),
    "FormerOwner": lambda: FormerOwner.objects.filter(agent=handed_over()),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_never_changed_and_never_deleted(fact):
    rows = FACTS[fact]()
    rows = rows.model.objects.filter(pk__in=list(rows.values_list("pk", flat=True)))
    assert rows.count() == 1
    refuses("plans_facts_are_final", lambda: rows.update(id=F("id")))
    refuses("plans_facts_are_final", lambda: rows._raw_delete("default"))


KEPT: dict[str, Callable[[], Any]] = {
    "Plan": lambda: Plan.objects.filter(pk=make_plan("abandoned").pk),
    "Approval": lambda: Approval.objects.filter(pk=approval().pk),
    "Commit": lambda: Commit.objects.filter(plan=make_plan("committed")),
}


@pytest.mark.parametrize("row", KEPT)
def test_a_plan_its_approvals_and_its_attempts_are_never_deleted(row):
    rows = KEPT[row]()
    assert rows.count() == 1
    refuses("plans_facts_are_final", lambda: rows._raw_delete("default"))


def test_every_trigger_on_a_plans_table_is_one_that_is_tested_here():
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
            WHERE NOT t.tgisinternal AND c.relname LIKE 'plans\\_%'
            """
        )
        found = set(cursor.fetchall())
    facts = {(f"plans_{name.lower()}", "plans_facts_are_final") for name in FACTS if name != "IdempotencyKey"}
    assert found == facts | {
        ("plans_plan", "plans_plan_moves"),
        ("plans_plan", "plans_end_has_its_fact"),
        ("plans_plan", "plans_plan_is_kept"),
        ("plans_approval", "plans_approval_is_kept"),
        ("plans_commit", "plans_attempt_is_kept"),
        ("plans_commit", "plans_attempt_is_settled_once"),
        ("plans_idempotencykey", "plans_key_is_kept"),
        ("plans_agent", "plans_agent_keeps_its_owners"),
        ("plans_approval", "plans_owner_never_decides"),
        ("plans_rejection", "plans_owner_never_decides"),
    }


@pytest.mark.parametrize(
    "fact", ["Rejection", "Conflict", "Abandonment", "Refusal"], ids=lambda name: f"one {name.lower()} a plan"
)
def test_a_plan_has_at_most_one_of_each_fact(fact):
    row = FACTS[fact]()[0]
    refuses(f"plans_{fact.lower()}_plan_id_key", lambda: copy(row))


def test_a_plan_counts_as_its_agents_write_once():
    row = ObservedWrite.objects.get(plan=make_plan("committed"))
    refuses("plans_observedwrite_plan_id_key", lambda: copy(row))


# --- attempts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["committed", "conflicted", "refused", "expired", "unsent"])
def test_a_settled_attempt_stays_as_it_was(outcome):
    row = attempt(make_plan(), may_have_arrived=outcome != "unsent")
    rows = Commit.objects.filter(pk=row.pk)
    with transaction.atomic():
        rows.update(outcome=outcome, settled_at=clock.now())
        for other in {"committed", "conflicted", "refused", "expired", "unsent", "unknown"} - {outcome}:
            refuses("plans_attempt_is_settled_once", lambda: rows.update(outcome=other, may_have_arrived=False))  # noqa: B023
        refuses("plans_attempt_is_settled_once", lambda: rows.update(outcome=None, settled_at=None))
        transaction.set_rollback(True)


def test_an_unknown_attempt_may_be_found_out_and_is_never_unsettled():
    rows = Commit.objects.filter(plan=make_plan("unknown"))
    refuses("plans_attempt_is_settled_once", lambda: rows.update(outcome=None, settled_at=None))
    rows.update(outcome="refused")
    refuses("plans_attempt_is_settled_once", lambda: rows.update(outcome="unknown"))


@pytest.mark.parametrize("field", ["number", "started_by", "started_by_id", "started_at", "plan"])
def test_who_made_an_attempt_and_when_never_changes(field):
    row = attempt(make_plan())
    values = {
        "number": 7, "started_by": "agent", "started_by_id": "y", "started_at": row.started_at + SECOND,
        "plan": make_plan(),
    }  # fmt: skip
    refuses("plans_attempt_is_settled_once", lambda: Commit.objects.filter(pk=row.pk).update(**{field: values[field]}))


def test_a_token_of_an_ended_plan_cannot_come_back():
    plan = make_plan("abandoned")
    refuses("plans_end_is_final", lambda: Plan.objects.filter(pk=plan.pk).update(token_sealed=vault.seal_token("x")))


def test_what_is_referred_to_is_not_deleted():
    plan = make_plan()
    for model, pk in ((Task, plan.task_id), (Target, plan.target_id), (Agent, plan.agent_id)):
        refused = refusal_of(lambda: model.objects.filter(pk=pk)._raw_delete("default"))  # noqa: B023
        assert refused is not None
        assert "_fk_" in refused
    assert AgentSecret.objects.filter(agent=plan.agent).count() == 2
