"""Chat services: over a real Apprise to a real server, from a closed list, to public hosts only."""

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from plans import clock
from reviewer.notifications import chat
from reviewer.notifications.changing import CannotChange, add_chat
from reviewer.notifications.models import Channel, Message
from reviewer.notifications.sending import send_test
from reviewer.notifications.transports import NotDelivered
from tests.makers import make_plan
from tests.reviewer.notifications.conftest import sweep

pytestmark = pytest.mark.usefixtures("database")
SECRET = "s3cr3t-path-of-a-hook"


@pytest.fixture
def person(make_reader):
    reader = make_reader()
    Channel.objects.filter(person=reader).update(is_on=False)
    return reader


def test_a_chat_service_gets_the_words_and_nothing_else(web_server, person):
    channel = add_chat(person=person, address=f"json://127.0.0.1:{web_server.port}/{SECRET}")
    plan = make_plan(summary="AGENTS-WORDS")
    assert sweep() == (1, 1)
    [(path, _headers, body)] = web_server.taken
    told = json.loads(body)
    assert path == f"/{SECRET}"
    assert told["title"].startswith("Waits for a decision: limit.update on ")
    assert plan.plan_id in told["message"]
    assert "AGENTS-WORDS" not in body.decode()
    channel.refresh_from_db()
    assert channel.last_sent_at is not None


def test_an_address_is_sealed_and_only_its_schema_and_host_are_kept_in_the_open(web_server, person):
    channel = add_chat(person=person, address=f"jsons://user:{SECRET}@chat.example.com/{SECRET}")
    assert channel.label == "jsons://chat.example.com"
    assert SECRET.encode() not in bytes(channel.sealed)
    assert add_chat(person=person, address="slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/").label == (
        "slack:// (Slack)"
    )


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("mailto://user:pass@example.com", "Services start with one of"),
        ("file:///etc/passwd", "Services start with one of"),
        ("syslog://", "Services start with one of"),
        ("dbus://", "Services start with one of"),
        ("https://example.com/hook", "Services start with one of"),
        ("json://example.com/hook", "sends in the open"),
        ("jsons://example.com/?verify=no", "may only set"),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=/etc/passwd", "may only set"),
        ("jsons://example.com/?redirect=yes", "may only set"),
        ("jsons://exa mple.com/", "no spaces"),
        ("jsons://" + "x" * 2000, "at most"),
        ("slack://nonsense", "does not understand"),
        ("jsons://[::1", "not an Apprise address"),
        ("", "Services start with one of"),
    ],
)
def test_what_is_not_on_the_list_is_refused_without_repeating_it(person, address, sentence):
    with pytest.raises(CannotChange, match=sentence) as refused:
        add_chat(person=person, address=address)
    assert not address or address not in str(refused.value)
    assert Channel.objects.filter(kind="chat").count() == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"])
def test_a_private_host_is_not_called_unless_a_setting_allows_it(web_server, person, settings, host):
    settings.NOTIFY_ALLOW_PRIVATE = False
    channel = add_chat(person=person, address=f"jsons://{host}:{web_server.port}/")
    with pytest.raises(NotDelivered, match="may not be called"):
        send_test(channel)
    assert web_server.taken == []


def test_a_name_that_leads_to_a_private_address_is_not_called(web_server, person, settings, monkeypatch):
    settings.NOTIFY_ALLOW_PRIVATE = False
    real = socket.getaddrinfo

    def rebound(host, *arguments, **options):
        return real("127.0.0.1" if host == "rebound.example" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    channel = add_chat(person=person, address=f"jsons://rebound.example:{web_server.port}/")
    with pytest.raises(NotDelivered, match="may not be called"):
        send_test(channel)
    assert web_server.taken == []


def test_a_redirect_is_not_followed(web_server, person):
    web_server.status, web_server.location = 307, f"http://127.0.0.1:{web_server.port}/elsewhere"
    channel = add_chat(person=person, address=f"json://127.0.0.1:{web_server.port}/here")
    with pytest.raises(NotDelivered, match="did not accept"):
        send_test(channel)
    assert [path for path, _, _ in web_server.taken] == ["/here"]


def test_a_refusal_is_kept_and_no_log_tells_the_address(web_server, person, caplog):
    web_server.status = 500
    caplog.set_level(logging.DEBUG)
    add_chat(person=person, address=f"json://127.0.0.1:{web_server.port}/{SECRET}")
    make_plan()
    sweep()
    channel = Channel.objects.get(kind="chat")
    assert channel.last_failure == "The service did not accept the message."
    assert Message.objects.get().next_try_at is not None
    assert SECRET not in caplog.text


def test_a_retry_goes_to_the_receivers_that_have_not_got_it_yet_and_to_no_other(web_server, person):
    add_chat(person=person, address=f"ntfy://127.0.0.1:{web_server.port}/first/second/third")
    make_plan()
    web_server.status = 200
    web_server.refuses = lambda body: json.loads(body)["topic"] == "second"
    assert sweep() == (1, 1)
    topics = [json.loads(body)["topic"] for _, _, body in web_server.taken]
    assert topics == ["first", "second", "third"]
    message = Message.objects.get()
    assert (message.sent_at, sorted(message.reached)) == (None, [0, 2])
    web_server.taken.clear()
    web_server.refuses = lambda body: False
    Message.objects.update(next_try_at=clock.now())
    assert sweep() == (0, 1)
    assert [json.loads(body)["topic"] for _, _, body in web_server.taken] == ["second"]
    assert Message.objects.get().sent_at is not None


@pytest.mark.parametrize(
    ("address", "count"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#a/#b", 2),
        ("tgram://123456789:abcdefg_hijklmnop/111/222:5/@chan", 3),
        ("rockets://user:pass@host/#a/@b/room", 3),
        ("mmosts://host/tok123456/?channels=a,b", 2),
        (f"pover://{'u' * 30}@{'t' * 30}/one/two", 2),
        (f"zulip://bot@org/{'a' * 32}/one/two@example.com", 2),
        ("jsons://chat.example.com/hook", 1),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", 1),
    ],
)
def test_each_receiver_of_an_address_is_a_service_of_its_own(address, count):
    services = chat._for_each_receiver(address)
    assert len(services) == count
    told = [
        tuple(str(one) for name in chat.RECEIVERS for one in chat._receivers(service, name)) for service in services
    ]
    assert len(set(told)) == count
    assert all(len(receivers) <= 1 for receivers in told)


def test_a_service_that_never_answers_is_cut(person, settings, monkeypatch):
    settings.NOTIFY_ALLOW_PRIVATE = True
    monkeypatch.setattr(chat, "TIMEOUT", timedelta(seconds=1))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        channel = add_chat(person=person, address=f"json://127.0.0.1:{listening.getsockname()[1]}/")
        with pytest.raises(NotDelivered, match="in time"):
            send_test(channel)


def serve_drops(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Takes one connection over TLS and answers a byte at a time, for ever."""
    plain, _ = listening.accept()
    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1")
        while True:
            connection.sendall(b" ")
            time.sleep(0.2)


@pytest.mark.slow
def test_a_service_that_answers_byte_by_byte_over_tls_is_cut(person, settings, monkeypatch, tmp_path):
    settings.NOTIFY_ALLOW_PRIVATE = True
    monkeypatch.setattr(chat, "TIMEOUT", timedelta(seconds=1.5))
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve_drops, args=(listening, context), daemon=True)
        serving.start()
        channel = add_chat(person=person, address=f"jsons://localhost:{listening.getsockname()[1]}/")
        began = time.monotonic()
        with pytest.raises(NotDelivered, match="in time"):
            send_test(channel)
        assert time.monotonic() - began < 15
        serving.join(10)
        assert not serving.is_alive()


def make_certificate(folder: Path) -> Path:
    """Of this machine's own name, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(made.public_bytes(pem) + secret)
    return path


def test_an_answer_that_is_no_http_leaves_the_address_out_of_the_log(person, settings, caplog):
    settings.NOTIFY_ALLOW_PRIVATE = True
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 500 No\r\nno colon here\r\nContent-Length: 0\r\n\r\n")

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        channel = add_chat(person=person, address=f"json://127.0.0.1:{listening.getsockname()[1]}/{SECRET}")
        with pytest.raises(NotDelivered):
            send_test(channel)
        serving.join(10)
    assert SECRET not in caplog.text


def test_a_proxy_of_the_environment_is_not_used(web_server, person, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    channel = add_chat(person=person, address=f"json://127.0.0.1:{web_server.port}/here")
    send_test(channel)
    assert [path for path, _, _ in web_server.taken] == ["/here"]


def test_the_guard_holds_only_while_a_message_is_sent(web_server, settings):
    settings.NOTIFY_ALLOW_PRIVATE = False
    answer = urllib3.request("POST", f"http://127.0.0.1:{web_server.port}/other")
    assert answer.status == 201
