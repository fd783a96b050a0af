"""What the application's database role may do with the log: read it, and call the functions that write it."""

from psycopg.sql import SQL, Identifier

_TABLES = (
    "audit_event, audit_payload, audit_pending, audit_counter, audit_sequence, audit_tile, audit_checkpoint,"
    " audit_cosignature, audit_retention, audit_hold, audit_word, audit_word_block"
)
_FUNCTIONS = (
    "audit_record(text, text, text, text, text, text, text, text, integer, text, text, text)",
    "audit_record_capped(integer, text, text, text, text, text, text, text, text, text, integer, text, text, text)",
    "audit_payload_text(text, text)",
    "audit_ensure_partitions(integer)",
    "audit_tidy_counters(integer)",
    "audit_advance(integer)",
    "audit_store_checkpoint(text, bigint, bytea, text)",
    "audit_store_cosignature(text, bigint, text, text)",
    "audit_why_kept(audit_event)",
    "audit_words(text)",
    "audit_read_words(integer)",
)
# A partition takes no rights of its own: its rows are reached through the log, where triggers and grants are one.
_REVOKE_PARTITIONS = """
DO $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN
        SELECT inhrelid::regclass FROM pg_inherits
        WHERE inhparent IN ('audit_event'::regclass, 'audit_word'::regclass)
    LOOP
        EXECUTE format('REVOKE ALL ON TABLE %s FROM {role}', partition);
    END LOOP;
END $$
"""


def statements(role: str) -> list[str]:
    """The statements, for the owner to run last after every migration. They may be repeated.

    They also see to the partitions of the next twelve months.
    """
    name = Identifier(role).as_string(None)
    in_literal = name.replace("'", "''").replace("%", "%%")
    return [
        f"REVOKE ALL ON {_TABLES} FROM {name}",
        _REVOKE_PARTITIONS.format(role=in_literal),
        SQL("GRANT SELECT ON {} TO {}").format(SQL(_TABLES), Identifier(role)).as_string(None),
        *(f"GRANT EXECUTE ON FUNCTION {function} TO {name}" for function in _FUNCTIONS),
        "SELECT audit_ensure_partitions(12)",
    ]
