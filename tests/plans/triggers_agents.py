"""Triggers that agents pull: feeds, dry runs, commits, abandonments, reads. Rows of docs/states.md."""

from datetime import timedelta
from unittest import mock

from plans import clock, registry
from plans.demo.models import Customer
from plans.demo.operations import UpdateAddress
from plans.errors import CannotPlan
from plans.instants import format_instant_exact
from plans.models import Fence, ObservedWrite, Plan
from tests.hosted_plans import plan_address
from tests.makers import MadeAgent, envelope, feed_data, make_agent, make_plan, number
from tests.plans.demo.makers import make_customer
from tests.plans.http import without
from tests.plans.scenes import Scene, answered
from tests.plans.triggers import trigger
from tests.stub_behaviour import Answer, Commit, conflict
from tests.time_passing import pass_time_to_expiry

FED, GIVEN_UP, TASK, WRITE = "feed plan.created", "feed plan.abandoned", "feed task.ended", "feed write.observed"


def feed_another(at: Scene, *, seconds: float = 0, **changes) -> str:
    """Feed one more plan at the same target, made so many seconds before now."""
    data = feed_data(at.plan.target.name, plan=at.stub.new_plan(actions=at._actions()), **changes)
    if seconds:
        data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=seconds))
    return at.feed(data)


# --- plan.created ---------------------------------------------------------------------------------------------------


@trigger("`plan.created` with equal data, again", FED, "intake.receive_plan", "intake.find_equal")
def _(at: Scene) -> str:
    return at.feed(at.data)


@trigger("`plan.created` with equal data, past its expiry", FED, lapsed=1)
def _(at: Scene) -> str:
    return at.feed(at.data)


@trigger("`plan.created` with other data under its id", FED)
def _(at: Scene) -> str:
    return at.feed({**at.data, "summary": "Something else"})


@trigger("`plan.created` of another plan with its token", FED)
def _(at: Scene) -> str:
    return at.feed(feed_data(at.plan.target.name, plan={"plan_token": at.token}))


@trigger("`plan.created` of its intent, newer", FED, intent=True, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, intent=at.plan.intent)


@trigger("`plan.created` of its intent, newer, past its expiry", FED, intent=True, lapsed=1, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, intent=at.plan.intent)


@trigger("`plan.created` of its intent, older, that arrives late", FED, intent=True, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, intent=at.plan.intent, seconds=60)


@trigger("`plan.created` that `replaces` it", FED, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, replaces=at.plan.plan_id)


@trigger("`plan.created` that `replaces` it, past its expiry", FED, lapsed=1, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, replaces=at.plan.plan_id)


@trigger("`plan.created` of its task, operation and inputs, without intent, newer", FED, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, task_id=at.data["task_id"], inputs=at.data["inputs"])


@trigger("`plan.created` of its task, operation and inputs, without intent, older", FED, is_once=True)
def _(at: Scene) -> str:
    return feed_another(at, task_id=at.data["task_id"], inputs=at.data["inputs"], seconds=60)


@trigger("`plan.created` by another agent, with its id, intent, task and inputs", FED, intent=True, is_once=True)
def _(at: Scene) -> str:
    other = at.another_agent()
    same = {name: at.data[name] for name in ("task_id", "inputs", "intent")}
    body = at.stub.new_plan(plan_id=at.plan.plan_id, actions=at._actions())
    return at.feed(feed_data(at.plan.target.name, plan=body, **same), made=other)


@trigger("`plan.created` by another agent, with its token", FED)
def _(at: Scene) -> str:
    other = at.another_agent()
    return at.feed(feed_data(at.plan.target.name, plan={"plan_token": at.token}), made=other)


@trigger("`plan.created` that names its id, for a target of no agent", FED)
def _(at: Scene) -> str:
    return at.feed(feed_data(f"nowhere-{number()}", plan={"plan_id": at.plan.plan_id}))


# --- deliveries that are refused before they are read --------------------------------------------------------------


@trigger("a delivery whose signature does not fit")
def _(at: Scene) -> str:
    return at.deliver(envelope(at.data), webhook_signature="v1,AAAA")


@trigger("a delivery under a known id, with other bytes")
def _(at: Scene) -> str:
    webhook_id = f"msg_{number()}_known"
    gone = {"plan_id": f"plan_{number()}", "target": at.plan.target.name, "reason": "task_ended"}
    assert at.deliver(envelope(gone, "plan.abandoned"), webhook_id=webhook_id) == "200"
    return at.deliver(envelope({"task_id": at.plan.task.task_id}, "task.ended"), webhook_id=webhook_id)


@trigger("a delivery that is not JSON, or of no known type")
def _(at: Scene) -> str:
    assert at.deliver(b"{") == "400 malformed"
    assert at.deliver(b"{}", content_type="text/plain") == "415 not-json"
    return at.feed(at.data, "plan.committed")


# --- abandonments, ends of tasks, writes ----------------------------------------------------------------------------


def give_up(at: Scene, reason: str = "intent_changed") -> str:
    return at.feed({"plan_id": at.plan.plan_id, "target": at.plan.target.name, "reason": reason}, "plan.abandoned")


@trigger("`plan.abandoned` (`intent_changed`)", GIVEN_UP, "abandonment.abandon_plan")
def _(at: Scene) -> str:
    return give_up(at)


@trigger("`plan.abandoned` (`inputs_changed`)", GIVEN_UP)
def _(at: Scene) -> str:
    return give_up(at, "inputs_changed")


@trigger("`plan.abandoned`, past its expiry", GIVEN_UP, lapsed=1)
def _(at: Scene) -> str:
    return give_up(at)


@trigger("`plan.abandoned` by another agent, of its id", GIVEN_UP)
def _(at: Scene) -> str:
    other = at.another_agent()
    data = {"plan_id": at.plan.plan_id, "target": at.plan.target.name, "reason": "task_ended"}
    return at.feed(data, "plan.abandoned", made=other)


@trigger("`task.ended`", TASK, "abandonment.end_task", is_once=True)
def _(at: Scene) -> str:
    return at.feed({"task_id": at.plan.task.task_id}, "task.ended")


@trigger("`task.ended`, past its expiry", TASK, lapsed=1, is_once=True)
def _(at: Scene) -> str:
    return at.feed({"task_id": at.plan.task.task_id}, "task.ended")


@trigger("`task.ended` by another agent, of its task's id", TASK)
def _(at: Scene) -> str:
    return at.feed({"task_id": at.plan.task.task_id}, "task.ended", made=at.another_agent())


def tell_write(scene: Scene, made=None, **more) -> str:
    at = scene
    data = {"task_id": at.plan.task.task_id, "target": at.plan.target.name, "targets": [at.record], **more}
    return at.feed(data, "write.observed", made=made)


@trigger("`write.observed` by its agent, on its targets", WRITE, "abandonment.observe_write", is_once=True)
def _(at: Scene) -> str:
    return tell_write(at)


@trigger("`write.observed` by its agent, past its expiry", WRITE, lapsed=1, is_once=True)
def _(at: Scene) -> str:
    return tell_write(at)


@trigger("`write.observed` by its agent, older than the plan", WRITE, is_once=True)
def _(at: Scene) -> str:
    return tell_write(at, at=format_instant_exact(at.plan.created_at - timedelta(seconds=1)))


@trigger("`write.observed` by its agent, on something else", WRITE, is_once=True)
def _(at: Scene) -> str:
    return tell_write(at, targets=[at.record.upper()])


@trigger("`write.observed` by another agent, on its targets", WRITE, is_once=True)
def _(at: Scene) -> str:
    return tell_write(at, made=at.another_agent())


# --- what comes before its plan -------------------------------------------------------------------------------------


@trigger("nothing", FED, is_once=True)
def _(at: Scene) -> str:
    return at.feed(at.data)


@trigger("`plan.abandoned` of it", FED, is_once=True)
def _(at: Scene) -> str:
    data = {"plan_id": at.data["plan"]["plan_id"], "target": at.data["target"], "reason": "inputs_changed"}
    assert at.feed(data, "plan.abandoned") == "200"
    return at.feed(at.data)


@trigger("`task.ended` of its task", FED, is_once=True)
def _(at: Scene) -> str:
    assert at.feed({"task_id": at.data["task_id"]}, "task.ended") == "200"
    return at.feed(at.data)


@trigger("a plan that `replaces` it", FED, is_once=True)
def _(at: Scene) -> str:
    body = at.stub.new_plan(actions=at._actions())
    assert at.feed(feed_data(at.data["target"], plan=body, replaces=at.data["plan"]["plan_id"])) == "201"
    return at.feed(at.data)


@trigger("a newer plan of its intent", FED, is_once=True, intent=True)
def _(at: Scene) -> str:
    at.data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=5))
    body = at.stub.new_plan(actions=at._actions())
    assert at.feed(feed_data(at.data["target"], plan=body, intent=at.data["intent"])) == "201"
    return at.feed(at.data)


@trigger("a newer plan of its intent, which has expired meanwhile", FED, is_once=True, intent=True)
def _(at: Scene) -> str:
    at.data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=3_600))
    newer = feed_data(at.data["target"], plan=at.stub.new_plan(actions=at._actions()), intent=at.data["intent"])
    assert at.feed(newer) == "201"
    pass_time_to_expiry(at.owner, Plan.objects.get(plan_id=newer["plan"]["plan_id"]), 1)
    return at.feed(at.data)


@trigger("a write by its agent on its targets, since it was made", FED, is_once=True)
def _(at: Scene) -> str:
    at.data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=5))
    write = {"task_id": "task-w", "target": at.data["target"], "targets": [at.record]}
    assert at.feed(write, "write.observed") == "200"
    return at.feed(at.data)


@trigger("a write by another agent on its targets, since it was made", FED, is_once=True)
def _(at: Scene) -> str:
    at.data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=5))
    other = make_agent(at.made.agent.targets.get())
    at.mark()
    write = {"task_id": "task-w", "target": at.data["target"], "targets": [at.record]}
    assert at.feed(write, "write.observed", made=other) == "200"
    return at.feed(at.data)


@trigger("its agent paused", FED, spoils=True)
def _(at: Scene) -> str:
    registry.pause_agent(name=at.made.agent.name)
    refused = at.feed(at.data)
    registry.pause_agent(name=at.made.agent.name, is_paused=False)
    return f"{refused}, then {at.feed(at.data)}"


# --- hosted dry runs ------------------------------------------------------------------------------------------------

DRY_RUN = "dry_run_operation"


def dry_run(at: Scene, **more) -> str:
    document = {"task_id": f"task-{number()}", "inputs": {"customer_id": at.key, "address": "2 Other Road"}, **more}
    return at.api("POST", "/api/v1/operations/address.update/dry-run", document)


@trigger("a dry run that `replaces` it", DRY_RUN, "intake.dry_run", hosted="address", is_once=True)
def _(at: Scene) -> str:
    return dry_run(at, replaces=at.plan.plan_id)


@trigger("a dry run of its intent", DRY_RUN, hosted="refund", is_once=True)
def _(at: Scene) -> str:
    make_customer(at.key)
    return dry_run(at, intent=at.plan.intent)


@trigger("a dry run of its intent, past its expiry", DRY_RUN, hosted="refund", lapsed=1, is_once=True)
def _(at: Scene) -> str:
    make_customer(at.key)
    return dry_run(at, intent=at.plan.intent)


@trigger("a dry run of something else on its targets", DRY_RUN, hosted="address")
def _(at: Scene) -> str:
    return dry_run(at)


@trigger("a dry run that its operation refuses", DRY_RUN, hosted="address")
def _(at: Scene) -> str:
    return dry_run(at, inputs={"customer_id": "nobody", "address": "2 Other Road"})


# --- commits by token -----------------------------------------------------------------------------------------------

BY_TOKEN, BY_ID = "commit_operation", "commit_plan"


@trigger("commit", BY_TOKEN, "agent_commit.commit_by_agent", hosted="address")
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit, the same key again", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    at.commit(key=f"key-{at.key}")
    at.mark()
    return at.commit(key=f"key-{at.key}")


@trigger("commit, past its expiry", BY_TOKEN, hosted="address", lapsed=1)
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit, an input changed", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    Customer.objects.filter(pk=at.key).update(address="3 Third Road")
    return at.commit()


@trigger("commit, its operation fails", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    with without(at.owner, "UPDATE", "demo_customer"):
        return at.commit()


@trigger("commit, its operation says no", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    def say_no(self, inputs, actions):
        raise CannotPlan("This customer is blocked.")

    with mock.patch.object(UpdateAddress, "apply", say_no):
        return at.commit()


@trigger("commit, an approval missing", BY_TOKEN, hosted="refund")
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit, another plan's `plan_id` with its token", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(plan_id="plan_other")


@trigger("commit, a token that names no plan", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(plan_token="pt_nobody")


@trigger("commit, its token by another agent", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    other = at.another_agent()
    body = {"plan_token": at.token, "input_fingerprint": at.plan.input_fingerprint}
    return at.api("POST", "/api/v1/operations/address.update/commit", body, made=other, key="key-1")


@trigger("commit, the fingerprint missing", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(input_fingerprint=...)


@trigger("commit, another fingerprint", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(input_fingerprint="sha256:other")


@trigger("commit, no key", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(key=None)


@trigger("commit, a malformed key", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    return at.commit(key="key 1")


@trigger("commit, a key bound to another plan", BY_TOKEN, hosted="address")
def _(at: Scene) -> str:
    key = f"key-{number()}"
    plan_address(key, agent=at.made.agent).commit(key)
    at.mark()
    return at.commit(key=key)


# --- the same door for what was fed ---------------------------------------------------------------------------------


@trigger("commit by id, its target answers 200", BY_ID, approvals=0)
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit by id, past its expiry", BY_ID, approvals=0, lapsed=1)
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit by id, its target answers 409", BY_ID, approvals=0)
def _(at: Scene) -> str:
    at.stub.script(conflict())
    return at.commit()


@trigger("commit by id, its target answers 503", BY_ID, approvals=0)
def _(at: Scene) -> str:
    at.stub.script(Answer(503))
    return at.commit()


@trigger("commit by id, its target refuses the connection", BY_ID, approvals=0)
def _(at: Scene) -> str:
    at.stub.refuse_connections()
    return at.commit()


@trigger("commit by id, an approval missing", BY_ID)
def _(at: Scene) -> str:
    return at.commit()


@trigger("commit by id, the policy wants it confirmed and it is not", BY_ID, approvals=0, refuses_unconfirmed=True)
def _(at: Scene) -> str:
    at.stub.script(Commit())
    return at.commit()


@trigger("commit by id, 45 s after its claim", BY_ID, approvals=0, aged=45.1)
def _(at: Scene) -> str:
    return at.commit()


def fence(at: Scene) -> None:
    """Another plan of the agent, on the same record, whose outcome is unknown."""
    body = at.stub.new_plan(actions=[{"op": "update", "target": at.record, "field": "owner", "from": 1, "to": 2}])
    make_plan("unknown", made=at.made, target=at.plan.target, person=at.person, plan=body)
    at.mark()


def commit_beside(at: Scene, made: MadeAgent) -> None:
    """Another plan on the same record was committed, and no sweep has come since. The plan's own write is applied."""
    ObservedWrite.objects.update(is_applied=True)
    if at.state in ("committing", "unknown"):  # its fence would keep the other one out
        Fence.objects.filter(plan=at.plan).delete()
    body = at.stub.new_plan(actions=[{"op": "update", "target": at.record, "field": "owner", "from": 1, "to": 2}])
    make_plan("committed", made=made, target=at.plan.target, person=at.person, plan=body)
    at.mark()


@trigger("commit by id, after a commit by its agent on its targets, before the sweep", BY_ID, approvals=0, is_once=True)
def _(at: Scene) -> str:
    commit_beside(at, at.made)
    return at.commit()


@trigger("commit by id, another plan fences its targets", BY_ID, approvals=0, is_once=True)
def _(at: Scene) -> str:
    if at.state not in ("committing", "unknown"):  # these have the fence themselves
        fence(at)
    return at.commit()


# --- reads, and the same acts by the API ----------------------------------------------------------------------------


def read(at: Scene, query: str = "") -> str:
    return at.api("GET", f"/api/v1/plans/{at.plan.plan_id}{query}")


@trigger("`GET` its state", "read_plan", "freshness.bring_up_to_date")
def _(at: Scene) -> str:
    return read(at)


@trigger("`GET` its state, past its expiry", "read_plan", lapsed=1)
def _(at: Scene) -> str:
    return read(at)


@trigger("`GET` its state, 45 s after its claim", "read_plan", aged=45.1)
def _(at: Scene) -> str:
    return read(at)


@trigger("`GET` its state by another agent", "read_plan")
def _(at: Scene) -> str:
    return at.api("GET", f"/api/v1/plans/{at.plan.plan_id}", made=at.another_agent())


@trigger("`GET` all plans, past its expiry", "list_plans", "freshness.bring_all_up_to_date", lapsed=1, spoils=True)
def _(at: Scene) -> str:
    return at.api("GET", "/api/v1/plans")


@trigger("`GET` all plans, 45 s after its claim", "list_plans", aged=45.1, spoils=True)
def _(at: Scene) -> str:
    return at.api("GET", "/api/v1/plans")


@trigger("`POST .../abandon`", "abandon")
def _(at: Scene) -> str:
    return at.api("POST", f"/api/v1/plans/{at.plan.plan_id}/abandon", {"reason": "intent_changed"})


@trigger("`POST .../abandon` by another agent", "abandon")
def _(at: Scene) -> str:
    other = at.another_agent()
    return at.api("POST", f"/api/v1/plans/{at.plan.plan_id}/abandon", {"reason": "intent_changed"}, made=other)


@trigger("`POST .../abandon` with a reason of the desk's own", "abandon")
def _(at: Scene) -> str:
    return at.api("POST", f"/api/v1/plans/{at.plan.plan_id}/abandon", {"reason": "withdrawn"})


@trigger("`POST .../writes` on its targets", "write", is_once=True)
def _(at: Scene) -> str:
    body = {"target": at.plan.target.name, "targets": [at.record]}
    return at.api("POST", f"/api/v1/tasks/task-{number()}/writes", body)


@trigger("`POST .../end` of its task", "end", is_once=True)
def _(at: Scene) -> str:
    return at.api("POST", f"/api/v1/tasks/{at.plan.task.task_id}/end")


@trigger("any call with a key of nobody", "commit_plan", "abandon", "end", "read_plan")
def _(at: Scene) -> str:
    headers = {"Authorization": "Bearer nobody"}
    path = f"/api/v1/plans/{at.plan.plan_id}/abandon"
    return answered(
        at.stage.anybody.post(path, {"reason": "task_ended"}, content_type="application/json", headers=headers)
    )


@trigger(
    "`GET` the tools, the OpenAPI document, its page, and what is not there",
    "list_tools",
    "read_openapi",
    "read_docs",
    "nothing_here",
)
def _(at: Scene) -> str:
    answers = [at.api("GET", f"/api/v1/{name}") for name in ("tools", "openapi.json", "docs", "nowhere")]
    return ", ".join(answers)
