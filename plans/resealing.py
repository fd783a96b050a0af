"""Sealing keys in rotation: which keys rows still need, and moving them to the newest, in the background."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection, models, transaction

from plans import sealing
from plans.models import AgentSecret, LookupKey, Plan, TargetAddress

BATCH = 200
PLACES: list[tuple[type[models.Model], str]] = [
    (LookupKey, "sealed"),
    (TargetAddress, "credentials_sealed"),
    (AgentSecret, "sealed"),
    (Plan, "token_sealed"),
]
"""Every column that holds something sealed. A new one belongs here, or its key could be thrown away under it."""

_PURPOSES: dict[tuple[type[models.Model], str], Callable[[Any], str]] = {}


@dataclass(frozen=True, slots=True)
class Progress:
    """How many sealed values there are, and how many are under the newest key already."""

    done: int
    total: int


def add_place(model: type[models.Model], column: str, purpose: Callable[[Any], str]) -> None:
    """A column of another app that holds something sealed, and what a row's value is bound to. May be repeated."""
    if (model, column) not in PLACES:
        PLACES.append((model, column))
    _PURPOSES[model, column] = purpose


def needed_keys() -> dict[str, int]:
    """The ids (hex) of the keys that rows are sealed under, with how many rows each. Reads every sealed row's head."""
    needed: dict[str, int] = {}
    with connection.cursor() as cursor:
        for model, column in PLACES:
            table = connection.ops.quote_name(model._meta.db_table)
            cursor.execute(
                f"SELECT encode(substring({column} FOR %s), 'hex'), count(*) FROM {table} "  # noqa: S608 our own names
                f"WHERE {column} IS NOT NULL GROUP BY 1",
                [sealing.KEY_ID_BYTES],
            )
            for name, count in cursor.fetchall():
                needed[name] = needed.get(name, 0) + count
    return needed


def has_tables() -> bool:
    """False before the first migration."""
    known = connection.introspection.table_names()
    return all(model._meta.db_table in known for model, _ in PLACES)


def missing_keys() -> dict[str, int]:
    """Those of `needed_keys` that SEAL_KEYS does not hold: what is sealed under them can't be opened any more."""
    known = {sealing.key_id(key).hex() for key in settings.SEAL_KEYS}
    return {name: count for name, count in needed_keys().items() if name not in known}


def progress() -> Progress:
    """How far the rotation to the newest key has come."""
    newest = sealing.key_id(settings.SEAL_KEYS[0]).hex()
    needed = needed_keys()
    return Progress(needed.get(newest, 0), sum(needed.values()))


def reseal_all() -> Iterator[Progress]:
    """Move every sealed value to the newest key, in short transactions; yields how far it has come after each.

    Safe beside running traffic and when run twice: a row that is locked is skipped and found again in the next round.
    """
    for model, column in PLACES:
        purposes = _purpose_of(model, column)
        while True:
            if _reseal_batch(model, column, purposes) == 0:
                break
            yield progress()


@transaction.atomic(durable=True)
def _reseal_batch(model: type[models.Model], column: str, purpose: Any) -> int:
    newest = sealing.key_id(settings.SEAL_KEYS[0])
    stale = (
        model._default_manager.filter(**{f"{column}__isnull": False})
        .exclude(**{f"{column}__gte": newest, f"{column}__lt": _after(newest)})
        .select_for_update(of=("self",), no_key=True, skip_locked=True)
        .order_by("pk")[:BATCH]
    )
    rows = list(stale)
    for row in rows:
        value = sealing.unseal(getattr(row, column), purpose=purpose(row))
        setattr(row, column, sealing.seal(value, purpose=purpose(row)))
        row.save(update_fields=[column])
    return len(rows)


def _after(prefix: bytes) -> bytes:
    """The smallest value above everything that starts with `prefix`."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix) + 1, "big").removeprefix(b"\x00")


def _purpose_of(model: type[models.Model], column: str) -> Any:
    """What a row's value is bound to, as `vault` and `auth` seal it, or as `add_place` was told."""
    if (model, column) in _PURPOSES:
        return _PURPOSES[model, column]
    if model is LookupKey:
        return lambda row: "lookup-key"
    if model is TargetAddress:
        return lambda row: f"target:{row.target.name}"
    if model is AgentSecret:
        return lambda row: f"{row.purpose}:{row.agent.name}"
    return lambda row: "plan-token"
