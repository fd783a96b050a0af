"""Models that say what they are told, for each framework: plan the refund, commit that plan, say how it came out."""

import json
from typing import Any

REFUND = {"inputs": {"invoice_id": "4412", "amount_cents": 48_000}, "intent": "refund:t1", "summary": "They moved."}
MOVE = {"inputs": {"customer_id": "77", "address": "2 Mill Lane"}, "intent": None, "summary": None}


def next_call(
    answers: list[dict[str, Any]], first: str, arguments: dict[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """The next tool to call after these answers; None where there is only something to say."""
    if not answers:
        return first, arguments
    if len(answers) == 1:
        return "commit_plan", {name: answers[0].get(name) for name in ("plan_id", "input_fingerprint")}
    return None


def for_langchain() -> Any:
    """A chat model of LangChain."""
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, ToolMessage

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            answers = [json.loads(one.text) for one in messages if isinstance(one, ToolMessage)]
            if call := next_call(answers, "refund_dry_run", REFUND):
                asked = {"name": call[0], "args": call[1], "id": f"call_{len(answers)}"}
                self.messages = iter([AIMessage(content="", tool_calls=[asked])])
            else:
                self.messages = iter([AIMessage(content=answers[-1]["outcome"])])
            return super()._generate(messages, *args, **options)

    return Scripted(messages=iter([]))


def for_openai_agents(first: str = "refund_dry_run", arguments: dict[str, Any] = REFUND) -> Any:
    """A model of the OpenAI Agents SDK."""
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
            said = options["input"] if "input" in options else args[1]
            items = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
            answers = [json.loads(one["output"]) for one in items if one.get("type") == "function_call_output"]
            output: Any
            if call := next_call(answers, first, arguments):
                output = ResponseFunctionToolCall(
                    name=call[0], arguments=json.dumps(call[1]), call_id=f"call_{len(answers)}", type="function_call"
                )
            else:
                text = ResponseOutputText(annotations=[], text=answers[-1]["outcome"], type="output_text")
                output = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    return Scripted()


def for_pydantic_ai(first: str = "refund_dry_run", arguments: dict[str, Any] = REFUND) -> Any:
    """A model of pydantic-ai."""
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert all(tool.strict for tool in info.function_tools)
        answers: list[Any] = [
            part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)
        ]
        if call := next_call(answers, first, arguments):
            return ModelResponse(parts=[ToolCallPart(*call)])
        return ModelResponse(parts=[TextPart(answers[-1]["outcome"])])

    return FunctionModel(say)
