"""The OpenAPI document is true of what the doors answer: real answers are held against it."""

from collections.abc import Iterator
from typing import Any

import pytest

from plans import registry
from plans.demo import seed
from plans.models import Target
from plans.states import AbandonReason, State
from reviewer import people
from tests.fixtures import Site
from tests.makers import envelope, feed_data, make_person, make_plan, make_target, receive
from tests.plans.http import Answer, send
from tests.plans.published import Judged, Published, judged


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


@pytest.fixture
def caller(site: Site, published: Published) -> Judged:
    return judged(site, published, make_target(approvals=0))


@pytest.fixture
def billing(site: Site, published: Published) -> Judged:
    """An agent that may use the hosted target, which has its records."""
    registry.ensure_hosted_targets()
    seed.seed_billing()
    return judged(site, published, Target.objects.get(name="billing"))


def address(number: str = "77", **more: Any) -> dict[str, Any]:
    return {"customer_id": number, "address": "9 New Street", **more}


@pytest.mark.parametrize("state", list(State))
def test_the_document_of_a_plan_in_every_state_is_as_told(caller: Judged, state: State) -> None:
    plan = make_plan(state, made=caller.made, target=caller.target, intent="intent-1")
    assert caller.get(f"/api/v1/plans/{plan.plan_id}").json["state"] == state.value
    assert caller.get("/api/v1/plans", state=state.value).json["plans"][0]["plan_id"] == plan.plan_id
    assert caller.post(f"/api/v1/plans/{plan.plan_id}/abandon", {"reason": "task_ended"}).status == 200


def test_feeds_and_what_follows_them_are_answered_as_told(caller: Judged) -> None:
    data = caller.data(
        intent="intent-2", summary="Raise a limit", evidence=[{"tool": "t", "note": "n", "url": "https://a.example/"}]
    )
    assert [caller.feed(data).status, caller.feed(data).status] == [201, 200]
    name, task, plan_id = caller.target.name, data["task_id"], data["plan"]["plan_id"]
    assert caller.feed(caller.data(replaces=plan_id)).status == 201
    assert caller.get(f"/api/v1/plans/{plan_id}").json["replaced_by"]
    assert caller.feed({"plan_id": plan_id, "target": name, "reason": "intent_changed"}, "plan.abandoned").status == 200
    assert caller.feed({"task_id": task, "target": name, "targets": ["ledger/ACC-104"]}, "write.observed").status == 200
    assert caller.feed({"task_id": task}, "task.ended").status == 200
    assert caller.post(f"/api/v1/tasks/{task}/writes", {"target": name, "targets": ["ledger/x"]}).status == 200
    assert caller.post(f"/api/v1/tasks/{task}/end", body=b"").status == 200
    assert caller.post(f"/api/v1/tasks/{task}/end", {}).status == 200


def test_a_hosted_plan_and_its_commit_and_its_replay_are_answered_as_told(billing: Judged) -> None:
    planned = billing.dry_run("address.update", address(), intent="address:77", summary="Moved")
    assert planned.status == 201
    first, again = (billing.commit("address.update", planned.json) for _ in range(2))
    assert (first.status, again.status, again.is_replayed) == (200, 200, True)
    assert billing.get(f"/api/v1/plans/{planned.json['plan_id']}").json["state"] == "committed"
    assert billing.get("/api/v1/tools").status == 200


def test_the_log_and_the_descriptions_are_answered_as_told(site: Site, published: Published) -> None:
    make_plan(State.COMMITTED)
    person = make_person("auditor")
    _, token = people.create_token(email=person.email)
    headers = {"Authorization": f"Bearer {token}"}
    asked = ["/api/v1/audit/events?order=asc&limit=2", "/api/v1/openapi.json", "/api/v1/docs"]
    events = send(site, "GET", "/api/v1/audit/events", headers=headers)
    for path in [*asked, f"/api/v1/audit/events/{events.json['events'][0]['id']}"]:
        answer = send(site, "GET", path, headers=headers)
        assert answer.status == 200, answer.body
        published.judge("GET", path, answer)
    published.judge("GET", "/api/v1/audit/events", events)


def reach_feed(caller: Judged) -> Iterator[Answer]:
    """A refusal of every kind that the feed knows."""
    plan = caller.data(intent="held")
    assert caller.feed(plan).status == 201
    yield caller.deliver(b"{}", webhook_signature="v1,AAAA")
    yield caller.deliver(b"{")
    yield caller.deliver(b"{}")
    yield caller.deliver(b"{}", content_type="text/plain")
    yield caller.deliver(b" " * 1_048_577)
    yield caller.feed(feed_data("nobody-knows"))
    yield caller.feed({**plan, "summary": "other"})
    yield caller.feed(caller.data(plan={"plan_token": plan["plan"]["plan_token"]}))
    done = make_plan(State.COMMITTED, made=caller.made, target=caller.target, intent="done")
    yield caller.feed(caller.data(intent="done"))
    yield caller.feed(caller.data(replaces=done.plan_id))
    body = envelope({"task_id": "task-9"}, "task.ended")
    assert caller.deliver(body, webhook_id="msg_same").status == 200
    yield caller.deliver(body + b" ", webhook_id="msg_same")
    narrow = make_target(operations=["limit.raise"])
    caller.agent.targets.add(narrow)
    yield caller.feed(feed_data(narrow.name))


def reach_api(caller: Judged) -> Iterator[Answer]:
    """A refusal of every kind that the API knows, but for commits."""
    yield caller.send("GET", "/api/v1/plans")
    yield caller.send("DELETE", "/api/v1/plans")
    yield caller.get("/api/v1/plans/nobody-knows")
    yield caller.get("/api/v1/plans", state="nowhere")
    yield caller.get("/api/v1/plans", nope="1")
    yield caller.post("/api/v1/plans/plan_x/abandon?target=nowhere", {"reason": "task_ended"})
    yield caller.post("/api/v1/operations/nothing/dry-run", {"task_id": "t", "inputs": {}})
    other = make_target(approvals=0)
    caller.agent.targets.add(other)
    for target in (caller.target, other):
        assert caller.feed(feed_data(target.name, plan={"plan_id": "plan_twice"})).status == 201
    yield caller.get("/api/v1/plans/plan_twice")
    person = make_person("auditor")
    _, token = people.create_token(email=person.email)
    yield caller.send("GET", "/api/v1/audit/events/nothing", headers={"Authorization": f"Bearer {token}"})
    person.is_auditor = False
    person.save()
    yield caller.send("GET", "/api/v1/audit/events", headers={"Authorization": f"Bearer {token}"})


def reach_commit(caller: Judged) -> Iterator[Answer]:
    """A refusal of every kind that a commit knows."""
    data = caller.data()
    assert caller.feed(data).status == 201
    plan = data["plan"]
    yield caller.commit_plan(plan, key=None)
    yield caller.commit_plan(plan, key="no good")
    yield caller.commit_plan(plan, plan_token="pt_unknown")
    yield caller.commit_plan(plan, input_fingerprint=...)
    yield caller.commit_plan(plan, input_fingerprint="sha256:other")
    yield caller.commit_plan(plan, plan_token=...)
    yield caller.commit_plan(plan, key="key-sent")  # nobody listens at the target
    yield caller.commit_plan(plan, key="key-sent", input_fingerprint="sha256:other")
    asking = make_target(approvals=1)
    caller.agent.targets.add(asking)
    data = feed_data(asking.name)
    assert caller.feed(data).status == 201
    yield caller.commit_plan(data["plan"])
    for state, reason in (
        (State.CONFLICTED, AbandonReason.TASK_ENDED), (State.REJECTED, AbandonReason.TASK_ENDED),
        (State.REFUSED, AbandonReason.TASK_ENDED), (State.ABANDONED, AbandonReason.TASK_ENDED),
        (State.ABANDONED, AbandonReason.EXPIRED), (State.UNKNOWN, AbandonReason.TASK_ENDED),
    ):  # fmt: skip
        token = f"pt-{state}-{reason}"
        ended = make_plan(state, made=caller.made, target=caller.target, reason=reason, plan={"plan_token": token})
        presented = {"plan_id": ended.plan_id, "plan_token": token, "input_fingerprint": ended.input_fingerprint}
        yield caller.commit_plan(presented, key=token)
    data = caller.data()
    assert caller.feed(data).status == 201
    yield caller.commit_plan(data["plan"], key="key-fenced")


def reach_hosted(billing: Judged) -> Iterator[Answer]:
    """What a dry run of a hosted operation refuses."""
    yield billing.dry_run("address.update", address("nobody"))
    yield billing.dry_run("address.update", {})
    registry.pause_agent(name=billing.agent.name)
    yield billing.dry_run("address.update", address())


def reach_full(caller: Judged) -> Iterator[Answer]:
    """One plan too many."""
    for _ in range(200):
        receive(caller.agent, caller.data())
    yield caller.feed()


@pytest.mark.slow
def test_every_refusal_is_answered_as_told(caller: Judged, billing: Judged) -> None:
    met: set[str] = set()
    for reach, one in ((reach_feed, caller), (reach_api, caller), (reach_commit, caller), (reach_hosted, billing)):
        for answer in reach(one):
            assert answer.status >= 400, (met, answer.body)
            met.add(answer.slug)
    for answer in reach_full(judged(caller.site, caller.published, make_target())):
        met.add(answer.slug)
    assert met == caller.published.slugs()
