-- Seal: a lock is granted.

-- Seal: raise fences to a newly minted token and record the holder. Item i takes the resources
-- whose p_item is i; a resource appears once in p_resources, which is sorted. Each lock is sealed on
-- all of its resources or on none (I2, I5).
--
-- 1. The guard: the epoch that the number was minted in is still the current one (I11).
-- 2. Fences that do not exist yet are made, in name order; then all are locked, in name order.
-- 3. Per item: a buried id; a known id; a lock p_from that does not hand over; frozen; held by
--    another; an order that does not rise; somebody ahead in the queue (for a lock); a number that
--    does not rise, or that names another grant already (I15); something of older tokens under way at an upstream, unless the caller waits at
--    p_gateway: then it is sealed as draining, and in force later (upstreams.sql). p_attempt: 0 first, 1 rerun (a refusal also buries the id, unless it waits),
--    2 bury (unless it is known).
--    p_force is NULL for a lock; else the item is a fence without a lock, sealed over a live lock if
--    it is true. A successor has the longest hold and the metadata of its predecessor.
--    p_ttl_ms is NULL where the caller names none: a known lock keeps its own, a successor gets that of its
--    predecessor.
-- 4. What held the resources before is superseded; the fence rises; the grant is recorded.
CREATE FUNCTION acts.seal(
    p_epoch bigint, p_seen bigint, p_wait_ms int,
    p_resources text[], p_item int[],
    p_lock uuid[], p_owner text[], p_ttl_ms bigint[], p_number bigint[], p_from uuid[],
    p_attempt int[], p_max_hold_ms bigint[], p_metadata text[], p_force boolean[],
    p_order bigint[], p_gateway uuid[])
RETURNS TABLE (
    verdict text, token bigint, acquired_us bigint, ttl_ms bigint, remaining_ms bigint,
    versions bigint[], resource text, owner text, age_ms bigint, hold_until_us bigint, metadata text,
    taken_resources text[], taken_held_ms bigint[], unconfirmed boolean, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard   fencegate.seal_guard;
    t       timestamptz;
    got     text[];
    got_ids uuid[];
    names   text[];
    known   fencegate.locks;
    made    fencegate.locks;
    ahead   bigint;
    due     timestamptz;
    waiter  fencegate.waiters;
    blocker record;
    why     text;
    drains  text;
    completed boolean;
    -- Nearly always nothing is under way, which one look for all items tells.
    may_drain boolean;
BEGIN
    guard := acts.begin_seal(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    IF guard.epoch <> p_epoch THEN
        RAISE EXCEPTION 'the epoch is %, not %', guard.epoch, p_epoch USING ERRCODE = 'FG002';
    END IF;

    INSERT INTO fencegate.fences (resource)
    SELECT r.name FROM unnest(p_resources, p_item) r (name, item)
    WHERE p_number[r.item] IS NOT NULL
      AND (SELECT f.resource FROM fencegate.fences f WHERE f.resource = r.name) IS NULL
    ORDER BY r.name COLLATE "C" ON CONFLICT DO NOTHING;
    got := acts.lock_fences(p_resources, p_wait_ms);
    got_ids := acts.lock_ids(p_lock, p_wait_ms);
    PERFORM acts.lock_locks(got, got_ids);
    t := clock_timestamp();
    may_drain :=
        EXISTS (SELECT FROM fencegate.upstream_intents u
                WHERE u.resource = ANY (p_resources) AND u.closed IS NULL)
        OR EXISTS (SELECT FROM fencegate.drained_upstreams d WHERE d.doubt_floor IS NOT NULL);

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL; token := NULL; acquired_us := NULL; ttl_ms := NULL; remaining_ms := NULL;
        versions := NULL; resource := NULL; owner := NULL; age_ms := NULL;
        hold_until_us := NULL; metadata := NULL;
        taken_resources := NULL; taken_held_ms := NULL; unconfirmed := NULL; flushed := NULL;
        drains := NULL;
        SELECT array_agg(r.name ORDER BY r.name COLLATE "C") INTO names
        FROM unnest(p_resources, p_item) r (name, item) WHERE r.item = i;
        SELECT * INTO waiter FROM fencegate.waiters w WHERE w.lock_id = p_lock[i];

        IF p_lock[i] <> ALL (got_ids) OR NOT acts.all_locked(names, got) THEN
            verdict := 'busy';
        ELSE
            PERFORM acts.settle(names, t);
        END IF;
        IF verdict IS NOT NULL THEN
            NULL;
        ELSIF EXISTS (
                SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i]) THEN
            verdict := 'released';
        ELSE
            SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
            -- A fence that a re-fence voided is set anew: the lock elsewhere is held still.
            IF FOUND AND NOT (known.fence AND p_force[i] IS NOT NULL AND known.ended IS NULL
                              AND known.token <= guard.floor AND known.resources = names
                              AND known.owner = p_owner[i]) THEN
                why := acts.not_renewable(known, guard.floor, t);
                completed := false;
                IF why = 'draining' AND known.resources = names AND known.owner = p_owner[i]
                        AND known.fence = (p_force[i] IS NOT NULL) THEN
                    drains := acts.drains(names, t);
                    IF drains IS NULL THEN
                        known := acts.complete(known, t);
                        completed := true;
                        why := NULL;
                    END IF;
                END IF;
                IF why NOT IN ('breaking', 'draining', 'hold_exceeded') THEN
                    verdict := why;
                ELSIF known.resources <> names OR known.owner <> p_owner[i]
                      OR known.fence <> (p_force[i] IS NOT NULL) THEN
                    verdict := 'conflict';
                ELSIF why = 'draining' AND p_gateway[i] IS NOT NULL THEN
                    -- A caller that waits keeps it.
                    verdict := 'drains';
                    resource := drains;
                    PERFORM acts.restart(known, coalesce(p_ttl_ms[i], known.ttl_ms), false, t);
                    UPDATE fencegate.locks l SET gateway = p_gateway[i]
                    WHERE l.id = known.id AND l.gateway IS DISTINCT FROM p_gateway[i];
                ELSIF why IS NOT NULL THEN
                    verdict := why;
                    resource := drains;
                ELSE
                    verdict := 'again';
                    made := known;
                    remaining_ms := 0;
                    IF NOT known.fence THEN
                        remaining_ms := (
                            SELECT fencegate.millis(min(f.deadline) - t) FROM fencegate.fences f
                            WHERE f.resource = ANY (names) AND f.lock_id = known.id);
                        -- What comes with a number was sent to be granted, perhaps long ago by the very call
                        -- that was, and a rerun without one as well: it changes nothing of a lock that has not
                        -- lapsed.
                        IF (p_number[i] IS NULL AND p_attempt[i] = 0) OR completed
                                OR remaining_ms <= 0 THEN
                            made.ttl_ms := coalesce(p_ttl_ms[i], known.ttl_ms);
                            -- Nor does it prove that anybody knows of the lock. If that was not in force before,
                            -- its token was told to nobody.
                            remaining_ms := acts.restart(
                                known, made.ttl_ms,
                                NOT completed AND p_number[i] IS NULL AND p_attempt[i] = 0, t);
                        END IF;
                        unconfirmed := made.ttl_ms = acts.infinite_ms() AND EXISTS (
                            SELECT FROM fencegate.fences f
                            WHERE f.resource = ANY (names) AND f.lock_id = known.id
                              AND f.ttl_ms <> made.ttl_ms);
                    END IF;
                    token := known.token;
                    acquired_us := fencegate.micros(known.acquired_at);
                    versions := acts.versions(names);
                END IF;
            ELSIF waiter.resources <> names OR waiter.owner <> p_owner[i]
                  OR (waiter.ticket IS NOT NULL AND p_force[i] IS NOT NULL) THEN
                verdict := 'conflict';
            ELSIF p_attempt[i] = 2 THEN
                PERFORM acts.leave(p_lock[i]);
                PERFORM acts.bury('lock', p_lock[i], t);
                verdict := 'released';
            ELSIF p_from[i] IS NOT NULL THEN
                SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_from[i];
                why := acts.not_renewable(known, guard.floor, t);
                verdict := CASE WHEN known.id IS NULL OR known.fence THEN 'not_found'
                                WHEN known.resources <> names THEN 'conflict'
                                ELSE why END;
                IF verdict = 'draining' THEN
                    resource := names[1];
                END IF;
                IF verdict IS NOT NULL AND p_attempt[i] > 0 THEN
                    PERFORM acts.bury('lock', p_lock[i], t);
                END IF;
            END IF;
        END IF;

        IF verdict IS NULL THEN
            SELECT f.resource, f.owner, f.frozen IS NOT NULL AS is_frozen, f.break_due, f.hold,
                   f.hold IN ('held', 'draining') AND f.deadline > t AND f.token > guard.floor
                       AND p_force[i] IS NOT TRUE AS is_held,
                   fencegate.millis(t - f.acquired_at) AS age,
                   fencegate.millis(least(f.deadline, f.break_due) - t) AS left
            INTO blocker FROM fencegate.fences f
            WHERE f.resource = ANY (names)
              AND (f.frozen IS NOT NULL OR f.fence_order > p_order[i]
                   OR (f.fence_order = p_order[i] AND f.token > guard.floor)
                   OR (f.hold IN ('held', 'draining') AND f.deadline > t AND f.token > guard.floor
                       AND f.lock_id IS DISTINCT FROM p_from[i] AND p_force[i] IS NOT TRUE))
            ORDER BY f.resource LIMIT 1;
            IF FOUND THEN
                verdict := CASE WHEN blocker.is_frozen THEN 'frozen'
                                WHEN NOT blocker.is_held THEN 'order_stale'
                                WHEN blocker.break_due IS NOT NULL THEN 'held_breaking'
                                WHEN blocker.hold = 'draining' THEN 'held_draining'
                                ELSE 'held' END;
                resource := blocker.resource; owner := blocker.owner;
                age_ms := blocker.age; remaining_ms := blocker.left;
            ELSIF p_from[i] IS NULL AND p_force[i] IS NULL
                  AND acts.is_ahead(names, waiter.ticket, t) THEN
                verdict := 'queued';
            ELSIF p_number[i] IS NULL OR guard.base + p_number[i] <= guard.floor OR EXISTS (
                SELECT FROM fencegate.fences f
                WHERE f.resource = ANY (names) AND f.token >= guard.base + p_number[i]) OR EXISTS (
                SELECT FROM fencegate.grants g
                WHERE g.leads AND g.token = guard.base + p_number[i]) THEN
                verdict := 'too_low';
            ELSIF may_drain THEN
                drains := acts.drains(names, t);
                IF drains IS NOT NULL AND p_gateway[i] IS NULL THEN
                    verdict := 'draining';
                    resource := drains;
                END IF;
            END IF;
            IF verdict <> 'too_low' AND waiter.called_at IS NOT NULL THEN
                -- It came: its turn is not over.
                UPDATE fencegate.waiters w SET called_at = NULL WHERE w.ticket = waiter.ticket;
            END IF;
            IF verdict IS NOT NULL AND p_attempt[i] > 0 AND waiter.ticket IS NULL THEN
                PERFORM acts.bury('lock', p_lock[i], t);
            END IF;
        END IF;

        IF verdict IS NULL THEN
            verdict := CASE WHEN drains IS NULL THEN 'sealed' ELSE 'drains' END;
            resource := drains;
            IF waiter.ticket IS NOT NULL THEN
                PERFORM acts.leave(p_lock[i]);
            END IF;
            token := guard.base + p_number[i];
            SELECT array_agg(f.resource ORDER BY f.resource),
                   array_agg(fencegate.millis(t - f.acquired_at) ORDER BY f.resource)
            INTO taken_resources, taken_held_ms
            FROM fencegate.fences f WHERE f.resource = ANY (names) AND f.hold = 'held'
              AND NOT EXISTS (SELECT FROM fencegate.locks l WHERE l.id = f.lock_id AND l.fence);
            INSERT INTO fencegate.audit (at, action, resource, owner, previous_owner, token)
            SELECT t, CASE WHEN p_force[i] IS NOT NULL THEN 'fence'
                           WHEN p_from[i] IS NULL THEN 'grant' ELSE 'transfer' END, f.resource,
                   p_owner[i], CASE WHEN f.hold IN ('held', 'draining') THEN f.owner END, guard.base + p_number[i]
            FROM fencegate.fences f WHERE f.resource = ANY (names) ORDER BY f.resource;
            UPDATE fencegate.grants g
            SET superseded_by = CASE WHEN p_force[i] IS NOT NULL THEN 'fence'
                                     WHEN p_from[i] IS NULL THEN 'grant' ELSE 'transfer' END,
                superseded_at = t
            FROM fencegate.fences f
            WHERE f.resource = ANY (names) AND g.resource = f.resource AND g.token = f.token;
            UPDATE fencegate.locks l SET ended = 'superseded', ended_at = t
            FROM fencegate.fences f
            WHERE f.resource = ANY (names) AND l.id = f.lock_id AND l.ended IS NULL
              AND f.hold IN ('held', 'draining');
            made := NULL;
            made.ttl_ms := coalesce(p_ttl_ms[i], CASE WHEN p_from[i] IS NOT NULL THEN known.ttl_ms END,
                                    acts.default_ttl_ms());
            unconfirmed := made.ttl_ms = acts.infinite_ms();
            made.hold_until := CASE WHEN p_from[i] IS NULL
                THEN t + p_max_hold_ms[i] * interval '1 millisecond' ELSE known.hold_until END;
            made.metadata := CASE WHEN p_from[i] IS NULL
                THEN coalesce(p_metadata[i]::jsonb, '{}') ELSE known.metadata END;
            ahead := CASE WHEN unconfirmed THEN acts.unconfirmed_ms() ELSE made.ttl_ms END;
            due := least(t + ahead * interval '1 millisecond', made.hold_until);
            remaining_ms := fencegate.millis(due - t);
            UPDATE fencegate.fences f
            SET token = guard.base + p_number[i], lock_id = p_lock[i], owner = p_owner[i],
                hold = CASE WHEN drains IS NULL THEN 'held' ELSE 'draining' END,
                live_token = CASE WHEN drains IS NULL THEN guard.base + p_number[i]
                                  ELSE f.live_token END,
                ttl_ms = ahead, deadline = due,
                acquired_at = t, renewed_at = t, break_due = NULL, last_seq = 0,
                grants = f.grants + 1, fence_order = coalesce(p_order[i], f.fence_order)
            WHERE f.resource = ANY (names);
            INSERT INTO fencegate.grants (resource, token, lock_id, owner, ordinal, leads)
            SELECT f.resource, f.token, f.lock_id, f.owner, f.grants, f.resource = names[1]
            FROM fencegate.fences f WHERE f.resource = ANY (names);
            INSERT INTO fencegate.locks
                (id, resources, token, owner, ttl_ms, acquired_at, hold_until, metadata, fence,
                 gateway)
            VALUES (p_lock[i], names, guard.base + p_number[i], p_owner[i], made.ttl_ms, t,
                    made.hold_until, made.metadata, p_force[i] IS NOT NULL,
                    CASE WHEN drains IS NOT NULL THEN p_gateway[i] END)
            ON CONFLICT (id) DO UPDATE
            SET token = excluded.token, acquired_at = excluded.acquired_at, ended = NULL,
                ended_at = NULL;
            acquired_us := fencegate.micros(t);
            versions := acts.versions(names);
        END IF;
        IF verdict IN ('sealed', 'again') THEN
            ttl_ms := made.ttl_ms;
            hold_until_us := fencegate.micros(made.hold_until);
            metadata := nullif(made.metadata, '{}')::text;
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
