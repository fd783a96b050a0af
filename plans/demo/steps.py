"""The story as a page tells it: seven steps, what each of them really answered, and which may be played now."""

from plans.demo import story
from plans.demo.models import Invoice
from plans.demo.story import Fact, Step, Story
from plans.errors import Sentence
from plans.states import State


def steps_of(told: Story, retried: tuple[Fact, ...] = ()) -> list[Step]:
    """All steps in order. `retried` is what the agent got when this visitor had it retry."""
    return [
        _planned(told),
        _got_in_the_way(told),
        _first_decision(told),
        _planned_again(told),
        _second_decision(told),
        _retried(told, retried),
        _ended(told),
    ]


def next_of(steps: list[Step]) -> str:
    """The name of the step that moves the story on; empty at its end."""
    return next((step.name for step in steps if not step.is_done and (step.press or step.href)), "")


def describe_invoice(invoice: Invoice | None) -> list[Fact]:
    """The invoice as the billing system has it now."""
    if invoice is None:
        return [Fact(Sentence("Invoice"), Sentence("not there: run demo_seed"))]
    return [
        Fact(Sentence("Status"), invoice.status),
        Fact(Sentence("Total"), story.money(invoice.total_cents, invoice.currency)),
        Fact(Sentence("Refunded"), story.money(invoice.refunded_cents, invoice.currency)),
        Fact(Sentence("Remains"), story.money(invoice.remaining_cents, invoice.currency)),
    ]


def _planned(told: Story) -> Step:
    return Step(
        "start",
        Sentence("The agent plans a refund of 480.00"),
        Sentence(
            "It looks up the shipment, then dry-runs the refund. Nothing is written; a plan with exact changes is."
        ),
        is_done=told.first is not None,
        press=Sentence("Start the story") if told.first is None else Sentence("Start again"),
        answer=story.facts_of_plan(told.first) if told.first else (),
    )


def _got_in_the_way(told: Story) -> Step:
    refund = told.somebody_elses
    may_press = told.first is not None and not told.is_over and refund is None
    return Step(
        "interfere",
        Sentence("Somebody else refunds 200.00"),
        Sentence("At the counter, past the desk: an ordinary write in the billing system."),
        is_done=refund is not None,
        press=Sentence("Refund 200.00 at the counter") if may_press else "",
        answer=(Fact(Sentence("Refund"), refund.refund_id), Fact(Sentence("Made by"), refund.made_by))
        if refund
        else (),
    )


def _first_decision(told: Story) -> Step:
    first = told.first
    waits = first is not None and first.state == State.PENDING and told.somebody_elses is not None
    return Step(
        "conflict",
        Sentence("You approve, and see the conflict"),
        Sentence(
            "The answer to your approval is the outcome: what was planned, what is there now, and nothing written."
        ),
        is_done=told.is_conflicted,
        href=story.plan_path(first) if first and (waits or told.is_conflicted) else "",
        link=Sentence("Open the plan and approve it") if waits else Sentence("See the conflict"),
        answer=story.facts_of_conflict(first) if first and told.is_conflicted else (),
    )


def _planned_again(told: Story) -> Step:
    may_press = told.is_conflicted and told.second is None and not told.has_ended
    return Step(
        "replan",
        Sentence("The agent plans the 280.00 that remain"),
        Sentence(
            "It never repeats a conflicted commit. The new plan names the one it stands in for, and shows what differs."
        ),
        is_done=told.second is not None,
        press=Sentence("Let the agent plan again") if may_press else "",
        answer=story.facts_of_difference(told.first, told.second) if told.first and told.second else (),
    )


def _second_decision(told: Story) -> Step:
    second = told.second
    is_written = second is not None and second.state == State.COMMITTED
    return Step(
        "commit",
        Sentence("You approve, and it is written"),
        Sentence("Once. The result is kept with the plan."),
        is_done=is_written,
        href=story.plan_path(second) if second else "",
        link=Sentence("See the result") if is_written else Sentence("Open the new plan and approve it"),
        answer=story.facts_of_result(second) if second and is_written else (),
    )


def _retried(told: Story, retried: tuple[Fact, ...]) -> Step:
    is_written = told.second is not None and told.second.state == State.COMMITTED
    return Step(
        "retry",
        Sentence("The agent retries, and gets the stored result"),
        Sentence("As after a lost answer. However often it asks, nothing more is written."),
        is_done=bool(retried),
        press=Sentence("Let the agent retry") if is_written else "",
        answer=retried,
    )


def _ended(told: Story) -> Step:
    return Step(
        "end",
        Sentence("The task ends: nothing is in flight"),
        Sentence("What a task leaves undecided is abandoned, and recorded as such."),
        is_done=told.has_ended,
        press="" if told.task is None or told.has_ended else Sentence("End the agent's task"),
        answer=(Fact(Sentence("Plans in flight"), str(told.in_flight)),) if told.has_ended else (),
    )
