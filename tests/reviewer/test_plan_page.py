"""The plan's page: every state as it is, every value as it was received, and the status that answers a decision."""

import json
import re

import pytest

from plans import clock
from plans.models import Approval, Plan
from plans.states import AbandonReason, State
from tests.makers import SOON, feed_data, make_agent, make_person, make_plan, make_target, policy_of, receive, reread
from tests.reviewer.pages import approval, client_of, state_in, text_of, url_of
from tests.stub_behaviour import Commit, DropAfterApplying, conflict, problem
from tests.stub_target import refusing_url
from tests.time_passing import pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

HEADLINES = {
    State.PENDING: "Time left to decide",
    State.COMMITTING: "Being written",
    State.UNKNOWN: "We don't know if this was written",
    State.COMMITTED: "Written: 1 change",
    State.CONFLICTED: "changed after it was planned",
    State.REJECTED: "Rejected by",
    State.REFUSED: "said no",
    State.ABANDONED: "the agent's task ended",
}
ENDS = {
    AbandonReason.EXPIRED: "Expired at",
    AbandonReason.TASK_ENDED: "the agent's task ended",
    AbandonReason.INTENT_CHANGED: "something else was asked for",
    AbandonReason.INPUTS_CHANGED: "one of its records was written to",
    AbandonReason.SUPERSEDED: "Replaced by",
    AbandonReason.WITHDRAWN: "Withdrawn",
    AbandonReason.NOT_APPLIED: "it was not written",
}


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_its_page(state):
    plan = make_plan(state)
    page = client_of().get(url_of(plan))
    assert page.status_code == 200
    assert state_in(page) == state
    assert HEADLINES[state] in text_of(page)
    assert ('data-action="approve"' in page.content.decode()) == (state == State.PENDING)


@pytest.mark.parametrize("reason", list(AbandonReason))
def test_an_abandoned_plan_reads_by_its_reason(reason):
    page = client_of().get(url_of(make_plan("abandoned", reason=reason)))
    assert ENDS[reason] in text_of(page)
    assert f'data-reason="{reason}"' in page.content.decode()


def test_v113_both_forms_carry_the_digest_of_what_is_shown_and_say_what_they_do():
    plan = make_plan()
    page = client_of().get(url_of(plan)).content.decode()
    assert page.count(f'name="digest" value="{approval(plan)["digest"]}"') == 2
    assert "Approve and write 1 change" in page
    assert f'action="{url_of(plan, "approve")}"' in page
    assert f'action="{url_of(plan, "reject")}"' in page


def test_an_unknown_plan_is_not_found():
    assert client_of().get("/plans/nobody/nowhere/plan_0/").status_code == 404


def test_opening_the_page_is_told_and_a_poll_is_not():
    plan, client = make_plan(), client_of()
    client.get(url_of(plan))
    client.get(url_of(plan, "news"), headers={"HX-Request": "true"})
    assert text_of(client.get(url_of(plan))).count("Opened") == 1  # openings in a row by one person are one line


# --- values ---------------------------------------------------------------------------------------------------------


def actions_page(actions: str, **data) -> str:
    """The page of a plan whose actions are this JSON text."""
    target = make_target()
    feed = json.dumps(feed_data(target.name, intent="x", plan={"actions": "@@"}, **data)).replace('"@@"', actions)
    plan = receive(make_agent(target).agent, feed)
    return client_of().get(url_of(plan)).content.decode()


def test_numbers_are_shown_as_they_were_written():
    page = actions_page(
        '[{"op":"update","target":"a","field":"price","from":1.10,"to":1.1},'
        '{"op":"update","target":"a","field":"big","from":9007199254740992,"to":9007199254740993}]'
    )
    assert ">1.10<" in page
    assert ">1.1<" in page
    assert ">9007199254740993<" in page
    assert ">+1<" in page


def test_null_nothing_empty_zero_false_and_a_text_of_digits_are_told_apart():
    fields = {"n": "null", "e": '""', "z": "0", "f": "false", "t": '"1"', "i": "1"}
    actions = ",".join(
        f'{{"op":"update","target":"a","field":"{name}","to":{value}}}' for name, value in fields.items()
    )
    page = actions_page(f"[{actions}]")
    assert '<ins class="val new"><span class="kw">null</span></ins>' in page
    assert '<ins class="val new">"" <span class="none">empty text</span></ins>' in page
    assert '<ins class="val new">0</ins>' in page
    assert '<ins class="val new"><span class="kw">false</span></ins>' in page
    assert (
        '<ins class="val new"><span class="q">"</span>1<span class="q">"</span> <span class="none">text</span></ins>'
        in page
    )
    assert '<ins class="val new">1</ins>' in page
    assert page.count('<span class="none">not told</span>') == len(fields)


def test_foreign_text_is_escaped_marked_and_shown_whole():
    evil = "<script>alert(1)</script>" + "x" * 10_000 + "\u202etxt"
    page = actions_page(json.dumps([{"op": "update", "target": "a", "field": "f", "from": "", "to": evil}]))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "x" * 10_000 in page
    assert "U+202E right-to-left override" in page
    assert "\u202e" not in page
    assert "Deceptive characters" in page


def test_what_the_agent_says_is_quoted_once_as_not_verified_and_escaped():
    page = actions_page(
        '[{"op":"update","target":"a","field":"f","to":1}]', summary="<b>Trust me</b>",
        evidence=[{"tool": "look.up", "note": "n<i>", "url": "https://carrier.example/77"}],
    )  # fmt: skip
    assert page.count("&lt;b&gt;Trust me&lt;/b&gt;") == 1
    assert "The agent says, not verified" in page
    assert "https://carrier.example/77" in page
    assert 'href="https://carrier.example' not in page


def test_a_whole_record_is_a_table_of_its_fields_and_a_delete_shows_what_is_lost():
    page = actions_page(
        '[{"op":"create","target":"refund/1","to":{"amount":1.50,"note":null}},'
        '{"op":"delete","target":"key/2","from":{"scope":"read"},"to":null},'
        '{"op":"delete","target":"key/3"}]'
    )
    assert ">1.50<" in page
    assert 'scope="row">amount<' in page
    assert "Will be lost" in page
    assert "the whole record" in page


def test_nothing_of_a_plan_stands_in_htmx_script_or_style_attributes():
    plan = make_plan(plan={"plan_id": "SENTINEL-1"}, task_id="SENTINEL-2", summary="SENTINEL-3")
    page = client_of().get(url_of(plan)).content.decode()
    for name, value in re.findall(r'\s(hx-[\w-]+|style|on\w+)="([^"]*)"', page):
        assert not name.startswith(("style", "on"))
        assert "SENTINEL" not in value
    assert "pt-" not in page  # no token, of any plan


# --- decisions ------------------------------------------------------------------------------------------------------


def plan_at(stub, approvals: int = 1, **data) -> Plan:
    return make_plan(target=make_target(base_url=stub.base_url, approvals=approvals), **data)


def test_the_answer_to_the_last_approval_is_the_outcome(stub_target):
    stub_target.script(Commit(result={"entry": "L-9"}))
    plan, client = plan_at(stub_target), client_of()
    page = client.post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (200, "committed")
    assert "L-9" in text_of(page)
    assert page["HX-Push-Url"] == "false"


def test_v111_a_conflict_is_409_and_shows_field_planned_now_and_wanted(stub_target):
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    plan = plan_at(stub_target)
    page = client_of().post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (409, "conflicted")
    assert "limit was 100 when the agent planned. It is 175 now." in text_of(page)
    assert "Agent wanted" in text_of(page)
    assert "Written" not in text_of(page).replace("Nothing was written", "")


def test_an_answer_that_never_came_is_202_and_reads_unknown(stub_target):
    stub_target.script(DropAfterApplying())
    plan = plan_at(stub_target)
    page = client_of().post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (202, "unknown")
    assert "We don't know if this was written" in text_of(page)


def test_a_no_of_the_target_is_422_with_its_words(stub_target):
    stub_target.script(problem(422, detail="The account is closed."))
    plan = plan_at(stub_target)
    page = client_of().post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (422, "refused")
    assert "closed" in text_of(page)


def test_a_target_that_is_down_is_503_and_the_plan_waits_as_before():
    with refusing_url() as address:
        plan = make_plan(target=make_target(base_url=address))
        page = client_of().post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (503, "pending")
    assert "Nothing was sent" in text_of(page)
    assert 'data-action="approve"' in page.content.decode()


def test_more_approvals_needed_is_200_and_says_that_nothing_is_written_yet(stub_target):
    plan = plan_at(stub_target, approvals=2)
    page = client_of().post(url_of(plan, "approve"), approval(plan))
    assert (page.status_code, state_in(page)) == (200, "pending")
    assert "Nothing is written yet" in text_of(page)
    assert 'data-action="approve"' not in page.content.decode()
    assert stub_target.applied == 0


def test_another_digest_is_409_and_nothing_is_written(stub_target):
    plan = plan_at(stub_target)
    page = client_of().post(url_of(plan, "approve"), {"digest": "0" * 64})
    assert (page.status_code, state_in(page)) == (409, "pending")
    assert "This page was out of date" in text_of(page)
    assert stub_target.applied == 0


def test_v102_a_stale_approval_is_409_names_who_decided_and_leaves_no_form(stub_target):
    plan, other = plan_at(stub_target), plan_at(stub_target)
    posted = approval(plan)
    tom = make_person("reviewer", name="Tom Okafor")
    client_of(tom).post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    page = client_of().post(url_of(plan, "approve"), posted)
    assert (page.status_code, state_in(page)) == (409, "rejected")
    assert "Tom Okafor" in text_of(page)
    assert 'data-action="approve"' not in page.content.decode()
    assert reread(other).state == "pending"
    assert stub_target.applied == 0


def test_an_expired_plan_is_410_and_its_page_says_so_without_a_form(stub_target):
    plan = plan_at(stub_target, lifetime=SOON)
    posted = approval(plan)
    while clock.now() < plan.expires_at:
        pass
    seen = client_of().get(url_of(plan))
    assert state_in(seen) == "abandoned"
    assert 'data-action="approve"' not in seen.content.decode()
    page = client_of().post(url_of(plan, "approve"), posted)
    assert (page.status_code, state_in(page)) == (410, "abandoned")
    assert "Expired at" in text_of(page)
    assert "Ask the agent to plan again" in text_of(page)


@pytest.mark.parametrize("reason", ["", "   ", "x" * 2001])
def test_v112_a_rejection_needs_a_reason_and_keeps_what_was_typed(reason):
    plan = make_plan()
    page = client_of().post(url_of(plan, "reject"), approval(plan, reason=reason))
    assert (page.status_code, state_in(page)) == (422, "pending")
    assert 'id="reason-e"' in page.content.decode()
    assert reason in page.content.decode()


def test_a_rejection_ends_the_plan_and_shows_its_reason():
    plan = make_plan()
    page = client_of().post(url_of(plan, "reject"), approval(plan, reason="Wrong <customer>"))
    assert (page.status_code, state_in(page)) == (200, "rejected")
    assert "Wrong <customer>" in text_of(page)


def final_plan(stub) -> Plan:
    actions = [{"op": "create", "target": "refund/7", "to": {"amount_cents": 48000}, "reversible": False}]
    return plan_at(stub, intent="refund:7", plan={"actions": actions})


def test_the_typed_fact_is_asked_for_never_told_by_the_form_and_checked_on_the_server(stub_target):
    plan, client = final_plan(stub_target), client_of()
    page = client.get(url_of(plan)).content.decode()
    assert 'name="fact"' in page
    assert 'class="btn big guarded"' in page
    assert "data-fact" not in page
    for fact in ("", "48001"):
        wrong = client.post(url_of(plan, "approve"), approval(plan, fact=fact))
        assert (wrong.status_code, state_in(wrong)) == (422, "pending")
        assert 'id="fact-e"' in wrong.content.decode()
    assert stub_target.applied == 0
    assert state_in(client.post(url_of(plan, "approve"), approval(plan, fact="48000"))) == "committed"


def test_a131_a_plan_of_my_own_agent_shows_one_sentence_and_no_form_and_is_403(stub_target):
    owner, target = make_person("reviewer"), make_target(base_url=stub_target.base_url)
    plan = make_plan(target=target, made=make_agent(target, owner=owner))
    client = client_of(owner)
    page = client.get(url_of(plan))
    assert "You can't decide this plan" in text_of(page)
    assert "data-action" not in page.content.decode()
    assert client.post(url_of(plan, "approve"), approval(plan)).status_code == 403


@pytest.mark.parametrize("role", ["auditor", "admin"])
def test_auditors_and_admins_read_and_do_not_decide(role):
    plan, client = make_plan(), client_of(make_person(role))
    assert 'data-action="approve"' not in client.get(url_of(plan)).content.decode()
    page = client.post(url_of(plan, "reject"), approval(plan, reason="No"))
    assert (page.status_code, state_in(page)) == (403, "pending")


def test_where_nobody_left_may_decide_the_page_says_so():
    plan = make_plan(target=make_target(approvals=2))
    assert "Nobody is left who may give the missing approval" in text_of(client_of().get(url_of(plan)))


def test_a_plan_its_target_has_not_confirmed_says_so():
    assert "Told by the agent, not confirmed by the target" in text_of(client_of().get(url_of(make_plan())))


def test_that_a_plan_expired_is_told_once_in_its_story():
    page = client_of().get(url_of(make_plan("abandoned", reason=AbandonReason.EXPIRED))).content.decode()
    story = page.split("What happened so far")[1].split("</ol>")[0]
    assert story.count("Expired") == 1


def test_a_new_plan_names_the_one_it_replaces_and_shows_what_differs():
    target = make_target()
    made = make_agent(target)
    old = make_plan("conflicted", target=target, made=made)
    action = {"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 175, "to": 250}
    new = make_plan(target=target, made=made, replaces=old.plan_id, plan={"actions": [action]})
    text = text_of(client_of().get(url_of(new)))
    assert f"Takes the place of {old.plan_id}" in text
    assert "100 → 250" in text
    assert "175 → 250" in text


def test_other_plans_for_the_same_record_are_named():
    target = make_target()
    one = make_plan(target=target, made=make_agent(target))
    two = make_plan(target=target, made=make_agent(target))
    text = text_of(client_of().get(url_of(one)))
    assert "Other plans that wait for the same records" in text
    assert two.plan_id in text


def test_an_unknown_plan_is_settled_by_hand_after_its_expiry_with_a_reason(owner_connection):
    plan = make_plan("unknown")
    client = client_of()
    early = client.post(url_of(plan, "settle"), {"was_made": "yes", "reason": "Seen at the bank"})
    assert (early.status_code, state_in(early)) == (409, "unknown")
    pass_time_to_expiry(owner_connection, plan, 61)
    for sent in ({"reason": "x"}, {"was_made": "yes", "reason": " "}):
        assert client.post(url_of(plan, "settle"), sent).status_code == 422
    for choice, other in (("yes", "no"), ("no", "yes")):
        again = client.post(url_of(plan, "settle"), {"was_made": choice, "reason": " "}).content.decode()
        assert f'value="{choice}" required checked>' in again
        assert f'value="{other}" required>' in again
    page = client.post(url_of(plan, "settle"), {"was_made": "yes", "reason": "Seen at the bank"})
    assert (page.status_code, state_in(page)) == (200, "committed")


def test_the_agent_can_be_asked_to_plan_again():
    plan = make_plan("conflicted")
    client = client_of()
    assert "Ask the agent to plan again" in text_of(client.get(url_of(plan)))
    page = client.post(url_of(plan, "replan"))
    assert page.status_code == 200
    assert "The agent was asked to plan again" in text_of(page)


def test_what_expired_and_was_not_swept_yet_expired_when_its_time_was_up(owner_connection):
    plan, client = make_plan(), client_of()
    pass_time_to_expiry(owner_connection, plan)
    expired = f"{reread(plan).expires_at:%H:%M:%S} UTC"
    address = f"{url_of(plan, 'news')}?state=pending&digest=-&approvals=0"
    assert f"It is now: Expired ({expired})." in text_of(client.get(address, headers={"HX-Request": "true"}))


def test_the_page_shows_news_only_when_there_is_news():
    plan, client = make_plan(), client_of()
    address = f"{url_of(plan, 'news')}?state=pending&digest={approval(plan)['digest']}&approvals=0"
    nothing = client.get(address, headers={"HX-Request": "true"})
    assert "out of date" not in text_of(nothing)
    same = client.get(address, headers={"HX-Request": "true", "If-None-Match": nothing["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    client_of(make_person("reviewer", name="Tom Okafor")).post(url_of(plan, "reject"), approval(plan, reason="No"))
    news = client.get(address, headers={"HX-Request": "true", "If-None-Match": nothing["ETag"]})
    assert news.status_code == 200
    assert "Tom Okafor rejected this plan" in text_of(news)


def test_the_news_name_who_approved_and_no_agent_as_an_approver(stub_target):
    free = make_plan("committed", target=make_target(approvals=0))
    address = f"{url_of(free, 'news')}?state=pending&digest=x&approvals=0"
    news = text_of(client_of().get(address, headers={"HX-Request": "true"}))
    assert "It was written at" in news
    assert "approved" not in news
    plan = plan_at(stub_target)
    client_of(make_person("reviewer", name="Tom Okafor")).post(url_of(plan, "approve"), approval(plan))
    address = f"{url_of(plan, 'news')}?state=pending&digest=x&approvals=0"
    news = text_of(client_of().get(address, headers={"HX-Request": "true"}))
    assert "Tom Okafor approved it, and it was written at" in news


def test_policy_can_ask_for_a_fact_on_every_plan(stub_target):
    target = make_target(base_url=stub_target.base_url)
    policy_of(target, is_guarded=True)
    assert 'name="fact"' in client_of().get(url_of(make_plan(target=target))).content.decode()


def test_a_plan_that_waits_for_its_targets_word_alone_says_so():
    target = make_target(approvals=0)
    free = make_plan(target=target)
    policy_of(target, refuses_unconfirmed=True)
    plan = make_plan(target=target)
    said = "No approval is needed: the agent may write this by itself"
    assert f"{said}, once its target has confirmed it." in text_of(client_of().get(url_of(plan)))
    Plan.objects.filter(pk=plan.pk).update(has_confirmed_actions=True)
    for one in (free, plan):
        page = text_of(client_of().get(url_of(one)))
        assert f"{said}." in page
        assert "once its target" not in page


def test_an_approval_says_who_gave_it_and_when(stub_target):
    plan = plan_at(stub_target, approvals=2)
    tom = make_person("reviewer", name="Tom Okafor")
    client_of(tom).post(url_of(plan, "approve"), approval(plan))
    assert Approval.objects.filter(plan=plan).count() == 1
    text = text_of(client_of().get(url_of(plan)))
    assert "1 of 2 approvals given" in text
    assert "Tom Okafor" in text
    assert "Approve and write 1 change" in text


def test_only_reviewers_are_offered_to_ask_for_a_new_plan():
    plan = make_plan("conflicted")
    assert "Ask the agent to plan again" not in text_of(client_of(make_person("auditor")).get(url_of(plan)))
