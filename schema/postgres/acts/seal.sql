-- Seal: a lock is granted.

-- Decides in one look what nearly all locks are: a lock in its own right, on fences that are free, with nobody in
-- line and nothing under way, under an id and a number that nothing else has, not even another of these items. A
-- lock on what somebody else has locked is busy. All others come back without a verdict. In the order of the items.
--
-- The looks are scalar subqueries: the planner may answer EXISTS from a table that it reads whole.
CREATE FUNCTION acts.sealed_at_once(
    p_got text[], p_got_ids uuid[], p_base bigint, p_floor bigint, p_now timestamptz,
    p_resources text[], p_item int[], p_lock uuid[], p_owner text[], p_ttl_ms bigint[], p_number bigint[],
    p_from uuid[], p_attempt int[], p_max_hold_ms bigint[], p_metadata text[], p_force boolean[],
    p_order bigint[], p_gateway uuid[], p_names text[], p_principal text[], p_writers text[], p_rules bigint[],
    p_asked text[], p_credential text[], p_ends_us bigint[], p_in_force bigint)
RETURNS SETOF acts.sealing LANGUAGE sql STABLE AS $$
    SELECT p_lock[r.i], r.names, p_owner[r.i], p_base + p_number[r.i], p_attempt[r.i], p_ttl_ms[r.i],
               p_from[r.i], p_force[r.i], p_order[r.i], p_gateway[r.i],
               CASE WHEN p_attempt[r.i] <> 2 AND acts.rules_moved(p_rules[r.i], p_in_force) THEN 'rules_moved'
                    WHEN p_lock[r.i] <> ALL (p_got_ids) OR NOT r.are_got THEN 'busy'
                    WHEN r.are_free AND p_attempt[r.i] < 2 AND p_from[r.i] IS NULL AND p_force[r.i] IS NULL
                     AND array_position(p_lock, p_lock[r.i]) = r.i AND array_position(p_number, p_number[r.i]) = r.i
                     AND array_position(p_from, p_lock[r.i]) IS NULL
                     AND (SELECT l.id FROM fencegate.locks l WHERE l.id = p_lock[r.i]) IS NULL
                     AND (SELECT w.ticket FROM fencegate.waiters w WHERE w.lock_id = p_lock[r.i]) IS NULL
                     AND (SELECT b.id FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[r.i]) IS NULL
                     AND (SELECT g.token FROM fencegate.grants g
                          WHERE g.leads AND g.token = p_base + p_number[r.i]) IS NULL
                     AND acts.is_kept(p_base + p_number[r.i], (SELECT h.token FROM fencegate.history h))
                     AND NOT EXISTS (SELECT FROM fencegate.drained_upstreams u WHERE u.doubt_floor IS NOT NULL)
                    THEN 'sealed' END,
               d.ttl_ms, d.ahead_ms, d.due, p_now, h.hold_until, fencegate.millis(d.due - p_now),
               coalesce(p_metadata[r.i]::jsonb, '{}'), d.ahead_ms <> d.ttl_ms,
               NULL::text, NULL::text, NULL::bigint, NULL::text[], NULL::bigint[],
               split_part(p_names[r.i], ' ', 1), p_principal[r.i], string_to_array(p_writers[r.i], ' '),
               p_asked[r.i], p_credential[r.i], p_ends_us[r.i]
    FROM (
        SELECT r.item AS i, array_agg(r.name ORDER BY r.name COLLATE "C") AS names,
               bool_and(f.resource IS NULL OR f.resource = ANY (p_got)) AS are_got,
               bool_and(f.is_free
                        AND (SELECT q.ticket FROM fencegate.waiter_resources q WHERE q.resource = r.name LIMIT 1) IS NULL
                        AND (SELECT u.operation FROM fencegate.upstream_intents u
                             WHERE u.resource = r.name AND u.closed IS NULL LIMIT 1) IS NULL) AS are_free
        FROM (SELECT unnest(p_resources) AS name, unnest(p_item) AS item) r
        LEFT JOIN LATERAL (
            SELECT f.resource, acts.is_free(f, p_base + p_number[r.item], p_floor) AS is_free
            FROM fencegate.fences f WHERE f.resource = r.name OFFSET 0) f ON true
        GROUP BY r.item) r
    CROSS JOIN LATERAL (SELECT p_now + p_max_hold_ms[r.i] * interval '1 millisecond' AS hold_until) h
    CROSS JOIN LATERAL acts.terms(p_ttl_ms[r.i], h.hold_until, p_now) d
    ORDER BY r.i
$$;

-- Stores what is sealed: the grants, which end the token before them, and take along how that ended; the fences, which
-- rise; the locks (I2, I5). When a void lock ended, only the re-fence tells.
CREATE FUNCTION acts.store_seals(p_items acts.sealing[], p_floor bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.grants (token, resource, lock_id, owner, ordinal, leads, how, at, previous_owner, previous_end,
                                  previous_ended_at, principal, writers, asked)
    SELECT d.token, n.name, d.lock, d.owner, f.grants + 1, n.name = d.names[1], acts.how(d), p_now, f.former,
           f.ended_how, CASE WHEN NOT f.stands THEN f.ended_at WHEN f.ended_how <> 'void' THEN p_now END, d.principal, d.writers, d.asked
    FROM unnest(p_items) d CROSS JOIN unnest(d.names) n (name)
    CROSS JOIN LATERAL (
        SELECT f.grants, f.ended_at, acts.stands(f.hold) AS stands, CASE WHEN acts.stands(f.hold) THEN f.owner END AS former,
               acts.ended_how(f.hold, f.token, f.lock_id, f.deadline, d.predecessor, d.force, p_floor, p_now) AS ended_how
        FROM fencegate.fences f WHERE f.resource = n.name OFFSET 0) f
    WHERE d.verdict IN ('sealed', 'drains');
    UPDATE fencegate.fences f
    SET token = d.token, lock_id = d.lock, owner = d.owner, principal = d.principal, writers = d.writers,
        hold = CASE d.verdict WHEN 'drains' THEN 'draining' ELSE 'held' END,
        live_token = CASE d.verdict WHEN 'drains' THEN f.live_token ELSE d.token END,
        ttl_ms = d.ahead_ms, deadline = d.due, acquired_at = p_now, renewed_at = p_now, break_due = NULL, last_seq = 0,
        ended_at = NULL,
        grants = f.grants + 1, fence_order = coalesce(d.fence_order, f.fence_order)
    FROM (SELECT d.*, unnest(d.names) AS name FROM unnest(p_items) d WHERE d.verdict IN ('sealed', 'drains') OFFSET 0) d
    -- The second condition keeps the planner from reading all fences for the sake of a few.
    WHERE f.resource = d.name AND f.resource = ANY (ARRAY(SELECT unnest(d.names) FROM unnest(p_items) d));
    INSERT INTO fencegate.locks
        (id, resources, token, owner, ttl_ms, acquired_at, hold_until, metadata, fence, gateway, principal,
         writers, credential, credential_ends_us)
    SELECT d.lock, d.names, d.token, d.owner, d.ttl_ms, p_now, d.hold_until, d.metadata, d.force IS NOT NULL,
           CASE d.verdict WHEN 'drains' THEN d.gateway END, d.principal, d.writers, d.credential, d.credential_ends_us
    FROM unnest(p_items) d WHERE d.verdict IN ('sealed', 'drains');
END $$;

-- Raises fences to newly minted tokens and records the holders. Item i takes the resources whose p_item is i; a resource
-- appears once in p_resources, which is sorted. Each lock is sealed on all of its resources or on none.
--
-- 1. The guard: the epoch that the numbers were minted in is still the current one (I11).
-- 2. Fences that do not exist yet are made, in name order; then all are locked, in name order; then the ids. What
--    somebody else has locked is skipped: busy.
-- 3. A later statement decides what nearly all locks need (`sealed_at_once`). These locks are stored. Nothing is decided
--    of those whose rules of access have moved (I17), unless all that is asked is what became of them.
--    p_names: who asks, as is_yours() has it; p_principal: whose the lock will be; p_writers: who else may write under it,
--    apart by spaces; p_asked: who asks and how, for the audit; p_credential, p_ends_us: the credential to which the lock
--    belongs, and the end that it has by itself.
-- 4. What is not so simple is decided one by one (`sealed_further`), each after those before it are stored.
CREATE FUNCTION acts.seal(
    p_epoch bigint, p_seen bigint, p_wait_ms int,
    p_resources text[], p_item int[],
    p_lock uuid[], p_owner text[], p_ttl_ms bigint[], p_number bigint[], p_from uuid[],
    p_attempt int[], p_max_hold_ms bigint[], p_metadata text[], p_force boolean[],
    p_order bigint[], p_gateway uuid[], p_names text[], p_principal text[], p_writers text[], p_rules bigint[],
    p_asked text[], p_credential text[], p_ends_us bigint[])
RETURNS TABLE (
    verdict text, token bigint, acquired_us bigint, ttl_ms bigint, remaining_ms bigint,
    versions bigint[], resource text, owner text, age_ms bigint, hold_until_us bigint, metadata text,
    taken_resources text[], taken_held_ms bigint[], unconfirmed boolean, writers text[], flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard     fencegate.seal_guard;
    t         timestamptz;
    got       text[];
    got_ids   uuid[];
    items     acts.sealing[];
    item      acts.sealing;
    any_sealed boolean;
    may_drain boolean;
BEGIN
    -- Step 1.
    guard := acts.begin_seal(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    IF guard.epoch <> p_epoch THEN
        RAISE EXCEPTION 'the epoch is %, not %', guard.epoch, p_epoch USING ERRCODE = 'FG002';
    END IF;

    -- Step 2.
    IF EXISTS (SELECT FROM (SELECT unnest(p_resources) AS name) r
               WHERE (SELECT f.resource FROM fencegate.fences f WHERE f.resource = r.name) IS NULL) THEN
        INSERT INTO fencegate.fences (resource)
        SELECT r.name FROM unnest(p_resources, p_item) r (name, item)
        WHERE p_number[r.item] IS NOT NULL
          AND (SELECT f.resource FROM fencegate.fences f WHERE f.resource = r.name) IS NULL
        ORDER BY r.name COLLATE "C" ON CONFLICT DO NOTHING;
    END IF;
    got := acts.lock_fences(p_resources, p_wait_ms);
    got_ids := acts.lock_ids(p_lock, p_wait_ms);
    t := clock_timestamp();

    -- Step 3.
    SELECT array_agg(d), bool_or(d.verdict = 'sealed') INTO items, any_sealed
    FROM acts.sealed_at_once(got, got_ids, guard.base, guard.floor, t, p_resources, p_item, p_lock, p_owner, p_ttl_ms,
                             p_number, p_from, p_attempt, p_max_hold_ms, p_metadata, p_force, p_order, p_gateway,
                             p_names, p_principal, p_writers, p_rules, p_asked, p_credential, p_ends_us,
                             guard.access) d;
    IF any_sealed THEN
        PERFORM acts.store_seals(items, guard.floor, t);
    END IF;

    -- Step 4.
    FOR i IN 1 .. cardinality(p_lock) LOOP
        CONTINUE WHEN items[i].verdict IS NOT NULL;
        IF may_drain IS NULL THEN
            PERFORM acts.lock_locks(got, got_ids);
            may_drain := EXISTS (SELECT FROM fencegate.upstream_intents u
                                 WHERE u.resource = ANY (p_resources) AND u.closed IS NULL)
                      OR EXISTS (SELECT FROM fencegate.drained_upstreams d WHERE d.doubt_floor IS NOT NULL);
        END IF;
        item := acts.sealed_further(items[i], may_drain, guard.floor, t);
        IF item.verdict IN ('sealed', 'drains') THEN
            PERFORM acts.store_seals(ARRAY[item], guard.floor, t);
        END IF;
        items[i] := item;
    END LOOP;

    RETURN QUERY
    SELECT d.verdict, d.token, fencegate.micros(d.acquired_at), d.ttl_ms, d.remaining_ms,
           CASE WHEN d.verdict IN ('sealed', 'again') THEN ARRAY(
               SELECT coalesce((SELECT o.version FROM fencegate.operations o
                                WHERE o.resource = n.name AND o.version > 0 ORDER BY o.version DESC LIMIT 1), 0)
               FROM unnest(d.names) n (name)) END,
           d.resource, d.blocker, d.age_ms, fencegate.micros(d.hold_until), nullif(d.metadata, '{}')::text,
           d.taken_resources, d.taken_held_ms, d.unconfirmed, d.writers, acts.flushed()
    FROM unnest(items) d;
END $$;
