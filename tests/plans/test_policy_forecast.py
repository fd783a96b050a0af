"""What a policy would ask of people, told before it is made: held against what it does ask once it is made."""

import itertools
import json
import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from audit.windows import TakesTooLongError
from plans import policies, policy_change, policy_forecast, registry
from plans.chronicle import person_actor
from plans.demo.models import Invoice
from plans.demo.operations import RefundInvoice
from plans.errors import DecisionRefused
from plans.models import Approval, Plan, Policy, Target
from plans.policy_forecast import DAYS, Asked, Forecast, forecast
from plans.review import approve_plan
from plans.schema import shown_digest
from plans.targets import operations
from plans.targets.operations import OperationFailed
from tests.hosted_plans import approve, make_billing_agent, plan_address, plan_refund
from tests.makers import (
    MadeAgent,
    events_of,
    feed_data,
    make_agent,
    make_person,
    make_plan,
    make_target,
    policy_of,
    receive,
    reread,
)
from tests.time_passing import pass_time

pytestmark = pytest.mark.usefixtures("database")

DAY = timedelta(days=1).total_seconds()
# Every way to be grave, or to look it: a delete, a change that can't be undone, either one behind a harmless one, or
# spelled by escapes; and words and members that only look like it.
UPDATE = '{"op": "update", "target": "ledger/A", "field": "limit", "from": 1, "to": 2}'
DELETE = '{"op": "delete", "target": "ledger/B"}'
FOR_GOOD = '{"op": "update", "target": "ledger/C", "field": "limit", "to": 2, "reversible": false}'
ACTIONS = {
    "update": f"[{UPDATE}]",
    "delete": f"[{DELETE}]",
    "delete-last": f"[{UPDATE}, {DELETE}]",
    "for-good": f"[{FOR_GOOD}]",
    "for-good-last": f"[{UPDATE}, {FOR_GOOD}]",
    "reversible": '[{"op": "update", "target": "t", "field": "f", "to": 1, "reversible": true}]',
    "spaced": '[ {\n"op" : "update" , "target" : "t" , "field" : "f" , "to" : 1 , "reversible" :  false\t} ]',
    "escaped-delete": r'[{"op": "\u0064elete", "target": "t"}]',
    "escaped-member": r'[{"op": "update", "target": "t", "field": "f", "to": 1, "revers\u0069ble": false}]',
    "only-named-so": '[{"op": "update", "target": "delete", "field": "reversible", "to": "false"}]',
    "only-inside": '[{"op": "update", "target": "t", "field": "f", "to": {"op": "delete", "reversible": false}}]',
    "a-list-inside": '[{"op": "update", "target": "t", "field": "f", "to": [{"op": "delete"}, false]}]',
    "odd-values": r'[{"op": "update", "target": "t", "field": "f", "to": [1e300, -0, 1.10, "\u00e9\ud83d\ude00", ""]}]',
}
GRAVE = {"delete", "delete-last", "for-good", "for-good-last", "spaced", "escaped-delete", "escaped-member"}


def spelled(word: str, rolled: random.Random) -> str:
    """The word as JSON may spell it: each letter as itself or by an escape, its digits large or small."""
    return "".join(
        rolled.choice([letter, f"\\u{ord(letter):04x}", f"\\u{ord(letter):04X}"]) if rolled.random() < 0.7 else letter
        for letter in word
    )


def spellings(word: str) -> list[str]:
    """The word as itself, with each letter alone by an escape, all by escapes, and mixed."""
    rolled = random.Random(word)
    escapes = [f"\\u{ord(letter):04x}" for letter in word]
    one = [word[:place] + escape + word[place + 1 :] for place, escape in enumerate(escapes)]
    all_large = "".join(f"\\u{ord(letter):04X}" for letter in word)
    return [word, *one, "".join(escapes), all_large, *(spelled(word, rolled) for _ in range(8))]


def put_actions(owner: Any, plan: Plan, actions: str) -> None:
    """The plan's actions are this text, whatever has to be true of one that is fed."""
    owner.execute("SET session_replication_role = replica")  # what was received never changes, says a trigger
    owner.execute("UPDATE plans_plan SET actions = %s WHERE id = %s", [actions, plan.pk])
    owner.execute("SET session_replication_role = origin")


def rule_of(approvals: int | None = 1, *, is_guarded: bool = False, refuses_unconfirmed: bool = False) -> Policy:
    """A policy that nobody has made."""
    return Policy(approvals=approvals, is_guarded=is_guarded, refuses_unconfirmed=refuses_unconfirmed)


RULES = [
    rule_of(approvals, is_guarded=is_guarded, refuses_unconfirmed=refuses)
    for approvals, is_guarded, refuses in itertools.product((0, 1, 3), (False, True), (False, True))
]


def feed(target: Target, made: MadeAgent, actions: str = ACTIONS["update"]) -> Plan:
    """A fed plan whose actions are this text, letter by letter."""
    data = json.dumps(feed_data(target.name, plan={"actions": "here"}))
    return reread(receive(made.agent, data.replace('"here"', actions)))


def make_policy(target: Target, rule: Policy) -> None:
    """What the form does with a rule."""
    policy_change.change_policy(
        target_name=target.name, approvals=rule.approvals, is_guarded=rule.is_guarded,
        refuses_unconfirmed=rule.refuses_unconfirmed, by=person_actor(make_person("admin")),
    )  # fmt: skip


def put_under_it(plans: Sequence[Plan]) -> None:
    """These plans of one target stand under its newest policy then, as they would had they come after it."""
    policy_change.apply_newest_policy(
        target_name=plans[0].target.name, plan_pks=[plan.pk for plan in plans], by=person_actor(make_person("admin"))
    )


def asked_in_truth(plans: Sequence[Plan]) -> Asked:
    """What is asked of people for these plans as they stand, by what decides of each one alone."""
    asked = Asked()
    for plan in map(reread, plans):
        guard = policies.guard_of(plan.actions, is_always=plan.policy.is_guarded)
        asked.add(1, needed=plan.approvals_required, has_fact=guard is not None, is_held_back=plan.is_held_back)
    return asked


# --- the same as what decides ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ACTIONS)
def test_a_plan_is_found_grave_by_the_statement_where_it_is_by_the_guard(kind):
    target = make_target()
    plan = feed(target, make_agent(target), ACTIONS[kind])
    assert plan.actions == ACTIONS[kind]
    assert (policies.guard_of(plan.actions) is not None) == (kind in GRAVE)
    assert forecast(target, rule_of(1)).would_ask.facts == (kind in GRAVE)


OP_SPELLED = [
    f'[{{"{name}": "{op}", "target": "t"}}]'
    for name, op in [*(("op", op) for op in spellings("delete")), *((name, "delete") for name in spellings("op"))]
]
FOR_GOOD_SPELLED = [
    f'[{UPDATE}, {{"op": "update", "target": "t", "{name}"{before}:{after}false{last}}}]'
    for name, (before, after, last) in [
        *((name, ("", " ", "")) for name in spellings("reversible")),
        *(("reversible", spaces) for spaces in itertools.product(["", " ", "\t", "\n\r "], repeat=3)),
    ]
]
ONLY_LOOKS_SO = [
    r'[{"op": "update", "target": "\\u0064elete", "field": "f", "to": "\\"}]',
    r'[{"op": "\u0044elete", "target": "t"}]',
    r'[{"op": "\\u0064elete", "target": "t"}]',
    r'[{"op": "update", "target": "t", "field": "\"reversible\": false", "to": "\u0064elete"}]',
    r'[{"op": "update", "target": "t", "field": "f", "to": "\u0066alse", "reversible": true}]',
    '[{"op": "update", "target": "t", "Reversible": false}]',
    '[{"op": "update", "target": "t", "reversible": "false"}]',
    '[{"op": "update", "target": "t", "reversible": true, "field": "reversible", "from": false, "to": null}]',
]


@pytest.mark.parametrize(
    ("texts", "is_grave"),
    [(OP_SPELLED, True), (FOR_GOOD_SPELLED, True), (ONLY_LOOKS_SO, False)],
    ids=["delete", "for-good", "only-looks-so"],
)
def test_however_json_spells_it_a_plan_is_found_grave_where_it_is_by_the_guard(texts, is_grave, owner_connection):
    target = make_target()
    plan = make_plan(target=target)
    wrong = []
    for text in texts:
        put_actions(owner_connection, plan, text)
        assert (policies.guard_of(text) is not None) == is_grave, text
        if forecast(target, rule_of(1)).would_ask.facts != is_grave:
            wrong.append(text)
    assert wrong == []


def test_no_json_is_read_of_actions_in_which_nothing_grave_can_stand(owner_connection):
    target = make_target()
    plan = make_plan(target=target)
    put_actions(owner_connection, plan, r'no JSON: "reversible": true, false, "Delete", "\u00e9\u0044"')
    assert forecast(target, rule_of(1)).would_ask == Asked(people=1, approvals=1)


def test_what_is_told_of_a_rule_is_what_it_asks_for_once_it_is_made():
    target = make_target(approvals=2)
    made = make_agent(target)
    plans = [feed(target, made, actions) for actions in ACTIONS.values()]
    Plan.objects.filter(pk__in=[plan.pk for plan in plans[::2]]).update(has_confirmed_actions=True)
    seen = set()
    for rule in RULES:
        before, told = asked_in_truth(plans), forecast(target, rule)
        make_policy(target, rule)
        put_under_it(plans)
        assert (told.plans, told.asked, told.would_ask) == (len(plans), before, asked_in_truth(plans)), rule.__dict__
        seen.add(str(told.would_ask))
    assert len(seen) > 8, "the rules differ in what they ask for"


def test_what_an_operation_says_is_told_also_of_plans_that_came_under_a_number():
    agent = make_billing_agent().agent
    target = Target.objects.get(name="billing")

    def plan_three() -> list[Plan]:
        names = [f"44{number}" for number in itertools.islice(numbers, 2)]
        few, many = plan_refund(names[0], agent=agent), plan_refund(names[1], 120_000, total_cents=200_000, agent=agent)
        return [few.plan, many.plan, plan_address(names[0], agent=agent).plan]

    numbers = itertools.count(10)
    plans = plan_three()  # 1, 2 and 0 people
    assert forecast(target, rule_of(None)).would_ask == asked_in_truth(plans) == Asked(2, 3, 2, 1)
    make_policy(target, rule_of(5))
    plans += plan_three()
    told = forecast(target, rule_of(None))
    assert told.asked == asked_in_truth(plans) == Asked(people=5, approvals=18, facts=4, nobody=1)
    make_policy(target, rule_of(None))
    put_under_it(plans)
    assert told.would_ask == asked_in_truth(plans) == Asked(people=4, approvals=6, facts=4, nobody=2)


class Other(msgspec.Struct, forbid_unknown_fields=True):
    """Inputs that no stored plan has."""

    number: int


@pytest.fixture(params=["reads-other-inputs", "gone"])
def unasked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`unasked()`: from then on the refunds' operation can't be asked of the plans that there are."""

    def forget() -> None:
        if request.param == "gone":
            monkeypatch.delitem(operations._operations, "refund")
        else:
            monkeypatch.setattr(RefundInvoice, "Inputs", Other)

    return forget


@pytest.mark.parametrize(("policy", "needed"), [(None, 2), (5, 5), (0, 1)])
def test_what_an_operation_cant_be_asked_needs_as_many_as_before_and_one_at_least(unasked, policy, needed):
    agent = make_billing_agent().agent
    target = Target.objects.get(name="billing")
    make_policy(target, rule_of(policy))
    plan = plan_refund("4412", 120_000, total_cents=200_000, agent=agent).plan
    assert plan.approvals_required == (2 if policy is None else policy)
    unasked()
    assert forecast(target, rule_of(None)).would_ask.approvals == needed
    make_policy(target, rule_of(None, is_guarded=True))
    put_under_it([plan])
    plan = reread(plan)
    assert (plan.policy, plan.approvals_required) == (policy_change.newest_policy(target), needed)


def fail(self: Any, inputs: Any, actions: Any) -> int:
    raise KeyError("secret detail")


def ask_wrongly(self: Any, inputs: Any, actions: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'secret detail'::int")
    return 1


def pass_an_error_over(self: Any, inputs: Any, actions: Any) -> int:
    try:
        return ask_wrongly(self, inputs, actions)
    except Exception:  # as careless code does: PostgreSQL has given up the transaction, and the operation says nothing
        return 1


def break_off_inside(self: Any, inputs: Any, actions: Any) -> int:
    try:
        with transaction.atomic(savepoint=False):
            fail(self, inputs, actions)
    except KeyError:  # Django has given up the transaction
        pass
    return 1


def no_number(said: Any) -> Any:
    return lambda self, inputs, actions: said


FAILURES = {
    "raises": (fail, "KeyError"), "asks-wrongly": (ask_wrongly, "InvalidTextRepresentation"),
    "passes-over": (pass_an_error_over, "ValueError"), "breaks-off": (break_off_inside, "ValueError"),
    "none": (no_number(None), "ValueError"), "text": (no_number("2"), "ValueError"),
    "below-zero": (no_number(-1), "ValueError"), "too-many": (no_number(2**15), "ValueError"),
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_an_operation_that_fails_is_told_by_name_and_its_plan_stays_as_it_is(failure, monkeypatch, caplog):
    agent = make_billing_agent().agent
    target = Target.objects.get(name="billing")
    make_policy(target, rule_of(2))
    plan = plan_refund(agent=agent).plan
    approve(plan)
    broken, name = FAILURES[failure]
    monkeypatch.setattr(RefundInvoice, "approvals", broken)
    assert forecast(target, rule_of(2)).would_ask.approvals == 2, "it is not asked"
    with pytest.raises(OperationFailed) as failed:
        forecast(target, rule_of(None))
    assert failed.value.operation == "refund"
    make_policy(target, rule_of(None))
    caplog.clear()
    before, events = reread(plan), events_of(plan)
    (left,) = policy_change.apply_newest_policy(
        target_name="billing", plan_pks=[plan.pk], by=person_actor(make_person("admin"))
    )
    assert left.why_not == "Its operation failed when it was asked how many people have to approve."
    after = reread(plan)
    assert (after.policy, after.approvals_required, events_of(plan)) == (before.policy, 2, events)
    assert Approval.objects.get(plan=plan).voided_at is None
    said = f"hosted operation refund failed with {name} when asked how many people approve"
    assert [record.getMessage() for record in caplog.records if record.name.startswith("plans")] == [said]
    assert "secret detail" not in caplog.text
    assert Invoice.objects.filter(pk="4412").exists(), "the connection goes on"


def test_what_is_counted_is_what_a_person_meets_who_approves(stub_target):
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target)
    make_policy(target, rule_of(3, refuses_unconfirmed=True))
    plans = [feed(target, made, actions) for actions in ACTIONS.values()]
    Plan.objects.filter(pk__in=[plan.pk for plan in plans[::2]]).update(has_confirmed_actions=True)
    met = {"wrong-fact": 0, "unconfirmed": 0, "": 0}
    for plan in map(reread, plans):
        guard = policies.guard_of(plan.actions)
        for fact in {"", guard.fact if guard else ""}:
            code = ""
            try:
                approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=shown_digest(plan), fact=fact)
            except DecisionRefused as refused:
                code = refused.code
            if code != "wrong-fact" or plan.has_confirmed_actions:  # of those held back, no fact is counted
                met[code] += 1
    told = forecast(target, policy_change.newest_policy(target)).would_ask
    assert (told.facts, told.held_back, told.people) == (met["wrong-fact"], met["unconfirmed"], met[""])
    assert min(met.values()) > 0


# --- which plans ----------------------------------------------------------------------------------------------------


def test_plans_of_this_target_of_the_last_seven_days_are_counted_whatever_became_of_them(owner_connection):
    target = make_target(approvals=2)
    made = make_agent(target)
    kept = [make_plan(state, target=target, made=made) for state in ("pending", "committed", "rejected", "abandoned")]
    old, late = (make_plan("rejected", target=target, made=made) for _ in range(2))
    pass_time(owner_connection, old, DAYS * DAY + 60)
    pass_time(owner_connection, late, DAYS * DAY - 60)
    make_plan()  # at another target
    told = forecast(target, rule_of(0))
    assert (told.plans, told.asked.approvals, told.would_ask) == (len(kept) + 1, 10, Asked(nobody=5))


def test_each_plan_was_asked_for_by_the_version_it_stands_under():
    target = make_target(approvals=2)
    made = make_agent(target)
    make_plan(target=target, made=made)
    policy_of(target, approvals=0)
    make_plan(target=target, made=made)
    policy_of(target, approvals=1, is_guarded=True)
    make_plan(target=target, made=made)
    told = forecast(target, policy_change.newest_policy(target))
    assert told.asked == Asked(people=2, approvals=3, facts=1, nobody=1)
    assert told.would_ask == Asked(people=3, approvals=3, facts=3)


def test_a_target_without_plans_has_nothing_to_tell():
    registry.ensure_hosted_targets()
    for target in (make_target(), Target.objects.get(name="billing")):
        assert forecast(target, policy_change.newest_policy(target)) == Forecast()


# --- bounds ---------------------------------------------------------------------------------------------------------


def target_of_three_plans() -> Target:
    """The oldest was received under a policy that asks for one person, the two others under one that asks for three."""
    target = make_target(approvals=1)
    made = make_agent(target)
    make_plan(target=target, made=made)
    policy_of(target, approvals=3)
    for _ in range(2):
        make_plan(target=target, made=made)
    return target


def test_the_newest_so_many_plans_are_counted_and_that_there_may_be_more_is_told(monkeypatch):
    target = target_of_three_plans()
    monkeypatch.setattr(policy_forecast, "MOST", 2)
    told = forecast(target, rule_of(1))
    assert (told.plans, told.is_cut, told.asked.approvals) == (2, True, 6)
    monkeypatch.setattr(policy_forecast, "MOST", 4)
    told = forecast(target, rule_of(1))
    assert (told.plans, told.is_cut, told.asked.approvals) == (3, False, 7)


def test_the_count_is_one_statement_that_goes_by_an_index_from_the_newest_plan_on():
    target = make_target()
    make_plan(target=target)
    with CaptureQueriesContext(connection) as asked:
        forecast(target, rule_of(2))
    assert len([query for query in asked.captured_queries if "plans_" in query["sql"]]) == 1
    given = {"target": target.pk, "days": DAYS, "most": policy_forecast.MOST, "is_by_operation": True}
    with connection.cursor() as cursor:
        # Of few plans any index will do, and sorting them costs nothing.
        cursor.execute("SET enable_seqscan = off; SET enable_sort = off")
        try:
            cursor.execute(f"EXPLAIN {policy_forecast._ALIKE}", given)
            told = " ".join(line for (line,) in cursor.fetchall())
        finally:
            cursor.execute("RESET enable_seqscan; RESET enable_sort")
    assert "Index Scan Backward using plans_by_target_and_receipt" in told
    assert "Index Cond: ((target_id = " in told
    assert "(received_at > " in told


def test_a_count_that_takes_too_long_is_given_up(owner_connection, monkeypatch):
    target = make_target()
    make_plan(target=target)
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=200))
    with owner_connection.transaction():
        owner_connection.execute("LOCK TABLE plans_plan IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TakesTooLongError):
            forecast(target, rule_of(2))
    assert forecast(target, rule_of(2)).would_ask.approvals == 2


def test_an_operation_that_is_slow_to_ask_is_given_up_in_time(monkeypatch):
    agent = make_billing_agent().agent
    target = Target.objects.get(name="billing")
    policy_of(target, approvals=4)
    for count in range(8):
        plan_address(str(count), agent=agent)
    asked = []

    def approvals(self: Any, inputs: Any, actions: Any) -> int:
        asked.append(inputs)
        time.sleep(0.2)
        return 1

    monkeypatch.setattr(operations.Operation, "approvals", approvals)
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=700))
    monkeypatch.setattr(type(operations.get_operation("address.update")), "approvals", approvals)
    began = time.monotonic()
    with pytest.raises(TakesTooLongError):
        forecast(target, rule_of(None))
    assert time.monotonic() - began < 1.4
    assert len(asked) < 8
    monkeypatch.setattr(policy_forecast, "FEWER", 1)
    assert forecast(target, rule_of(None)).would_ask.approvals == 1


def test_an_operation_whose_question_takes_too_long_ends_the_count_as_too_long(monkeypatch):
    agent = make_billing_agent().agent
    target = Target.objects.get(name="billing")
    policy_of(target, approvals=4)
    plan_refund(agent=agent)

    def approvals(self: Any, inputs: Any, actions: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(9)")
        return 1

    monkeypatch.setattr(RefundInvoice, "approvals", approvals)
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=400))
    with pytest.raises(TakesTooLongError):
        forecast(target, rule_of(None))


def test_fewer_plans_are_counted_where_so_many_take_too_long(monkeypatch):
    target = target_of_three_plans()
    slow = "FROM (SELECT pg_sleep(CASE WHEN %(most)s > 500 THEN 9 ELSE 0 END)) s, ("
    monkeypatch.setattr(policy_forecast, "_ALIKE", policy_forecast._ALIKE.replace("FROM (", slow, 1))
    monkeypatch.setattr(policy_forecast, "PATIENCE", timedelta(milliseconds=800))
    told = forecast(target, rule_of(1))
    assert (told.plans, told.most, told.is_cut, told.asked.approvals) == (3, 500, False, 7)
    monkeypatch.setattr(policy_forecast, "FEWER", 2)
    told = forecast(target, rule_of(1))
    assert (told.plans, told.most, told.is_cut, told.asked.approvals) == (2, 2, True, 6)
