"""The statements that make an export's lines inside the database: Python only passes them on."""

from datetime import datetime
from typing import Final
from uuid import UUID

# A payload's text is {"actor_name":NAME,"data":DATA} (audit.canonical). `->` gives a member as it stands, quickly,
# and refuses escapes that PostgreSQL has no text for (U+0000, lone surrogates), wherever they are: where there is any
# \u, the text is cut instead. A quotation mark inside of NAME is escaped, so the first ,"data": ends it.
# Line breaks in DATA can only be between tokens, where a blank says the same: a line of JSONL is one line. To look for
# one is cheap, translate() is not.
_PARTS: Final = r"""
    CROSS JOIN LATERAL (
        SELECT CASE WHEN strpos(p.body, '\u') = 0 THEN (p.body::json -> 'actor_name')::text
                ELSE substr(p.body, 15, strpos(p.body, ',"data":') - 15) END,
            CASE WHEN strpos(p.body, '\u') = 0 THEN (p.body::json -> 'data')::text
                ELSE left(substr(p.body, strpos(p.body, ',"data":') + 8), -1) END
        OFFSET 0
    ) AS told (name, data)
    CROSS JOIN LATERAL (
        SELECT told.name,
            CASE WHEN strpos(told.data, E'\n') > 0 OR strpos(told.data, E'\r') > 0
                THEN translate(told.data, E'\n\r', '  ') ELSE told.data END
        OFFSET 0
    ) AS part (name, data)
"""
# Where bounds of a chunk go (bound()): neighbours in the tree are neighbours in time, and a planner that knows from
# where to where reads them in one go, three times as fast as one by one.
WITHIN_PAYLOADS: Final = "/* within payloads */"
_SOURCE: Final = f"""
    FROM audit_sequence s
    JOIN audit_event e ON e.at = s.at AND e.id = s.event_id
    LEFT JOIN audit_payload p ON p.event_id = s.event_id {WITHIN_PAYLOADS}
    {_PARTS}
"""
_AT: Final = """to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def _member(name: str) -> str:
    return f"""',"{name}":' || coalesce(to_json(e.{name})::text, 'null')"""


_SUBJECT: Final = ("on_behalf_of", "agent", "target", "plan_id", "operation", "task_id", "request_id")

LINE: Final = f"""
    SELECT '{{"index":' || s.index || ',"leaf_hash":"' || encode(e.leaf_hash, 'hex') || '","id":"' || e.id
        || '","kind":"' || e.kind || '","at":"' || {_AT} || '","actor":{{"type":"' || e.actor_type
        || '","id":' || to_json(e.actor_id) || ',"name":' || coalesce(part.name, 'null') || '}}'
        || {" || ".join(_member(name) for name in _SUBJECT)}
        || ',"plan_seq":' || coalesce(e.plan_seq::text, 'null')
        || ',"data":' || coalesce(part.data, 'null')
        || CASE WHEN p.event_id IS NULL THEN ',"erased":true}}' ELSE '}}' END
    {_SOURCE}
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
_NAME: Final = r"""
    CROSS JOIN LATERAL (
        SELECT CASE WHEN part.name = 'null' THEN NULL
            WHEN strpos(part.name, '\') = 0 OR strpos(part.name, '\u') > 0 THEN left(substr(part.name, 2), -1)
            ELSE part.name::json #>> '{}' END
        OFFSET 0
    ) AS actor (name)
"""

CSV_COLUMNS: Final = (
    "index", "leaf_hash", "id", "kind", "at", "actor_type", "actor_id", "actor_name", *_SUBJECT, "plan_seq", "data",
    "erased",
)  # fmt: skip
CSV_ROW: Final = f"""
    SELECT s.index, encode(e.leaf_hash, 'hex'), e.id, e.kind, {_AT}, e.actor_type, {_cell("e.actor_id")},
        {_cell("actor.name")}, {", ".join(_cell(f"e.{name}") for name in _SUBJECT)}, e.plan_seq, part.data,
        CASE WHEN p.event_id IS NULL THEN 'true' END
    {_SOURCE} {_NAME}
"""

# One line is one value: no character of it is a delimiter, a quote or a line's end, so that it comes out as it is.
COPY_LINES: Final = r"COPY ({query}) TO STDOUT (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02', ESCAPE E'\x02')"
COPY_CSV: Final = "COPY ({query}) TO STDOUT (FORMAT csv)"


SPAN: Final = "SELECT min(at), max(at), min(event_id::text), max(event_id::text) FROM audit_sequence s WHERE "


def bound(query: str, condition: str, span: tuple[datetime, datetime, str, str]) -> str:
    """`query` at the places that meet `condition`, in their order; `span` is SPAN's answer about them."""
    since, until, first, last = span[0].isoformat(), span[1].isoformat(), UUID(span[2]), UUID(span[3])
    payloads = f"AND p.event_id >= '{first}' AND p.event_id <= '{last}'"
    return (
        f"{query.replace(WITHIN_PAYLOADS, payloads)} WHERE {condition}"
        f" AND e.at >= '{since}' AND e.at <= '{until}' ORDER BY s.index"
    )
