"""Exports from the page: small ones at once, large ones by a worker, resumed where a dead one left them."""

import io
import json
import time
import zipfile
from datetime import timedelta
from urllib.parse import urlencode

import pytest
from django.db import connections, transaction
from django.http import QueryDict

from audit.erasure import erase, find_erasable
from audit.export import Request, begin_export
from audit.filters import Filters
from audit.kinds import Kind
from audit.recording import SYSTEM, record
from audit.retention import Rule, dispose, find_due, set_rule
from plans import clock
from reviewer import audit_jobs
from reviewer.audit_search import read_asked
from reviewer.celery import app
from reviewer.models import AuditJob, AuditJobPart
from reviewer.views import audit_export
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence
from tests.makers import make_person
from tests.reviewer.pages import client_of, text_of

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def person():
    return make_person("auditor")


@pytest.fixture
def auditor(person):
    return client_of(person)


@pytest.fixture
def every_export_is_large(monkeypatch):
    monkeypatch.setattr(audit_export, "SMALL", -1)
    monkeypatch.setattr(audit_export, "SMALL_PACK", -1)


@pytest.fixture
def slices_of_ten(monkeypatch):
    monkeypatch.setattr(audit_jobs, "SLICE", 10)


def make_many(count, **members):
    with transaction.atomic():
        for number in range(count):
            record(Kind.PLAN_VIEWED, actor=SYSTEM, data={"n": number}, **members)


def ask(client, form="jsonl", query="agent=bot"):
    response = client.post("/audit/export/", {"form": form, "query": query})
    assert response.status_code == 302, text_of(response)
    return AuditJob.objects.get(pk=response["Location"].split("/")[-2])


def run(job):
    while audit_jobs.run_due_jobs():
        pass
    job.refresh_from_db()
    return job


def run_one(job):
    assert audit_jobs.run_due_jobs() == 1
    job.refresh_from_db()
    assert job.state == "done"


def file_of(client, job):
    response = client.get(f"/audit/exports/{job.pk}/file/")
    assert response.status_code == 200
    content = b"".join(response.streaming_content)
    assert response["Content-Length"] == str(len(content))
    return content


def test_l128_a_small_export_is_the_answer_and_an_event(auditor, person, tmp_path):
    make_many(3, agent="bot")
    make_event(agent="other")
    sequence(tmp_path)
    response = auditor.post("/audit/export/", {"form": "jsonl", "query": "agent=bot"})
    lines = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]
    assert [line["data"]["n"] for line in lines[:-1]] == [0, 1, 2]
    assert lines[-1]["export"]["rows"] == 3
    assert lines[-1]["export"]["checkpoint"].startswith("plandesk.invalid/")
    event = told("audit.exported")[0]
    assert (event["rows"], event["filters"], event["via"], event["format"]) == (3, {"agent": "bot"}, "page", "jsonl")
    assert AuditJob.objects.count() == 0


@pytest.mark.parametrize("form", ["jsonl", "csv", "ocsf"])
@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_large_export_is_made_of_slices_and_is_the_file_that_one_go_makes(auditor, form, tmp_path):
    make_many(25, agent="bot")
    make_many(7, agent="other")
    make_many(8, agent="bot")
    sequence(tmp_path)
    job = ask(auditor, form)
    assert text_of(auditor.get(f"/audit/exports/{job.pk}/")).count("Waiting for a worker")
    job = run(job)
    assert (job.state, job.done, job.total) == ("done", 33, 33)
    export = begin_export(Request(form, Filters(agent="bot")), actor=SYSTEM, via="test")
    whole = b"".join(export.stream()).splitlines()
    made = file_of(auditor, job).splitlines()
    assert made[:-1] == whole[:-1]
    assert b"checkpoint" in made[-1]
    assert len(told("audit.exported")) == 2  # one of them is this test's own
    assert told("audit.read")[-1]["export"] == str(job.pk)
    assert "33 events" in text_of(auditor.get(f"/audit/exports/{job.pk}/"))


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_worker_that_dies_in_a_slice_leaves_whole_slices_and_another_goes_on(auditor, monkeypatch):
    make_many(45, agent="bot")
    job = ask(auditor)
    stored, calls = audit_jobs._store, []

    def die_in_the_third(job, pieces):
        calls.append(1)
        stored(job, pieces)
        if len(calls) == 4:  # the head of the first slice is a call, too
            raise KeyboardInterrupt

    monkeypatch.setattr(audit_jobs, "_store", die_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        audit_jobs.run_due_jobs()
    job.refresh_from_db()
    assert (job.state, job.done) == ("running", 19)  # the sign-in has a place of its own
    monkeypatch.setattr(audit_jobs, "_store", stored)
    assert audit_jobs.run_due_jobs() == 0  # its beat is young: somebody may be at work
    AuditJob.objects.update(beat_at=clock.now() - audit_jobs.LOST_AFTER - timedelta(seconds=1))
    assert "No worker has touched it for 30 seconds" in text_of(auditor.get(f"/audit/exports/{job.pk}/"))
    job = run(job)
    numbers = [json.loads(line)["data"]["n"] for line in file_of(auditor, job).splitlines()[:-1]]
    assert numbers == list(range(45))
    assert len(told("audit.exported")) == 1


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_worker_that_sleeps_while_another_goes_on_adds_nothing(auditor):
    make_many(30, agent="bot")
    job = ask(auditor)
    sleeper = audit_jobs._claim("export")
    assert sleeper is not None
    audit_jobs._begin(sleeper)
    assert audit_jobs._export_slice(sleeper)
    slow = AuditJob.objects.select_related("person").get(pk=job.pk)
    assert audit_jobs._export_slice(sleeper)
    assert not audit_jobs._export_slice(slow)
    AuditJob.objects.update(state="waiting")
    job = run(job)
    assert len(file_of(auditor, job).splitlines()) == 31


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_turn_that_is_over_leaves_the_rest_to_the_next(auditor, monkeypatch):
    make_many(30, agent="bot")
    job = ask(auditor)
    monkeypatch.setattr(audit_jobs, "TURN", 0.0)
    audit_jobs.run_due_jobs()
    job.refresh_from_db()
    assert (job.state, job.done, job.total) == ("waiting", 0, 30)
    monkeypatch.setattr(audit_jobs, "TURN", 20.0)
    assert run(job).state == "done"


@pytest.mark.usefixtures("every_export_is_large")
def test_one_export_is_worked_on_at_a_time_the_longest_waiting_first(auditor):
    make_many(3, agent="bot")
    first, second = ask(auditor), ask(auditor)
    claimed = audit_jobs._claim("export")
    assert claimed is not None
    assert claimed.pk == first.pk
    assert audit_jobs._claim("export") is None
    AuditJob.objects.update(state="waiting")
    assert run(second).state == "done"


@pytest.mark.usefixtures("every_export_is_large")
def test_a_job_that_kills_every_worker_is_given_up(auditor):
    job = ask(auditor)
    AuditJob.objects.update(attempts=audit_jobs.ATTEMPTS)
    run(job)
    assert job.state == "failed"
    assert "Several workers" in text_of(auditor.get(f"/audit/exports/{job.pk}/"))


@pytest.mark.usefixtures("every_export_is_large")
def test_an_evidence_pack_of_a_worker_is_whole(auditor, tmp_path):
    make_many(5, agent="bot")
    sequence(tmp_path)
    job = run(ask(auditor, "evidence"))
    assert (job.state, job.done, job.total) == ("done", 5, 5)
    with zipfile.ZipFile(io.BytesIO(file_of(auditor, job))) as pack:
        assert pack.testzip() is None
        assert len([name for name in pack.namelist() if name.startswith("proofs/")]) == 5
        assert json.loads(pack.read("manifest.json"))["rows"] == 5


@pytest.mark.usefixtures("every_export_is_large")
def test_an_evidence_pack_of_what_no_checkpoint_covers_fails_and_says_so_until_one_does(auditor, tmp_path):
    make_many(5, agent="bot")
    sequence(tmp_path)
    make_many(1, agent="bot")
    job = run(ask(auditor, "evidence"))
    assert (job.state, job.problem) == (
        "failed",
        "No signed checkpoint covers these events yet. Ask again in a few seconds.",
    )
    assert AuditJobPart.objects.count() == 0
    sequence(tmp_path)
    job = run(ask(auditor, "evidence"))
    assert (job.state, job.done) == ("done", 6)


@pytest.mark.usefixtures("every_export_is_large")
@pytest.mark.parametrize(
    ("typed", "words"), [('"agent:bot" paid', '"agent:bot" paid'), ('"to:the left"', '"to:the" left')]
)
def test_a_quoted_word_stays_a_word_from_the_search_box_to_the_file_and_back(auditor, typed, words):
    make_many(3, agent="bot")
    job = run(ask(auditor, query=urlencode({"q": typed})))
    assert json.loads(file_of(auditor, job).splitlines()[-1])["export"]["filters"] == {"q": words.replace('"', "")}
    page = auditor.get(f"/audit/exports/{job.pk}/")
    shown = page.context["job"]
    assert [(str(label), value) for label, value in shown["filters"]] == [("Words", words)]
    again = auditor.get(shown["search"])
    assert again.status_code == 200
    assert read_asked(QueryDict(shown["search"].partition("?")[2])).pairs == (("q", words),)


@pytest.mark.usefixtures("every_export_is_large")
def test_an_export_is_its_own_persons_alone(auditor):
    make_many(3, agent="bot")
    job = run(ask(auditor))
    other = client_of(make_person("auditor"))
    for path in (f"/audit/exports/{job.pk}/", f"/audit/exports/{job.pk}/file/"):
        assert other.get(path).status_code == 404
    assert other.post(f"/audit/exports/{job.pk}/stop/").status_code == 404
    assert str(job.pk) not in other.get("/audit/exports/").content.decode()
    assert str(job.pk) in auditor.get("/audit/exports/").content.decode()


@pytest.mark.usefixtures("every_export_is_large")
def test_somebody_who_is_no_auditor_any_more_gets_no_file(auditor, person):
    job = run(ask(auditor))
    type(person).objects.filter(pk=person.pk).update(is_auditor=False, is_reviewer=True)
    assert auditor.get(f"/audit/exports/{job.pk}/file/").status_code == 403


@pytest.mark.usefixtures("every_export_is_large")
def test_a_file_is_thrown_away_when_its_time_is_over_or_when_told_so(auditor):
    make_many(3, agent="bot")
    job, other = run(ask(auditor)), run(ask(auditor))
    AuditJob.objects.filter(pk=job.pk).update(expires_at=clock.now())
    assert auditor.get(f"/audit/exports/{job.pk}/file/").status_code == 404
    audit_jobs.run_due_jobs()
    job.refresh_from_db()
    assert job.state == "expired"
    assert "not kept any more" in text_of(auditor.get(f"/audit/exports/{job.pk}/"))
    auditor.post(f"/audit/exports/{other.pk}/stop/")
    assert AuditJobPart.objects.count() == 0


@pytest.mark.usefixtures("every_export_is_large")
def test_what_was_searched_for_goes_with_the_file(auditor, monkeypatch):
    make_many(3, agent="bot")
    done, stopped, failed = (ask(auditor, query="q=lena%40example.com") for _ in range(3))
    run(done)
    stopped.refresh_from_db()
    auditor.post(f"/audit/exports/{stopped.pk}/stop/")
    AuditJob.objects.filter(pk=failed.pk).update(state="failed", ended_at=clock.now(), problem="No.")
    assert "lena" in text_of(auditor.get(f"/audit/exports/{failed.pk}/"))
    AuditJob.objects.filter(pk=done.pk).update(expires_at=clock.now())
    monkeypatch.setattr(audit_jobs, "KEPT_FOR", timedelta(0))
    audit_jobs.run_due_jobs()
    for job in (done, stopped, failed):
        job.refresh_from_db()
        assert (job.query, job.closing) == ("", ""), job.state
        page = text_of(auditor.get(f"/audit/exports/{job.pk}/"))
        assert "lena" not in page
        assert "All events" not in page
    assert "All events" not in text_of(auditor.get("/audit/exports/"))


def erase_words(*words):
    found = find_erasable(Filters(words=words))
    return erase(Filters(words=words), fingerprint=found.fingerprint, reason="asked for", actor=SYSTEM)


@pytest.mark.usefixtures("every_export_is_large")
def test_an_erasure_throws_away_every_file_that_was_begun_before_it_and_says_why(auditor):
    make_many(3, agent="bot")
    make_event(agent="bot", data={"to": "lena@example.com"})
    done, running, waiting, later = (ask(auditor) for _ in range(4))
    run_one(done)
    assert b"lena@example.com" in file_of(auditor, done)
    running_worker = audit_jobs._claim("export")
    assert running_worker.pk == running.pk
    assert audit_jobs._begin(running_worker)
    AuditJob.objects.filter(pk=waiting.pk).update(beat_at=clock.now())
    assert erase_words("nobody@example.com").copies == 0
    assert AuditJobPart.objects.exists()
    assert erase_words("lena@example.com").copies == 3
    assert AuditJobPart.objects.count() == 0
    assert not audit_jobs._export_slice(running_worker)
    for job in (done, running, waiting):
        job.refresh_from_db()
        assert (job.state, job.query, job.closing) == ("expired", "", "")
        assert auditor.get(f"/audit/exports/{job.pk}/file/").status_code == 404
        assert "Events were erased from the log after this export began" in text_of(
            auditor.get(f"/audit/exports/{job.pk}/")
        )
    assert b"lena@example.com" not in file_of(auditor, run(later))


@pytest.mark.usefixtures("every_export_is_large")
def test_no_export_is_taken_up_while_an_erasure_is_under_way(auditor):
    make_many(3, agent="bot")
    job = ask(auditor)
    with transaction.atomic(using="owner"):
        assert audit_jobs._drop_files() == 0
        assert audit_jobs.run_due_jobs() == 0
    assert run(job).state == "done"


@pytest.mark.usefixtures("every_export_is_large")
def test_a_disposal_throws_files_away_too(auditor):
    make_many(3, agent="bot")
    run(ask(auditor))
    set_rule(Rule("*", 0, 1), reason="x", actor=SYSTEM)
    dry = find_due()
    assert (dry.count, dispose(dry.fingerprint, actor=SYSTEM)) == (0, (0, 0))
    assert AuditJobPart.objects.exists()
    with connections["owner"].cursor() as owner:
        owner.execute("SELECT audit_make_partition(now() - interval '9 days')")
        owner.execute(
            "INSERT INTO audit_event (id, at, kind, actor_type, actor_id, leaf) SELECT audit_new_id(at), at,"
            " 'plan.viewed', 'person', '7', 'x' FROM (SELECT now() - interval '9 days' AS at) AS old RETURNING id, at"
        )
        ((pk, at),) = owner.fetchall()
        owner.execute("INSERT INTO audit_payload VALUES (%s, sha256('x'), '{}')", [pk])
        owner.execute("INSERT INTO audit_pending VALUES (%s, %s)", [at, pk])
    assert dispose(find_due().fingerprint, actor=SYSTEM) == (1, 1)
    assert AuditJobPart.objects.count() == 0


@pytest.mark.usefixtures("every_export_is_large")
def test_a_stopped_export_is_not_taken_up_again(auditor):
    make_many(3, agent="bot")
    job = ask(auditor)
    auditor.post(f"/audit/exports/{job.pk}/stop/")
    assert audit_jobs.run_due_jobs() == 0
    assert told("audit.exported") == []


@pytest.mark.parametrize(
    ("form", "query"), [("xml", ""), ("csv", "colour=red"), ("csv", "kind=x"), ("csv", "from=2026-02-01&to=2026-01-01")]
)
def test_l130_what_cannot_be_exported_is_said_and_is_no_empty_file(auditor, form, query):
    response = auditor.post("/audit/export/", {"form": form, "query": query})
    assert response.status_code == 422
    assert "There is a problem" in text_of(response)
    assert (AuditJob.objects.count(), told("audit.exported")) == (0, [])


@pytest.mark.usefixtures("every_export_is_large")
def test_a_person_has_five_exports_under_way_at_most(auditor):
    for _ in range(5):
        ask(auditor)
    response = auditor.post("/audit/export/", {"form": "csv", "query": ""})
    assert response.status_code == 422
    assert "Five of your exports" in text_of(response)


@pytest.mark.usefixtures("every_export_is_large")
def test_a_search_that_is_too_long_to_be_kept_is_refused_and_not_cut(auditor):
    query = "&".join(f"{name}={'%C3%A4' * 500}" for name in ("agent", "target"))
    response = auditor.post("/audit/export/", {"form": "csv", "query": query})
    assert response.status_code == 422
    assert "too long" in text_of(response)


def test_l117_more_events_than_are_streamed_at_once_are_made_by_a_worker_and_all_of_them(auditor, monkeypatch):
    monkeypatch.setattr(audit_export, "SMALL", 10)
    make_many(11, agent="bot")
    job = run(ask(auditor))
    assert len(file_of(auditor, job).splitlines()) == 12


def test_an_export_by_get_is_refused(auditor):
    assert auditor.get("/audit/export/").status_code == 405


@pytest.mark.slow
@pytest.mark.usefixtures("every_export_is_large")
def test_the_worker_is_woken_by_the_clock(auditor, celery_worker):
    make_many(3, agent="bot")
    job = ask(auditor)
    app.send_task("reviewer.run_audit_jobs")
    deadline = time.monotonic() + 30
    while job.state != "done" and time.monotonic() < deadline:
        time.sleep(0.1)
        job.refresh_from_db()
    assert len(file_of(auditor, job).splitlines()) == 4


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_worker_that_begins_late_does_not_begin_again_what_another_goes_on_with(auditor, monkeypatch):
    make_many(30, agent="bot")
    job = ask(auditor)
    late = audit_jobs._claim("export")
    assert late is not None
    began, first = audit_jobs.begin_export, []

    def be_overtaken(*arguments, **options):
        export = began(*arguments, **options)
        if not first:
            first.append(job.pk)
            AuditJob.objects.update(beat_at=clock.now() - audit_jobs.LOST_AFTER - timedelta(seconds=1))
            other = audit_jobs._claim("export")
            audit_jobs._begin(other)
            assert audit_jobs._export_slice(other)
        return export

    monkeypatch.setattr(audit_jobs, "begin_export", be_overtaken)
    audit_jobs._run_export(late)
    AuditJob.objects.filter(state="running").update(state="waiting")
    job = run(job)
    assert job.state == "done"
    numbers = [json.loads(line)["data"]["n"] for line in file_of(auditor, job).splitlines()[:-1]]
    assert numbers == list(range(30))


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_failed_export_leaves_no_pieces_behind(auditor):
    make_many(30, agent="bot")
    job = ask(auditor)
    held = audit_jobs._claim("export")
    audit_jobs._begin(held)
    assert audit_jobs._export_slice(held)
    AuditJob.objects.update(state="waiting", attempts=audit_jobs.ATTEMPTS)
    assert run(job).state == "failed"
    assert AuditJobPart.objects.count() == 0


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_a_stopped_export_stays_stopped_whatever_its_worker_meets(auditor, monkeypatch):
    make_many(30, agent="bot")
    job = ask(auditor)

    def stop_and_fail(held):
        audit_jobs.stop_job(held)
        raise RuntimeError("the log is damaged")

    monkeypatch.setattr(audit_jobs, "_export_slice", stop_and_fail)
    assert run(job).state == "expired"


@pytest.mark.usefixtures("every_export_is_large", "slices_of_ten")
def test_more_events_than_were_counted_are_a_failure_and_no_file(auditor):
    make_many(30, agent="bot")
    job = ask(auditor)
    held = audit_jobs._claim("export")
    audit_jobs._begin(held)
    AuditJob.objects.update(total=29, state="waiting")
    assert run(job).state == "failed"
    assert "verify the log" in job.problem


@pytest.mark.usefixtures("every_export_is_large")
def test_a_person_has_twenty_files_kept_at_most(auditor, person):
    AuditJob.objects.bulk_create(AuditJob(person=person, kind="export", state="done") for _ in range(20))
    page = auditor.post("/audit/export/", {"form": "csv", "query": ""})
    assert page.status_code == 422
    assert "Throw one away first" in text_of(page)
    auditor.post(f"/audit/exports/{AuditJob.objects.first().pk}/stop/")
    ask(auditor)
