"""The feed: `POST /webhooks/{agent}`, signed per Standard Webhooks 1.0. CONTRACT 5.1, in that section's order."""

import hashlib
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse

from audit.kinds import Kind
from audit.recording import UNKNOWN_AGENT_BUCKET, Actor, record_capped
from plans import answers, clock, deliveries, signatures, strict_json
from plans.abandonment import abandon_plan, end_task, observe_write
from plans.auth import webhook_secrets
from plans.chronicle import agent_actor
from plans.doors import check_json, door, json_answer, parsed, raw_body, refusal_of
from plans.errors import BadSignature, DeliveryReused, Invalid, Refused
from plans.freshness import bring_up_to_date
from plans.identifiers import is_identifier
from plans.instants import parse_instant
from plans.intake import find_equal, receive_plan
from plans.models import Agent
from plans.requests import abandon_reason, written_at, written_targets
from plans.schema import Envelope, FedAbandonment, FedPlan, FedTaskEnd, FedWrite, check_identifiers

FINAL = frozenset({400, 415, 422})


@door("POST")
def feed(request: HttpRequest, **where: str) -> HttpResponse:
    """One delivery of an agent. The same one again gets the same answer with the plan's present state."""
    body = raw_body(request)
    agent, webhook_id = _authentic(request, where["name"], body)
    received = deliveries.Received(webhook_id, hashlib.sha256(body).digest())
    try:
        deliveries.check(agent, received)
        check_json(request)
        return _carry_out(agent, received, body)
    except Refused as refused:
        _record_refused(agent, refused)
        if refused.status in FINAL and not isinstance(refused, DeliveryReused):
            deliveries.bind_final(agent, received)
        raise


def _authentic(request: HttpRequest, name: str, body: bytes) -> tuple[Agent, str]:
    """The agent and the delivery's id, or one refusal for every reason, an unknown agent included."""
    agent = Agent.objects.filter(name=name, disabled_at=None).first() if is_identifier(name) else None
    trusted = [signatures.make_secret()] if agent is None else webhook_secrets(agent)
    try:
        webhook_id = signatures.verify(
            trusted,
            webhook_id=request.headers.get("webhook-id"),
            timestamp=request.headers.get("webhook-timestamp"),
            signature=request.headers.get("webhook-signature"),
            body=body,
            now=clock.now().timestamp(),
        )
    except signatures.BadSignature as error:
        _record_rejected(request, agent, error.reason)
        raise BadSignature("The delivery is not signed with a live secret of this agent.") from None
    if agent is None:
        raise BadSignature("The delivery is not signed with a live secret of this agent.")
    return agent, webhook_id


def _carry_out(agent: Agent, received: deliveries.Received, body: bytes) -> HttpResponse:
    envelope = parsed(body, Envelope)
    try:
        parse_instant(envelope.timestamp)
    except ValueError as error:
        raise Invalid("The timestamp is not an instant.", [("/timestamp", str(error))]) from None
    match envelope.type:
        case "plan.created":
            return _plan_created(agent, received, bytes(envelope.data))
        case "plan.abandoned":
            fed = parsed(bytes(envelope.data), FedAbandonment, "/data")
            _check(data__plan_id=fed.plan_id, data__target=fed.target)
            reason = abandon_reason(fed.reason, "/data/reason")
            plans = abandon_plan(
                agent=agent, target_name=fed.target, plan_id=fed.plan_id, reason=reason, delivery=received
            )
        case "task.ended":
            ended = parsed(bytes(envelope.data), FedTaskEnd, "/data")
            _check(data__task_id=ended.task_id)
            plans = end_task(agent=agent, task_id=ended.task_id, delivery=received)
        case "write.observed":
            write = parsed(bytes(envelope.data), FedWrite, "/data")
            _check(data__task_id=write.task_id, data__target=write.target)
            plans = observe_write(
                agent=agent,
                task_id=write.task_id,
                target_name=write.target,
                targets=written_targets(write.targets, "/data/targets"),
                written_at=written_at(write.at, "/data/at"),
                delivery=received,
            )
        case _:
            known = "plan.created, plan.abandoned, task.ended or write.observed"
            raise Invalid("This type of event is not known.", [("/type", f"must be {known}")])
    return json_answer({"plans": [answers.brief(plan) for plan in plans]})


def _plan_created(agent: Agent, received: deliveries.Received, data: bytes) -> HttpResponse:
    try:
        tree: Any = strict_json.loads(data)
    except strict_json.StrictJsonError as error:
        raise refusal_of(error, "/data") from None
    known = find_equal(agent=agent, tree=tree)
    if known is not None:
        deliveries.bind_final(agent, received)
        return json_answer(answers.fed(bring_up_to_date(known)))
    fed = parsed(data, FedPlan, "/data")
    _check(data__target=fed.target)
    intake = receive_plan(agent=agent, data=fed, tree=tree, delivery=received)
    return json_answer(answers.fed(intake.plan), 201 if intake.is_new else 200)


def _check(**values: str) -> None:
    if errors := check_identifiers(**values):
        raise Invalid("A name is not acceptable.", errors)


@transaction.atomic(durable=True)
def _record_rejected(request: HttpRequest, agent: Agent | None, reason: str) -> None:
    address = request.META.get("REMOTE_ADDR", "")
    record_capped(
        Kind.WEBHOOK_REJECTED,
        bucket=UNKNOWN_AGENT_BUCKET if agent is None else agent.name,
        actor=Actor("system", "feed", "Feed"),
        agent=None if agent is None else agent.name,
        data={"reason": reason, "address": address},
    )


@transaction.atomic(durable=True)
def _record_refused(agent: Agent, refused: Refused) -> None:
    places = [error["pointer"] for error in refused.members.get("errors", [])][:20]
    record_capped(
        Kind.FEED_REFUSED,
        bucket=agent.name,
        actor=agent_actor(agent),
        on_behalf_of=str(agent.owner_id),
        agent=agent.name,
        data={"slug": refused.slug, "status": refused.status, "places": places},
    )
