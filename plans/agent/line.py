"""A line to one desk for one agent: its address and secrets, its clock, the store, and how patiently to ask."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plans import signatures
from plans.agent import json_text, stopping
from plans.agent.clock import DeskClock, steady
from plans.agent.errors import DeskError, DeskUnavailable, PlanWrite
from plans.agent.http import Answer, Http, NoAnswer
from plans.agent.ledger import Ledger
from plans.agent.secrets import Secret

FINAL: Final = frozenset({400, 405, 413, 415, 422})
"""Statuses after which the same request is never worth sending again (CONTRACT 5.1)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the SDK goes on trying, in seconds. `wait` has a timeout of its own.

    `patience`: one call, with all its attempts. `attempt`: the longest single attempt; a desk may need the 30 s of a
    remote commit. `farewell`: the end of a task. Delays grow from `first_delay` to `longest_delay`, with jitter, and
    are never shorter than the desk's Retry-After.
    """

    patience: float = 60.0
    attempt: float = 45.0
    farewell: float = 10.0
    first_delay: float = 0.5
    longest_delay: float = 10.0


class Patience:
    """What is left of the time that one call may take."""

    def __init__(self, pace: Pace, limit: float) -> None:
        self._pace = pace
        self._ends = steady() + limit
        self._pauses = 0

    @property
    def left(self) -> float:
        """Seconds, never less than zero."""
        return max(0.0, self._ends - steady())

    @property
    def attempt(self) -> float:
        """Seconds that the next attempt may take: always some, so that a first attempt is made."""
        return min(self._pace.attempt, max(self.left, 1.0))

    def pause(self, retry_after: float | None = None) -> bool:
        """Sleeps before the next attempt; False, without sleeping, where there is no time for one."""
        delay = min(self._pace.longest_delay, self._pace.first_delay * 2**self._pauses)
        delay = max(delay * random.uniform(0.75, 1.25), retry_after or 0.0)  # noqa: S311  (jitter)
        if delay >= self.left:
            return False
        self._pauses += 1
        stopping.sleep(delay)
        return True


@dataclass(frozen=True, slots=True)
class Line:
    """Everything one agent needs to talk to one desk. Safe with threads and forks."""

    name: str
    agent: str
    http: Http
    clock: DeskClock
    ledger: Ledger
    pace: Pace
    api_key: Secret = field(repr=False)
    webhook_secret: signatures.Secret | None = field(repr=False)

    def patience(self, limit: float | None = None) -> Patience:
        """The time for one call: `Pace.patience`, or this many seconds."""
        return Patience(self.pace, self.pace.patience if limit is None else limit)

    def ask_patiently(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        patience: Patience,
    ) -> Answer | NoAnswer:
        """Asks until there is an answer that is not "later". Only for what may be repeated."""
        sent = None if body is None else Secret(body.decode())
        while True:
            answer = self.http.ask(method, path, query=query, body=sent, timeout=patience.attempt)
            if not is_worth_a_retry(answer) or not patience.pause(retry_after(answer)):
                return answer

    def error(
        self, answer: Answer | NoAnswer, kind: type[DeskError] = DeskError, *, token: Secret | None = None,
        plan_write: PlanWrite | None = None, plan_id: str | None = None,
    ) -> DeskError:  # fmt: skip
        """What to raise for an answer there is no outcome for. Its text is rid of every secret of this line."""
        return error_of(answer, lambda text: self.hide(text, token), kind, plan_write=plan_write, plan_id=plan_id)

    def hide(self, text: str, token: Secret | None) -> str:
        """The text without this line's secrets and this token."""
        if self.webhook_secret is not None:
            text = Secret(self.webhook_secret.reveal()).hide_in(text)
        text = self.api_key.hide_in(text)
        return token.hide_in(text) if token is not None else text


def error_of(
    answer: Answer | NoAnswer, hide: Callable[[str], str], kind: type[DeskError] = DeskError, *,
    plan_write: PlanWrite | None = None, plan_id: str | None = None,
) -> DeskError:  # fmt: skip
    """What to raise for an answer there is no outcome for. `hide` takes secrets out of a text."""
    if isinstance(answer, NoAnswer):
        said: PlanWrite = "possible" if answer.may_have_arrived else "none"
        return DeskUnavailable(
            f"The desk gave no answer: {answer.why}", slug="unreachable", advice="retry_same_key",
            plan_write=plan_write or said, plan_id=plan_id,
        )  # fmt: skip
    members = answer.members()
    text = members.get("detail") or members.get("title") or "The desk answered what it should not"
    errors = members.get("errors")
    if isinstance(errors, list) and errors:
        text = f"{text} {json_text.freeze(errors[:10])}"
    advice = members.get("next")
    is_later = answer.status in (429, 503)
    return (DeskUnavailable if is_later else kind)(
        hide(str(text)),
        slug=hide(answer.slug),
        status=answer.status,
        advice=advice if isinstance(advice, str) else None,
        plan_write=plan_write or ("none" if 400 <= answer.status < 500 else "possible"),
        plan_id=plan_id,
    )


def is_worth_a_retry(answer: Answer | NoAnswer) -> bool:
    """Whether the same request may be answered otherwise a moment later."""
    return isinstance(answer, NoAnswer) or answer.status == 429 or answer.status >= 500


def retry_after(answer: Answer | NoAnswer) -> float | None:
    """Seconds that the desk asked for."""
    return answer.retry_after if isinstance(answer, Answer) else None
