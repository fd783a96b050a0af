"""An evidence pack shows an outsider that what was decided on is what had been planned."""

from pathlib import Path

import pytest
from django.db import transaction

from audit.checking import Report
from audit.evidence import write_pack
from audit.export import begin_export, parse_export
from audit.kinds import Kind
from audit.recording import SYSTEM, Actor, record
from audit.verify import verify_file
from plans.abandonment import observe_write
from plans.models import Agent
from plans.policy_change import apply_newest_policy
from plans.review import approve_plan, reject_plan
from plans.schema import shown_digest
from tests.audit.sequencing import sequence
from tests.makers import events_of, make_agent, make_person, make_plan, make_target, policy_of, reread
from tests.stub_target import StubTarget

pytestmark = pytest.mark.usefixtures("database")

GOOD = "decision on what had been planned: the digest, made anew from plan.received."
OPEN = "What 1 decision was on: the pack has not all events of the plan with their payloads"


def verify(folder: Path, **query: str) -> Report:
    sequence(folder)
    form, request = parse_export([("format", ["jsonl"]), *((name, value.split()) for name, value in query.items())])
    with (folder / "pack.zip").open("wb") as file:
        write_pack(begin_export(request, actor=SYSTEM, via="test", form=form), file)
    return verify_file(folder / "pack.zip")


def told(report: Report) -> tuple[list[str], list[str]]:
    """What it says of decisions: proven, and not."""
    return (
        [sentence for sentence in report.proven if "decision" in sentence],
        [sentence for sentence in report.not_proven if "decision" in sentence],
    )


def test_an_approval_and_a_rejection_name_what_had_been_planned(stub_target: StubTarget, tmp_path: Path) -> None:
    target = make_target(base_url=stub_target.base_url)
    plans = [
        make_plan(target=target, summary="Zwölf \U0001f4b6", evidence=[{"tool": "a.b", "note": "x"}]) for _ in range(2)
    ]
    approve_plan(plan_pk=plans[0].pk, person=make_person("reviewer"), seen_digest=shown_digest(reread(plans[0])))
    reject_plan(
        plan_pk=plans[1].pk, person=make_person("reviewer"), seen_digest=shown_digest(reread(plans[1])), reason="No"
    )
    report = verify(tmp_path)
    assert report.is_whole
    assert told(report) == (["2 decisions on what had been planned: the digest, made anew from plan.received."], [])
    assert told(verify(tmp_path, kind="plan.received plan.approved")) == ([f"1 {GOOD}"], [])
    proven, opened = told(verify(tmp_path, kind="plan.approved"))
    assert (proven, opened[0].partition(",")[0]) == ([], OPEN)


def write(agent: Agent, target: str) -> None:
    observe_write(agent=agent, task_id="task-w", target_name=target, targets=["ledger/ACC-104"], written_at=None)


def test_what_changed_the_digest_since_is_followed(stub_target: StubTarget, tmp_path: Path) -> None:
    target = make_target(base_url=stub_target.base_url)
    plan = make_plan(target=target)
    writer = make_agent(target).agent
    write(writer, target.name)
    write(writer, target.name)
    policy_of(target, approvals=1)
    apply_newest_policy(target_name=target.name, plan_pks=[plan.pk], by=SYSTEM)
    write(writer, target.name)
    person = make_person("reviewer")
    approve_plan(plan_pk=plan.pk, person=person, seen_digest=shown_digest(reread(plan)))
    assert events_of(plan)[:6] == [
        "plan.received", "plan.marked", "plan.marked", "plan.policy_applied", "plan.marked", "plan.approved"
    ]  # fmt: skip
    assert told(verify(tmp_path, plan_id=plan.plan_id)) == ([f"1 {GOOD}"], [])
    for kinds in ("plan.received plan.marked plan.approved", "plan.received plan.policy_applied plan.approved"):
        proven, opened = told(verify(tmp_path, kind=kinds))
        assert (proven, opened[0].partition(",")[0]) == ([], OPEN.partition(",")[0])


def test_a_decision_on_something_else_is_damage(tmp_path: Path) -> None:
    """A desk that was made to record it: its log is whole, and what it says is not right."""
    plan = make_plan()
    with transaction.atomic():
        record(
            Kind.PLAN_APPROVED, actor=Actor("person", "7", "A"), agent=plan.agent.name, target=plan.target.name,
            plan_id=plan.plan_id, plan_seq=2, data={"digest": "0" * 64},
        )  # fmt: skip
    report = verify(tmp_path)
    assert not report.is_whole
    assert [(one.index, one.what) for one in report.damage] == [
        (report.first_bad_index, "It decides on another digest than that of what was planned.")
    ]
