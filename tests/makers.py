"""Makers of people, agents, targets and plans, through the product's own use cases wherever a use case makes them."""

import itertools
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.contrib.auth import get_user_model
from django.db import transaction

from audit.models import Event
from plans import clock, ending, registry, strict_json
from plans.chronicle import SWEEP, agent_actor, person_actor, target_actor
from plans.commit import claim, mark_unknown
from plans.instants import format_instant_exact
from plans.intake import receive_plan
from plans.locks import lock_plan
from plans.models import Agent, Plan, Policy, Target
from plans.schema import FedPlan
from plans.states import AbandonReason, State
from plans.targets.base import Change

SOON = timedelta(seconds=3)
"""The lifetime of a plan that a test waits to see expire: enough to make a few of them on a busy machine."""

_numbers = itertools.count(1)


def number() -> int:
    """A number that no other maker of this process got."""
    return next(_numbers)


def make_person(*roles: str, email: str = "", name: str = "", **fields: Any) -> Any:
    """A person with these roles (reviewer, auditor, admin), without a usable password."""
    count = number()
    flags = {f"is_{role}": True for role in roles}
    person = get_user_model()(
        email=email or f"person{count}@plandesk.example", name=name or f"Person {count}", **flags, **fields
    )
    person.set_unusable_password()
    person.save()
    return person


def make_target(name: str = "", *, approvals: int = 1, base_url: str = "http://127.0.0.1:9", **fields: Any) -> Target:
    """A remote target. Its default address answers nobody."""
    return registry.create_target(name=name or f"ledger-{number()}", base_url=base_url, approvals=approvals, **fields)


@dataclass(frozen=True)
class MadeAgent:
    """An agent with the credentials that are shown once."""

    agent: Agent
    api_key: str
    webhook_secret: str
    callback_secret: str


def make_agent(*targets: Target, name: str = "", owner: Any = None, callback_url: str = "") -> MadeAgent:
    """An agent that may feed these targets, owned by a new admin unless told otherwise."""
    credentials = registry.create_agent(
        name=name or f"agent-{number()}",
        owner=owner or make_person("admin"),
        targets=[target.name for target in targets],
        callback_url=callback_url,
    )
    return MadeAgent(credentials.agent, credentials.api_key, credentials.webhook_secret, credentials.callback_secret)


def feed_data(target: str, **changes: Any) -> dict[str, Any]:
    """`data` of a `plan.created`, in the shape of CONTRACT 5.1; P0 of the cases unless changed.

    `plan` in `changes` is merged into the plan; a value of `...` takes the member out.
    """
    count = number()
    lifetime = changes.pop("lifetime", timedelta(minutes=10))
    data: dict[str, Any] = {
        "task_id": f"task-{count}",
        "target": target,
        "operation": "limit.update",
        "inputs": {"account": "ACC-104", "limit": 250, "nonce": count},
        "plan": {
            "plan_id": f"plan_{count}",
            "plan_token": f"pt-{count}-sentinel-5d1f0c",
            "expires_at": format_instant_exact(clock.now() + lifetime),
            "input_fingerprint": f"sha256:{count:064x}",
            "actions": [{"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 100, "to": 250}],
        },
    }
    data["plan"] |= changes.pop("plan", {})
    data |= changes
    for holder in (data, data["plan"]):
        for name in [name for name, value in holder.items() if value is ...]:
            del holder[name]
    return data


def envelope(data: Any, kind: str = "plan.created") -> bytes:
    """A webhook body."""
    return json.dumps({"type": kind, "timestamp": format_instant_exact(clock.now()), "data": data}).encode()


def receive(agent: Agent, data: Any) -> Plan:
    """Feed `data` (a dict, or JSON text) past the signature."""
    body = data.encode() if isinstance(data, str) else json.dumps(data).encode()
    return receive_plan(agent=agent, data=msgspec.json.decode(body, type=FedPlan), tree=strict_json.loads(body)).plan


def make_plan(
    state: State | str = State.PENDING,
    *,
    made: MadeAgent | None = None,
    target: Target | None = None,
    person: Any = None,
    reason: AbandonReason = AbandonReason.TASK_ENDED,
    changes: tuple[Change, ...] = (Change("ledger/ACC-104", "limit", "100", "175"),),
    result: str | None = '{"entry": "L-1"}',
    **data: Any,
) -> Plan:
    """A fed plan, taken to `state` by the engine's own steps, with every event of the way."""
    target = target or make_target()
    made = made or make_agent(target)
    if target not in made.agent.targets.all():
        made.agent.targets.add(target)
    plan = receive(made.agent, feed_data(target.name, **data))
    take_to(plan, State(state), person=person, reason=reason, changes=changes, result=result)
    return reread(plan)


def reread(plan: Plan) -> Plan:
    """The plan as it stands in the database."""
    return Plan.objects.select_related("agent", "target", "task", "policy").get(pk=plan.pk)


@transaction.atomic
def take_to(plan: Plan, state: State, *, person: Any, reason: AbandonReason, changes: Any, result: str | None) -> None:
    """Take a pending plan to a state, as the engine would."""
    if state is State.PENDING:
        return
    plan = lock_plan(plan.pk)
    at = clock.now()
    actor = person_actor(person) if person else agent_actor(plan.agent)
    if state is State.REJECTED:
        person = person or make_person("reviewer")
        ending.reject(plan, reviewer=person, actor=actor, seen_digest="0" * 64, reason="Not this one", at=at)
        return
    if state is State.ABANDONED:
        if reason is AbandonReason.EXPIRED:
            ending.expire(plan, at=at)
        else:
            ending.abandon(plan, reason, actor=SWEEP, at=at)
        return
    attempt = claim(plan, actor=actor, at=at)
    assert attempt is not None
    if state is State.COMMITTED:
        ending.commit(plan, attempt, result, actor=target_actor(plan), at=at)
    elif state is State.CONFLICTED:
        ending.conflict(plan, changes, actor=target_actor(plan), at=at)
    elif state is State.REFUSED:
        ending.refuse(plan, "The account is closed.", actor=target_actor(plan), at=at)
    elif state is State.UNKNOWN:
        attempt.outcome, attempt.settled_at, attempt.detail = "unknown", at, "The answer was cut short."
        attempt.save(update_fields=["outcome", "settled_at", "detail"])
        mark_unknown(plan, at=at, detail="The answer was cut short.")


def events_of(plan: Plan) -> list[str]:
    """The kinds of a plan's events, in their order."""
    rows = Event.objects.filter(agent=plan.agent.name, target=plan.target.name, plan_id=plan.plan_id)
    return [str(kind) for kind in rows.exclude(plan_seq=None).order_by("plan_seq").values_list("kind", flat=True)]


def kinds_recorded() -> list[str]:
    """The kinds of all events, oldest first."""
    return [str(kind) for kind in Event.objects.order_by("at", "id").values_list("kind", flat=True)]


def policy_of(target: Target, **fields: Any) -> Policy:
    """A new version of a target's policy."""
    newest = Policy.objects.filter(target=target).order_by("-version")[0]
    values = {"approvals": newest.approvals, "is_guarded": False, "refuses_unconfirmed": False} | fields
    return Policy.objects.create(target=target, version=newest.version + 1, created_at=clock.now(), **values)


def instant(text: str) -> datetime:
    """An RFC 3339 instant."""
    return datetime.fromisoformat(text)
