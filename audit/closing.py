"""What a pack or an export says of itself: which events were asked for, under which checkpoint, and with which key."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from audit.checking import Report, check_witnesses, spell, spell_some
from audit.notes import ED25519, ED25519_COSIGNATURE, NoteError, Verifier, find_other_signers, open_checkpoint

ACTOR_TYPES: Final = ("agent", "person", "system", "target")
_NAMES: Final = ("agent", "target", "plan_id", "operation", "task_id")


class Closing(msgspec.Struct):
    """An export's last record, or a pack's manifest."""

    rows: int
    filters: dict[str, str | list[str]]
    from_index: int
    checkpoint: str | None
    key: str | None
    next_index: int | None = None

    @property
    def is_of_everything(self) -> bool:
        """Whether nothing was left out: no filter, and from the first place on."""
        return not self.filters and not self.from_index


class Told(Protocol):
    """What filters can be held against without the database: a leaf, or a record of an export."""

    @property
    def kind(self) -> str: ...
    @property
    def at(self) -> datetime: ...
    @property
    def actor_type(self) -> str: ...
    @property
    def actor_id(self) -> str: ...


class Asked:
    """The filters that a file names, as far as an event alone tells whether it meets them (audit.filters.Filters)."""

    def __init__(self, filters: dict[str, str | list[str]]) -> None:
        """Raises ValueError where a filter cannot be read."""
        self._wanted: dict[str, Any] = {}
        self.unchecked: list[str] = []
        """Filters that only the log itself can answer, or that are unknown here."""
        for name, value in filters.items():
            if name == "kind":
                self._wanted[name] = frozenset([value] if isinstance(value, str) else value)
            elif name not in (*_NAMES, "actor", "from", "to"):
                self.unchecked.append(spell(name))
            elif not isinstance(value, str):
                raise ValueError(f"The filter {name} is no text.")
            else:
                self._wanted[name] = _read_time(name, value) if name in ("from", "to") else value

    @property
    def checked(self) -> list[str]:
        """The filters that find_unmet() looks at."""
        return list(self._wanted)

    def find_unmet(self, event: Told) -> str | None:
        """The first filter that the event does not meet."""
        return next((name for name, value in self._wanted.items() if not _is_met(name, value, event)), None)


def _read_time(name: str, value: str) -> datetime:
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        at = datetime.min  # noqa: DTZ901 - refused below, as every time without a zone
    if at.tzinfo is None:
        raise ValueError(f"The filter {name} is no time.")
    return at


def _is_met(name: str, value: Any, event: Told) -> bool:
    match name:
        case "kind":
            return event.kind in value
        case "from":
            return bool(event.at >= value)
        case "to":
            return bool(event.at < value)
        case "actor":
            actor_type, colon, actor_id = value.partition(":")
            if colon and actor_type in ACTOR_TYPES:
                return (event.actor_type, event.actor_id) == (actor_type, actor_id)
            return bool(event.actor_id == value)
    return bool(getattr(event, name) == value)


@dataclass(frozen=True, slots=True)
class Trust:
    """The keys that whoever verifies knows: the log's, or none, and those of witnesses."""

    key: Verifier | None = None
    witnesses: tuple[Verifier, ...] = ()

    @classmethod
    def parse(cls, key: str | None, witnesses: Sequence[str]) -> "Trust":
        """Raises NoteError, which names the one that cannot be used."""
        return cls(
            None if key is None else _parse_key("--key", key, ED25519),
            tuple(_parse_key("--witness", witness, ED25519_COSIGNATURE) for witness in dict.fromkeys(witnesses)),
        )


def _parse_key(option: str, text: str, kind: int) -> Verifier:
    try:
        verifier = Verifier.parse(text.strip())
    except NoteError as error:
        raise NoteError(f"{option}: {error}") from None
    if verifier.type != kind:
        raise NoteError(f"{option}: This key is of type {verifier.type}; one of type {kind} is needed here.")
    return verifier


def check_signatures(report: Report, trust: Trust, note: str, enclosed: str) -> Verifier | None:
    """Opens the checkpoint with the key that is known, or else with the `enclosed` one, and says which it was.

    None, with the damage noted, where that key did not sign it.
    """
    report.is_own_key = trust.key is None
    try:
        verifier = trust.key or Verifier.parse(enclosed)
        against = open_checkpoint(note, verifier)
    except NoteError as error:
        report.break_at(None, f"The checkpoint does not verify. {error}")
        return None
    report.against = against
    whose = "that came in the file" if report.is_own_key else "that you named"
    report.proven.append(
        f"The checkpoint of {against.size} events is signed by the key {whose}: {spell(str(verifier))}"
    )
    if report.is_own_key:
        report.not_proven.append("That the key is the log's: it came in the file. Name the one you know with --key.")
    elif str(verifier) != enclosed:
        report.break_at(None, "The key in the file is not the one that you named and that signed.")
    check_witnesses(report, [(witness, note) for witness in trust.witnesses])
    if others := find_other_signers(note, [verifier, *trust.witnesses]):
        report.not_proven.append(
            f"Whose these signatures under the checkpoint are: {spell_some(others)}. Name their keys with --witness."
        )
    return verifier
