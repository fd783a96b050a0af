"""Verification from the page: its result, its checkpoint, what stays open, and the first bad index on damage."""

import pytest

from reviewer import audit_jobs
from reviewer.models import AuditJob
from reviewer.views import audit_verify
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.makers import make_person
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def auditor():
    return client_of(make_person("auditor"))


@pytest.fixture
def log(tmp_path):
    """Nine events under one checkpoint."""
    made = [make_event(data={"n": number}).id for number in range(9)]
    sequence(tmp_path)
    return made


def press(auditor):
    return auditor.post("/audit/verify/", follow=True)


def test_a_whole_log_is_said_to_be_so_against_which_checkpoint_and_what_is_not_proven(log, auditor):
    text = text_of(press(auditor))
    assert "Whole: nothing is damaged" in text
    assert "Against the checkpoint of 9 events" in text
    assert "9 payloads are those that their leaves commit to" in text
    assert "Not proven" in text
    assert "That what was recorded is true" in text
    assert told("audit.verified")[0]["via"] == "page"


@pytest.mark.parametrize("place", [0, 4, 8])
def test_damage_is_named_by_its_first_bad_index(log, auditor, owner_connection, place):
    owner_connection.execute("SET session_replication_role = replica")
    owner_connection.execute(
        "UPDATE audit_payload SET body = replace(body, 'n', 'm') WHERE event_id = %s", [log[place]]
    )
    page = press(auditor)
    assert f"Damaged: the first bad index is {place}" in text_of(page)
    assert f"/audit/events/{log[place]}/" in page.content.decode()
    assert f"first bad index {place}" in text_of(auditor.get("/audit/verify/"))


def test_a_tail_that_is_gone_is_damage(log, auditor, owner_connection):
    owner_connection.execute("SET session_replication_role = replica")
    for table in ("audit_event", "audit_payload", "audit_sequence"):
        column = "id" if table == "audit_event" else "event_id"
        owner_connection.execute(f"DELETE FROM {table} WHERE {column} = %s", [log[-1]])
    assert "Damaged" in text_of(press(auditor))


def test_a_long_log_is_verified_by_a_worker_with_progress(log, auditor, monkeypatch):
    monkeypatch.setattr(audit_verify, "SHORT", 0)
    page = press(auditor)
    assert "Waiting for a worker" in text_of(page)
    assert "<progress" in page.content.decode()
    again = press(auditor)  # one is open: it is shown instead of a second
    assert AuditJob.objects.count() == 1
    assert audit_jobs.run_due_jobs() == 1
    job = AuditJob.objects.get()
    assert (job.state, job.done) == ("done", job.total)
    path = again.request["PATH_INFO"]
    assert "Whole: nothing is damaged" in text_of(auditor.get(path))
    swap = auditor.get(path, headers={"HX-Request": "true"})
    assert swap.status_code == 286
    assert "<html" not in swap.content.decode()


@pytest.mark.parametrize(
    ("meanwhile", "state"),
    [({"state": "failed", "problem": "given up"}, "failed"), ({"attempts": 2}, "running"), ({}, "done")],
    ids=["given up", "taken over", "nothing"],
)
def test_a_worker_that_comes_late_ends_no_verification_that_is_not_its_own_any_more(
    log, auditor, monkeypatch, meanwhile, state
):
    monkeypatch.setattr(audit_verify, "SHORT", 0)
    press(auditor)
    verified = audit_jobs.verify_log

    def be_slow(**options):
        report = verified(**options)
        AuditJob.objects.update(**(meanwhile or {"done": 0}))
        return report

    monkeypatch.setattr(audit_jobs, "verify_log", be_slow)
    audit_jobs.run_due_jobs()
    job = AuditJob.objects.get()
    assert (job.state, job.problem, bool(job.closing)) == (state, meanwhile.get("problem", ""), state == "done")


def test_every_auditor_reads_every_report(log, auditor):
    path = press(auditor).request["PATH_INFO"]
    assert "Whole" in text_of(client_of(make_person("auditor")).get(path))
    assert client_of(make_person("admin")).get(path).status_code == 403


def test_a_log_without_a_checkpoint_says_what_that_means(auditor):
    make_event()
    assert "None has been signed yet" in text_of(auditor.get("/audit/verify/"))
    assert "no checkpoint has been signed yet" in text_of(press(auditor))


def test_without_a_key_nothing_is_verified_and_that_is_said(log, auditor, settings):
    settings.AUDIT_VERIFIER_KEY = settings.AUDIT_SIGNING_KEY = ""
    text = text_of(press(auditor))
    assert "The log was not verified" in text
    assert AuditJob.objects.get().state == "failed"


def test_a_witness_is_named_with_what_it_cosigned(log, auditor, settings):
    assert "None. Whoever holds the signing key" in text_of(auditor.get("/audit/verify/"))
    key = "witness.example+f6e8bd06+BK/cUBMXCnDlqCpQ36xBTDHuKlJBYRVGWTIBSfDi6qVS"
    settings.AUDIT_WITNESSES = [("https://witness.example/", key)]
    text = text_of(auditor.get("/audit/verify/"))
    assert "has not cosigned" in text
