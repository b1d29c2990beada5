-- Intents of drained upstreams (I13).

-- Records upstreams. One that is new to a ledger which was ever re-fenced is in doubt: an earlier record
-- of it, and its intents, may have been lost. Not refused while a re-fence is called for: it comes before.
CREATE FUNCTION acts.register_upstreams(p_name text[], p_prefix text[], p_delay_ms bigint[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    IF guard.acts_min > acts.number() THEN
        PERFORM acts.refuse_retired();
    END IF;
    INSERT INTO fencegate.drained_upstreams AS d
        (name, resource_prefix, max_effect_delay_ms, doubt_floor, doubt_since)
    SELECT u.name, u.prefix, u.delay_ms, CASE WHEN guard.generation > 0 THEN guard.floor END,
           CASE WHEN guard.generation > 0 THEN clock_timestamp() END
    FROM unnest(p_name, p_prefix, p_delay_ms) u (name, prefix, delay_ms)
    ORDER BY u.name, u.prefix
    ON CONFLICT (name, resource_prefix) DO UPDATE
    SET max_effect_delay_ms = excluded.max_effect_delay_ms;
END $$;

-- The first of these resources on which something of older tokens is under way, or may be; NULL if none.
-- For acts that have locked the fences: read by statements begun after that. All open intents there are
-- of older tokens, since none is opened under one that is not in force.
CREATE FUNCTION acts.drains(p_names text[], p_now timestamptz)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    open     text;
    in_doubt text;
BEGIN
    SELECT min(u.resource) INTO open FROM fencegate.upstream_intents u
    WHERE u.resource = ANY (p_names) AND u.closed IS NULL
      AND (u.closes_at IS NULL OR u.closes_at > p_now);
    SELECT min(n.name COLLATE "C") INTO in_doubt
    FROM fencegate.drained_upstreams d CROSS JOIN unnest(p_names) n (name)
    LEFT JOIN fencegate.fences f ON f.resource = n.name
    WHERE d.doubt_floor IS NOT NULL AND starts_with(n.name, d.resource_prefix)
      AND acts.is_void(coalesce(f.live_token, 0), d.doubt_floor)
      AND (d.max_effect_delay_ms IS NULL
           OR d.doubt_since + d.max_effect_delay_ms * interval '1 millisecond' > p_now);
    RETURN least(open, in_doubt COLLATE "C");
END $$;

-- Puts a lock in force that was sealed as draining: its time begins now, its longest hold as well.
CREATE FUNCTION acts.complete(p_lock fencegate.locks, p_now timestamptz)
RETURNS fencegate.locks LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    lock fencegate.locks;
BEGIN
    UPDATE fencegate.locks l
    SET acquired_at = p_now, hold_until = l.hold_until + (p_now - l.acquired_at)
    WHERE l.id = p_lock.id RETURNING * INTO lock;
    UPDATE fencegate.fences f SET hold = 'held', live_token = f.token, acquired_at = p_now
    WHERE f.resource = ANY (lock.resources) AND f.lock_id = lock.id AND acts.is_draining(f.hold);
    PERFORM acts.restart(lock, lock.ttl_ms, false, NULL, NULL, p_now);
    RETURN lock;
END $$;

-- Complete: puts locks in force for which nothing of older tokens is under way any more, those on these
-- resources, or on any. Those that have expired meanwhile are left to their callers, if they still come.
CREATE FUNCTION acts.complete_drains(p_seen bigint, p_wait_ms int, p_resources text[])
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    ids   uuid[];
    one   uuid;
    known fencegate.locks;
    done  uuid[] := '{}';
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    SELECT array_agg(DISTINCT f.lock_id) INTO ids FROM fencegate.fences f
    WHERE acts.is_draining(f.hold) AND (p_resources IS NULL OR f.resource = ANY (p_resources));
    IF ids IS NULL THEN
        RETURN done;
    END IF;
    got := acts.lock_fences_of(ids, p_wait_ms);
    PERFORM acts.lock_locks(got, '{}');
    t := clock_timestamp();
    FOREACH one IN ARRAY ids LOOP
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = one;
        CONTINUE WHEN NOT FOUND OR NOT known.resources <@ got;
        PERFORM acts.settle(known.resources, t);
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = one;
        CONTINUE WHEN acts.not_renewable(known, guard.floor, t) IS DISTINCT FROM 'draining'
            OR EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (known.resources)
                       AND f.lock_id = known.id AND f.deadline <= t);
        IF acts.drains(known.resources, t) IS NULL THEN
            PERFORM acts.complete(known, t);
            done := done || known.id;
        END IF;
    END LOOP;
    RETURN done;
END $$;

-- Lets the gateways hear at which the callers of these locks wait. A statement of its own, after the act.
CREATE FUNCTION acts.wake_callers(p_gateway uuid, p_locks uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_notify('fencegate_' || replace(l.gateway::text, '-', ''), l.id::text)
    FROM fencegate.locks l
    WHERE l.id = ANY (p_locks) AND l.gateway <> p_gateway;
END $$;

-- Closes intents for the gateways that forward them, the only ones that know what came of it: an answer of
-- this status, or without one that nothing was sent. Also if somebody who did not know has closed one before.
CREATE FUNCTION acts.close_known(p_operation uuid[], p_status int[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fencegate.upstream_intents u
    SET closed = CASE WHEN o.status IS NULL THEN 'unsent' ELSE 'answered' END,
        closed_at = acts.stamp(p_now), status = o.status, reason = NULL
    FROM unnest(p_operation, p_status) o (operation, status)
    WHERE u.operation = o.operation AND (u.closed IS NULL OR u.closed IN ('resolved', 'elapsed'));
END $$;

-- Open: decide whether requests may be forwarded. The order is that of commit: guard, fences in name
-- order, and in later statements everything else. Per item, the first that applies decides:
-- 0. The rules of access have moved: nothing is decided (I17), unless all that is asked is what became of it.
-- 1. The intent is there: an earlier sending was admitted. p_attempt 2 (bury): closed as not sent, since only
--    an answer that arrived is forwarded. Counts as closed by now: closed as such, since a later sending
--    than this one may have been forwarded. Closed: buried.
-- 2. The operation is buried, or to be buried.
-- 3. The rule, then the version of the resource. A rerun that is refused buries its id. Without an intent
--    a sequence number that is used up may have been so by the first sending: buried.
-- 4. The sequence number and, of a drained upstream, the intent are stored. No version, no operation.
-- Of one that leaves no intent no id is buried: a sending that comes late would bury what a later one has
-- forwarded.
CREATE FUNCTION acts.open_intents(
    p_seen bigint, p_wait_ms int, p_operation uuid[], p_attempt int[], p_resource text[],
    p_token bigint[], p_lock uuid[], p_seq bigint[], p_if_version bigint[], p_drained boolean[],
    p_upstream text[], p_method text[], p_path text[], p_gateway uuid[], p_delay_ms bigint[], p_names text[],
    p_rules bigint[])
RETURNS TABLE (
    verdict text, superseded_by text, at_us bigint, behind bigint, owner text, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    fence fencegate.fences;
    known fencegate.upstream_intents;
    newest fencegate.operations;
    old   record;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resource, p_wait_ms);
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_operation) LOOP
        verdict := NULL; superseded_by := NULL; at_us := NULL; behind := NULL; owner := NULL;
        PERFORM acts.settle(
            ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);
        SELECT * INTO fence FROM fencegate.fences f WHERE f.resource = p_resource[i];
        SELECT * INTO known FROM fencegate.upstream_intents u WHERE u.operation = p_operation[i];
        IF p_attempt[i] <> 2 AND acts.rules_moved(p_rules[i], guard.access) THEN
            verdict := 'rules_moved';
        ELSIF NOT acts.all_locked(p_resource[i:i], got) THEN
            verdict := 'busy';
        ELSIF known.operation IS NOT NULL AND p_attempt[i] = 2 THEN
            PERFORM acts.close_known(p_operation[i:i], ARRAY[NULL::int], t);
            verdict := 'buried';
        ELSIF known.closed IS NOT NULL THEN
            verdict := 'buried';
        ELSIF known.closes_at <= t THEN
            UPDATE fencegate.upstream_intents u SET closed = 'elapsed', closed_at = acts.stamp(u.closes_at)
            WHERE u.operation = p_operation[i] AND u.closed IS NULL;
            verdict := 'buried';
        ELSIF known.operation IS NOT NULL THEN
            verdict := 'admitted';
        ELSIF EXISTS (SELECT FROM fencegate.buried b
                      WHERE b.kind = 'operation' AND b.id = p_operation[i]) THEN
            verdict := 'buried';
        ELSIF p_attempt[i] = 2 THEN
            IF p_drained[i] THEN
                PERFORM acts.bury('operation', p_operation[i], t);
            END IF;
            verdict := 'buried';
        ELSE
            -- The rule, then the version.
            newest := acts.newest(p_resource[i]);
            verdict := acts.judge(p_token[i], p_lock[i], p_seq[i], guard.floor, fence.token,
                                  fence.lock_id, fence.hold, fence.frozen IS NOT NULL,
                                  greatest(fence.last_seq,
                                           CASE WHEN newest.token = fence.token THEN newest.highest_seq END),
                                  acts.is_yours(p_names[i], fence.principal, fence.writers));
            IF verdict = 'older' THEN
                old := acts.older(p_resource[i], p_token[i], fence.grants, p_names[i]);
                verdict := old.verdict; superseded_by := old.superseded_by;
                at_us := fencegate.micros(old.at); owner := old.owner; behind := old.behind;
            ELSIF verdict IS NULL AND p_if_version[i] <> coalesce(newest.version, 0) THEN
                verdict := 'version_mismatch';
            END IF;
        END IF;

        IF verdict IS NULL THEN
            verdict := 'admitted';
            IF p_seq[i] IS NOT NULL THEN
                UPDATE fencegate.fences f SET last_seq = p_seq[i] WHERE f.resource = p_resource[i];
            END IF;
            IF p_drained[i] THEN
                INSERT INTO fencegate.upstream_intents
                    (operation, resource, token, owner, upstream, method, path, gateway, opened_at,
                     closes_at)
                VALUES (p_operation[i], p_resource[i], p_token[i], fence.owner, p_upstream[i],
                        p_method[i], p_path[i], p_gateway[i], t,
                        t + p_delay_ms[i] * interval '1 millisecond');
            END IF;
        ELSIF verdict NOT IN ('admitted', 'buried', 'busy', 'rules_moved') AND p_attempt[i] = 1 THEN
            IF p_drained[i] THEN
                PERFORM acts.bury('operation', p_operation[i], t);
            ELSIF verdict = 'sequence_out_of_order' THEN
                verdict := 'buried';
            END IF;
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;

-- Close: what was forwarded is over, and what came of it is kept; so a sending that comes late does not open
-- it anew. Returns the resources on which a lock waits for that.
CREATE FUNCTION acts.close_intents(p_seen bigint, p_operation uuid[], p_status int[])
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard   fencegate.write_guard;
    waiting text[];
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM FROM fencegate.upstream_intents u WHERE u.operation = ANY (p_operation)
    ORDER BY u.operation FOR UPDATE;
    PERFORM acts.close_known(p_operation, p_status, clock_timestamp());
    SELECT array_agg(f.resource) INTO waiting FROM fencegate.fences f
    WHERE acts.is_draining(f.hold) AND f.resource IN (
        SELECT u.resource FROM fencegate.upstream_intents u WHERE u.operation = ANY (p_operation));
    RETURN coalesce(waiting, '{}');
END $$;

-- Resolve: close an intent at an operator's wish, who does not know what came of it: nothing is said of that.
-- Under the fence's lock, so that no act finds it open that is under way.
CREATE FUNCTION acts.resolve_intent(
    p_seen bigint, p_wait_ms int, p_operation uuid, p_reason text, p_request_id text, p_asked text, p_rules bigint)
RETURNS TABLE (verdict text, resource text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    known fencegate.upstream_intents;
    t     timestamptz;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.assert_rules(p_rules, guard.access);
    PERFORM acts.limit_wait(p_wait_ms);
    SELECT * INTO known FROM fencegate.upstream_intents u WHERE u.operation = p_operation;
    PERFORM acts.lock_fences(ARRAY[known.resource], p_wait_ms);
    t := clock_timestamp();
    UPDATE fencegate.upstream_intents u SET closed = 'resolved', closed_at = acts.stamp(t), reason = p_reason
    WHERE u.operation = p_operation AND u.closed IS NULL RETURNING * INTO known;
    IF NOT FOUND THEN
        verdict := CASE WHEN EXISTS (SELECT FROM fencegate.upstream_intents u
                                     WHERE u.operation = p_operation)
                          OR EXISTS (SELECT FROM fencegate.buried b
                                     WHERE b.kind = 'operation' AND b.id = p_operation)
            THEN 'before' ELSE 'not_found' END;
    ELSE
        PERFORM acts.audit(t, 'resolve', known.resource, known.owner, known.token, p_reason,
                                p_request_id, p_asked);
        verdict := 'now';
        resource := known.resource;
    END IF;
    RETURN NEXT;
END $$;

-- Ends the doubts of an upstream at an operator's wish. Returns how many there were; NULL if no upstream of
-- this name was ever registered.
CREATE FUNCTION acts.resolve_doubts(
    p_seen bigint, p_upstream text, p_reason text, p_request_id text, p_asked text, p_rules bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
    ended bigint;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.assert_rules(p_rules, guard.access);
    IF NOT EXISTS (SELECT FROM fencegate.drained_upstreams d WHERE d.name = p_upstream) THEN
        RETURN NULL;
    END IF;
    UPDATE fencegate.drained_upstreams d SET doubt_floor = NULL, doubt_since = NULL
    WHERE d.name = p_upstream AND d.doubt_floor IS NOT NULL;
    GET DIAGNOSTICS ended = ROW_COUNT;
    IF ended > 0 THEN
        PERFORM acts.audit(clock_timestamp(), 'resolve', NULL, NULL, NULL, p_reason,
                                p_request_id, p_asked);
    END IF;
    RETURN ended;
END $$;

-- Closes intents that count as closed, so that no clock step opens them again, and removes those that were
-- closed so long ago. Says how many.
CREATE FUNCTION acts.sweep_intents(p_keep_s double precision, p_rows bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t       timestamptz := clock_timestamp();
    elapsed bigint;
    removed bigint;
BEGIN
    UPDATE fencegate.upstream_intents u SET closed = 'elapsed', closed_at = acts.stamp(u.closes_at)
    WHERE u.operation = ANY (ARRAY(
        SELECT o.operation FROM fencegate.upstream_intents o
        WHERE o.closed IS NULL AND o.closes_at <= t
        ORDER BY o.closes_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS elapsed = ROW_COUNT;
    DELETE FROM fencegate.upstream_intents u WHERE u.operation = ANY (ARRAY(
        SELECT o.operation FROM fencegate.upstream_intents o
        WHERE o.closed IS NOT NULL
          AND o.closed_at < (SELECT w.at FROM fencegate.own_time w) - p_keep_s * interval '1 second'
        ORDER BY o.closed_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN elapsed + removed;
END $$;
