"""An index of words, as SQL: in which blocks of places a word is, made behind the writers, undone with a payload."""

TABLES = """
-- A block is 256 places of the tree. Of each word at most its first 16 characters are here: what is found is read again.
CREATE TABLE audit_word (
    word text COLLATE "C" NOT NULL,
    block bigint NOT NULL,
    CONSTRAINT audit_word_pkey PRIMARY KEY (word, block),
    CONSTRAINT audit_word_short CHECK (length(word) BETWEEN 1 AND 16)
) PARTITION BY RANGE (block);

-- The blocks that were read, from the first one on without a gap: of which times their events are, and which of them
-- must be read again.
CREATE TABLE audit_word_block (
    block bigint NOT NULL CONSTRAINT audit_word_block_pkey PRIMARY KEY,
    oldest timestamptz NOT NULL,
    newest timestamptz NOT NULL,
    is_due boolean NOT NULL DEFAULT false
);
CREATE INDEX audit_word_block_due ON audit_word_block (block) WHERE is_due;
"""

WORDS = r"""
-- The words of a text, as often as it has them and in their order: runs of letters and digits, in small letters. A payload is JSON, where a line's end is \n: the
-- letter of an escape is part of no word.
CREATE FUNCTION audit_words(told text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(word, 16)
    FROM regexp_split_to_table(lower(regexp_replace(told, '\\[bfnrt\\"]', ' ', 'g')), '[^[:alnum:]]+') AS word
    WHERE word <> ''
$$;

-- What a search by words looks through, of event `e` with that payload: as audit.filters.build_words does. Of the id,
-- which is random but for its time, only the last part.
CREATE FUNCTION audit_told(e audit_event, body text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT concat_ws(' ', right(e.id::text, 12), e.kind, e.actor_id, e.on_behalf_of, e.agent, e.target, e.plan_id,
        e.operation, e.task_id, e.request_id, body)
$$;

-- The part of the index for that block and its neighbours, a million events, where there is none yet.
CREATE FUNCTION audit_make_words(p_block bigint) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    number bigint := p_block / 4096;
    name text := 'audit_word_' || number;
    grantee text;
BEGIN
    IF to_regclass('public.' || name) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.audit_word INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE public.audit_word ATTACH PARTITION public.%I FOR VALUES FROM (%s) TO (%s)',
        name, number * 4096, (number + 1) * 4096);
    FOR grantee IN
        SELECT DISTINCT CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE pg_class.oid = to_regclass('public.' || name) AND acl.grantee <> relowner
    LOOP
        EXECUTE format('REVOKE ALL ON public.%I FROM %s', name, grantee);
    END LOOP;
END $$;

-- Reads at most `p_blocks` full blocks, those that are due again first. Returns how many; null while somebody else reads,
-- or erases: what is being erased is not read into the index once more. By key alone, as audit_advance: a planner
-- without statistics would read the whole log for each block.
CREATE FUNCTION audit_read_words(p_blocks integer) RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER
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
        INSERT INTO audit_word (word, block)
        SELECT DISTINCT word, current
        FROM audit_sequence AS s
        JOIN audit_event AS e ON e.at = s.at AND e.id = s.event_id
        LEFT JOIN audit_payload AS p ON p.event_id = s.event_id
        CROSS JOIN LATERAL audit_words(audit_told(e, p.body)) AS word
        WHERE s.index >= current * 256 AND s.index < (current + 1) * 256
        ORDER BY word
        ON CONFLICT (word, block) DO NOTHING;
        INSERT INTO audit_word_block (block, oldest, newest)
        SELECT current, min(at), max(at) FROM audit_sequence WHERE index >= current * 256 AND index < (current + 1) * 256
        ON CONFLICT (block) DO UPDATE SET is_due = false;
    END LOOP;
    RETURN cardinality(reading);
END $$;

-- With a payload its words go, at once. Others of the block may have the same: it is read again.
CREATE FUNCTION audit_forget_words() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('audit_words'));
    UPDATE audit_word_block AS b SET is_due = true
    FROM gone JOIN audit_sequence AS s ON s.event_id = gone.event_id
    WHERE b.block = s.index / 256 AND NOT b.is_due;
    DELETE FROM audit_word AS w
    USING (
        SELECT DISTINCT word, s.index / 256 AS block
        FROM gone JOIN audit_sequence AS s ON s.event_id = gone.event_id
        CROSS JOIN LATERAL audit_words(gone.body) AS word
    ) AS lost
    WHERE w.word = lost.word AND w.block = lost.block;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_payload_words AFTER DELETE ON audit_payload REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION audit_forget_words();
"""

RIGHTS = """
REVOKE ALL ON audit_word, audit_word_block FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_words(text), audit_told(audit_event, text), audit_read_words(integer),
    audit_make_words(bigint), audit_forget_words() FROM PUBLIC;
"""

FORWARDS = TABLES + WORDS + RIGHTS

BACKWARDS = """
DROP TRIGGER audit_payload_words ON audit_payload;
DROP FUNCTION audit_read_words(integer), audit_make_words(bigint), audit_forget_words(),
    audit_told(audit_event, text), audit_words(text);
DROP TABLE audit_word, audit_word_block;
"""
