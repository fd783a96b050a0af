"""Remote targets: somebody's HTTP server that follows CONTRACT section 6. What it answers, and what that proves."""

import json
import urllib.parse
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from plans.outgoing import Answer, NoAnswer, NotSent, exchange
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
from plans.targets.foreign_json import (
    MAX_NAME,
    elements_of,
    is_flat_enough,
    is_like_object,
    members_of,
    redact,
    redact_json,
    shorten,
    string_of,
    text_of,
)

MAX_DETAIL: Final = 2_000
STILL_RUNNING: Final = frozenset({"in-progress", "in-flight"})
PROVES_NOTHING: Final = frozenset({408, 425, 429})
MAX_CHANGES: Final = 1_000

Members = Sequence[tuple[str, str]]
"""An object's members in its order, each value as the text received; a name may be there twice."""


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
        text = text_of(answer.body)
        if text is None or not is_flat_enough(text):
            return Unclear(f"The target answered {status} without JSON.", status)
        return Applied(redact_json(text, token), status)
    if status < 400 or status >= 500 or status in PROVES_NOTHING:
        return Unclear(f"The target answered {status}.", status, answer.retry_after)
    said = text_of(answer.body)
    problem = members_of(said)
    detail = _detail(problem, token) or f"The target answered {status}."
    if status == 409:
        if said is None and is_like_object(answer.body):  # it may say that the commit is still running
            return Unclear("The target answered 409 with what cannot be read.", status, answer.retry_after)
        if _slugs(problem) & STILL_RUNNING:
            return Unclear("The target says that the commit is still running.", status, answer.retry_after)
        return Moved(_changes(problem, token), detail, status)
    if status == 410:
        return Lapsed(detail, status)
    return Declined(detail, status)


def _string(members: Members, name: str) -> str:
    """A member that is a string, else nothing. Of several under one name the last counts, as most parsers have it."""
    return string_of(dict(members).get(name)) or ""


def _slugs(problem: Members) -> set[str]:
    """Every slug that the problem gives, under whichever of its names."""
    said = [string_of(value) for name, value in problem if name in ("type", "slug", "code")]
    return {text.rstrip("/").rsplit("/", 1)[-1].rsplit("#", 1)[-1] for text in said if text}


def _detail(problem: Members, token: str) -> str:
    said = (_string(problem, name) for name in ("detail", "title", "message"))
    return shorten(redact(next(filter(None, said), ""), token), MAX_DETAIL)


def _changes(problem: Members, token: str) -> tuple[Change, ...]:
    """`changed` as a list of objects or names, an object by field, or one name. At most 1,000 are kept."""
    raw = dict(problem).get("changed", "null")
    members = members_of(raw)
    found: list[Change | None]
    if raw.startswith("["):
        found = [_change(entry, token) for entry in islice(elements_of(raw), MAX_CHANGES)]
    elif raw.startswith("{") and not {name for name, _ in members} & {"field", "target"}:
        found = [_named_change(name, value, token) for name, value in list(dict(members).items())[:MAX_CHANGES]]
    else:
        found = [_change(raw, token)]
    return tuple(change for change in found if change is not None)


def _change(raw: str, token: str) -> Change | None:
    if raw.startswith("{"):
        members = members_of(raw)
        return Change(
            _name(_string(members, "target"), token),
            _name(_string(members, "field"), token),
            *_values(members, token),
        )
    name = string_of(raw)
    return Change("", _name(name, token), None, None) if name else None


def _named_change(name: str, raw: str, token: str) -> Change:
    members = members_of(raw)
    if {member for member, _ in members} & {"planned", "current"}:
        return Change(_name(_string(members, "target"), token), _name(name, token), *_values(members, token))
    return Change("", _name(name, token), None, _value(raw, token))


def _name(text: str, token: str) -> str:
    """What a target calls a record or a field, as much of it as is kept."""
    return shorten(redact(text, token), MAX_NAME)


def _values(members: Members, token: str) -> tuple[str | None, str | None]:
    found = dict(members)
    return _value(found.get("planned"), token), _value(found.get("current"), token)


def _value(raw: str | None, token: str) -> str | None:
    """A value as received; one that nests too deep to be kept counts as not told."""
    return redact_json(raw, token) if raw is not None and is_flat_enough(raw) else None


def _read_state(body: bytes, plan_id: str, token: str) -> StateReply:
    """Plan id and state first; what else is told, each by itself: null, or another type, counts as not told."""
    text = text_of(body)
    if text is None:
        return StateReply(None, detail="The target's state is not JSON.")
    members = members_of(text)
    about, state = ({string_of(value) for name, value in members if name == asked} for asked in ("plan_id", "state"))
    if len(about) > 1 or len(state) > 1:
        return StateReply(None, detail="The target's state contradicts itself.")
    if not about - {None} or not state - {None}:
        return StateReply(None, detail="The target's state lacks plan_id or state.")
    if about != {plan_id}:
        return StateReply(None, detail="The target answered with another plan's state.")
    told = {name: value for name, value in members if value != "null"}
    actions = told.get("actions", "")
    return StateReply(
        _name(str(state.pop()), token),
        result=_value(told.get("result"), token),
        changes=_changes(members, token),
        detail=shorten(redact(_string(members, "detail"), token), MAX_DETAIL),
        input_fingerprint=string_of(told.get("input_fingerprint")),
        expires_at=string_of(told.get("expires_at")),
        actions=actions if actions.startswith("[") else None,
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
