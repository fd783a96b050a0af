"""The feed over HTTP: every answer of CONTRACT 5.1, the order of its checks, and what a delivery's id is bound by."""

import gzip
import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from audit.models import Event, Payload
from plans import clock, registry
from plans.instants import format_instant_exact
from plans.models import AgentSecret, Delivery, ObservedWrite, Plan, Wish
from plans.signatures import make_secret, parse_secret, sign
from plans.states import State
from tests.makers import (
    envelope,
    events_of,
    feed_data,
    kinds_recorded,
    make_agent,
    make_plan,
    make_target,
    number,
    receive,
    reread,
    take_to,
)
from tests.plans.http import (
    Answer,
    Caller,
    digest_of,
    fill_up,
    keep_to_the_rules,
    let_expire,
    make_caller,
    new_id,
    raw_connection,
    send,
    signed,
    without,
)

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def caller(site) -> Caller:
    return make_caller(site)


def nothing_was_recorded() -> bool:
    return not Plan.objects.exists() and "plan.received" not in kinds_recorded()


# --- recorded, and known already ------------------------------------------------------------------------------------


def test_a_feed_with_every_member_is_201_and_on_record(caller):
    data = caller.data(
        summary="Raise the limit",
        evidence=[{"tool": "ledger.lookup", "note": "asked by phone", "url": "https://ledger.example/ACC-104"}],
        intent="limit:ACC-104",
        replaces="plan_before",
        created_at=format_instant_exact(clock.now()),
    )
    answer = caller.feed(data)
    plan = Plan.objects.get()
    assert answer.status == 201
    assert answer.json == {
        "plan_id": data["plan"]["plan_id"],
        "target": caller.target.name,
        "state": "pending",
        "review_url": f"{caller.site.url}/plans/{caller.agent.name}/{caller.target.name}/{plan.plan_id}/",
        "idempotency_key": plan.idempotency_key,
    }
    assert (plan.intent, plan.replaces, plan.summary) == ("limit:ACC-104", "plan_before", "Raise the limit")
    assert events_of(plan) == ["plan.received"]
    assert Event.objects.get(plan_id=plan.plan_id).request_id == answer.headers["X-Request-Id"]


def test_the_same_delivery_again_is_200_with_the_same_bytes_and_no_second_event(caller):
    body = envelope(caller.data())
    first = caller.deliver(body, webhook_id="msg_same")
    again = caller.deliver(body, webhook_id="msg_same")
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    assert events_of(Plan.objects.get()) == ["plan.received"]


def test_equal_data_in_another_order_under_another_id_is_the_same_plan_in_its_present_state(caller):
    data = caller.data()
    caller.feed(data)
    caller.post(f"/api/v1/plans/{data['plan']['plan_id']}/abandon", {"reason": "task_ended"})
    turned = {name: data[name] for name in reversed(data)}
    turned["plan"] = {name: data["plan"][name] for name in reversed(data["plan"])}
    again = caller.feed(turned)
    assert (again.status, again.json["state"]) == (200, "abandoned")
    assert Plan.objects.count() == 1


def test_an_equal_redelivery_past_the_expiry_is_200_and_says_that_the_plan_is_dead(caller, owner_connection):
    body = envelope(caller.data())
    caller.deliver(body, webhook_id="msg_late")
    plan = Plan.objects.get()
    let_expire(owner_connection, plan)
    again = caller.deliver(body, webhook_id="msg_late")
    assert (again.status, again.json["state"]) == (200, "abandoned")
    assert events_of(plan) == ["plan.received", "plan.expired", "plan.abandoned"]


def test_a_number_written_otherwise_is_not_equal_data(caller):
    text = json.dumps(caller.data(inputs={"amount": "PLACE"}))
    assert caller.deliver(envelope_of(text.replace('"PLACE"', "1.10"))).status == 201
    caller.deliver(envelope_of(text.replace('"PLACE"', "1.1"))).is_problem(422, "plan-id-taken")


def test_a_plan_that_is_dead_on_arrival_is_201_and_says_so(caller):
    caller.feed({"plan_id": "plan_x", "target": caller.target.name, "reason": "inputs_changed"}, "plan.abandoned")
    answer = caller.feed(caller.data(plan={"plan_id": "plan_x"}))
    assert (answer.status, answer.json["state"]) == (201, "abandoned")


def envelope_of(data_text: str, kind: str = "plan.created") -> bytes:
    """A webhook body around JSON text."""
    return envelope("PLACE", kind).replace(b'"PLACE"', data_text.encode())


# --- who is asking --------------------------------------------------------------------------------------------------


def test_one_answer_for_every_reason_an_unknown_agent_included(caller):
    body = envelope(caller.data())
    path = f"/webhooks/agent-of-tomorrow-{number()}"
    right = signed(caller.made.webhook_secret, body)
    unknown = keep_to_the_rules(send(caller.site, "POST", path, headers=right, body=body))
    made = make_agent(caller.target, name=path.rpartition("/")[2])
    now = int(time.time())
    wrong = [
        signed(make_secret().reveal(), body),
        signed(made.webhook_secret, body + b" "),
        signed(made.webhook_secret, body, timestamp=now - 301),
        signed(made.webhook_secret, body, webhook_timestamp=str(now * 1000)),
        signed(made.webhook_secret, body, webhook_id="a.b", webhook_signature="v1,AAAA"),
        {},
    ]
    answers = [send(caller.site, "POST", path, headers=headers, body=body) for headers in wrong]
    registry.disable_agent(name=made.agent.name)
    answers.append(send(caller.site, "POST", path, headers=signed(made.webhook_secret, body), body=body))
    assert {answer.body for answer in answers} == {unknown.body}
    assert {named(answer) for answer in answers} == {named(unknown)}
    unknown.is_problem(401, "bad-signature", plan_write=None)
    assert nothing_was_recorded()


def named(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Status and headers, without what differs between any two answers."""
    told = {name.lower(): value for name, value in answer.headers.items()}
    del told["x-request-id"], told["date"]
    return (("status", str(answer.status)), *sorted(told.items()))


def test_w70_the_signature_is_over_the_bytes_as_sent(caller):
    data = json.dumps(caller.data(summary="PLACE")).replace('"PLACE"', r'"a\u001B\u00e9"')
    body = b'{ "type" :"plan.created",\n  "timestamp": "2026-03-14T09:31:12Z",\t"data" : %s }\n' % data.encode()
    headers = signed(caller.made.webhook_secret, body)
    flipped = body.replace(b'{ "type"', b'{  "type"')
    path = f"/webhooks/{caller.agent.name}"
    send(caller.site, "POST", path, headers=headers, body=flipped).is_problem(401, "bad-signature")
    assert nothing_was_recorded()
    assert send(caller.site, "POST", path, headers=headers, body=body).status == 201
    assert Plan.objects.get().summary == "a\x1b\u00e9"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"content_type": "application/json; charset=utf-8"}, 201),
        ({"content_type": 'Application/JSON;charset="UTF-8"'}, 201),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data; boundary=x"}, 415),
        ({"content_type": "application/json; charset=latin-1"}, 415),
        ({"content_type": "application/problem+json"}, 415),
        ({"content_type": None}, 415),
    ],
    ids=lambda value: str(value.get("content_type")) if isinstance(value, dict) else str(value),
)
def test_w71_whatever_the_type_the_answer_is_about_the_type_and_never_csrf(caller, how, expected):
    answer = caller.feed(**how)
    assert answer.status == expected
    if expected == 415:
        answer.is_problem(415, "not-json", following="fix_request", plan_write=None)
        assert nothing_was_recorded()


def test_w71_a_chunked_body_is_read(caller):
    body = envelope(caller.data())
    headers = signed(caller.made.webhook_secret, body)
    pieces = iter([body[:7], body[7:300], body[300:]])
    answer = send(caller.site, "POST", f"/webhooks/{caller.agent.name}", headers=headers, body=pieces, chunked=True)
    assert answer.status == 201


def test_w71_a_compressed_body_is_415_once_its_signature_was_checked(caller):
    body = gzip.compress(envelope(caller.data()))
    caller.deliver(body, Content_Encoding="gzip").is_problem(415, "not-json")
    caller.deliver(body, Content_Encoding="gzip", webhook_signature="v1,AAAA").is_problem(401, "bad-signature")
    assert nothing_was_recorded()


def test_a_timestamp_within_five_minutes_is_fresh(caller):
    for off in (-299, 298):
        assert caller.feed(timestamp=int(time.time()) + off).status == 201


def test_w72_a_stale_or_strange_timestamp_is_401(caller):
    now = int(time.time())
    body = envelope(caller.data())
    stamps = [now - 360, now - 305, now + 305, now * 1000, "abc", "", "1e9", "-5", f"+{now}", f"0{now}", f"{now}.0"]
    for stamp in stamps:
        digest = digest_of(caller.made.webhook_secret, "msg_72", str(stamp), body)
        answer = caller.deliver(body, webhook_id="msg_72", webhook_timestamp=str(stamp), webhook_signature=digest)
        answer.is_problem(401, "bad-signature")
    caller.deliver(body, webhook_timestamp=...).is_problem(401, "bad-signature")
    assert nothing_was_recorded()


def test_w72_the_timestamp_is_under_the_signature(caller):
    now = int(time.time())
    caller.feed(timestamp=now, webhook_timestamp=str(now + 1)).is_problem(401, "bad-signature")


def test_w74_a_delivery_that_failed_inside_is_not_remembered_and_the_next_try_counts(caller, owner_connection):
    body = envelope(caller.data())
    with without(owner_connection, "INSERT", "plans_plan"):
        failed = caller.deliver(body, webhook_id="msg_74")
    failed.is_problem(503, "unavailable", plan_write=None)
    assert nothing_was_recorded()
    assert not Delivery.objects.exists()
    assert caller.deliver(body, webhook_id="msg_74").status == 201
    assert caller.deliver(body, webhook_id="msg_74").status == 200
    assert Plan.objects.count() == 1


def test_w76_one_right_signature_among_several_is_enough_and_unknown_versions_are_passed_over(caller):
    body = envelope(caller.data())
    now = int(time.time())
    right = sign(parse_secret(caller.made.webhook_secret), "msg_76", now, body)
    wrong = sign(make_secret(), "msg_76", now, body)
    several = f"v2,whatever {wrong} v1a,AAAA {right}"
    assert caller.deliver(body, webhook_id="msg_76", timestamp=now, webhook_signature=several).status == 201
    caller.deliver(body, webhook_id="msg_76", timestamp=now, webhook_signature=f"v2,{right[3:]}").is_problem(
        401, "bad-signature"
    )


def test_w76_two_secrets_live_during_a_rotation_and_the_third_ends_the_first(caller):
    first = caller.made
    second = registry.rotate_agent(name=caller.agent.name)
    for secret in (first.webhook_secret, second.webhook_secret):
        body = envelope(caller.data())
        answer = send(caller.site, "POST", f"/webhooks/{caller.agent.name}", headers=signed(secret, body), body=body)
        assert answer.status == 201
    registry.rotate_agent(name=caller.agent.name)
    caller.feed().is_problem(401, "bad-signature")


def test_w78_an_odd_signature_header_is_the_same_401(caller):
    body = envelope(caller.data())
    plain = caller.deliver(body, webhook_signature="v1,AAAA")
    for odd in (b"v1,\xe9", b"v1," + b"A" * 65_536, b"", b" ", b"v1", b"nocomma", b"v1,", b"v1,A B", ...):
        answer = caller.deliver(body, webhook_signature=odd)
        answer.is_problem(401, "bad-signature")
        assert answer.body == plain.body
    assert nothing_was_recorded()


def test_w82_without_a_live_secret_nothing_passes(caller):
    AgentSecret.objects.filter(agent=caller.agent).update(retired_at=clock.now())
    caller.feed().is_problem(401, "bad-signature")
    assert nothing_was_recorded()


def test_i67_a_webhook_id_that_is_none_is_401(caller):
    for webhook_id in ("", " ", "a.b", "x" * 129, "f" * 8192, "\xe9", "a b", "a/b"):
        caller.feed(webhook_id=webhook_id).is_problem(401, "bad-signature")
    assert nothing_was_recorded()


def test_an_agents_name_that_no_agent_can_have_is_the_same_401(caller):
    body = envelope(caller.data())
    for name in ("caf%C3%A9", "a%00b", "%ff", "x" * 129, "a%20b", "-a", "a%2Fb", "a%0A"):
        headers = signed(caller.made.webhook_secret, body)
        answer = keep_to_the_rules(send(caller.site, "POST", f"/webhooks/{name}", headers=headers, body=body))
        assert answer.slug == ("not-found" if name == "a%2Fb" else "bad-signature")


def test_what_a_stranger_sends_is_listed_sixty_times_a_minute_under_no_name_and_then_counted(caller):
    for _ in range(64):
        send(caller.site, "POST", f"/webhooks/nobody-{number()}", headers={}, body=b"{}")
    rows = list(Event.objects.filter(kind="webhook.rejected"))
    minutes = [row.at.replace(second=0, microsecond=0) for row in rows]
    assert all(minutes.count(minute) <= 60 for minute in minutes)
    assert len(rows) == 60 or len(set(minutes)) > 1
    assert {row.agent for row in rows} == {None}


# --- not registered, not this agent's -------------------------------------------------------------------------------


def test_a_target_that_is_not_this_agents_is_404_whoever_elses_it_is(caller):
    theirs, gone = make_target(), make_target()
    make_agent(theirs)
    caller.agent.targets.add(gone)
    registry.disable_target(name=gone.name)
    answers = [caller.feed(feed_data(name)) for name in (theirs.name, gone.name, "nowhere")]
    assert {answer.body for answer in answers} == {answers[0].body}
    answers[0].is_problem(404, "unknown-target", following="ask")
    for kind, data in (
        ("plan.abandoned", {"plan_id": "plan_1", "target": theirs.name, "reason": "task_ended"}),
        ("write.observed", {"task_id": "t", "target": theirs.name, "targets": ["a"]}),
    ):
        caller.feed(data, kind).is_problem(404, "unknown-target")
    assert nothing_was_recorded()


def test_an_operation_that_the_target_was_not_registered_with_is_404(site):
    caller = make_caller(site, operations=["refund"])
    caller.feed().is_problem(404, "unknown-operation", following="fix_request")
    assert nothing_was_recorded()
    assert caller.feed(caller.data(operation="refund")).status == 201


def test_a_404_is_worth_a_retry_of_the_same_delivery(caller):
    later = f"target-of-tomorrow-{number()}"
    body = envelope(feed_data(later))
    caller.deliver(body, webhook_id="msg_404").is_problem(404, "unknown-target")
    caller.agent.targets.add(make_target(later))
    assert caller.deliver(body, webhook_id="msg_404").status == 201


def test_a_paused_agent_feeds_nothing_new_and_may_deliver_the_same_later(caller):
    body = envelope(caller.data())
    registry.pause_agent(name=caller.agent.name)
    caller.deliver(body, webhook_id="msg_paused").is_problem(403, "agent-paused", following="ask")
    assert nothing_was_recorded()
    registry.pause_agent(name=caller.agent.name, is_paused=False)
    assert caller.deliver(body, webhook_id="msg_paused").status == 201


def test_beyond_200_pending_plans_is_429_and_worth_a_retry(caller):
    plan = receive(caller.agent, caller.data())
    fill_up(plan, 199)
    body = envelope(caller.data())
    refused = caller.deliver(body, webhook_id="msg_429")
    refused.is_problem(429, "too-many", following="wait")
    assert Plan.objects.count() == 200
    caller.post(f"/api/v1/plans/{plan.plan_id}/abandon", {"reason": "task_ended"})
    assert caller.deliver(body, webhook_id="msg_429").status == 201


# --- 422: taken -----------------------------------------------------------------------------------------------------


def test_plan_id_taken(caller):
    data = caller.data()
    caller.feed(data)
    refused = caller.feed(data | {"summary": "another"}).is_problem(422, "plan-id-taken", following="stop")
    assert refused["plan_id"] == data["plan"]["plan_id"]
    assert (Plan.objects.count(), Plan.objects.get().summary) == (1, "")


@pytest.mark.parametrize("state", ["committing", "unknown", "committed"])
def test_intent_taken_while_a_plan_of_it_is_or_may_be_written(caller, state):
    held = make_plan(state, made=caller.made, target=caller.target, intent="limit:9")
    refused = caller.feed(caller.data(intent="limit:9")).is_problem(422, "intent-taken", following="check_status")
    assert refused["plan_id"] == held.plan_id
    assert Plan.objects.get().state == state


def test_a_pending_plan_of_the_intent_is_superseded_and_another_agents_intent_is_its_own(caller):
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    first = caller.feed(caller.data(intent="limit:9")).json["plan_id"]
    assert caller.feed(caller.data(intent="limit:9")).status == 201
    assert other.feed(other.data(intent="limit:9")).status == 201
    assert Plan.objects.get(plan_id=first).abandonment.reason == "superseded"
    assert Plan.objects.pending().count() == 2


def test_token_taken_names_nobody(caller):
    other = make_plan(target=caller.target, plan={"plan_token": "tt-taken-token-text"})
    answer = caller.feed(caller.data(plan={"plan_token": "tt-taken-token-text"}))
    answer.is_problem(422, "token-taken", following="stop")
    for secret in (other.plan_id, other.agent.name, "tt-taken-token-text"):
        assert secret.encode() not in answer.body
    assert Plan.objects.get() == other


@pytest.mark.parametrize("state", ["committing", "unknown", "committed"])
def test_not_replaceable(caller, state):
    old = make_plan(state, made=caller.made, target=caller.target)
    caller.feed(caller.data(replaces=old.plan_id)).is_problem(422, "not-replaceable", following="check_status")
    assert Plan.objects.get().state == state


def test_another_agents_plan_can_not_be_replaced(caller):
    theirs = make_plan(target=caller.target)
    assert caller.feed(caller.data(replaces=theirs.plan_id)).status == 201
    assert reread(theirs).state == "pending"


def test_i60_a_known_webhook_id_with_other_bytes_is_422_and_the_second_plan_is_not_stored(caller):
    caller.feed(webhook_id="msg_60")
    caller.feed(webhook_id="msg_60").is_problem(422, "delivery-reused", following="stop")
    assert Plan.objects.count() == 1


def test_i61_webhook_ids_belong_to_one_agent(caller):
    other = Caller(caller.site, make_agent(caller.target), caller.target)
    assert caller.feed(webhook_id="k-1").status == 201
    assert other.feed(webhook_id="k-1").status == 201
    end = {"plan_id": "p-2", "target": caller.target.name, "reason": "task_ended"}
    caller.feed(end, "plan.abandoned", webhook_id="k-1").is_problem(422, "delivery-reused")
    assert not Wish.objects.exists()


def test_r15_one_delivery_ten_times_at_once_is_one_plan(caller):
    with ThreadPoolExecutor(10) as pool:
        for _ in range(4):
            body = envelope(caller.data())
            webhook_id = new_id()
            answers = list(pool.map(lambda _, b=body, w=webhook_id: caller.deliver(b, webhook_id=w), range(10)))
            assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
            assert len({answer.body for answer in answers}) == 1
            [plan] = Plan.objects.filter(plan_id=answers[0].json["plan_id"])
            assert events_of(plan) == ["plan.received"]


# --- what binds a delivery's id -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ({"body": b'{"type": '}, 400),
        ({"content_type": "text/plain"}, 415),
        ({"body": b"[]"}, 422),
        ({"data": {"operation": ...}}, 422),
        ({"data": {"target": "billing"}}, 404),
    ],
    ids=["400", "415", "422 shape", "422 member", "404"],
)
def test_a_final_refusal_binds_the_id_and_a_404_does_not(caller, first, status):
    body = first.get("body") or envelope(caller.data(**first.get("data", {})))
    how = {"content_type": first["content_type"]} if "content_type" in first else {}
    assert caller.deliver(body, webhook_id="msg_bound", **how).status == status
    after = caller.feed(webhook_id="msg_bound")
    if status == 404:
        assert after.status == 201
    else:
        after.is_problem(422, "delivery-reused")
        assert nothing_was_recorded()


def test_a_bad_signature_binds_nothing(caller):
    caller.feed(webhook_id="msg_401", webhook_signature="v1,AAAA").is_problem(401, "bad-signature")
    assert caller.feed(webhook_id="msg_401").status == 201


def test_the_id_of_an_equal_redelivery_is_bound_too(caller):
    data = caller.data()
    caller.feed(data, webhook_id="msg_one")
    assert caller.feed(data, webhook_id="msg_two").status == 200
    caller.feed(webhook_id="msg_two").is_problem(422, "delivery-reused")


def test_a_refused_delivery_gets_the_same_refusal_again(caller):
    body = envelope(caller.data(intent="not an id"))
    answers = [caller.deliver(body, webhook_id="msg_422") for _ in range(2)]
    assert answers[0].body == answers[1].body
    answers[0].is_problem(422, "invalid")


# --- the order of checks --------------------------------------------------------------------------------------------


def test_size_comes_before_the_signature(caller):
    body = b'"' + b"x" * 1024 * 1024 + b'"'
    refused = caller.deliver(body, webhook_signature="v1,AAAA", Connection="close")
    refused.is_problem(413, "too-large", following="fix_request")


def test_the_signature_comes_before_the_delivery_id_and_the_json(caller):
    caller.feed(webhook_id="msg_used")
    caller.deliver(b"{", webhook_id="msg_used", webhook_signature="v1,AAAA").is_problem(401, "bad-signature")


def test_the_delivery_id_comes_before_type_and_json(caller):
    caller.feed(webhook_id="msg_used")
    caller.deliver(b"{", webhook_id="msg_used").is_problem(422, "delivery-reused")
    caller.feed(webhook_id="msg_used", content_type="text/plain").is_problem(422, "delivery-reused")


def test_the_json_comes_before_an_equal_redelivery(caller):
    data = caller.data()
    caller.feed(data)
    body = envelope(data)
    caller.deliver(body[:-1] + b',"type":"x"}').is_problem(400, "malformed")
    caller.deliver(body[:-1] + b',"more":1}').is_problem(422, "invalid")


def test_an_equal_redelivery_comes_before_validation(caller, owner_connection):
    data = caller.data()
    caller.feed(data)
    let_expire(owner_connection, Plan.objects.get())
    registry.pause_agent(name=caller.agent.name)
    assert caller.feed(data).status == 200


# --- the other three kinds of delivery ------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["task_ended", "intent_changed", "inputs_changed"])
def test_an_abandonment_ends_a_pending_plan_and_may_be_repeated(caller, reason):
    plan = receive(caller.agent, caller.data())
    told = {"plan_id": plan.plan_id, "target": caller.target.name, "reason": reason}
    first, again = caller.feed(told, "plan.abandoned"), caller.feed(told, "plan.abandoned")
    assert first.status == again.status == 200
    expected = {"plans": [{"plan_id": plan.plan_id, "target": caller.target.name, "state": "abandoned"}]}
    assert first.json == again.json == expected
    assert reread(plan).abandonment.reason == reason
    assert events_of(plan) == ["plan.received", "plan.abandoned"]


def test_an_agent_gives_no_reason_that_is_the_desks_own(caller):
    plan = receive(caller.agent, caller.data())
    for reason in ("expired", "superseded", "withdrawn", "not_applied", "", "Task_ended"):
        told = {"plan_id": plan.plan_id, "target": caller.target.name, "reason": reason}
        refused = caller.feed(told, "plan.abandoned")
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/data/reason"]
    assert reread(plan).state == "pending"


def test_w79_an_abandonment_before_its_plan_applies_on_arrival(caller):
    told = {"plan_id": "plan_x", "target": caller.target.name, "reason": "intent_changed"}
    assert caller.feed(told, "plan.abandoned").json == {"plans": []}
    late = caller.feed(caller.data(plan={"plan_id": "plan_x"}))
    assert (late.status, late.json["state"]) == (201, "abandoned")
    plan = Plan.objects.get()
    assert plan.abandonment.reason == "intent_changed"
    assert plan.token_sealed is None


def test_w79_an_older_plan_delivered_after_a_newer_one_does_not_take_its_place(caller):
    now = clock.now()
    ages = {name: format_instant_exact(now - timedelta(seconds=age)) for name, age in (("new", 5), ("old", 50))}
    newer = caller.feed(caller.data(intent="limit:9", created_at=ages["new"]))
    older = caller.feed(caller.data(intent="limit:9", created_at=ages["old"]))
    assert (newer.json["state"], older.json["state"]) == ("pending", "abandoned")
    assert Plan.objects.pending().get().plan_id == newer.json["plan_id"]


def test_a_task_that_ends_leaves_nothing_pending_and_takes_nothing_more(caller):
    data = caller.data()
    caller.feed(data)
    others = receive(caller.agent, caller.data())
    ended = caller.feed({"task_id": data["task_id"]}, "task.ended")
    assert [plan["state"] for plan in ended.json["plans"]] == ["abandoned"]
    assert reread(others).state == "pending"
    assert caller.feed({"task_id": data["task_id"]}, "task.ended").status == 200
    assert kinds_recorded().count("task.ended") == 1
    assert caller.feed(caller.data(task_id=data["task_id"])).json["state"] == "abandoned"


@pytest.mark.parametrize("kind", ["task.ended", "plan.abandoned", "write.observed"])
@pytest.mark.parametrize("state", ["committing", "unknown"])
def test_a_busy_plan_is_left_alone_and_the_wish_is_kept(caller, kind, state):
    plan = make_plan(state, made=caller.made, target=caller.target)
    told = {
        "task.ended": {"task_id": plan.task.task_id},
        "plan.abandoned": {"plan_id": plan.plan_id, "target": caller.target.name, "reason": "inputs_changed"},
        "write.observed": {"task_id": "t-2", "target": caller.target.name, "targets": ["ledger/ACC-104"]},
    }[kind]
    assert caller.feed(told, kind).status == 200
    assert reread(plan).state == state
    assert Wish.objects.get().plan_id == plan.plan_id


def test_a_write_ends_own_older_plans_and_marks_those_of_others(caller):
    other = make_agent(caller.target)
    own, apart, theirs = (
        receive(caller.agent, caller.data()),
        receive(
            caller.agent,
            caller.data(plan={"actions": [{"op": "update", "target": "ledger/ACC-9", "field": "limit", "to": 1}]}),
        ),
        receive(other.agent, feed_data(caller.target.name)),
    )
    told = {"task_id": "t-1", "target": caller.target.name, "targets": ["ledger/ACC-104", "ledger/ACC-104"]}
    answer = caller.feed(told, "write.observed")
    assert answer.json == {"plans": [{"plan_id": own.plan_id, "target": caller.target.name, "state": "abandoned"}]}
    assert theirs.plan_id.encode() not in answer.body
    assert reread(own).abandonment.reason == "inputs_changed"
    assert (reread(apart).state, reread(theirs).state) == ("pending", "pending")
    assert (reread(theirs).mark_count, events_of(theirs)) == (1, ["plan.received", "plan.marked"])


def test_a_write_older_than_a_plan_is_not_held_against_it(caller):
    before = format_instant_exact(clock.now() - timedelta(seconds=5))
    plan = receive(caller.agent, caller.data())
    told = {"task_id": "t-1", "target": caller.target.name, "targets": ["ledger/ACC-104"], "at": before}
    assert caller.feed(told, "write.observed").json == {"plans": []}
    assert reread(plan).state == "pending"


def test_a_write_delivered_again_is_not_held_against_what_was_planned_after_it(caller):
    body = envelope({"task_id": "t-1", "target": caller.target.name, "targets": ["ledger/ACC-104"]}, "write.observed")
    theirs = make_plan(target=caller.target)
    assert caller.deliver(body, webhook_id="msg_write").status == 200
    plan = receive(caller.agent, caller.data())
    assert caller.deliver(body, webhook_id="msg_write").status == 200
    assert reread(plan).state == "pending"
    assert reread(theirs).mark_count == 1
    assert ObservedWrite.objects.count() == 1
    assert kinds_recorded().count("write.observed") == 1


NO_WRITES = [
    ({"at": "2999-01-01T00:00:00Z"}, "/data/at"),
    ({"at": "2026-03-14T09:31:12"}, "/data/at"),
    ({"targets": []}, "/data/targets"),
    ({"targets": ["a"] * 1001}, "/data/targets"),
    ({"targets": [" "]}, "/data/targets/0"),
    ({"targets": ["x" * 513]}, "/data/targets/0"),
    ({"targets": [1]}, "/data/targets/0"),
    ({"task_id": "caf\u00e9"}, "/data/task_id"),
    ({"target": "a b"}, "/data/target"),
    ({"more": 1}, "/data/more"),
]


def test_a_write_that_says_nothing_usable_is_422_by_its_place(caller):
    for change, pointer in NO_WRITES:
        told = {"task_id": "t-1", "target": caller.target.name, "targets": ["a"]} | change
        refused = caller.feed(told, "write.observed")
        refused.is_problem(422, "invalid", following="fix_request")
        assert refused.pointers == [pointer]
    assert not ObservedWrite.objects.exists()


def test_a_type_that_is_not_known_is_422(caller):
    for kind in ("plan.approved", "", "plan.created ", "Plan.created"):
        refused = caller.feed(kind=kind)
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/type"]
    assert nothing_was_recorded()


def test_the_envelopes_timestamp_is_an_instant(caller):
    body = envelope(caller.data()).replace(b'"timestamp": "2', b'"timestamp": "x')
    assert caller.deliver(body).pointers == ["/timestamp"]
    assert nothing_was_recorded()


# --- what a plan holds ----------------------------------------------------------------------------------------------


def test_data_of_another_shape_is_422(caller):
    for kind in ("plan.created", "plan.abandoned", "task.ended", "write.observed"):
        for data in ("[]", '"x"', "null", "1", "{}", '{"plan": []}', '{"plan": null, "target": 1}'):
            caller.deliver(envelope_of(data, kind)).is_problem(422, "invalid")
    assert nothing_was_recorded()


def test_p37_a_nul_is_422_by_its_place(caller):
    for change, pointer in (
        ({"plan": {"actions": [{"op": "update", "target": "a", "to": "x\u0000"}]}}, "/data/plan/actions/0/to"),
        ({"plan": {"actions": [{"op": "update", "target": "a\u0000", "to": 1}]}}, "/data/plan/actions/0/target"),
        ({"inputs": {"a": {"b\u0000": 1}}}, "/data/inputs/a"),
        ({"plan": {"plan_id": "a\u0000b"}}, "/data/plan/plan_id"),
        ({"summary": "a\u0000"}, "/data/summary"),
    ):
        refused = caller.feed(caller.data(**change))
        refused.is_problem(422, "invalid")
        assert refused.pointers == [pointer]
    assert nothing_was_recorded()


def test_p38_half_a_character_is_422_in_valid_utf_8(caller):
    for text in (r'"\ud83d"', r'"\udc00x"', r'{"\ud83d": 1}'):
        data = json.dumps(caller.data(inputs={"a": "HERE"})).replace('"HERE"', text)
        refused = caller.deliver(envelope_of(data))
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/data/inputs/a"]
    assert nothing_was_recorded()


def test_p38_a_whole_pair_is_taken_and_kept(caller):
    text = json.dumps(caller.data(inputs={"a": "HERE"})).replace("HERE", r"\ud83d\ude00")
    assert caller.deliver(envelope_of(text)).status == 201
    assert Plan.objects.get().inputs == r'{"a": "\ud83d\ude00"}'


def test_p39_what_is_no_finite_number_is_refused(caller):
    for text in ("NaN", "-Infinity", "Infinity", "01", "+1", "1.", ".5"):
        caller.deliver(with_to(caller, text)).is_problem(400, "malformed")
    for text in ("1e400", "-1e999"):
        caller.deliver(with_to(caller, text)).is_problem(422, "invalid")
    assert nothing_was_recorded()


def with_to(caller: Caller, text: str) -> bytes:
    """A delivery whose one action has this JSON text as its `to`."""
    action = {"op": "update", "target": "ledger/ACC-104", "field": "limit", "to": "HERE"}
    return envelope_of(json.dumps(caller.data(plan={"actions": [action]})).replace('"HERE"', text))


def test_p40_p41_p45_p46_p48_p50_p56_a_value_is_kept_as_it_was_written(caller):
    for text in (
        "9" * 5000, str(2**63), str(-(2**63) - 1), "9007199254740993", "0.1", "10.10", "1e2", "1.0", '"10.10"', "-0.0",
        "null", '""', "[]", "{}", "false", '"  cafe\u0301  "', '"01"', '"TRUE"', '{"z": 1, "aa": [1.10], "b": null}',
    ):  # fmt: skip
        answer = caller.deliver(with_to(caller, text))
        assert answer.status == 201
        plan = Plan.objects.get(plan_id=answer.json["plan_id"])
        assert f'"to": {text}' in plan.actions
        assert caller.get(f"/api/v1/plans/{plan.plan_id}").json["state"] == "pending"


def test_p48_an_update_without_to_is_422(caller):
    refused = caller.feed(caller.data(plan={"actions": [{"op": "update", "target": "a", "field": "b"}]}))
    assert refused.pointers == ["/data/plan/actions/0/to"]
    assert nothing_was_recorded()


def test_p42_deep_nesting_is_400_and_the_next_request_works(caller):
    for text in ("[" * 20_000 + "]" * 20_000, '{"a":' * 101 + "1" + "}" * 101, "[" * 28 + "]" * 28):
        caller.deliver(with_to(caller, text)).is_problem(400, "malformed")
    assert caller.deliver(with_to(caller, "[" * 27 + "]" * 27)).status == 201
    assert caller.feed().status == 201


def test_p43_a_repeated_member_is_400_and_nothing_is_stored(caller):
    text = json.dumps(caller.data())
    again = '"actions": [{"op": "delete", "target": "ledger"}]}'
    twice = [
        text[:-2] + ", " + again + "}",
        text.replace('"to": 250', '"to": 250, "to": 9'),
        text[:-1] + ', "target": 1}',
    ]
    for one in twice:
        assert "duplicate key" in caller.deliver(envelope_of(one)).is_problem(400, "malformed")["detail"]
    assert nothing_was_recorded()


def test_p44_a_body_is_taken_up_to_the_limit_that_the_refusal_names(caller):
    for size in (1_100_000, 2_400_000, 2_600_000, 11_000_000):
        refused = caller.feed(caller.data(inputs={"text": "x" * size}), Connection="close")
        assert refused.is_problem(413, "too-large", following="fix_request")["max_bytes"] == 1024 * 1024
    assert nothing_was_recorded()
    assert caller.feed(caller.data(inputs={"text": "x" * 1_000_000})).status == 201


def test_p50_null_is_no_list_no_object_and_no_text(caller):
    for change in ({"plan": {"actions": None}}, {"inputs": None}, {"summary": None}, {"intent": None}):
        caller.feed(caller.data(**change)).is_problem(422, "invalid")
    caller.deliver(b"null").is_problem(422, "invalid")
    assert nothing_was_recorded()


@pytest.mark.parametrize("member", ["plan_id", "task_id", "target", "operation", "intent", "replaces"])
def test_p57_a_name_outside_the_alphabet_is_422_by_its_place(caller, member):
    for name in ("caf\u00e9", "cafe\u0301", "PL-1 ", " PL-1", "x" * 129, "", "-a", "a/b", "a\n", "\u0430cme"):
        change = {"plan": {"plan_id": name}} if member == "plan_id" else {member: name}
        refused = caller.feed(caller.data(**change))
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/data/plan/plan_id" if member == "plan_id" else f"/data/{member}"]
    assert nothing_was_recorded()


def test_p57_names_that_differ_in_case_are_two_plans_and_one_of_128_characters_is_fine(caller):
    for name in ("PL-1", "pl-1", "x" * 128):
        assert caller.feed(caller.data(plan={"plan_id": name})).status == 201
    assert Plan.objects.count() == 3


def test_r4_a_plan_without_actions_is_422(caller):
    refused = caller.feed(caller.data(plan={"actions": []}))
    refused.is_problem(422, "invalid")
    assert refused.pointers == ["/data/plan/actions"]
    assert nothing_was_recorded()


NO_EXPIRIES = [
    '"2031-05-01T10:00:00"', '"2031-06-30T23:59:60Z"', '"2031-06-30T24:00:00Z"', '"2031-06-30T23:59:59.9999999999Z"',
    '"infinity"', '"9999-12-31T23:59:59Z"', "1e20", "0", "-1", '""', "null", '"2031-W01-1T00:00Z"', "[]", '"now"',
    '"20310101T000000Z"', '"2020-01-01T00:00:00Z"', '"2031-02-30T00:00:00Z"', '"2031-05-01 10:00:00Z"',
]  # fmt: skip


def test_x25_x27_x29_an_expiry_is_an_instant_in_the_day_ahead(caller):
    for text in NO_EXPIRIES:
        body = json.dumps(caller.data(plan={"expires_at": "HERE"})).replace('"HERE"', text)
        refused = caller.deliver(envelope_of(body))
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/data/plan/expires_at"]
        if text == NO_EXPIRIES[0]:
            assert "offset required" in refused.json["errors"][0]["detail"]
    assert nothing_was_recorded()


def test_x29_an_expiry_up_to_24_hours_ahead_is_taken(caller):
    assert caller.feed(caller.data(lifetime=timedelta(hours=23, minutes=59))).status == 201
    refused = caller.feed(caller.data(lifetime=timedelta(hours=24, minutes=1)))
    assert refused.pointers == ["/data/plan/expires_at"]


def test_every_limit_is_taken_and_one_more_is_422_by_its_place(caller):
    def limits(more: int) -> dict:
        update = {"op": "update", "field": "limit", "to": 1}
        actions = [{**update, "target": f"{n}"} for n in range(999 + more)] + [{**update, "target": "t" * (512 + more)}]
        plan = {"actions": actions, "plan_token": "t" * (4096 + more), "input_fingerprint": "f" * (512 + more)}
        evidence = [{"tool": "t"}] * (50 + more)
        return {"plan": plan, "summary": "s" * (2000 + more), "evidence": evidence, "intent": "i" * (128 + more)}

    assert caller.feed(caller.data(**limits(0))).status == 201
    most = limits(1)
    for name in ("summary", "evidence", "intent"):
        assert caller.feed(caller.data(**{name: most[name]})).pointers == [f"/data/{name}"]
    for name in ("plan_token", "input_fingerprint", "actions"):
        assert caller.feed(caller.data(plan={name: most["plan"][name]})).pointers == [f"/data/plan/{name}"]
    long = {"actions": most["plan"]["actions"][-1:]}
    assert caller.feed(caller.data(plan=long)).pointers == ["/data/plan/actions/0/target"]
    assert Plan.objects.count() == 1


def test_a_feed_for_a_hosted_target_is_422(caller):
    [hosted] = registry.ensure_hosted_targets()
    caller.agent.targets.add(hosted)
    refused = caller.feed(feed_data(hosted.name))
    refused.is_problem(422, "invalid")
    assert refused.pointers == ["/data/target"]
    assert nothing_was_recorded()


def test_the_tokens_text_anywhere_else_is_422_and_is_not_said_again(caller):
    for change in (
        {"summary": "use tt-elsewhere-9 now"},
        {"inputs": {"deep": [{"x": "tt-elsewhere-9"}]}},
        {"inputs": {"tt-elsewhere-9": 1}},
        {"task_id": "tt-elsewhere-9"},
        {"evidence": [{"tool": "t", "note": "tt-elsewhere-9"}]},
        {"intent": "tt-elsewhere-9"},
        {"plan": {"plan_token": "tt-elsewhere-9", "input_fingerprint": "tt-elsewhere-9"}},
    ):
        refused = caller.feed(caller.data(**{"plan": {"plan_token": "tt-elsewhere-9"}, **change}))
        refused.is_problem(422, "invalid")
        assert refused.pointers == ["/data"]
        assert b"tt-elsewhere-9" not in refused.body
    assert nothing_was_recorded()
    assert not Payload.objects.filter(body__contains="tt-elsewhere-9").exists()


def test_a_feed_that_holds_no_plan_is_told_with_its_places_and_none_of_its_values(caller):
    caller.feed(caller.data(intent="a secret sentence"))
    told = Event.objects.get(kind="feed.refused")
    assert (told.agent, told.actor_id) == (caller.agent.name, caller.agent.name)
    data = json.loads(told.payload.body)["data"]
    assert data == {"slug": "invalid", "status": 422, "places": ["/data/intent"]}


# --- late, many, after the end --------------------------------------------------------------------------------------


ENDED = ["committed", "conflicted", "rejected", "refused", "abandoned"]


@pytest.mark.parametrize("state", ENDED)
def test_w80_o92_an_ended_plan_stays_as_it_ended_whatever_arrives_late(caller, state):
    data = caller.data(intent=...)
    plan = make_plan(state, made=caller.made, target=caller.target, **{k: v for k, v in data.items() if k != "target"})
    data = data | {"plan": data["plan"]}
    before = reread(plan)
    kinds = events_of(plan)
    late = [
        caller.feed(data),
        caller.feed({"plan_id": plan.plan_id, "target": plan.target.name, "reason": "task_ended"}, "plan.abandoned"),
        caller.feed({"task_id": plan.task.task_id}, "task.ended"),
        caller.feed({"task_id": "t", "target": plan.target.name, "targets": ["ledger/ACC-104"]}, "write.observed"),
    ]
    assert [answer.status for answer in late] == [200] * 4
    assert late[0].json["state"] == state
    after = reread(plan)
    assert (after.state, after.state_changed_at) == (state, before.state_changed_at)
    assert events_of(plan) == kinds


def test_w81_forty_six_deliveries_past_commit_and_past_expiry_are_one_plan(caller, owner_connection):
    body = envelope(caller.data())
    states = []
    for time_ in range(46):
        answer = caller.deliver(body, webhook_id="msg_81" if time_ % 2 else new_id())
        states.append(answer.json["state"])
        if time_ == 15:
            take_to(Plan.objects.get(), State.COMMITTED, person=None, reason=None, changes=(), result="{}")
        if time_ == 30:
            let_expire(owner_connection, Plan.objects.get())
    assert states == ["pending"] * 16 + ["committed"] * 30
    assert events_of(Plan.objects.get()).count("plan.received") == 1


def test_a_body_that_does_not_arrive_whole_changes_nothing_and_stops_nobody(caller):
    body = envelope(caller.data())
    with raw_connection(caller.site) as (cut, host):
        head = f"POST /webhooks/{caller.agent.name} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        cut.sendall(head.encode() + body[:100])
    assert caller.feed().status == 201
    assert Plan.objects.count() == 1
