"""Whatever the desk answers, a call gives one of the closed set or raises the SDK's own error, and one key goes out."""

import json
import tempfile
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plans.agent import AgentError, Committed, Desk, Outcome, Pace, Plan, Task
from tests.plans.agent.conftest import make_desk
from tests.plans.agent.scripted_desk import ScriptedDesk, Step, serving

OUTCOMES: Final = typing.get_args(Outcome)
PACE: Final = Pace(patience=0.15, attempt=0.4, farewell=0.15, first_delay=0.005, longest_delay=0.02)
SLUGS: Final = (
    "conflict", "expired", "abandoned", "refused", "rejected", "approval-required", "fenced", "unavailable",
    "outcome-unknown", "never-planned", "key-reused", "fingerprint-mismatch", "too-many", "unauthenticated",
)  # fmt: skip
STATES: Final = (
    "pending",
    "committing",
    "unknown",
    "committed",
    "conflicted",
    "rejected",
    "refused",
    "abandoned",
    "odd",
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
members = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(SLUGS).map(lambda slug: f"/problems/{slug}") | values,
        "plan_id": st.sampled_from(["plan_1", "plan_2", "plan_r"]) | values,
        "target": st.sampled_from(["billing", "ledger"]) | values,
        "state": st.sampled_from(STATES) | values,
        "result": values,
        "reason": values,
        "detail": values,
        "errors": values,
        "changed": st.lists(st.fixed_dictionaries({}, optional={"target": values, "field": values}) | values) | values,
        "conflict": values,
        "abandonment": st.just({"reason": "expired"}) | values,
        "rejection": values,
        "expired_at": st.just("2026-03-14T09:41:12Z") | values,
        "committed_at": values,
        "review_url": st.sampled_from(["https://desk.example/x", "\ud800"]) | values,
        "plans": st.lists(st.just({"plan_id": "plan_1", "target": "billing", "state": "abandoned"}) | values) | values,
        "idempotency_key": st.text(max_size=9) | st.sampled_from(["k\r\nX: y", "", "k" * 256, "key_2"]),
        "plan_token": values,
        "expires_at": values,
        "input_fingerprint": values,
        "actions": values,
        "approval": values,
    },
)
bodies = (
    members.map(lambda members: json.dumps(members).encode())
    | st.binary(max_size=40)
    | st.sampled_from([b"", b"null", b"[]", b"<html>", b'{"a": 1e999}', b'{"a": NaN}', b"[" * 20_000, b'"' * 9])
)
statuses = st.sampled_from(
    [200, 200, 201, 202, 204, 302, 400, 401, 403, 404, 409, 409, 410, 412, 422, 423, 428, 429, 500, 503, 504, 599]
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(["text/html", "application/json", "application/problem+json"]),
        "Retry-After": st.sampled_from(["0", "1", "600", "-1", "soon", "9" * 30]),
        "Idempotent-Replayed": st.sampled_from(["true", "false", "maybe"]),
        "Location": st.just("http://127.0.0.1:9/"),
        "Content-Encoding": st.sampled_from(["gzip", "odd"]),
    },
)
steps = st.builds(
    Step, status=statuses, raw=bodies, headers=headers, is_cut=st.booleans(), is_applied=st.booleans()
) | st.builds(Step, is_dropped=st.just(True), is_applied=st.booleans())
scripts = st.lists(steps, max_size=4)
SOUND: Final[dict[str, Any]] = {
    "plan_id": "plan_r", "plan_token": "pt_remote_0123456789", "input_fingerprint": "f", "target": "billing",
    "expires_at": "2099-03-14T09:41:12Z", "approval": "not_required", "review_url": "https://desk.example/x",
    "actions": [{"op": "update", "target": "invoice/1", "field": "cents", "to": 1}],
}  # fmt: skip
nearly_sound = st.dictionaries(
    st.sampled_from([*SOUND, "created_at", "idempotency_key", "state"]),
    values | st.text(max_size=3) | st.just("k\r\nX: y") | st.just("2026-03-14T09:41:12Z") | st.just("\ud800"),
    max_size=2,
).map(lambda odd: Step(status=201, raw=json.dumps({**SOUND, **odd}).encode()))


def attempt(call: Callable[[], object]) -> object:
    try:
        return call()
    except AgentError as error:
        return error


def act(task: Task, plan: Plan) -> None:
    for call in (task.commit, lambda plan: task.wait(plan, timeout=0.05), task.commit, task.abandon):
        found = attempt(lambda call=call: call(plan))  # type: ignore[misc]
        assert isinstance(found, (*OUTCOMES, AgentError)), found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(commit=scripts, state=scripts, abandon=scripts, end=scripts, is_fed=st.booleans())
def test_whatever_is_answered_is_one_of_the_closed_set_and_one_key_goes_out(
    commit: list[Step], state: list[Step], abandon: list[Step], end: list[Step], is_fed: bool
) -> None:
    server = ScriptedDesk()
    with tempfile.TemporaryDirectory() as place, serving(server) as base_url, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        desk = make_desk(server, base_url, Path(place) / "agent", PACE)
        with desk, desk.task("t1") as task:
            if is_fed:
                plan = task.submit("ledger", "pay", {"invoice_id": "1"}, SOUND)
            else:
                plan = task.dry_run("address.update", {"customer_id": "77"})
            for door, script in {"commit": commit, "state": state, "abandon": abandon, "end": end}.items():
                server.next(door, *script)
            act(task, plan)
        assert all(type(ended.state) is str for ended in task.ended)
        again = attempt(lambda: make_desk(server, base_url, Path(place) / "agent", PACE).task("t1").commit(plan))
        assert isinstance(again, (*OUTCOMES, AgentError))
    assert {heard.headers["idempotency-key"] for heard in server.at("commit")} <= {plan.idempotency_key}
    assert len(server.applied) <= 1


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=st.lists(steps, max_size=2), last=nearly_sound, is_fed=st.booleans())
def test_whatever_a_dry_run_or_a_feed_is_answered_there_is_one_sound_plan_or_the_sdks_own_error(
    some: list[Step], last: Step, is_fed: bool
) -> None:
    server = ScriptedDesk()
    with tempfile.TemporaryDirectory() as place, serving(server) as base_url, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        desk = make_desk(server, base_url, Path(place) / "agent", PACE)
        with desk, desk.task("t1") as task:
            server.next("feed" if is_fed else "dry-run", *some, last)
            for _ in range(2):
                if is_fed:
                    made = attempt(lambda: task.submit("ledger", "pay", {"invoice_id": "1"}, SOUND))
                else:
                    made = attempt(lambda: task.dry_run("address.update", {"customer_id": "77"}))
                assert isinstance(made, Plan | AgentError)
                if isinstance(made, Plan):
                    act(task, made)
    keys: dict[str, set[str]] = {}
    for heard in server.at("commit"):
        keys.setdefault(heard.json["plan_token"], set()).add(heard.headers["idempotency-key"])
    assert all(len(found) == 1 for found in keys.values())


@pytest.mark.parametrize("key", ["k\r\nX: y", "", "k" * 256, "a b", 7, None])
def test_a_feed_that_is_answered_with_no_sound_key_keeps_its_own(desk: Desk, server: ScriptedDesk, key: object) -> None:
    answered = {"plan_id": "plan_r", "target": "ledger", "idempotency_key": key, "review_url": "\ud800"}
    server.next("feed", Step(status=201, members=answered, is_applied=True))
    with desk.task("t1") as task:
        plan = task.submit("ledger", "pay", {"invoice_id": "1"}, SOUND)
        assert isinstance(task.commit(plan), Committed)
    assert {heard.headers["idempotency-key"] for heard in server.at("commit")} == {plan.idempotency_key}
    assert plan.review_url == "https://desk.example/x"
