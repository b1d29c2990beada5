-- What principals have in the ledger.

-- Adds what has changed to what was counted, and counts the locks; unless another gateway is at it, or was within this time.
CREATE FUNCTION acts.count_stocks(p_within_ms int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    PERFORM FROM fencegate.stocks_counted c
    WHERE c.at < t - p_within_ms * interval '1 millisecond' OR c.at > t
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH taken AS (DELETE FROM fencegate.stock_changes c RETURNING c.principal, c.resources, c.keys, c.bytes)
    INSERT INTO fencegate.stocks AS s (principal, resources, keys, bytes)
    SELECT c.principal, sum(c.resources), sum(c.keys), sum(c.bytes) FROM taken c GROUP BY c.principal
    ON CONFLICT (principal) DO UPDATE
    SET resources = s.resources + excluded.resources, keys = s.keys + excluded.keys, bytes = s.bytes + excluded.bytes;
    WITH live AS (
        SELECT f.principal, count(DISTINCT f.lock_id) AS locks
        FROM fencegate.fences f CROSS JOIN fencegate.seal_guard g
        WHERE acts.is_taken(f.hold) AND f.principal IS NOT NULL
          AND acts.keeps_out(acts.hold_at(f.hold, f.break_due, t), f.token, f.deadline, g.floor, t)
        GROUP BY f.principal),
    counted AS (
        SELECT coalesce(l.principal, s.principal) AS principal, coalesce(l.locks, 0) AS locks
        FROM live l FULL JOIN (SELECT s.principal FROM fencegate.stocks s WHERE s.locks <> 0) s
             ON s.principal = l.principal)
    INSERT INTO fencegate.stocks AS s (principal, locks)
    SELECT c.principal, c.locks FROM counted c
    ON CONFLICT (principal) DO UPDATE SET locks = excluded.locks WHERE s.locks <> excluded.locks;
    UPDATE fencegate.stocks_counted c SET at = t;
END $$;
