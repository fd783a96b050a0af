"""The arrival of a plan of which nothing is out of the ordinary: all under the agent's lock, in one statement.

Whatever is not plain (a refusal to be, a rival, a wish, a write since) is left to `arrival`, which knows what to do.
"""

import json
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError

from audit.kinds import Kind
from audit.recording import prepare
from plans import feed_sql, schema, vault
from plans.arrival import Arrived, Draft, Feeder, make_key, refusal_for, told_of
from plans.chronicle import named_agent
from plans.deliveries import Received
from plans.feed_sql import Place
from plans.locks import wait_text
from plans.policies import approvals_needed
from plans.states import State

# Stand for what only the database knows: when the plan was made, where its agent does not say, and what follows from
# it. No text of a feed holds U+0000, so that none is taken for one of them.
_AT: Final = "\x00"
_DIGEST: Final = "\x00\x00"
_SHOWN_AT: Final = json.dumps(_AT)
_TOLD: Final = f'"created_at":{json.dumps(_AT)},"digest":{json.dumps(_DIGEST)}'

_places: dict[str, Place] = {}
"""Targets by name, as this process saw them last: policies and addresses change seldom, and are looked at again."""


def record_at_once(agent: Feeder, draft: Draft, delivery: Received | None, most_pending: int) -> Arrived | None:
    """Record a flawless draft where nothing about it is out of the ordinary; None, and nothing done, where it is.

    Locks the agent. Not to be called in a transaction. Raises what a unique constraint says (`refusal_for`).
    """
    if draft.replaces is not None:
        return None
    place = _places.get(draft.target) or feed_sql.find_place(draft.target)
    if place is None:
        return None
    key = make_key()
    try:
        plan_pk = feed_sql.receive(_parameters(agent, draft, delivery, place, key, most_pending))
    except IntegrityError as error:
        raise refusal_for(error) from None
    if plan_pk is None:
        _places.pop(draft.target, None)  # it may have been that which was out of date
        return None
    _places[draft.target] = place
    return Arrived(plan_pk, State.PENDING, key)


def _parameters(
    agent: Feeder, draft: Draft, delivery: Received | None, place: Place, key: str, most_pending: int
) -> list[Any]:
    approvals = approvals_needed(of_policy=place.policy_approvals, of_operation=draft.approvals_of_operation)
    shown = schema.Shown(
        agent.name, draft.target, place.base_url, draft.plan_id, draft.operation, draft.task_id, draft.intent,
        draft.replaces, draft.inputs, draft.actions, draft.evidence, draft.summary, draft.input_fingerprint,
        _AT, schema.as_shown(draft.expires_at), place.policy_version, approvals, 0,
    )  # fmt: skip
    shown_before, shown_after = schema.digested(shown).split(_SHOWN_AT)
    event = prepare(
        Kind.PLAN_RECEIVED,
        actor=named_agent(agent.name),
        data=told_of(shown, _DIGEST),
        on_behalf_of=str(agent.owner_id),
        agent=agent.name,
        target=draft.target,
        plan_id=draft.plan_id,
        operation=draft.operation,
        task_id=draft.task_id,
    )
    payload_before, payload_after = event.payload.split(_TOLD)
    return [
        wait_text(), most_pending, settings.PLAN_MAX_LIFETIME, settings.WISHES_KEPT_FOR,
        agent.pk, place.target_pk, place.base_url, place.address_pk,
        place.policy_pk, place.policy_version, place.policy_approvals,
        None if delivery is None else delivery.webhook_id, None if delivery is None else delivery.body_hash,
        draft.intent, draft.inputs, draft.actions, draft.action_targets, draft.evidence, draft.summary,
        draft.input_fingerprint, draft.inputs_hash, draft.data_hash, approvals,
        vault.token_hash(draft.token), vault.seal_token(draft.token), key, draft.created_at,
        draft.expires_at, f'{shown_before}"', f'"{shown_after}',
        event.kind, event.actor_type, event.actor_id, f'{payload_before}"created_at":"', f'"{payload_after}',
        event.on_behalf_of, event.agent, event.target, event.plan_id, event.operation, event.task_id,
        event.request_id,
    ]  # fmt: skip
