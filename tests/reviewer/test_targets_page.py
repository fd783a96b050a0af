"""Targets and callbacks, for admins: registered, changed, tested, put under policies; deliveries made again."""

from datetime import timedelta

import msgspec
import pytest

from plans import callbacks, clock, policy_change, registry
from plans.chronicle import person_actor
from plans.demo.operations import RefundInvoice
from plans.models import Approval, Callback, Policy, Target, TargetAddress
from tests.makers import events_of, make_agent, make_person, make_plan, make_target, policy_of, reread
from tests.reviewer.pages import admin_and_client, approval, client_of, text_of, told_of, url_of
from tests.stub_target import StubTarget, refusing_url
from tests.time_passing import pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")

NEW = {"do": "create", "name": "ledger", "base_url": "https://ledger.example/v1", "approvals": "2",
       "commit_path": "/{operation}/commit", "status_path": "/plans/{plan_id}"}  # fmt: skip


def test_a_remote_target_is_registered_and_its_credentials_are_never_shown():
    admin, client = admin_and_client()
    bearer = "bearer-sentinel-4711"
    made = client.post("/targets/", {**NEW, "operations": "refund, credit", "bearer": bearer})
    assert made.status_code == 201
    target = Target.objects.get(name="ledger")
    assert (target.base_url, target.operations) == ("https://ledger.example/v1", ["refund", "credit"])
    assert policy_change.newest_policy(target).approvals == 2
    assert told_of("target.changed") == [(f"person:{admin.pk}", "created")]
    wrong = client.post("/targets/", {**NEW, "name": "x y", "bearer": bearer})
    for page in (made, wrong, client.get("/targets/"), client.get("/targets/ledger/")):
        assert bearer not in page.content.decode()
    assert "a bearer token, sealed" in text_of(client.get("/targets/ledger/"))


@pytest.mark.parametrize(
    ("sent", "where", "sentence"),
    [
        ({"name": "taken"}, "new-name", "There is already a target taken."),
        ({"base_url": "http://ledger.example"}, "new-base_url", "must be https"),
        ({"approvals": "11"}, "new-approvals", "less than or equal to 10"),
        ({"approvals": "few"}, "new-approvals", "Enter a whole number."),
        ({"bearer": "two words"}, "new-bearer", "visible ASCII characters"),
        ({"status_path": "plans"}, "new-commit_path", "is no path"),
        ({"operations": "a/b"}, "new-operations", "a/b is no name of an operation."),
    ],
)
def test_a_mistake_is_said_at_its_field_and_registers_nothing(sent, where, sentence):
    _, client = admin_and_client()
    make_target("taken")
    page = client.post("/targets/", {**NEW, **sent})
    assert page.status_code == 422
    assert f'<a href="#{where}">' in page.content.decode()
    assert f'id="{where}"' in page.content.decode()
    assert sentence in text_of(page)
    assert Target.objects.filter(kind="remote").count() == 1


def test_hosted_targets_are_listed_with_their_operations_and_have_no_address():
    _, client = admin_and_client()
    assert "Hosted here address.update, refund" in text_of(client.get("/targets/"))
    page = client.get("/targets/billing/").content.decode()
    assert 'value="policy"' in page
    for do in ("address", "operations", "test"):
        assert f'name="do" value="{do}"' not in page


def test_an_operation_without_tools_is_told_with_the_reason(monkeypatch):
    registry.ensure_hosted_targets()
    _, client = admin_and_client()
    assert "no tools" not in text_of(client.get("/targets/billing/"))
    shape = msgspec.defstruct("Inputs", [("labels", dict[str, str])], forbid_unknown_fields=True)
    monkeypatch.setattr(RefundInvoice, "Inputs", shape)
    said = text_of(client.get("/targets/billing/"))
    assert said.count("Agents are told no tools for it: An open object has no strict schema.") == 1


def test_a_new_address_withdraws_what_waits_and_new_credentials_do_not():
    (_, client), plan = admin_and_client(), make_plan(target=make_target("ledger"))
    where = {"do": "address", "base_url": "http://127.0.0.1:9", "commit_path": "/{operation}/commit"}
    where["status_path"] = "/plans/{plan_id}"
    assert "withdrawn" not in text_of(client.post("/targets/ledger/", {**where, "bearer": "secret"})).split("Kind")[0]
    assert reread(plan).state == "pending"
    page = client.post("/targets/ledger/", {**where, "base_url": "https://new.example", "bearer": "other"})
    assert "1 waiting plan was withdrawn." in text_of(page)
    assert reread(plan).abandonment.reason == "withdrawn"


def test_operations_are_replaced_and_none_means_any():
    (_, client), target = admin_and_client(), make_target("ledger")
    client.post("/targets/ledger/", {"do": "operations", "operations": "refund\ncredit refund"})
    target.refresh_from_db()
    assert target.operations == ["refund", "credit"]
    client.post("/targets/ledger/", {"do": "operations", "operations": ""})
    target.refresh_from_db()
    assert target.operations == []


def test_disabling_needs_the_name_typed_and_withdraws_what_waits():
    (_, client), plan = admin_and_client(), make_plan(target=make_target("ledger"))
    assert client.post("/targets/ledger/", {"do": "disable", "typed": "no"}).status_code == 422
    page = client.post("/targets/ledger/", {"do": "disable", "typed": "ledger"})
    assert "1 waiting plan was withdrawn." in text_of(page)
    assert reread(plan).abandonment.reason == "withdrawn"
    assert client.post("/targets/ledger/", {"do": "policy", "approvals": "3"}).status_code == 409


# --- the connection -------------------------------------------------------------------------------------------------


def test_the_connection_is_tested_by_one_question_about_a_plan_that_does_not_exist(stub_target):
    _, client = admin_and_client()
    make_target("ledger", base_url=stub_target.base_url, bearer="bearer-sentinel")
    page = client.post("/targets/ledger/", {"do": "test"})
    assert page.status_code == 200
    assert "The target answers: 404, as it should for a plan that does not exist" in text_of(page)
    assert "bearer-sentinel" not in page.content.decode()
    (asked,) = stub_target.received
    assert (asked.method, asked.path.startswith("/plans/plandesk-test-")) == ("GET", True)
    assert asked.header("Authorization") == "Bearer bearer-sentinel"


def test_credentials_that_are_not_taken_are_told_from_a_target_that_is_not_there():
    _, client = admin_and_client()
    with StubTarget(bearer="the right one") as stub:
        make_target("ledger", base_url=stub.base_url, bearer="another")
        page = text_of(client.post("/targets/ledger/", {"do": "test"}))
    assert "The target answers 401: it does not take the credentials" in page


def test_a_target_that_cannot_be_reached_is_said_with_the_reason():
    _, client = admin_and_client()
    with refusing_url() as address:
        make_target("ledger", base_url=address)
        page = text_of(client.post("/targets/ledger/", {"do": "test"}))
    assert "The target gave no answer" in page
    assert "Connection refused" in page


# --- policies -------------------------------------------------------------------------------------------------------


def test_a_new_version_is_an_event_and_leaves_waiting_plans_under_theirs():
    (admin, client), plan = admin_and_client(), make_plan(target=make_target("ledger"))
    page = client.post("/targets/ledger/", {"do": "policy", "approvals": "2", "is_guarded": "on"})
    assert "Policy 2 is made" in text_of(page)
    newest = policy_change.newest_policy(plan.target)
    assert (newest.version, newest.approvals, newest.is_guarded, newest.refuses_unconfirmed) == (2, 2, True, False)
    assert (reread(plan).policy.version, reread(plan).approvals_required) == (1, 1)
    assert told_of("policy.changed") == [(f"person:{admin.pk}", "")]
    assert "2 people, a typed fact always" in text_of(page)
    again = client.post("/targets/ledger/", {"do": "policy", "approvals": "2", "is_guarded": "on"})
    assert "Nothing was changed" in text_of(again)
    assert Policy.objects.filter(target=plan.target).count() == 2


def test_the_number_of_a_remote_targets_approvals_is_asked_for():
    (_, client), _ = admin_and_client(), make_target("ledger")
    assert client.post("/targets/ledger/", {"do": "policy", "approvals": ""}).status_code == 422
    assert client.post("/targets/billing/", {"do": "policy", "approvals": ""}).status_code == 404
    client.get("/targets/")
    assert client.post("/targets/billing/", {"do": "policy", "approvals": ""}).status_code == 200


def test_chosen_plans_are_put_under_the_newest_policy_and_their_approvals_become_void(stub_target):
    admin, client = admin_and_client()
    target = make_target("ledger", approvals=2, base_url=stub_target.base_url)
    made = make_agent(target)
    chosen, other = (make_plan(target=target, made=made) for _ in range(2))
    shown = approval(chosen)
    reviewer = make_person("reviewer")
    client_of(reviewer).post(url_of(chosen, "approve"), shown)
    client.post("/targets/ledger/", {"do": "policy", "approvals": "3"})
    page = client.post("/targets/ledger/", {"do": "apply", "plan": [chosen.pk, "x", "-1"]})
    assert "1 plan stands under the newest policy" in text_of(page)
    assert "1 earlier approval is void." in text_of(page)
    chosen, other = reread(chosen), reread(other)
    assert (chosen.policy.version, chosen.approvals_required) == (2, 3)
    assert (other.policy.version, other.approvals_required) == (1, 2)
    assert events_of(chosen)[-1] == "plan.policy_applied"
    assert Approval.objects.get().void_reason == "policy-applied"
    assert told_of("plan.policy_applied") == [(f"person:{admin.pk}", "")]
    # A page that was opened before shows another policy: its decision is not taken.
    assert client_of().post(url_of(chosen, "approve"), shown).status_code == 409
    assert client_of(reviewer).post(url_of(chosen, "approve"), approval(chosen)).status_code == 200


def test_applying_leaves_what_was_decided_or_expired_or_belongs_to_another_target(owner_connection):
    (_, client), target = admin_and_client(), make_target("ledger")
    made = make_agent(target)
    gone, due, fine = (
        make_plan("rejected", target=target, made=made),
        *(make_plan(target=target, made=made, lifetime=timedelta(minutes=5)) for _ in range(2)),
    )
    elsewhere = make_plan()
    policy_of(target, approvals=0)
    pass_time_to_expiry(owner_connection, due)
    page = client.post("/targets/ledger/", {"do": "apply", "plan": [gone.pk, due.pk, fine.pk, elsewhere.pk]})
    text = text_of(page)
    assert "1 plan stands under the newest policy" in text
    assert f"{gone.plan_id}: It does not wait for a decision any more." in text
    assert f"{due.plan_id}: It has expired." in text
    assert (reread(fine).policy.version, reread(fine).approvals_required) == (2, 0)
    assert reread(elsewhere).policy.version == 1
    assert reread(due).abandonment.reason == "expired"
    assert "already" in text_of(client.post("/targets/ledger/", {"do": "apply", "plan": [fine.pk]}))
    assert "No plan was chosen" in text_of(client.post("/targets/ledger/", {"do": "apply"}))


def test_a_policy_that_asks_too_many_is_refused_by_the_use_case_too():
    make_target("ledger")
    for approvals, sentence in ((11, "a number from 0 to 10"), (None, "says itself how many")):
        with pytest.raises(policy_change.PolicyError, match=sentence):
            policy_change.change_policy(
                target_name="ledger", approvals=approvals, is_guarded=False, refuses_unconfirmed=False,
                by=person_actor(make_person("admin")),
            )  # fmt: skip


# --- callbacks ------------------------------------------------------------------------------------------------------


def callback_of(state: str = "rejected", **fields) -> Callback:
    target = make_target()
    made = make_agent(target, callback_url="http://127.0.0.1:9/told")
    make_plan(state, target=target, made=made)
    Callback.objects.filter(agent=made.agent).update(**fields)
    return Callback.objects.select_related("agent", "plan").get(agent=made.agent)


def test_each_delivery_is_shown_with_its_attempts():
    (_, client), callback = admin_and_client(), callback_of()
    assert "Not tried yet." in text_of(client.get("/callbacks/"))
    assert callbacks.deliver_due() == 1
    text = text_of(client.get("/callbacks/"))
    assert f"plan.rejected {callback.agent.name} {callback.plan.plan_id}" in text
    assert "Failing" in text
    assert "1 attempt " in text
    assert "Connection refused" in text
    assert callback.webhook_id in text


def test_filters_of_callbacks_stand_in_the_address():
    _, client = admin_and_client()
    at = clock.now()
    waiting, lost = callback_of(), callback_of(next_try_at=None, gave_up_at=at)
    for query, found in (("outcome=given-up", lost), ("outcome=waiting", waiting), (f"agent={lost.agent.name}", lost)):
        text = text_of(client.get(f"/callbacks/?{query}"))
        assert [one for one in (waiting, lost) if one.webhook_id in text] == [found]
    assert "No callback matches" in text_of(client.get("/callbacks/?outcome=delivered"))
    assert client.get("/callbacks/?outcome=lost").status_code == 422
    assert lost.webhook_id not in text_of(client.get(f"/callbacks/?before={lost.pk}"))


def test_a_callback_is_delivered_again_at_a_press_and_that_is_an_event():
    (admin, client), lost = admin_and_client(), callback_of(next_try_at=None, gave_up_at=clock.now())
    page = client.post("/callbacks/?outcome=given-up", {"callback": lost.pk})
    assert page.status_code == 200
    assert "Queued again" in text_of(page)
    lost.refresh_from_db()
    assert lost.next_try_at is not None
    assert lost.gave_up_at is None
    assert told_of("agent.changed")[-1] == (f"person:{admin.pk}", "callback_repeated")
    assert client.post("/callbacks/", {"callback": "0"}).status_code == 404


def test_credentials_are_taken_away_by_a_press_and_the_event_says_so():
    make_target("ledger", base_url="https://ledger.example", bearer="bearer-sentinel-4711")
    _, client = admin_and_client()
    where = {"do": "address", "base_url": "https://ledger.example", "commit_path": "/{operation}/commit",
             "status_path": "/plans/{plan_id}"}  # fmt: skip
    both = client.post("/targets/ledger/", {**where, "bearer": "new", "removes_bearer": "on"})
    assert both.status_code == 422
    assert "not both" in text_of(both)
    kept = Target.objects.get(name="ledger").addresses.get()
    assert kept.credentials_sealed is not None
    assert client.post("/targets/ledger/", {**where, "removes_bearer": "on"}).status_code == 200
    kept.refresh_from_db()
    assert kept.credentials_sealed is None
    assert "Credentials none" in text_of(client.get("/targets/ledger/"))
    assert told_of("target.changed")[-1][1] == "set"


def test_credentials_do_not_follow_an_address_to_another_server(stub_target):
    _, client = admin_and_client()
    client.post("/targets/", {**NEW, "bearer": "bearer-sentinel-4711"})
    where = {"do": "address", "base_url": "https://ledger.example/v2", "commit_path": "/{operation}/commit",
             "status_path": "/plans/{plan_id}"}  # fmt: skip
    assert client.post("/targets/ledger/", where).status_code == 200, "the same server goes on knowing them"
    page = client.post("/targets/ledger/", {**where, "base_url": stub_target.base_url})
    assert page.status_code == 422
    assert "were given for https://ledger.example" in text_of(page)
    assert '<a href="#where-bearer">' in page.content.decode()
    assert Target.objects.get(name="ledger").base_url == "https://ledger.example/v2"
    for changed in ({"bearer": "another"}, {"removes_bearer": "on"}):
        target = Target.objects.get(name="ledger")
        TargetAddress.objects.filter(target=target).update(base_url="https://ledger.example/v2")
        sent = {**where, "base_url": stub_target.base_url, **changed}
        assert client.post("/targets/ledger/", sent).status_code == 200
