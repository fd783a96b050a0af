"""The story of invoice 4412, over real HTTP: the agent by its SDK, the people by their pages."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.models import Event
from plans.agent import Committed, Plan
from plans.demo import story, tour
from plans.demo.credentials import demo_folder
from plans.demo.models import Invoice, Refund
from plans.models import Plan as Row
from tests.fixtures import Site
from tests.plans.demo.visitor import Visitor

pytestmark = pytest.mark.slow

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def passwords(manage: Manage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A fresh demonstration with its own folder; what people sign in with."""
    monkeypatch.setenv("PLANDESK_DATA", str(tmp_path))
    done = manage("demo_seed", "--json", "--remote-url", "http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert demo_folder() == tmp_path / "demo"
    return {person["email"]: person["password"] for person in json.loads(done.stdout)["people"]}


def path_of(plan: Plan | Row) -> str:
    row = Row.objects.select_related("agent", "target").get(plan_id=plan.plan_id)
    return story.plan_path(row)


def changes_of(plan: Plan) -> list[tuple[str, str, Any, Any]]:
    changes = Row.objects.get(plan_id=plan.plan_id).conflict.changes.order_by("position")
    return [(one.target, one.field, json.loads(one.planned or ""), json.loads(one.current or "")) for one in changes]


def kinds_of(plan: Plan) -> list[str]:
    return list(Event.objects.filter(plan_id=plan.plan_id).order_by("plan_seq").values_list("kind", flat=True))


def test_the_story_of_4412_end_to_end(site: Site, passwords: dict[str, str]) -> None:
    mara = Visitor(site.url)
    mara.sign_in("mara@plandesk.example", passwords["mara@plandesk.example"])

    first = tour.start()
    assert [(one["target"], one.get("field"), one.get("from"), one["to"]) for one in first.actions][:2] == [
        ("invoice/4412", "refunded_cents", 0, 48_000),
        ("invoice/4412", "status", "open", "refunded"),
    ]
    assert first.needs_approval
    tour.refund_by_somebody_else()

    assert mara.get(path_of(first)) == 200
    assert mara.state == "pending"
    assert mara.press("approve", fact="48000") == 409
    assert mara.state == "conflicted"
    assert changes_of(first) == [("invoice/4412", "refunded_cents", 0, 20_000)]
    assert Invoice.objects.get(pk="4412").refunded_cents == 20_000

    second = tour.replan()
    assert (second.replaces, second.inputs["amount_cents"]) == (first.plan_id, 28_000)
    assert mara.get(path_of(second)) == 200
    assert first.plan_id in mara.page
    assert "28000" in mara.page
    assert mara.press("approve", fact="28000") == 200
    assert mara.state == "committed"

    again = tour.retry()
    assert again == Committed(second.plan_id, again.result, replayed=True)
    assert again.result == {
        "refund_id": "4412-48000", "invoice_id": "4412", "amount_cents": 28_000, "status": "refunded",
        "refunded_cents": 48_000,
    }  # fmt: skip
    tour.end()
    told = story.get_story()
    assert told.has_ended
    assert told.in_flight == 0

    made = Refund.objects.filter(invoice_id="4412").order_by("amount_cents")
    assert [(one.amount_cents, one.made_by) for one in made] == [(20_000, story.SOMEBODY_ELSE), (28_000, "plandesk")]
    ends = ("commit.succeeded", "commit.conflicted", "plan.abandoned")
    assert [kind for kind in kinds_of(first) if kind in ends] == ["commit.conflicted"]
    assert [kind for kind in kinds_of(second) if kind in ends] == ["commit.succeeded"]


def test_the_story_can_be_told_again_and_an_unfinished_telling_is_abandoned(
    site: Site, passwords: dict[str, str]
) -> None:
    assert site.url
    assert passwords
    first = tour.start()
    tour.refund_by_somebody_else()
    second = tour.start()
    assert second.plan_id != first.plan_id
    assert Row.objects.get(plan_id=first.plan_id).abandonment.reason == "task_ended"
    assert not Refund.objects.filter(invoice_id="4412").exists()
    with pytest.raises(tour.CannotPlay):
        tour.replan()
    with pytest.raises(tour.CannotPlay):
        tour.retry()


def test_the_page_plays_the_whole_story_without_scripts(
    make_site: Callable[..., Site], passwords: dict[str, str], tmp_path: Path
) -> None:
    site = make_site(PLANDESK_DATA=str(tmp_path), DEMO="1")
    mara = Visitor(site.url)
    assert mara.get("/demo/") == 302
    mara.sign_in("mara@plandesk.example", passwords["mara@plandesk.example"])

    def done() -> list[str]:
        assert mara.get("/demo/") == 200
        return re.findall(r'data-step="([a-z]+)" data-done="yes"', mara.page)

    assert done() == []
    assert mara.press("/demo/start") == 302
    assert done() == ["start"]
    (planned,) = Row.objects.all()
    assert f'<a href="{story.plan_path(planned)}">{planned.plan_id}</a>' in mara.page
    assert mara.press("/demo/interfere") == 302
    assert done() == ["start", "interfere"]
    first = Row.objects.get()
    assert mara.get(story.plan_path(first)) == 200
    assert mara.press("approve", fact="48000") == 409
    assert done() == ["start", "interfere", "conflict"]
    assert "planned 0, current 20000" in mara.page
    assert mara.press("/demo/replan") == 302
    assert done() == ["start", "interfere", "conflict", "replan"]
    second = Row.objects.exclude(pk=first.pk).get()
    assert mara.get(story.plan_path(second)) == 200
    assert mara.press("approve", fact="28000") == 200
    assert done() == ["start", "interfere", "conflict", "replan", "commit"]
    assert f'<a href="{story.plan_path(second)}">{second.plan_id}</a>' in mara.page
    assert "the stored result, nothing was written" not in mara.page
    assert mara.press("/demo/retry") == 302
    assert done()[-1] == "retry"
    assert mara.press("/demo/end") == 302
    assert done() == ["start", "interfere", "conflict", "replan", "commit", "retry", "end"]
    assert "the stored result, nothing was written" in mara.page


def test_the_page_is_for_reviewers_and_its_steps_need_their_token(
    make_site: Callable[..., Site], passwords: dict[str, str], tmp_path: Path
) -> None:
    site = make_site(PLANDESK_DATA=str(tmp_path), DEMO="1")
    ines, mara = Visitor(site.url), Visitor(site.url)
    ines.sign_in("ines@plandesk.example", passwords["ines@plandesk.example"])
    assert ines.get("/demo/") == 403
    assert ines.get("/history/") == 200
    assert "/demo/" not in ines.page
    mara.sign_in("mara@plandesk.example", passwords["mara@plandesk.example"])
    assert mara.ask("POST", "/demo/start", {}) == 403
    assert mara.get("/demo/start") == 405
    assert mara.get("/history/") == 200
    assert 'href="/demo/"' in mara.page
    mara.get("/demo/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', mara.page)
    assert token is not None
    assert mara.ask("POST", "/demo/replan", {"csrfmiddlewaretoken": token[1]}) == 409
    assert not Row.objects.exists()
