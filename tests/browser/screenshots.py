"""Pictures of every page and state, light and dark, wide and narrow: `make screenshots`, then look at them.

Not part of the tests: pytest runs it when it is named. The pictures go to the folder in SCREENSHOTS.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from audit.models import Event
from audit.recording import SYSTEM
from plans import registry
from plans.demo import story, tour
from plans.seen import note_seen
from plans.states import AbandonReason, State
from reviewer import presence
from reviewer.streams.changing import create_stream
from reviewer.streams.models import Stream
from tests.makers import make_agent, make_person, make_plan, make_target, policy_of
from tests.plans.demo.test_story import passwords
from tests.reviewer.pages import approval, client_of, url_of
from tests.stub_behaviour import Delay, conflict
from tests.time_passing import pass_time_to_expiry

__all__ = ["passwords"]  # a fixture: a fresh demonstration

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.timeout(900)]

FOLDER = Path(os.environ.get("SCREENSHOTS", ".screenshots"))
THEMES = ("light", "dark")
WIDTHS = (1280, 390)
Shoot = Callable[..., None]

REFUND = [
    {"op": "update", "target": "order/48213", "field": "status", "from": "delivered", "to": "refunded"},
    {"op": "update", "target": "order/48213", "field": "refunded_total", "from": 0.00, "to": 129.90},
    {
        "op": "create",
        "target": "refund/ch_5RkT",
        "to": {"amount": 129.90, "to": "card ending 4417", "reason": "returned"},
        "reversible": False,
    },
    {"op": "update", "target": "stock/LAMP-220", "field": "on_hand", "from": 14, "to": 16},
]
HARD = [
    {"op": "delete", "target": "key/ledger-sync-2019", "from": {"scope": "read"}, "reversible": False},
    {
        "op": "update",
        "target": "config/ledger",
        "field": "note",
        "from": "Keys rotate every ninety days, and old keys keep working for a week after that.",
        "to": "Keys rotate every thirty days, and old keys stop working at once after that.",
    },
    {
        "op": "update",
        "target": "config/ledger",
        "field": "url",
        "from": "https://a.example",
        "to": "https://a.ex\u202ea",
    },
    {
        "op": "update",
        "target": "config/ledger",
        "field": "ips",
        "from": ["10.2.0.0/16"],
        "to": {"a": [1, None, "x" * 90]},
    },
    {"op": "update", "target": "config/ledger", "field": "empty", "from": None, "to": ""},
    {"op": "update", "target": "config/ledger", "field": "count", "from": "1", "to": 1},
    {"op": "send", "target": "mailbox/77", "to": "p\u0430ypal \u200b"},
]

STREAMS = {
    "archive": {"next_index": 20},
    "siem": {"failures": 3, "last_error": "The destination answered 503."},
    "warehouse": {"is_paused": True},
}


@pytest.fixture
def shoot(desk: Any) -> Shoot:
    """`shoot("plan", "/address/", before=...)`: the page in both themes and widths; `before` acts on each first."""

    def take(name: str, path: str, before: Callable[[Any], None] | None = None) -> None:
        FOLDER.mkdir(exist_ok=True)
        for theme in THEMES:
            for width in WIDTHS:
                desk.emulate_media(color_scheme=theme)
                desk.set_viewport_size({"width": width, "height": 900})
                desk.goto(path)
                desk.wait_for_timeout(500)
                if before is not None:
                    before(desk)
                height = desk.evaluate("document.documentElement.scrollHeight")
                desk.set_viewport_size({"width": width, "height": min(max(height, 720), 4000)})
                desk.screenshot(path=FOLDER / f"{name}-{theme}-{width}.png")

    return take


def change(person: Any, **fields: Any) -> None:
    """Past the object, whose password is older than the one that the person signed in with."""
    type(person).objects.filter(pk=person.pk).update(**fields)


def pressed(page: Any) -> None:
    page.wait_for_timeout(400)
    if page.query_selector("#fact"):
        page.fill("#fact", "129.9")
    page.click("#approve")
    page.wait_for_selector("#outcome")


def test_lists(shoot: Shoot, reviewer: Any) -> None:
    change(reviewer, is_admin=True, time_zone="Europe/Berlin")
    target = make_target("orders-db")
    shoot("inbox-empty", "/")
    made = make_agent(target, name="support-refunds")
    tom = make_person("reviewer", name="Tom Okafor")
    first = make_plan(target=target, made=made, plan={"actions": REFUND}, intent="r1", lifetime=timedelta(minutes=4))
    make_plan(target=target, made=make_agent(target, name="key-janitor"), plan={"actions": HARD}, intent="k",
              lifetime=timedelta(seconds=100))  # fmt: skip
    make_plan(target=target, made=make_agent(target, name="billing-ops"), lifetime=timedelta(minutes=20))
    make_plan(target=target, made=make_agent(target, owner=reviewer), lifetime=timedelta(hours=2))
    make_plan("unknown")
    for state in ("committed", "rejected", "conflicted", "refused"):
        make_plan(state, target=target)
    for _ in range(3):
        client = client_of(tom)
        plan = make_plan(target=target)
        client.get(url_of(plan))
        client.post(url_of(plan, "reject"), approval(plan, reason="Wrong account"))
    presence.note(plan_pk=first.pk, person_pk=tom.pk)
    shoot("inbox", "/")

    def arrivals(page: Any) -> None:
        make_plan(target=target)
        page.evaluate("document.body.dispatchEvent(new CustomEvent('visible-again'))")
        page.wait_for_selector("#fresh a")

    shoot("inbox-new", "/", arrivals)
    shoot("inbox-search", "/?agent=support-refunds")
    shoot("inbox-unknown", "/?show=unknown")
    shoot("inbox-keys", "/", lambda page: page.evaluate("document.querySelector('#keys').showModal()"))
    shoot("inbox-offline", "/", lambda page: page.evaluate("dispatchEvent(new Event('offline'))"))
    shoot("history", "/history/")
    shoot("history-filtered", "/history/?state=rejected&since=2020-01-01")
    shoot("history-problem", "/history/?state=x&since=2026-02-02&until=2026-01-01")
    first.agent.refresh_from_db()
    note_seen(first.agent)
    shoot("agents", "/agents/")
    shoot("agent", "/agents/support-refunds/")
    shoot("agent-secrets", "/agents/key-janitor/", lambda page: page.click("text=Make a new key and new secrets"))
    shoot("agents-new", "/agents/", lambda page: page.click("summary:has-text('Add an agent')"))
    shoot("targets", "/targets/")
    shoot("target", "/targets/orders-db/")
    shoot("target-tested", "/targets/orders-db/", lambda page: page.click("button:has-text('Test')"))
    shoot("callbacks", "/callbacks/")
    shoot("streams-none", "/streams/")
    for name, facts in STREAMS.items():
        create_stream(name=name, url=f"https://{name}.example/plandesk/events", by=SYSTEM)
        Stream.objects.filter(name=name).update(**facts)
    shoot("streams", "/streams/")
    shoot("stream", "/streams/siem/")
    shoot("streams-new", "/streams/", lambda page: page.click("summary:has-text('Add a destination')"))
    shoot("people", "/people/")
    shoot("person", f"/people/{tom.pk}/")
    shoot("settings", "/settings/")
    shoot("notifications", "/settings/notifications/")
    shoot("not-found", "/nowhere/")
    change(reviewer, is_admin=False)
    shoot("forbidden", "/agents/")


def test_policies(shoot: Shoot, reviewer: Any) -> None:
    change(reviewer, is_admin=True)
    target = make_target("orders-db")
    made = make_agent(target, name="support-refunds")
    shoot("policy-no-plans", "/targets/orders-db/")
    for _ in range(5):
        make_plan(target=target, made=made)
    make_plan(target=target, made=made, plan={"actions": REFUND}, intent="r1")
    policy_of(target, approvals=2)
    make_plan(target=target, made=made)

    def other_rule(page: Any) -> None:
        page.fill("#policy-approvals", "3")
        page.check("#policy-is_guarded")
        page.wait_for_selector("#policy-panel >> text=(3 people, a typed fact always)")

    def wrong_rule(page: Any) -> None:
        page.fill("#policy-approvals", "few")
        page.wait_for_selector("#policy-panel >> text=until the form is right")

    shoot("policy", "/targets/orders-db/")
    shoot("policy-other", "/targets/orders-db/", other_rule)
    shoot("policy-wrong", "/targets/orders-db/", wrong_rule)


def test_pending_plans(shoot: Shoot, reviewer: Any, stub_target: Any) -> None:
    change(reviewer, time_zone="Europe/Berlin")
    target = make_target("orders-db", base_url=stub_target.base_url)
    made = make_agent(target, name="support-refunds")
    said = (
        "Customer sent both lamps back, the parcel was scanned in Leipzig. Refund without shipping, as in ticket 9921."
    )
    seen = [{"tool": "shipping.lookup", "note": "delivered back", "url": "https://carrier.example/track/77"}]
    first = make_plan(target=target, made=made, plan={"actions": REFUND}, intent="r1")
    second = make_plan(
        target=target, made=made, plan={"actions": REFUND[1:]}, intent="r2", replaces=first.plan_id, summary=said,
        evidence=seen,
    )  # fmt: skip
    make_plan(target=target, made=make_agent(target, name="order-bot"), plan={"actions": REFUND[:1]})
    make_plan(target=target, made=made, plan={"actions": REFUND[1:2]})
    presence.note(plan_pk=second.pk, person_pk=make_person("reviewer", name="Tom Okafor").pk)
    shoot("plan", url_of(second))
    shoot("plan-hard", url_of(make_plan(target=target, made=made, plan={"actions": HARD}, intent="h")))
    shoot("plan-simple", url_of(make_plan(target=target, made=made)))
    shoot("plan-two-people", url_of(make_plan(target=make_target(approvals=2))))
    shoot("plan-not-yours", url_of(make_plan(made=make_agent(target, owner=reviewer), target=target)))
    shoot("plan-reject", url_of(second), lambda page: page.click("summary:has-text('Reject')"))
    simple = make_plan(target=target, made=made)
    registry.disable_target(name=make_target().name)

    def rejected_meanwhile(page: Any) -> None:
        plan = make_plan(target=target, made=made)
        page.goto(url_of(plan))
        client_of(make_person("reviewer", name="Tom Okafor")).post(
            url_of(plan, "reject"), approval(plan, reason="Wrong customer")
        )
        page.wait_for_selector("#news >> text=out of date")

    shoot("plan-out-of-date", url_of(simple), rejected_meanwhile)


def test_outcomes(shoot: Shoot, reviewer: Any, stub_target: Any, owner_connection: Any) -> None:
    for state in State:
        shoot(f"plan-{state.value}", url_of(make_plan(state, plan={"actions": REFUND}, intent=f"s-{state.value}")))
    for reason in AbandonReason:
        shoot(f"plan-abandoned-{reason.value}", url_of(make_plan("abandoned", reason=reason)))
    stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
    target = make_target(base_url=stub_target.base_url)

    def approve_new(page: Any) -> None:
        stub_target.script(conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}))
        page.goto(url_of(make_plan(target=target)))
        page.wait_for_timeout(800)
        pressed(page)

    shoot("plan-answered-conflict", "/", approve_new)

    def writing(page: Any) -> None:
        stub_target.script(Delay(2, conflict({"target": "ledger/ACC-104", "field": "limit"})))
        page.goto(url_of(make_plan(target=target)))
        page.wait_for_timeout(800)
        page.click("#approve")
        page.wait_for_selector("#approve:has-text('Writing')")

    shoot("plan-writing", "/", writing)

    def nothing_sent(page: Any) -> None:
        page.goto(url_of(make_plan(target=make_target())))
        page.wait_for_timeout(800)
        pressed(page)

    shoot("plan-nothing-sent", "/", nothing_sent)

    def wrong_fact(page: Any) -> None:
        page.goto(url_of(make_plan(target=target, plan={"actions": REFUND}, intent="w")))
        page.wait_for_timeout(800)
        page.fill("#fact", "12")
        page.click("#approve")
        page.wait_for_selector("#fact-e")

    shoot("plan-wrong-fact", "/", wrong_fact)
    plan = make_plan("unknown", plan={"actions": REFUND}, intent="settle")
    pass_time_to_expiry(owner_connection, plan, 120)
    shoot("plan-settle", url_of(plan))


def test_the_demonstration(shoot: Shoot, reviewer: Any, passwords: dict[str, str]) -> None:
    shoot("demonstration-before", "/demo/")
    tour.start()
    first = story.get_story().first
    assert first is not None
    shoot("plan-in-time", url_of(first))  # the wide, light one is docs/images/plan.png
    tour.refund_by_somebody_else()
    shoot("plan-moved", url_of(first))
    client = client_of(type(reviewer).objects.get(pk=reviewer.pk))
    assert client.post(url_of(first, "approve"), approval(first, fact="48000")).status_code == 409
    tour.replan()
    second = story.get_story().second
    assert second is not None
    shoot("plan-replanned", url_of(second))
    assert client.post(url_of(second, "approve"), approval(second, fact="28000")).status_code == 200
    tour.end()
    shoot("demonstration", "/demo/")


def test_the_log(shoot: Shoot, reviewer: Any) -> None:
    change(reviewer, time_zone="Europe/Berlin")
    target = make_target("orders-db")
    for state in State:
        plan = make_plan(state, target=target, plan={"actions": REFUND}, intent=f"s-{state.value}")
    shoot("audit", "/audit/")
    for name in ("charts", "verify", "exports", "saved"):
        shoot(f"audit-{name}", f"/audit/{name}/")
    event = Event.objects.filter(plan_id=plan.plan_id).order_by("-at").first()
    assert event is not None
    shoot("audit-event", reverse("audit-event", args=[event.pk]))
    shoot("audit-story", reverse("audit-story", args=[plan.agent.name, target.name, plan.plan_id]))


def test_the_way_in(page: Any) -> None:
    FOLDER.mkdir(exist_ok=True)
    for theme in THEMES:
        for width in WIDTHS:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 720})
            page.goto("/login/")
            page.screenshot(path=FOLDER / f"login-{theme}-{width}.png")
            page.fill("input[name=login]", "nobody@example.com")
            page.fill("input[name=password]", "not the password")
            page.click("form button[type=submit]")
            page.wait_for_selector("text=There is a problem")
            page.screenshot(path=FOLDER / f"login-problem-{theme}-{width}.png")
