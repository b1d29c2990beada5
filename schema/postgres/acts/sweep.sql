-- The sweeper.

-- At most p_rows of each kind. Rows that somebody is using are left to the next pass.
-- 0. Never what is kept by agreement, whatever the caller says.
-- 1. Breaks that have come due are stored.
-- 2. Keys, locks that have ended and burials that have been kept long enough are removed: by the ledger's own time.
-- 3. So are refused writes, but the newest p_rejections_max, and p_unknown_max of those with unknown tokens.
-- 4. So are waiters and intents.
CREATE FUNCTION acts.sweep(
    p_seen bigint, p_keys_s double precision, p_ended_s double precision,
    p_buried_s double precision, p_rejections_max bigint, p_unknown_max bigint, p_rows bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard   fencegate.write_guard;
    t       timestamptz := clock_timestamp();
    own     timestamptz := (SELECT o.at FROM fencegate.own_time o);
    due     text[];
    removed bigint;
    total   bigint := 0;
BEGIN
    guard := acts.begin_write(p_seen);
    p_keys_s := greatest(p_keys_s, acts.agreed_s('keys_kept'));
    p_ended_s := greatest(p_ended_s, acts.agreed_s('ended_locks_kept'));
    p_buried_s := greatest(p_buried_s, acts.agreed_s('buried_kept'));

    SELECT array_agg(s.resource) INTO due FROM (
        SELECT f.resource FROM fencegate.fences f
        WHERE f.break_due IS NOT NULL AND acts.stands(f.hold) AND f.break_due <= t
        ORDER BY f.resource LIMIT p_rows FOR NO KEY UPDATE SKIP LOCKED) s;
    IF due IS NOT NULL THEN
        PERFORM acts.settle(due, t);
        total := total + cardinality(due);
    END IF;

    DELETE FROM fencegate.idempotency_keys k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.idempotency_keys o
        WHERE o.kept_until IS NULL AND o.stored_at < own - p_keys_s * interval '1 second'
        ORDER BY o.stored_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    -- Those whose writers said how long.
    DELETE FROM fencegate.idempotency_keys k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.idempotency_keys o
        WHERE o.kept_until < own
        ORDER BY o.kept_until LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    DELETE FROM fencegate.locks l WHERE l.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.locks o
        WHERE o.ended_at < own - p_ended_s * interval '1 second'
        ORDER BY o.ended_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    DELETE FROM fencegate.buried b WHERE b.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.buried o
        WHERE o.buried_at < own - p_buried_s * interval '1 second'
        ORDER BY o.buried_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    total := total + acts.forget_burials(p_buried_s, p_rows);

    DELETE FROM fencegate.rejections r WHERE r.number IN (
        SELECT o.number FROM fencegate.rejections o
        WHERE o.minute IS NULL AND o.number <= (
            SELECT n.number FROM fencegate.rejections n WHERE n.minute IS NULL
            ORDER BY n.number DESC OFFSET p_rejections_max LIMIT 1)
        ORDER BY o.number LIMIT p_rows FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    -- Those with made-up tokens have room of their own, and less: they cannot push the others out.
    DELETE FROM fencegate.rejections r WHERE r.number IN (
        SELECT o.number FROM fencegate.rejections o
        WHERE o.minute IS NOT NULL AND o.reason = 'fence-token-unknown' AND o.number <= (
            SELECT n.number FROM fencegate.rejections n WHERE n.reason = 'fence-token-unknown'
            ORDER BY n.number DESC OFFSET p_unknown_max LIMIT 1)
        ORDER BY o.number LIMIT p_rows FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN total + removed + acts.sweep_queue(p_rows)
        + acts.sweep_intents(greatest(p_keys_s, p_buried_s), p_rows);
END $$;
