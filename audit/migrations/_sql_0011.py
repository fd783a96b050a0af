"""At which places of its block a word is, so that no event is read that cannot have it."""

from audit.migrations._sql_0007 import WORDS

FORWARDS = r"""
-- The first bit is the block's first place. None: a part of the index that was made without, where it may be any of them.
ALTER TABLE audit_word ADD COLUMN places bit(256);

-- Reads at most `p_blocks` full blocks, those that are due again first. Returns how many; null while somebody else reads,
-- or erases: what is being erased is not read into the index once more. By key alone, as audit_advance: a planner
-- without statistics would read the whole log for each block.
CREATE OR REPLACE FUNCTION audit_read_words(p_blocks integer) RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    first bigint;
    full_blocks bigint;
    reading bigint[];
    current bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('audit_words')) THEN
        RETURN NULL;
    END IF;
    reading := ARRAY(SELECT block FROM audit_word_block WHERE is_due ORDER BY block LIMIT p_blocks);
    SELECT coalesce(max(block) + 1, 0) INTO first FROM audit_word_block;
    SELECT coalesce(max(index) + 1, 0) / 256 INTO full_blocks FROM audit_sequence;
    reading := reading
        || ARRAY(SELECT generate_series(first, least(full_blocks, first + p_blocks - cardinality(reading)) - 1));
    FOREACH current IN ARRAY reading LOOP
        PERFORM audit_make_words(current);
        INSERT INTO audit_word (word, block, places)
        SELECT word, current, bit_or(set_bit(repeat('0', 256)::bit(256), (s.index % 256)::integer, 1))
        FROM audit_sequence AS s
        JOIN audit_event AS e ON e.at = s.at AND e.id = s.event_id
        LEFT JOIN audit_payload AS p ON p.event_id = s.event_id
        CROSS JOIN LATERAL audit_words(audit_told(e, p.body)) AS word
        WHERE s.index >= current * 256 AND s.index < (current + 1) * 256
        GROUP BY word
        ORDER BY word
        ON CONFLICT (word, block) DO UPDATE SET places = excluded.places
            WHERE audit_word.places IS DISTINCT FROM excluded.places;
        INSERT INTO audit_word_block (block, oldest, newest)
        SELECT current, min(at), max(at) FROM audit_sequence WHERE index >= current * 256 AND index < (current + 1) * 256
        ON CONFLICT (block) DO UPDATE SET is_due = false;
    END LOOP;
    RETURN cardinality(reading);
END $$;
"""

_BEFORE = WORDS[WORDS.index("CREATE FUNCTION audit_read_words") :]

BACKWARDS = (
    "CREATE OR REPLACE FUNCTION"
    + _BEFORE[len("CREATE FUNCTION") : _BEFORE.index("END $$;")]
    + "END $$; ALTER TABLE audit_word DROP COLUMN places;"
)
