-- The tree over the audit: one step of its growth.

-- Takes a step from p_from leaves of p_generation, unless another gateway has taken it: then nothing changes. The leaves are those of
-- the tiles that are new or have more than before, each tile whole; p_full says which of them are full, and p_root their
-- roots; p_fork is what the audit is to say of the first step of a generation. Returns whether it did.
CREATE FUNCTION acts.grow_audit_tree(
    p_seen bigint, p_from bigint, p_generation bigint, p_size bigint, p_upto bigint, p_roots bytea, p_note text,
    p_tile bigint[], p_number bigint[], p_grant boolean[], p_digest bytea[], p_full bigint[], p_root bytea[],
    p_fork text)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    -- Not on a ledger that may have lost commits; nor once it was re-fenced, since the entries may be among those lost.
    guard := acts.begin_write(p_seen);
    UPDATE fencegate.audit_tree t SET size = p_size, upto = p_upto, roots = p_roots, note = p_note
    WHERE t.size = p_from AND guard.generation = p_generation;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO fencegate.audit_tiles (tile, numbers, grants, digests, root)
    SELECT l.tile, l.numbers, l.grants, l.digests, f.root
    FROM (SELECT l.tile, array_agg(l.number ORDER BY l.i) AS numbers, array_agg(l.is_grant ORDER BY l.i) AS grants,
                 string_agg(l.digest, '' ORDER BY l.i) AS digests
          FROM unnest(p_tile, p_number, p_grant, p_digest) WITH ORDINALITY l (tile, number, is_grant, digest, i)
          GROUP BY l.tile) l
    LEFT JOIN unnest(p_full, p_root) f (tile, root) ON f.tile = l.tile
    ON CONFLICT (tile) DO UPDATE
    SET numbers = excluded.numbers, grants = excluded.grants, digests = excluded.digests, root = excluded.root;
    IF p_fork IS NOT NULL THEN
        PERFORM acts.audit(clock_timestamp(), 'fork', NULL, NULL, NULL, p_fork, NULL, NULL);
    END IF;
    RETURN true;
END $$;

-- Keeps the newest checkpoint that a witness has signed.
CREATE FUNCTION acts.keep_witnessed(p_seen bigint, p_note text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM acts.assert_place(g.timeline, g.system_id, g.halted, g.acts_min, g.tables, g.started, p_seen) FROM fencegate.write_guard g;
    UPDATE fencegate.audit_tree t SET witnessed = p_note;
END $$;
