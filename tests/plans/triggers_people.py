"""Triggers of people: decisions, and what admins change. Rows of docs/states.md."""

from unittest import mock

from plans import clock, registry
from plans.callbacks import queue, repeat
from plans.demo.models import Invoice
from plans.models import Agent, Callback, Plan
from plans.policy_change import apply_newest_policy, change_policy
from plans.recheck import recheck_plan
from plans.review import approve_plan
from plans.schema import shown_digest
from reviewer import people
from tests.makers import make_person, reread
from tests.plans.scenes import ADMIN, Scene
from tests.plans.triggers import trigger
from tests.plans.triggers_agents import commit_beside, fence
from tests.reviewer.pages import url_of

# --- looking --------------------------------------------------------------------------------------------------------


@trigger("open its page", "plan", "viewing.record_view")
def _(at: Scene) -> str:
    return at.page(method="GET")


@trigger("open its page, past its expiry", "plan", lapsed=1)
def _(at: Scene) -> str:
    return at.page(method="GET")


@trigger("open its page, 45 s after its claim", "plan", aged=45.1)
def _(at: Scene) -> str:
    return at.page(method="GET")


@trigger("look what has moved since it was planned", "recheck.recheck_plan")
def _(at: Scene) -> None:
    recheck_plan(at.plan)


# --- approving ------------------------------------------------------------------------------------------------------


@trigger("approve", "plan-approve", "review.approve_plan")
def _(at: Scene) -> str:
    return at.approve(by_page=True)


@trigger("approve, hosted", "plan-approve", "hosted_commit.apply_hosted", hosted="refund")
def _(at: Scene) -> str:
    return at.approve(by_page=True)


@trigger("approve, hosted, an input changed", "plan-approve", hosted="refund")
def _(at: Scene) -> str:
    Invoice.objects.filter(pk=at.key, refunded_cents=0).update(refunded_cents=1)
    return at.approve()


@trigger("approve, past its expiry", "plan-approve", lapsed=0)
def _(at: Scene) -> str:
    return at.approve()


@trigger("approve, 45 s after its claim", "plan-approve", aged=45.1)
def _(at: Scene) -> str:
    return at.approve()


@trigger("approve, the first of two", "plan-approve", approvals=2)
def _(at: Scene) -> str:
    return at.approve()


@trigger("approve, the second of two", "plan-approve", approvals=2)
def _(at: Scene) -> str:
    if at.state == "pending":
        assert at.approve(make_person("reviewer")) == "200"
        at.mark()
    return at.approve()


@trigger("approve, the second of two, the first has lost the right", "plan-approve", approvals=2, spoils=True)
def _(at: Scene) -> str:
    if at.state == "pending":
        first = make_person("reviewer")
        assert at.approve(first) == "200"
        people.set_roles(email=first.email, roles=["auditor"])
        at.mark()
    return at.approve()


@trigger("approve, the same person twice", "plan-approve", approvals=2)
def _(at: Scene) -> str:
    if at.state == "pending":
        assert at.approve() == "200"
        at.mark()
    return at.approve()


@trigger("approve, another digest", "plan-approve")
def _(at: Scene) -> str:
    return at.approve(seen_digest="0" * 64)


@trigger("approve, not a reviewer", "plan-approve")
def _(at: Scene) -> str:
    return at.approve(make_person("auditor", "admin"))


@trigger("approve, the owner of its agent", "plan-approve", spoils=True)
def _(at: Scene) -> str:
    owner = at.made.agent.owner
    people.set_roles(email=owner.email, roles=["admin", "reviewer"])
    at.mark()
    return at.approve(owner)


@trigger("approve, the fact not typed", "plan-approve", is_guarded=True)
def _(at: Scene) -> str:
    return at.approve(by_page=True, fact="")


@trigger(
    "approve, the policy wants it confirmed and it is not", "plan-approve", refuses_unconfirmed=True, is_known=False
)
def _(at: Scene) -> str:
    return at.approve()


@trigger("approve, another plan of its agent fences its targets", "plan-approve", is_once=True)
def _(at: Scene) -> str:
    if at.state not in ("committing", "unknown"):
        fence(at)
    return at.approve()


@trigger("approve, after a commit by its agent on its targets, before the sweep", "plan-approve", is_once=True)
def _(at: Scene) -> str:
    commit_beside(at, at.made)
    return at.approve()


@trigger("approve, not signed in", "plan-approve", "plan-reject", "plan-settle", "plan-replan")
def _(at: Scene) -> str:
    return str(at.stage.anybody.post(url_of(at.plan, "approve"), {"digest": shown_digest(at.plan)}).status_code)


def _die(*_):
    raise SystemExit


@trigger("approve, and the process dies between claim and call", "commit.claim")
def _(at: Scene) -> str | None:
    with mock.patch("plans.review.carry_out", _die):
        try:
            return at.approve()
        except SystemExit:
            return None


@trigger("approve, and the process dies between the answer and its record", "commit.claim")
def _(at: Scene) -> str | None:
    with mock.patch("plans.commit.settle", _die):
        try:
            return at.approve()
        except SystemExit:
            return None


# --- rejecting ------------------------------------------------------------------------------------------------------


@trigger("reject", "plan-reject", "review.reject_plan")
def _(at: Scene) -> str:
    return at.reject(by_page=True)


@trigger("reject, past its expiry", "plan-reject", lapsed=0)
def _(at: Scene) -> str:
    return at.reject()


@trigger("reject, without a reason", "plan-reject")
def _(at: Scene) -> str:
    return at.reject(reason=" ")


@trigger("reject, another digest", "plan-reject")
def _(at: Scene) -> str:
    return at.reject(seen_digest="0" * 64)


@trigger("reject, not a reviewer", "plan-reject")
def _(at: Scene) -> str:
    return at.reject(make_person("auditor"))


# --- settling, asking again -----------------------------------------------------------------------------------------

SETTLE = "review.settle_unknown"


@trigger("settle: made", "plan-settle", SETTLE, lapsed=60.1)
def _(at: Scene) -> str:
    return at.page("settle", was_made="yes", reason="Seen in the ledger")


@trigger("settle: not made", "plan-settle", SETTLE, lapsed=60.1)
def _(at: Scene) -> str:
    return at.settle(was_made=False)


@trigger("settle, sooner than 60 s past its expiry", "plan-settle", SETTLE, lapsed=59)
def _(at: Scene) -> str:
    return at.settle()


@trigger("settle, without a reason", "plan-settle", SETTLE, lapsed=60.1)
def _(at: Scene) -> str:
    return at.settle(reason="")


@trigger("settle, without saying which", "plan-settle", SETTLE, lapsed=60.1)
def _(at: Scene) -> str:
    return at.page("settle", reason="Seen in the ledger")


@trigger("settle, not a reviewer", "plan-settle", SETTLE, lapsed=60.1)
def _(at: Scene) -> str:
    return at.settle(make_person("admin"))


@trigger("ask for a new plan", "plan-replan", "review.request_replan")
def _(at: Scene) -> str:
    return at.page("replan")


@trigger("ask for a new plan, not a reviewer", "plan-replan")
def _(at: Scene) -> str:
    return at.page("replan", make_person("auditor"))


# --- admins ---------------------------------------------------------------------------------------------------------


@trigger("pause its agent, and resume it", "agent", "registry.pause_agent", spoils=True)
def _(at: Scene) -> None:
    registry.pause_agent(name=at.made.agent.name, by=ADMIN)
    registry.pause_agent(name=at.made.agent.name, is_paused=False, by=ADMIN)


@trigger("rotate its agent's key and secrets", "agent", "registry.rotate_agent", spoils=True)
def _(at: Scene) -> None:
    registry.rotate_agent(name=at.made.agent.name, by=ADMIN)


@trigger("give its agent another owner, and take its targets and callback", "agent", "registry.set_agent", spoils=True)
def _(at: Scene) -> None:
    registry.set_agent(name=at.made.agent.name, owner=make_person("admin"), targets=[], callback_url="", by=ADMIN)


@trigger("disable its agent", "agent", "registry.disable_agent", spoils=True)
def _(at: Scene) -> None:
    registry.disable_agent(name=at.made.agent.name, by=ADMIN)


@trigger("disable its agent, past its expiry", "agent", "registry.disable_agent", lapsed=1, spoils=True)
def _(at: Scene) -> None:
    registry.disable_agent(name=at.made.agent.name, by=ADMIN)


@trigger("its agent disabled before, approve", "agent", "registry.disable_agent", spoils=True)
def _(at: Scene) -> str:
    Agent.objects.filter(pk=at.made.agent.pk).update(disabled_at=clock.now())
    return at.approve()


@trigger("its agent disabled, and the attempt sends nothing", "agent", "registry.disable_agent", spoils=True)
def _(at: Scene) -> None:
    registry.disable_agent(name=at.made.agent.name, by=ADMIN)
    at.mark()
    if at.state == "committing":
        at.target_answers(None)


@trigger("given up while it is committed, and the attempt sends nothing", spoils=True)
def _(at: Scene) -> None:
    at.feed({"task_id": at.plan.task.task_id}, "task.ended")
    at.mark()
    if at.state == "committing":
        at.target_answers(None)


@trigger("give its target another address", "target", "registry.set_target", spoils=True)
def _(at: Scene) -> None:
    registry.set_target(name=at.plan.target.name, base_url="http://127.0.0.1:9/elsewhere", by=ADMIN)


@trigger("give its target another address, past its expiry", "target", "registry.set_target", lapsed=1, spoils=True)
def _(at: Scene) -> None:
    registry.set_target(name=at.plan.target.name, base_url="http://127.0.0.1:9/elsewhere", by=ADMIN)


@trigger("give its target other credentials", "target", "registry.set_target", spoils=True)
def _(at: Scene) -> None:
    registry.set_target(name=at.plan.target.name, bearer="new-credential", by=ADMIN)


@trigger("give its target other operations", "target", "registry.set_target", spoils=True)
def _(at: Scene) -> None:
    registry.set_target(name=at.plan.target.name, operations=["something.else"], by=ADMIN)


@trigger("disable its target", "target", "registry.disable_target", spoils=True)
def _(at: Scene) -> None:
    registry.disable_target(name=at.plan.target.name, by=ADMIN)


def _two_approvals(at: Scene) -> None:
    change_policy(target_name=at.plan.target.name, approvals=2, is_guarded=False, refuses_unconfirmed=False, by=ADMIN)


@trigger(
    "a newer policy for its target", "target", "policy_change.change_policy", "policy_change.next_version", spoils=True
)
def _(at: Scene) -> None:
    _two_approvals(at)


@trigger("put it under its target's newest policy", "target", "policy_change.apply_newest_policy", spoils=True)
def _(at: Scene) -> None:
    _two_approvals(at)
    at.mark()
    apply_newest_policy(target_name=at.plan.target.name, plan_pks=[at.plan.pk], by=ADMIN)


@trigger(
    "put it under its target's newest policy, past its expiry",
    "target",
    "policy_change.apply_newest_policy",
    lapsed=1,
    spoils=True,
)
def _(at: Scene) -> None:
    _two_approvals(at)
    at.mark()
    apply_newest_policy(target_name=at.plan.target.name, plan_pks=[at.plan.pk], by=ADMIN)


@trigger(
    "put it under its target's newest policy, one of two approvals given",
    "target",
    "policy_change.apply_newest_policy",
    approvals=3,
    spoils=True,
)
def _(at: Scene) -> None:
    if at.state == "pending":
        approve_plan(plan_pk=at.plan.pk, person=at.person, seen_digest=shown_digest(reread(at.plan)))
    _two_approvals(at)
    at.mark()
    apply_newest_policy(target_name=at.plan.target.name, plan_pks=[at.plan.pk], by=ADMIN)


@trigger("disable a person who could decide it", "person", spoils=True)
def _(at: Scene) -> None:
    people.disable_person(email=at.person.email, by=people.COMMAND_LINE)


@trigger("repeat one of its callbacks", "callbacks", "callbacks.repeat", is_callback_due=True, spoils=True)
def _(at: Scene) -> None:
    plan = Plan.objects.select_related("agent", "target", "task", "policy", "replaced_by").get(pk=at.plan.pk)
    queue(plan, "plan.approved", at=clock.now())
    repeat(callback_pk=Callback.objects.filter(plan=plan).latest("pk").pk, by=ADMIN)
