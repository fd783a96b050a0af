"""An index for every pair of filters: two values that are frequent each may hardly ever have met."""

_PAIRS = (
    ("kind", "actor_id"),
    ("kind", "agent"),
    ("kind", "target"),
    ("kind", "operation"),
    ("agent", "actor_id"),
    ("agent", "target"),
    ("agent", "operation"),
    ("target", "actor_id"),
    ("target", "operation"),
    ("operation", "actor_id"),
)
_NEVER_NULL = ("kind", "actor_id")


def _name(pair: tuple[str, str]) -> str:
    return f"audit_event_{pair[0]}_{pair[1].removesuffix('_id')}"


def _index(pair: tuple[str, str]) -> str:
    given = " AND ".join(f"{column} IS NOT NULL" for column in pair if column not in _NEVER_NULL)
    where = f" WHERE {given}" if given else ""
    return f"CREATE INDEX {_name(pair)} ON audit_event ({pair[0]}, {pair[1]}, at, id){where};"


# On the log itself, so that its partitions have them: today's by this statement, others by audit_make_partition.
FORWARDS = "\n".join(map(_index, _PAIRS))
BACKWARDS = "DROP INDEX " + ", ".join(map(_name, _PAIRS))
