"""The served desk against its own OpenAPI document: whatever it is sent, it answers as the document tells."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from audit.models import Event
from plans import registry
from plans.demo import seed
from plans.models import Target
from plans.openapi_doors import DOORS
from plans.states import State
from reviewer import people
from tests.audit.sequencing import sequence
from tests.fixtures import Site
from tests.makers import make_agent, make_person, make_plan, make_target
from tests.plans.http import SENTINEL, signed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]

EXAMPLES: Final = 15
"""Of each operation and kind, valid and spoiled: some 800 requests in all."""

CHECKS: Final = [
    status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance,
]  # fmt: skip
OPERATIONS: Final = [(door.id, method) for door in DOORS for method in door.methods]


@dataclass
class World:
    """A desk with an agent, plans in every state and a hosted target; and names that lead somewhere there."""

    site: Site
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        registry.ensure_hosted_targets()
        seed.seed_billing()
        target = make_target(approvals=0)
        self.made = make_agent(target, Target.objects.get(name="billing"))
        plans = [
            make_plan(
                state,
                made=self.made,
                target=target,
                intent=f"intent-{state}",
                plan={
                    "plan_token": f"{SENTINEL}-{state}",
                    "actions": [{"op": "update", "target": f"ledger/{state}", "field": "limit", "to": 1}],
                },
            )
            for state in State
        ]
        _, token = people.create_token(email=make_person("auditor").email)
        self.bearers = {"agentKey": self.made.api_key, "personToken": token}
        [pending] = [plan for plan in plans if plan.state == State.PENDING]
        self.pending: dict[str, list[Any]] = {
            "plan_id": [pending.plan_id],
            "plan_token": [f"{SENTINEL}-pending"],
            "input_fingerprint": [pending.input_fingerprint],
            "target": [target.name],
        }
        self.known: dict[str, list[Any]] = {
            "agent": [self.made.agent.name],
            "plan_id": [plan.plan_id for plan in plans],
            "task_id": [pending.task.task_id, "task-new"],
            "target": [target.name, "billing"],
            "operation": ["refund", "address.update", "limit.update"],
            "inputs": [
                {"customer_id": "77", "address": "9 New Street"}, {"invoice_id": "4410", "amount_cents": 100},
                {"invoice_id": "nobody", "amount_cents": 100},
            ],
            "plan_token": [f"{SENTINEL}-{state}" for state in State],
            "input_fingerprint": [pending.input_fingerprint],
            "event_id": [str(pk) for pk in Event.objects.order_by("-pk").values_list("pk", flat=True)[:5]],
            "path": ["0/000", "entries/000", "0/000.p/1"],
            "expires_at": [pending.expires_at.isoformat()],
            "wait": [0, 1],
            "kind": ["plan.received"],
            "format": ["jsonl", "csv", "ocsf"],
        }  # fmt: skip

    def known_to(self, operation_id: str) -> dict[str, list[Any]]:
        """The names that lead somewhere at this operation."""
        if operation_id == "commitPlan":
            return self.pending
        if operation_id == "dryRun":
            return {**self.known, "operation": ["address.update"], "inputs": self.known["inputs"][:1]}
        if operation_id != "commitOperation":
            return self.known
        body = {"task_id": "task-hosted", "inputs": self.known["inputs"][0]}
        planned = self.session.post(
            f"{self.site.url}/api/v1/operations/address.update/dry-run",
            json=body,
            headers={"Authorization": f"Bearer {self.made.api_key}"},
            timeout=10,
        ).json()
        hosted = {name: [planned[name]] for name in ("plan_id", "plan_token", "input_fingerprint")}
        return {**hosted, "operation": ["address.update"]}

    def send(self, case: Any, *, is_signed: bool) -> requests.Response:
        """One request as generated, with the bearer or the signature that its door asks for."""
        kwargs = case.as_transport_kwargs(base_url=self.site.url)
        kwargs.pop("timeout", None)
        request = self.session.prepare_request(requests.Request(**kwargs))
        [asked] = [name for one in case.operation.definition.raw["security"] for name in one] or [""]
        if asked in self.bearers:
            request.headers["Authorization"] = f"Bearer {self.bearers[asked]}"
        elif asked and is_signed:
            body = request.body.encode() if isinstance(request.body, str) else (request.body or b"")
            given_type = request.headers.get("Content-Type")
            request.headers.update(signed(self.made.webhook_secret, body, content_type=given_type))
        return self.session.send(request, timeout=60, allow_redirects=False)


@pytest.fixture
def world(site: Site, tmp_path: Path) -> World:
    made = World(site)
    sequence(tmp_path)  # so that there is something to prove
    return made


def lead_somewhere(data: st.DataObject, known: dict[str, list[Any]], node: Any) -> None:
    """Puts names that exist in the place of some generated ones, so that requests get past the first check."""
    if not isinstance(node, dict):
        return
    for name, value in list(node.items()):
        if name in known and data.draw(st.integers(0, 3)):
            node[name] = data.draw(st.sampled_from(known[name]))
        else:
            lead_somewhere(data, known, value)


def operation_of(site: Site, wanted: str) -> Any:
    config = SchemathesisConfig.from_dict({})
    schema = schemathesis.openapi.from_url(f"{site.url}/api/v1/openapi.json", config=config)
    return schema.find_operation_by_id(wanted)


def modes_of(operation: Any) -> Iterator[GenerationMode]:
    yield GenerationMode.POSITIVE
    if operation.body or operation.query or operation.headers or operation.path_parameters:
        yield GenerationMode.NEGATIVE


def fuzz(world: World, operation: Any, known: dict[str, list[Any]], mode: GenerationMode, examples: int) -> set[int]:
    """Sends generated requests, and holds every answer against the document. Returns the statuses it met."""
    met: set[int] = set()

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def send(case: Any, data: st.DataObject) -> None:
        for part in (case.path_parameters, case.query, case.body):
            lead_somewhere(data, known, part)
        for name in list(case.query or ()):
            if data.draw(st.integers(0, 3)) == 0:
                del case.query[name]
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = data.draw(st.sampled_from([0, 1, 31, "x"]))  # nobody has time for more
        answer = world.send(case, is_signed=data.draw(st.integers(0, 9)) > 0)
        met.add(answer.status_code)
        assert answer.status_code < 500 or answer.status_code in (503, 504), answer.text
        assert SENTINEL not in answer.text
        case.validate_response(answer, checks=CHECKS)

    send()
    return met


LEADS_NOWHERE = {"readTile", "commitPlan"}
"""A log of a few events has no whole tile, and nobody listens where these plans' target is: 503, nothing was sent."""


@pytest.mark.parametrize(("operation_id", "method"), OPERATIONS, ids=[f"{one}-{how}" for one, how in OPERATIONS])
def test_whatever_is_sent_is_answered_as_the_document_tells(world: World, operation_id: str, method: str) -> None:
    operation = operation_of(world.site, operation_id if method != "HEAD" else f"{operation_id}Head")
    examples, known = 5 if operation_id == "verifyLog" else EXAMPLES, world.known_to(operation_id)
    met = set().union(*(fuzz(world, operation, known, mode, examples) for mode in modes_of(operation)))
    assert operation_id in LEADS_NOWHERE or min(met) < 400, f"nothing got anywhere: {sorted(met)}"
    assert world.session.get(f"{world.site.url}/healthz", timeout=10).status_code == 200
