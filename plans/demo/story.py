"""Where the story of invoice 4412 stands, read from the invoice, the plans and the task, and nowhere else."""

import json
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from plans.demo.agents import HOSTED_AGENT
from plans.demo.models import Invoice, Refund
from plans.demo.seed import STORY_INVOICE
from plans.ending import ABANDONED_BECAUSE
from plans.errors import Sentence
from plans.instants import format_instant
from plans.models import Plan, Task
from plans.states import AbandonReason, State

TASK_PREFIX: Final = "story-4412-"
SOMEBODY_ELSE: Final = "the service desk"
"""Who makes the refund that gets in the way, as the billing system keeps it."""


class Fact(NamedTuple):
    """A name, what there is to say of it, and the page that shows more, if any."""

    name: str
    text: str
    href: str = ""
    plan: Plan | None = None
    """The plan whose state `text` is: a page says it in its own words."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step as the page shows it. `press`: the visitor may play it now; `answer`: what really came of it."""

    name: str
    title: str
    text: str
    is_done: bool
    press: str = ""
    href: str = ""
    link: str = ""
    answer: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """The present telling: the task, its two plans, the other refund, and the invoice."""

    invoice: Invoice | None
    task: Task | None = None
    first: Plan | None = None
    second: Plan | None = None
    somebody_elses: Refund | None = None
    in_flight: int = 0
    refunds: tuple[Refund, ...] = field(default=())

    @property
    def has_ended(self) -> bool:
        return self.task is not None and self.task.ended_at is not None

    @property
    def is_conflicted(self) -> bool:
        return self.first is not None and self.first.state == State.CONFLICTED

    @property
    def is_over(self) -> bool:
        """The first plan has met its fate, or the task has ended: nobody can get in its way any more."""
        return self.has_ended or (self.first is not None and self.first.state != State.PENDING)

    @property
    def took_another_turn(self) -> str:
        """A sentence where a decision led away from the conflict; empty where it did not."""
        for plan in (self.first, self.second):
            if plan is None:
                continue
            if plan is self.first and plan.state == State.COMMITTED:
                return Sentence("The first plan was approved before anybody got in its way: all of it is refunded.")
            if plan.state == State.REJECTED:
                return Sentence("Plan %(plan)s was rejected, so the agent stops here.", plan=plan.plan_id)
            if plan.state == State.ABANDONED and not self.has_ended:
                because = ABANDONED_BECAUSE[AbandonReason(plan.abandonment.reason)]
                return Sentence(
                    "Plan %(plan)s was abandoned (%(because)s): nothing was written.",
                    plan=plan.plan_id,
                    because=because,
                )
            if plan is self.second and plan.state == State.CONFLICTED:
                return Sentence("Somebody wrote to the invoice again before the second plan did.")
        return ""


def find_task() -> Task | None:
    """The task of the latest telling, ended or not."""
    tasks = Task.objects.filter(agent__name=HOSTED_AGENT, task_id__startswith=TASK_PREFIX)
    return tasks.order_by("-pk").first()


def get_story() -> Story:
    """The story as it stands now. Reads only."""
    invoice = Invoice.objects.filter(pk=STORY_INVOICE).first()
    refunds = tuple(Refund.objects.filter(invoice_id=STORY_INVOICE).order_by("created_at", "pk"))
    task = find_task()
    if task is None:
        return Story(invoice, refunds=refunds)
    plans = list(
        Plan.objects.filter(task=task)
        .select_related("agent", "target", "conflict", "abandonment", "rejection")
        .order_by("pk")
    )
    first = plans[0] if plans else None
    second = next((plan for plan in reversed(plans) if first and plan.replaces == first.plan_id), None)
    return Story(
        invoice=invoice,
        task=task,
        first=first,
        second=second,
        somebody_elses=next((refund for refund in refunds if refund.made_by == SOMEBODY_ELSE), None),
        in_flight=Plan.objects.in_flight().filter(task=task).count(),
        refunds=refunds,
    )


def money(cents: int, currency: str) -> str:
    """An amount as people read it; `cents` is in the currency's smallest unit."""
    return f"{cents // 100}.{cents % 100:02d} {currency}"


def plan_path(plan: Plan) -> str:
    """The plan's page for people."""
    return f"/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/"


def amount_of(plan: Plan) -> int:
    """The cents that a refund plan is about."""
    return int(json.loads(plan.inputs)["amount_cents"])


def facts_of_plan(plan: Plan) -> tuple[Fact, ...]:
    """What the dry run answered."""
    actions = json.loads(plan.actions)
    return (
        Fact(Sentence("Plan"), plan.plan_id, plan_path(plan)),
        *(
            Fact(Sentence("Change %(number)d", number=number), _action(action))
            for number, action in enumerate(actions, 1)
        ),
        Fact(Sentence("Holds until"), format_instant(plan.expires_at.replace(microsecond=0))),
        Fact(Sentence("State now"), plan.state, plan=plan),
    )


def facts_of_conflict(plan: Plan) -> tuple[Fact, ...]:
    """What the approval of a plan answered that could not be written any more."""
    changes = plan.conflict.changes.order_by("position")
    moved = [
        Fact(
            f"{change.target} {change.field}",
            Sentence("planned %(planned)s, current %(current)s", planned=change.planned, current=change.current),
        )
        for change in changes
    ]
    return (Fact(Sentence("Answer"), Sentence("409 conflict, nothing was written")), *moved)


def facts_of_difference(first: Plan, second: Plan) -> tuple[Fact, ...]:
    """Which plan the new one stands in for, and what differs between the two."""
    before, after = ({_place(one): _value(one) for one in json.loads(plan.actions)} for plan in (first, second))
    differing = [
        Fact(
            Sentence("Differs: %(place)s", place=place),
            Sentence(
                "%(before)s there, %(after)s here",
                before=before.get(place, Sentence("nothing")),
                after=after.get(place, Sentence("nothing")),
            ),
        )
        for place in {**before, **after}
        if before.get(place) != after.get(place)
    ]
    return (*facts_of_plan(second), Fact(Sentence("Replaces"), first.plan_id, plan_path(first)), *differing)


def facts_of_result(plan: Plan) -> tuple[Fact, ...]:
    """What the target answered to the one commit."""
    commit = plan.commits.filter(outcome="committed").first()
    result = (commit and commit.result) or ""
    return (
        Fact(Sentence("Answer"), Sentence("written")),
        Fact(Sentence("Result"), result),
        Fact(Sentence("Attempts"), str(plan.commits.count())),
    )


def facts_of_retry(result: object, *, is_replayed: bool) -> tuple[Fact, ...]:
    """What the agent got when it asked again."""
    again = Sentence("the stored result, nothing was written") if is_replayed else Sentence("the result")
    return (Fact(Sentence("Answer"), again), Fact(Sentence("Result"), json.dumps(result)))


def _action(action: dict[str, Any]) -> str:
    return f"{action['op']} {_place(action)}: {_value(action)}"


def _place(action: dict[str, Any]) -> str:
    return " ".join(part for part in (action["target"], action.get("field")) if part)


def _value(action: dict[str, Any]) -> str:
    to = json.dumps(action.get("to"), separators=(", ", ": "))
    return f"{json.dumps(action['from'])} → {to}" if "from" in action else to
