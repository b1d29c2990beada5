-- The common cases of seal and release, a fraction of their cost: locks on one resource each. If all items of a
-- batch are as simple as that turns out to need, a handful of statements does them. If any is not, nothing has
-- been stored yet, and the whole acts decide all of them in the same act: what they refuse, and why, is
-- written once, there. Joins as in commit_plain: no plan can be turned around to read a whole table.

-- Whether a fence may be sealed with this token for a lock, as far as its row tells: nobody has it.
CREATE FUNCTION acts.is_free(p_fence fencegate.fences, p_token bigint, p_floor bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_fence.hold IN ('none', 'released', 'broken') AND p_fence.frozen IS NULL
       AND p_fence.token < p_token AND p_token > p_floor
$$;

-- Whether a fence is held by this lock, and nothing is about to end that.
CREATE FUNCTION acts.is_in_force(p_fence fencegate.fences, p_lock uuid, p_floor bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_fence.lock_id = p_lock AND p_fence.hold = 'held' AND p_fence.break_due IS NULL
       AND p_fence.token > p_floor
$$;

-- Seal, for locks that were not asked for before, with a ttl that ends or none named, no longest hold and no
-- metadata.
--
-- 1. Guard and epoch. A fence that is not there yet has to be made before any is locked, or two acts could wait
--    for each other: not here. Then fences in name order. A fence counts that is locked and free: what the lock
--    before it was has ended and says so, whatever its row in locks covers besides. Then the ids.
-- 2. In a later statement what else decides: a lock or waiter that has one of the ids, an id that is buried,
--    a grant whose number lies between the lowest and the highest of these (I15): numbers of one mint lie together,
--    so it is likely to have one of them; somebody in line, something under way at an upstream.
-- 3. The grants before are superseded, the fences rise, the grants are recorded.
--
-- p_resources is distinct and sorted; all arrays are in its order.
CREATE FUNCTION acts.seal_plain(
    p_epoch bigint, p_seen bigint, p_resources text[], p_lock uuid[], p_owner text[],
    p_ttl_ms bigint[], p_number bigint[], p_gateway uuid[])
RETURNS TABLE (
    verdict text, token bigint, acquired_us bigint, ttl_ms bigint, remaining_ms bigint,
    versions bigint[], resource text, owner text, age_ms bigint, hold_until_us bigint, metadata text,
    taken_resources text[], taken_held_ms bigint[], unconfirmed boolean, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    n         int := cardinality(p_resources);
    -- What they are sealed with: where the caller names none, the default.
    ttls      bigint[] := ARRAY(
        SELECT coalesce(a.ttl_ms, acts.default_ttl_ms())
        FROM unnest(p_ttl_ms) WITH ORDINALITY a (ttl_ms, i) ORDER BY a.i);
    guard     fencegate.seal_guard;
    t         timestamptz;
    t_us      bigint;
    f_token   bigint[];
    f_grants  bigint[];
    got_ids   int;
BEGIN
    -- Step 1.
    guard := acts.begin_seal(p_seen);
    PERFORM acts.limit_wait(0);
    IF guard.epoch <> p_epoch THEN
        RAISE EXCEPTION 'the epoch is %, not %', guard.epoch, p_epoch USING ERRCODE = 'FG002';
    END IF;
    IF NOT EXISTS (
        SELECT FROM (SELECT unnest(p_resources) AS resource) a
        WHERE (SELECT f.resource FROM fencegate.fences f WHERE f.resource = a.resource) IS NULL)
    THEN
        SELECT array_agg(l.token ORDER BY l.i), array_agg(l.grants + 1 ORDER BY l.i)
        INTO f_token, f_grants
        FROM (
            SELECT a.i, f.token, f.grants
            FROM unnest(p_resources, p_number) WITH ORDINALITY a (resource, number, i)
            CROSS JOIN LATERAL (
                SELECT f.token, f.grants FROM fencegate.fences f
                WHERE f.resource = a.resource
                  AND acts.is_free(f, guard.base + a.number, guard.floor)
                FOR NO KEY UPDATE SKIP LOCKED) f) l;
        got_ids := cardinality(acts.lock_ids(p_lock, 0));
    END IF;
    t := clock_timestamp();
    t_us := fencegate.micros(t);

    -- Step 2.
    IF coalesce(cardinality(f_token), 0) < n OR got_ids < n
       OR EXISTS (SELECT FROM fencegate.locks l WHERE l.id = ANY (p_lock))
       OR EXISTS (SELECT FROM fencegate.waiters w WHERE w.lock_id = ANY (p_lock))
       OR EXISTS (SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = ANY (p_lock))
       OR EXISTS (
           SELECT FROM fencegate.grants g
           WHERE g.leads
             AND g.token BETWEEN guard.base + (SELECT min(a.number) FROM unnest(p_number) a (number))
                             AND guard.base + (SELECT max(a.number) FROM unnest(p_number) a (number)))
       OR EXISTS (SELECT FROM fencegate.waiter_resources q WHERE q.resource = ANY (p_resources))
       OR EXISTS (SELECT FROM fencegate.upstream_intents u
                  WHERE u.resource = ANY (p_resources) AND u.closed IS NULL)
       OR EXISTS (SELECT FROM fencegate.drained_upstreams d WHERE d.doubt_floor IS NOT NULL)
    THEN
        RETURN QUERY SELECT * FROM acts.seal(
            p_epoch, p_seen, 0, p_resources, ARRAY(SELECT generate_series(1, n)), p_lock, p_owner,
            p_ttl_ms, p_number, array_fill(NULL::uuid, ARRAY[n]), array_fill(0, ARRAY[n]),
            array_fill(NULL::bigint, ARRAY[n]), array_fill(NULL::text, ARRAY[n]),
            array_fill(NULL::boolean, ARRAY[n]), array_fill(NULL::bigint, ARRAY[n]), p_gateway);
        RETURN;
    END IF;

    -- Step 3.
    INSERT INTO fencegate.audit (at, action, resource, owner, token)
    SELECT t, 'grant', a.resource, a.owner, guard.base + a.number
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_owner) AS owner,
                 unnest(p_number) AS number) a;
    UPDATE fencegate.grants g SET superseded_by = 'grant', superseded_at = t
    WHERE g.ctid = ANY (ARRAY(
        SELECT o.at FROM (SELECT unnest(p_resources) AS resource, unnest(f_token) AS token) a
        CROSS JOIN LATERAL (
            SELECT o.ctid AS at FROM fencegate.grants o
            WHERE o.resource = a.resource AND o.token = a.token OFFSET 0) o));
    UPDATE fencegate.fences f
    SET token = guard.base + a.number, lock_id = a.lock, owner = a.owner, hold = 'held',
        live_token = guard.base + a.number, ttl_ms = a.ttl_ms,
        deadline = t + a.ttl_ms * interval '1 millisecond', acquired_at = t, renewed_at = t,
        break_due = NULL, last_seq = 0, grants = a.grants
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_lock) AS lock, unnest(p_owner) AS owner,
                 unnest(ttls) AS ttl_ms, unnest(p_number) AS number, unnest(f_grants) AS grants) a
    WHERE f.resource = a.resource AND f.resource = ANY (p_resources);
    INSERT INTO fencegate.grants (resource, token, lock_id, owner, ordinal)
    SELECT a.resource, guard.base + a.number, a.lock, a.owner, a.grants
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_number) AS number,
                 unnest(p_lock) AS lock, unnest(p_owner) AS owner, unnest(f_grants) AS grants) a;
    INSERT INTO fencegate.locks (id, resources, token, owner, ttl_ms, acquired_at)
    SELECT a.lock, ARRAY[a.resource], guard.base + a.number, a.owner, a.ttl_ms, t
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_number) AS number,
                 unnest(p_lock) AS lock, unnest(p_owner) AS owner, unnest(ttls) AS ttl_ms) a;

    RETURN QUERY
    SELECT 'sealed', guard.base + a.number, t_us, a.ttl_ms, a.ttl_ms, ARRAY[coalesce((
               SELECT o.version FROM fencegate.operations o
               WHERE o.resource = a.resource AND o.version > 0 ORDER BY o.version DESC LIMIT 1), 0)],
           NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::text[], NULL::bigint[], false,
           acts.flushed()
    FROM (SELECT unnest(p_number) AS number, unnest(ttls) AS ttl_ms,
                 unnest(p_resources) AS resource) a;
END $$;

-- Release, for locks that are in force and that nobody waits for.
--
-- 1. Guard, then the fences of the locks, in name order. A fence counts that is locked and names this lock, in
--    force: a lock on one resource has not ended then.
-- 2. In a later statement, whether somebody waits: who joins the line has locked the fence.
-- 3. Locks and fences are released.
--
-- p_lock is distinct.
CREATE FUNCTION acts.release_plain(p_seen bigint, p_lock uuid[])
RETURNS TABLE (
    verdict text, held_ms bigint, resources text[], number bigint, waited_for boolean,
    flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    n          int := cardinality(p_lock);
    guard      fencegate.write_guard;
    base       bigint;
    t          timestamptz;
    f_resource text[];
    f_token    bigint[];
    f_acquired timestamptz[];
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(0);
    SELECT array_agg(r.resource ORDER BY r.i), array_agg(r.token ORDER BY r.i),
           array_agg(r.acquired_at ORDER BY r.i)
    INTO f_resource, f_token, f_acquired
    FROM (
        SELECT l.i, l.resource, f.token, f.acquired_at
        FROM (
            SELECT a.i, a.id, l.resource FROM unnest(p_lock) WITH ORDINALITY a (id, i)
            CROSS JOIN LATERAL (
                SELECT l.resources[1] AS resource FROM fencegate.locks l
                WHERE l.id = a.id AND cardinality(l.resources) = 1 OFFSET 0) l
            ORDER BY l.resource COLLATE "C") l
        CROSS JOIN LATERAL (
            SELECT f.token, f.acquired_at FROM fencegate.fences f
            WHERE f.resource = l.resource AND acts.is_in_force(f, l.id, guard.floor)
            FOR NO KEY UPDATE SKIP LOCKED) f) r;
    t := clock_timestamp();

    -- Step 2.
    IF coalesce(cardinality(f_resource), 0) < n OR EXISTS (
        SELECT FROM fencegate.waiter_resources q WHERE q.resource = ANY (f_resource))
    THEN
        RETURN QUERY SELECT * FROM acts.release(
            p_seen, 0, p_lock, array_fill(NULL::bigint, ARRAY[n]), array_fill(true, ARRAY[n]));
        RETURN;
    END IF;

    -- Step 3. The update locks the rows of locks in the order of their ids, as all acts do: an index scan takes a
    -- list in order, and the sessions of gateways plan nothing else.
    UPDATE fencegate.locks l SET ended = 'released', ended_at = t
    WHERE l.id = ANY (p_lock) AND l.ended IS NULL;
    UPDATE fencegate.fences f SET hold = 'released' WHERE f.resource = ANY (f_resource);

    SELECT g.base INTO base FROM fencegate.seal_guard g;
    RETURN QUERY
    SELECT 'released', fencegate.millis(t - a.acquired_at), ARRAY[a.resource], a.token - base, false,
           acts.flushed()
    FROM (SELECT unnest(f_resource) AS resource, unnest(f_token) AS token,
                 unnest(f_acquired) AS acquired_at) a;
END $$;
