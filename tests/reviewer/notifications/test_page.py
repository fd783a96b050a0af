"""The page of notifications: one's own settings and channels, nothing of anybody else's, every change an event."""

import base64
import json
import os

import pytest
from django.core import checks
from django.test import Client

from audit.models import Event
from plans.resealing import PLACES, needed_keys, reseal_all
from reviewer.notifications import sealed
from reviewer.notifications.changing import add_chat, paces_of
from reviewer.notifications.models import Channel, Escalation, Mute, Preference, TargetPace, VapidKey
from tests.makers import make_person, make_target
from tests.reviewer.pages import client_of, text_of, told_of

pytestmark = pytest.mark.usefixtures("database")
PAGE = "/settings/notifications/"
SECRET = "s3cr3t-path-of-a-hook"
HOOK = f"jsons://chat.example.com/{SECRET}"


def saved(**changes):
    """What the form posts that is opened by somebody who said nothing yet."""
    sent = {
        "do": "save",
        "occasions": ["waiting", "soon", "unknown", "ended"],
        "pace": "at_once",
        "every_minutes": "30",
        "daily_at": "09:00",
        "quiet_from": "",
        "quiet_to": "",
        "away_from": "",
        "away_until": "",
        "stand_in": "",
    }
    return sent | changes


def test_the_page_is_for_reviewers_and_admins_who_are_signed_in():
    assert Client().get(PAGE).status_code == 302
    assert client_of(make_person("auditor")).get(PAGE).status_code == 403
    for role in ("reviewer", "admin"):
        assert client_of(make_person(role)).get(PAGE).status_code == 200
    assert PAGE in client_of().get("/settings/").content.decode()


def test_what_is_saved_shows_and_is_one_event_that_names_what_changed():
    person, stand_in = make_person("reviewer", time_zone="Europe/Berlin"), make_person("reviewer")
    target, other = make_target("ledger"), make_target("billing")
    client = client_of(person)
    client.get(PAGE)
    chosen = saved(
        pace="daily", daily_at="08:30", quiet_from="22:00", quiet_to="07:00",
        urgent_breaks_through="on", away_from="2026-07-01T09:00", away_until="2026-07-08T09:00",
        stand_in=str(stand_in.pk),
    ) | {f"of-{target.pk}": "never", f"of-{other.pk}": "every"}  # fmt: skip
    answer = client.post(PAGE, chosen)
    assert answer.status_code == 200, text_of(answer)
    assert "Saved" in text_of(answer)
    kept = Preference.objects.get(person=person)
    assert (kept.pace, str(kept.daily_at), str(kept.quiet_from)) == ("daily", "08:30:00", "22:00:00")
    assert kept.away_from.isoformat() == "2026-07-01T07:00:00+00:00"  # nine in Berlin, in summer
    assert kept.stand_in == stand_in
    assert list(Mute.objects.values_list("target__name", flat=True)) == [target.name]
    assert 'value="2026-07-01T09:00"' in answer.content.decode()
    assert told_of("person.changed") == [(f"person:{person.pk}", "notifications_changed")]
    data = json.loads(Event.objects.get(kind="person.changed").payload.body)["data"]
    assert data["stand_in"] == stand_in.email
    assert data["targets"] == {"ledger": "never", "billing": "every"}
    assert list(TargetPace.objects.values_list("target__name", "pace")) == [("billing", "every")]
    client.post(PAGE, chosen)
    assert len(told_of("person.changed")) == 1
    client.post(PAGE, chosen | {f"of-{target.pk}": "at_once", f"of-{other.pk}": ""})
    assert Mute.objects.count() == 0
    assert list(TargetPace.objects.values_list("target__name", "pace")) == [("ledger", "at_once")]


def test_a_target_that_came_after_the_page_was_opened_is_told_of_as_of_the_others():
    person, known = make_person("reviewer"), make_target()
    client = client_of(person)
    client.get(PAGE)
    new = make_target()
    assert client.post(PAGE, saved() | {f"of-{known.pk}": "never"}).status_code == 200
    assert set(paces_of(person)) == {known.pk}
    assert f'name="of-{new.pk}"' in client.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"quiet_from": "22:00"}, "need both a start and an end"),
        ({"quiet_from": "22:00", "quiet_to": "22:00"}, "end at another time"),
        ({"away_from": "2026-07-01T09:00"}, "from when, and until when"),
        ({"away_from": "2026-07-02T09:00", "away_until": "2026-07-01T09:00"}, "not after its start"),
        ({"pace": "every", "every_minutes": "4"}, "greater than or equal to 5"),
        ({"pace": "every", "every_minutes": ""}, "how many minutes"),
        ({"pace": "daily", "daily_at": ""}, "at what time"),
        ({"pace": "hourly"}, "valid choice"),
        ({"occasions": ["escalated"]}, "valid choice"),
        ({"stand_in": "0"}, "valid choice"),
        ({"quiet_from": "25:00", "quiet_to": "07:00"}, "valid time"),
    ],
)
def test_a_mistake_is_said_at_its_field_and_saves_nothing(wrong, sentence):
    person = make_person("reviewer")
    client = client_of(person)
    answer = client.post(PAGE, saved(pace="every", every_minutes="45") | wrong)
    assert answer.status_code == 422
    assert sentence in text_of(answer)
    assert "There is a problem" in text_of(answer)
    assert Preference.objects.get(person=person).pace == "at_once"
    assert told_of("person.changed") == []


def test_a_stand_in_needs_the_role_and_is_never_oneself():
    person, auditor = make_person("reviewer"), make_person("auditor")
    for wrong in (auditor, person, make_person("reviewer", is_active=False)):
        assert client_of(person).post(PAGE, saved(stand_in=str(wrong.pk))).status_code == 422


def test_an_admin_who_does_not_review_keeps_what_the_form_does_not_offer():
    admin = make_person("admin")
    client = client_of(admin)
    page = text_of(client.get(PAGE))
    assert "nobody has decided" in page
    assert "waits for a decision I may make" not in page
    client.post(PAGE, saved(occasions=["undecidable"]))
    assert Preference.objects.get(person=admin).occasions == ["waiting", "soon", "undecidable", "unknown", "ended"]


def test_a_chat_address_is_shown_nowhere_after_it_was_sent():
    person = make_person("reviewer")
    client = client_of(person)
    answer = client.post(PAGE, {"do": "chat", "address": HOOK})
    assert answer.status_code == 200
    for page in (answer, client.get(PAGE)):
        assert SECRET not in page.content.decode()
        assert "jsons://chat.example.com" in text_of(page)
    events = Event.objects.filter(kind="person.changed").select_related("payload")
    assert [SECRET in event.payload.body for event in events] == [False]
    assert SECRET not in repr(Channel.objects.get(kind="chat"))
    again = client.post(PAGE, {"do": "chat", "address": HOOK})
    assert again.status_code == 422
    assert "You have this channel already" in text_of(again)


def test_a_refused_address_is_said_at_its_field():
    answer = client_of().post(PAGE, {"do": "chat", "address": "mailto://user:pass@example.com"})
    assert answer.status_code == 422
    assert "Services start with one of" in text_of(answer)


def test_a_channel_is_switched_removed_and_tested_by_its_own_person_alone(mail_server):
    person, other = make_person("reviewer", email="mara@x.example"), make_person("reviewer")
    client, stranger = client_of(person), client_of(other)
    client.get(PAGE)
    channel = add_chat(person=person, address=HOOK)
    for do in ("test", "off", "on", "remove"):
        assert stranger.post(PAGE, {"do": do, "channel": str(channel.pk)}).status_code == 404
    for number in ("", "x", "9" * 30, "²"):
        assert client.post(PAGE, {"do": "off", "channel": number}).status_code == 404
    mail = Channel.objects.get(person=person, kind="email")
    answer = client.post(PAGE, {"do": "test", "channel": str(mail.pk)})
    assert "The test is sent" in text_of(answer)
    assert len(mail_server.mails) == 1
    assert client.post(PAGE, {"do": "remove", "channel": str(mail.pk)}).status_code == 409
    assert "is off" in text_of(client.post(PAGE, {"do": "off", "channel": str(channel.pk)}))
    assert "is removed" in text_of(client.post(PAGE, {"do": "remove", "channel": str(channel.pk)}))
    assert [change for _, change in told_of("person.changed")] == [
        "notification_channel_added", "notification_channel_off", "notification_channel_removed",
    ]  # fmt: skip


def test_a_test_that_fails_says_why_and_admins_see_the_channel_without_its_address(web_server):
    person = make_person("reviewer", name="Mara")
    web_server.status = 500
    client = client_of(person)
    channel = add_chat(person=person, address=f"json://127.0.0.1:{web_server.port}/{SECRET}")
    answer = client.post(PAGE, {"do": "test", "channel": str(channel.pk)})
    assert "The test did not get out" in text_of(answer)
    assert "did not accept the message" in text_of(client.get(PAGE))
    page = client_of(make_person("admin")).get(PAGE)
    assert "Person Channel Since Mara Chat json://127.0.0.1" in text_of(page)
    assert SECRET not in page.content.decode()
    assert "Channels that fail" not in text_of(client.get(PAGE))


def test_a_subscription_is_added_by_the_page():
    person = make_person("reviewer")
    point = sealed.vapid_public_key()  # any point of the curve
    sent = {
        "do": "push",
        "endpoint": "https://push.example.com/send/abc",
        "p256dh": base64.urlsafe_b64encode(point).decode(),
        "auth": base64.urlsafe_b64encode(os.urandom(16)).decode(),
    }
    answer = client_of(person).post(PAGE, sent, headers={"User-Agent": "Mozilla/5.0 Chrome/156.0 Safari/537.36"})
    assert answer.status_code == 200
    assert "Chrome, push.example.com" in text_of(answer)
    assert "/send/abc" not in answer.content.decode()
    assert client_of(person).post(PAGE, sent | {"endpoint": "http://127.0.0.1/"}).status_code == 422


def test_only_an_admin_names_who_hears_of_what_nobody_decides():
    admin, reviewer = make_person("admin"), make_person("reviewer")
    assert client_of(reviewer).post(PAGE, {"do": "escalation", "person": str(reviewer.pk)}).status_code == 404
    assert client_of(admin).post(PAGE, {"do": "escalation", "person": str(reviewer.pk)}).status_code == 200
    assert Escalation.objects.get().person == reviewer
    assert told_of("person.changed") == [(f"person:{admin.pk}", "escalation_named")]
    client_of(admin).post(PAGE, {"do": "escalation", "person": ""})
    assert Escalation.objects.get().person is None


def test_only_a_post_with_a_token_changes_anything():
    person = make_person("reviewer")
    client = client_of(person, enforce_csrf_checks=True)
    assert client.post(PAGE, saved(pace="daily")).status_code == 403
    assert client_of(person).put(PAGE).status_code == 405
    client.get(PAGE, saved(pace="daily"))
    assert Preference.objects.get(person=person).pace == "at_once"


def test_the_scripts_are_scripts_and_hold_the_policy():
    for name in ("push.js", "worker.js"):
        answer = Client().get(f"{PAGE}{name}")
        assert answer["Content-Type"] == "text/javascript; charset=utf-8"
        assert "default-src 'self'" in answer["Content-Security-Policy"]
    worker = Client().get(f"{PAGE}worker.js").content.decode()
    assert "fetch" not in worker
    assert "showNotification" in worker


def test_what_is_sealed_moves_to_a_new_key_with_everything_else(settings):
    person = make_person("reviewer")
    channel = add_chat(person=person, address=HOOK)
    public = sealed.vapid_public_key()
    assert {model for model, _ in PLACES} >= {Channel, VapidKey}
    old, new = settings.SEAL_KEYS, os.urandom(32)
    settings.SEAL_KEYS = [new, *old]
    list(reseal_all())
    try:
        assert len(needed_keys()) == 1
        settings.SEAL_KEYS = [new]
        channel.refresh_from_db()
        assert sealed.open_address(channel) == HOOK
        assert sealed.vapid_public_key() == public
    finally:
        settings.SEAL_KEYS = [*old, new]
        list(reseal_all())  # the lookup key outlives a test


def test_a_mail_server_that_is_set_up_wrongly_is_said_at_the_start(settings):
    def found():
        return {message.id for message in checks.run_checks(tags=["security"])}

    assert not {"notifications.E001", "notifications.W001"} & found()
    settings.EMAIL_HOST, settings.EMAIL_HOST_PASSWORD = "mail.example.com", "hunter2"
    assert "notifications.W001" in found()
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = True
    assert "notifications.E001" in found()
