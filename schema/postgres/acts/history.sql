-- History: what is let go once it is older than `history_kept`.

-- A time in seconds: infinity for ever, NULL where it is none. It is as the gateway writes it, `2months 29days 2h`, whose months and
-- years are not those of Postgres.
CREATE FUNCTION acts.seconds(p_value text) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_value WHEN 'for ever' THEN 'infinity'::double precision ELSE (
        SELECT sum(m.part[1]::double precision * CASE
            WHEN m.part[2] LIKE 'year%' THEN 31557600 WHEN m.part[2] LIKE 'month%' THEN 2630016
            WHEN m.part[2] LIKE 'day%' THEN 86400 WHEN m.part[2] = 'h' THEN 3600 WHEN m.part[2] = 'm' THEN 60
            WHEN m.part[2] = 's' THEN 1 WHEN m.part[2] = 'ms' THEN 1e-3 WHEN m.part[2] = 'us' THEN 1e-6
            WHEN m.part[2] = 'ns' THEN 1e-9 END)
        FROM regexp_matches(p_value, '(\d+)([a-z]+)', 'g') m (part)) END
$$;

-- The time in seconds for which something is kept by agreement, NULL where nothing is agreed: the longest of what is agreed now and of
-- what was agreed before, until all that was made under that has outlived it. So nothing goes earlier than was agreed when it
-- was made.
CREATE FUNCTION acts.agreed_s(p_name text) RETURNS double precision LANGUAGE sql STABLE AS $$
    SELECT max(acts.seconds(k.value)) FROM (
        SELECT a.value FROM fencegate.agreed a WHERE a.name = p_name
        UNION ALL
        SELECT b.value FROM fencegate.agreed_before b
        WHERE b.name = p_name AND b.until > (SELECT w.at FROM fencegate.own_time w)) k
$$;

-- Says of what was stored before this that it may be gone, in the act that removes it: no rerun of what was taken earlier is
-- decided from then on, as it may have taken effect.
CREATE FUNCTION acts.let_go(p_before timestamptz) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE fencegate.own_time w SET let_go_before = p_before WHERE w.let_go_before < p_before
$$;

-- Forgets burials of operations that are older than p_buried_s seconds of the ledger's own time, at most p_rows. With the owner's rights, as above, and
-- never what is kept by agreement.
CREATE FUNCTION acts.forget_burials(p_buried_s double precision, p_rows bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept_s  double precision := greatest(p_buried_s, acts.agreed_s('buried_kept'));
    before  timestamptz := (SELECT w.at FROM fencegate.own_time w) - kept_s * interval '1 second';
    removed bigint;
BEGIN
    DELETE FROM fencegate.operations b WHERE b.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.operations o
        WHERE o.kind = 'buried' AND o.committed_at < before
        ORDER BY o.committed_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed > 0 THEN PERFORM acts.let_go(before); END IF;
    RETURN removed;
END $$;

-- Lets go of history that is older than p_history_s seconds of the ledger's own time, at most p_rows events and p_rows grants in a pass; returns how
-- many rows were removed. The newest operation of a resource stays, whose version the next one follows; so does its newest
-- grant. An act of its own: what it holds it holds briefly, and the sweeper goes on if this fails. It has the owner's rights:
-- the role that serves may remove no history by itself.
--
-- 0. Never what is kept by agreement, whatever the caller says.
-- 1. One gateway at a time: whoever comes second does nothing.
-- 2. Events go from the first on, and with the event of a version the operation before that version. The first event that
--    is too young ends the pass, and so does the first before whose version an idempotency key still stands for an
--    operation.
-- 3. Operations that changed nothing have no event: they go by their time. What goes is said to be gone.
-- 4. Grants go in the order of their numbers, as far as the tree over the audit has leaves of them: each takes those of its
--    resource along that were before it. The highest token that is let go is kept: no number up to it is ever sealed
--    again (I15).
CREATE FUNCTION acts.prune(p_seen bigint, p_history_s double precision, p_rows bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    guard     fencegate.write_guard;
    past      fencegate.history;
    kept_s    double precision;
    too_young timestamptz;
    upto      bigint;
    highest   bigint;
    removed   bigint;
    total     bigint := 0;
BEGIN
    -- Step 0.
    kept_s := acts.agreed_s('history_kept');
    IF kept_s = 'infinity' THEN
        RETURN 0;
    END IF;
    too_young := (SELECT w.at FROM fencegate.own_time w) - greatest(p_history_s, kept_s) * interval '1 second';

    -- Step 1.
    guard := acts.begin_write(p_seen);
    SELECT * INTO past FROM fencegate.history FOR UPDATE SKIP LOCKED;
    IF past.only_row IS NULL THEN
        RETURN 0;
    END IF;

    -- Step 2. The looks at keys are scalar subqueries: the planner may answer EXISTS from a table that it reads whole.
    SELECT coalesce(min(e.number) FILTER (WHERE o.committed_at >= too_young OR o.key IS NOT NULL) - 1, max(e.number))
    INTO upto
    FROM fencegate.events e
    LEFT JOIN LATERAL (
        SELECT o.committed_at,
               (SELECT k.operation FROM fencegate.operations b
                JOIN fencegate.idempotency_keys k ON k.operation = b.id
                WHERE b.resource = o.resource AND b.version = o.version - 1 LIMIT 1) AS key
        FROM fencegate.operations o
        WHERE o.id = e.operation AND o.resource = coalesce(e.resource, o.resource) LIMIT 1) o ON true
    WHERE e.number > past.events AND e.number <= past.events + p_rows;
    IF upto > past.events THEN
        UPDATE fencegate.history h SET events = upto;
        DELETE FROM fencegate.operations d USING (
            SELECT l.resource, l.version FROM fencegate.events e
            CROSS JOIN LATERAL (
                SELECT o.resource, o.version FROM fencegate.operations o
                WHERE o.id = e.operation AND o.resource = coalesce(e.resource, o.resource) LIMIT 1) l
            WHERE e.number > past.events AND e.number <= upto OFFSET 0) l
        WHERE d.resource = l.resource AND d.version = l.version - 1;
        GET DIAGNOSTICS removed = ROW_COUNT;
        DELETE FROM fencegate.events e WHERE e.number > past.events AND e.number <= upto;
        total := total + removed + upto - past.events;
    END IF;

    -- Step 3.
    DELETE FROM fencegate.operations d WHERE d.ctid = ANY (ARRAY(
        SELECT o.ctid FROM (
            SELECT o.ctid, o.id FROM fencegate.operations o
            WHERE o.version IS NULL AND o.kind <> 'buried' AND o.committed_at < too_young
            ORDER BY o.committed_at LIMIT p_rows) o
        WHERE (SELECT k.operation FROM fencegate.idempotency_keys k WHERE k.operation = o.id LIMIT 1) IS NULL));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;
    IF total > 0 THEN PERFORM acts.let_go(too_young); END IF;

    -- Step 4.
    SELECT coalesce(min(g.number) FILTER (WHERE g.at >= too_young) - 1, max(g.number)) INTO upto
    FROM (SELECT g.number, g.at FROM fencegate.grants g
          WHERE g.number > past.grants AND g.number <= (SELECT a.upto FROM fencegate.audit_tree a)
          ORDER BY g.number LIMIT p_rows) g;
    IF upto > past.grants THEN
        WITH gone AS (
            DELETE FROM fencegate.grants g USING (
                SELECT l.resource, max(l.number) AS number FROM fencegate.grants l
                WHERE l.number > past.grants AND l.number <= upto GROUP BY l.resource OFFSET 0) l
            WHERE g.resource = l.resource AND g.number < l.number
            RETURNING g.token)
        SELECT count(*), max(g.token) INTO removed, highest FROM gone g;
        total := total + removed;
        UPDATE fencegate.history h SET grants = upto, token = greatest(h.token, highest);
    END IF;
    RETURN total;
END $$;
