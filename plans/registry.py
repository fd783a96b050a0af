"""Agents and targets: made, changed, disabled; each change with its event, every secret shown once."""

import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from audit.kinds import Kind
from audit.recording import Actor, record
from plans import auth, clock, ending, vault
from plans.errors import Sentence
from plans.locks import lock_agent, lock_plan
from plans.models import Agent, AgentSecret, Plan, Policy, Target, TargetAddress
from plans.policy_change import next_version
from plans.registry_rules import (
    RegistryError,
    check_approvals,
    check_callback_url,
    check_name,
    check_operations,
    check_url,
    checked_path,
)
from plans.signatures import Secret, make_secret
from plans.states import AbandonReason, State
from plans.targets import operations as hosted

COMMAND_LINE = Actor("system", "command-line", "Command line")


@dataclass(frozen=True, slots=True)
class AgentCredentials:
    """What an agent needs to speak to the desk. Shown this once; `repr` keeps it."""

    agent: Agent
    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    callback_secret: str = field(repr=False)


# --- agents ---------------------------------------------------------------------------------------------------------


@transaction.atomic(durable=True)
def create_agent(
    *, name: str, owner: Any = None, targets: Sequence[str] = (), callback_url: str = "", by: Actor = COMMAND_LINE
) -> AgentCredentials:
    """A new agent with its key and secrets. Without owner, the first admin owns it. Raises `RegistryError`."""
    check_name(name)
    if Agent.objects.filter(name=name).exists():
        raise RegistryError(Sentence("There is already an agent %(name)s.", name=name))
    owner = owner or get_user_model().objects.filter(is_admin=True, is_active=True).order_by("pk").first()
    if owner is None:
        raise RegistryError(Sentence("An agent needs an owner, and there is no admin yet: create one first."))
    if callback_url:
        check_callback_url(callback_url)
    found = [_target(target) for target in targets]
    api_key, webhook, callback = auth.make_api_key(), make_secret(), make_secret()
    at = clock.now()
    agent = Agent.objects.create(
        name=name,
        owner=owner,
        api_key_hash=auth.hash_api_key(api_key),
        api_key_hint=auth.hint_of(api_key),
        callback_url=callback_url,
        created_at=at,
    )
    agent.targets.set(found)
    _keep_secret(agent, AgentSecret.WEBHOOK, webhook)
    _keep_secret(agent, AgentSecret.CALLBACK, callback)
    data = {"change": "created", "owner": str(owner.pk), "targets": list(targets), "callback_url": callback_url}
    _tell_agent(agent, by, data)
    return AgentCredentials(agent, api_key, webhook.reveal(), callback.reveal())


@transaction.atomic(durable=True)
def rotate_agent(*, name: str, by: Actor = COMMAND_LINE) -> AgentCredentials:
    """A new key and new secrets. The old key is dead at once; the webhook secret before this one lives on until the
    next rotation, so that deliveries under way arrive."""
    agent = lock_agent(_agent(name).pk)
    api_key, webhook, callback = auth.make_api_key(), make_secret(), make_secret()
    at = clock.now()
    agent.api_key_hash, agent.api_key_hint = auth.hash_api_key(api_key), auth.hint_of(api_key)
    agent.save(update_fields=["api_key_hash", "api_key_hint"])
    live = AgentSecret.objects.filter(agent=agent, retired_at=None).order_by("-id")
    before = live.filter(purpose=AgentSecret.WEBHOOK).first()
    live.exclude(pk__in=[before.pk] if before else []).update(retired_at=at)
    _keep_secret(agent, AgentSecret.WEBHOOK, webhook)
    _keep_secret(agent, AgentSecret.CALLBACK, callback)
    _tell_agent(agent, by, {"change": "rotated"})
    return AgentCredentials(agent, api_key, webhook.reveal(), callback.reveal())


@transaction.atomic(durable=True)
def pause_agent(*, name: str, is_paused: bool = True, by: Actor = COMMAND_LINE) -> Agent:
    """Take no new plans of this agent, or take them again. Waiting plans can still be decided. May be repeated."""
    agent = lock_agent(_agent(name).pk)
    if agent.is_paused != is_paused:
        agent.is_paused = is_paused
        agent.save(update_fields=["is_paused"])
        _tell_agent(agent, by, {"change": "paused" if is_paused else "resumed"})
    return agent


@transaction.atomic(durable=True)
def disable_agent(*, name: str, by: Actor = COMMAND_LINE) -> list[Plan]:
    """End an agent for good: its key and secrets are dead, its pending plans `withdrawn`. Returns those plans."""
    agent = lock_agent(_agent(name).pk)
    at = clock.now()
    if agent.disabled_at is None:
        agent.disabled_at = at
        agent.save(update_fields=["disabled_at"])
        AgentSecret.objects.filter(agent=agent, retired_at=None).update(retired_at=at)
        _tell_agent(agent, by, {"change": "disabled"})
    return _withdraw(list(Plan.objects.of_agent(agent).pending().order_by("pk").values_list("pk", flat=True)), by)


@transaction.atomic(durable=True)
def set_agent(
    *,
    name: str,
    owner: Any = None,
    targets: Sequence[str] | None = None,
    callback_url: str | None = None,
    by: Actor = COMMAND_LINE,
) -> Agent:
    """Change an agent's owner, where it may plan, or where it is told; None leaves a thing as it is.

    Its waiting plans stay, at targets that it loses too: a person decides them, and nobody who owned the agent since
    they were received; the agent may give them up there, and commits none of them. A change that changes nothing leaves
    no event. Locks the agent. Raises `RegistryError`, also for one that is disabled.
    """
    agent = lock_agent(_agent(name).pk)
    if agent.disabled_at is not None:
        raise RegistryError(Sentence("The agent %(name)s is disabled for good.", name=name))
    told: dict[str, Any] = {}
    if owner is not None and owner.pk != agent.owner_id:
        told["owner"] = {"from": str(agent.owner_id), "to": str(owner.pk)}
        agent.owner = owner
    if callback_url is not None and callback_url != agent.callback_url:
        if callback_url:
            check_callback_url(callback_url)
        told["callback_url"] = {"from": agent.callback_url, "to": callback_url}
        agent.callback_url = callback_url
    if told:
        agent.save(update_fields=["owner", "callback_url"])
    if targets is not None:
        before = sorted(agent.targets.values_list("name", flat=True))
        if before != sorted(set(targets)):
            # One that was disabled meanwhile may stay, and may not come anew.
            agent.targets.set([_target(target, must_live=target not in before) for target in sorted(set(targets))])
            told["targets"] = {"from": before, "to": sorted(set(targets))}
    if told:
        _tell_agent(agent, by, {"change": "set", **told})
    return agent


def _keep_secret(agent: Agent, purpose: str, secret: Secret) -> None:
    sealed = auth.seal_secret(agent.name, purpose, secret)
    AgentSecret.objects.create(agent=agent, purpose=purpose, sealed=sealed, created_at=clock.now())


def _agent(name: str) -> Agent:
    agent = Agent.objects.filter(name=name).first()
    if agent is None:
        raise RegistryError(Sentence("There is no agent %(name)r.", name=name))
    return agent


def _tell_agent(agent: Agent, by: Actor, data: dict[str, Any]) -> None:
    record(Kind.AGENT_CHANGED, actor=by, agent=agent.name, data=data)


# --- targets --------------------------------------------------------------------------------------------------------


@transaction.atomic(durable=True)
def create_target(
    *,
    name: str,
    base_url: str,
    approvals: int = 1,
    operations: Sequence[str] = (),
    bearer: str | None = None,
    commit_path: str | None = None,
    status_path: str | None = None,
    by: Actor = COMMAND_LINE,
) -> Target:
    """Register a remote target with its first policy. Raises `RegistryError`."""
    check_name(name)
    if Target.objects.filter(name=name).exists():
        raise RegistryError(Sentence("There is already a target %(name)s.", name=name))
    check_url(base_url, what=Sentence("base URL"))
    check_operations(operations)
    check_approvals(approvals)
    at = clock.now()
    target = Target.objects.create(
        name=name,
        kind=Target.REMOTE,
        base_url=base_url.rstrip("/"),
        operations=list(operations),
        created_at=at,
    )
    TargetAddress.objects.create(
        target=target,
        base_url=target.base_url,
        commit_path=checked_path(commit_path or "/{operation}/commit"),
        status_path=checked_path(status_path or "/plans/{plan_id}"),
        credentials_sealed=_sealed_bearer(name, bearer) if bearer else None,
        created_at=at,
    )
    Policy.objects.create(target=target, version=1, approvals=approvals, created_at=at)
    _tell_target(target, by, {"change": "created", "base_url": base_url, "approvals": approvals})
    return target


@transaction.atomic(durable=True)
def set_target(
    *,
    name: str,
    base_url: str | None = None,
    approvals: int | None = None,
    operations: Sequence[str] | None = None,
    bearer: str | None = None,
    commit_path: str | None = None,
    status_path: str | None = None,
    by: Actor = COMMAND_LINE,
) -> Target:
    """Change a target; an empty `bearer` takes its credentials away.

    A new address withdraws its pending plans, which commit where they were received or not at all; a new number of
    approvals is a new version of its policy, for plans received from then on. Credentials do not follow a person's new
    address to another server: they are given again, or taken away. Locks the target. Raises `RegistryError`.
    """
    target = Target.objects.select_for_update(no_key=True).get(pk=_target(name, must_live=False).pk)
    told: dict[str, Any] = {"change": "set"}
    if operations is not None:
        check_operations(operations)
        told["operations"] = {"from": list(target.operations), "to": list(operations)}
        target.operations = list(operations)
        target.save(update_fields=["operations"])
    is_moved = False
    if any(value is not None for value in (base_url, bearer, commit_path, status_path)):
        if by.type == "person" and base_url is not None and bearer is None:
            _keep_credentials_home(target, base_url)
        is_moved = _set_address(target, told, base_url, bearer, commit_path, status_path)
    if len(told) > 1:
        _tell_target(target, by, told)
    if approvals is not None:
        check_approvals(approvals)
        next_version(target, by=by, approvals=approvals)
    if is_moved:
        _withdraw(_pending_pks(target), by)
    return target


def _set_address(
    target: Target,
    told: dict[str, Any],
    base_url: str | None,
    bearer: str | None,
    commit_path: str | None,
    status_path: str | None,
) -> bool:
    """Change where a target is, or what it is spoken to with. True where it moved: then the old address stays on
    record for the plans that were received under it, with the credentials it had."""
    if target.is_hosted:
        raise RegistryError(Sentence("A hosted target has no address."))
    if base_url is not None:
        check_url(base_url, what=Sentence("base URL"))
    now = present_address(target)
    before = (now.base_url, now.commit_path, now.status_path)
    after = (
        (base_url or now.base_url).rstrip("/"),
        checked_path(commit_path or now.commit_path),
        checked_path(status_path or now.status_path),
    )
    sealed = now.credentials_sealed
    if bearer is not None:
        sealed = _sealed_bearer(target.name, bearer) if bearer else None
    told["has_new_authentication"] = bool(bearer)
    if bearer == "" and now.credentials_sealed is not None:
        told["authentication"] = "removed"
    if before == after:
        TargetAddress.objects.filter(pk=now.pk).update(credentials_sealed=sealed)
        return False
    told["address"] = {"from": list(before), "to": list(after)}
    target.base_url = after[0]
    target.save(update_fields=["base_url"])
    TargetAddress.objects.create(
        target=target,
        base_url=after[0],
        commit_path=after[1],
        status_path=after[2],
        credentials_sealed=sealed,
        created_at=clock.now(),
    )
    return True


def _keep_credentials_home(target: Target, base_url: str) -> None:
    """Refuses to send what was sealed for one server to another, by the word of somebody who need not know it."""
    if target.is_hosted:
        return
    now = present_address(target)
    if now.credentials_sealed is not None and _origin(now.base_url) != _origin(base_url):
        raise RegistryError(
            Sentence(
                "The credentials were given for %(origin)s: give those of the new server, or take them away.",
                origin=_origin(now.base_url),
            )
        )


def _origin(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}"


def present_address(target: Target) -> TargetAddress:
    """Where a remote target is now."""
    return target.addresses.order_by("-id")[0]


@transaction.atomic(durable=True)
def disable_target(*, name: str, by: Actor = COMMAND_LINE) -> list[Plan]:
    """Take no more plans for a target; its pending ones are `withdrawn`. What may be written is still found out."""
    target = Target.objects.select_for_update(no_key=True).get(pk=_target(name, must_live=False).pk)
    if target.disabled_at is None:
        target.disabled_at = clock.now()
        target.save(update_fields=["disabled_at"])
        _tell_target(target, by, {"change": "disabled"})
    return _withdraw(_pending_pks(target), by)


@transaction.atomic(durable=True)
def ensure_hosted_targets(*, by: Actor = COMMAND_LINE) -> list[Target]:
    """A row and a policy for the target of every hosted operation. The operation itself says how many approve. May be
    repeated."""
    return _ensure_hosted(by)


def _ensure_hosted(by: Actor) -> list[Target]:
    targets = []
    for name in sorted({operation.target for operation in hosted.operations()}):
        at = clock.now()
        target, is_new = Target.objects.get_or_create(name=name, defaults={"kind": Target.HOSTED, "created_at": at})
        if not target.is_hosted:
            raise RegistryError(
                Sentence("The name %(name)s is a remote target's: a hosted operation can't use it.", name=name)
            )
        if is_new:
            Policy.objects.create(target=target, version=1, approvals=None, created_at=at)
            _tell_target(target, by, {"change": "created", "kind": Target.HOSTED})
        targets.append(target)
    return targets


def _pending_pks(target: Target) -> list[int]:
    return list(Plan.objects.pending().filter(target=target).order_by("pk").values_list("pk", flat=True))


def _withdraw(pks: list[int], by: Actor) -> list[Plan]:
    """Abandon these plans, locked in ascending order; one that was decided meanwhile stays as it is."""
    ended = []
    for pk in pks:
        plan = lock_plan(pk)
        if plan.state == State.PENDING.value:
            ending.give_up(plan, AbandonReason.WITHDRAWN, actor=by, at=clock.now())
            ended.append(plan)
    return ended


def _target(name: str, *, must_live: bool = True) -> Target:
    target = Target.objects.filter(name=name).first()
    if target is None and name in {operation.target for operation in hosted.operations()}:
        target = next(made for made in _ensure_hosted(COMMAND_LINE) if made.name == name)
    if target is None or (must_live and target.disabled_at is not None):
        raise RegistryError(Sentence("There is no target %(name)r.", name=name))
    return target


def _tell_target(target: Target, by: Actor, data: dict[str, Any]) -> None:
    record(Kind.TARGET_CHANGED, actor=by, target=target.name, data=data)


def _sealed_bearer(name: str, bearer: str) -> bytes:
    """The credentials as kept. What no header can hold is refused here, not found out in the middle of a commit."""
    if not re.fullmatch(r"[\x21-\x7e]{1,4096}", bearer):
        raise RegistryError(Sentence("The credentials must be 1 to 4096 visible ASCII characters without spaces."))
    return vault.seal_credentials(name, bearer)
