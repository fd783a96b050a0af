"""Web push: what a push service gets can be read by the browser alone, is signed, and ends with the subscription."""

import base64
import json
import os
import time

import http_ece
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02

from plans.errors import kept
from reviewer.notifications import sealed
from reviewer.notifications.changing import CannotChange, add_push
from reviewer.notifications.models import Channel, Message, VapidKey
from reviewer.notifications.sending import send_due, send_test
from reviewer.notifications.transports import NotDelivered
from tests.makers import make_plan
from tests.reviewer.notifications.conftest import sweep
from tests.reviewer.pages import told_of

pytestmark = pytest.mark.usefixtures("database")
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0"


def text(raw):
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Browser:
    """The keys of a subscription, and how its owner reads a message."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.auth = os.urandom(16)

    @property
    def point(self):
        return self.key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )

    def subscribe(self, person, endpoint):
        return add_push(
            person=person, endpoint=endpoint, p256dh=text(self.point), auth=text(self.auth), browser=FIREFOX
        )

    def read(self, body):
        return json.loads(http_ece.decrypt(body, private_key=self.key, auth_secret=self.auth, version="aes128gcm"))


@pytest.fixture
def person(make_reader):
    reader = make_reader()
    Channel.objects.filter(person=reader).update(is_on=False)
    return reader


def test_a_push_is_encrypted_for_the_browser_and_signed_with_the_installations_key(web_server, person):
    browser = Browser()
    channel = browser.subscribe(person, f"http://127.0.0.1:{web_server.port}/push/abc")
    assert channel.label == "Firefox, 127.0.0.1"
    plan = make_plan(summary="AGENTS-WORDS")
    assert sweep() == (1, 1)
    [(path, headers, body)] = web_server.taken
    assert path == "/push/abc"
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["ttl"] == "3600"
    assert headers["urgency"] == "normal"
    assert len(headers["topic"]) == 32
    told = browser.read(body)
    assert told["title"].startswith("Waits for a decision: limit.update on ")
    assert told["path"] == f"/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/"
    assert " UTC" in told["body"]
    assert set(told) == {"title", "body", "path", "tag"}
    assert b"AGENTS-WORDS" not in json.dumps(told).encode()
    assert Vapid02.verify(headers["authorization"])
    token = headers["authorization"].removeprefix("vapid t=").split(",")[0]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == f"http://127.0.0.1:{web_server.port}"
    assert time.time() < claims["exp"] < time.time() + 24 * 3600
    assert headers["authorization"].endswith(f"k={text(sealed.vapid_public_key())}")


def test_somebody_elses_key_opens_nothing(web_server, person):
    Browser().subscribe(person, f"http://127.0.0.1:{web_server.port}/push/abc")
    make_plan()
    sweep()
    with pytest.raises(http_ece.ECEException):
        Browser().read(web_server.taken[0][2])


def test_the_installations_key_is_made_once_and_sealed():
    first = sealed.vapid_public_key()
    assert sealed.vapid_public_key() == first
    assert len(first) == 65
    row = VapidKey.objects.get()
    number = sealed.vapid_private_key().private_numbers().private_value.to_bytes(32, "big")
    assert number not in bytes(row.sealed)


@pytest.mark.parametrize("status", [404, 410])
def test_a_subscription_that_ended_is_removed_and_the_log_says_so(web_server, person, status):
    Browser().subscribe(person, f"http://127.0.0.1:{web_server.port}/push/abc")
    web_server.status = status
    make_plan()
    assert sweep() == (1, 1)
    assert Channel.objects.filter(kind="push").count() == 0
    assert Message.objects.count() == 0
    assert told_of("person.changed")[-1] == ("system:sweep", "notification_channel_removed")
    assert send_due() == 0


@pytest.mark.parametrize(("status", "sentence"), [(429, "answered 429"), (500, "answered 500"), (301, "answered 301")])
def test_any_other_answer_is_a_failure_that_is_tried_again(web_server, person, status, sentence):
    channel = Browser().subscribe(person, f"http://127.0.0.1:{web_server.port}/push/abc")
    web_server.status = status
    make_plan()
    sweep()
    channel.refresh_from_db()
    assert sentence in kept(channel.last_failure)
    assert Message.objects.get().next_try_at is not None


def test_a_push_service_at_a_private_address_is_not_called(web_server, person, settings):
    channel = Browser().subscribe(person, f"http://127.0.0.1:{web_server.port}/push/abc")
    settings.NOTIFY_ALLOW_PRIVATE = False
    with pytest.raises(NotDelivered, match="may not be called"):
        send_test(channel)
    assert web_server.taken == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "http://push.example/a"},
        {"endpoint": "javascript:alert(1)"},
        {"endpoint": "https://user@push.example/a"},
        {"endpoint": "https://push.example/a b"},
        {"endpoint": "https://"},
        {"endpoint": "https://push.example:99999/"},
        {"p256dh": "AAAA"},
        {"p256dh": text(b"\x04" + bytes(64))},
        {"p256dh": "é"},
        {"auth": "AAAA"},
    ],
)
def test_what_is_no_subscription_is_refused(person, wrong):
    browser = Browser()
    sent = {"endpoint": "https://push.example/a", "p256dh": text(browser.point), "auth": text(browser.auth)} | wrong
    with pytest.raises(CannotChange):
        add_push(person=person, **sent, browser=FIREFOX)
    assert Channel.objects.filter(kind="push").count() == 0


def test_the_same_browser_again_replaces_its_keys(web_server, person):
    endpoint = f"http://127.0.0.1:{web_server.port}/push/abc"
    Browser().subscribe(person, endpoint)
    second = Browser()
    channel = second.subscribe(person, endpoint)
    send_test(channel)
    assert Channel.objects.filter(kind="push").count() == 1
    assert second.read(web_server.taken[0][2])["title"] == "Plandesk: this is a test"
