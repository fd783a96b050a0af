"""What has moved since the dry run, shown before anybody approves, and in nobody's way."""

import re

import pytest
from django.test import Client

from plans.demo.models import Customer, Invoice
from plans.demo.operations import RefundInvoice
from tests.hosted_plans import plan_refund
from tests.makers import events_of, make_plan, make_target, reread
from tests.reviewer.pages import approval, client_of, state_in, text_of, url_of
from tests.stub_behaviour import Answer
from tests.stub_target import refusing_url

pytestmark = pytest.mark.usefixtures("database")

HTMX = {"HX-Request": "true"}


def part_of(plan, client=None):
    return (client or client_of()).get(url_of(plan, "recheck"), headers=HTMX)


def test_what_still_matches_is_counted_and_when_it_was_read():
    plan = plan_refund().plan
    answer = part_of(plan)
    text = text_of(answer)
    assert answer.status_code == 200
    assert re.search(r"(\d+) of \1 current values still match", text)
    assert re.search(r"Read again at \d\d:\d\d:\d\d UTC, and once more before writing\.", text)
    assert b"<html" not in answer.content
    assert 'id="recheck"' in answer.content.decode()


def test_what_moved_is_named_with_its_planned_and_its_current_value():
    plan = plan_refund(total_cents=48_000).plan
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    text = text_of(part_of(plan))
    assert re.search(r"1 of \d+ current values has changed", text)
    assert "If you approve now, expect a conflict and nothing written." in text
    assert "invoice/4412 total_cents 48000 47000" in text
    assert "changed since planned" in text


def test_a_record_that_is_gone_is_named():
    plan = plan_refund().plan
    Invoice.objects.all().delete()
    Customer.objects.all().delete()
    text = text_of(part_of(plan))
    assert "invoice/4412 exists true false" in text


def test_the_page_itself_reads_nothing_and_asks_nobody(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    page = client_of().get(url_of(plan)).content.decode()
    assert stub_target.received == []
    assert f'href="{url_of(plan, "recheck")}"' in page
    assert "data-first" in page
    assert 'data-action="approve"' in page


def test_a_remote_target_is_asked_and_what_it_tells_is_shown(stub_target):
    plan = make_plan(target=make_target(base_url=stub_target.base_url))
    stub_target.script_look_ups(plan.plan_id, Answer(200, {"plan_id": plan.plan_id, "state": "pending"}))
    text = text_of(part_of(plan))
    assert f"{plan.target.name} tells of no change" in text
    assert [call.method for call in stub_target.received] == ["GET"]


def test_a_target_that_says_nothing_is_said_and_not_taken_for_unchanged():
    with refusing_url() as address:
        plan = make_plan(target=make_target(base_url=address))
        text = text_of(part_of(plan))
    assert "Not known whether anything has changed" in text
    assert "Everything is read once more before writing." in text


def test_an_operation_that_fails_is_said_by_its_class_and_approving_stays_possible(monkeypatch, caplog):
    plan = plan_refund().plan

    def fail(*_: object, **__: object) -> None:
        raise KeyError("secret detail")

    with monkeypatch.context() as patched:
        patched.setattr(RefundInvoice, "read", fail)
        part, page = part_of(plan), client_of().get(url_of(plan, "recheck"))
    assert "The operation failed: KeyError." in text_of(part)
    assert 'data-action="approve"' in page.content.decode()
    for answer in (part, page):
        assert answer.status_code == 200
        assert "secret detail" not in answer.content.decode()
    assert "secret detail" not in caplog.text
    assert "still match" in text_of(part_of(plan))


def test_without_scripts_the_link_shows_the_whole_page_with_what_was_read():
    plan = plan_refund().plan
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    page = client_of().get(url_of(plan, "recheck"))
    html = page.content.decode()
    assert "<!doctype html>" in html
    assert state_in(page) == "pending"
    assert 'href="#moved-since"' in html
    assert 'data-action="approve"' in html
    assert "data-first" not in html
    assert events_of(plan) == ["plan.received"]


def test_approve_stays_usable_and_its_answer_is_the_conflict():
    plan = plan_refund().plan
    Invoice.objects.filter(pk="4412").update(total_cents=47_000)
    client = client_of()
    part_of(plan, client)
    page = client.post(url_of(plan, "approve"), approval(plan, fact="20000"))
    assert (page.status_code, state_in(page)) == (409, "conflicted")


def test_reading_changes_nothing_and_is_no_event():
    plan = plan_refund().plan
    before = events_of(plan)
    part_of(plan)
    assert events_of(plan) == before
    assert reread(plan).state == "pending"


@pytest.mark.parametrize("state", ["committed", "rejected", "unknown"])
def test_a_plan_that_does_not_wait_is_not_read(state):
    plan = make_plan(state)
    assert "This plan does not wait any more" in text_of(part_of(plan))
    assert 'id="recheck"' not in client_of().get(url_of(plan, "recheck")).content.decode()


def test_v105_who_may_not_see_the_page_may_not_read_either():
    plan = make_plan()
    assert Client().get(url_of(plan, "recheck"))["Location"].startswith("/login/")
    assert Client().get(url_of(plan, "recheck"), headers=HTMX)["HX-Redirect"].startswith("/login/")
    assert client_of().post(url_of(plan, "recheck")).status_code == 405
