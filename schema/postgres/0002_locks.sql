-- The acts on locks: seal, renew, release, break. Each is one call of one VOLATILE function, whose
-- statements each see a fresh snapshot: what is not on a locked row is read in a statement begun
-- after the lock was taken, so that it cannot show the past.
--
-- SQLSTATE FG001: the ledger must be re-fenced, by what its own guard says. FG002: the epoch moved.
-- FG003: wrong isolation. FG004: the ledger must be re-fenced, by what only the caller knows. FG005: a session that
-- no gateway has prepared. FG006: the server may forget what it acknowledges. FG007: what
-- the caller knows is of another timeline.

-- Refuses an act in a transaction that does not see the present; in a session that is not as a gateway has prepared it,
-- since through a pooler that moves sessions an act may come to one of somebody else, whose commits do not wait for the
-- disk; and on a server whose settings were changed since, so that it may forget what it acknowledges.
CREATE FUNCTION fencegate.assert_session() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the acts need READ COMMITTED' USING ERRCODE = 'FG003';
    END IF;
    -- What the gateway found when it prepared the session, and left there under this name.
    IF current_setting('synchronous_commit') = 'off'
       OR current_setting('synchronous_commit') IS DISTINCT FROM current_setting('fencegate.session', true) THEN
        RAISE EXCEPTION 'this session is not as a gateway has prepared it; is there a pooler in between that moves sessions?'
            USING ERRCODE = 'FG005';
    END IF;
    IF current_setting('fsync') = 'off' OR current_setting('full_page_writes') = 'off' THEN
        RAISE EXCEPTION 'fsync or full_page_writes is off on the Postgres server: acknowledged writes could be lost'
            USING ERRCODE = 'FG006';
    END IF;
    IF current_setting('synchronous_commit') = 'local' AND current_setting('synchronous_standby_names') <> '' THEN
        RAISE EXCEPTION 'synchronous_commit is local on a Postgres server with synchronous standbys: acknowledged writes could be lost'
            USING ERRCODE = 'FG006';
    END IF;
END $$;

-- Refuses to act on a server that may have lost acknowledged commits: another timeline, another
-- system, or a position behind one that this gateway has seen flushed (I12).
CREATE FUNCTION fencegate.assert_place(
    p_timeline text, p_system_id bigint, p_halted text, p_seen bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- assert_session() says what is wrong, and is only called if something is: the call takes 10 us of each act, this
    -- look 3.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR current_setting('synchronous_commit') IS DISTINCT FROM current_setting('fencegate.session', true)
       OR current_setting('synchronous_commit') IN ('off', 'local')
       OR current_setting('fsync') = 'off' OR current_setting('full_page_writes') = 'off' THEN
        PERFORM fencegate.assert_session();
    END IF;
    IF p_halted IS NOT NULL THEN
        RAISE EXCEPTION '%', p_halted USING ERRCODE = 'FG001';
    END IF;
    -- As current_timeline() has it.
    IF p_timeline <> substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) THEN
        RAISE EXCEPTION 'the ledger is on timeline %, not %: it was promoted or restored',
            fencegate.current_timeline(), p_timeline USING ERRCODE = 'FG001';
    END IF;
    -- What the caller has seen of the timeline before must be held against the position at which that ended,
    -- not against this one. Each session of a gateway says which timeline it knows.
    IF coalesce(current_setting('fencegate.timeline', true), '') NOT IN ('', p_timeline) THEN
        RAISE EXCEPTION 'the ledger has passed to timeline % since this session began', p_timeline
            USING ERRCODE = 'FG007';
    END IF;
    IF p_system_id <> fencegate.current_system_id() THEN
        RAISE EXCEPTION 'the ledger was moved to another database system'
            USING ERRCODE = 'FG001';
    END IF;
    IF pg_current_wal_insert_lsn() - '0/0'::pg_lsn < p_seen THEN
        RAISE EXCEPTION 'the ledger has fallen behind what it had flushed'
            USING ERRCODE = 'FG004';
    END IF;
END $$;

-- Keeps that this server lost commits: the position it had fallen behind is soon reached again, and
-- other gateways may not have seen how far it had been.
CREATE FUNCTION fencegate.halt(p_why text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Every act under way holds a lock on one of these tables. Locks on tables are granted in order, so acts that
    -- keep coming do not starve this, as they would where only the rows were locked.
    LOCK TABLE fencegate.seal_guard, fencegate.write_guard IN EXCLUSIVE MODE;
    UPDATE fencegate.seal_guard g SET halted = p_why WHERE g.halted IS NULL;
    UPDATE fencegate.write_guard g SET halted = p_why WHERE g.halted IS NULL;
END $$;

-- A position that the commit of the running act makes durable, for p_seen of later acts. It ends a
-- whole record, so recovery after a crash always reaches it; what is flushed at a given moment may end
-- within a record, which a crash cuts off.
CREATE FUNCTION fencegate.flushed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- An act that has written nothing makes nothing durable: what others inserted may still be lost.
    RETURN CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN 0
                ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END;
END $$;

-- The gate of a fence. Rows are not granted in the order of asking: guarded transactions of users (0008) that
-- share a fence could keep an act out for ever, each beginning before the last one ends. So acts on a lane share
-- the gate until they end, and guarded transactions pass it alone, and let it go at once: they wait there, for
-- a while, if an act waits for the fence. Acts do not wait for each other there, but for a transaction that is
-- just passing. Rows of a table that nobody else has a right on, not advisory locks, which any role that may
-- connect could hold.
CREATE TABLE fencegate.gates (slot int PRIMARY KEY);
INSERT INTO fencegate.gates SELECT generate_series(0, 4095);

CREATE FUNCTION fencegate.gate(p_resource text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(p_resource) & 4095
$$;

-- Locks fences in name order and returns the names it got. With p_wait_ms = 0 rows that somebody
-- else has locked are skipped; else it waits that long, for each gate and row, and then fails with 55P03.
CREATE FUNCTION fencegate.lock_fences(p_names text[], p_wait_ms int)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    got text[];
BEGIN
    IF p_wait_ms = 0 THEN
        SELECT array_agg(l.resource) INTO got FROM (
            SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_names)
            ORDER BY f.resource FOR NO KEY UPDATE SKIP LOCKED) l;
    ELSE
        PERFORM FROM fencegate.gates g
        WHERE g.slot = ANY (ARRAY(SELECT fencegate.gate(name) FROM unnest(p_names) name))
        ORDER BY g.slot FOR KEY SHARE;
        SELECT array_agg(l.resource) INTO got FROM (
            SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_names)
            ORDER BY f.resource FOR NO KEY UPDATE) l;
    END IF;
    RETURN coalesce(got, '{}');
END $$;

-- Whether all of these names are among the locked ones, or have no fence at all.
CREATE FUNCTION fencegate.all_locked(p_names text[], p_got text[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN p_names <@ p_got OR NOT EXISTS (
        SELECT FROM fencegate.fences f
        WHERE f.resource = ANY (p_names) AND f.resource <> ALL (p_got));
END $$;

-- What stands for the ids that no row has yet: a row for each of so many classes of them. Two ids of one class
-- are taken for busy, or wait for each other, as one id would; no more than that.
CREATE TABLE fencegate.lock_id_slots (slot int PRIMARY KEY);
INSERT INTO fencegate.lock_id_slots SELECT generate_series(0, 16383);

-- Locks ids of locks and returns those it got, so that a seal and a release of an id that no lock has
-- yet see each other, and so that ids are buried in one order. Always after the fences; ends with the
-- act.
CREATE FUNCTION fencegate.lock_ids(p_ids uuid[], p_wait_ms int)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    slots int[] := ARRAY(SELECT uuid_hash(id) & 16383 FROM unnest(p_ids) id);
    got   int[];
BEGIN
    IF p_wait_ms = 0 THEN
        SELECT array_agg(l.slot) INTO got FROM (
            SELECT s.slot FROM fencegate.lock_id_slots s WHERE s.slot = ANY (slots)
            FOR NO KEY UPDATE SKIP LOCKED) l;
        IF cardinality(got) = cardinality(p_ids) THEN
            RETURN p_ids;
        END IF;
        RETURN ARRAY(SELECT id FROM unnest(p_ids) id WHERE uuid_hash(id) & 16383 = ANY (got));
    END IF;
    PERFORM FROM fencegate.lock_id_slots s WHERE s.slot = ANY (slots)
    ORDER BY s.slot FOR NO KEY UPDATE;
    RETURN p_ids;
END $$;

-- Locks the rows of these locks, and of those that hold these fences, in the order of their ids: a
-- lock on several resources may be touched by acts on each of them. Always after fences and ids.
CREATE FUNCTION fencegate.lock_locks(p_names text[], p_ids uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM fencegate.locks l
    WHERE l.id = ANY (p_ids || ARRAY(
        SELECT f.lock_id FROM fencegate.fences f
        WHERE f.resource = ANY (p_names) AND f.lock_id IS NOT NULL))
    ORDER BY l.id FOR NO KEY UPDATE;
END $$;

-- How long the locks of an act may wait. Also with p_wait_ms = 0 a row that is being inserted has to
-- be waited for: briefly.
CREATE FUNCTION fencegate.limit_wait(p_wait_ms int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', greatest(p_wait_ms, 50) || 'ms', true);
END $$;

CREATE FUNCTION fencegate.bury(p_kind text, p_id uuid, p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.buried (kind, id, buried_at) VALUES (p_kind, p_id, p_now)
    ON CONFLICT DO NOTHING;
END $$;

-- Stores breaks that have come due on these locked fences, so that no clock step un-breaks them.
CREATE FUNCTION fencegate.settle(p_names text[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    due uuid[];
BEGIN
    SELECT array_agg(f.lock_id) INTO due FROM fencegate.fences f
    WHERE f.resource = ANY (p_names) AND f.hold IN ('held', 'draining') AND f.break_due <= p_now;
    IF due IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO fencegate.audit (at, action, resource, owner, token)
    SELECT p_now, 'broken', f.resource, f.owner, f.token FROM fencegate.fences f
    WHERE f.resource = ANY (p_names) AND f.hold IN ('held', 'draining') AND f.break_due <= p_now
    ORDER BY f.resource;
    UPDATE fencegate.fences f SET hold = 'broken'
    WHERE f.resource = ANY (p_names) AND f.hold IN ('held', 'draining') AND f.break_due <= p_now;
    UPDATE fencegate.locks l SET ended = 'broken', ended_at = p_now
    WHERE l.id = ANY (due) AND l.ended IS NULL;
END $$;

CREATE FUNCTION fencegate.millis(p_interval interval) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_interval) * 1000)::bigint
$$;
-- By way of an interval: extract from a timestamptz is not immutable, and would keep the planner from putting
-- the body in the place of the call, which then is parsed anew each time.
CREATE FUNCTION fencegate.micros(p_time timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(epoch FROM p_time - timestamptz 'epoch') * 1000000)::bigint
$$;

-- The ttl of a lock whose caller names none; that of a lock that lasts until it is released or broken: 100
-- years; and how long such a lock lasts until its holder shows that it knows of it.
CREATE FUNCTION fencegate.default_ttl_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 30000::bigint
$$;
CREATE FUNCTION fencegate.infinite_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 3153600000000
$$;
CREATE FUNCTION fencegate.unconfirmed_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 60000::bigint
$$;

-- Why a known lock is not extended: how it ended, 'breaking', 'draining' (it is not in force yet) or
-- 'hold_exceeded'; NULL if it may be extended.
CREATE FUNCTION fencegate.not_renewable(p_lock fencegate.locks, p_floor bigint, p_now timestamptz)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN CASE
        WHEN p_lock.ended IS NOT NULL THEN p_lock.ended
        WHEN p_lock.token <= p_floor THEN 'void'
        WHEN EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (p_lock.resources)
                     AND f.lock_id = p_lock.id AND f.break_due IS NOT NULL) THEN 'breaking'
        WHEN EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (p_lock.resources)
                     AND f.lock_id = p_lock.id AND f.hold = 'draining') THEN 'draining'
        WHEN p_lock.hold_until <= p_now THEN 'hold_exceeded'
    END;
END $$;

-- Starts the ttl of a lock again, within its longest hold, and returns the time left. With p_confirms, its
-- holder has shown that it knows of the lock: an infinite one has no deadline from now on. Without it, such a
-- lock lasts for what an unconfirmed one does, but its deadline is never brought nearer.
CREATE FUNCTION fencegate.restart(
    p_lock fencegate.locks, p_ttl_ms bigint, p_confirms boolean, p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    only_longer boolean := NOT p_confirms AND p_ttl_ms = fencegate.infinite_ms();
    ahead_ms    bigint := CASE WHEN only_longer THEN fencegate.unconfirmed_ms() ELSE p_ttl_ms END;
    left_ms     bigint;
BEGIN
    IF p_lock.ttl_ms <> p_ttl_ms THEN
        UPDATE fencegate.locks l SET ttl_ms = p_ttl_ms WHERE l.id = p_lock.id;
    END IF;
    WITH restarted AS (
        UPDATE fencegate.fences f
        SET ttl_ms = greatest(ahead_ms, CASE WHEN only_longer THEN f.ttl_ms END),
            renewed_at = p_now,
            deadline = least(
                greatest(p_now + ahead_ms * interval '1 millisecond',
                         CASE WHEN only_longer THEN f.deadline END),
                p_lock.hold_until)
        WHERE f.resource = ANY (p_lock.resources) AND f.lock_id = p_lock.id
        RETURNING f.deadline)
    SELECT fencegate.millis(min(r.deadline) - p_now) INTO left_ms FROM restarted r;
    RETURN left_ms;
END $$;

CREATE FUNCTION fencegate.versions(p_names text[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT array_agg(coalesce(f.version, 0) ORDER BY n.position)
    FROM unnest(p_names) WITH ORDINALITY n (name, position)
    LEFT JOIN fencegate.fences f ON f.resource = n.name);
END $$;

-- Seal: raise fences to a newly minted token and record the holder. Item i takes the resources
-- whose p_item is i; a resource appears once in p_resources, which is sorted. Each lock is sealed on
-- all of its resources or on none (I2, I5).
--
-- 1. The guard: the epoch that the number was minted in is still the current one (I11).
-- 2. Fences that do not exist yet are made, in name order; then all are locked, in name order.
-- 3. Per item: a buried id; a known id; a lock p_from that does not hand over; frozen; held by
--    another; an order that does not rise; somebody ahead in the queue (for a lock); a number that
--    does not rise, or that names another grant already (I15); something of older tokens under way at an upstream, unless the caller waits at
--    p_gateway: then it is sealed as draining, and in force later (0011). p_attempt: 0 first, 1 rerun (a refusal also buries the id, unless it waits),
--    2 bury (unless it is known).
--    p_force is NULL for a lock; else the item is a fence without a lock, sealed over a live lock if
--    it is true. A successor has the longest hold and the metadata of its predecessor.
--    p_ttl_ms is NULL where the caller names none: a known lock keeps its own, a successor gets that of its
--    predecessor.
-- 4. What held the resources before is superseded; the fence rises; the grant is recorded.
CREATE FUNCTION fencegate.seal(
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
    LOCK TABLE fencegate.seal_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.seal_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);
    PERFORM fencegate.limit_wait(p_wait_ms);
    IF guard.epoch <> p_epoch THEN
        RAISE EXCEPTION 'the epoch is %, not %', guard.epoch, p_epoch USING ERRCODE = 'FG002';
    END IF;

    INSERT INTO fencegate.fences (resource)
    SELECT r.name FROM unnest(p_resources, p_item) r (name, item)
    WHERE p_number[r.item] IS NOT NULL
      AND (SELECT f.resource FROM fencegate.fences f WHERE f.resource = r.name) IS NULL
    ORDER BY r.name COLLATE "C" ON CONFLICT DO NOTHING;
    got := fencegate.lock_fences(p_resources, p_wait_ms);
    got_ids := fencegate.lock_ids(p_lock, p_wait_ms);
    PERFORM fencegate.lock_locks(got, got_ids);
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

        IF p_lock[i] <> ALL (got_ids) OR NOT fencegate.all_locked(names, got) THEN
            verdict := 'busy';
        ELSE
            PERFORM fencegate.settle(names, t);
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
                why := fencegate.not_renewable(known, guard.floor, t);
                completed := false;
                IF why = 'draining' AND known.resources = names AND known.owner = p_owner[i]
                        AND known.fence = (p_force[i] IS NOT NULL) THEN
                    drains := fencegate.drains(names, t);
                    IF drains IS NULL THEN
                        known := fencegate.complete(known, t);
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
                    PERFORM fencegate.restart(known, coalesce(p_ttl_ms[i], known.ttl_ms), false, t);
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
                            remaining_ms := fencegate.restart(
                                known, made.ttl_ms,
                                NOT completed AND p_number[i] IS NULL AND p_attempt[i] = 0, t);
                        END IF;
                        unconfirmed := made.ttl_ms = fencegate.infinite_ms() AND EXISTS (
                            SELECT FROM fencegate.fences f
                            WHERE f.resource = ANY (names) AND f.lock_id = known.id
                              AND f.ttl_ms <> made.ttl_ms);
                    END IF;
                    token := known.token;
                    acquired_us := fencegate.micros(known.acquired_at);
                    versions := fencegate.versions(names);
                END IF;
            ELSIF waiter.resources <> names OR waiter.owner <> p_owner[i]
                  OR (waiter.ticket IS NOT NULL AND p_force[i] IS NOT NULL) THEN
                verdict := 'conflict';
            ELSIF p_attempt[i] = 2 THEN
                PERFORM fencegate.leave(p_lock[i]);
                PERFORM fencegate.bury('lock', p_lock[i], t);
                verdict := 'released';
            ELSIF p_from[i] IS NOT NULL THEN
                SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_from[i];
                why := fencegate.not_renewable(known, guard.floor, t);
                verdict := CASE WHEN known.id IS NULL OR known.fence THEN 'not_found'
                                WHEN known.resources <> names THEN 'conflict'
                                ELSE why END;
                IF verdict = 'draining' THEN
                    resource := names[1];
                END IF;
                IF verdict IS NOT NULL AND p_attempt[i] > 0 THEN
                    PERFORM fencegate.bury('lock', p_lock[i], t);
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
                  AND fencegate.is_ahead(names, waiter.ticket, t) THEN
                verdict := 'queued';
            ELSIF p_number[i] IS NULL OR guard.base + p_number[i] <= guard.floor OR EXISTS (
                SELECT FROM fencegate.fences f
                WHERE f.resource = ANY (names) AND f.token >= guard.base + p_number[i]) OR EXISTS (
                SELECT FROM fencegate.grants g
                WHERE g.leads AND g.token = guard.base + p_number[i]) THEN
                verdict := 'too_low';
            ELSIF may_drain THEN
                drains := fencegate.drains(names, t);
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
                PERFORM fencegate.bury('lock', p_lock[i], t);
            END IF;
        END IF;

        IF verdict IS NULL THEN
            verdict := CASE WHEN drains IS NULL THEN 'sealed' ELSE 'drains' END;
            resource := drains;
            IF waiter.ticket IS NOT NULL THEN
                PERFORM fencegate.leave(p_lock[i]);
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
                                    fencegate.default_ttl_ms());
            unconfirmed := made.ttl_ms = fencegate.infinite_ms();
            made.hold_until := CASE WHEN p_from[i] IS NULL
                THEN t + p_max_hold_ms[i] * interval '1 millisecond' ELSE known.hold_until END;
            made.metadata := CASE WHEN p_from[i] IS NULL
                THEN coalesce(p_metadata[i]::jsonb, '{}') ELSE known.metadata END;
            ahead := CASE WHEN unconfirmed THEN fencegate.unconfirmed_ms() ELSE made.ttl_ms END;
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
            versions := fencegate.versions(names);
        END IF;
        IF verdict IN ('sealed', 'again') THEN
            ttl_ms := made.ttl_ms;
            hold_until_us := fencegate.micros(made.hold_until);
            metadata := nullif(made.metadata, '{}')::text;
        END IF;
        flushed := fencegate.flushed();
        RETURN NEXT;
    END LOOP;
END $$;

-- Locks the fences of these locks, by id: reads their names, locks the rows.
CREATE FUNCTION fencegate.lock_fences_of(p_locks uuid[], p_wait_ms int)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[];
BEGIN
    SELECT array_agg(DISTINCT name) INTO names
    FROM fencegate.locks l, unnest(l.resources) name WHERE l.id = ANY (p_locks);
    RETURN fencegate.lock_fences(coalesce(names, '{}'), p_wait_ms);
END $$;

-- Renew: start the ttl again, also of a lock that has expired and that nobody took over.
CREATE FUNCTION fencegate.renew(
    p_seen bigint, p_wait_ms int, p_lock uuid[], p_ttl_ms bigint[])
RETURNS TABLE (
    verdict text, token bigint, acquired_us bigint, ttl_ms bigint, remaining_ms bigint,
    versions bigint[], resources text[], owner text, lapsed_ms bigint, hold_until_us bigint,
    metadata text, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    known fencegate.locks;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);
    PERFORM fencegate.limit_wait(p_wait_ms);
    got := fencegate.lock_fences_of(p_lock, p_wait_ms);
    PERFORM fencegate.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL; token := NULL; acquired_us := NULL; ttl_ms := NULL; remaining_ms := NULL;
        versions := NULL; resources := NULL; owner := NULL; lapsed_ms := NULL;
        hold_until_us := NULL; metadata := NULL;
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
        IF NOT FOUND THEN
            verdict := CASE WHEN EXISTS (
                    SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i])
                THEN 'released' ELSE 'not_found' END;
        ELSIF known.fence THEN
            verdict := 'not_found';
        ELSIF NOT known.resources <@ got THEN
            verdict := 'busy';
        ELSE
            PERFORM fencegate.settle(known.resources, t);
            SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
            verdict := fencegate.not_renewable(known, guard.floor, t);
        END IF;
        IF verdict IS NULL THEN
            verdict := 'renewed';
            SELECT fencegate.millis(t - min(f.deadline)) INTO lapsed_ms FROM fencegate.fences f
            WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id AND f.deadline <= t;
            ttl_ms := coalesce(p_ttl_ms[i], known.ttl_ms);
            remaining_ms := fencegate.restart(known, ttl_ms, true, t);
            hold_until_us := fencegate.micros(known.hold_until);
            metadata := nullif(known.metadata, '{}')::text;
            token := known.token;
            acquired_us := fencegate.micros(known.acquired_at);
            versions := fencegate.versions(known.resources);
            resources := known.resources;
            owner := known.owner;
        END IF;
        flushed := fencegate.flushed();
        RETURN NEXT;
    END LOOP;
END $$;

-- Release: end a lock at its holder's wish. An unknown id is buried, so that a grant on its way
-- under that id can never be sealed, unless p_bury says that it must not be; if it waits in the queue, it
-- leaves it. With p_since (microseconds;
-- NULL for in any case) only a lock whose ttl last began then: compared for being the same time, so that
-- no clock step makes a renewal older than its grant.
CREATE FUNCTION fencegate.release(
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
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);
    PERFORM fencegate.limit_wait(p_wait_ms);
    got := fencegate.lock_fences_of(p_lock, p_wait_ms);
    got_ids := fencegate.lock_ids(p_lock, p_wait_ms);
    PERFORM fencegate.lock_locks(got, got_ids);
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL; held_ms := NULL; resources := NULL; number := NULL; waited_for := NULL;
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
        IF p_lock[i] <> ALL (got_ids) THEN
            verdict := 'busy';
        ELSIF known.id IS NULL THEN
            resources := fencegate.leave(p_lock[i]);
            IF resources IS NULL AND NOT p_bury[i] AND NOT EXISTS (
                    SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i]) THEN
                verdict := 'unknown';
            ELSE
                PERFORM fencegate.bury('lock', p_lock[i], t);
                verdict := CASE WHEN resources IS NULL THEN 'buried' ELSE 'left' END;
            END IF;
        ELSIF NOT known.resources <@ got THEN
            verdict := 'busy';
        ELSE
            PERFORM fencegate.settle(known.resources, t);
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
        flushed := fencegate.flushed();
        RETURN NEXT;
    END LOOP;
END $$;

-- Break: end the lock of a resource at an operator's wish, at the latest in p_after_ms, sooner if
-- it expires sooner. A second break can shorten, never extend. Only under the token that was meant:
-- a call whose answer was lost, and which runs late, must not hit the next holder.
CREATE FUNCTION fencegate.break_locks(
    p_seen bigint, p_wait_ms int, p_resource text[], p_token bigint[], p_after_ms bigint[],
    p_reason text[], p_request_id text[])
RETURNS TABLE (verdict text, due_ms bigint, held_ms bigint, number bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    fence fencegate.fences;
    due   timestamptz;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);
    PERFORM fencegate.limit_wait(p_wait_ms);
    got := fencegate.lock_fences(p_resource, p_wait_ms);
    PERFORM fencegate.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_resource) LOOP
        due_ms := NULL; held_ms := NULL; number := NULL;
        PERFORM fencegate.settle(ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);
        SELECT * INTO fence FROM fencegate.fences f WHERE f.resource = p_resource[i];
        IF NOT fencegate.all_locked(p_resource[i:i], got) THEN
            verdict := 'busy';
        ELSIF fence.resource IS NULL OR fence.hold = 'none' THEN
            verdict := 'no_fence';
        ELSIF fence.hold = 'released' OR fence.token <> p_token[i] THEN
            verdict := 'not_held';
        ELSIF fence.hold = 'broken' THEN
            verdict := 'broken';
        ELSE
            due := least(fence.break_due, greatest(
                t, least(fence.deadline,
                         t + least(p_after_ms[i], 10000000000000) * interval '1 millisecond')));
            verdict := CASE WHEN due <= t THEN 'broken' ELSE 'breaking' END;
            IF fence.break_due IS NULL OR due <= t
                    OR fence.break_due - due >= interval '1 millisecond' THEN
                PERFORM fencegate.audit(t, 'break', fence.resource, fence.owner, NULL, fence.token,
                                        p_reason[i], p_request_id[i]);
            END IF;
            UPDATE fencegate.fences f
            SET break_due = due, hold = CASE WHEN due <= t THEN 'broken' ELSE f.hold END
            WHERE f.resource = fence.resource;
            IF due <= t THEN
                UPDATE fencegate.locks l SET ended = 'broken', ended_at = t
                WHERE l.id = fence.lock_id AND l.ended IS NULL;
                held_ms := fencegate.millis(t - fence.acquired_at);
                SELECT fence.token - g.base INTO number FROM fencegate.seal_guard g;
            ELSE
                due_ms := fencegate.millis(due - t);
            END IF;
        END IF;
        flushed := fencegate.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
