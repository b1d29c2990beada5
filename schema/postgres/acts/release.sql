-- Release: a lock is released.

-- What became of one release.
CREATE TYPE acts.released AS (
    verdict   text,
    held_ms   bigint,
    resources text[],
    token     bigint
);

-- What becomes of one release that is not as simple as nearly all are. The first that applies decides:
-- 1. An id that is just being sealed or buried, or whose lock came after the fences were locked: busy.
-- 2. An id of another principal: it is not known (I16).
-- 3. An id that no lock has leaves the queue, and is buried, so that a grant on its way under that id can never be
--    sealed; unless p_bury says that it must not be.
-- 4. A lock that has ended. One that ended on only some of its resources is released on the others.
-- 5. With p_since (microseconds), the lock is released only if its ttl last began at that very time. The times are
--    compared for equality, so that no clock step makes a renewal older than its grant. NULL releases in any case.
CREATE FUNCTION acts.release_further(
    p_lock uuid, p_since bigint, p_bury boolean, p_principal text, p_got text[], p_got_ids uuid[], p_floor bigint,
    p_now timestamptz)
RETURNS acts.released LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    item   acts.released;
    known  fencegate.locks;
    waiter fencegate.waiters;
BEGIN
    -- Step 1.
    SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock;
    IF p_lock <> ALL (p_got_ids) OR NOT known.resources <@ p_got THEN
        item.verdict := 'busy';
        RETURN item;
    END IF;

    -- Step 2.
    SELECT * INTO waiter FROM fencegate.waiters w WHERE w.lock_id = p_lock;
    IF known.id IS NOT NULL AND known.principal IS DISTINCT FROM p_principal
       OR waiter.ticket IS NOT NULL AND waiter.principal IS DISTINCT FROM p_principal THEN
        item.verdict := 'not_found';
        RETURN item;
    END IF;

    -- Step 3.
    IF known.id IS NULL THEN
        item.resources := acts.leave(p_lock);
        IF item.resources IS NULL AND NOT p_bury AND NOT EXISTS (
                SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock) THEN
            item.verdict := 'unknown';
        ELSE
            PERFORM acts.bury('lock', p_lock, p_now);
            item.verdict := CASE WHEN item.resources IS NULL THEN 'buried' ELSE 'left' END;
        END IF;
        RETURN item;
    END IF;

    -- Step 4.
    PERFORM acts.settle(known.resources, p_now);
    SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock;
    IF acts.is_void(known.token, p_floor) OR known.ended NOT IN ('superseded', 'broken')
       OR (known.ended IS NOT NULL AND NOT EXISTS (
               SELECT FROM fencegate.fences f
               WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id AND acts.stands(f.hold))) THEN
        item.verdict := 'ended';
        RETURN item;
    END IF;

    -- Step 5.
    IF known.ended IS NULL AND EXISTS (
            SELECT FROM fencegate.fences f
            WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id
              AND fencegate.micros(f.renewed_at) <> p_since) THEN
        item.verdict := 'kept';
        RETURN item;
    END IF;
    item.verdict := 'released';
    item.held_ms := fencegate.millis(p_now - known.acquired_at);
    item.token := known.token;
    UPDATE fencegate.locks l SET ended = 'released', ended_at = acts.stamp(p_now) WHERE l.id = known.id AND l.ended IS NULL;
    WITH released AS (
        UPDATE fencegate.fences f SET hold = 'released', break_due = NULL, ended_at = p_now
        WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id AND acts.stands(f.hold)
        RETURNING f.resource)
    SELECT array_agg(r.resource ORDER BY r.resource) INTO item.resources FROM released r;
    RETURN item;
END $$;

-- Ends locks at their holders' wish.
--
-- 1. Guard, then the fences of the locks, in name order. What somebody else has locked is skipped: busy.
-- 2. Nothing is decided of those whose rules of access have moved (I17).
--    A later statement looks for what nearly all other releases are: in any case (no p_since), of a lock of that
--    principal that is in force on all of its resources. These are locked, so nobody else can touch the lock's row. For all others the ids are
--    locked, then the rows of locks.
-- 3. Locks that are so simple are released.
-- 4. What is not so simple is decided one by one (`release_further`).
CREATE FUNCTION acts.release(
    p_seen bigint, p_wait_ms int, p_lock uuid[], p_since bigint[], p_bury boolean[], p_principal text[],
    p_rules bigint[])
RETURNS TABLE (
    verdict text, held_ms bigint, resources text[], number bigint, waited_for boolean,
    flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard   fencegate.write_guard;
    t       timestamptz;
    got     text[];
    got_ids uuid[];
    items   acts.released[];
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences_of(p_lock, p_wait_ms);
    t := clock_timestamp();

    -- Step 2.
    SELECT array_agg(CASE WHEN acts.rules_moved(p_rules[r.i], guard.access)
                              THEN ROW('rules_moved', NULL, NULL, NULL)::acts.released
                          WHEN l.in_force THEN ROW('released', l.held_ms, l.resources, l.token)::acts.released END
                     ORDER BY r.i)
    INTO items
    FROM (SELECT generate_series(1, cardinality(p_lock)) AS i) r
    LEFT JOIN LATERAL (
        SELECT l.resources, l.token, fencegate.millis(t - l.acquired_at) AS held_ms,
               (SELECT bool_and(acts.is_in_force(f, l.id, guard.floor))
                FROM fencegate.fences f WHERE f.resource = ANY (l.resources)) AS in_force
        FROM fencegate.locks l
        WHERE l.id = p_lock[r.i] AND l.ended IS NULL AND l.resources <@ got
          AND l.principal IS NOT DISTINCT FROM p_principal[r.i]
          AND p_since[r.i] IS NULL AND array_position(p_lock, p_lock[r.i]) = r.i OFFSET 0) l ON true;
    IF array_position(items, NULL) IS NOT NULL THEN
        got_ids := acts.lock_ids(p_lock, p_wait_ms);
        PERFORM acts.lock_locks(got, got_ids);
    END IF;

    -- Step 3.
    IF cardinality(array_remove(items, NULL)) > 0 THEN
        UPDATE fencegate.locks l SET ended = 'released', ended_at = acts.stamp(t)
        WHERE l.id = ANY (ARRAY(SELECT p_lock[i] FROM generate_series(1, cardinality(p_lock)) i
                                WHERE (items[i]).verdict = 'released'));
        UPDATE fencegate.fences f SET hold = 'released', ended_at = t
        WHERE f.resource = ANY (ARRAY(SELECT unnest(d.resources) FROM unnest(items) d));
    END IF;

    -- Step 4.
    FOR i IN 1 .. cardinality(p_lock) LOOP
        IF items[i] IS NULL THEN
            items[i] := acts.release_further(p_lock[i], p_since[i], p_bury[i], p_principal[i], got, got_ids, guard.floor, t);
        END IF;
    END LOOP;

    RETURN QUERY
    SELECT d.verdict, d.held_ms, d.resources, d.token - g.base,
           d.verdict = 'released' AND EXISTS (
               SELECT FROM fencegate.waiter_resources q WHERE q.resource = ANY (d.resources)),
           acts.flushed()
    FROM unnest(items) d CROSS JOIN fencegate.seal_guard g;
END $$;
