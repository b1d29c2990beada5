-- Release: a lock is given back.

-- Release: end a lock at its holder's wish. An unknown id is buried, so that a grant on its way
-- under that id can never be sealed, unless p_bury says that it must not be; if it waits in the queue, it
-- leaves it. With p_since (microseconds;
-- NULL for in any case) only a lock whose ttl last began then: compared for being the same time, so that
-- no clock step makes a renewal older than its grant.
CREATE FUNCTION acts.release(
    p_seen bigint, p_wait_ms int, p_lock uuid[], p_since bigint[], p_bury boolean[])
RETURNS TABLE (
    verdict text, held_ms bigint, resources text[], number bigint, waited_for boolean,
    flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    got_ids uuid[];
    known fencegate.locks;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences_of(p_lock, p_wait_ms);
    got_ids := acts.lock_ids(p_lock, p_wait_ms);
    PERFORM acts.lock_locks(got, got_ids);
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL; held_ms := NULL; resources := NULL; number := NULL; waited_for := NULL;
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
        IF p_lock[i] <> ALL (got_ids) THEN
            verdict := 'busy';
        ELSIF known.id IS NULL THEN
            resources := acts.leave(p_lock[i]);
            IF resources IS NULL AND NOT p_bury[i] AND NOT EXISTS (
                    SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i]) THEN
                verdict := 'unknown';
            ELSE
                PERFORM acts.bury('lock', p_lock[i], t);
                verdict := CASE WHEN resources IS NULL THEN 'buried' ELSE 'left' END;
            END IF;
        ELSIF NOT known.resources <@ got THEN
            verdict := 'busy';
        ELSE
            PERFORM acts.settle(known.resources, t);
            SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
            -- One that ended on some of its resources only is given back on the others.
            verdict := CASE WHEN known.token <= guard.floor THEN 'ended'
                            WHEN known.ended IS NULL THEN 'released'
                            WHEN known.ended IN ('superseded', 'broken') AND EXISTS (
                                SELECT FROM fencegate.fences f
                                WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id
                                  AND f.hold IN ('held', 'draining')) THEN 'released'
                            ELSE 'ended' END;
            IF verdict = 'released' AND known.ended IS NULL AND EXISTS (
                    SELECT FROM fencegate.fences f
                    WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id
                      AND fencegate.micros(f.renewed_at) <> p_since[i]) THEN
                verdict := 'kept';
            END IF;
        END IF;
        IF verdict = 'released' THEN
            UPDATE fencegate.locks l SET ended = 'released', ended_at = t
            WHERE l.id = known.id AND l.ended IS NULL;
            WITH released AS (
                UPDATE fencegate.fences f SET hold = 'released', break_due = NULL
                WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id
                  AND f.hold IN ('held', 'draining')
                RETURNING f.resource)
            SELECT array_agg(r.resource ORDER BY r.resource) INTO resources FROM released r;
            held_ms := fencegate.millis(t - known.acquired_at);
            SELECT known.token - g.base INTO number FROM fencegate.seal_guard g;
            waited_for := EXISTS (SELECT FROM fencegate.waiter_resources q
                                  WHERE q.resource = ANY (known.resources));
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
