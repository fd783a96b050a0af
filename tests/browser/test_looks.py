"""Every page and state: nothing for axe to find in either theme, no sideways scroll at 320 px, lists that stay put."""

from datetime import timedelta

import pytest

from plans.states import AbandonReason, State
from reviewer import presence
from tests.browser.armed import until_armed
from tests.makers import make_agent, make_person, make_plan, make_target
from tests.reviewer.pages import approval, client_of, url_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("database")]

HARD = [
    {"op": "delete", "target": "key/" + "k" * 200, "from": {"scope": "read"}, "reversible": False},
    {"op": "update", "target": "config/ledger", "field": "text", "from": "Keys rotate " * 40, "to": "Keys turn " * 40},
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
    {"op": "create", "target": "refund/1", "to": {"amount": 1.5, "note": "", "by": None}},
    {"op": "send", "target": "mailbox/77", "to": "p\u0430ypal "},
]


LISTS = ["/", "/?show=unknown", "/history/", "/history/?q=none", "/history/?state=x", "/audit/", "/audit/?colour=1"]


def make_hard_plan():
    return make_plan(
        plan={"actions": HARD},
        intent="hard",
        summary="Because " * 100,
        evidence=[{"tool": "look.up", "note": "seen", "url": "https://carrier.example/" + "t" * 300}],
    )


def wrong_with(page, axe, theme, paths):
    """What axe finds on these pages, and which of them scroll sideways at 320 px."""
    page.emulate_media(color_scheme=theme)
    wrong = []
    for path in paths:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(path)
        wrong += [f"{theme} {path} {found}" for found in axe(page)]
        page.set_viewport_size({"width": 320, "height": 640})
        width = page.evaluate("document.documentElement.scrollWidth")
        wrong += [f"{path} is {width} px wide"] if width > 320 else []
    return wrong


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lists_are_clean_and_do_not_scroll_sideways(desk, axe, theme):
    make_hard_plan()
    make_plan("unknown")
    make_plan("rejected")
    assert wrong_with(desk, axe, theme, [*LISTS, "/settings/", "/nowhere/"]) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_state_is_clean_and_does_not_scroll_sideways(desk, axe, theme):
    plans = [make_hard_plan(), *map(make_plan, State)]
    assert wrong_with(desk, axe, theme, map(url_of, plans)) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_with_company_rivals_and_problems_are_clean(desk, axe, theme, reviewer):
    type(reviewer).objects.filter(pk=reviewer.pk).update(is_admin=True, time_zone="Europe/Berlin")
    target = make_target()
    made = make_agent(target)
    first = make_plan(target=target, made=made)
    plan = make_plan(target=target, made=made, replaces=first.plan_id)
    make_plan(target=target)
    make_plan(target=target, made=made)
    presence.note(plan_pk=plan.pk, person_pk=make_person("reviewer", name="Tom Okafor").pk)
    client_of().post(url_of(other := make_plan(target=target), "reject"), approval(other, reason="No"))
    paths = ["/", "/?agent=nobody", f"/?q={'x' * 600}", url_of(plan), "/history/?since=2026-02-02&until=2026-01-01",
             "/agents/", f"/agents/{made.agent.name}/", f"/targets/{target.name}/",
             "/settings/?saved=password"]  # fmt: skip
    assert wrong_with(desk, axe, theme, paths) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_answers_to_presses_are_clean(desk, axe, theme):
    desk.emulate_media(color_scheme=theme)
    final = make_plan(plan={"actions": HARD}, intent="hard")
    desk.goto(url_of(final))
    until_armed(desk)
    desk.fill("#fact", "not that")
    desk.click("#approve")
    desk.wait_for_selector("#outcome")
    assert axe(desk) == []
    desk.click("summary:has-text('Reject')")
    desk.eval_on_selector("#reason", "field => field.required = false")
    desk.click("#reject")
    desk.wait_for_selector("#reason-e")
    assert axe(desk) == []
    desk.keyboard.press("Escape")
    desk.evaluate("document.activeElement.blur()")
    desk.keyboard.press("?")
    desk.wait_for_selector("#keys[open]")
    assert axe(desk) == []
    desk.keyboard.press("Escape")
    desk.evaluate("dispatchEvent(new Event('offline'))")
    desk.wait_for_selector("#offline:not([hidden])")
    assert axe(desk) == []


def test_every_end_is_clean_and_does_not_scroll_sideways(desk, axe):
    plans = [make_plan(State.ABANDONED, reason=reason) for reason in AbandonReason]
    assert wrong_with(desk, axe, "light", map(url_of, plans)) == []


def test_axe_finds_nothing_on_the_way_in(page, axe):
    page.goto("/login/")
    assert axe(page) == []
    page.fill("input[name=login]", "nobody@example.com")
    page.fill("input[name=password]", "not the password")
    page.click("form button[type=submit]")
    page.wait_for_selector("text=There is a problem")
    assert axe(page) == []


def test_new_plans_are_announced_and_move_no_row(desk):
    target = make_target()
    made = make_agent(target)
    seen = make_plan(target=target, made=made, lifetime=timedelta(minutes=30))
    desk.goto("/")
    before = desk.locator(".plans > li").bounding_box()
    soon = make_plan(target=target, made=made, lifetime=timedelta(minutes=6))
    desk.evaluate("document.body.dispatchEvent(new CustomEvent('visible-again'))")
    desk.wait_for_selector("#fresh >> text=Show 1 new plan")
    assert desk.locator(".plans > li").count() == 1
    assert desk.locator(".plans > li").bounding_box() == before
    assert desk.title().startswith("(2) ")
    client_of().post(url_of(seen, "reject"), approval(seen, reason="No"))
    desk.evaluate("document.body.dispatchEvent(new CustomEvent('visible-again'))")
    desk.wait_for_selector(f"#flags-{seen.pk} >> text=Rejected")
    desk.click("#fresh a")
    desk.wait_for_selector(f"text={soon.plan_id}")


def test_a_row_that_expires_goes_grey_in_place(desk):
    make_plan(lifetime=timedelta(seconds=4))
    desk.goto("/")
    desk.wait_for_selector(".plans > li.gone")
    assert desk.inner_text(".plans > li .left b") == "Expired"


def test_at_phone_width_the_decision_stands_after_the_last_change(desk):
    plan = make_plan()
    desk.set_viewport_size({"width": 390, "height": 844})
    desk.goto(url_of(plan))
    change, decision = desk.locator(".act").last.bounding_box(), desk.locator("#approve").bounding_box()
    assert decision["y"] > change["y"] + change["height"]
    assert desk.is_visible("text=Go to decision")


def test_fonts_and_scripts_come_from_this_site_and_all_of_them_load(browser, sign_in, reviewer, site):
    plan, page, asked = make_plan(), browser.new_page(), []
    page.on("response", lambda response: asked.append((response.status, response.url)))
    sign_in(page, reviewer)
    page.goto(url_of(plan))
    page.evaluate("document.fonts.ready.then(() => null)")
    page.wait_for_selector("#recheck:not(.reading)")
    assert [url for status, url in asked if not url.startswith(site.url) or status >= 400] == []
    loaded = page.evaluate("[...document.fonts].filter(font => font.status === 'loaded').map(font => font.family)")
    assert {name.strip('"') for name in loaded} == {"Inter", "JetBrains Mono"}
