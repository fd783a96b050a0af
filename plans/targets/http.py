"""Remote targets: somebody's HTTP server that follows CONTRACT section 6. What it answers, and what that proves."""

import json
import urllib.parse
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from plans import strict_json
from plans.outgoing import Answer, NoAnswer, NotSent, exchange
from plans.strict_json import Number, StrictJsonError
from plans.targets.base import (
    Address,
    Applied,
    Change,
    CommitReply,
    Declined,
    Lapsed,
    Moved,
    StateReply,
    Unclear,
    Unsent,
)

MAX_DETAIL: Final = 2_000
STILL_RUNNING: Final = frozenset({"in-progress", "in-flight"})
PROVES_NOTHING: Final = frozenset({408, 425, 429})
REDACTED: Final = "[plan token]"
# These spell a value that our own doors refuse, but the answer is JSON all the same: it says what the target did.
_ODD_BUT_JSON: Final = frozenset({"duplicate-key", "nul", "lone-surrogate", "non-finite"})


class HttpTarget:
    """Speaks to remote targets over HTTP, one exchange a question."""

    def __init__(self, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self.timeout = timeout

    def commit(
        self, address: Address, *, token: str, fingerprint: str, key: str, send_before: float | None = None
    ) -> CommitReply:
        """One POST of token and fingerprint under `key`. Never raises for what the target or the network does."""
        body = json.dumps({"plan_token": token, "input_fingerprint": fingerprint}, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        try:
            answer = self._exchange("POST", address.commit_url, address.credentials, headers, body, send_before)
        except NotSent as error:
            return Unsent(str(error))
        except NoAnswer as error:
            return Unclear(str(error))
        return _read_commit(answer, token)

    def state(self, address: Address, *, plan_id: str, token: str) -> StateReply:
        """One GET of the plan's state. An answer about another plan id proves nothing. `token` is only redacted."""
        try:
            answer = self._exchange("GET", address.status_url, address.credentials, {}, None, None)
        except (NotSent, NoAnswer) as error:
            return StateReply(None, detail=str(error))
        if answer.status == 404:
            return StateReply(None, is_missing=True, detail="The target answered 404.")
        if answer.status != 200:
            return StateReply(None, detail=f"The target answered {answer.status}.")
        return _read_state(answer.body, plan_id, token)

    def _exchange(
        self,
        method: str,
        url: str,
        credentials: str | None,
        headers: dict[str, str],
        body: bytes | None,
        send_before: float | None,
    ) -> Answer:
        if credentials:
            headers = {**headers, "Authorization": f"Bearer {credentials}"}
        return exchange(method, url, headers=headers, body=body, timeout=self.timeout, send_before=send_before)


def _read_commit(answer: Answer, token: str) -> CommitReply:
    """CONTRACT section 6, first table, for one answer."""
    status = answer.status
    if status == 204:
        return Applied(None, status)
    if status in (200, 201):
        text = _json_text(answer.body)
        if text is None:
            return Unclear(f"The target answered {status} without JSON.", status)
        return Applied(redact_json(text, token), status)
    if status < 400 or status >= 500 or status in PROVES_NOTHING:
        return Unclear(f"The target answered {status}.", status, answer.retry_after)
    problem = _object(answer.body)
    detail = redact(_detail(answer, problem), token)
    if status == 409:
        if _slug(problem) in STILL_RUNNING:
            return Unclear("The target says that the commit is still running.", status, answer.retry_after)
        return Moved(_changes(problem, token), detail, status)
    if status == 410:
        return Lapsed(detail, status)
    return Declined(detail, status)


def _json_text(body: bytes) -> str | None:
    try:
        strict_json.loads(body)
    except StrictJsonError as error:
        if error.reason not in _ODD_BUT_JSON:
            return None
    return body.decode()


def _object(body: bytes) -> dict[str, Raw]:
    """The members of a JSON object, each as text; empty for anything else."""
    text = _json_text(body)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.DecodeError:
        return {}


def _string(raw: Raw | None) -> str:
    """A member that is a string, else nothing."""
    if raw is None:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""


def _slug(problem: dict[str, Raw]) -> str:
    for member in ("type", "slug", "code"):
        if value := _string(problem.get(member)):
            return value.rstrip("/").rsplit("/", 1)[-1].rsplit("#", 1)[-1]
    return ""


def _detail(answer: Answer, problem: dict[str, Raw]) -> str:
    said = _string(problem.get("detail")) or _string(problem.get("title")) or _string(problem.get("message"))
    if not said:
        said = f"The target answered {answer.status}."
    return said.replace("\x00", "\N{REPLACEMENT CHARACTER}")[:MAX_DETAIL]


def _changes(problem: dict[str, Raw], token: str) -> tuple[Change, ...]:
    """`changed` as a list of objects or names, an object by field, or one name. At most 1,000 are kept."""
    raw = problem.get("changed")
    if raw is None:
        return ()
    first = bytes(raw).lstrip()[:1]
    if first == b"[":
        entries = msgspec.json.decode(raw, type=list[Raw])
        return tuple(change for entry in entries[:1000] if (change := _change(entry, token)) is not None)
    if first == b"{":
        by_field = msgspec.json.decode(raw, type=dict[str, Raw])
        if "field" in by_field or "target" in by_field:
            change = _change(raw, token)
            return () if change is None else (change,)
        return tuple(_named_change(name, value, token) for name, value in list(by_field.items())[:1000])
    change = _change(raw, token)
    return () if change is None else (change,)


def _change(raw: Raw, token: str) -> Change | None:
    if bytes(raw).lstrip()[:1] == b"{":
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        return Change(
            redact(_string(members.get("target")), token),
            redact(_string(members.get("field")), token),
            _value(members.get("planned"), token),
            _value(members.get("current"), token),
        )
    name = _string(raw)
    return Change("", redact(name, token), None, None) if name else None


def _named_change(name: str, raw: Raw, token: str) -> Change:
    if bytes(raw).lstrip()[:1] == b"{":
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        if members.keys() & {"planned", "current"}:
            planned, current = _value(members.get("planned"), token), _value(members.get("current"), token)
            return Change(redact(_string(members.get("target")), token), redact(name, token), planned, current)
    return Change("", redact(name, token), None, _value(raw, token))


def _value(raw: Raw | None, token: str) -> str | None:
    return None if raw is None else redact_json(bytes(raw).decode(), token)


def redact(text: str, token: str) -> str:
    """`text` without the token's own text, and without U+0000, which no column takes."""
    return text.replace(token, REDACTED).replace("\x00", "\N{REPLACEMENT CHARACTER}")


def redact_json(text: str, token: str) -> str:
    """JSON text as received; where a string in it holds the token, however escaped, the same data without it."""
    try:
        tree = strict_json.loads(text.encode())
    except StrictJsonError:
        # Odd but JSON: it cannot be taken apart safely, so a text that may hold the token is not kept at all.
        spelled = json.dumps(token)[1:-1]
        return json.dumps(REDACTED) if token in text or spelled in text or "\\u" in text else text
    clean = _without(tree, token)
    return text if clean == tree else _dump(clean)


def _without(tree: Any, token: str) -> Any:
    """The tree with every string and member name free of the token. Depth is bounded by the loader."""
    if isinstance(tree, str):
        return tree.replace(token, REDACTED)
    if isinstance(tree, list):
        return [_without(member, token) for member in tree]
    if isinstance(tree, dict):
        return {name.replace(token, REDACTED): _without(member, token) for name, member in tree.items()}
    return tree


def _dump(tree: Any) -> str:
    if isinstance(tree, Number):
        return str(tree)
    if isinstance(tree, list):
        return "[" + ",".join(_dump(member) for member in tree) + "]"
    if isinstance(tree, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_dump(member)}" for name, member in tree.items()) + "}"
    return json.dumps(tree, ensure_ascii=False)


class _StateBody(msgspec.Struct):
    plan_id: str
    state: str
    result: Raw | UnsetType = UNSET
    changed: Raw | UnsetType = UNSET
    input_fingerprint: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    actions: Raw | UnsetType = UNSET


def _read_state(body: bytes, plan_id: str, token: str) -> StateReply:
    if _json_text(body) is None:
        return StateReply(None, detail="The target's state is not JSON.")
    try:
        found = msgspec.json.decode(body, type=_StateBody)
    except msgspec.DecodeError:
        return StateReply(None, detail="The target's state lacks plan_id or state.")
    if found.plan_id != plan_id:
        return StateReply(None, detail="The target answered with another plan's state.")
    members = _object(body)
    return StateReply(
        found.state,
        result=redact_json(bytes(found.result).decode(), token) if isinstance(found.result, Raw) else None,
        changes=_changes(members, token),
        detail=redact(_string(members.get("detail")), token)[:MAX_DETAIL],
        input_fingerprint=found.input_fingerprint if isinstance(found.input_fingerprint, str) else None,
        expires_at=found.expires_at if isinstance(found.expires_at, str) else None,
        actions=bytes(found.actions).decode() if isinstance(found.actions, Raw) else None,
    )


def address_of(
    *, base_url: str, commit_path: str, status_path: str, operation: str, plan_id: str, credentials: str | None
) -> Address:
    """The two addresses of one plan at its target; operation and plan id are each one encoded path segment."""

    def fill(path: str) -> str:
        for name, value in (("{operation}", operation), ("{plan_id}", plan_id)):
            path = path.replace(name, urllib.parse.quote(value, safe=""))
        return base_url.rstrip("/") + "/" + path.lstrip("/")

    return Address(fill(commit_path), fill(status_path), credentials)
