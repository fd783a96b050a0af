"""LangChain and LangGraph with a scripted model, in front of the real desk."""

import json
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from plans.agent import Desk
from plans.agent.langchain import tools
from plans.demo.models import Customer, Invoice
from tests.plans.agent.scripted_models import for_langchain
from tests.plans.agent.tooling import MOVE, REFUND, approve, bot, real, rows

__all__ = ["bot", "real"]

CONFIG: Any = {"configurable": {"thread_id": "1"}}


def agent(task: Any, saver: InMemorySaver) -> Any:
    return create_agent(for_langchain(), tools(task), checkpointer=saver)


def test_an_interrupt_and_its_resumes_make_one_plan(real: Desk) -> None:
    with real.task("t1") as task:
        graph = agent(task, InMemorySaver())
        state = graph.invoke({"messages": [HumanMessage("refund it")]}, CONFIG)
        [paused] = state["__interrupt__"]
        assert paused.value["outcome"] == "waiting"
        assert paused.value["review_url"].startswith("http")
        state = graph.invoke(Command(resume="look again"), CONFIG)
        assert state["__interrupt__"][0].value["plan_id"] == paused.value["plan_id"]
        approve(paused.value["plan_id"])
        state = graph.invoke(Command(resume="look again"), CONFIG)
        assert state["messages"][-1].text == "committed"
    assert [(row.plan_id, row.state) for row in rows()] == [(paused.value["plan_id"], "committed")]
    assert Invoice.objects.get(pk="4412").refunded_cents == 48_000


def test_another_run_with_the_same_store_resumes_the_same_plan(real: Desk) -> None:
    saver = InMemorySaver()
    state = agent(real.task("t1"), saver).invoke({"messages": [HumanMessage("refund it")]}, CONFIG)
    approve(state["__interrupt__"][0].value["plan_id"])
    with real.task("t1") as task:
        state = agent(task, saver).invoke(Command(resume=True), CONFIG)
    assert state["messages"][-1].text == "committed"
    assert [row.state for row in rows()] == ["committed"]


def test_a_tool_that_runs_anew_after_an_interrupt_finds_its_plan(real: Desk) -> None:
    with real.task("t1") as task:
        named = {tool.name: tool for tool in tools(task)}
        first = json.loads(named["refund_dry_run"].invoke(REFUND))
        assert json.loads(named["refund_dry_run"].invoke(REFUND)) == first
    assert len(rows()) == 1


def test_what_nobody_approves_needs_no_graph(real: Desk) -> None:
    with real.task("t1") as task:
        named = {tool.name: tool for tool in tools(task)}
        plan = json.loads(named["address_update_dry_run"].invoke(MOVE))
        commit = {name: plan[name] for name in ("plan_id", "input_fingerprint")}
        assert json.loads(named["commit_plan"].invoke(commit))["outcome"] == "committed"
        said = json.loads(named["commit_plan"].invoke({**commit, "inputs": {}}))
        assert "Unknown arguments: inputs" in said["detail"]
    assert Customer.objects.get(pk="77").address == "2 Mill Lane"


def test_without_interrupts_a_commit_that_waits_says_so(real: Desk) -> None:
    with real.task("t1") as task:
        named = {tool.name: tool for tool in tools(task, interrupts=False)}
        plan = json.loads(named["refund_dry_run"].invoke(REFUND))
        commit = {name: plan[name] for name in ("plan_id", "input_fingerprint")}
        assert json.loads(named["commit_plan"].invoke(commit))["outcome"] == "waiting"
    assert [row.state for row in rows()] == ["abandoned"]
