"""The published tools, through the strict conversions of OpenAI's and pydantic-ai's own code."""

import copy
from typing import Any

import pytest
from agents.strict_schema import ensure_strict_json_schema
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

from plans import tools
from plans.targets.operations import operations

PUBLISHED = tools.tools_of(list(operations()))


@pytest.mark.parametrize("tool", PUBLISHED, ids=lambda tool: tool.name)
def test_a_model_form_is_strict_already_for_openais_own_conversion(tool: tools.Tool) -> None:
    assert ensure_strict_json_schema(copy.deepcopy(tool.model)) == tool.model


@pytest.mark.parametrize("tool", PUBLISHED, ids=lambda tool: tool.name)
def test_pydantic_ai_finds_a_model_form_strict_without_changing_what_it_takes(tool: tools.Tool) -> None:
    conversion = OpenAIJsonSchemaTransformer(copy.deepcopy(tool.model), strict=None)
    converted: dict[str, Any] = conversion.walk()
    assert conversion.is_strict_compatible
    assert converted == tool.model


def test_there_are_tools_to_convert() -> None:
    assert PUBLISHED
