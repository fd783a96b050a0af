"""What every door for machines keeps to (CONTRACT section 4), door by door: who asks, how, with what body."""

import codecs
import json
from dataclasses import dataclass

import pytest
from django.test import Client

from audit.models import Payload
from plans import registry
from plans.models import Agent, Plan
from reviewer.access import hash_token
from reviewer.models import PersonToken
from tests.makers import kinds_recorded, make_person, number, receive
from tests.plans.http import Answer, Caller, keep_to_the_rules, make_caller, raw_connection, send, signed

pytestmark = pytest.mark.usefixtures("database")

MAX_BYTES = 1024 * 1024
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]


@dataclass(frozen=True)
class Door:
    """One address: its method, a body of the right shape, and whether a key goes with it."""

    method: str
    path: str
    body: dict | None = None
    wants_key: bool = False
    is_feed: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


COMMIT = {"plan_token": "pt_none", "input_fingerprint": "sha256:x"}
FEED = Door("POST", "/webhooks/{agent}", {"type": "x", "timestamp": "2026-03-14T09:31:12Z", "data": {}}, is_feed=True)
POSTS = [
    FEED,
    Door("POST", "/api/v1/operations/refund/dry-run", {"task_id": "t", "inputs": {}}),
    Door("POST", "/api/v1/operations/refund/commit", COMMIT, wants_key=True),
    Door("POST", "/api/v1/plans/{plan}/commit", COMMIT, wants_key=True),
    Door("POST", "/api/v1/plans/{plan}/abandon", {"reason": "task_ended"}),
    Door("POST", "/api/v1/tasks/t-1/writes", {"target": "x", "targets": ["a"]}),
    Door("POST", "/api/v1/tasks/t-1/end", {}),
]
GETS = [Door("GET", "/api/v1/plans"), Door("GET", "/api/v1/plans/{plan}")]
DOORS = POSTS + GETS
each_door = pytest.mark.parametrize("door", DOORS, ids=str)
each_post = pytest.mark.parametrize("door", POSTS, ids=str)


@pytest.fixture
def caller(site) -> Caller:
    caller = make_caller(site)
    caller.plan = receive(caller.agent, caller.data())
    return caller


def at(caller: Caller, door: Door) -> str:
    return door.path.format(agent=caller.agent.name, plan=caller.plan.plan_id)


def knock(caller: Caller, door: Door, *, method: str = "", body: bytes | None = None, **headers) -> Answer:
    """A request that is right but for what is given; a header of `...` is left out."""
    method = method or door.method
    if body is None and door.body is not None and method == "POST":
        body = json.dumps(door.body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if door.is_feed:
        mine = signed(caller.made.webhook_secret, body or b"")
    else:
        mine = {**caller.bearer, **({"Content-Type": "application/json"} if method == "POST" else {})}
        mine |= {"Idempotency-Key": f"k-{number()}"} if door.wants_key else {}
    sent = {name: value for name, value in (mine | given).items() if value is not ...}
    return send(caller.site, method, at(caller, door), headers=sent, body=body)


def untouched(caller: Caller) -> bool:
    """The one plan is as it was, and nothing else came."""
    return Plan.objects.get().state == "pending" and kinds_recorded().count("plan.received") == 1


# --- who is asking --------------------------------------------------------------------------------------------------


@each_door
def test_who_is_not_known_is_401_with_the_same_bytes_for_every_reason(caller, door):
    if door.is_feed:
        wrong = [{"webhook_signature": value} for value in (..., "", "v1,AAAA", b"\xe9")]
    else:
        person = f"pdp_{number()}"
        PersonToken.objects.create(person=make_person("admin", "auditor"), token_hash=hash_token(person))
        key = caller.made.api_key
        keys = (..., "", "Bearer", "Bearer ", "Bearer pdk_wrong", f"Bearer {key}x", f"Bearer {key[:-1]}", key)
        more = (f"Basic {key}", f"Token {key}", f"Bearer {key.swapcase()}", b"Bearer \xe9\xff", "Bearer " + "k" * 9000)
        wrong = [{"Authorization": value} for value in (*keys, *more, f"Bearer {person}", f"Bearer {key}, {key}")]
    answers = [keep_to_the_rules(knock(caller, door, **headers)) for headers in wrong]
    for answer in answers:
        answer.is_problem(401, "bad-signature" if door.is_feed else "unauthenticated")
        scheme = "Standard-Webhooks" if door.is_feed else "Bearer"
        assert answer.headers["WWW-Authenticate"] == f'{scheme} realm="plandesk"'
    assert len({answer.body for answer in answers}) == 1
    assert untouched(caller)


@each_door
def test_a_disabled_agents_key_and_secrets_are_dead(caller, door):
    registry.disable_agent(name=caller.agent.name)
    keep_to_the_rules(knock(caller, door)).is_problem(401, "bad-signature" if door.is_feed else "unauthenticated")


def test_a_rotated_key_is_dead_at_once_and_the_new_one_works(caller):
    fresh = registry.rotate_agent(name=caller.agent.name)
    caller.get("/api/v1/plans").is_problem(401, "unauthenticated")
    assert caller.get("/api/v1/plans", headers={"Authorization": f"bearer  {fresh.api_key}"}).status == 200
    assert fresh.api_key.encode() not in bytes(Agent.objects.get(pk=caller.agent.pk).api_key_hash)


def test_a134_an_agents_key_opens_no_page_and_no_log(caller):
    caller.get("/api/v1/audit/events").is_problem(401, "unauthenticated")
    page = caller.site.request("GET", f"/plans/{caller.agent.name}/{caller.target.name}/x/", headers=caller.bearer)
    assert (page.status, page.headers["Location"].partition("?")[0]) == (302, "/login/")


def test_authentication_comes_before_anything_of_the_body(caller):
    for door in POSTS[1:]:
        body = b"x" * (MAX_BYTES + 1)
        wrong = {"Authorization": "Bearer pdk_wrong", "Content_Type": "text/plain", "Connection": "close"}
        answer = knock(caller, door, body=body, **wrong)
        answer.is_problem(401, "unauthenticated")


# --- methods and addresses ------------------------------------------------------------------------------------------


@each_door
def test_every_other_method_is_405_that_names_the_right_one(caller, door):
    for method in METHODS:
        if method == door.method:
            continue
        answer = knock(caller, door, method=method)
        assert answer.status == 405, (method, answer)
        assert answer.headers["Allow"] == door.method
        if method != "HEAD":
            keep_to_the_rules(answer).is_problem(405, "method-not-allowed")
    assert untouched(caller)


NOWHERE = [
    "/api/v1", "/api/v1/", "/api/", "/api/v2/plans", "/api/v1/plans/", "/api/v1/plan", "/api/v1/plans/x/",
    "/api/v1/plans/x/y", "/api/v1/operations", "/api/v1/operations/refund", "/api/v1/operations/refund/dry-run/",
    "/api/v1/tasks/t-1", "/api/v1/audit/", "/api/v1/audit/nothing", "/webhooks/", "/webhooks/a/b", "/webhooks/a/",
]  # fmt: skip
NAMELESS = ["a%00b", "%ff", "caf%C3%A9", "a%20b", "-a", "a%0A", "x" * 129, "x" * 9000]


def test_where_nothing_is_the_answer_is_404_and_json(caller):
    for path in NOWHERE:
        for method, body in (("GET", None), ("POST", b"{}"), ("DELETE", None)):
            answer = keep_to_the_rules(send(caller.site, method, path, headers=caller.bearer, body=body))
            assert answer.slug == "not-found" or (answer.slug == "method-not-allowed" and "audit" in path), path


def test_p37_a_name_that_nothing_can_have_is_404_in_every_address(caller):
    for name in NAMELESS:
        caller.get(f"/api/v1/plans/{name}").is_problem(404, "not-found")
        for path in ("plans/{}/commit", "plans/{}/abandon", "tasks/{}/writes", "tasks/{}/end", "operations/{}/commit"):
            caller.post("/api/v1/" + path.format(name), {}, key="k").is_problem(404, "not-found")
    caller.get("/api/v1/plans/a%2Fb").is_problem(404, "not-found")
    assert untouched(caller)


def test_a_host_that_is_not_ours_is_400_and_json(caller):
    for path in ("/api/v1/plans", f"/webhooks/{caller.agent.name}"):
        answer = send(caller.site, "GET", path, headers={**caller.bearer, "Host": "evil.example"})
        assert answer.status in (400, 405)
        keep_to_the_rules(answer)


# --- bodies ---------------------------------------------------------------------------------------------------------


@each_post
def test_anything_but_json_in_utf_8_is_415(caller, door):
    types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx",
             "application/json; charset=utf-16", "application/json; version=2", "", ...]  # fmt: skip
    for kind in types:
        answer = keep_to_the_rules(knock(caller, door, body=b'{"a": 1}', Content_Type=kind))
        answer.is_problem(415, "not-json", following="fix_request")
    for coding in ("gzip", "br", "deflate, gzip"):
        answer = keep_to_the_rules(knock(caller, door, body=b'{"a": 1}', Content_Encoding=coding))
        answer.is_problem(415, "not-json")
    assert untouched(caller)


@each_post
def test_p44_a_body_over_one_mebibyte_is_413_whatever_its_length_says(caller, door):
    body = b'{"a": "' + b"x" * MAX_BYTES + b'"}'
    # What is not read to its end ends the connection.
    answers = [knock(caller, door, body=body, Connection="close")]
    headers = {**caller.bearer, "Content-Type": "application/json", "Connection": "close"}
    if not door.is_feed:  # urllib3 sends an iterator in chunks
        pieces = iter([body[:100], body[100:]])
        answers.append(send(caller.site, "POST", at(caller, door), headers=headers, body=pieces, chunked=True))
    for answer in answers:
        document = keep_to_the_rules(answer).is_problem(413, "too-large", following="fix_request")
        assert document["max_bytes"] == MAX_BYTES
    assert untouched(caller)


@each_post
def test_p58_a_body_that_is_no_json_text_is_400_with_its_true_reason(caller, door):
    good = json.dumps(door.body).encode()
    for body, says in (
        (b'"\xff"', "UTF-8"),
        (codecs.BOM_UTF8 + good, "byte order mark"),
        (good.decode().encode("utf-16"), "UTF-8"),
        (good.decode().encode("utf-16-le"), "not JSON"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (good + b"x", "not JSON"),
        (b"'a'", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1, "a": 2}', "duplicate key"),
        (b'{"a": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "deeper than 32"),
        (b'{"a": ' + b"[" * 33 + b"]" * 33 + b"}", "deeper than 32"),
        (b'{"a": 1' + b"\x00" + b"}", "not JSON"),
    ):
        answer = keep_to_the_rules(knock(caller, door, body=body))
        document = answer.is_problem(400, "malformed", following="fix_request")
        assert says in document["detail"], (body[:40], document)
    assert untouched(caller)


@each_post
def test_an_empty_body_is_400_where_one_is_needed(caller, door):
    answer = keep_to_the_rules(knock(caller, door, body=b""))
    if door.path.endswith("/end"):
        assert answer.status == 200
    else:
        assert "empty" in answer.is_problem(400, "malformed")["detail"]


@each_post
def test_p37_p38_p39_p50_p58_a_body_of_the_wrong_shape_is_422_by_its_place(caller, door):
    for body, pointer in (
        (b"[]", ""),
        (b'"x"', ""),
        (b"null", ""),
        (b"1", ""),
        (b'{"a": "x\\u0000"}', "/a"),
        (b'{"a": {"b\\u0000": 1}}', "/a"),
        (b'{"a": "\\ud83d"}', "/a"),
        (b'{"a": "\\udc00x"}', "/a"),
        (b'{"a": 1e400}', "/a"),
    ):
        answer = keep_to_the_rules(knock(caller, door, body=body))
        answer.is_problem(422, "invalid", following="fix_request")
        assert answer.pointers == [pointer]
    assert untouched(caller)


@each_post
def test_a_member_that_is_not_known_is_422_and_its_value_is_not_said_again(caller, door):
    answer = keep_to_the_rules(knock(caller, door, body=json.dumps({**door.body, "strange": "tt-quoted-9"}).encode()))
    answer.is_problem(422, "invalid")
    assert answer.pointers == ["/strange"]
    assert b"tt-quoted-9" not in answer.body
    assert untouched(caller)


@each_post
def test_a_member_of_the_wrong_type_is_422_by_its_name(caller, door):
    for name in door.body:
        if name in ("data", "inputs"):
            continue
        answer = keep_to_the_rules(knock(caller, door, body=json.dumps({**door.body, name: {"a": 1.5}}).encode()))
        answer.is_problem(422, "invalid")
        assert answer.pointers == [f"/{name}"]
        left = {member: value for member, value in door.body.items() if member != name}
        without = keep_to_the_rules(knock(caller, door, body=json.dumps(left).encode()))
        assert without.status in (422, 428, 404)
    assert untouched(caller)


@each_post
def test_w71_a_form_is_never_taken_for_a_persons(caller, door):
    form = {"body": b"a=1", "Content_Type": "application/x-www-form-urlencoded"}
    for headers in ({"Origin": "https://evil.example"}, {"HX_Request": "true"}):
        keep_to_the_rules(knock(caller, door, **form, **headers)).is_problem(415, "not-json")


@each_door
def test_a134_a_persons_session_opens_no_door_of_an_agent(caller, door):
    client = Client()
    client.force_login(make_person("reviewer", "auditor", "admin"))
    session = f"plandesk_session={client.cookies['plandesk_session'].value}"
    nobody = {"webhook_signature": ...} if door.is_feed else {"Authorization": ...}
    answer = keep_to_the_rules(knock(caller, door, Cookie=session, **nobody))
    answer.is_problem(401, "bad-signature" if door.is_feed else "unauthenticated")
    assert untouched(caller)


@each_post
def test_a_body_that_is_cut_short_harms_nobody(caller, door):
    head = [f"POST {at(caller, door)} HTTP/1.1", "Content-Type: application/json", "Content-Length: 500"]
    head += [f"{name}: {value}" for name, value in {**caller.bearer, "Idempotency-Key": "k"}.items()]
    with raw_connection(caller.site) as (cut, host):
        cut.sendall("\r\n".join([*head, f"Host: {host}", "", '{"a":']).encode())
    assert caller.get("/api/v1/plans").status == 200
    assert untouched(caller)


def test_a129_what_a_stranger_says_of_their_address_is_not_believed(caller):
    for claimed in ("203.0.113.9", "x" * 5000, "garbage, 1.2.3.4"):
        send(caller.site, "POST", "/webhooks/nobody", headers={"X-Forwarded-For": claimed}, body=b"{}")
    bodies = Payload.objects.filter(body__contains='"address"').values_list("body", flat=True)
    told = {json.loads(body)["data"]["address"] for body in bodies}
    assert told == {"127.0.0.1"}
