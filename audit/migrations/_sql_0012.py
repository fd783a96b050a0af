"""Where a word is, from the index alone: its rows lie side by side there, and each on a page of its own in the table."""

from audit.migrations._sql_0007 import WORDS

# What was not looked at by a vacuum is read in the table all the same: one for every hundred thousand events or so.
_OFTEN = "SET (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 200000)"
_SELDOM = "RESET (autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold)"

_PARTS = """
DO $$ DECLARE part regclass; BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'public.audit_word'::regclass LOOP
        EXECUTE format('ALTER TABLE %s {how}', part);
    END LOOP;
END $$;
"""

_MAKE = WORDS[WORDS.index("CREATE FUNCTION audit_make_words") : WORDS.index("-- Reads at most `p_blocks`")]
_BEFORE = _MAKE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
_GRANTS = "    FOR grantee IN"
_NOW = _BEFORE.replace(_GRANTS, f"    EXECUTE format('ALTER TABLE public.%I {_OFTEN}', name);\n{_GRANTS}")

FORWARDS = f"""
ALTER TABLE audit_word DROP CONSTRAINT audit_word_pkey;
ALTER TABLE audit_word ADD CONSTRAINT audit_word_pkey PRIMARY KEY (word, block) INCLUDE (places);
{_NOW}
{_PARTS.replace("{how}", _OFTEN)}
"""

BACKWARDS = f"""
ALTER TABLE audit_word DROP CONSTRAINT audit_word_pkey;
ALTER TABLE audit_word ADD CONSTRAINT audit_word_pkey PRIMARY KEY (word, block);
{_BEFORE}
{_PARTS.replace("{how}", _SELDOM)}
"""
