"""Other plans on the same records: what writing this one does to them, as said on the page and as it then happens."""

import pytest

from plans.abandonment import apply_commit_writes
from tests.makers import make_agent, make_plan, make_target, reread
from tests.reviewer.pages import approval, client_of, text_of, url_of

pytestmark = pytest.mark.usefixtures("database")


def update(field: str, record: str = "ledger/ACC-104") -> dict[str, object]:
    if not field:
        return {"op": "delete", "target": record, "from": {"limit": 100}}
    return {"op": "update", "target": record, "field": field, "from": 100, "to": 250}


@pytest.mark.parametrize(
    ("is_own", "field", "said", "state", "marks"),
    [
        (True, "limit", "It ends at once: its own agent has then written", "abandoned", 0),
        (True, "note", "It ends at once: its own agent has then written", "abandoned", 0),
        (False, "limit", "its current value is another one then: approving it ends in a conflict", "pending", 1),
        (False, "note", "It is marked: its record was written to, in other fields", "pending", 1),
        (False, "", "its current value is another one then: approving it ends in a conflict", "pending", 1),
    ],
)
def test_what_the_page_says_of_a_rival_is_what_happens_to_it(is_own, field, said, state, marks, stub_target):
    target = make_target(base_url=stub_target.base_url)
    made = make_agent(target)
    rival = make_plan(target=target, made=made if is_own else make_agent(target), plan={"actions": [update(field)]})
    plan = make_plan(target=target, made=made, plan={"actions": [update("limit")]})
    client = client_of()
    page = text_of(client.get(url_of(plan)))
    assert rival.plan_id in page
    assert said in page
    assert client.post(url_of(plan, "approve"), approval(plan)).status_code == 200
    apply_commit_writes()  # the sweep, within 60 s
    after = reread(rival)
    assert (after.state, after.mark_count) == (state, marks)


def test_plans_on_other_records_are_no_rivals():
    target = make_target()
    make_plan(target=target, plan={"actions": [update("limit", "ledger/ACC-999")]})
    plan = make_plan(target=target)
    assert "Other plans that wait" not in text_of(client_of().get(url_of(plan)))
