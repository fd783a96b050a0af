"""Talk to the server under proof: every answer is kept, and looked through for secrets."""

import json
import socket
import ssl
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

import urllib3

from plans.conformance.bodies import members_of
from plans.conformance.config import Config, ConfigError, bearer

COMMAND_SECONDS: Final = 60


class Failed(Exception):
    """The server broke the rule; says how."""


class NotRun(Exception):
    """The rule cannot be tried with what the configuration says."""


class World(Protocol):
    """What lies behind the server: moved past it, and counted."""

    can_move: bool
    can_count: bool

    def move(self) -> None:
        """Changes an input of the next plans, past the server."""

    def count(self) -> int:
        """How many writes there were so far."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def members(self) -> dict[str, Any]:
        """The JSON object in the body, or nothing."""
        return members_of(self.body)

    @property
    def slug(self) -> str:
        """The last path segment of a problem's type."""
        return str(self.members.get("type", "")).rstrip("/").rpartition("/")[2]

    @property
    def is_applied(self) -> bool:
        """200 or 201 with JSON, or 204 (CONTRACT section 6)."""
        return self.status == 204 or (self.status in (200, 201) and _is_json(self.body))

    @property
    def is_in_progress(self) -> bool:
        """Whether it says that the same key is being worked on, or that it is busy: nothing is decided."""
        return self.status in (202, 423, 425, 429, 503) or (
            self.status == 409 and self.slug in ("in-progress", "in-flight")
        )


@dataclass(frozen=True, slots=True)
class Dry:
    """A dry run's answer."""

    plan_id: str
    token: str = field(repr=False)
    fingerprint: str
    expires_at: datetime
    actions: list[Any]


class Caller:
    """One server. Safe with threads."""

    def __init__(self, url: str, config: Config, world: World) -> None:
        self.url, self.config, self.world = url.rstrip("/"), config, world
        self._agent, self._desk = bearer(config.dry_run.bearer_env), bearer(config.commit.bearer_env)
        self._reader = bearer(config.status.bearer_env)
        self._http = urllib3.PoolManager(maxsize=16, retries=False, timeout=config.timeout)
        self.tokens: list[str] = []
        self.answers: list[tuple[str, Answer]] = []

    def dry_run(self, *, short: bool = False) -> Dry:
        """A new plan. Raises Failed where the answer is none."""
        found = self.dry_run_or_later(short=short)
        if isinstance(found, Answer):
            raise Failed(f"The dry run answered {found.status}.")
        return found

    def dry_run_or_later(self, *, short: bool = False) -> Dry | Answer:
        """A new plan, or the answer that there is none just now. Raises Failed for any other."""
        path = self.config.dry_run.short_path if short else None
        body = _fill(self.config.dry_run.body, uuid.uuid4().hex[:12])
        answer = self._ask("POST", path or self.config.dry_run.path, self._agent, json.dumps(body).encode(), {})
        if answer.is_in_progress:
            return answer
        if answer.status not in (200, 201):
            raise Failed(f"The dry run answered {answer.status}.")
        dry = _read(answer.members)
        self.tokens.append(dry.token)
        return dry

    def commit(self, dry: Dry, key: str | None, **changes: Any) -> Answer:
        """Commits; `changes` replace members of the body, and None leaves one out."""
        body = {"plan_token": dry.token, "input_fingerprint": dry.fingerprint} | changes
        return self.commit_raw(json.dumps({name: value for name, value in body.items() if value is not None}), key)

    def commit_raw(self, body: str | bytes, key: str | None, *, is_known: bool = True) -> Answer:
        """Sends these bytes to the commit door; `is_known`: with the bearer token."""
        raw = body.encode() if isinstance(body, str) else body
        headers = {"Idempotency-Key": key} if key is not None else {}
        return self._keep(
            "commit", self._ask("POST", self.config.commit.path, self._desk if is_known else None, raw, headers)
        )

    def state(self, plan_id: str) -> Answer:
        """The look-up by plan id."""
        path = self.config.status.path.replace("{plan_id}", quote(plan_id, safe=""))
        return self._keep("state", self._ask("GET", path, self._reader, None, {}))

    def commit_and_leave(self, dry: Dry, key: str, *, whole: bool) -> None:
        """Sends a commit and closes the connection: after the whole of it, or in the middle of its body."""
        parts = urlsplit(self.url + self.config.commit.path)
        body = json.dumps({"plan_token": dry.token, "input_fingerprint": dry.fingerprint}).encode()
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", f"Idempotency-Key: {key}",
                 "Content-Type: application/json", f"Content-Length: {len(body)}"]  # fmt: skip
        if self._desk:
            lines.append(f"Authorization: Bearer {self._desk}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with socket.create_connection((parts.hostname or "", port), self.config.timeout) as plain:
                wire = plain
                if parts.scheme == "https":
                    wire = ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname)
                wire.sendall(head + (body if whole else body[: len(body) // 2]))
                wire.close()
        except OSError as error:
            raise Failed(f"The commit door did not take a connection ({type(error).__name__}).") from None

    def _keep(self, door: str, answer: Answer) -> Answer:
        self.answers.append((door, answer))
        return answer

    def _ask(self, method: str, path: str, token: str | None, body: bytes | None, more: Mapping[str, str]) -> Answer:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        try:
            found = self._http.request(method, self.url + path, body=body, headers={**headers, **more}, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise Failed(f"No answer to {method} {path} ({type(error).__name__}).") from None
        return Answer(found.status, {name.lower(): value for name, value in found.headers.items()}, found.data)


class Commands:
    """The world by the configuration's commands."""

    def __init__(self, config: Config) -> None:
        self._move, self._count = config.world.move, config.world.count
        self.can_move, self.can_count = bool(self._move), bool(self._count)

    def move(self) -> None:
        """Runs `world.move`."""
        _run(self._move or [])

    def count(self) -> int:
        """Runs `world.count`, which prints a whole number."""
        text = _run(self._count or []).strip()
        if not text.isdecimal():
            raise ConfigError("world.count has to print a whole number and nothing else.")
        return int(text)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{command[0]} could not be run ({type(error).__name__}).") from None
    if done.returncode:
        raise ConfigError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def _fill(node: Any, unique: str) -> Any:
    if isinstance(node, str):
        return node.replace("{unique}", unique)
    if isinstance(node, list):
        return [_fill(one, unique) for one in node]
    return {name: _fill(value, unique) for name, value in node.items()} if isinstance(node, dict) else node


def _read(members: dict[str, Any]) -> Dry:
    texts = [members.get(name) for name in ("plan_id", "plan_token", "input_fingerprint", "expires_at")]
    for name, text in zip(("plan_id", "plan_token", "input_fingerprint", "expires_at"), texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise Failed(f"The dry run's answer lacks {name}.")
    actions = members.get("actions")
    if not isinstance(actions, list) or not actions:
        raise Failed("The dry run's answer lacks its actions.")
    try:
        expires_at = datetime.fromisoformat(str(texts[3]))
    except ValueError:
        raise Failed("expires_at is no RFC 3339 instant.") from None
    if expires_at.tzinfo is None:
        raise Failed("expires_at has no offset.")
    return Dry(str(texts[0]), str(texts[1]), str(texts[2]), expires_at, actions)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
