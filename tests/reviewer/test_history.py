"""All plans ever, by any filter, by key, with links that stay; and the plain list of the log."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from plans import clock
from plans.queries import HistoryFilters, find_history
from tests.makers import make_agent, make_person, make_plan, make_target
from tests.reviewer.pages import approval, client_of, text_of, url_of

pytestmark = pytest.mark.usefixtures("database")


def test_every_plan_stays_listed_whatever_became_of_it():
    plans = [make_plan(state) for state in ("pending", "committed", "conflicted", "rejected", "refused", "abandoned")]
    page = client_of().get("/history/").content.decode()
    for plan in plans:
        assert page.count(url_of(plan)) == 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=rejected", {"no"}),
        ("state=abandoned", {"gone"}),
        ("reason=task_ended", {"gone"}),
        ("reason=expired", set()),
        ("agent={agent}", {"mine"}),
        ("target={target}", {"mine"}),
        ("operation=special.write", {"mine"}),
        ("q={plan_id}", {"mine"}),
        ("q=task-of-mine", {"mine"}),
        ("q=intent-of-mine", {"mine"}),
        ("q=record/of-mine", {"mine"}),
        ("agent={agent}&state=rejected", set()),
        ("agent=nobody", set()),
    ],
)
def test_filters_stand_in_the_address_and_find_what_they_name(query, found):
    target = make_target()
    made = make_agent(target)
    action = {"op": "update", "target": "record/of-mine", "field": "f", "to": 1}
    plans = {
        "no": make_plan("rejected"),
        "gone": make_plan("abandoned"),
        "mine": make_plan(
            target=target, made=made, operation="special.write", task_id="task-of-mine", intent="intent-of-mine",
            plan={"actions": [action]},
        ),
    }  # fmt: skip
    mine = plans["mine"]
    query = query.format(agent=mine.agent.name, target=mine.target.name, plan_id=mine.plan_id)
    page = client_of().get(f"/history/?{query}").content.decode()
    assert {name for name, plan in plans.items() if f'href="{url_of(plan)}"' in page} == found


def test_an_unknown_state_is_said_and_not_answered_with_an_empty_list():
    page = client_of().get("/history/?state=lost")
    assert page.status_code == 422
    assert "There is a problem" in text_of(page)


def test_pages_follow_by_key_and_lose_and_repeat_nothing():
    target = make_target()
    made = make_agent(target)
    plans = [make_plan(target=target, made=made).pk for _ in range(7)]
    person, seen, before = make_person("reviewer"), [], None
    while True:
        page = find_history(person, HistoryFilters(), before=before, limit=3)
        seen += [row.pk for row in page.rows]
        before = page.next_key
        if before is None:
            break
    assert seen == plans[::-1]


def test_each_thing_that_a_search_may_name_is_found_by_an_index_of_its_own():
    make_plan()
    where, values = HistoryFilters(text="record/of-mine").conditions()
    with transaction.atomic(), connection.cursor() as cursor:
        for scan in ("seqscan", "indexscan"):
            cursor.execute(f"SET LOCAL enable_{scan} = off")
        cursor.execute(f"EXPLAIN SELECT 1 FROM plans_plan q WHERE {where}", values)
        steps = "\n".join(line for (line,) in cursor.fetchall())
    assert "BitmapOr" in steps
    for condition in ("(plan_id)::text =", "(intent)::text =", "action_targets @>", "task_id = ANY"):
        assert f"Index Cond: ({condition}" in steps, steps


@pytest.mark.parametrize("column", ["state", "agent_id", "target_id", "operation"])
def test_every_filter_of_the_list_has_an_index_that_ends_in_the_order_of_the_list(column):
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'plans_plan'")
        assert any(definition.endswith(f"({column}, received_at, id)") for (definition,) in cursor.fetchall())


def test_a_place_that_cannot_be_read_starts_at_the_newest():
    plan = make_plan()
    assert url_of(plan) in client_of().get("/history/?before=nonsense").content.decode()


def test_the_log_is_for_auditors_and_shows_the_event_with_its_record():
    plan = make_plan("rejected")
    assert client_of().get("/audit/").status_code == 403
    page = client_of(make_person("auditor")).get("/audit/?kind=plan.rejected")
    text = text_of(page)
    assert page.status_code == 200
    assert plan.plan_id in text
    assert "Not this one" in text
    assert page.content.decode().count("<tr>") == 2


def test_a_filter_of_the_log_that_does_not_exist_is_said():
    page = client_of(make_person("auditor")).get("/audit/?colour=red")
    assert page.status_code == 422
    assert "colour" in text_of(page)


def test_a_span_of_days_and_who_decided_narrow_the_list():
    tom, lena = make_person("reviewer", name="Tom Okafor"), make_person("reviewer")
    mine, other, waiting = make_plan(), make_plan(), make_plan()
    client_of(tom).post(url_of(mine, "reject"), approval(mine, reason="No"))
    client_of(lena).post(url_of(other, "reject"), approval(other, reason="No"))
    client, today = client_of(), clock.now().date()
    by_tom = text_of(client.get(f"/history/?by={tom.pk}"))
    assert mine.plan_id in by_tom
    assert "Decided by Tom Okafor" in by_tom
    assert f"{other.plan_id} " not in by_tom
    assert f"{waiting.plan_id} " not in by_tom
    assert waiting.plan_id in text_of(client.get(f"/history/?since={today}&until={today}"))
    assert "No plan matches" in text_of(client.get(f"/history/?until={today - timedelta(days=1)}"))
    assert "No plan matches" in text_of(client.get(f"/history/?since={today + timedelta(days=1)}"))


@pytest.mark.parametrize("query", ["since=2026-02-30", "by=nobody", "by=0", "since=2026-02-02&until=2026-02-01"])
def test_a_filter_that_makes_no_sense_is_said_above_and_at_the_filter(query):
    answer = client_of().get(f"/history/?{query}")
    assert answer.status_code == 422
    assert "There is a problem" in text_of(answer)
    assert answer.content.decode().count('aria-invalid="true"') == 1
