"""The stub of a remote target does what tests rely on."""

import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from tests.stub_target import (
    Answer,
    Commit,
    DropAfterApplying,
    DropBeforeReading,
    Hold,
    StubTarget,
    conflict,
    refusing_url,
)


@pytest.fixture
def target() -> Iterator[StubTarget]:
    with StubTarget() as started:
        yield started


def commit(target: StubTarget, plan: dict[str, str], key: str = "k1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=5)
    try:
        body = json.dumps({"plan_token": plan["plan_token"], "input_fingerprint": plan["input_fingerprint"]})
        connection.request("POST", "/refund/commit", body, {"Idempotency-Key": key})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def look_up(target: StubTarget, plan_id: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=5)
    try:
        connection.request("GET", f"/plans/{plan_id}")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_one_key_is_applied_once_and_replayed(target: StubTarget) -> None:
    plan = target.new_plan()
    assert commit(target, plan) == commit(target, plan) == (200, b'{"ok": true}')
    assert target.applications == {"k1": 1}
    assert target.calls_per_key() == {"k1": 2}
    assert commit(target, target.new_plan())[0] == 422  # the same key, another payload
    assert look_up(target, plan["plan_id"])[1]["state"] == "committed"
    assert "plan_token" not in look_up(target, plan["plan_id"])[1]


def test_an_answer_may_be_lost_before_and_after_applying(target: StubTarget) -> None:
    plan = target.new_plan()
    target.script(DropBeforeReading(), DropAfterApplying())
    for _ in range(2):
        with pytest.raises((http.client.HTTPException, OSError)):
            commit(target, plan)
    assert target.applied == 1
    assert len(target.commits) == 1
    assert commit(target, plan)[0] == 200
    assert target.applied == 1


def test_an_answer_is_sent_verbatim_or_cut_short(target: StubTarget) -> None:
    plan = target.new_plan()
    target.script(Answer(202, b"<p>later</p>", {"Content-Type": "text/html"}), Answer(200, {"ok": True}, cut_after=3))
    assert commit(target, plan) == (202, b"<p>later</p>")
    with pytest.raises(http.client.IncompleteRead):
        commit(target, plan)
    assert target.applied == 0


def test_a_moved_world_answers_409_with_what_changed(target: StubTarget) -> None:
    change = {"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 300}
    target.move_world(change)
    status, body = commit(target, target.new_plan())
    assert status == 409
    assert json.loads(body)["changed"] == [change]
    assert json.loads(conflict().raw).get("changed") is None
    assert target.applied == 0


def test_a_held_commit_answers_when_released_and_the_same_key_is_in_progress(target: StubTarget) -> None:
    plan, hold = target.new_plan(), Hold(then=Commit())
    target.script(hold)
    answers: list[tuple[int, bytes]] = []
    thread = threading.Thread(target=lambda: answers.append(commit(target, plan)))
    thread.start()
    assert hold.reached.wait(5)
    assert commit(target, plan)[0] == 409
    hold.until.set()
    thread.join(5)
    assert answers[0][0] == 200
    assert target.applied == 1


def test_a_refused_connection_is_accepted_again_at_the_same_port(target: StubTarget) -> None:
    plan = target.new_plan()
    target.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        commit(target, plan)
    target.listen()
    assert commit(target, plan)[0] == 200
    with refusing_url() as url, pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(url.removeprefix("http://"), timeout=5).request("GET", "/")
