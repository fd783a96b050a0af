"""The story of invoice 4412, played one step at a time: the agent's side of it, and somebody else's refund.

The agent's steps run in the web process and call the desk over HTTP, so one thread waits for another of the same
server. Therefore every call is short, nothing waits for people, and only a few steps run at once in a process.
"""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import transaction

from plans.agent import Committed, Conflict, Desk, Outcome, Pace, Plan, Task
from plans.demo import shipping, story
from plans.demo.agents import HOSTED_AGENT, desk_of
from plans.demo.models import OPEN, Invoice, Refund
from plans.demo.operations import RefundInputs, RefundInvoice
from plans.demo.seed import STORY_INVOICE
from plans.errors import Sentence

FULL_CENTS: Final = 48_000
PARTIAL_CENTS: Final = 20_000
PACE: Final = Pace(patience=8.0, attempt=6.0, farewell=6.0, first_delay=0.2, longest_delay=1.0)
_turns = threading.BoundedSemaphore(2)


class CannotPlay(Exception):
    """This step does not fit where the story stands, or cannot be played now: a sentence for a person."""


class SomebodyElsesRefund(RefundInvoice):
    """The same refund, made at the counter, past the desk."""

    made_by = story.SOMEBODY_ELSE


def start() -> Plan:
    """Begin anew: end the last telling, give the invoice back its first state, and plan the refund of all of it."""
    with _desk() as desk:
        if last := story.find_task():
            desk.task(last.task_id).end()
        _reset_invoice()
        task = desk.task(f"{story.TASK_PREFIX}{secrets.token_hex(4)}")
        for shipment in shipping.look_up(STORY_INVOICE):
            task.read("shipping.lookup", shipment["note"], url=shipment["tracking_url"])
        return task.dry_run(
            "refund",
            {"invoice_id": STORY_INVOICE, "amount_cents": FULL_CENTS},
            intent=f"refund:{task.task_id}",
            summary=f"Refund 480.00 USD on invoice {STORY_INVOICE}: the parcel came back.",
        )


@transaction.atomic
def refund_by_somebody_else() -> Refund:
    """A refund of 200.00 that no plan knows of: an ordinary write in the billing system. Locks the invoice."""
    told = story.get_story()
    if told.first is None or told.is_over or told.somebody_elses is not None:
        raise CannotPlay(Sentence("This happens once, between the plan and the approval."))
    operation, inputs = SomebodyElsesRefund(), RefundInputs(STORY_INVOICE, PARTIAL_CENTS)
    state = operation.read(inputs, lock=True)
    operation.apply(inputs, operation.plan(inputs, state))
    return Refund.objects.get(invoice_id=STORY_INVOICE, made_by=story.SOMEBODY_ELSE)


def replan() -> Plan:
    """The agent learns of the conflict and plans what remains: what it asked for, less what others gave back since."""
    with _running() as task:
        plan = task.plans()[0].plan
        outcome = task.commit(plan)
        if not isinstance(outcome, Conflict):
            raise CannotPlay(
                Sentence("The agent plans again after a conflict; the desk told it %(what)s.", what=_said(outcome))
            )
        given_back = sum(
            change.current - change.planned
            for change in outcome.changed
            if change.field == "refunded_cents" and isinstance(change.current, int) and isinstance(change.planned, int)
        )
        amount = int(str(plan.inputs["amount_cents"])) - given_back
        return task.dry_run(
            "refund",
            {"invoice_id": STORY_INVOICE, "amount_cents": amount},
            intent=plan.intent,
            replaces=plan,
            summary=f"Refund the {story.money(amount, 'USD')} that remain of invoice {STORY_INVOICE}.",
        )


def retry() -> Committed:
    """The agent asks for the same commit again, as after a lost answer, and gets the stored result and no write."""
    with _running() as task:
        plan = task.plans()[-1].plan
        task.commit(plan)
        outcome = task.commit(plan)
        if not isinstance(outcome, Committed):
            raise CannotPlay(
                Sentence("There is no result to get again yet; the desk told the agent %(what)s.", what=_said(outcome))
            )
        return outcome


def end() -> None:
    """The agent's task ends; what it had not decided is abandoned. May be repeated."""
    with _running() as task:
        task.end()


@contextmanager
def _running() -> Iterator[Task]:
    """The agent's task as it goes on after a restart: the same id, the same store. Leaving does not end it."""
    task = story.find_task()
    if task is None:
        raise CannotPlay(Sentence("The story has not begun: start it first."))
    with _desk() as desk:
        yield desk.task(task.task_id)


@contextmanager
def _desk() -> Iterator[Desk]:
    if not _turns.acquire(timeout=1):
        raise CannotPlay(Sentence("Other people are playing a step at this moment. Nothing was done; press it again."))
    try:
        with desk_of(HOSTED_AGENT, place="story", pace=PACE) as desk:
            yield desk
    finally:
        _turns.release()


@transaction.atomic
def _reset_invoice() -> None:
    """A new telling of the story: the invoice as it was, open, nothing refunded. Locks the invoice."""
    Invoice.objects.select_for_update(no_key=True).get(pk=STORY_INVOICE)
    Refund.objects.filter(invoice_id=STORY_INVOICE).delete()
    Invoice.objects.filter(pk=STORY_INVOICE).update(status=OPEN, refunded_cents=0)


def _said(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()
