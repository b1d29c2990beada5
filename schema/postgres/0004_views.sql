-- What the ledger shows, the epoch, and the sweeper.

-- Resources as everybody may see them. A break that has come due shows as broken only once it is
-- stored, so that it never un-breaks.
CREATE VIEW fencegate.views AS
SELECT f.resource,
       CASE WHEN f.hold NOT IN ('held', 'draining') THEN f.hold
            WHEN f.deadline <= clock_timestamp() THEN 'expired'
            WHEN f.token <= (SELECT g.floor FROM fencegate.seal_guard g) THEN 'expired'
            WHEN f.break_due IS NOT NULL THEN 'breaking'
            WHEN f.hold = 'draining' THEN 'draining'
            ELSE 'leased' END AS state,
       f.owner,
       fencegate.micros(f.acquired_at) AS acquired_us,
       fencegate.micros(f.renewed_at) AS renewed_us,
       fencegate.millis(clock_timestamp() - f.acquired_at) AS age_ms,
       fencegate.millis(clock_timestamp() - f.renewed_at) AS renewed_ms,
       f.ttl_ms,
       fencegate.millis(least(f.deadline, f.break_due) - clock_timestamp()) AS remaining_ms,
       fencegate.millis(f.break_due - clock_timestamp()) AS breaks_in_ms,
       f.version, f.objects, f.grants, f.token, f.frozen, f.protected,
       (SELECT count(*) FROM fencegate.waiter_resources q WHERE q.resource = f.resource) AS waiting
FROM fencegate.fences f
WHERE f.hold <> 'none';

-- Locks by their ids.
CREATE FUNCTION fencegate.lock_records(p_locks uuid[])
RETURNS TABLE (
    resources text[], token bigint, owner text, ttl_ms bigint, acquired_us bigint,
    hold_until_us bigint, metadata text, ended text, ended_us bigint, state text,
    remaining_ms bigint, versions bigint[], id uuid, superseded_by text, renewed_us bigint,
    break_due_us bigint, break_in_ms bigint, unconfirmed boolean, frozen text)
LANGUAGE sql VOLATILE AS $$
    SELECT l.resources, l.token, l.owner, l.ttl_ms, fencegate.micros(l.acquired_at),
           fencegate.micros(l.hold_until), nullif(l.metadata, '{}')::text,
           CASE WHEN l.ended IS NULL AND l.token <= g.floor THEN 'void' ELSE l.ended END,
           CASE WHEN l.ended IS NULL AND l.token <= g.floor THEN fencegate.micros(clock_timestamp())
                ELSE fencegate.micros(l.ended_at) END,
           v.state, v.remaining_ms, fencegate.versions(l.resources), l.id,
           (SELECT r.superseded_by FROM fencegate.grants r
            WHERE r.resource = ANY (l.resources) AND r.token = l.token
              AND r.superseded_by IS NOT NULL
            ORDER BY r.superseded_at, r.resource LIMIT 1),
           fencegate.micros(coalesce(v.renewed_at, l.acquired_at)),
           fencegate.micros(v.break_due), fencegate.millis(v.break_due - clock_timestamp()),
           l.ended IS NULL AND l.token > g.floor AND l.ttl_ms = fencegate.infinite_ms()
               AND v.ttl_ms < l.ttl_ms,
           (SELECT f.frozen FROM fencegate.fences f
            WHERE f.resource = ANY (l.resources) AND f.frozen IS NOT NULL
            ORDER BY f.resource LIMIT 1)
    FROM fencegate.locks l
    CROSS JOIN fencegate.seal_guard g
    LEFT JOIN LATERAL (
        SELECT v.state, v.remaining_ms, f.renewed_at, f.break_due, f.ttl_ms
        FROM fencegate.views v JOIN fencegate.fences f USING (resource)
        WHERE v.resource = ANY (l.resources) AND f.lock_id = l.id
        ORDER BY f.break_due NULLS LAST, f.deadline, v.resource LIMIT 1) v ON true
    WHERE l.id = ANY (p_locks)
$$;

-- The epoch, from a ledger that is where it should be.
CREATE FUNCTION fencegate.epoch(p_seen bigint)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM fencegate.assert_place(g.timeline, g.system_id, g.halted, p_seen) FROM fencegate.seal_guard g;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;

-- Records that the mint carries this nonce. In place of another nonce only while the epoch is not
-- open and nothing was ever sealed: then no number has been used yet.
CREATE FUNCTION fencegate.open_epoch(p_seen bigint, p_nonce uuid)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE;
    UPDATE fencegate.seal_guard g SET nonce = p_nonce, open = true
    WHERE NOT g.open AND (g.nonce = p_nonce OR NOT EXISTS (SELECT FROM fencegate.grants));
    RETURN QUERY SELECT * FROM fencegate.epoch(p_seen);
END $$;

-- Stores breaks that have come due and removes what has been kept long enough, at most p_rows of
-- each kind, and refused writes but the newest p_rejections_max, and p_unknown_max of those with unknown tokens. Rows that somebody is using are left to the next pass.
CREATE FUNCTION fencegate.sweep(
    p_seen bigint, p_keys_s double precision, p_ended_s double precision,
    p_buried_s double precision, p_rejections_max bigint, p_unknown_max bigint, p_rows bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard   fencegate.write_guard;
    t       timestamptz := clock_timestamp();
    due     text[];
    removed bigint;
    total   bigint := 0;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);

    SELECT array_agg(s.resource) INTO due FROM (
        SELECT f.resource FROM fencegate.fences f
        WHERE f.break_due IS NOT NULL AND f.hold IN ('held', 'draining') AND f.break_due <= t
        ORDER BY f.resource LIMIT p_rows FOR NO KEY UPDATE SKIP LOCKED) s;
    IF due IS NOT NULL THEN
        PERFORM fencegate.settle(due, t);
        total := total + cardinality(due);
    END IF;

    DELETE FROM fencegate.idempotency_keys k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.idempotency_keys o
        WHERE o.kept_until IS NULL AND o.stored_at < t - p_keys_s * interval '1 second'
        ORDER BY o.stored_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    -- Those whose writers said how long.
    DELETE FROM fencegate.idempotency_keys k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.idempotency_keys o
        WHERE o.kept_until < t
        ORDER BY o.kept_until LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    DELETE FROM fencegate.locks l WHERE l.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.locks o
        WHERE o.ended_at < t - p_ended_s * interval '1 second'
        ORDER BY o.ended_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

    DELETE FROM fencegate.buried b WHERE b.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.buried o
        WHERE o.buried_at < t - p_buried_s * interval '1 second'
        ORDER BY o.buried_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    total := total + removed;

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
    RETURN total + removed + fencegate.sweep_queue(p_rows)
        + fencegate.sweep_intents(greatest(p_keys_s, p_buried_s), p_rows);
END $$;
