"""What strangers, other agents and odd secrets get: nothing that tells more than that it is not theirs."""

import http.server
import socket
import threading
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from plans import callbacks, outgoing, registry
from plans.models import Agent, Callback, CallbackTry
from plans.outgoing import NotSent, exchange, is_private_by_name, is_public
from plans.registry_rules import RegistryError
from plans.states import State
from reviewer.people import create_token
from tests.makers import feed_data, make_agent, make_person, make_plan, make_target
from tests.plans.http import Answer, Caller, send, signed
from tests.reviewer.pages import client_of, url_of

pytestmark = pytest.mark.usefixtures("database")

# --- another agent's plan -------------------------------------------------------------------------------------------


def asked_about(caller: Caller, plan_id: str) -> Iterator[Answer]:
    """Everything an agent can ask about a plan id; the target is one that both agents may use."""
    target = quote(caller.target.name)
    for query in ("", f"?target={target}", "?wait=1"):
        yield caller.get(f"/api/v1/plans/{plan_id}{query}")
    for query in ("", f"?target={target}"):
        yield caller.commit_plan(
            {"plan_id": plan_id, "plan_token": "pt-none", "input_fingerprint": "sha256:x"}, query=query
        )
        yield caller.post(f"/api/v1/plans/{plan_id}/abandon{query}", {"reason": "task_ended"})
    yield caller.feed({"plan_id": plan_id, "target": caller.target.name, "reason": "task_ended"}, "plan.abandoned")


def spelled(answer: Answer, plan_id: str) -> tuple[int, bytes]:
    return answer.status, answer.body.replace(plan_id.encode(), b"<plan>")


def test_a133_another_agents_plan_is_answered_as_one_that_nobody_knows(site):
    target = make_target()
    theirs, mine = make_agent(target), make_agent(target)
    caller = Caller(site, mine, target)
    plan = make_plan(State.PENDING, made=theirs, target=target, intent="refund:theirs")
    for known, unknown in zip(asked_about(caller, plan.plan_id), asked_about(caller, "plan_nobody"), strict=True):
        assert spelled(known, plan.plan_id) == spelled(unknown, "plan_nobody")
    for query in (f"task_id={plan.task.task_id}", "intent=refund:theirs"):
        answer = caller.get(f"/api/v1/plans?{query}")
        assert (answer.status, answer.json["plans"]) == (200, [])
    # Its id, its intent and its replacement are free for me: refusing them would tell of it.
    again = feed_data(target.name, intent="refund:theirs", replaces=plan.plan_id, plan={"plan_id": plan.plan_id})
    assert caller.feed(again).status == 201
    plan.refresh_from_db()
    assert plan.state == "pending"


def test_a133_a_plan_under_a_wrong_agent_or_target_is_the_page_of_one_that_nobody_knows(site):
    target, other = make_target(), make_target()
    mine, theirs = make_agent(target, other), make_agent(target)
    plan = make_plan(State.PENDING, made=theirs, target=target)
    reviewer = client_of(make_person("reviewer"))
    assert reviewer.get(url_of(plan)).status_code == 200
    for agent, at in ((mine.agent.name, target.name), (theirs.agent.name, other.name), ("nobody", target.name)):
        for part in ("", "news/", "recheck/"):
            known, unknown = (reviewer.get(f"/plans/{agent}/{at}/{name}/{part}") for name in (plan.plan_id, "plan_x"))
            assert (known.status_code, known.content) == (404, unknown.content)
        for part in ("approve/", "reject/", "settle/"):
            known, unknown = (reviewer.post(f"/plans/{agent}/{at}/{name}/{part}") for name in (plan.plan_id, "plan_x"))
            assert (known.status_code, known.content) == (404, unknown.content)


def test_a133_the_log_tells_an_agent_nothing_and_a_stranger_neither(site):
    caller = Caller(site, make_agent(make_target()), make_target())
    for path in ("events?plan_id=plan_8f21c", "export?format=csv&plan_id=plan_8f21c", "events/none", "checkpoint"):
        for headers in (caller.bearer, {}):
            send(site, "GET", f"/api/v1/audit/{path}", headers=headers).is_problem(401, "unauthenticated")
    assert send(site, "GET", "/live/", headers=caller.bearer).status in (302, 401, 403)


# --- where callbacks may go -----------------------------------------------------------------------------------------

INSIDE = [
    "169.254.169.254", "[::1]", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1", "10.0.0.8",
    "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "[::]", "[fe80::1]", "[fd00::1]", "[fec0::1]",
    "[::ffff:10.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::10.0.0.1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[ff02::1]",
    "224.0.0.1", "255.255.255.255", "localhost", "LOCALHOST.", "a.localhost", "１２７.0.0.1",
]  # fmt: skip
OUTSIDE = [
    "agent.example",
    "8.8.8.8",
    "[2606:4700:4700::1111]",
    "[64:ff9b::8.8.8.8]",
    "10.example",
    "localhost.example",
]


@pytest.fixture
def strict(settings):
    settings.CALLBACK_ALLOW_PRIVATE = False
    return settings


@pytest.mark.parametrize("host", INSIDE)
def test_a137_an_address_inside_is_refused_when_it_is_registered(strict, host):
    made = make_agent(make_target())
    for url in (f"https://{host}/hook", f"https://{host}:8443/hook"):
        with pytest.raises(RegistryError, match="private, loopback or link-local"):
            make_agent(make_target(), callback_url=url)
        with pytest.raises(RegistryError, match="private, loopback or link-local"):
            registry.set_agent(name=made.agent.name, callback_url=url)
    assert not Agent.objects.exclude(callback_url="").exists()


@pytest.mark.parametrize("host", OUTSIDE)
def test_a137_an_address_outside_is_taken(strict, host):
    assert make_agent(make_target(), callback_url=f"https://{host}/hook").agent.callback_url


def test_a137_addresses_inside_are_allowed_where_the_setting_says_so(settings):
    settings.CALLBACK_ALLOW_PRIVATE = True
    assert make_agent(make_target(), callback_url="http://127.0.0.1:9/hook").agent.callback_url


class Inside:
    """Something inside that must not be called. Counts connections."""

    def __init__(self, answer: tuple[int, str] = (204, "")) -> None:
        self.calls = 0
        inside = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inside.calls += 1
                status, location = answer
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    made = Inside()
    yield made
    made.stop()


def ended_plan_with_callback(url: str) -> Callback:
    """A plan whose end is to be told at this address, as somebody wrote it past the door."""
    target = make_target()
    made = make_agent(target, callback_url="https://agent.example/hook")
    make_plan(State.REJECTED, made=made, target=target)
    Agent.objects.filter(pk=made.agent.pk).update(callback_url=url)
    return Callback.objects.get()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"])
def test_a137_an_address_inside_is_not_called_whatever_was_registered(strict, inside, host):
    callback = ended_plan_with_callback(f"http://{host}:{inside.port}/hook")
    assert callbacks.deliver_due() == 1
    tried = CallbackTry.objects.get(callback=callback)
    assert (tried.http_status, tried.is_delivered, inside.calls) == (None, False, 0)
    assert "may not be called" in tried.detail or "No connection" in tried.detail
    strict.CALLBACK_ALLOW_PRIVATE = True
    if host != "[::ffff:127.0.0.1]":
        callback.refresh_from_db()
        Callback.objects.update(next_try_at=callback.queued_at)
        assert callbacks.deliver_due() == 1
        assert inside.calls == 1, "the address itself works"


def test_a137_a_name_that_leads_inside_is_not_called_although_it_was_taken(strict, inside, monkeypatch):
    resolve = socket.getaddrinfo

    def lead_inside(host, *rest, **options):
        numeric = options.get("flags", 0) & socket.AI_NUMERICHOST
        return resolve("127.0.0.1" if host == "agent.example" and not numeric else host, *rest, **options)

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", lead_inside)
    ended_plan_with_callback(f"https://agent.example:{inside.port}/hook")
    assert callbacks.deliver_due() == 1
    assert CallbackTry.objects.get().detail == "The name leads to an address that may not be called."
    assert inside.calls == 0


def test_a137_a_redirect_is_not_followed(settings, inside):
    settings.CALLBACK_ALLOW_PRIVATE = True
    leading = Inside((302, f"http://127.0.0.1:{inside.port}/hook"))
    try:
        ended_plan_with_callback(f"http://127.0.0.1:{leading.port}/hook")
        assert callbacks.deliver_due() == 1
    finally:
        leading.stop()
    assert (leading.calls, inside.calls) == (1, 0)
    assert CallbackTry.objects.get().http_status == 302
    assert Callback.objects.get().delivered_at is None


def test_a137_what_an_address_is_is_decided_on_every_address_of_a_name():
    with pytest.raises(NotSent, match="may not be called"):
        exchange(
            "POST", "http://127.0.0.1:9/", headers={}, body=b"", timeout=outgoing.CONNECT_TIMEOUT,
            may_connect=is_public,
        )  # fmt: skip
    assert not is_private_by_name("agent.example")
    assert not is_public("no address")


# --- secrets that are not quite right -------------------------------------------------------------------------------


def near(secret: str) -> list[str | bytes]:
    """Texts that are not this secret."""
    other = "A" if secret[-1] != "A" else "B"
    odd = [secret[:-1] + other, secret[:-1], secret + "A", secret.swapcase(), "", "é", b"\xff\xfe", "x" * 40_000]
    return [text for text in odd if text != secret]


def test_a139_a_wrong_key_is_one_refusal_however_odd_it_is(site):
    caller = Caller(site, make_agent(make_target()), make_target())
    answers = [
        send(site, "GET", "/api/v1/plans", headers={"Authorization": b"Bearer " + as_bytes(key)})
        for key in near(caller.made.api_key)
    ]
    assert {(one.status, one.body) for one in answers} == {(401, answers[0].body)}
    _, token = create_token(email=make_person("auditor").email)
    answers = [
        send(site, "GET", "/api/v1/audit/events", headers={"Authorization": b"Bearer " + as_bytes(key)})
        for key in near(token)
    ]
    assert {(one.status, one.body) for one in answers} == {(401, answers[0].body)}


def test_a139_a_wrong_signature_is_one_refusal_however_odd_it_is(site):
    caller = Caller(site, make_agent(make_target()), make_target())
    body = b"{}"
    right = signed(caller.made.webhook_secret, body)
    for name in ("webhook-signature", "webhook-id", "webhook-timestamp"):
        answers = [
            send(site, "POST", f"/webhooks/{caller.agent.name}", headers={**right, name: as_bytes(value)}, body=body)
            for value in near(right[name])
        ]
        assert {(one.status, one.body) for one in answers} == {(401, answers[0].body)}


def test_a139_a_wrong_plan_token_is_one_refusal_however_odd_it_is(site):
    target = make_target(approvals=0)
    caller = Caller(site, make_agent(target), target)
    token = "pt_" + "k" * 40
    plan = make_plan(State.PENDING, made=caller.made, target=target, plan={"plan_token": token})
    planned = {"plan_id": plan.plan_id, "plan_token": token, "input_fingerprint": plan.input_fingerprint}
    wrong = [token[:-1] + "j", token[:-1], token + "k", token.upper(), "é" * 7, "\u200b", "x" * 4096]
    answers = [caller.commit_plan(planned, plan_token=value) for value in wrong]
    assert {(one.status, one.slug, one.body) for one in answers} == {(404, "never-planned", answers[0].body)}
    # What cannot be a token at all is refused by its form.
    for value, slug in (("", "invalid"), ("x" * 4097, "invalid"), ("x" * 1_048_576, "too-large")):
        assert caller.commit_plan(planned, plan_token=value).slug == slug
    plan.refresh_from_db()
    assert plan.state == "pending"


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
