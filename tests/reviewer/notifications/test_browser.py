"""The page of notifications in a real browser: under the policy, for everybody, and what its service worker does."""

import json

import pytest

from reviewer.notifications import sealed
from reviewer.notifications.models import Channel, Preference
from reviewer.notifications.routing import preference_of
from tests.makers import make_target

pytestmark = pytest.mark.slow
PAGE = "/settings/notifications/"


@pytest.fixture
def mara(make_person):
    """A reviewer and admin with one channel of each kind, one of which fails."""
    person = make_person("reviewer", "admin", name="Mara Lindqvist", email="mara@example.com")
    preference_of(person)
    kept = [("chat", "slack:// (Slack)"), ("chat", "mmosts://chat.example.com"), ("push", "Firefox, push.example.com")]
    for kind, label in kept:
        sealed_address = sealed.seal_address(label, person_pk=person.pk)
        Channel.objects.create(
            person=person, kind=kind, label=label, sealed=sealed_address, address_hash=sealed.address_hash(label)
        )
    Channel.objects.filter(kind="chat", label__startswith="mmosts").update(
        failing_since="2026-11-30T21:04:05Z", last_failure="The service did not accept the message."
    )
    for name in ("billing-remote", "ledger", "shipping"):
        make_target(name)
    return person


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390), ("light", 320)])
def test_the_page_is_accessible_and_fits_in_every_look(page, sign_in, axe, mara, theme, width):
    mara.theme = theme
    mara.save()
    page.set_viewport_size({"width": width, "height": 900})
    sign_in(page, mara)
    page.goto(PAGE)
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.fill("#quiet_from", "22:00")
    page.click("form:has(#quiet_from) button[type=submit]")
    assert page.locator("#outcome").inner_text().startswith("There is a problem")
    assert axe(page) == []


def test_everything_but_web_push_works_without_scripts(chromium, site, sign_in, mara):
    context = chromium.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, mara)
    page.goto(PAGE)
    assert page.get_by_role("button", name="Tell this browser").is_disabled()
    page.select_option("#pace", "every")
    page.fill("#every_minutes", "45")
    page.click("form:has(#pace) button[type=submit]")
    assert "Saved" in page.locator("#outcome").inner_text()
    page.get_by_role("button", name="Switch off slack:// (Slack)").click()
    assert "The channel is off" in page.locator("#outcome").inner_text()
    context.close()
    assert Preference.objects.get(person=mara).every_minutes == 45


def test_what_is_pushed_is_shown_and_opens_its_page_only(browser, page, sign_in, site, mara):
    browser.grant_permissions(["notifications"])
    sign_in(page, mara)
    page.goto(PAGE)
    page.evaluate(
        "async () => { await navigator.serviceWorker.register(document.querySelector('[data-worker]').dataset.worker);"
        " const ready = await navigator.serviceWorker.ready;"
        " while (ready.active.state !== 'activated') await new Promise(then => setTimeout(then, 50)); }"
    )
    (worker,) = browser.service_workers
    # What the browser then has on show is its own: it forgets what no desktop showed, sooner or later.
    worker.evaluate(
        """() => {
            const show = self.registration.showNotification.bind(self.registration);
            self.shown = [];
            self.registration.showNotification = async (title, options) => {
                await show(title, options);
                self.shown.push([title, options.body, options.data.path, (options.actions ?? []).length]);
            };
        }"""
    )
    devtools = browser.new_cdp_session(page)
    registrations = []
    devtools.on("ServiceWorker.workerRegistrationUpdated", lambda event: registrations.extend(event["registrations"]))
    devtools.send("ServiceWorker.enable")
    for _ in range(150):
        if registrations:
            break
        page.wait_for_timeout(100)
    assert registrations[0]["scopeURL"] == f"{site.url}{PAGE}"
    told = {"title": "Waits for a decision", "body": "limit.update on ledger", "path": "/plans/a/b/c/", "tag": "t1"}
    devtools.send(
        "ServiceWorker.deliverPushMessage",
        {"origin": site.url, "registrationId": registrations[0]["registrationId"], "data": json.dumps(told)},
    )
    for _ in range(150):
        if found := worker.evaluate("() => self.shown"):
            break
        page.wait_for_timeout(100)
    assert found == [["Waits for a decision", "limit.update on ledger", "/plans/a/b/c/", 0]]


def test_a_browser_whose_push_service_does_not_answer_is_told_so_and_nothing_is_added(browser, page, sign_in, mara):
    browser.grant_permissions(["notifications"])
    sign_in(page, mara)
    page.goto(PAGE)
    before = Channel.objects.count()
    page.get_by_role("button", name="Tell this browser").click()
    said = page.locator("[data-push-said]")
    said.filter(has_text="Nothing was changed").or_(said.filter(has_text="told not to")).wait_for()
    assert Channel.objects.count() == before
