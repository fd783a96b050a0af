"""What a target can answer, whatever kind of target it is: the words between the engine and the wire."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Change:
    """One field that moved: values are JSON text, None where the target did not say."""

    target: str
    field: str
    planned: str | None
    current: str | None


@dataclass(frozen=True, slots=True)
class Applied:
    """The target says it applied the plan. `result` is its JSON text, None where it gave none."""

    result: str | None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """The target says an input changed and nothing was written."""

    changes: tuple[Change, ...]
    detail: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The target says no for another reason, and nothing was written."""

    detail: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The target says the plan has expired, and nothing was written."""

    detail: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Unsent:
    """Provably no byte of the request left this machine for the target's application."""

    detail: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """Anything else: the request may have arrived, and the answer proves nothing."""

    detail: str
    status: int | None = None
    retry_after: timedelta | None = None


CommitReply = Applied | Moved | Declined | Lapsed | Unsent | Unclear


@dataclass(frozen=True, slots=True)
class StateReply:
    """What a target says of a plan by its id. `state` None: it gave no answer that proves anything."""

    state: str | None
    is_missing: bool = False  # a 404
    result: str | None = None
    changes: tuple[Change, ...] = ()
    detail: str = ""
    input_fingerprint: str | None = None
    expires_at: str | None = None
    actions: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """Where one plan commits and is looked up, and with what. Built from the target's row, never from a plan's text."""

    commit_url: str
    status_url: str
    credentials: str | None = field(repr=False)


class RemoteTarget(Protocol):
    """A remote two-phase target, as the engine sees it. Implementations never raise for what a target does."""

    def commit(
        self, address: Address, *, token: str, fingerprint: str, key: str, send_before: float | None = None
    ) -> CommitReply:
        """Present token, fingerprint and key, once. Blocks for at most the commit timeout.

        At or past `send_before` (`time.monotonic()`) nothing is sent.
        """

    def state(self, address: Address, *, plan_id: str, token: str) -> StateReply:
        """Ask what became of a plan. Reads only; may be repeated. `token` is not sent, but kept out of what is read."""
