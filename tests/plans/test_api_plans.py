"""Own plans and tasks over HTTP (CONTRACT 5.3), and the commit of fed plans whose policy asks for nobody."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from audit.models import Event, Payload
from plans import clock, registry
from plans.commit import Call, carry_out
from plans.instants import format_instant, format_instant_exact, parse_instant
from plans.models import ConflictChange, IdempotencyKey, ObservedWrite, Plan, Task, Wish
from plans.reconcile import find_out
from plans.states import State
from plans.targets.base import Change
from tests.makers import (
    events_of,
    feed_data,
    kinds_recorded,
    make_plan,
    make_target,
    receive,
    reread,
    take_to,
)
from tests.plans.http import Caller, fill_up, let_expire, make_caller, without
from tests.stub_target import (
    Answer,
    Commit,
    DropAfterApplying,
    DropAfterReading,
    Hold,
    StubTarget,
    conflict,
    problem,
)

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def caller(site) -> Caller:
    return make_caller(site)


def path(plan: Plan, door: str = "") -> str:
    return f"/api/v1/plans/{plan.plan_id}{door}"


# --- one plan -------------------------------------------------------------------------------------------------------

ALWAYS = [
    "plan_id", "target", "operation", "task_id", "intent", "state", "created_at", "expires_at", "input_fingerprint",
    "idempotency_key", "review_url",
]  # fmt: skip


def told_of(plan: Plan, site_url: str) -> dict:
    """What every state document holds."""
    return {
        "plan_id": plan.plan_id,
        "target": plan.target.name,
        "operation": plan.operation,
        "task_id": plan.task.task_id,
        "intent": plan.intent,
        "created_at": format_instant(plan.created_at),
        "expires_at": format_instant(plan.expires_at),
        "input_fingerprint": plan.input_fingerprint,
        "idempotency_key": plan.idempotency_key,
        "review_url": f"{site_url}/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/",
    }


@pytest.mark.parametrize("state", [state.value for state in State])
def test_a_plan_is_told_with_what_there_is_to_tell_of_its_state_and_nothing_else(caller, state):
    plan = make_plan(state, made=caller.made, target=caller.target, intent="limit:1", result='{"sum": 1.10}')
    answer = caller.get(path(plan))
    document = answer.json
    ends = {
        "committed": ["result", "committed_at"],
        "conflicted": ["conflict"],
        "abandoned": ["abandonment"],
        "rejected": ["rejection"],
        "refused": ["refusal"],
    }.get(state, [])
    assert answer.status == 200
    assert list(document) == ALWAYS + ends
    assert told_of(plan, caller.site.url).items() <= document.items()
    assert document["state"] == state
    if state == "committed":
        assert b'"result":{"sum": 1.10}' in answer.body
    elif state == "conflicted":
        changed = [{"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}]
        assert document["conflict"] == {"changed": changed, "plan_created_at": format_instant(plan.created_at)}
    elif ends:
        expected = {"abandonment": "task_ended", "rejection": "Not this one", "refusal": "The account is closed."}
        [[name, fact]] = [(name, document[name]) for name in ends]
        assert (list(fact), fact["reason"]) == (["reason", "at"], expected[name])
        assert parse_instant(fact["at"]) == plan.state_changed_at


def test_p41_p45_a_changed_value_is_told_as_it_was_spelled(caller):
    changes = (
        Change("a", "big", "9007199254740992", "9007199254740993"),
        Change("a", "money", "10.1", "10.10"),
        Change("b", "kind", "1", '"1"'),
        Change("b", "gone", None, "null"),
    )
    plan = make_plan("conflicted", made=caller.made, target=caller.target, changes=changes)
    body = caller.get(path(plan)).body
    for text in (b'"planned":9007199254740992,"current":9007199254740993', b'"planned":10.1,"current":10.10'):
        assert text in body
    assert b'"planned":1,"current":"1"' in body
    assert b'{"target":"b","field":"gone","current":null}' in body
    assert ConflictChange.objects.count() == 4


def test_what_replaces_what_is_told_both_ways(caller):
    old = receive(caller.agent, caller.data())
    new = receive(caller.agent, caller.data(replaces=old.plan_id))
    assert caller.get(path(old)).json["replaced_by"] == new.plan_id
    assert caller.get(path(new)).json["replaces"] == old.plan_id


def test_a_plan_past_its_expiry_is_told_as_dead_before_any_sweep(caller, owner_connection):
    plan = receive(caller.agent, caller.data())
    let_expire(owner_connection, plan)
    assert caller.get(path(plan)).json["abandonment"]["reason"] == "expired"
    assert events_of(plan) == ["plan.received", "plan.expired", "plan.abandoned"]


def test_a_claim_that_nobody_settled_in_45_seconds_is_told_as_unknown(caller, owner_connection):
    plan = make_plan("committing", made=caller.made, target=caller.target)
    assert caller.get(path(plan)).json["state"] == "committing"
    owner_connection.execute(
        "UPDATE plans_plan SET claimed_at = claimed_at - interval '46 seconds' WHERE id = %s", [plan.pk]
    )
    assert caller.get(path(plan)).json["state"] == "unknown"


def test_one_id_at_two_targets_needs_the_target(caller):
    other = make_target()
    caller.agent.targets.add(other)
    for target in (caller.target, other):
        receive(caller.agent, feed_data(target.name, plan={"plan_id": "plan_both"}))
    refused = caller.get("/api/v1/plans/plan_both").is_problem(400, "ambiguous-plan", following="fix_request")
    assert refused["plan_id"] == "plan_both"
    assert caller.get("/api/v1/plans/plan_both", target=other.name).json["target"] == other.name
    for door in ("/abandon", "/commit"):
        body = {"reason": "task_ended"} if door == "/abandon" else {"plan_token": "t", "input_fingerprint": "f"}
        caller.post(f"/api/v1/plans/plan_both{door}", body, key="k").is_problem(400, "ambiguous-plan")
    assert caller.post(f"/api/v1/plans/plan_both/abandon?target={other.name}", {"reason": "task_ended"}).status == 200
    assert [plan.state for plan in Plan.objects.order_by("pk")] == ["pending", "abandoned"]


def test_another_agents_plan_is_404_like_one_that_nobody_has(caller):
    plan = make_plan(target=caller.target)
    document = {"plan_token": "t", "input_fingerprint": "f"}
    for query in ("", f"?target={caller.target.name}"):
        there = caller.get(path(plan, query))
        there.is_problem(404, "not-found")
        nobody = caller.get("/api/v1/plans/plan_none" + query)
        assert there.body == nobody.body.replace(b"plan_none", plan.plan_id.encode())
        caller.post(path(plan, "/commit" + query), document, key="k").is_problem(404, "not-found")
    caller.post(path(plan, "/abandon"), {"reason": "task_ended"}).is_problem(404, "not-found")
    ended = caller.post(path(plan, f"/abandon?target={caller.target.name}"), {"reason": "task_ended"})
    assert ended.json == {"plans": []}
    assert caller.post(f"/api/v1/tasks/{plan.task.task_id}/end").json == {"plans": []}
    assert caller.get("/api/v1/plans").json == {"plans": [], "next_cursor": None}
    assert (reread(plan).state, events_of(plan)) == ("pending", ["plan.received"])
    assert Task.objects.get(agent=plan.agent).ended_at is None


@pytest.mark.parametrize("query", ["target=nowhere", "target=", "target=%00", "target=%ff", "target=a%20b"])
def test_a_target_that_is_not_there_is_404(caller, query):
    plan = receive(caller.agent, caller.data())
    caller.get(path(plan, f"?{query}")).is_problem(404, "not-found")
    for door, body in (("/abandon", {"reason": "task_ended"}), ("/commit", {"plan_token": "t"})):
        assert caller.post(path(plan, f"{door}?{query}"), body, key="k").status == 404
    assert reread(plan).state == "pending"
    assert not Wish.objects.exists()


def test_a_parameter_that_nothing_reads_or_that_stands_twice_is_400(caller):
    plan = receive(caller.agent, caller.data())
    for query in ("traget=x", "target=a&target=b", "wait=1&wait=2", "cursor=1"):
        caller.get(path(plan, f"?{query}")).is_problem(400, "malformed", following="fix_request")
    for door in ("/abandon?wait=1", "/commit?wait=1", "/abandon?target=a&target=b"):
        caller.post(path(plan, door), {"reason": "task_ended"}, key="k").is_problem(400, "malformed")
    caller.get("/api/v1/plans?limit=5").is_problem(400, "malformed")
    caller.get("/api/v1/plans?" + "&".join(f"a{n}=1" for n in range(300))).is_problem(400, "malformed")
    assert reread(plan).state == "pending"


# --- waiting --------------------------------------------------------------------------------------------------------


def test_wait_holds_the_answer_until_the_plan_ends_and_no_longer(caller):
    plan = receive(caller.agent, caller.data())
    with ThreadPoolExecutor(1) as pool:
        started = time.monotonic()
        waiting = pool.submit(caller.get, path(plan), wait=25)
        time.sleep(0.7)
        assert not waiting.done()
        caller.post(path(plan, "/abandon"), {"reason": "task_ended"})
        assert waiting.result(15).json["state"] == "abandoned"
        assert 0.6 < time.monotonic() - started < 12


def test_wait_ends_with_its_seconds_and_with_an_expiry(caller):
    living = receive(caller.agent, caller.data())
    dying = receive(caller.agent, caller.data(lifetime=timedelta(seconds=1)))
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(caller.get, path(living), wait=1), pool.submit(caller.get, path(dying), wait=20)
        assert first.result(20).json["state"] == "pending"
        assert second.result(20).json["state"] == "abandoned"
    assert 0.9 < time.monotonic() - started < 12


def test_an_ended_plan_is_not_waited_for(caller):
    plan = make_plan("committed", made=caller.made, target=caller.target)
    started = time.monotonic()
    assert caller.get(path(plan), wait=30).json["state"] == "committed"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("wait", ["31", "-1", "1.5", "", "x", "\u0663", "99999999999", "1e1", "%00", "+5"])
def test_a_wait_that_is_none_is_422(caller, wait):
    refused = caller.get(path(receive(caller.agent, caller.data())), wait=wait)
    refused.is_problem(422, "invalid", following="fix_request")
    assert refused.pointers == ["/wait"]


# --- all plans ------------------------------------------------------------------------------------------------------


def test_own_plans_are_listed_newest_first_by_task_state_and_intent(caller):
    first = receive(caller.agent, caller.data(task_id="t-1", intent="limit:1"))
    second = make_plan("rejected", made=caller.made, target=caller.target, task_id="t-2", intent="limit:2")
    third = receive(caller.agent, caller.data(task_id="t-1"))
    make_plan(target=caller.target, task_id="t-1", intent="limit:1")  # another agent's

    def ids(**query: str) -> list[str]:
        return [plan["plan_id"] for plan in caller.get("/api/v1/plans", **query).json["plans"]]

    assert ids() == [third.plan_id, second.plan_id, first.plan_id]
    assert ids(task_id="t-1") == [third.plan_id, first.plan_id]
    assert ids(state="rejected") == [second.plan_id]
    assert ids(intent="limit:1") == [first.plan_id]
    assert ids(task_id="t-1", state="pending", intent="limit:1") == [first.plan_id]
    assert ids(task_id="t-9") == []
    [listed] = caller.get("/api/v1/plans", intent="limit:1").json["plans"]
    assert listed == caller.get(path(first)).json


def test_the_next_page_begins_where_this_one_ended(caller):
    first = receive(caller.agent, caller.data())
    fill_up(first, 204)
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = caller.get("/api/v1/plans", **({"cursor": cursor} if cursor else {})).json
        seen += [plan["plan_id"] for plan in page["plans"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert pages == 3
    assert seen == [f"more_{place}" for place in reversed(range(204))] + [first.plan_id]


def test_a_search_by_state_finds_what_is_true_before_any_sweep(caller, owner_connection):
    dead, living = receive(caller.agent, caller.data()), receive(caller.agent, caller.data())
    let_expire(owner_connection, dead)
    assert [plan["plan_id"] for plan in caller.get("/api/v1/plans?state=pending").json["plans"]] == [living.plan_id]
    [told] = caller.get("/api/v1/plans?state=abandoned").json["plans"]
    assert (told["plan_id"], told["abandonment"]["reason"]) == (dead.plan_id, "expired")


def test_a_filter_without_a_usable_value_is_422_by_its_name(caller):
    for query, pointer in (
        ("state=done", "/state"),
        ("state=", "/state"),
        ("task_id=a%20b", "/task_id"),
        ("task_id=%00", "/task_id"),
        ("intent=", "/intent"),
        ("cursor=abc", "/cursor"),
        ("cursor=-1", "/cursor"),
        ("cursor=99999999999999999999", "/cursor"),
    ):
        refused = caller.get(f"/api/v1/plans?{query}")
        refused.is_problem(422, "invalid", following="fix_request")
        assert refused.pointers == [pointer]


# --- abandonment, writes, the end of a task -------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["task_ended", "intent_changed", "inputs_changed"])
def test_an_own_plan_is_abandoned_and_may_be_again(caller, reason):
    plan = receive(caller.agent, caller.data())
    first, again = (caller.post(path(plan, "/abandon"), {"reason": reason}) for _ in range(2))
    assert first.status == again.status == 200
    assert first.json == {"plans": [{"plan_id": plan.plan_id, "target": caller.target.name, "state": "abandoned"}]}
    assert first.body == again.body
    assert reread(plan).abandonment.reason == reason
    assert events_of(plan) == ["plan.received", "plan.abandoned"]


def test_w79_an_abandonment_of_what_is_not_known_yet_applies_on_arrival(caller):
    told = caller.post(f"/api/v1/plans/plan_x/abandon?target={caller.target.name}", {"reason": "intent_changed"})
    assert (told.status, told.json) == (200, {"plans": []})
    caller.post("/api/v1/plans/plan_x/abandon?target=nowhere", {"reason": "task_ended"}).is_problem(
        404, "unknown-target"
    )
    assert receive(caller.agent, caller.data(plan={"plan_id": "plan_x"})).state == "abandoned"


def test_a_late_abandonment_finds_a_plan_expired_and_says_that_it_expired(caller, owner_connection):
    plan = receive(caller.agent, caller.data())
    let_expire(owner_connection, plan)
    assert caller.post(path(plan, "/abandon"), {"reason": "task_ended"}).json["plans"][0]["state"] == "abandoned"
    assert reread(plan).abandonment.reason == "expired"


@pytest.mark.parametrize("state", ["committing", "unknown", "committed", "rejected"])
def test_o92_what_is_being_written_or_ended_stays_and_is_told_as_it_is(caller, state):
    plan = make_plan(state, made=caller.made, target=caller.target)
    before = events_of(plan)
    answer = caller.post(path(plan, "/abandon"), {"reason": "inputs_changed"})
    assert (answer.status, answer.json["plans"][0]["state"]) == (200, state)
    assert (reread(plan).state, events_of(plan)) == (state, before)
    assert Wish.objects.exists() == (state in ("committing", "unknown"))


def test_a_reason_is_one_of_three(caller):
    plan = receive(caller.agent, caller.data())
    for body, pointer in (
        ({"reason": "expired"}, "/reason"),
        ({"reason": None}, "/reason"),
        ({}, "/reason"),
        ({"reason": "task_ended", "by": "bob"}, "/by"),
    ):
        refused = caller.post(path(plan, "/abandon"), body)
        refused.is_problem(422, "invalid", following="fix_request")
        assert refused.pointers == [pointer]
    assert reread(plan).state == "pending"


def test_a_write_ends_own_older_plans_marks_those_of_others_and_is_held_once(caller):
    own, theirs = receive(caller.agent, caller.data()), make_plan(target=caller.target)
    at = format_instant_exact(clock.now())
    told = {"target": caller.target.name, "targets": ["ledger/ACC-104"], "at": at}
    first, again = (caller.post("/api/v1/tasks/t-9/writes", told) for _ in range(2))
    assert [plan["plan_id"] for plan in first.json["plans"]] == [own.plan_id]
    assert (again.status, again.json) == (200, {"plans": []})
    assert reread(own).abandonment.reason == "inputs_changed"
    assert reread(theirs).mark_count == 1
    assert ObservedWrite.objects.count() == 1
    assert kinds_recorded().count("write.observed") == 1


def test_a_write_that_says_nothing_usable_is_refused_by_its_place(caller):
    told = {"target": caller.target.name, "targets": ["a"]}
    for change, pointer in (
        ({"at": "2999-01-01T00:00:00Z"}, "/at"),
        ({"at": "yesterday"}, "/at"),
        ({"targets": []}, "/targets"),
        ({"targets": ["", "a"]}, "/targets/0"),
        ({"target": "a b"}, "/target"),
        ({"more": 1}, "/more"),
    ):
        refused = caller.post("/api/v1/tasks/t-1/writes", told | change)
        refused.is_problem(422, "invalid", following="fix_request")
        assert refused.pointers == [pointer]
    caller.post("/api/v1/tasks/t-1/writes", told | {"target": make_target().name}).is_problem(404, "unknown-target")
    assert not ObservedWrite.objects.exists()


def test_the_end_of_a_task_takes_no_body_or_an_empty_object(caller):
    plans = [receive(caller.agent, caller.data(task_id="t-1")) for _ in range(2)]
    ended = caller.post("/api/v1/tasks/t-1/end")
    assert [plan["plan_id"] for plan in ended.json["plans"]] == [plan.plan_id for plan in plans]
    assert {plan["state"] for plan in ended.json["plans"]} == {"abandoned"}
    for body in (b"{}", b" { } "):
        assert caller.post("/api/v1/tasks/t-1/end", body=body).json == {"plans": []}
    caller.post("/api/v1/tasks/t-1/end", body=b'{"x": 1}').is_problem(422, "invalid")
    caller.post("/api/v1/tasks/t-1/end", body=b"[]").is_problem(422, "invalid")
    caller.post("/api/v1/tasks/t-1/end", body=b"{").is_problem(400, "malformed")
    assert kinds_recorded().count("task.ended") == 1
    assert Event.objects.get(kind="task.ended").task_id == "t-1"


# --- fed plans whose policy asks for nobody -------------------------------------------------------------------------


@pytest.fixture
def remote(site, stub_target: StubTarget) -> Caller:
    return make_caller(site, approvals=0, base_url=stub_target.base_url)


def fed(remote: Caller, **changes) -> dict:
    """A fed plan: the `plan` of its feed, token and all."""
    data = remote.data(**changes)
    assert remote.feed(data).status == 201
    return data["plan"]


def plan_of(planned: dict) -> Plan:
    return Plan.objects.select_related("agent", "target", "task", "policy").get(plan_id=planned["plan_id"])


def test_p41_p45_p46_the_target_gets_token_fingerprint_and_the_plans_own_key_and_its_result_comes_back_as_spelled(
    remote, stub_target
):
    spelled = b'{ "sum": 10.10, "big": 9007199254740993, "e": 1e2, "z": null, "a": [1.0] }'
    stub_target.script(Answer(200, spelled, {"Content-Type": "application/json"}, applies=True))
    planned = fed(remote, plan={"input_fingerprint": "sha256:+/= \u00e9"})
    first, again = remote.commit_plan(planned, "k-1"), remote.commit_plan(planned, "k-1")
    plan = plan_of(planned)
    assert (first.status, again.status) == (200, 200)
    assert spelled in first.body
    assert (again.body, again.is_replayed, first.is_replayed) == (first.body, True, False)
    [call] = stub_target.commits
    assert call.json == {"plan_token": planned["plan_token"], "input_fingerprint": "sha256:+/= \u00e9"}
    assert call.key == plan.idempotency_key != "k-1"
    assert spelled in remote.get(path(plan)).body
    assert events_of(plan) == ["plan.received", "commit.started", "commit.succeeded", "commit.replayed"]


def test_r20_feeding_reading_and_listing_send_nothing_to_the_target(remote, stub_target):
    planned = fed(remote)
    remote.get(path(plan_of(planned)))
    remote.get("/api/v1/plans")
    assert stub_target.received == []


def test_x22_a_plan_whose_first_attempt_sent_nothing_is_still_dead_past_its_expiry(
    remote, stub_target, owner_connection
):
    planned = fed(remote)
    stub_target.refuse_connections()
    remote.commit_plan(planned, "k-1").is_problem(503, "unavailable")
    let_expire(owner_connection, plan_of(planned))
    stub_target.listen()
    remote.commit_plan(planned, "k-1").is_problem(410, "expired")
    assert stub_target.received == []


def test_x35_ended_plans_stay_readable_and_listed(caller):
    plans = [make_plan(state, made=caller.made, target=caller.target) for state in ("abandoned", "rejected", "refused")]
    assert [plan["plan_id"] for plan in caller.get("/api/v1/plans").json["plans"]] == [p.plan_id for p in plans[::-1]]


def test_a_fed_plan_that_somebody_has_to_approve_is_403_and_nothing_is_sent(site, stub_target):
    caller = make_caller(site, approvals=1, base_url=stub_target.base_url)
    planned = fed(caller)
    caller.commit_plan(planned).is_problem(403, "approval-required", following="wait", plan_write="none")
    assert stub_target.received == []


def test_the_token_must_be_that_of_the_plan_in_the_address(remote, stub_target):
    one, other = fed(remote), fed(remote)
    refused = remote.commit_plan(one, plan_token=other["plan_token"])
    refused.is_problem(422, "invalid")
    assert refused.pointers == ["/plan_token"]
    remote.commit_plan(one, plan_token="pt_none").is_problem(404, "never-planned")
    remote.commit_plan(one, plan_id=other["plan_id"]).is_problem(422, "invalid")
    assert stub_target.received == []
    assert Plan.objects.pending().count() == 2


def test_a_targets_conflict_is_409_with_what_it_said_and_is_told_again(remote, stub_target):
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    planned = fed(remote)
    first, again = remote.commit_plan(planned, "k-1"), remote.commit_plan(planned, "k-1")
    document = first.is_problem(409, "conflict", following="replan", plan_write="none")
    assert document["changed"] == [{"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}]
    assert document["plan_created_at"] == format_instant(plan_of(planned).created_at)
    assert (again.body, again.is_replayed) == (first.body, True)
    assert (len(stub_target.commits), stub_target.applied) == (1, 0)


def test_a_targets_conflict_that_says_nothing_is_409_all_the_same(remote, stub_target):
    stub_target.script(Answer(409, b"gone"))
    document = remote.commit_plan(fed(remote)).is_problem(409, "conflict", following="replan", plan_write="none")
    assert document["changed"] == []


def test_a_target_that_says_no_is_422_with_its_words(remote, stub_target):
    stub_target.script(problem(422, "The account is closed."))
    planned = fed(remote)
    first, again = remote.commit_plan(planned, "k-1"), remote.commit_plan(planned, "k-1")
    document = first.is_problem(422, "refused", following="stop", plan_write="none")
    assert document["detail"] == "The account is closed."
    assert (again.body, again.is_replayed, len(stub_target.commits)) == (first.body, True, 1)


def test_a_target_that_says_too_late_is_410(remote, stub_target):
    stub_target.script(problem(410, "Too late."))
    planned = fed(remote)
    document = remote.commit_plan(planned).is_problem(410, "expired", following="replan", plan_write="none")
    assert parse_instant(document["expired_at"]) == plan_of(planned).expires_at


def test_i65_a_refused_connection_sent_nothing_and_the_same_key_is_a_real_second_attempt(remote, stub_target):
    planned = fed(remote)
    stub_target.refuse_connections()
    remote.commit_plan(planned, "k-1").is_problem(503, "unavailable", following="retry_same_key", plan_write="none")
    assert (plan_of(planned).state, events_of(plan_of(planned))[-1]) == ("pending", "commit.unsent")
    stub_target.listen()
    again = remote.commit_plan(planned, "k-1")
    assert (again.status, again.is_replayed, stub_target.applied) == (200, False, 1)
    assert set(stub_target.calls_per_key()) == {plan_of(planned).idempotency_key}


@pytest.mark.parametrize(
    "behaviour",
    [DropAfterApplying(), DropAfterReading(), problem(502), Answer(200, b"<h1>ok</h1>")],
    ids=["applied and dropped", "dropped", "502", "200 without JSON"],
)
def test_i59_u83_an_outcome_that_nobody_knows_is_504_and_no_retry_sends_another_key(remote, stub_target, behaviour):
    stub_target.script(behaviour)
    planned = fed(remote)
    plan = plan_of(planned)
    answers = [remote.commit_plan(planned, key) for key in ("k-1", "k-1", "k-2")]
    for answer in answers:
        document = answer.is_problem(504, "outcome-unknown", following="poll", plan_write="possible")
        assert (document["plan_id"], document["plan_state"]) == (plan.plan_id, "unknown")
        assert answer.headers["Location"] == f"/api/v1/plans/{plan.plan_id}?target={remote.target.name}"
        assert not answer.is_replayed
    assert set(stub_target.calls_per_key()) == {plan.idempotency_key}
    assert stub_target.applied <= 1
    assert remote.get(answers[0].headers["Location"]).json["state"] == "unknown"


def test_once_an_unknown_outcome_is_found_out_the_same_key_gets_the_stored_answer(remote, stub_target):
    stub_target.script(DropAfterApplying())
    planned = fed(remote)
    remote.commit_plan(planned, "k-1").is_problem(504, "outcome-unknown")
    find_out(plan_pk=plan_of(planned).pk)
    answer = remote.commit_plan(planned, "k-1")
    assert (answer.status, answer.is_replayed, answer.json["state"]) == (200, True, "committed")
    assert stub_target.applied == 1


def test_a_fenced_plan_is_423_until_the_one_in_its_way_is_known(remote, stub_target):
    stub_target.script(DropAfterReading())
    first, second = fed(remote), fed(remote)
    remote.commit_plan(first, "k-1").is_problem(504, "outcome-unknown")
    document = remote.commit_plan(second, "k-2").is_problem(423, "fenced", following="wait", plan_write="none")
    assert document["fenced_by"] == first["plan_id"]
    assert not IdempotencyKey.objects.filter(key="k-2").exists()
    assert len(stub_target.commits) == 1


@pytest.mark.slow
def test_i62_an_attempt_under_way_is_202_after_ten_seconds_and_one_call(remote, stub_target):
    hold = Hold(until=threading.Event(), reached=threading.Event())
    stub_target.script(hold)
    planned = fed(remote)
    plan = plan_of(planned)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(remote.commit_plan, planned, "k-1")
        assert hold.reached.wait(10)
        started = time.monotonic()
        others = [pool.submit(remote.commit_plan, planned, key) for key in ("k-1", "k-2")]
        for other in others:
            answer = other.result(30)
            assert (answer.status, answer.json) == (202, {"plan_id": plan.plan_id, "state": "committing"})
            assert answer.headers["Location"] == f"/api/v1/plans/{plan.plan_id}?target={remote.target.name}"
            assert int(answer.headers["Retry-After"]) >= 1
        assert 9 < time.monotonic() - started < 16
        assert remote.get(path(plan)).json["state"] == "committing"
        hold.until.set()
        assert first.result(20).status == 200
    assert (len(stub_target.commits), stub_target.applied) == (1, 1)
    assert remote.commit_plan(planned, "k-2").is_replayed


def test_who_waits_less_than_ten_seconds_gets_the_outcome_of_the_attempt_under_way(remote, stub_target):
    hold = Hold(until=threading.Event(), reached=threading.Event(), then=Commit(result={"entry": "L-1"}))
    stub_target.script(hold)
    planned = fed(remote)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(remote.commit_plan, planned, "k-1")
        assert hold.reached.wait(10)
        second = pool.submit(remote.commit_plan, planned, "k-1")
        time.sleep(0.5)
        assert not second.done()
        hold.until.set()
        assert first.result(20).body == second.result(20).body
        assert (first.result().is_replayed, second.result().is_replayed) == (False, True)
    assert stub_target.applied == 1


def test_x21_at_or_past_its_expiry_nothing_is_sent(remote, stub_target, owner_connection):
    planned = fed(remote)
    let_expire(owner_connection, plan_of(planned))
    remote.commit_plan(planned).is_problem(410, "expired", following="replan", plan_write="none")
    assert stub_target.received == []


@pytest.mark.parametrize("change", ["disabled", "repointed"])
def test_r9_a_plan_whose_target_is_gone_or_elsewhere_is_withdrawn_and_nothing_is_sent(remote, stub_target, change):
    planned = fed(remote)
    with StubTarget() as elsewhere:
        if change == "disabled":
            registry.disable_target(name=remote.target.name)
        else:
            registry.set_target(name=remote.target.name, base_url=elsewhere.base_url)
        refused = remote.commit_plan(planned)
        assert refused.is_problem(410, "abandoned", following="ask", plan_write="none")["reason"] == "withdrawn"
        assert stub_target.received == elsewhere.received == []


def test_a_wish_kept_while_an_attempt_ran_is_carried_out_where_nothing_was_sent(remote, stub_target):
    planned = fed(remote)
    plan = plan_of(planned)
    stub_target.refuse_connections()
    take_to(plan, State.COMMITTING, person=None, reason=None, changes=(), result=None)
    remote.post(path(plan, "/abandon"), {"reason": "task_ended"})
    assert Wish.objects.count() == 1
    carry_out(Call(plan.pk, plan.commits.get().pk, time.monotonic()))
    assert reread(plan).abandonment.reason == "task_ended"
    assert remote.commit_plan(planned).is_problem(410, "abandoned")["reason"] == "task_ended"


@pytest.mark.slow
def test_p127_p138_the_token_is_in_no_event_no_answer_and_no_log(make_site, stub_target, owner_connection, capfd):
    """A site of its own, so that its log can be read: every outcome, with a token that is looked for afterwards."""
    site = make_site(LOG_LEVEL="DEBUG")
    caller = make_caller(site, approvals=0, base_url=stub_target.base_url)
    token = "tt-watched-token-7f3a"
    bodies: list[bytes] = []
    for place in range(5):
        watched = token + "x" * place
        changed = [{"target": watched, "field": watched, "planned": watched, "current": {watched: [watched]}}]
        stub_target.script(
            [
                Answer(200, {"you_sent": watched, "deep": [{watched: 1}]}, applies=True),
                Answer(409, {"changed": changed, "detail": watched}),
                problem(422, f"I know {watched}."),
                problem(410, watched),
                Answer(500, watched.encode()),
            ][place]
        )
        actions = [{"op": "update", "target": f"ledger/{place}", "field": "limit", "to": 1}]
        data = caller.data(plan={"plan_token": watched, "actions": actions})
        bodies += [caller.feed(data).body, caller.feed(data).body]
        bodies.append(caller.commit_plan(data["plan"], f"k-{place}", input_fingerprint="x").body)
        bodies.append(caller.commit_plan(data["plan"], f"k-{place}").body)
        bodies.append(caller.commit_plan(data["plan"], f"k-{place}").body)
        bodies.append(caller.get(f"/api/v1/plans/{data['plan']['plan_id']}").body)
    bodies.append(caller.deliver(b'{"type": "%s"}' % token.encode()).body)
    bodies.append(caller.commit_plan(data["plan"], "k", plan_token=token + "none").body)
    with without(owner_connection, "INSERT", "plans_plan"):
        bodies.append(caller.feed(caller.data(plan={"plan_token": token + "y"})).body)
    site.process.terminate()
    site.process.wait(20)
    log = "".join(capfd.readouterr())
    assert [body for body in bodies if token.encode() in body] == []
    assert "the database failed" in log
    assert token not in log
    assert not Payload.objects.filter(body__contains=token).exists()
    assert json.loads(bodies[3])["result"]["you_sent"] == "[plan token]"
