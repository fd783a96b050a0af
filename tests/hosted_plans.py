"""Plans of the demonstration's hosted operations, made by their dry run, with what an agent needs to commit them."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from plans import policies, registry, schema
from plans.agent_commit import CommitAnswer, Presented, commit_by_agent
from plans.intake import dry_run
from plans.models import Agent, Plan
from plans.review import approve_plan
from tests.makers import MadeAgent, make_agent, make_person, number, reread
from tests.plans.demo.makers import make_customer, make_invoice

NEW_ADDRESS = "1 New Road, Galway"


@dataclass(frozen=True)
class Hosted:
    """A hosted plan, and the token that its dry run answered once."""

    plan: Plan
    token: str

    def commit(self, key: str = "key-1", **changes: Any) -> CommitAnswer:
        """Commit it as its agent does. Refusals are raised."""
        values = {"plan_id": None, "token": self.token, "fingerprint": self.plan.input_fingerprint}
        presented = Presented(key=key, **(values | changes))
        return commit_by_agent(agent=self.plan.agent, operation=self.plan.operation, presented=presented)

    def approve(self, person: Any = None) -> Plan:
        """Approve it as a reviewer does, with the fact that it asks for."""
        return approve(self.plan, person)


def approve(plan: Plan, person: Any = None) -> Plan:
    """Approve any plan as it stands, with the fact that it asks for."""
    plan = reread(plan)
    guard = policies.guard_of(plan.actions, is_always=plan.policy.is_guarded)
    return approve_plan(
        plan_pk=plan.pk,
        person=person or make_person("reviewer"),
        seen_digest=schema.shown_digest(plan),
        fact="" if guard is None else guard.fact,
    )


def make_billing_agent() -> MadeAgent:
    """An agent that may plan the billing system's operations."""
    return make_agent(*registry.ensure_hosted_targets())


def plan_hosted(operation: str, inputs: Any, *, agent: Agent | None = None, **request: Any) -> Hosted:
    """Dry-run an operation."""
    agent = agent or make_billing_agent().agent
    document = {"task_id": f"task-{number()}", "inputs": inputs, **request}
    answer = dry_run(
        agent=agent, operation=operation, request=msgspec.json.decode(json.dumps(document), type=schema.DryRun)
    )
    return Hosted(reread(answer.plan), answer.token)


def plan_address(customer_id: str = "77", address: str = NEW_ADDRESS, **more: Any) -> Hosted:
    """A plan that needs nobody's approval; its customer is made where there is none."""
    make_customer(customer_id)
    return plan_hosted("address.update", {"customer_id": customer_id, "address": address}, **more)


def plan_refund(
    invoice_id: str = "4412", amount_cents: int = 20_000, *, total_cents: int = 48_000, **more: Any
) -> Hosted:
    """A plan that one person has to approve, from 100,000 cents two."""
    make_invoice(invoice_id, total_cents=total_cents)
    more.setdefault("intent", f"refund:{invoice_id}-{number()}")
    return plan_hosted("refund", {"invoice_id": invoice_id, "amount_cents": amount_cents}, **more)
