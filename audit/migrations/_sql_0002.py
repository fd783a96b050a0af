"""The tree over the log, as SQL: places, tiles, checkpoints, cosignatures, and the one function that extends them."""

TABLES = """
-- The place of each event in the tree: contiguous from 0, given once, in the order in which the sequencer saw commits.
CREATE TABLE audit_sequence (
    index bigint NOT NULL CONSTRAINT audit_sequence_pkey PRIMARY KEY,
    event_id uuid NOT NULL CONSTRAINT audit_sequence_once UNIQUE,
    at timestamptz NOT NULL,
    CONSTRAINT audit_sequence_index_positive CHECK (index >= 0)
);

-- c2sp.org/tlog-tiles: up to 256 hashes of a level side by side; the last one of a level grows at its right edge.
CREATE TABLE audit_tile (
    level smallint NOT NULL,
    number bigint NOT NULL,
    hashes bytea NOT NULL,
    CONSTRAINT audit_tile_pkey PRIMARY KEY (level, number),
    CONSTRAINT audit_tile_width CHECK (octet_length(hashes) BETWEEN 32 AND 8192 AND octet_length(hashes) % 32 = 0)
);
-- Hashes do not compress: trying costs more than the rest of the write.
ALTER TABLE audit_tile ALTER COLUMN hashes SET STORAGE EXTERNAL;

CREATE TABLE audit_checkpoint (
    origin text NOT NULL,
    size bigint NOT NULL,
    signed_at timestamptz NOT NULL,
    root bytea NOT NULL,
    note text NOT NULL,
    CONSTRAINT audit_checkpoint_pkey PRIMARY KEY (origin, size, signed_at),
    CONSTRAINT audit_checkpoint_root_length CHECK (octet_length(root) = 32)
);

-- A witness's signature line on the checkpoint of that size.
CREATE TABLE audit_cosignature (
    origin text NOT NULL,
    size bigint NOT NULL,
    witness text NOT NULL,
    cosigned_at timestamptz NOT NULL,
    line text NOT NULL,
    CONSTRAINT audit_cosignature_pkey PRIMARY KEY (origin, size, witness, cosigned_at)
);
"""

TRIGGERS = """
CREATE FUNCTION audit_keep_tile() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF (NEW.level, NEW.number) IS DISTINCT FROM (OLD.level, OLD.number)
        OR octet_length(NEW.hashes) <= octet_length(OLD.hashes)
        OR substr(NEW.hashes, 1, octet_length(OLD.hashes)) <> OLD.hashes
    THEN
        RAISE EXCEPTION 'The tree only grows: a tile is extended at its right edge, or stays.'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER audit_tile_grow BEFORE UPDATE ON audit_tile FOR EACH ROW EXECUTE FUNCTION audit_keep_tile();
CREATE TRIGGER audit_tile_keep BEFORE DELETE ON audit_tile FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_sequence_keep BEFORE UPDATE OR DELETE ON audit_sequence
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_checkpoint_keep BEFORE UPDATE OR DELETE ON audit_checkpoint
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_cosignature_keep BEFORE UPDATE OR DELETE ON audit_cosignature
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_tile_keep_all BEFORE TRUNCATE ON audit_tile
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_sequence_keep_all BEFORE TRUNCATE ON audit_sequence
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_checkpoint_keep_all BEFORE TRUNCATE ON audit_checkpoint
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_cosignature_keep_all BEFORE TRUNCATE ON audit_cosignature
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
"""

ADVANCE = """
-- The root over the hashes of a full tile: RFC 6962 nodes, pair by pair, eight times.
CREATE FUNCTION audit_tile_root(hashes bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    WHILE octet_length(hashes) > 32 LOOP
        hashes := (
            SELECT string_agg(sha256('\\x01'::bytea || substr(hashes, pair * 64 + 1, 64)), ''::bytea ORDER BY pair)
            FROM generate_series(0, octet_length(hashes) / 64 - 1) AS pair);
    END LOOP;
    RETURN hashes;
END $$;

-- Puts `fresh` leaf hashes at the right edge, from index `first` on, and finishes what they complete above.
CREATE FUNCTION audit_extend_tiles(first bigint, fresh bytea) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    at_level smallint := 0;
    at_tile bigint;
    edge bytea;
    part bytea;
    above bytea;
BEGIN
    WHILE octet_length(fresh) > 0 LOOP
        at_tile := first / 256;
        edge := coalesce((SELECT hashes FROM audit_tile WHERE level = at_level AND number = at_tile), ''::bytea);
        IF octet_length(edge) <> first % 256 * 32 THEN
            RAISE EXCEPTION 'The tree is damaged: level % has % hashes in tile %, not %.',
                at_level, octet_length(edge) / 32, at_tile, first % 256 USING ERRCODE = 'data_corrupted';
        END IF;
        fresh := edge || fresh;
        above := ''::bytea;
        FOR ahead IN 0 .. (octet_length(fresh) - 1) / 8192 LOOP
            part := substr(fresh, ahead * 8192 + 1, 8192);
            INSERT INTO audit_tile (level, number, hashes) VALUES (at_level, at_tile + ahead, part)
            ON CONFLICT (level, number) DO UPDATE SET hashes = excluded.hashes;
            IF octet_length(part) = 8192 THEN
                above := above || audit_tile_root(part);
            END IF;
        END LOOP;
        first := at_tile;
        fresh := above;
        at_level := at_level + 1;
    END LOOP;
END $$;

-- Gives pending events the next places in the tree: `p_limit` at most, in one transaction with their hashes. Stops
-- where an event's hash is not that of its leaf. Returns the sizes before and after; nulls while another does it.
-- By key alone: the outbox was empty when statistics were taken, and a planner that believes them compares each row of
-- a backlog with each. Rows of the outbox are never changed, so that a row stays where it was seen.
CREATE FUNCTION audit_advance(p_limit integer, OUT old_size bigint, OUT new_size bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    rows tid[];
    ids uuid[];
    times timestamptz[];
    fresh bytea;
    bad uuid;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('audit_advance')) THEN
        RETURN;
    END IF;
    SELECT coalesce(max(index) + 1, 0) INTO old_size FROM audit_sequence;
    new_size := old_size;
    SELECT array_agg(place), array_agg(at ORDER BY at, event_id), array_agg(event_id ORDER BY at, event_id),
        string_agg(hash, ''::bytea ORDER BY at, event_id), (array_agg(event_id) FILTER (WHERE NOT is_whole))[1]
    INTO rows, times, ids, fresh, bad
    FROM (
        SELECT p.place, p.at, p.event_id, h.hash, e.id IS NOT NULL AND h.hash = e.leaf_hash AS is_whole
        FROM (SELECT ctid AS place, at, event_id FROM audit_pending ORDER BY at, event_id LIMIT p_limit) AS p
        LEFT JOIN audit_event AS e ON e.at = p.at AND e.id = p.event_id
        CROSS JOIN LATERAL (SELECT sha256('\\x00'::bytea || e.leaf) OFFSET 0) AS h (hash)
    ) AS taken;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'Event % is missing, or its hash is not that of its leaf.', bad
            USING ERRCODE = 'data_corrupted';
    END IF;
    IF ids IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO audit_sequence (index, event_id, at)
    SELECT old_size + place - 1, id, time FROM unnest(ids, times) WITH ORDINALITY AS taken (id, time, place);
    PERFORM audit_extend_tiles(old_size, fresh);
    DELETE FROM audit_pending WHERE ctid = ANY(rows);
    new_size := old_size + cardinality(ids);
END $$;

-- Publishes a signed checkpoint; whether it is a good one, is for whoever has the verifier key to say.
CREATE FUNCTION audit_store_checkpoint(p_origin text, p_size bigint, p_root bytea, p_note text)
RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit_checkpoint (origin, size, signed_at, root, note)
    VALUES (p_origin, p_size, clock_timestamp(), p_root, p_note) RETURNING signed_at
$$;

CREATE FUNCTION audit_store_cosignature(p_origin text, p_size bigint, p_witness text, p_line text)
RETURNS timestamptz LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit_cosignature (origin, size, witness, cosigned_at, line)
    VALUES (p_origin, p_size, p_witness, clock_timestamp(), p_line) RETURNING cosigned_at
$$;
"""

RIGHTS = """
REVOKE ALL ON FUNCTION audit_keep_tile(), audit_tile_root(bytea), audit_extend_tiles(bigint, bytea),
    audit_advance(integer), audit_store_checkpoint(text, bigint, bytea, text),
    audit_store_cosignature(text, bigint, text, text)
FROM PUBLIC;
REVOKE ALL ON audit_sequence, audit_tile, audit_checkpoint, audit_cosignature FROM PUBLIC;
"""

FORWARDS = TABLES + TRIGGERS + ADVANCE + RIGHTS

BACKWARDS = """
DROP TABLE audit_sequence, audit_tile, audit_checkpoint, audit_cosignature CASCADE;
DROP FUNCTION audit_store_cosignature(text, bigint, text, text), audit_store_checkpoint(text, bigint, bytea, text),
    audit_advance(integer), audit_extend_tiles(bigint, bytea), audit_tile_root(bytea), audit_keep_tile();
"""
