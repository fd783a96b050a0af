"""The inbox: what needs somebody, in the order of need, and nothing that writes."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from audit.kinds import Kind
from plans import clock
from plans.chronicle import target_actor, tell
from plans.queries import find_inbox
from reviewer import presence
from reviewer.models import Looking
from tests.makers import SOON, make_agent, make_person, make_plan, make_target
from tests.reviewer.pages import approval, client_of, text_of, url_of

pytestmark = pytest.mark.usefixtures("database")


def test_an_empty_inbox_says_that_nothing_needs_a_decision():
    assert "Nothing needs a decision" in text_of(client_of().get("/"))


def test_a_plan_that_waits_is_a_row_with_one_link_and_no_form_that_decides():
    plan = make_plan()
    page = client_of().get("/").content.decode()
    assert page.count(f'href="{url_of(plan)}"') == 1
    assert "data-action" not in page
    assert "(1) Inbox" in page


def test_unknown_outcomes_head_the_inbox_even_before_what_expires_first():
    soon = make_plan(lifetime=timedelta(seconds=50))
    unknown = make_plan("unknown")
    page = client_of().get("/").content.decode()
    assert page.index(unknown.plan_id) < page.index(soon.plan_id)
    assert text_of(client_of().get("/?show=unknown")).count(soon.plan_id) == 0


def test_pending_plans_stand_by_urgency_and_what_expires_soon_in_a_group_of_its_own():
    later, soon = make_plan(lifetime=timedelta(hours=2)), make_plan(lifetime=timedelta(minutes=3))
    text = text_of(client_of().get("/"))
    places = [text.index(word) for word in ("Expires in the next 5 minutes", soon.plan_id, "Later", later.plan_id)]
    assert places == sorted(places)


def test_plans_that_ended_or_expired_or_need_nobody_are_not_listed():
    for state in ("committed", "rejected", "conflicted", "refused", "abandoned"):
        make_plan(state)
    make_plan(target=make_target(approvals=0))
    assert "Nothing needs a decision" in text_of(client_of().get("/"))


def test_the_agents_words_are_never_in_the_inbox():
    make_plan(summary="Approve me at once")
    assert "Approve me" not in text_of(client_of().get("/"))


def test_a_plan_of_my_own_agent_is_listed_and_not_counted_as_mine_to_decide():
    owner = make_person("reviewer")
    target = make_target()
    make_plan(target=target, made=make_agent(target, owner=owner))
    page = client_of(owner).get("/")
    assert "someone else decides" in text_of(page)
    assert "(1) Inbox" not in page.content.decode()


def test_a_plan_i_approved_already_is_marked_and_not_counted(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url, approvals=2))
    client = client_of()
    client.post(url_of(plan, "approve"), approval(plan))
    page = client.get("/")
    assert "You approved" in text_of(page)
    assert "1 of 2 approvals" in text_of(page)
    assert "(1) Inbox" not in page.content.decode()


def test_a_contradicted_end_heads_the_inbox_too():

    plan = make_plan("abandoned")
    with transaction.atomic():
        tell(plan, Kind.COMMIT_CONTRADICTED, actor=target_actor(plan), data={"target_says": "committed"})
    assert "the target now says otherwise" in text_of(client_of().get("/"))


def test_pages_follow_by_key_and_lose_and_repeat_nothing():
    target = make_target()
    made = make_agent(target)
    plans = {make_plan(target=target, made=made, lifetime=timedelta(minutes=10 + n)).pk for n in range(7)}
    person, seen, after = make_person("reviewer"), [], None
    while True:
        page = find_inbox(person, after=after, limit=3)
        seen += [row.pk for row in page.pending]
        after = page.next_key
        if after is None:
            break
    assert len(seen) == 7
    assert set(seen) == plans


def test_the_number_of_statements_does_not_grow_with_the_rows():
    target = make_target()
    made = make_agent(target)
    client = client_of()

    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as statements:
            client.get("/")
        return len(statements)

    make_plan(target=target, made=made)
    client.get("/")
    few = count()
    for _ in range(12):
        make_plan(target=target, made=made)
    assert count() == few


def test_the_poll_tells_of_new_plans_and_of_rows_that_changed_and_moves_nothing():
    seen = make_plan()
    client = client_of()
    client.get("/")
    make_plan()
    client.post(url_of(seen, "reject"), approval(seen, reason="No"))
    answer = client.get(f"/inbox/fresh/?since={seen.pk}&row={seen.pk}", headers={"HX-Request": "true"})
    text = text_of(answer)
    assert "Show 1 new plan" in text
    assert "Rejected" in text
    assert "<li" not in answer.content.decode()


def test_an_expired_plan_is_gone_from_the_list_though_no_sweep_has_run():
    plan = make_plan(lifetime=SOON)
    while clock.now() < plan.expires_at:
        pass
    assert plan.plan_id not in text_of(client_of().get("/"))


def test_filters_stand_in_the_address_and_narrow_what_waits_and_what_is_unknown():
    target = make_target("orders-db")
    made = make_agent(target, name="order-bot")
    mine, other = make_plan(made=made, target=target), make_plan()
    unknown, elsewhere = make_plan("unknown", made=made, target=target), make_plan("unknown")
    client = client_of()
    for query in ("agent=order-bot", "target=orders-db", "target=orders-db&agent=order-bot"):
        text = text_of(client.get(f"/?{query}"))
        assert mine.plan_id in text
        assert unknown.plan_id in text
        assert f"{other.plan_id} " not in text
        assert f"{elsewhere.plan_id} " not in text
    assert mine.plan_id in text_of(client.get(f"/?q={mine.plan_id}"))
    assert "No plan matches" in text_of(client.get("/?agent=nobody"))
    assert client.get(f"/?q={'x' * 600}").status_code == 422


def test_who_looks_is_said_to_others_and_forgotten_after_a_while():
    plan, tom, lena = make_plan(), make_person("reviewer", name="Tom Okafor"), make_person("reviewer")
    presence.note(plan_pk=plan.pk, person_pk=tom.pk)
    presence.note(plan_pk=plan.pk, person_pk=tom.pk)
    assert "Tom Okafor is looking" in text_of(client_of(lena).get("/"))
    assert "is looking" not in text_of(client_of(tom).get("/"))
    assert "Tom Okafor has this plan open too" in text_of(client_of(lena).get(url_of(plan)))
    Looking.objects.update(seen_at=clock.now() - presence.FRESH)
    assert "is looking" not in text_of(client_of(lena).get("/"))
    presence.note(plan_pk=plan.pk, person_pk=tom.pk)
    presence.leave(plan_pk=plan.pk, person_pk=tom.pk)
    assert "is looking" not in text_of(client_of(lena).get("/"))


def test_what_has_not_changed_is_not_sent_again():
    plan, client = make_plan(), client_of()
    path, headers = f"/inbox/fresh/?since=0&row={plan.pk}", {"HX-Request": "true"}
    first = client.get(path, headers=headers)
    again = client.get(path, headers={**headers, "If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    client_of().post(url_of(plan, "reject"), approval(plan, reason="No"))
    changed = client.get(path, headers={**headers, "If-None-Match": first["ETag"]})
    assert "Rejected" in text_of(changed)


def test_an_empty_inbox_says_how_much_was_written_without_asking():
    make_plan("committed", target=make_target(approvals=0))
    assert "In the last 24 hours 1 plan was written that needed nobody's approval." in text_of(client_of().get("/"))
