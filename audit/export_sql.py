"""The statements that make an export's lines inside the database: Python only passes them on."""
# ruff: noqa: S608 - statements are put together from constants here; every value is a parameter.

from datetime import datetime
from typing import Final
from uuid import UUID

# Where bounds of a chunk go (bound()): neighbours in the tree are neighbours in time, and a planner that knows from
# where to where reads them in one go, three times as fast as one by one.
WITHIN_PAYLOADS: Final = "/* within payloads */"
WHERE: Final = "/* where, and in which order */"
# A payload's text is {"actor_name":NAME,"data":DATA} (audit.canonical). It is cut as bytes, which takes a fraction of
# reading it as JSON, or as characters, and spells out every escape as it stands. A quotation mark inside of NAME is
# escaped, so the first ,"data": ends it. Line breaks in DATA can only be between tokens, where a blank says the same:
# a line of JSONL is one line. To look for one is cheap, translate() is not.
# Each OFFSET 0 keeps what is inside of it from being worked out more than once; each ORDER BY but the innermost says
# what is so already, so that rows are sorted once, and narrow.
_SOURCE: Final = rf"""
    FROM (
        SELECT parted.*, CASE WHEN has_breaks THEN translate(data_text, E'\n\r', '  ') ELSE data_text END AS data
        FROM (
            SELECT found.*, convert_from(substr(body, 15, cut - 15), 'UTF8') AS name,
                convert_from(substr(body, cut + 8, octet_length(body) - cut - 8), 'UTF8') AS data_text,
                position('\x0a'::bytea IN body) > 0 OR position('\x0d'::bytea IN body) > 0 AS has_breaks
            FROM (
                SELECT read.*, position('\x2c2264617461223a'::bytea IN body) AS cut
                FROM (
                    SELECT s.index, e.leaf_hash, e.id, e.kind, e.at, e.actor_type, e.actor_id, e.on_behalf_of, e.agent,
                        e.target, e.plan_id, e.plan_seq, e.operation, e.task_id, e.request_id,
                        convert_to(p.body, 'UTF8') AS body
                    FROM audit_sequence s
                    JOIN audit_event e ON e.at = s.at AND e.id = s.event_id
                    LEFT JOIN audit_payload p ON p.event_id = s.event_id {WITHIN_PAYLOADS}
                    {WHERE}
                    OFFSET 0
                ) AS read
                ORDER BY index OFFSET 0
            ) AS found
            ORDER BY index OFFSET 0
        ) AS parted
        ORDER BY index OFFSET 0
    ) AS e
"""
_AT: Final = """to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def _member(name: str) -> str:
    return f"""',"{name}":' || coalesce(to_json(e.{name})::text, 'null')"""


_SUBJECT: Final = ("on_behalf_of", "agent", "target", "plan_id", "operation", "task_id", "request_id")

LINE: Final = f"""
    SELECT '{{"index":' || e.index || ',"leaf_hash":"' || encode(e.leaf_hash, 'hex') || '","id":"' || e.id
        || '","kind":"' || e.kind || '","at":"' || {_AT} || '","actor":{{"type":"' || e.actor_type
        || '","id":' || to_json(e.actor_id) || ',"name":' || coalesce(e.name, 'null') || '}}'
        || {" || ".join(_member(name) for name in _SUBJECT)}
        || ',"plan_seq":' || coalesce(e.plan_seq::text, 'null')
        || ',"data":' || coalesce(e.data, 'null')
        || CASE WHEN e.body IS NULL THEN ',"erased":true}}' ELSE '}}' END
    {_SOURCE}
    ORDER BY e.index
"""

# What starts a formula in some spreadsheet, blanks before it included (CASES L/114); a plain negative number does not.
_FORMULA: Final = r"E'^[\\s\u00a0\ufeff]*[-=+@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]|^[\\t\\r\\n]'"
_NUMBER: Final = "'^-[0-9]+([.][0-9]+)?$'"


def _cell(text: str) -> str:
    """`text` as a cell that no spreadsheet takes for a formula: one that could be, behind an apostrophe.

    Nearly every text starts with a letter or a digit: two comparisons of bytes tell, where the pattern costs more than
    the rest of the row.
    """
    raw = f'{text} COLLATE "C"'
    return (
        f"CASE WHEN {raw} >= 'A' AND {raw} < '~' OR {raw} >= '0' AND {raw} < ':' THEN {text}"
        f" WHEN {text} ~ {_FORMULA} AND {text} !~ {_NUMBER} THEN '''' || {text} ELSE {text} END"
    )


# A name with an escape that stands for no text stays as it is spelled.
_NAME: Final = r"""(CASE WHEN e.name = 'null' THEN NULL
    WHEN strpos(e.name, '\') = 0 OR strpos(e.name, '\u') > 0 THEN left(substr(e.name, 2), -1)
    ELSE e.name::json #>> '{}' END)"""

CSV_COLUMNS: Final = (
    "index", "leaf_hash", "id", "kind", "at", "actor_type", "actor_id", "actor_name", *_SUBJECT, "plan_seq", "data",
    "erased",
)  # fmt: skip
CSV_ROW: Final = f"""
    SELECT e.index, encode(e.leaf_hash, 'hex'), e.id, e.kind, {_AT}, e.actor_type, {_cell("e.actor_id")},
        {_cell("actor.name")}, {", ".join(_cell(f"e.{name}") for name in _SUBJECT)}, e.plan_seq, e.data,
        CASE WHEN e.body IS NULL THEN 'true' END
    {_SOURCE} CROSS JOIN LATERAL (SELECT {_NAME} OFFSET 0) AS actor (name)
    ORDER BY e.index
"""

# One line is one value: no character of it is a delimiter, a quote or a line's end, so that it comes out as it is.
COPY_LINES: Final = r"COPY ({query}) TO STDOUT (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02', ESCAPE E'\x02')"
COPY_CSV: Final = "COPY ({query}) TO STDOUT (FORMAT csv)"


SPAN: Final = "SELECT min(at), max(at), min(event_id::text), max(event_id::text) FROM audit_sequence s WHERE "


def bound(query: str, condition: str, span: tuple[datetime, datetime, str, str]) -> str:
    """`query` at the places that meet `condition`, in their order; `span` is SPAN's answer about them."""
    since, until, first, last = span[0].isoformat(), span[1].isoformat(), UUID(span[2]), UUID(span[3])
    within = f"AND p.event_id >= '{first}' AND p.event_id <= '{last}'"
    where = f"WHERE {condition} AND e.at >= '{since}' AND e.at <= '{until}' ORDER BY s.index"
    return query.replace(WITHIN_PAYLOADS, within).replace(WHERE, where)
