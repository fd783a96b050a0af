"""Long answers through the bridge, with an application that does nothing but answer."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reviewer.bridge import PIECE, WHOLE, Bridge, make_environ, read_body


class Client:
    """A client of one request, which takes what is sent as slowly as the test wants."""

    def __init__(self, *messages: dict[str, Any], can_take: bool = True) -> None:
        self.messages = list(messages)
        self.sent: list[dict[str, Any]] = []
        self.may_take = asyncio.Event()
        self.has_left = asyncio.Event()
        if can_take:
            self.may_take.set()

    async def receive(self) -> dict[str, Any]:
        if self.messages:
            return self.messages.pop(0)
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.may_take.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_finished(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


def scope(method: str = "GET", **headers: str) -> dict[str, Any]:
    coded = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http", "method": method, "path": "/", "raw_path": b"/", "query_string": b"", "headers": coded,
        "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", "80"), "client": ("127.0.0.1", "9"),
    }  # fmt: skip


class Counting:
    """A WSGI application whose answer has so many pieces, and which tells how far it got."""

    def __init__(self, pieces: int, fails_at: int | None = None) -> None:
        self.pieces, self.fails_at = pieces, fails_at
        self.made = 0
        self.threads: set[int] = set()
        self.is_closed = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> "Counting":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return self

    def __iter__(self) -> Iterator[bytes]:
        for number in range(self.pieces):
            self.threads.add(threading.get_ident())
            if number == self.fails_at:
                raise ValueError("the database has gone")
            self.made += 1
            yield b"x" * PIECE

    def close(self) -> None:
        self.is_closed.set()


def run(coroutine: Any) -> Any:
    # In a thread of its own: this one may be a browser test's, which has a loop running for good.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, asyncio.wait_for(coroutine, 30)).result()


async def ask(bridge: Bridge, client: Client, request: dict[str, Any] | None = None) -> Any:
    request = request or scope()
    body = await read_body(request, client.receive)
    assert body is not None
    return await bridge.ask(make_environ(request, body), client.receive, client.send)


def test_a_short_answer_comes_whole_and_closes_the_response():
    async def steps() -> None:
        application = Counting(2)
        answer = await ask(Bridge(application, threads=1, streams=1), Client())
        assert (answer.status, len(answer.body)) == (200, 2 * PIECE)
        assert application.is_closed.is_set()

    run(steps())


def test_a_long_answer_is_made_no_faster_than_it_is_taken_and_by_one_thread():
    async def steps() -> None:
        application, client = Counting(100), Client(can_take=False)
        asked = asyncio.create_task(ask(Bridge(application, threads=2, streams=2), client))
        await asyncio.sleep(0.3)
        assert application.made == WHOLE // PIECE
        client.may_take.set()
        assert await asked is None
        assert len(client.body) == 100 * PIECE
        assert client.is_finished
        assert max(len(message.get("body", b"")) for message in client.sent) == WHOLE
        assert len(application.threads) == 1

    run(steps())


def test_a_stream_that_is_not_taken_leaves_the_threads_to_others():
    applications = [Counting(100), Counting(1)]

    def in_turn(environ: dict[str, Any], start_response: Any) -> Counting:
        return applications.pop(0)(environ, start_response)

    async def steps() -> None:
        bridge = Bridge(in_turn, threads=1, streams=1)
        slow = Client(can_take=False)
        asked = asyncio.create_task(ask(bridge, slow))
        await asyncio.sleep(0.3)
        assert (await ask(bridge, Client())).status == 200
        slow.may_take.set()
        await asked

    run(steps())


def test_a_reader_that_leaves_ends_the_making():
    async def steps() -> None:
        application, client = Counting(1000), Client(can_take=False)
        asked = asyncio.create_task(ask(Bridge(application, threads=1, streams=1), client))
        await asyncio.sleep(0.2)
        client.has_left.set()
        await asked
        assert application.is_closed.wait(5)
        assert application.made < 20

    run(steps())


def test_a_stream_that_breaks_off_never_looks_like_a_whole_one():
    async def steps() -> None:
        application, client = Counting(100, fails_at=50), Client()
        asked = asyncio.create_task(ask(Bridge(application, threads=1, streams=1), client))
        await asyncio.sleep(0.5)
        assert application.is_closed.is_set()
        assert not asked.done()
        assert not client.is_finished
        client.has_left.set()
        await asked
        assert not client.is_finished

    run(steps())


def test_a_failing_answer_that_has_not_begun_is_the_servers_500():
    async def steps() -> None:
        application = Counting(2, fails_at=1)
        with pytest.raises(ValueError, match="gone"):
            await ask(Bridge(application, threads=1, streams=1), Client())
        assert application.is_closed.is_set()

    run(steps())


def test_no_more_requests_are_at_work_than_there_are_threads():
    at_work: list[int] = []
    most: list[int] = []

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        at_work.append(1)
        most.append(len(at_work))
        time.sleep(0.05)
        at_work.pop()
        start_response("200 OK", [])
        return [b"ok"]

    async def steps() -> None:
        bridge = Bridge(application, threads=3, streams=8)
        await asyncio.gather(*(ask(bridge, Client()) for _ in range(20)))

    run(steps())
    assert max(most) == 3


def test_headers_become_an_environment():
    async def steps() -> dict[str, Any]:
        request = scope("POST", content_length="2", content_type="text/plain", x_a="1")
        request["headers"] += [
            (b"x-a", b"2"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
            (b"x_forwarded_for", b"1.1.1.1"),
        ]
        request["raw_path"], request["query_string"] = b"/a%2Fb/%C3%A9/%FF", b"q=%41"
        body = await read_body(request, Client({"type": "http.request", "body": b"ok"}).receive)
        assert body is not None
        return make_environ(request, body)

    environ = run(steps())
    assert environ["PATH_INFO"] == "/a/b/\u00c3\u00a9/\u00ff"
    assert (environ["QUERY_STRING"], environ["REQUEST_METHOD"]) == ("q=%41", "POST")
    assert (environ["CONTENT_LENGTH"], environ["CONTENT_TYPE"]) == ("2", "text/plain")
    assert (environ["HTTP_X_A"], environ["HTTP_COOKIE"]) == ("1,2", "a=1; b=2")
    assert "HTTP_X_FORWARDED_FOR" not in environ
    assert environ["wsgi.input"].read() == b"ok"
