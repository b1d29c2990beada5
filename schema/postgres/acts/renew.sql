-- Renew: a lock is kept.

-- Why a known lock is not extended: how it ended, 'breaking', 'draining' (it is not in force yet) or
-- 'hold_exceeded'; NULL if it may be extended.
CREATE FUNCTION acts.not_renewable(p_lock fencegate.locks, p_floor bigint, p_now timestamptz)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN CASE
        WHEN p_lock.ended IS NOT NULL THEN p_lock.ended
        WHEN acts.is_void(p_lock.token, p_floor) THEN 'void'
        WHEN EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (p_lock.resources)
                     AND f.lock_id = p_lock.id AND f.break_due IS NOT NULL) THEN 'breaking'
        WHEN EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (p_lock.resources)
                     AND f.lock_id = p_lock.id AND acts.is_draining(f.hold)) THEN 'draining'
        WHEN p_lock.hold_until <= p_now THEN 'hold_exceeded'
    END;
END $$;

-- Starts the ttl of a lock again, within its longest hold, and returns the time left. With p_confirms, its
-- holder has shown that it knows of the lock: an infinite one has no deadline from now on. Without it, such a
-- lock lasts for what an unconfirmed one does, but its deadline is never brought nearer. With p_credential, it belongs to
-- that one from now on.
CREATE FUNCTION acts.restart(
    p_lock fencegate.locks, p_ttl_ms bigint, p_confirms boolean, p_credential text, p_ends_us bigint, p_now timestamptz)
RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    only_longer boolean := NOT p_confirms AND p_ttl_ms = acts.infinite_ms();
    ahead_ms    bigint := CASE WHEN only_longer THEN acts.unconfirmed_ms() ELSE p_ttl_ms END;
    left_ms     bigint;
BEGIN
    IF p_lock.ttl_ms <> p_ttl_ms
       OR p_credential IS NOT NULL
          AND (p_lock.credential, p_lock.credential_ends_us) IS DISTINCT FROM (p_credential, p_ends_us) THEN
        UPDATE fencegate.locks l
        SET ttl_ms = p_ttl_ms, credential = coalesce(p_credential, l.credential),
            credential_ends_us = CASE WHEN p_credential IS NULL THEN l.credential_ends_us ELSE p_ends_us END
        WHERE l.id = p_lock.id;
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

-- Renew: start the ttl again, also of a lock that has expired and that nobody took over.
-- 1. The fences of the locks are locked; a break that has come due is stored.
-- 2. Nothing is decided if the rules of access have moved (I17). What is of another principal is not known (I16). What has ended, is about to, or is not in force yet, is not extended.
-- 3. The ttl starts again. p_credential, p_ends_us: the credential of the caller, and the end that it has by itself.
CREATE FUNCTION acts.renew(
    p_seen bigint, p_wait_ms int, p_lock uuid[], p_ttl_ms bigint[], p_principal text[], p_rules bigint[],
    p_credential text[], p_ends_us bigint[])
RETURNS TABLE (
    verdict text, token bigint, acquired_us bigint, ttl_ms bigint, remaining_ms bigint,
    versions bigint[], resources text[], owner text, lapsed_ms bigint, hold_until_us bigint,
    metadata text, writers text[], flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    known fencegate.locks;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences_of(p_lock, p_wait_ms);
    PERFORM acts.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL; token := NULL; acquired_us := NULL; ttl_ms := NULL; remaining_ms := NULL;
        versions := NULL; resources := NULL; owner := NULL; lapsed_ms := NULL;
        hold_until_us := NULL; metadata := NULL; writers := NULL;
        SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
        IF acts.rules_moved(p_rules[i], guard.access) THEN
            verdict := 'rules_moved';
        ELSIF known.id IS NULL THEN
            verdict := CASE WHEN EXISTS (
                    SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i])
                THEN 'released' ELSE 'not_found' END;
        ELSIF known.fence OR known.principal IS DISTINCT FROM p_principal[i] THEN
            verdict := 'not_found';
        ELSIF NOT known.resources <@ got THEN
            verdict := 'busy';
        ELSE
            PERFORM acts.settle(known.resources, t);
            SELECT * INTO known FROM fencegate.locks l WHERE l.id = p_lock[i];
            verdict := acts.not_renewable(known, guard.floor, t);
        END IF;
        IF verdict IS NULL THEN
            verdict := 'renewed';
            SELECT fencegate.millis(t - min(f.deadline)) INTO lapsed_ms FROM fencegate.fences f
            WHERE f.resource = ANY (known.resources) AND f.lock_id = known.id AND f.deadline <= t;
            ttl_ms := coalesce(p_ttl_ms[i], known.ttl_ms);
            remaining_ms := acts.restart(known, ttl_ms, true, p_credential[i], p_ends_us[i], t);
            hold_until_us := fencegate.micros(known.hold_until);
            metadata := nullif(known.metadata, '{}')::text;
            token := known.token;
            acquired_us := fencegate.micros(known.acquired_at);
            versions := acts.versions(known.resources);
            resources := known.resources;
            owner := known.owner;
            writers := known.writers;
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
