"""The auditors' pages in a browser: search, brush, a story, a proof that somebody else's program verifies, axe."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from audit.models import Event
from plans.viewing import record_view
from reviewer import audit_jobs
from reviewer.models import AuditJob
from tests.audit.auditing import told
from tests.audit.independent import independent
from tests.audit.making import make_events_at
from tests.audit.sequencing import sequence
from tests.browser.test_looks import wrong_with
from tests.hosted_plans import plan_refund
from tests.makers import make_person, make_plan

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]

ROWS = "#audit-rows > tr:not(.det)"


@pytest.fixture
def written(tmp_path):
    """A plan that was opened, approved and written, in a signed log."""
    hosted, person = plan_refund(), make_person("reviewer", name="Mara")
    record_view(plan_pk=hosted.plan.pk, person=person)
    hosted.approve(person)
    sequence(tmp_path)
    return hosted.plan


def verify_elsewhere(proof: Path, leaf: Path, key: Path) -> int:
    """The size of the log under which somebody else's program found the leaf; raises where it does not."""
    signing, tiles, tlog = (independent(f"tlog_scales.{name}") for name in ("signing", "tiles", "tlog"))
    head, _, note = proof.read_text().partition("\n\n")
    checkpoint = tlog.Checkpoint.from_text(note)
    checkpoint.verify(signing.Vkey.from_string(key.read_text().strip()))
    _, index, *path = head.split("\n")
    inclusion = tlog.InclusionProof(int(index.split()[1]), checkpoint.size, [base64.b64decode(line) for line in path])
    inclusion.check(tiles.leaf_hash(leaf.read_bytes()), checkpoint.root_hash)
    return int(checkpoint.size)


def download(page, selector, folder):
    with page.expect_download() as waited:
        page.click(selector)
    path = folder / waited.value.suggested_filename
    waited.value.save_as(path)
    return path


def query_of(page):
    return parse_qs(urlsplit(page.url).query)


def test_an_auditor_searches_brushes_opens_a_story_and_verifies_a_proof_elsewhere(
    desk, written, owner_connection, tmp_path
):
    long_ago = datetime.now(UTC) - timedelta(hours=30)
    make_events_at(owner_connection, long_ago, 40, step=timedelta(minutes=10), agent="old-bot")
    desk.goto("/audit/")
    desk.fill("#q", f"target:{written.target.name}")
    with desk.expect_navigation():
        desk.press("#q", "Enter")
    assert query_of(desk) == {"target": [written.target.name]}
    found = {row.split("\n")[0] for row in desk.locator(f"{ROWS} td.ev").all_inner_texts()}
    assert found == set(Event.objects.filter(target=written.target.name).values_list("kind", flat=True))
    assert "old-bot" not in desk.inner_text("#audit-rows")
    desk.goto("/audit/")
    before = desk.locator(ROWS).count()

    box = desk.locator("svg[data-brush]").bounding_box()
    middle = box["y"] + box["height"] / 2
    with desk.expect_navigation():
        desk.mouse.move(box["x"] + box["width"] - 4, middle)
        desk.mouse.down()
        desk.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=6)
        desk.mouse.up()
    assert query_of(desk).keys() == {"from", "to"}
    assert desk.locator(ROWS).count() < before
    assert "old-bot" not in desk.inner_text("main")

    with desk.expect_navigation():
        desk.locator(ROWS).filter(has_text="commit.succeeded").locator("td.plan-id a").click()
    story = desk.inner_text("main")
    for words in ("Received", "Opened", "Approved", "Write started", "Ended", "Mara"):
        assert words in story

    with desk.expect_navigation():
        desk.locator(ROWS.replace("#audit-rows", "tbody")).filter(has_text="commit.succeeded").locator(
            "td.ev a"
        ).click()
    proof = download(desk, "a:has-text('Proof (.tlog-proof)')", tmp_path)
    leaf = download(desk, "a:has-text('Leaf, the bytes')", tmp_path)
    key = download(desk, "a:has-text('Verifier key')", tmp_path)
    event = Event.objects.get(kind="commit.succeeded", plan_id=written.plan_id)
    assert proof.name == f"{event.id}.tlog-proof"
    assert leaf.read_bytes() == bytes(event.leaf)
    assert verify_elsewhere(proof, leaf, key) >= 4
    leaf.write_bytes(leaf.read_bytes().replace(b"committed", b"conflicted").replace(b"succeeded", b"conflicted"))
    with pytest.raises(independent("tlog_scales.tlog").InclusionProofInvalid):
        verify_elsewhere(proof, leaf, key)
    assert len([data for data in told("audit.read") if "filters" in data]) == 4


def test_the_histogram_is_brushed_by_the_keyboard_alone(desk, written):
    desk.goto("/audit/?last=1h")
    bars = desk.locator("svg[data-brush] a")
    last = bars.last
    last.focus()
    assert bars.evaluate_all("bars => bars.filter(bar => bar.tabIndex === 0).length") == 1
    until = last.get_attribute("data-to")
    since = bars.nth(bars.count() - 3).get_attribute("data-from")
    for _ in range(2):
        desk.keyboard.press("Shift+ArrowLeft")
    assert desk.locator("svg[data-brush] a.brushed").count() == 3
    with desk.expect_navigation():
        desk.keyboard.press("Enter")
    assert query_of(desk) == {"from": [since], "to": [until]}


def test_a_row_opens_to_its_record_and_older_events_are_added_beneath(desk, owner_connection):
    make_events_at(owner_connection, datetime.now(UTC) - timedelta(hours=1), 70, step=timedelta(seconds=1), agent="bot")
    desk.goto("/audit/?agent=bot")
    detail = desk.locator("tr.det").first
    assert not detail.is_visible()
    desk.locator(".opener summary").first.click()
    assert detail.is_visible()
    assert '"kind": "plan.viewed",' in detail.inner_text()
    desk.click("text=Load older")
    desk.locator("text=Load older").wait_for(state="detached")
    assert desk.locator(ROWS).count() == 70
    assert desk.locator("svg[data-brush]").count() == 1
    assert len([data for data in told("audit.read") if "filters" in data]) == 1


def test_everything_works_without_scripts(chromium, site, reviewer, sign_in, written):
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, reviewer)
    page.goto("/audit/?last=1h")
    page.locator("svg[data-brush] a").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**from=**")
    page.locator(".opener summary").first.click()
    assert page.locator("tr.det").first.is_visible()
    page.click("text=Questions asked again and again")
    page.click("text=Who may decide, and since when")
    assert "Reviewers, as the log tells it" in page.inner_text("main")
    page.fill("#saved-name", "Deciders")
    page.click("button:has-text('Save')")
    assert "Deciders" in page.inner_text("main")
    context.close()


def test_a_large_export_is_followed_by_its_progress_bar_to_its_download(desk, reviewer, written, tmp_path):
    job = audit_jobs.ask_export(person=reviewer, form="jsonl", query="")
    desk.goto(f"/audit/exports/{job.pk}/")
    assert desk.locator("progress").is_visible()
    AuditJob.objects.filter(pk=job.pk).update(done=2, total=8)
    desk.wait_for_selector("progress[value='2']")
    assert "2 of 8 events" in desk.inner_text("#job")
    AuditJob.objects.filter(pk=job.pk).update(done=0, total=0)
    audit_jobs.run_due_jobs()
    desk.wait_for_selector("#job[data-state='done']")
    lines = download(desk, "a:has-text('Download')", tmp_path).read_bytes().splitlines()
    job.refresh_from_db()
    assert len(lines) == job.total + 1


def test_verify_is_pressed_and_its_result_read(desk, written):
    desk.goto("/audit/verify/")
    with desk.expect_navigation():
        desk.click("text=Verify all events")
    assert "Whole: nothing is damaged" in desk.inner_text("#report")


def pages(plan, reviewer):
    event = Event.objects.filter(kind="commit.succeeded").get()
    waiting = audit_jobs.ask_export(person=reviewer, form="jsonl", query="agent=bot")
    report = audit_jobs.verify_now(person=reviewer)
    return [
        "/audit/", "/audit/?preset=unknown-outcomes", "/audit/?preset=deciders&last=24h", "/audit/?kind=login.failed",
        "/audit/?colour=red", f"/audit/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/",
        f"/audit/events/{event.id}/", "/audit/saved/", "/audit/exports/", f"/audit/exports/{waiting.pk}/",
        "/audit/verify/", f"/audit/verify/{report.pk}/", "/audit/charts/", "/audit/charts/?days=1",
    ]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_clean_and_does_not_scroll_sideways(desk, axe, theme, written, reviewer):
    for state in ("unknown", "conflicted", "rejected"):
        make_plan(state)
    desk.goto("/audit/")
    desk.fill("#saved-name", "All of it")
    desk.click("button:has-text('Save')")
    assert wrong_with(desk, axe, theme, pages(written, reviewer)) == []


def test_an_opened_record_and_an_opened_table_are_clean(desk, axe, written):
    desk.goto("/audit/")
    desk.locator(".opener summary").nth(1).click()
    assert axe(desk) == []
    desk.goto("/audit/charts/")
    for summary in desk.locator("details.numbers summary").all():
        summary.click()
    assert axe(desk) == []
