"""Hosted operations over HTTP: the dry run, and every outcome of a commit in CONTRACT 5.2's table, in its order."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from audit.models import Event, Payload
from plans import abandonment, registry
from plans.demo.models import Customer, Invoice, Refund
from plans.fingerprints import fingerprint
from plans.instants import parse_instant
from plans.models import Approval, Fence, IdempotencyKey, Plan
from plans.review import approve_plan, reject_plan
from plans.schema import shown_digest
from tests.makers import (
    MadeAgent,
    events_of,
    kinds_recorded,
    make_agent,
    make_person,
    make_plan,
    make_target,
    policy_of,
)
from tests.plans.digests import digest_from_the_log
from tests.plans.http import Answer, Caller, fill_up, let_expire, make_caller, raw_connection, without

pytestmark = pytest.mark.usefixtures("database")

REFUND = {"invoice_id": "4412", "amount_cents": 20_000}
ADDRESS = {"customer_id": "77", "address": "2 Harbour Road"}


@pytest.fixture
def caller(site) -> Caller:
    [billing] = registry.ensure_hosted_targets()
    customer = Customer.objects.create(customer_id="77", name="Ada", email="ada@example.com", address="1 Old Lane")
    Invoice.objects.create(invoice_id="4412", customer=customer, total_cents=48_000, currency="USD")
    return make_caller(site, billing)


def address(caller: Caller, **more) -> dict:
    """A plan that nobody has to approve: the body of its 201."""
    answer = caller.dry_run("address.update", ADDRESS, **more)
    assert answer.status == 201, answer.body
    return answer.json


def refund(caller: Caller, **more) -> dict:
    """A plan that one person has to approve: the body of its 201."""
    answer = caller.dry_run("refund", REFUND, **{"intent": "refund:1", **more})
    assert answer.status == 201, answer.body
    return answer.json


def plan_of(planned: dict) -> Plan:
    return Plan.objects.select_related("agent", "target", "task", "policy").get(plan_id=planned["plan_id"])


def address_now() -> str:
    return Customer.objects.get(pk="77").address


def nothing_written() -> bool:
    refunded = Invoice.objects.get(pk="4412").refunded_cents
    return address_now() == "1 Old Lane" and refunded == 0 and not Refund.objects.exists()


# --- the dry run ----------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_the_plan_and_writes_nothing_of_the_operations_own(caller):
    evidence = [{"tool": "shipping.lookup", "note": "lost", "url": "https://carrier.example/track/77"}]
    answer = caller.dry_run("refund", REFUND, intent="refund:1", summary="Lost parcel", evidence=evidence)
    told = answer.json
    plan = plan_of(told)
    assert answer.status == 201
    assert {name: told[name] for name in ("plan_id", "target", "input_fingerprint", "approval", "review_url")} == {
        "plan_id": plan.plan_id,
        "target": "billing",
        "input_fingerprint": plan.input_fingerprint,
        "approval": "required",
        "review_url": f"{caller.site.url}/plans/{caller.agent.name}/billing/{plan.plan_id}/",
    }
    assert told["actions"] == [
        {"op": "update", "target": "invoice/4412", "field": "refunded_cents", "from": 0, "to": 20_000},
        {
            "op": "create",
            "target": "refund/4412-20000",
            "to": {"amount_cents": 20_000, "invoice_id": "4412"},
            "reversible": False,
        },
    ]
    assert parse_instant(told["expires_at"]) - parse_instant(told["created_at"]) == plan.expires_at - plan.created_at
    assert (plan.expires_at - plan.created_at).total_seconds() == 600
    assert told["plan_token"].encode() not in bytes(plan.token_sealed)
    assert nothing_written()
    assert events_of(plan) == ["plan.received"]
    assert digest_from_the_log(plan) == shown_digest(plan)


def test_the_fingerprint_is_rfc_8785_over_inputs_and_state_whatever_their_order(caller):
    planned = address(caller)
    state = {"customer/77": {"address": "1 Old Lane"}}
    expected = fingerprint({"operation": "address.update", "inputs": ADDRESS, "state": state})
    assert planned["input_fingerprint"] == expected
    turned = dict(reversed(ADDRESS.items()))
    assert caller.dry_run("address.update", turned).json["input_fingerprint"] == expected


def test_an_operation_that_asks_for_nobody_says_so(caller):
    assert address(caller)["approval"] == "not_required"


def test_a_dry_run_never_tells_the_token_twice(caller):
    planned = address(caller)
    token = planned["plan_token"].encode()
    answers = [
        caller.get(f"/api/v1/plans/{planned['plan_id']}"),
        caller.get("/api/v1/plans"),
        caller.commit("address.update", planned),
        caller.commit("address.update", planned),
        caller.commit("address.update", planned, "key-2", input_fingerprint="sha256:other"),
    ]
    assert all(token not in answer.body for answer in answers)
    assert not Payload.objects.filter(body__contains=planned["plan_token"]).exists()


@pytest.mark.parametrize(
    ("operation", "inputs", "says"),
    [
        ("refund", {"invoice_id": "none", "amount_cents": 1}, "There is no invoice none."),
        ("refund", {"invoice_id": "4412", "amount_cents": 48_001}, "Only 48000 cents of invoice 4412 remain."),
        ("refund", {"invoice_id": "4412", "amount_cents": 0}, "must be positive"),
        ("address.update", {"customer_id": "77", "address": "1 Old Lane"}, "has this address already"),
    ],
)
def test_where_the_operation_says_no_it_cannot_plan_and_nothing_is_on_record(caller, operation, inputs, says):
    refused = caller.dry_run(operation, inputs, intent="refund:1")
    assert says in refused.is_problem(422, "cannot-plan", following="stop", plan_write="none")["detail"]
    assert not Plan.objects.exists()


def test_an_operation_that_creates_something_wants_an_intent(caller):
    refused = caller.dry_run("refund", REFUND)
    refused.is_problem(422, "invalid", following="fix_request")
    assert refused.pointers == ["/intent"]
    assert not Plan.objects.exists()


@pytest.mark.parametrize("state", ["unknown", "committed"])
def test_an_intent_that_may_be_written_is_taken(caller, state):
    held = make_plan(state, made=caller.made, intent="refund:1")
    refused = caller.dry_run("refund", REFUND, intent="refund:1")
    assert refused.is_problem(422, "intent-taken", following="check_status")["plan_id"] == held.plan_id
    assert Plan.objects.get() == held


def test_what_may_be_written_is_not_replaceable(caller):
    planned = address(caller)
    caller.commit("address.update", planned)
    refused = caller.dry_run("address.update", ADDRESS | {"address": "3 New Street"}, replaces=planned["plan_id"])
    refused.is_problem(422, "not-replaceable", following="check_status")
    assert Plan.objects.count() == 1


def test_o91_a_second_dry_run_of_the_intent_supersedes_the_first_and_both_know_it(caller):
    first, second = refund(caller), refund(caller)
    told = caller.get(f"/api/v1/plans/{first['plan_id']}").json
    assert (told["state"], told["abandonment"]["reason"]) == ("abandoned", "superseded")
    assert told["replaced_by"] == second["plan_id"]


def test_a_fenced_record_is_423_and_names_a_plan_to_its_own_agent_alone(caller):
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    holder = make_plan("unknown", made=caller.made)
    Fence.objects.create(plan=holder, target=caller.target, action_target="customer/77", scope="*")
    own = caller.dry_run("address.update", ADDRESS).is_problem(423, "fenced", following="wait", plan_write="none")
    assert own["fenced_by"] == holder.plan_id
    theirs = other.dry_run("address.update", ADDRESS)
    theirs.is_problem(423, "fenced", following="wait", plan_write="none")
    assert holder.plan_id.encode() not in theirs.body
    assert caller.agent.name.encode() not in theirs.body
    assert Plan.objects.count() == 1


def test_an_operation_that_is_not_hosted_or_not_this_agents_is_404(caller):
    stranger = make_caller(caller.site)
    answers = [stranger.dry_run("refund", REFUND, intent="i"), stranger.dry_run("no.such", {}, intent="i")]
    for answer in answers:
        answer.is_problem(404, "unknown-operation", following="fix_request")
    assert [answer.json["detail"] for answer in answers] == [answers[0].json["detail"]] * 2
    registry.disable_target(name="billing")
    caller.dry_run("refund", REFUND, intent="i").is_problem(404, "unknown-operation")
    assert not Plan.objects.exists()


def test_beyond_200_pending_plans_is_429(caller):
    fill_up(plan_of(address(caller)), 199)
    caller.dry_run("refund", REFUND, intent="refund:1").is_problem(429, "too-many", following="wait")
    assert Plan.objects.count() == 200


def test_a_paused_agent_plans_nothing_new_and_may_still_commit(caller):
    planned = address(caller)
    registry.pause_agent(name=caller.agent.name)
    caller.dry_run("address.update", ADDRESS).is_problem(403, "agent-paused", following="ask")
    assert caller.commit("address.update", planned).status == 200


def test_the_body_of_a_dry_run_is_closed_and_each_wrong_place_is_named(caller):
    for change, pointer in (
        ({"more": 1}, "/more"),
        ({"task_id": "a b"}, "/task_id"),
        ({"intent": ""}, "/intent"),
        ({"replaces": "\u00e9"}, "/replaces"),
        ({"summary": "x" * 2001}, "/summary"),
        ({"summary": None}, "/summary"),
        ({"evidence": [{"tool": "t", "url": "http://carrier.example"}]}, "/evidence/0/url"),
        ({"evidence": {}}, "/evidence"),
        ({"inputs": []}, "/inputs"),
        ({"inputs": {"invoice_id": "4412"}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"currency": "USD"}}, "/inputs/currency"),
        ({"inputs": REFUND | {"amount_cents": "1"}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": True}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": 2**53}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": -(2**53)}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": 10**400}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": 1.0}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"amount_cents": 1e2}}, "/inputs/amount_cents"),
        ({"inputs": REFUND | {"invoice_id": ""}}, "/inputs/invoice_id"),
    ):
        refused = caller.post(
            "/api/v1/operations/refund/dry-run", {"task_id": "t", "inputs": REFUND, "intent": "i"} | change
        )
        refused.is_problem(422, "invalid", following="fix_request")
        assert pointer in refused.pointers, (change, refused.body)
    assert not Plan.objects.exists()


# --- applied, and told again ----------------------------------------------------------------------------------------


def test_a_commit_writes_what_was_planned_and_says_so(caller):
    planned = address(caller)
    answer = caller.commit("address.update", planned)
    plan = plan_of(planned)
    assert answer.status == 200
    assert list(answer.json) == ["plan_id", "state", "committed_at", "result"]
    assert answer.json["plan_id"] == planned["plan_id"]
    assert answer.json["state"] == "committed"
    assert answer.json["result"] == ADDRESS
    assert parse_instant(answer.json["committed_at"]) == plan.state_changed_at
    assert not answer.is_replayed
    assert address_now() == "2 Harbour Road"
    assert plan.token_sealed is None
    assert events_of(plan) == ["plan.received", "commit.started", "commit.succeeded"]


def test_i66_the_same_key_gets_the_same_status_and_bytes_and_only_the_replay_is_marked(caller, owner_connection):
    planned = address(caller)
    first = caller.commit("address.update", planned, "k-1")
    again = caller.commit("address.update", planned, "k-1")
    let_expire(owner_connection, plan_of(planned))
    late = caller.commit("address.update", planned, "k-1")
    quoted = caller.commit("address.update", planned, '"k-1"')
    assert [one.is_replayed for one in (first, again, late, quoted)] == [False, True, True, True]
    assert {(one.status, one.headers["Content-Type"]) for one in (first, again, late)} == {(200, "application/json")}
    assert len({again.body, late.body, quoted.body}) == 1
    assert json.loads(first.body)["plan_id"] == planned["plan_id"]
    assert events_of(plan_of(planned)).count("commit.succeeded") == 1


def test_the_first_answer_and_its_replay_are_the_same_bytes(caller):
    planned = address(caller)
    assert caller.commit("address.update", planned).body == caller.commit("address.update", planned).body


def test_another_key_on_a_committed_plan_gets_the_stored_answer_too(caller):
    planned = address(caller)
    first, other = caller.commit("address.update", planned, "k-1"), caller.commit("address.update", planned, "k-2")
    assert (other.status, other.body, other.is_replayed) == (200, first.body, True)
    assert events_of(plan_of(planned)) == ["plan.received", "commit.started", "commit.succeeded", "commit.replayed"]


def test_the_door_of_the_plan_and_that_of_the_operation_are_one(caller):
    planned = address(caller)
    first = caller.commit("address.update", planned, "k-1")
    again = caller.commit_plan(planned, "k-1")
    assert (again.status, again.body, again.is_replayed) == (200, first.body, True)
    other = caller.dry_run("address.update", ADDRESS | {"address": "3 New Street"}).json
    caller.commit_plan(other, "k-1").is_problem(422, "key-reused")


def test_i68_i69_a_committed_plan_is_never_written_again_though_its_keys_are_gone(caller, owner_connection):
    planned = address(caller)
    caller.commit("address.update", planned, "k-1")
    Customer.objects.filter(pk="77").update(address="1 Old Lane")
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM plans_idempotencykey")
    owner_connection.execute("SET session_replication_role = origin")
    again = caller.commit("address.update", planned, "k-1")
    assert (again.status, again.is_replayed) == (200, True)
    assert address_now() == "1 Old Lane"


def test_r1_twenty_commits_at_once_write_once_and_agree(caller):
    policy_of(caller.target, approvals=0)
    planned = refund(caller)
    with ThreadPoolExecutor(20) as pool:
        keys = [f"k-{place % 4}" for place in range(20)]
        answers = list(pool.map(lambda key: caller.commit("refund", planned, key), keys))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert sum(not answer.is_replayed for answer in answers) == 1
    assert Refund.objects.get().amount_cents == 20_000
    assert events_of(plan_of(planned)).count("commit.succeeded") == 1


def test_r12_a_commit_and_an_abandonment_at_once_are_one_end(caller):
    with ThreadPoolExecutor(2) as pool:
        for place in range(8):
            planned = caller.dry_run("address.update", ADDRESS | {"address": f"{place} Race Street"}).json
            before = address_now()
            committing = pool.submit(caller.commit, "address.update", planned, f"k-{place}")
            leaving = pool.submit(caller.post, f"/api/v1/plans/{planned['plan_id']}/abandon", {"reason": "task_ended"})
            committed, left = committing.result(), leaving.result()
            state = plan_of(planned).state
            assert (committed.status, state) in ((200, "committed"), (410, "abandoned"))
            assert left.json["plans"][0]["state"] == state
            assert address_now() == (before if state == "abandoned" else f"{place} Race Street")
            assert len(events_of(plan_of(planned))) == (2 if state == "abandoned" else 3)


def test_a_commit_counts_as_its_agents_write(caller):
    planned, rival = address(caller), address(caller, task_id="another-task")
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    theirs = address(other)
    caller.commit("address.update", planned)
    assert caller.get(f"/api/v1/plans/{rival['plan_id']}").json["abandonment"]["reason"] == "inputs_changed"
    assert (plan_of(theirs).state, plan_of(theirs).mark_count) == ("pending", 1)


def test_an_intake_under_way_holds_no_commit_up(caller, owner_connection):
    planned, rival = address(caller), address(caller, task_id="another-task")
    with owner_connection.transaction():
        owner_connection.execute("SELECT 1 FROM plans_agent WHERE id = %s FOR NO KEY UPDATE", [caller.agent.pk])
        started = time.monotonic()
        answer = caller.commit("address.update", planned)
        took = time.monotonic() - started
    assert answer.status == 200
    assert took < 8
    assert abandonment.apply_commit_writes() == 1
    assert plan_of(rival).state == "abandoned"


# --- the world moved, or the promise ended --------------------------------------------------------------------------


def test_where_an_input_changed_it_is_409_with_every_field_and_nothing_is_written(caller):
    policy_of(caller.target, approvals=0)
    planned = refund(caller)
    Invoice.objects.filter(pk="4412").update(refunded_cents=5, total_cents=50_000)
    first = caller.commit("refund", planned, "k-1")
    document = first.is_problem(409, "conflict", following="replan", plan_write="none")
    assert document["plan_created_at"] == planned["created_at"]
    assert document["changed"] == [
        {"target": "invoice/4412", "field": "refunded_cents", "planned": 0, "current": 5},
        {"target": "invoice/4412", "field": "total_cents", "planned": 48_000, "current": 50_000},
    ]
    assert (document["plan_id"], document["plan_state"]) == (planned["plan_id"], "conflicted")
    assert not Refund.objects.exists()
    again = caller.commit("refund", planned, "k-1")
    assert (again.status, again.body, again.is_replayed) == (409, first.body, True)
    Invoice.objects.filter(pk="4412").update(refunded_cents=0, total_cents=48_000)
    assert caller.commit("refund", planned, "k-2").status == 409
    assert events_of(plan_of(planned)) == ["plan.received", "commit.started", "commit.conflicted"]


def test_a_record_that_is_gone_is_a_conflict_too(caller):
    planned = address(caller)
    Invoice.objects.all().delete()
    Customer.objects.all().delete()
    document = caller.commit("address.update", planned).is_problem(409, "conflict")
    assert document["changed"] == [{"target": "customer/77", "field": "exists", "planned": True, "current": False}]


def test_r10_reading_and_unrelated_changes_are_no_conflict(caller):
    planned = address(caller)
    Customer.objects.filter(pk="77").update(name="Ada L.")
    caller.get(f"/api/v1/plans/{planned['plan_id']}")
    assert caller.commit("address.update", planned).status == 200


def test_x21_at_or_past_its_expiry_a_plan_is_410_and_stays_so(caller, owner_connection):
    planned = address(caller)
    let_expire(owner_connection, plan_of(planned))
    first = caller.commit("address.update", planned, "k-1")
    document = first.is_problem(410, "expired", following="replan", plan_write="none")
    assert parse_instant(document["expired_at"]) == plan_of(planned).expires_at
    again = caller.commit("address.update", planned, "k-1")
    assert (again.status, again.body, again.is_replayed) == (410, first.body, True)
    assert nothing_written()
    assert events_of(plan_of(planned)) == ["plan.received", "plan.expired", "plan.abandoned"]


def test_an_abandoned_plan_is_410_with_its_reason(caller):
    planned = address(caller)
    caller.post(f"/api/v1/plans/{planned['plan_id']}/abandon", {"reason": "intent_changed"})
    refused = caller.commit("address.update", planned)
    assert refused.is_problem(410, "abandoned", following="ask", plan_write="none")["reason"] == "intent_changed"
    assert nothing_written()


# --- people ---------------------------------------------------------------------------------------------------------


def test_without_its_approval_a_plan_is_403_with_the_page_where_a_person_decides(caller):
    planned = refund(caller)
    refused = caller.commit("refund", planned)
    document = refused.is_problem(403, "approval-required", following="wait", plan_write="none")
    assert document["review_url"] == planned["review_url"]
    assert nothing_written()
    assert events_of(plan_of(planned)) == ["plan.received"]


def test_a_plan_that_a_person_approved_is_committed_already_and_tells_its_answer(caller):
    planned = refund(caller)
    plan = plan_of(planned)
    approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=shown_digest(plan), fact="20000")
    answer = caller.commit("refund", planned)
    assert (answer.status, answer.is_replayed) == (200, True)
    assert answer.json["result"]["refund_id"] == "4412-20000"
    assert Refund.objects.count() == 1


def test_one_of_two_approvals_is_not_enough(caller):
    Invoice.objects.filter(pk="4412").update(total_cents=200_000)
    planned = caller.dry_run("refund", REFUND | {"amount_cents": 150_000}, intent="refund:1").json
    plan = plan_of(planned)
    approve_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=shown_digest(plan), fact="150000")
    assert Approval.objects.count() == 1
    caller.commit("refund", planned).is_problem(403, "approval-required")
    assert not Refund.objects.exists()


def test_a_rejected_plan_is_403_with_the_reviewers_reason(caller):
    planned = refund(caller)
    plan = plan_of(planned)
    reject_plan(plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=shown_digest(plan), reason="Not this one")
    first = caller.commit("refund", planned)
    assert first.is_problem(403, "rejected", following="stop", plan_write="none")["reason"] == "Not this one"
    assert caller.commit("refund", planned).body == first.body
    assert nothing_written()


# --- token, fingerprint ---------------------------------------------------------------------------------------------


def test_a_token_that_names_no_plan_of_this_agent_is_404_whosever_it_is(caller):
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    theirs = address(other)
    mine = caller.commit("address.update", theirs)
    none = caller.commit("address.update", theirs | {"plan_token": "pt_made_up"})
    mine.is_problem(404, "never-planned", following="check_status", plan_write="none")
    assert mine.body == none.body
    assert nothing_written()
    told = Event.objects.filter(kind="commit.never_planned")
    assert {(event.agent, event.plan_id) for event in told} == {(caller.agent.name, None)}


def test_a_missing_fingerprint_is_428_and_another_ones_is_412_and_the_plan_stays(caller):
    planned = address(caller)
    for missing in (..., "", "  "):
        document = caller.commit("address.update", planned, input_fingerprint=missing).is_problem(
            428, "fingerprint-required", following="fix_request", plan_write="none"
        )
        assert document["plan_id"] == planned["plan_id"]
    for wrong in ("sha256:0", planned["input_fingerprint"].upper(), planned["input_fingerprint"] + " ", "\u00e9"):
        document = caller.commit("address.update", planned, input_fingerprint=wrong).is_problem(
            412, "fingerprint-mismatch", following="read_plan", plan_write="none"
        )
        assert planned["input_fingerprint"] not in json.dumps(document)
    assert kinds_recorded().count("commit.fingerprint_mismatched") == 4
    assert nothing_written()
    assert not IdempotencyKey.objects.exists()
    assert caller.commit("address.update", planned).status == 200


def test_a_plan_id_beside_the_token_must_be_the_tokens(caller):
    planned = address(caller)
    refused = caller.commit("address.update", planned, plan_id="plan_other")
    refused.is_problem(422, "invalid", following="fix_request")
    assert refused.pointers == ["/plan_id"]
    assert nothing_written()
    assert caller.commit("address.update", planned, plan_id=planned["plan_id"]).status == 200


def test_of_plans_with_one_token_at_two_targets_none_is_guessed(caller):
    made = MadeAgent(caller.agent, "", "", "")
    first, second = (
        make_plan(
            made=made,
            target=make_target(),
            plan={"plan_id": f"plan_at_{count}", "plan_token": "pt-one-text", "input_fingerprint": "sha256:1"},
        )
        for count in (1, 2)
    )
    presented = {"plan_token": "pt-one-text", "input_fingerprint": "sha256:1"}
    unsaid = caller.commit("limit.update", presented)
    unsaid.is_problem(422, "invalid", following="fix_request")
    assert unsaid.pointers == ["/plan_id"]
    assert not IdempotencyKey.objects.exists()
    for plan in (first, second):
        found = caller.commit("limit.update", presented, plan_id=plan.plan_id).is_problem(403, "approval-required")
        assert found["plan_id"] == plan.plan_id
        found = caller.commit_plan(presented | {"plan_id": plan.plan_id}).is_problem(403, "approval-required")
        assert found["plan_id"] == plan.plan_id


def test_a_token_of_another_operation_is_422(caller):
    refused = caller.commit("refund", address(caller))
    refused.is_problem(422, "invalid")
    assert refused.pointers == ["/plan_token"]
    assert nothing_written()


def test_a_commit_holds_nothing_but_token_fingerprint_and_plan_id(caller):
    planned = address(caller)
    for change, pointer in (
        ({"inputs": ADDRESS}, "/inputs"),
        ({"approved_by": "alice"}, "/approved_by"),
        ({"plan_token": ...}, "/plan_token"),
        ({"plan_token": None}, "/plan_token"),
        ({"plan_token": ""}, "/plan_token"),
        ({"plan_token": "t" * 4097}, "/plan_token"),
        ({"plan_token": 1}, "/plan_token"),
        ({"input_fingerprint": 1}, "/input_fingerprint"),
        ({"plan_id": None}, "/plan_id"),
    ):
        refused = caller.commit("address.update", planned, **change)
        refused.is_problem(422, "invalid", following="fix_request")
        assert refused.pointers == [pointer]
    assert nothing_written()
    assert not IdempotencyKey.objects.exists()


# --- keys -----------------------------------------------------------------------------------------------------------


def test_i67_a_key_that_is_missing_or_none_is_400_that_names_the_header(caller):
    planned = address(caller)
    for key in (None, "", " ", "\t"):
        document = caller.commit("address.update", planned, key).is_problem(
            400, "key-required", following="fix_request", plan_write="none"
        )
        assert "Idempotency-Key" in document["detail"]
    for key in ("a b", "k,k", "x" * 256, "f" * 8192, '"k', 'k"', '""', '"k"; a=1', b"caf\xe9", "k/1", "'k'"):
        document = caller.commit("address.update", planned, key).is_problem(
            400, "key-invalid", following="fix_request", plan_write="none"
        )
        assert "Idempotency-Key" in document["detail"]
    assert nothing_written()
    assert caller.commit("address.update", planned, "x" * 255).status == 200


def test_i67_two_keys_are_none(caller):
    planned = address(caller)
    body = json.dumps({name: planned[name] for name in ("plan_token", "input_fingerprint")}).encode()
    head = [
        "POST /api/v1/operations/address.update/commit HTTP/1.1",
        f"Authorization: {caller.bearer['Authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Idempotency-Key: k-1",
        "Idempotency-Key: k-2",
        "Connection: close",
    ]
    with raw_connection(caller.site) as (raw, host):
        raw.sendall("\r\n".join([*head, f"Host: {host}", "", ""]).encode() + body)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"/problems/key-invalid" in answer
    assert nothing_written()


def test_i60_the_same_key_with_another_payload_is_422_and_says_what_it_is_bound_to(caller):
    planned = address(caller)
    caller.commit("address.update", planned, "k-1")
    second = caller.dry_run("address.update", ADDRESS | {"address": "3 New Street"}).json
    document = caller.commit("address.update", second, "k-1").is_problem(
        422, "key-reused", following="check_status", plan_write="none"
    )
    assert document["bound_plan_id"] == planned["plan_id"]
    assert address_now() == "2 Harbour Road"
    assert plan_of(second).state == "pending"
    caller.commit("address.update", planned, "k-1", input_fingerprint="sha256:x").is_problem(422, "key-reused")
    assert kinds_recorded().count("commit.key_reused") == 2


def test_i61_a_key_belongs_to_one_agent_and_one_operation(caller):
    policy_of(caller.target, approvals=0)
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    first = caller.commit("address.update", address(caller), "k-1")
    second = caller.commit("refund", refund(caller), "k-1")
    theirs = other.commit("refund", other.dry_run("refund", REFUND, intent="refund:1").json, "k-1")
    assert [answer.status for answer in (first, second, theirs)] == [200, 200, 200]
    assert not any(answer.is_replayed for answer in (first, second, theirs))
    assert len({first.body, second.body, theirs.body}) == 3
    assert Refund.objects.count() == 2


def test_a_key_is_bound_by_a_claim_or_a_final_answer_and_by_nothing_else(caller):
    waiting, planned = refund(caller), address(caller)
    policy_of(caller.target, approvals=0)
    free = caller.dry_run("refund", REFUND, intent="refund:2").json
    assert caller.commit("refund", waiting, "k-1").slug == "approval-required"
    assert caller.commit("refund", free, "k-1", input_fingerprint="sha256:x").slug == "fingerprint-mismatch"
    assert caller.commit("refund", free | {"plan_token": "pt_none"}, "k-1").slug == "never-planned"
    assert caller.commit("refund", free, "k-1", plan_id="plan_other").slug == "invalid"
    fence = Fence.objects.create(
        plan=make_plan("unknown", made=caller.made), target=caller.target, action_target="invoice/4412", scope="*"
    )
    assert caller.commit("refund", free, "k-1").slug == "fenced"
    assert not IdempotencyKey.objects.exists()
    fence.delete()
    assert caller.commit("refund", free, "k-1").status == 200
    assert caller.commit("address.update", planned, "k-1").status == 200
    assert IdempotencyKey.objects.count() == 2


def test_a_409_and_a_410_bind_the_key_too(caller):
    planned = address(caller)
    Customer.objects.filter(pk="77").update(address="9 Elsewhere")
    assert caller.commit("address.update", planned, "k-1").status == 409
    dead = address(caller)
    caller.post(f"/api/v1/plans/{dead['plan_id']}/abandon", {"reason": "task_ended"})
    assert caller.commit("address.update", dead, "k-2").status == 410
    again = address(caller)
    for key, bound in (("k-1", planned), ("k-2", dead)):
        refused = caller.commit("address.update", again, key)
        assert refused.is_problem(422, "key-reused")["bound_plan_id"] == bound["plan_id"]


# --- busy, down, fenced ---------------------------------------------------------------------------------------------


def test_a_fenced_plan_stays_and_may_be_committed_later(caller):
    planned = address(caller)
    holder = make_plan("unknown")
    fence = Fence.objects.create(plan=holder, target=caller.target, action_target="customer/77", scope="*")
    refused = caller.commit("address.update", planned)
    refused.is_problem(423, "fenced", following="wait", plan_write="none")
    assert holder.plan_id.encode() not in refused.body
    assert (plan_of(planned).state, nothing_written()) == ("pending", True)
    fence.delete()
    assert caller.commit("address.update", planned).status == 200


def test_i65_an_operation_that_fails_is_503_with_nothing_written_and_the_same_key_tries_again(caller, owner_connection):
    planned = address(caller)
    with without(owner_connection, "UPDATE", "demo_customer"):
        refused = caller.commit("address.update", planned, "k-1")
    refused.is_problem(503, "unavailable", following="retry_same_key", plan_write="none")
    assert plan_of(planned).state == "pending"
    assert nothing_written()
    assert events_of(plan_of(planned)) == ["plan.received", "commit.started", "commit.unsent"]
    again = caller.commit("address.update", planned, "k-1")
    assert (again.status, again.is_replayed) == (200, False)
    assert address_now() == "2 Harbour Road"


def test_a_database_that_fails_in_mid_commit_is_503_and_promises_nothing(caller, owner_connection):
    planned = address(caller)
    with without(owner_connection, "INSERT", "plans_commit"):
        caller.commit("address.update", planned).is_problem(
            503, "unavailable", following="retry_same_key", plan_write=None
        )
    assert plan_of(planned).state == "pending"
    assert caller.commit("address.update", planned).status == 200


@pytest.mark.slow
def test_i62_while_somebody_else_is_at_the_plan_the_answer_is_202_after_ten_seconds(caller, owner_connection):
    planned = address(caller)
    plan = plan_of(planned)
    with owner_connection.transaction():
        owner_connection.execute("SELECT 1 FROM plans_plan WHERE id = %s FOR UPDATE", [plan.pk])
        started = time.monotonic()
        answer = caller.commit("address.update", planned)
        took = time.monotonic() - started
    assert answer.status == 202, answer.body
    assert answer.json == {"plan_id": plan.plan_id, "state": "committing"}
    assert answer.headers["Location"] == f"/api/v1/plans/{plan.plan_id}?target=billing"
    assert int(answer.headers["Retry-After"]) >= 1
    assert 9 < took < 15
    assert not IdempotencyKey.objects.exists()
    assert nothing_written()
    assert caller.get(answer.headers["Location"]).json["state"] == "pending"


# --- the order of checks --------------------------------------------------------------------------------------------


def test_the_checks_of_a_commit_come_in_the_contracts_order(caller, owner_connection):
    """Each request is wrong in two ways that are neighbours in the contract's list: the first is answered."""
    policy_of(caller.target, approvals=0)
    used = address(caller)
    caller.commit("address.update", used, "k-used")
    Customer.objects.filter(pk="77").update(address="1 Old Lane")
    planned = address(caller, task_id="t-1")
    path = "/api/v1/operations/address.update/commit"

    def slug(**how) -> str:
        return caller.post(path, **how).slug

    good = {name: planned[name] for name in ("plan_token", "input_fingerprint")}
    assert slug(body=b"{") == "malformed"  # form before key
    assert slug(document=good | {"more": 1}) == "invalid"
    assert slug(document=good) == "key-required"
    assert slug(document=good | {"plan_token": "pt_none"}, key="k-used") == "key-reused"  # key before token
    assert slug(document={"plan_token": "pt_none"}, key="k-1") == "never-planned"  # token before fingerprint
    committed = {name: used[name] for name in ("plan_token", "input_fingerprint")}
    assert slug(document=committed | {"input_fingerprint": "x"}, key="k-2") == "fingerprint-mismatch"  # before stored
    let_expire(owner_connection, plan_of(used))
    assert caller.post(path, committed, key="k-2").is_replayed  # stored result before expiry
    policy_of(caller.target, approvals=1)
    late = caller.dry_run("refund", REFUND, intent="refund:late").json
    let_expire(owner_connection, plan_of(late))
    assert caller.commit("refund", late, "k-3").slug == "expired"  # expiry before approval
    waiting = caller.dry_run("refund", REFUND, intent="refund:waiting").json
    holder = make_plan("unknown", made=caller.made)
    for touched in ("invoice/4412", "customer/77"):
        Fence.objects.create(plan=holder, target=caller.target, action_target=touched, scope="*")
    assert caller.commit("refund", waiting, "k-3a").slug == "approval-required"  # approval before fence
    Customer.objects.filter(pk="77").update(address="9 Elsewhere")
    assert caller.commit("address.update", planned, "k-4").slug == "fenced"  # fence before the inputs are read again


def test_a_stranger_is_refused_before_anything_of_the_form_is_read(caller):
    for headers in ({}, {"Authorization": "Bearer pdk_wrong"}, {"Authorization": "Basic x"}):
        response = caller.site.request("POST", "/api/v1/operations/x/commit", headers=headers, body=b"{")
        Answer(response.status, response.headers, response.data).is_problem(401, "unauthenticated")
