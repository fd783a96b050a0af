"""The feed: `POST /webhooks/{agent}`, signed per Standard Webhooks 1.0. CONTRACT 5.1, in that section's order."""

import hashlib
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse

from audit.kinds import Kind
from audit.recording import UNKNOWN_AGENT_BUCKET, Actor, record_capped
from plans import answers, deliveries, feed_sql, signatures
from plans.abandonment import abandon_plan, end_task, observe_write
from plans.auth import open_webhook_secrets
from plans.chronicle import named_agent
from plans.doors import check_json, door, json_answer, parsed_part, parsed_whole, raw_body
from plans.errors import BadSignature, DeliveryReused, Invalid, Refused
from plans.feed_sql import Knock, Sender
from plans.freshness import bring_up_to_date
from plans.identifiers import is_identifier, is_webhook_id
from plans.instants import parse_instant
from plans.intake import find_equal, receive_plan
from plans.models import Agent
from plans.requests import abandon_reason, written_at, written_targets
from plans.schema import Envelope, FedAbandonment, FedPlan, FedTaskEnd, FedWrite, check_identifiers
from plans.seen import note_seen

FINAL = frozenset({400, 415, 422})


@door("POST")
def feed(request: HttpRequest, **where: str) -> HttpResponse:
    """One delivery of an agent. The same one again gets the same answer with the plan's present state."""
    body = raw_body(request)
    name, webhook_id = where["name"], request.META.get("HTTP_WEBHOOK_ID", "")
    knock = feed_sql.knock(name if is_identifier(name) else None, webhook_id if is_webhook_id(webhook_id) else None)
    sender, webhook_id = _authentic(request, knock, body)
    received = deliveries.Received(webhook_id, hashlib.sha256(body).digest())
    try:
        if knock.body_hash is not None:
            deliveries.check_same(knock.body_hash, received)
        check_json(request)
        return _carry_out(sender, received, body)
    except Refused as refused:
        _record_refused(sender, refused)
        if refused.status in FINAL and not isinstance(refused, DeliveryReused):
            deliveries.bind_final(sender.pk, received)
        raise


def _authentic(request: HttpRequest, knock: Knock, body: bytes) -> tuple[Sender, str]:
    """The agent and the delivery's id, or one refusal for every reason, an unknown agent included."""
    sender = knock.sender
    trusted = [signatures.make_secret()] if sender is None else open_webhook_secrets(sender.name, knock.sealed_secrets)
    try:
        webhook_id = signatures.verify(
            trusted,
            webhook_id=request.META.get("HTTP_WEBHOOK_ID"),
            timestamp=request.META.get("HTTP_WEBHOOK_TIMESTAMP"),
            signature=request.META.get("HTTP_WEBHOOK_SIGNATURE"),
            body=body,
            now=knock.at.timestamp(),
        )
    except signatures.BadSignature as error:
        _record_rejected(request, sender, error.reason)
        raise BadSignature("The delivery is not signed with a live secret of this agent.") from None
    if sender is None:
        raise BadSignature("The delivery is not signed with a live secret of this agent.")
    note_seen(sender)
    return sender, webhook_id


def _carry_out(sender: Sender, received: deliveries.Received, body: bytes) -> HttpResponse:
    tree, envelope = parsed_whole(body, Envelope)
    try:
        parse_instant(envelope.timestamp)
    except ValueError as error:
        raise Invalid("The timestamp is not an instant.", [("/timestamp", str(error))]) from None
    data = bytes(envelope.data)
    match envelope.type:
        case "plan.created":
            return _plan_created(sender, received, data, tree)
        case "plan.abandoned":
            fed = parsed_part(data, FedAbandonment, "/data")
            _check(data__plan_id=fed.plan_id, data__target=fed.target)
            reason = abandon_reason(fed.reason, "/data/reason")
            plans = abandon_plan(
                agent=_agent(sender), target_name=fed.target, plan_id=fed.plan_id, reason=reason, delivery=received
            )
        case "task.ended":
            ended = parsed_part(data, FedTaskEnd, "/data")
            _check(data__task_id=ended.task_id)
            plans = end_task(agent=_agent(sender), task_id=ended.task_id, delivery=received)
        case "write.observed":
            write = parsed_part(data, FedWrite, "/data")
            _check(data__task_id=write.task_id, data__target=write.target)
            plans = observe_write(
                agent=_agent(sender),
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


def _agent(sender: Sender) -> Agent:
    return Agent.objects.get(pk=sender.pk)


def _plan_created(sender: Sender, received: deliveries.Received, data: bytes, body: Any) -> HttpResponse:
    tree = body["data"]
    try:
        fed = parsed_part(data, FedPlan, "/data")
        _check(data__target=fed.target)
    except Invalid:
        find_equal(agent=sender, tree=tree)  # that the id is taken is told before what is wrong
        raise
    intake = receive_plan(agent=sender, data=fed, tree=tree, delivery=received)
    if intake.arrived is None:
        return json_answer(answers.fed(bring_up_to_date(intake.plan)))
    arrived = intake.arrived
    told = answers.just_fed(sender.name, fed.target, fed.plan.plan_id, arrived.state, arrived.idempotency_key)
    return json_answer(told, 201)


def _check(**values: str) -> None:
    if errors := check_identifiers(**values):
        raise Invalid("A name is not acceptable.", errors)


@transaction.atomic(durable=True)
def _record_rejected(request: HttpRequest, sender: Sender | None, reason: str) -> None:
    address = request.META.get("REMOTE_ADDR", "")
    record_capped(
        Kind.WEBHOOK_REJECTED,
        bucket=UNKNOWN_AGENT_BUCKET if sender is None else sender.name,
        actor=Actor("system", "feed", "Feed"),
        agent=None if sender is None else sender.name,
        data={"reason": reason, "address": address},
    )


@transaction.atomic(durable=True)
def _record_refused(sender: Sender, refused: Refused) -> None:
    places = [error["pointer"] for error in refused.members.get("errors", [])][:20]
    record_capped(
        Kind.FEED_REFUSED,
        bucket=sender.name,
        actor=named_agent(sender.name),
        on_behalf_of=str(sender.owner_id),
        agent=sender.name,
        data={"slug": refused.slug, "status": refused.status, "places": places},
    )
