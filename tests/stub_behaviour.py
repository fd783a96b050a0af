"""What the stub of a remote target can be told to do with one request, and how it records one."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

JSON_HEADERS = {"Content-Type": "application/json"}
PROBLEM_HEADERS = {"Content-Type": "application/problem+json"}


class Behaviour:
    """What the target does with one request."""


@dataclass(frozen=True)
class Commit(Behaviour):
    """Applies, once per key, and answers 200 with `result`; 409 with what changed where the world was moved."""

    result: Any = field(default_factory=lambda: {"ok": True})


@dataclass(frozen=True)
class Answer(Behaviour):
    """Answers exactly this, applying nothing (unless `applies`); bytes go out verbatim, anything else as JSON.

    `cut_after`: so many bytes of the body are sent, then the connection is closed though more was announced.
    """

    status: int
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    applies: bool = False
    cut_after: int | None = None

    @property
    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def all_headers(self) -> Mapping[str, str]:
        default = {} if isinstance(self.body, bytes) else PROBLEM_HEADERS if self.status >= 400 else JSON_HEADERS
        return {**default, **self.headers}


@dataclass(frozen=True)
class Delay(Behaviour):
    """Waits so many seconds, then does `then`."""

    seconds: float
    then: Behaviour = field(default_factory=Commit)


@dataclass(frozen=True)
class Hold(Behaviour):
    """Waits until the test sets `until` (a minute at most), then does `then`. `reached` tells that it waits."""

    until: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    then: Behaviour = field(default_factory=Commit)


@dataclass(frozen=True)
class DropBeforeReading(Behaviour):
    """Closes the connection without reading the body: nothing is applied, and the caller cannot know that."""


@dataclass(frozen=True)
class DropAfterReading(Behaviour):
    """Reads the whole request, closes the connection without a byte: nothing is applied."""


@dataclass(frozen=True)
class DropAfterApplying(Behaviour):
    """Applies, then closes the connection without a byte."""


@dataclass(frozen=True)
class ApplyLater(Behaviour):
    """Does `then` now (by default no answer at all), and applies after so many seconds."""

    seconds: float
    then: Behaviour = field(default_factory=DropAfterReading)


def conflict(*changed: Mapping[str, Any], slug: str = "conflict") -> Answer:
    """409; without `changed`, the target does not say what."""
    body = {"type": f"https://target.example/problems/{slug}", "title": "An input changed", "status": 409}
    return Answer(409, body | ({"changed": [dict(one) for one in changed]} if changed else {}))


def in_progress() -> Answer:
    """409 that does not mean a conflict: the same key is being worked on."""
    return conflict(slug="in-progress")


def problem(status: int, detail: str = "", slug: str = "problem", headers: Mapping[str, str] | None = None) -> Answer:
    """A problem document: 410, 422, 503 and so on."""
    body = {"type": f"https://target.example/problems/{slug}", "title": slug, "status": status, "detail": detail}
    return Answer(status, body, headers or {})


@dataclass(frozen=True)
class Received:
    """One request as it arrived. `headers` keeps order and spelling; `body` is the bytes."""

    method: str
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    at: float

    def header(self, name: str) -> str | None:
        """The header's value, or None; names in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def key(self) -> str | None:
        return self.header("Idempotency-Key")

    @property
    def json(self) -> Any:
        return json.loads(self.body)
