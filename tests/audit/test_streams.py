"""The log sent on: at least once, in order, to each destination at its own pace."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from datetime import timedelta
from typing import Any

import pytest

from audit.proofs import advance, read_size
from audit.recording import SYSTEM
from plans import clock
from plans.errors import kept
from plans.registry_rules import RegistryError
from plans.signatures import Secret, verify
from reviewer.streams import sending
from reviewer.streams.changing import StreamRefused, create_stream, remove_stream, switch_stream
from reviewer.streams.models import Stream
from reviewer.streams.sending import lag_of, send_due
from tests.audit.auditing import told
from tests.audit.making import make_event


class Sink:
    """A destination on loopback. `status` is its answer; while `gate` is closed it hangs."""

    def __init__(self) -> None:
        self.status = 204
        self.gate = threading.Event()
        self.gate.set()
        self.got: list[tuple[dict[str, str], bytes]] = []
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.gate.wait(20)
                sink.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(sink.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/events"

    def places(self) -> list[int]:
        return [event["index"] for _, body in self.got for event in json.loads(body)["data"]["events"]]

    def stop(self) -> None:
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def _private(settings: Any, database: None) -> None:
    settings.CALLBACK_ALLOW_PRIVATE = True


def settle() -> None:
    """Waits for the threads that outlived their turns."""
    wait(sending._busy, 30)


@pytest.fixture(autouse=True)
def _settled() -> Iterator[None]:
    yield
    settle()


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.stop()


@pytest.fixture
def other() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.stop()


def stream_to(sink: Sink, name: str = "siem", **options: Any) -> Secret:
    return create_stream(name=name, url=sink.url, by=SYSTEM, **options)[1]


def due_again(name: str = "siem") -> None:
    stream = Stream.objects.get(name=name)
    Stream.objects.filter(name=name).update(next_try_at=stream.created_at)


def test_every_event_is_sent_in_order_and_signed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "MAX_EVENTS", 3)
    secret = stream_to(sink)
    for n in range(7):
        make_event(data={"n": n, "exact": "1.10"})
    assert send_due() == 3
    assert sink.places() == list(range(8))
    for headers, body in sink.got:
        verify(
            [secret],
            webhook_id=headers["webhook-id"],
            timestamp=headers["webhook-timestamp"],
            signature=headers["webhook-signature"],
            body=body,
            now=time.time(),
        )
    last = json.loads(sink.got[-1][1])
    assert (last["type"], last["data"]["first_index"], last["data"]["next_index"]) == ("audit.events", 6, 8)
    assert last["data"]["events"][-1]["data"] == {"n": 6, "exact": "1.10"}
    assert lag_of(Stream.objects.get()).events == 0
    make_event()
    assert (send_due(), sink.places()[-1]) == (1, 8)


def test_what_was_not_taken_is_sent_again_under_the_same_id_and_nothing_is_left_out(sink: Sink) -> None:
    stream_to(sink)
    sink.status = 500
    assert send_due() == 0
    stream = Stream.objects.get()
    assert (stream.next_index, stream.failures, kept(stream.last_error)) == (0, 1, "The destination answered 500.")
    assert (lag_of(stream).events, send_due(), len(sink.got)) == (1, 0, 1), "not due at once"
    sink.status = 200
    due_again()
    assert send_due() == 1
    assert [headers["webhook-id"] for headers, _ in sink.got] == [sink.got[0][0]["webhook-id"]] * 2
    stream = Stream.objects.get()
    assert (stream.next_index, stream.failures, stream.last_error) == (1, 0, "")


def test_a_destination_that_hangs_or_is_slow_blocks_no_other(
    sink: Sink, other: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn goes on without it, and so do the next ones; it gets what it is due, once."""
    monkeypatch.setattr(sending, "PATIENCE", 0.5)
    stream_to(sink)
    stream_to(other, "archive")
    sink.gate.clear()
    assert send_due() == 1
    assert (other.places(), sink.got) == ([0, 1], [])
    for number in range(2, 5):
        make_event()
        due_again("archive")
        assert send_due() == 1
        assert (other.places(), sink.got) == (list(range(number + 1)), [])
    sink.gate.set()
    settle()
    assert sink.places()[:2] == [0, 1]
    assert sink.places() == list(range(len(sink.places())))


def test_of_a_destination_that_hangs_it_is_said_how_long_it_had(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TIMEOUT", timedelta(seconds=1))
    stream_to(sink)
    sink.gate.clear()
    assert send_due() == 0
    assert kept(Stream.objects.get().last_error) == "No whole answer within 1 s."


def test_a_worker_that_dies_before_it_notes_a_delivery_sends_it_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_to(sink)
    with monkeypatch.context() as patched:
        patched.setattr(sending, "exchange", _die_after(sending.exchange))
        with pytest.raises(SystemExit):
            send_due()
    assert (sink.places(), Stream.objects.get().next_index) == ([0], 0)
    due_again()
    assert send_due() == 1
    assert (sink.places(), Stream.objects.get().next_index) == ([0, 0], 1)


def _die_after(exchange: Callable[..., Any]) -> Callable[..., Any]:
    def die(*arguments: Any, **options: Any) -> Any:
        exchange(*arguments, **options)
        raise SystemExit

    return die


def test_a_paused_stream_keeps_its_place_and_goes_on_there(sink: Sink) -> None:
    stream_to(sink)
    assert send_due() == 1
    switch_stream(name="siem", is_paused=True, by=SYSTEM)
    make_event()
    advance()
    assert (send_due(), lag_of(Stream.objects.get()).events) == (0, 2)
    switch_stream(name="siem", is_paused=False, by=SYSTEM)
    assert send_due() == 1
    assert sink.places() == list(range(read_size()))
    remove_stream(name="siem", by=SYSTEM)
    assert [data["change"] for data in told("log.changed")] == [
        f"stream_{change}" for change in ("created", "paused", "resumed", "removed")
    ]


def test_a_log_that_became_shorter_is_said_and_nothing_is_sent(sink: Sink) -> None:
    stream_to(sink)
    with pytest.raises(StreamRefused, match="so far"):
        create_stream(name="early", url=sink.url, from_index=read_size() + 1, by=SYSTEM)
    Stream.objects.update(next_index=500)
    assert send_due() == 0
    assert "shorter" in Stream.objects.get().last_error


def test_addresses_inside_and_names_taken_are_refused(sink: Sink, settings: Any) -> None:
    stream_to(sink)
    with pytest.raises(StreamRefused, match="already"):
        stream_to(sink)
    for url in ("ftp://a.example/x", "http://a.example/x", "https://u:p@a.example/"):
        with pytest.raises(RegistryError):
            create_stream(name="x", url=url, by=SYSTEM)
    settings.CALLBACK_ALLOW_PRIVATE = False
    with pytest.raises(RegistryError):
        create_stream(name="x", url="https://10.0.0.8/x", by=SYSTEM)
    assert (send_due(), sink.got) == (0, [])
    assert "may not be called" in Stream.objects.get().last_error


def test_the_secret_is_sealed_and_in_no_event(sink: Sink) -> None:
    secret = stream_to(sink)
    send_due()
    assert secret.key not in bytes(Stream.objects.get().sealed)
    assert secret.reveal() not in sink.got[0][1].decode() + json.dumps(told("log.changed"))


@pytest.mark.slow
def test_the_command_makes_lists_and_switches(sink: Sink, manage: Callable[..., Any]) -> None:
    made = manage("stream", "create", "siem", "--url", sink.url, "--json", environ={"CALLBACK_ALLOW_PRIVATE": "1"})
    assert json.loads(made.stdout)["secret"].startswith("whsec_")
    advance()
    (row,) = json.loads(manage("stream", "list", "--json").stdout)["streams"]
    assert (row["behind"], row["next_index"], row["paused"]) == (1, 0, False)
    assert manage("stream", "pause", "siem").stdout == "siem is paused.\n"
    assert manage("stream", "list").stdout.startswith("siem: paused, ")
    assert manage("stream", "remove", "siem").returncode == 0
    assert manage("stream", "remove", "siem").returncode == 1


def test_slow_destinations_take_one_thread_of_a_worker_and_a_turn_ends(
    sink: Sink, other: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MAX_EVENTS", 1)
    stream_to(sink)
    for _ in range(4):
        make_event()
    sink.gate.clear()
    monkeypatch.setattr(sending, "AT_ONCE", 1)  # that turn has its one, and looks for no other
    turn = threading.Thread(target=send_due)
    turn.start()
    try:
        while Stream.objects.get().next_try_at <= clock.now():
            time.sleep(0.02)  # not leased yet
        stream_to(other, "archive")
        assert (send_due(), other.got) == (0, []), "another thread of this worker stays free for the plans"
    finally:
        sink.gate.set()
        turn.join()
    settle()
    monkeypatch.setattr(sending, "AT_ONCE", 8)
    monkeypatch.setattr(sending, "RUN_FOR", 0.0)
    assert send_due() == 2, "one delivery each, and the turn is over"
    assert other.places() == [0]
    assert Stream.objects.get(name="archive").next_try_at <= clock.now(), "the rest is due at once"


def test_no_more_destinations_are_served_at_once_than_there_are_threads(
    sink: Sink, other: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PATIENCE", 0.2)
    monkeypatch.setattr(sending, "AT_ONCE", 1)
    stream_to(sink)
    sink.gate.clear()
    assert send_due() == 0
    stream_to(other, "archive")
    assert (send_due(), other.got) == (0, [])
    sink.gate.set()
    settle()
    assert (send_due(), other.places()[:1]) == (1, [0])


def test_what_becomes_of_a_thread_that_outlived_its_turn_is_logged(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "PATIENCE", 0.2)

    def fail_late(*_: object, **__: object) -> None:
        sink.gate.wait(20)
        raise KeyError

    monkeypatch.setattr(sending, "exchange", fail_late)
    stream_to(sink)
    sink.gate.clear()
    assert send_due() == 0
    sink.gate.set()
    settle()
    deadline = time.monotonic() + 10
    while not caplog.text and time.monotonic() < deadline:
        time.sleep(0.02)  # it is told behind the thread's end
    assert "a stream's destination was not served" in caplog.text
