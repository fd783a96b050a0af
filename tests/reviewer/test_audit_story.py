"""A plan's story with its gaps, and single events with their proofs, as auditors read them."""

import base64
import hashlib
import re
from datetime import timedelta

import pytest

from audit.kinds import Kind
from audit.merkle import hash_leaf
from audit.models import Event
from audit.notes import Verifier
from audit.signing import read_verifier
from audit.stories import ALARMS, Gap, Stage, tell_story
from plans import clock
from plans.states import AbandonReason
from plans.viewing import record_view
from reviewer.audit_story import GAPS
from tests.audit.auditing import told
from tests.audit.independent import independent
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.hosted_plans import plan_address, plan_refund
from tests.makers import make_person, make_plan
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def auditor():
    return client_of(make_person("auditor"))


def url_of(plan):
    return f"/audit/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/"


def gaps_of(plan):
    story = tell_story(agent=plan.agent.name, target=plan.target.name, plan_id=plan.plan_id, now=clock.now())
    assert story is not None
    return {gap for step in story.steps for gap in step.gaps}


def events_like(plan, *kinds, **data):
    """Events under the plan's name, past the plan itself."""
    for kind in kinds:
        make_event(kind, agent=plan.agent.name, target=plan.target.name, plan_id=plan.plan_id, data=data)


def approved_plan():
    """A plan that somebody opened, approved and wrote."""
    hosted, person = plan_refund(), make_person("reviewer", name="Mara")
    record_view(plan_pk=hosted.plan.pk, person=person)
    hosted.approve(person)
    return hosted.plan


def test_a_plan_that_was_opened_approved_and_written_has_no_gap_but_the_callback(auditor):
    plan = approved_plan()
    assert gaps_of(plan) == {Gap.NOT_CALLED_BACK}
    page = auditor.get(url_of(plan))
    text = text_of(page)
    digest = told("plan.approved")[0]["digest"]
    for words in ("Received", "Opened", "Approved", "Write started", "Ended", "Agent called back", "Mara", digest):
        assert words in text
    assert page.content.decode().count('class="gap"') == 1
    assert told("audit.read")[-1]["story"]["plan_id"] == plan.plan_id


@pytest.mark.parametrize(
    ("make", "gaps"),
    [
        (lambda: make_plan("pending"), {Gap.NOT_VIEWED, Gap.NOT_DECIDED, Gap.NOT_STARTED, Gap.NOT_ENDED}),
        (
            lambda: make_plan("abandoned", reason=AbandonReason.EXPIRED),
            {Gap.NOT_VIEWED, Gap.NOT_DECIDED, Gap.NOT_STARTED},
        ),
        (lambda: make_plan("rejected"), {Gap.DECIDED_UNSEEN, Gap.NOT_STARTED}),
        (lambda: make_plan("committed"), {Gap.NOT_VIEWED, Gap.TOO_FEW_APPROVALS}),
    ],
)
def test_what_is_missing_at_a_stage_is_a_gap(make, gaps):
    assert gaps_of(make()) == gaps | {Gap.NOT_CALLED_BACK}


def test_a_plan_that_its_policy_asks_nobody_about_says_so():
    hosted = plan_address()
    hosted.commit()
    assert gaps_of(hosted.plan) == {Gap.NOT_VIEWED, Gap.NOBODY_ASKED, Gap.NOT_CALLED_BACK}


def test_what_cannot_be_in_a_whole_log_is_an_alarm(auditor):
    plan = approved_plan()
    events_like(plan, Kind.PLAN_ABANDONED, reason="expired")
    assert Gap.ENDED_TWICE in gaps_of(plan) & ALARMS
    assert str(GAPS[Gap.ENDED_TWICE]) in text_of(auditor.get(url_of(plan)))


def test_a_plan_without_a_receipt_and_one_that_nobody_here_approved_are_alarms():
    plan = make_plan("pending")
    stray = {"agent": "ghost", "target": "t", "plan_id": "p"}
    make_event(Kind.COMMIT_SUCCEEDED, **stray)
    story = tell_story(**stray, now=clock.now())
    assert {Gap.NOT_RECEIVED, Gap.WRITTEN_UNSTARTED} <= {gap for step in story.steps for gap in step.gaps}
    events_like(plan, Kind.COMMIT_UNAPPROVED, Kind.COMMIT_SUCCEEDED)
    assert gaps_of(plan) & ALARMS == {Gap.UNAPPROVED}


def test_an_event_that_is_gone_from_the_plans_own_count_is_named(auditor, owner_connection):
    plan = approved_plan()
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute("DELETE FROM audit_event WHERE kind = 'plan.approved'")
    text = text_of(auditor.get(url_of(plan)))
    assert "Events of this plan are missing" in text
    assert "No event has the number 2" in text
    assert str(GAPS[Gap.TOO_FEW_APPROVALS]) in text


def gaps_at(plan, now):
    story = tell_story(agent=plan.agent.name, target=plan.target.name, plan_id=plan.plan_id, now=now)
    return {gap for step in story.steps for gap in step.gaps}


def test_a_plan_past_its_expiry_alarms_when_the_sweep_should_have_come_and_not_before():
    plan, writing = make_plan("pending"), make_plan("committing")
    soon, late = (plan.expires_at + timedelta(seconds=seconds) for seconds in (59, 61))
    assert Gap.OVERDUE not in gaps_at(plan, soon)
    assert Gap.OVERDUE in gaps_at(plan, late)
    assert Gap.OVERDUE not in gaps_at(writing, writing.expires_at + timedelta(seconds=61))


def test_an_erased_payload_leaves_its_event_in_the_story(auditor, owner_connection):
    plan = approved_plan()
    owner_connection.execute("DELETE FROM audit_payload WHERE event_id IN (SELECT id FROM audit_event WHERE kind = %s)",
                             ["plan.approved"])  # fmt: skip
    page = auditor.get(url_of(plan))
    assert "What 1 of the events said was erased" in text_of(page)
    assert gaps_of(plan) == {Gap.NOT_CALLED_BACK}
    event = Event.objects.get(kind="plan.approved")
    assert "Erased, and its salt with it" in text_of(auditor.get(f"/audit/events/{event.id}/"))


def test_a_callback_that_failed_last_is_a_gap():
    plan = make_plan("rejected")
    events_like(plan, Kind.CALLBACK_FAILED, callback="plan.rejected")
    assert Gap.CALLBACK_FAILED in gaps_of(plan)


def test_a_plan_that_the_log_does_not_know_is_404_and_the_look_is_recorded(auditor):
    assert auditor.get("/audit/plans/a/t/p/").status_code == 404
    assert told("audit.read")[-1]["found"] is False


def test_every_stage_and_gap_has_words():
    assert set(GAPS) == set(Gap)
    assert len(Stage) == 6


# --- one event ------------------------------------------------------------------------------------------------------


def test_an_events_page_holds_all_that_its_proof_is_made_of(auditor, tmp_path):
    plan = approved_plan()
    sequence(tmp_path)
    event = Event.objects.select_related("payload").get(kind="commit.succeeded", plan_id=plan.plan_id)
    text = text_of(auditor.get(f"/audit/events/{event.id}/"))
    for words in (bytes(event.leaf).decode(), bytes(event.leaf_hash).hex(), bytes(event.payload.salt).hex()):
        assert words in text
    assert str(read_verifier()) in text
    assert told("audit.read")[-1]["event_id"] == str(event.id)


def test_the_downloaded_proof_is_verified_by_somebody_elses_program(auditor, tmp_path):
    event = make_event(agent="bot")
    sequence(tmp_path)
    proof = auditor.get(f"/audit/events/{event.id}/proof/")
    leaf = auditor.get(f"/audit/events/{event.id}/leaf/").content
    key = auditor.get("/audit/key/").content.decode().strip()
    assert proof["Content-Disposition"] == f'attachment; filename="{event.id}.tlog-proof"'
    signing, tiles, tlog = (independent(f"tlog_scales.{name}") for name in ("signing", "tiles", "tlog"))
    head, _, note = proof.content.decode().partition("\n\n")
    checkpoint = tlog.Checkpoint.from_text(note)
    checkpoint.verify(signing.Vkey.from_string(key))
    first, index, *path = head.split("\n")
    assert first == "c2sp.org/tlog-proof@v1"
    hashes = [base64.b64decode(line) for line in path]
    inclusion = tlog.InclusionProof(int(index.split()[1]), checkpoint.size, hashes)
    inclusion.check(tiles.leaf_hash(leaf), checkpoint.root_hash)
    with pytest.raises(Exception, match=r"."):
        inclusion.check(tiles.leaf_hash(leaf + b" "), checkpoint.root_hash)
    assert hash_leaf(leaf) == hashlib.sha256(b"\x00" + leaf).digest()
    assert [set(data) - {"via"} for data in told("audit.read")] == [{"proof_of"}, {"leaf_of"}]
    assert Verifier.parse(key).name == checkpoint.origin


def test_a_proof_that_is_not_there_yet_says_when_to_ask_again(auditor):
    event = make_event()
    response = auditor.get(f"/audit/events/{event.id}/proof/")
    assert response.status_code == 503
    assert "Ask again in a few seconds" in text_of(response)
    assert "No signed checkpoint covers this event yet" in text_of(auditor.get(f"/audit/events/{event.id}/"))


@pytest.mark.parametrize("event_id", ["01a23548-7bd6-765e-b3e5-049e39829d20", "x", "{01a23548-7bd6-765e-b3e5-049e}"])
def test_an_event_that_is_not_there_is_404(auditor, event_id):
    for page in ("", "proof/", "leaf/"):
        assert auditor.get(f"/audit/events/{event_id}/{page}").status_code == 404


def test_every_event_of_the_story_offers_its_proof(auditor):
    plan = approved_plan()
    page = auditor.get(url_of(plan)).content.decode()
    proofs = set(re.findall(r'href="/audit/events/([0-9a-f-]{36})/proof/"', page))
    assert proofs == {str(event.id) for event in Event.objects.filter(plan_id=plan.plan_id)}
