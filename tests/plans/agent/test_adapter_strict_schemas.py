"""Published tools under the strict conversion of the frameworks themselves: accepted, and nothing is changed."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from agents.strict_schema import ensure_strict_json_schema
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

from plans import tools
from plans.agent import Desk
from plans.agent.toolbox import OWN_TOOLS, Toolbox
from plans.targets.operations import operations
from tests.plans.agent.tooling import bot, real
from tests.plans.test_tools import Odd

__all__ = ["bot", "real"]

Json = dict[str, Any]


@pytest.fixture
def schemas(real: Desk) -> Iterator[dict[str, Json]]:
    """What the desk publishes for models, what a task adds, and inputs of every shape that there may be."""
    with real.task("t1") as task:
        box = Toolbox.of(task)
        answer = task._line.http.ask("GET", "/api/v1/tools", timeout=10)
        published = {one["name"]: one["model"] for one in answer.members()["tools"]}  # type: ignore[union-attr,index,call-overload]
        assert len(published) == 2 * len(list(operations()))
        assert {tool.name for tool in box.tools} - set(published) == {tool.name for tool in OWN_TOOLS}
        odd = {"every shape": tools.strict(tools.inlined(Odd))}
        yield published | {tool.name: tool.schema for tool in box.tools} | odd


def test_the_openai_agents_sdk_takes_them_as_strict_and_changes_nothing(schemas: dict[str, Json]) -> None:
    for name, schema in schemas.items():
        converted = ensure_strict_json_schema(copy.deepcopy(schema), _reject_open_objects=True)
        assert converted == schema, name


def test_pydantic_ai_finds_them_strict_and_changes_nothing(schemas: dict[str, Json]) -> None:
    for name, schema in schemas.items():
        found = OpenAIJsonSchemaTransformer(copy.deepcopy(schema), strict=None)
        assert found.walk() == schema, name
        assert found.is_strict_compatible, name
        assert OpenAIJsonSchemaTransformer(copy.deepcopy(schema), strict=True).walk() == schema, name


def test_the_wire_form_would_not_do(real: Desk) -> None:
    with real.task("t1") as task:
        wire = Toolbox.of(task).published["refund_dry_run"].wire
    found = OpenAIJsonSchemaTransformer(copy.deepcopy(wire), strict=None)
    found.walk()
    assert not found.is_strict_compatible
