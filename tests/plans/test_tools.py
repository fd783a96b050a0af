"""Tools for language models: both forms as the contract says, and fit for strict function calling."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
from jsonschema import Draft202012Validator

from plans import registry, tools
from plans.demo import seed
from plans.demo.operations import RefundInvoice
from plans.models import Target
from plans.targets.operations import operations
from tests.fixtures import Site
from tests.makers import make_agent, make_target
from tests.plans.http import Caller, keep_to_the_rules, send

STRICT_KEYWORDS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "description",
}
"""Keywords that strict function calling takes with every model: none of those that only narrow a value."""


@pytest.fixture
def billing(database: None) -> Target:
    """The hosted demonstration target."""
    registry.ensure_hosted_targets()
    return Target.objects.get(name="billing")


@pytest.fixture
def caller(site: Site, billing: Target) -> Caller:
    return Caller(site, make_agent(billing), billing)


def fetched(caller: Caller) -> dict[str, dict[str, Any]]:
    answer = caller.get("/api/v1/tools")
    assert answer.status == 200
    return {tool["name"]: tool for tool in answer.json["tools"]}


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema in a schema."""
    yield schema
    for child in (
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", ()),
        *filter(None, [schema.get("items")]),
    ):
        yield from nodes(child)


def test_every_hosted_operation_has_a_dry_run_and_a_commit_tool(caller: Caller) -> None:
    found = {(tool["operation"], tool["step"]) for tool in fetched(caller).values()}
    assert found == {(one.name, step) for one in operations() for step in ("dry_run", "commit")}


def test_an_agent_is_shown_no_tools_of_targets_that_it_may_not_use(site: Site, billing: Target) -> None:
    remote = make_target()
    assert fetched(Caller(site, make_agent(remote), remote)) == {}


def test_a_disabled_target_has_no_tools(caller: Caller) -> None:
    registry.disable_target(name=caller.target.name)
    assert fetched(caller) == {}


def test_tools_are_told_to_agents_alone(site: Site) -> None:
    answer = keep_to_the_rules(send(site, "GET", "/api/v1/tools"))
    answer.is_problem(401, "unauthenticated")


def test_the_model_fills_plan_id_and_fingerprint_of_a_commit_and_nothing_else(caller: Caller) -> None:
    for tool in fetched(caller).values():
        if tool["step"] == "commit":
            assert set(tool["model"]["properties"]) == {"plan_id", "input_fingerprint"}
            assert set(tool["model"]["required"]) == {"plan_id", "input_fingerprint"}


def test_the_wire_form_of_a_commit_needs_token_and_fingerprint_and_a_token_needs_its_plan_id(caller: Caller) -> None:
    wire = fetched(caller)["refund_commit"]["wire"]
    body = {"plan_token": "pt_1", "input_fingerprint": "sha256:0", "plan_id": "plan_1"}
    check = Draft202012Validator(wire)
    assert check.is_valid(body)
    for name in body:
        assert not check.is_valid({key: value for key, value in body.items() if key != name}), name
    assert not check.is_valid({**body, "inputs": {}})
    assert set(wire["required"]) == {"plan_token", "input_fingerprint"}
    assert wire["dependentRequired"] == {"plan_token": ["plan_id"]}


def test_both_forms_are_json_schemas_of_closed_objects(caller: Caller) -> None:
    for tool in fetched(caller).values():
        for form in ("model", "wire"):
            Draft202012Validator.check_schema(tool[form])
            for node in nodes(tool[form]):
                assert "$ref" not in node
                if node.get("type") == "object":
                    assert node["additionalProperties"] is False, (tool["name"], form)
        assert tool["wire"]["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_model_form_is_what_strict_function_calling_takes(caller: Caller) -> None:
    for tool in fetched(caller).values():
        assert tool["model"]["type"] == "object"
        assert len(tool["name"]) <= 64
        assert tool["name"].replace("_", "").replace("-", "").isalnum()
        assert len(tool["description"]) <= 1024
        for node in nodes(tool["model"]):
            assert set(node) <= STRICT_KEYWORDS
            assert node.keys() & {"type", "anyOf", "enum", "const"}
            if node.get("type") == "object":
                assert list(node["properties"]) == node["required"]


def test_no_token_is_asked_of_a_model(caller: Caller) -> None:
    for tool in fetched(caller).values():
        for node in nodes(tool["model"]):
            assert "plan_token" not in node.get("properties", {})


def test_every_description_states_the_freeze_rule(caller: Caller) -> None:
    for tool in fetched(caller).values():
        assert tools.FREEZE_RULE in tool["description"]


def test_what_a_model_filled_can_be_planned_and_committed_at_the_told_addresses(caller: Caller) -> None:
    seed.seed_billing()
    found = fetched(caller)
    plan_tool, commit_tool = found["address_update_dry_run"], found["address_update_commit"]
    filled = {"inputs": {"customer_id": "77", "address": "9 New Street"}, "intent": None, "summary": "They moved."}
    assert Draft202012Validator(plan_tool["model"]).is_valid(filled)
    body = {"task_id": "task-1", **{name: value for name, value in filled.items() if value is not None}}
    assert Draft202012Validator(plan_tool["wire"]).is_valid(body)
    planned = caller.post(plan_tool["path"], body)
    assert planned.status == 201, planned.body
    filled = {name: planned.json[name] for name in ("plan_id", "input_fingerprint")}
    assert Draft202012Validator(commit_tool["model"]).is_valid(filled)
    body = {**filled, "plan_token": planned.json["plan_token"]}
    assert Draft202012Validator(commit_tool["wire"]).is_valid(body)
    assert caller.post(commit_tool["path"], body, key="key-1").status == 200


def test_an_operation_that_creates_requires_its_intent_in_both_forms(caller: Caller) -> None:
    tool = fetched(caller)["refund_dry_run"]
    assert "intent" in tool["wire"]["required"]
    assert tool["model"]["properties"]["intent"]["type"] == "string"


def test_the_wire_form_bounds_integers_as_the_door_does(caller: Caller) -> None:
    wire = Draft202012Validator(fetched(caller)["refund_dry_run"]["wire"])
    for amount, is_fine in ((2**53 - 1, True), (2**53, False), (-(2**53), False)):
        body = {"task_id": "task-1", "intent": "refund:1", "inputs": {"invoice_id": "1", "amount_cents": amount}}
        assert wire.is_valid(body) is is_fine
        assert (caller.post("/api/v1/operations/refund/dry-run", body).slug == "invalid") is not is_fine


class Piece(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)]
    title: str | None = None


class Odd(msgspec.Struct, forbid_unknown_fields=True):
    """Everything that inputs may hold."""

    pieces: Annotated[list[Piece], msgspec.Meta(max_length=3)]
    colour: Literal["red", "blue"] = "red"
    first: Piece | None = None


class Loop(msgspec.Struct, forbid_unknown_fields=True):
    inner: "Loop | None" = None


class Open(msgspec.Struct, forbid_unknown_fields=True):
    anything: dict[str, int]


class Untyped(msgspec.Struct, forbid_unknown_fields=True):
    anything: Any


class Lax(msgspec.Struct):
    number: int


def test_optional_members_become_nullable_and_rules_are_said() -> None:
    made = tools.strict(tools.inlined(Odd))
    assert made["required"] == ["pieces", "colour", "first"]
    piece = made["properties"]["pieces"]["items"]
    assert piece["required"] == ["size", "title"]
    assert piece["properties"]["size"] == {"type": "integer", "description": "(minimum 1, maximum 9)"}
    assert piece["properties"]["title"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert "maxItems 3" in made["properties"]["pieces"]["description"]
    assert {"type": "null"} in made["properties"]["colour"]["anyOf"]
    assert made["properties"]["first"]["anyOf"].count({"type": "null"}) == 1
    for node in nodes(made):
        assert set(node) <= STRICT_KEYWORDS


@pytest.mark.parametrize("shape", [Open, Untyped, Lax])
def test_inputs_that_no_strict_schema_can_say_are_refused(shape: type[msgspec.Struct]) -> None:
    with pytest.raises(tools.NotStrict):
        tools.strict(tools.inlined(shape))


def test_inputs_that_hold_themselves_are_refused() -> None:
    with pytest.raises(tools.NotStrict):
        tools.inlined(Loop)


UNSPEAKABLE: dict[str, tuple[Any, str]] = {
    "open": (Open, "An open object has no strict schema."),
    "untyped": (Untyped, "A value of any type has no strict schema."),
    "loop": (Loop, "Loop holds itself."),
    "foreign": (msgspec.defstruct("Foreign", [("amount", complex)]), "TypeError."),
}


@pytest.mark.parametrize("kind", UNSPEAKABLE)
def test_inputs_that_no_tool_can_hold_take_no_other_operations_tools_and_are_told_once(
    kind: str, billing: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent(billing).agent
    shape, why = UNSPEAKABLE[kind]
    monkeypatch.setattr(RefundInvoice, "Inputs", shape)
    tools._warn.cache_clear()
    for _ in range(2):
        assert [tool.name for tool in tools.tools_for(agent)] == ["address_update_dry_run", "address_update_commit"]
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "plans.tools"]
    assert said == [("WARNING", f"hosted operation refund has no tools: {why}")]
    assert {one.name: tools.why_no_tools(one) for one in operations()} == {"address.update": "", "refund": why}


def test_tool_names_are_told_apart_whatever_operations_are_called() -> None:
    names = tools._names(["a.b", "a:b", "a_b", "x" * 128, "x" * 127 + "y", "plain"])
    assert len(set(names)) == 6
    assert names[-1] == "plain"
    assert all(len(name) <= 64 - len("_dry_run") for name in names)
