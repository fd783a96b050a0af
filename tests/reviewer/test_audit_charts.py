"""The charts: their numbers over a log that real use cases wrote, and the tables that tell the same."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from audit.charts import durations_of, read_numbers, span_of
from audit.filters import Filters
from audit.kinds import Kind
from plans.models import PlanView
from plans.states import AbandonReason
from plans.viewing import record_view
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.hosted_plans import plan_refund
from tests.makers import make_agent, make_person, make_plan, make_target
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def auditor():
    return client_of(make_person("auditor"))


def numbers(days=7, **filters):
    since, until = span_of(datetime.now(UTC), days)
    return read_numbers(Filters(from_at=since, to_at=until, **filters))


def test_every_plan_that_ended_is_counted_once_by_its_end():
    for reason in AbandonReason:
        make_plan("abandoned", reason=reason)
    for state in ("committed", "conflicted", "rejected", "refused", "unknown", "pending"):
        make_plan(state)
    days = numbers().days
    assert len(days) == 7
    assert days[-1].ends == {
        "written": 1, "conflict": 1, "rejected": 1, "refused": 1, "expired": 1, "dropped": len(AbandonReason) - 1,
    }  # fmt: skip
    assert sum(day.total for day in days) == 4 + len(AbandonReason)


def test_conflict_rates_are_of_the_writes_that_were_tried_per_operation_and_agent():
    target = make_target()
    made = make_agent(target)
    for state in ("committed", "conflicted", "committed", "refused", "rejected"):
        make_plan(state, made=made, target=target)
    make_plan("committed", operation="other")
    rates = {rate.names: (rate.hits, rate.total) for rate in numbers().conflicts}
    assert rates[("limit.update", made.agent.name)] == (1, 4)
    assert sorted(rates.values()) == [(0, 1), (1, 4)]
    assert [rate.total for rate in numbers(agent=made.agent.name).conflicts] == [4]


def approve_after(person, seconds, invoice):
    hosted = plan_refund(invoice)
    record_view(plan_pk=hosted.plan.pk, person=person)
    opened = PlanView.objects.get(plan=hosted.plan).opened_at - timedelta(seconds=seconds)
    PlanView.objects.filter(plan=hosted.plan).update(opened_at=opened)
    hosted.approve(person)


def test_fast_approvals_are_a_share_of_each_persons_approvals():
    mara, noor = make_person("reviewer", name="Mara"), make_person("reviewer", name="Noor")
    approve_after(mara, 0, "1")
    approve_after(mara, 60, "2")
    approve_after(noor, 60, "3")
    assert [(rate.names, rate.hits, rate.total) for rate in numbers().fast] == [
        (("Mara", str(mara.pk)), 1, 2), (("Noor", str(noor.pk)), 0, 1),
    ]  # fmt: skip
    decided = numbers().decided
    assert (decided.total, decided.bands[0]) == (3, 3)


def test_a_plans_receipt_is_looked_for_from_its_decision_backwards(owner_connection):
    """A log of years has a part for each month: the months before the plan are none of its business."""
    owner_connection.execute(
        "SELECT audit_make_partition(now() - make_interval(months => past)) FROM generate_series(1, 24) AS past"
    )
    approve_after(make_person("reviewer"), 0, "1")
    looked_at = []

    def scans_of(plan):
        if plan.get("Alias", "").startswith("r_") and plan["Actual Loops"]:
            yield plan["Relation Name"]
        for part in plan.get("Plans", []):
            yield from scans_of(part)

    def explain(execute, sql, parameters, many, context):
        if sql.startswith("WITH decided"):
            # As a planner does that has seen a log of some size.
            execute("SET LOCAL enable_seqscan = off", [], False, context)
            execute("SET LOCAL enable_sort = off", [], False, context)
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters, many, context)
            looked_at.extend(scans_of(context["cursor"].fetchone()[0][0]["Plan"]))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        assert numbers().decided.total == 1
    assert looked_at == [f"audit_event_{datetime.now(UTC):%Y%m}"]


def test_the_time_to_truth_is_from_the_first_unknown_to_what_settled_it():
    plan = make_plan("unknown")
    members = {"agent": plan.agent.name, "target": plan.target.name, "plan_id": plan.plan_id}
    assert [one.took for one in numbers().unknown.found] == [None]
    resolved = make_event(Kind.COMMIT_RESOLVED, data={"how": "state", "state": "committed"}, **members)
    (found,) = numbers().unknown.found
    assert (found.how, found.known_at) == ("state", resolved.at)
    assert found.took is not None
    assert found.took > timedelta(0)


@pytest.mark.parametrize(
    ("seconds", "median", "ninth", "first"),
    [
        ([], None, None, 0),
        ([1.0], 1.0, 1.0, 1),
        ([1.0, 2.0, 3.0, 4.0, 99.0], 3.0, 99.0, 3),
        ([3.0, 3.01], 3.01, 3.01, 1),
    ],
)
def test_durations_lie_in_bands_that_include_their_upper_edge(seconds, median, ninth, first):
    durations = durations_of(seconds)
    assert (durations.median, durations.ninth, durations.bands[0]) == (median, ninth, first)
    assert durations.total == len(seconds)


def test_a_chart_is_drawn_told_apart_without_colour_and_has_its_table_beneath(auditor):
    for state in ("committed", "conflicted", "rejected", "unknown"):
        make_plan(state)
    page = auditor.get("/audit/charts/?days=7")
    assert page.status_code == 200
    html = page.content.decode()
    assert len(re.findall(r"<figure", html)) == 6
    assert html.count('<details class="numbers"') == 6
    for fill in ("f-written", "f-conflict", "f-rejected"):
        assert f'class="{fill}"' in html
    for pattern in ("hatch", "dots", "lines"):
        assert f'<pattern id="{pattern}"' in html
    assert "3 plans ended in this time" in text_of(page)
    assert "1 of 2 writes that were tried met a conflict" in text_of(page)
    assert len(told("audit.read")) == 1


def test_charts_of_an_empty_log_say_so(auditor):
    assert text_of(auditor.get("/audit/charts/")).count("None in this time.") >= 3


@pytest.mark.parametrize("query", ["days=12", "colour=red", "from=2020-01-01&to=2026-01-01", "from=x", "agent="])
def test_what_cannot_be_drawn_is_said(auditor, query):
    response = auditor.get(f"/audit/charts/?{query}")
    assert response.status_code == (200 if query == "agent=" else 422)
    assert ("There is a problem" in text_of(response)) == (query != "agent=")
