-- How far the operator's records, the audit and the refused writes, can be followed.

-- Who may have entries under way in one of the operator's records: whoever inserts holds this lock on the table from
-- before it takes a number until its transaction has ended, and what it committed can be seen when it lets go. The audit
-- is in two tables.
CREATE FUNCTION acts.writers_of(p_log text) RETURNS text[] LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}')
    FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
      AND l.relation IN (('fencegate.' || p_log)::regclass,
                         (CASE p_log WHEN 'audit' THEN 'fencegate.grants' ELSE 'fencegate.rejections' END)::regclass)
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.pid IS DISTINCT FROM pg_backend_pid()
$$;

-- How far a record (audit, rejections) can be followed. The caller passes on what the previous call said: the
-- record is complete up to p_upto, and up to p_reached once all of p_writers are done. A number is taken before its
-- entry is committed, so that entries become visible in another order than that of their numbers. Whoever took a
-- number below the highest that can be seen was still writing when that one was seen, or had ended. So when all who
-- were writing then have ended, nothing up to that number is still to come. Writers pay nothing for this: no
-- column, no index, no wait. And a transaction that stays open for hours is in nobody's way unless it writes this
-- very record.
CREATE FUNCTION acts.settled(p_log text, p_upto bigint, p_reached bigint, p_writers text[])
RETURNS TABLE (upto bigint, reached bigint, writers text[]) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    upto := p_upto; reached := p_reached; writers := p_writers;
    IF NOT writers && acts.writers_of(p_log) THEN
        upto := greatest(upto, reached);
        -- Each in a statement of its own: first what can be seen, then who is writing.
        IF p_log = 'audit' THEN
            -- A number that the sequence has not given is nobody's entry: it must not lead past those to come.
            reached := (SELECT least(greatest((SELECT max(a.number) FROM fencegate.audit a),
                                              (SELECT max(g.number) FROM fencegate.grants g),
                                              0), s.last_value) FROM fencegate.audit_numbers s);
        ELSE
            reached := (SELECT max(r.number) FROM fencegate.rejections r);
        END IF;
        reached := greatest(upto, reached);
        writers := acts.writers_of(p_log);
        IF writers = '{}' THEN
            upto := reached;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Goes far ahead with the numbers of both records. When a ledger is re-fenced, some entries may be lost that
-- somebody has read. Their numbers are given to no other entries, because those would be taken for read. With the owner's
-- rights: the role that serves takes numbers one after the other, and sets none.
CREATE FUNCTION acts.skip_numbers() RETURNS void LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM setval('fencegate.audit_numbers', s.last_value + 68719476736)
    FROM fencegate.audit_numbers s;
    PERFORM setval('fencegate.rejections_number_seq', s.last_value + 68719476736)
    FROM fencegate.rejections_number_seq s;
END $$;
