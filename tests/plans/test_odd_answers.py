"""Answers of targets that are JSON and odd: the truth in them is taken, nothing is made up, and all of it is stored."""

import json
import random
import string

import pytest

from audit.models import Event
from plans import answers, clock, vault
from plans.models import Callback, ConflictChange, Fence, Plan
from plans.reconcile import confirm_received, find_out, find_out_unknown
from plans.targets.foreign_json import MAX_NAME
from tests.hosted_plans import approve
from tests.makers import events_of, feed_data, make_agent, make_person, make_target, receive, reread
from tests.reviewer.pages import client_of, url_of
from tests.stub_behaviour import JSON_HEADERS, Answer, Commit
from tests.stub_target import StubTarget
from tests.time_passing import pass_time
from tests.unknown_plans import APPROVED, UNKNOWN, due, plan_at, says, unknown_at

pytestmark = pytest.mark.usefixtures("database")

TOKEN = "pt-odd-token/1"


def raw(status: int, body: bytes) -> Answer:
    return Answer(status, body, JSON_HEADERS)


def noise(length: int) -> str:
    """Text that no compression makes shorter."""
    return "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=length))


def plan_with(stub: StubTarget, token: str) -> Plan:
    """As `plan_at`, with this token."""
    target = make_target(base_url=stub.base_url)
    body = stub.new_plan() | {"plan_token": token}
    return receive(make_agent(target).agent, feed_data(target.name, plan=body))


def result_of(plan: Plan) -> str:
    return str(plan.commits.get(outcome="committed").result)


# --- 409 ------------------------------------------------------------------------------------------------------------

MAY_STILL_COMMIT = {
    "half a pair beside it": b'{"type":"x/in-progress","d":"\\ud800"}',
    "half a pair in a name": b'{"\\udfff":1,"type":"x/in-progress"}',
    "U+0000": b'{"type":"x/in-flight","d":"\\u0000"}',
    "many digits": b'{"type":"x/in-flight","d":' + b"9" * 5_000 + b"}",
    "deeper than we store": b'{"type":"x/in-progress","d":' + b"[" * 40 + b"]" * 40 + b"}",
    "deeper than anybody reads": b'{"type":"x/in-progress","d":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
    "said twice": b'{"type":"x/in-progress","type":"x/conflict"}',
    "said by another name": b'{"type":"about:blank","code":"in-progress"}',
    "type is no text": b'{"type":409,"slug":"in-flight"}',
    "NaN beside it": b'{"type":"x/in-progress","eta":NaN}',
    "no UTF-8 beside it": b'{"type":"x/in-progress","d":"\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"type":"x/in-progress"}',
    "UTF-16": '{"type":"x/in-progress"}'.encode("utf-16"),
    "broken off": b'{"type":"x/in-pro',
}


@pytest.mark.parametrize("body", MAY_STILL_COMMIT.values(), ids=MAY_STILL_COMMIT)
def test_a_409_that_may_say_still_running_is_unknown_and_keeps_its_fence(stub_target, body):
    stub_target.script(raw(409, body))
    plan = plan_at(stub_target)
    assert approve(plan).state == "unknown"
    assert Fence.objects.filter(plan=plan).exists()
    assert events_of(plan) == UNKNOWN


MOVED = {
    "half a pair beside it": (
        b'{"type":"x/conflict","detail":"a\\ud800\\u0000","changed":{"limit":{"planned":1.10,"current":"\\ud800"}}}',
        [("", "limit", "1.10", '"\\\\ud800"')],
    ),
    "half a pair in a name": (b'{"changed":{"a\\ud800":"\\u0000"}}', [("", "a\ufffd", None, '"\\u0000"')]),
    "types that nobody has": (
        b'{"type":5,"detail":[],"changed":[{"target":1,"field":null,"current":2},[1],{"field":"f","field":"g"}]}',
        [("", "", None, "2"), ("", "g", None, None)],
    ),
    "a value too deep to keep": (
        b'{"changed":{"f":{"planned":' + b"[" * 40 + b"]" * 40 + b',"current":1}}}',
        [("", "f", None, "1")],
    ),
    "nothing": (b'{"changed":{}}', []),
    "null": (b'{"changed":null}', []),
    "a list": (b'["in-progress"]', []),
    "no JSON": (b"gone", []),
}


@pytest.mark.parametrize(("body", "changed"), MOVED.values(), ids=MOVED)
def test_a_409_that_says_no_such_thing_is_a_conflict_with_what_it_tells(stub_target, body, changed):
    stub_target.script(raw(409, body))
    plan = plan_at(stub_target)
    assert approve(plan).state == "conflicted"
    rows = reread(plan).conflict.changes.order_by("position").values_list("target", "field", "planned", "current")
    assert list(rows) == changed


@pytest.mark.parametrize("how", ["by name", "as a list of names", "as a list of objects", "as one object"])
def test_a_name_longer_than_an_index_holds_is_cut_and_says_so(stub_target, how):
    long = noise(4_000)
    body = {
        "by name": {long: 1},
        "as a list of names": [long],
        "as a list of objects": [{"target": long, "field": long}],
        "as one object": {"target": long, "field": long},
    }[how]
    stub_target.script(Answer(409, {"changed": body}))
    plan = plan_at(stub_target)
    assert approve(plan).state == "conflicted"
    change = ConflictChange.objects.get(conflict__plan=plan)
    assert change.field == long[: MAX_NAME - 1] + "…"
    assert change.target in ("", change.field)


def test_the_longest_name_in_the_widest_characters_is_stored(stub_target):
    wide = "".join(chr(random.Random(place).randrange(0x20000, 0x2A000)) for place in range(600))
    stub_target.script(Answer(409, {"changed": {wide: 1}}))
    plan = plan_at(stub_target)
    assert approve(plan).state == "conflicted"
    assert len(ConflictChange.objects.get(conflict__plan=plan).field) == MAX_NAME


def test_a_token_across_the_cut_is_not_kept_in_part(stub_target):
    token = noise(3_000)
    stub_target.script(Answer(422, {"detail": "x" * 1_000 + token + "y" * 3_000}))
    plan = plan_with(stub_target, token)
    assert approve(plan).state == "refused"
    reason = reread(plan).refusal.reason
    assert token[:20] not in reason
    assert len(reason) == 2_000


# --- 200 ------------------------------------------------------------------------------------------------------------

KEPT = {
    "U+0000": (b'{"id":"re_1","note":"a\\u0000b"}', None),
    "a name twice and an escape": (b'{"id":"re_1","id":"re_2","note":"caf\\u00e9"}', None),
    "half a pair": (b'{"id":"re_1","note":"a\\ud800b","n":1.10}', '{"id":"re_1","note":"a\\\\ud800b","n":1.10}'),
    "numbers beyond any": (b'{"n":1e999,"d":' + b"9" * 5_000 + b"}", None),
    "U+0000 in a name": (b'{"\\u0000":[1.10 , 2]}\n', None),
    "the token and odd things": (
        b'{"id":"re_1","id":"re_1","t":"pt-odd\\u002dtoken\\/1","n":"\\u0000"}',
        '{"id":"re_1","id":"re_1","t":"[plan token]","n":"\\u0000"}',
    ),
    "a megabyte": (json.dumps({"id": noise(1_000_000)}).encode(), None),
}


@pytest.mark.parametrize(("body", "kept"), KEPT.values(), ids=KEPT)
def test_a_200_is_stored_whatever_it_holds_and_only_the_token_is_taken_out(stub_target, body, kept):
    stub_target.script(raw(200, body))
    plan = plan_with(stub_target, TOKEN)
    assert approve(plan).state == "committed"
    assert result_of(plan) == (body.decode() if kept is None else kept)
    assert events_of(plan) == [*APPROVED, "commit.succeeded"]


NO_JSON = {
    "NaN": b'{"b":NaN}',
    "NaN after a name twice": b'{"a":1,"a":2,"b":NaN}',
    "Infinity after half a pair": b'{"a":"\\ud800","b":Infinity}',
    "Infinity after U+0000": b'{"a":"\\u0000","b":-Infinity}',
    "very deep": b"[" * 400_000 + b"]" * 400_000,
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_a_200_that_is_not_json_is_unknown_whatever_else_is_odd_in_it(stub_target, body):
    stub_target.script(raw(200, body))
    plan = plan_at(stub_target)
    assert approve(plan).state == "unknown"
    assert events_of(plan) == UNKNOWN


# --- the state ------------------------------------------------------------------------------------------------------

COMMITTED = {
    "expires_at null": (b'"result":{"entry":"L-1"},"expires_at":null', '{"entry":"L-1"}'),
    "all others null": (
        b'"result":null,"expires_at":null,"input_fingerprint":null,"actions":null,"changed":null,"detail":null',
        None,
    ),
    "all others of another type": (
        b'"result":1.10,"expires_at":5,"input_fingerprint":[],"actions":{},"changed":3,"detail":{}',
        "1.10",
    ),
    "half a pair in the result": (b'"result":{"n":"\\udc00"}', '{"n":"\\\\udc00"}'),
    "half a pair elsewhere": (b'"x\\ud800":"\\ud800","result":{"entry":"L-1"}', '{"entry":"L-1"}'),
    "U+0000": (b'"result":{"note":"a\\u0000b"},"note":"\\u0000"', '{"note":"a\\u0000b"}'),
    "a name twice": (b'"result":{"a":1,"a":2},"state":"committed"', '{"a":1,"a":2}'),
    "a result too deep to keep": (b'"result":' + b"[" * 40 + b"]" * 40, None),
    "many digits": (b'"version":' + b"9" * 5_000 + b',"result":1', "1"),
}


@pytest.mark.parametrize(("members", "result"), COMMITTED.values(), ids=COMMITTED)
def test_a_state_that_says_committed_is_believed_whatever_else_is_odd_in_it(stub_target, members, result):
    plan = unknown_at(stub_target)
    body = b'{"plan_id":"%s","state":"committed",%s}' % (plan.plan_id.encode(), members)
    stub_target.script_look_ups(plan.plan_id, raw(200, body))
    assert find_out(plan_pk=due(plan).pk).state == "committed"
    assert plan.commits.get(outcome="committed").result == result


PROVES_NOTHING = {
    "two states": b'{"plan_id":"PLAN","state":"committed","state":"pending"}',
    "two plans": b'{"plan_id":"other","plan_id":"PLAN","state":"committed"}',
    "another plan": b'{"plan_id":"PLAN\\ud800","state":"committed"}',
    "a state that is no text": b'{"plan_id":"PLAN","state":["committed"]}',
    "a state with half a pair": b'{"plan_id":"PLAN","state":"committed\\ud800"}',
    "not JSON": b'{"plan_id":"PLAN","state":"committed","result":NaN}',
    "a list": b'["PLAN","committed"]',
}


@pytest.mark.parametrize("body", PROVES_NOTHING.values(), ids=PROVES_NOTHING)
def test_a_state_that_is_not_clear_proves_nothing(stub_target, body):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, raw(200, body.replace(b"PLAN", plan.plan_id.encode())))
    stub_target.script(Answer(503))
    assert find_out(plan_pk=due(plan).pk).state == "unknown"


def test_a_conflict_found_out_by_the_state_keeps_long_and_odd_names(stub_target, owner_connection):
    plan = unknown_at(stub_target)
    stub_target.script_look_ups(plan.plan_id, says(plan, "conflicted", changed={noise(4_000) + "\ud800": "\ud800"}))
    pass_time(owner_connection, plan, 61)
    assert find_out(plan_pk=due(plan).pk).state == "conflicted"
    assert reread(plan).conflict.changes.get().current == '"\\\\ud800"'


# --- one plan and the others ----------------------------------------------------------------------------------------


@pytest.fixture
def failing_for(monkeypatch):
    """Makes opening one plan's token fail, as a row would that nobody can read any more."""
    opened = vault.open_token
    failing = set()

    def open_token(plan):
        if plan.pk in failing:
            raise ValueError("This row cannot be read.")
        return opened(plan)

    monkeypatch.setattr(vault, "open_token", open_token)
    return failing


def test_an_unknown_plan_that_cannot_be_looked_after_keeps_no_other_waiting(stub_target, failing_for, caplog):
    stub_target.otherwise = Commit()
    first, second = unknown_at(stub_target), unknown_at(stub_target)
    Plan.objects.filter(pk=first.pk).update(next_check_at=clock.now())
    due(second)
    failing_for.add(first.pk)
    assert find_out_unknown() == 1
    assert (reread(first).state, reread(second).state) == ("unknown", "committed")
    assert reread(first).next_check_at > clock.now()
    [told] = [record for record in caplog.records if record.name == "plans.reconcile"]
    assert told.exc_info
    assert str(first.pk) in told.getMessage()


def test_a_pending_plan_that_cannot_be_asked_about_keeps_no_other_waiting(stub_target, failing_for, caplog):
    first, second = plan_at(stub_target), plan_at(stub_target)
    failing_for.add(first.pk)
    confirm_received()
    assert reread(second).has_been_known_to_target
    assert not reread(first).has_been_known_to_target
    assert [record.name for record in caplog.records].count("plans.reconcile") == 1


# --- who reads it ---------------------------------------------------------------------------------------------------

SHOWN = {
    "a result": raw(200, b'{"id":"re_1","id":"re_2","a\\ud800":"\\u0000\\udc00","n":1e999,"d":' + b"9" * 5_000 + b"}"),
    "a result that is a text": raw(200, b'"\\ud800\\u0000"'),
    "a conflict": raw(
        409, b'{"detail":"\\u0000\\ud800","changed":{"f\\ud800\\u0000":{"planned":"\\ud800","current":"\\u0000"}}}'
    ),
    "a no": raw(422, b'{"detail":"\\u0000\\ud800"}'),
}


@pytest.mark.parametrize("answer", SHOWN.values(), ids=SHOWN)
def test_what_is_odd_is_shown_told_and_called_back_like_anything_else(stub_target, answer):
    stub_target.script(answer)
    target = make_target(base_url=stub_target.base_url)
    agent = make_agent(target, callback_url="https://agent.example/news").agent
    plan = receive(agent, feed_data(target.name, plan=stub_target.new_plan()))
    done = approve(plan)
    assert done.state in ("committed", "conflicted", "refused")
    told = json.loads(answers.encode(answers.document(reread(plan))), parse_int=str)
    body = Callback.objects.get(plan=plan, kind=f"plan.{done.state}").body
    assert json.loads(body, parse_int=str)["data"] == told
    client = client_of(make_person("reviewer", "auditor"))
    assert client.get(url_of(plan)).status_code == 200
    for page in ("/audit/", "/audit/?q=re_1", f"/audit/plans/{agent.name}/{target.name}/{plan.plan_id}/", "/history/"):
        assert client.get(page).status_code == 200
    for event in Event.objects.filter(plan_id=plan.plan_id):
        assert client.get(f"/audit/events/{event.id}/").status_code == 200
