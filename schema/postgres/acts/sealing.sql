-- What a seal decides of one lock.

-- One lock that is to be sealed, and what becomes of it.
CREATE TYPE acts.sealing AS (
    lock            uuid,
    names           text[],               -- sorted
    owner           text,
    token           bigint,               -- NULL: without a number; only a re-entry under the same id can succeed
    attempt         int,                  -- 0 first; 1 rerun: a refusal also buries the id, unless it waits; 2 bury
    asked_ms        bigint,               -- the ttl; NULL where the caller names none
    predecessor     uuid,                 -- the lock that hands over
    force           boolean,              -- NULL for a lock; of a fence without one, whether over a live lock
    fence_order     bigint,
    gateway         uuid,                 -- at which its caller waits
    verdict         text,
    ttl_ms          bigint,
    ahead_ms        bigint,               -- how far ahead its deadline is set: less than the ttl while unconfirmed
    due             timestamptz,
    acquired_at     timestamptz,
    hold_until      timestamptz,
    remaining_ms    bigint,
    metadata        jsonb,
    unconfirmed     boolean,
    resource        text,                 -- on which it is refused, or for which it waits
    blocker         text,                 -- who holds that, and for how long
    age_ms          bigint,
    taken_resources text[],               -- what expired locks held
    taken_held_ms   bigint[],
    asker           text,                 -- the principal that asks
    principal       text,                 -- whose it will be
    writers         text[],               -- who else may write under its token
    asked           text,                 -- who asks and how, for the audit
    credential      text,                 -- to which the lock belongs; NULL if it will be another principal's
    credential_ends_us bigint
);

-- The times of a new lock: its ttl; how far ahead its deadline is set, less than that while it is unconfirmed; when it
-- must have ended. One row; as a set, since only such functions are put in the place of their call in FROM.
CREATE FUNCTION acts.terms(p_ttl_ms bigint, p_hold_until timestamptz, p_now timestamptz)
RETURNS TABLE (ttl_ms bigint, ahead_ms bigint, due timestamptz) LANGUAGE sql IMMUTABLE ROWS 1 AS $$
    SELECT t.ttl_ms, a.ahead_ms, least(p_now + a.ahead_ms * interval '1 millisecond', p_hold_until)
    FROM (SELECT coalesce(p_ttl_ms, acts.default_ttl_ms()) AS ttl_ms OFFSET 0) t
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.ttl_ms = acts.infinite_ms() THEN acts.unconfirmed_ms() ELSE t.ttl_ms END AS ahead_ms
        OFFSET 0) a
$$;

-- How a grant comes about, for the audit and for whoever it supersedes.
CREATE FUNCTION acts.how(p_item acts.sealing) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_item.force IS NOT NULL THEN 'fence' WHEN p_item.predecessor IS NULL THEN 'grant'
                ELSE 'transfer' END
$$;

-- Whether a lock is what this principal has handed its own lock over to (I16): the grant that superseded that one.
CREATE FUNCTION acts.was_handed_over(p_from uuid, p_asker text, p_to uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT n.lock_id = p_to AND n.how = 'transfer'
        FROM fencegate.locks l
        JOIN fencegate.grants g ON g.resource = l.resources[1] AND g.token = l.token
        CROSS JOIN LATERAL (
            SELECT n.lock_id, n.how FROM fencegate.grants n
            WHERE n.resource = g.resource AND n.number > g.number ORDER BY n.number LIMIT 1) n
        WHERE l.id = p_from AND l.principal IS NOT DISTINCT FROM p_asker), false)
$$;

-- What becomes of a seal whose id a lock has already: it is that lock again, or is refused.
--
-- 0. The id of a lock of another principal is in use, unless whoever asks has handed its own over to that (I16):
--    anybody can name a principal as a successor, and an id that stands in some log.
-- 1. A lock that was not in force, and for which nothing is under way any more, is put in force.
-- 2. It is refused if the lock has ended, or if it is another lock than the caller means. A lock that is not in
--    force yet is kept for a caller that waits.
-- 3. It is that lock again: its ttl starts anew, or changes to what the caller says now. But an item that comes
--    with a number was sent to be granted, perhaps long ago by the very call that was granted, and so was a rerun
--    without a number: it changes nothing of a lock that has not lapsed. Nor does it prove that anybody knows of
--    the lock. If the lock was not in force before, its token was told to nobody. What only asks what became of it is
--    held to no rules of access, and changes nothing at all (I17).
CREATE FUNCTION acts.seal_again(p_item acts.sealing, p_known fencegate.locks, p_floor bigint, p_now timestamptz)
RETURNS acts.sealing LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    item      acts.sealing := p_item;
    known     fencegate.locks := p_known;
    is_meant  boolean := known.resources = item.names AND known.owner = item.owner
                         AND known.fence = (item.force IS NOT NULL);
    is_asked  boolean := item.token IS NULL AND item.attempt = 0;
    only_asks boolean := item.attempt = 2;
    completed boolean := false;
    why       text := acts.not_renewable(known, p_floor, p_now);
    drains    text;
BEGIN
    -- Step 0.
    IF known.principal IS DISTINCT FROM item.principal
       OR (item.principal IS DISTINCT FROM item.asker
           AND NOT acts.was_handed_over(item.predecessor, item.asker, known.id)) THEN
        item.verdict := 'conflict';
        RETURN item;
    END IF;

    -- Step 1.
    IF why = 'draining' AND is_meant AND NOT only_asks THEN
        drains := acts.drains(item.names, p_now);
        IF drains IS NULL THEN
            known := acts.complete(known, p_now);
            completed := true;
            why := NULL;
        END IF;
    END IF;

    -- Step 2.
    item.verdict := CASE WHEN why NOT IN ('breaking', 'draining', 'hold_exceeded') THEN why
                         WHEN NOT is_meant THEN 'conflict'
                         WHEN why = 'draining' AND item.gateway IS NOT NULL AND NOT only_asks THEN 'drains_still'
                         ELSE coalesce(why, 'again') END;
    item.resource := CASE WHEN only_asks AND why = 'draining'
                          THEN coalesce(acts.drains(item.names, p_now), item.names[1]) ELSE drains END;
    IF item.verdict = 'drains_still' THEN
        PERFORM acts.restart(known, coalesce(item.asked_ms, known.ttl_ms), false, item.credential, item.credential_ends_us,
                             p_now);
        UPDATE fencegate.locks l SET gateway = item.gateway
        WHERE l.id = known.id AND l.gateway IS DISTINCT FROM item.gateway;
    END IF;
    IF item.verdict <> 'again' THEN
        RETURN item;
    END IF;

    -- Step 3.
    item.ttl_ms := known.ttl_ms;
    item.remaining_ms := 0;
    IF NOT known.fence THEN
        item.remaining_ms := (
            SELECT fencegate.millis(min(f.deadline) - p_now) FROM fencegate.fences f
            WHERE f.resource = ANY (item.names) AND f.lock_id = known.id);
        IF is_asked OR completed OR (item.remaining_ms <= 0 AND NOT only_asks) THEN
            item.ttl_ms := coalesce(item.asked_ms, known.ttl_ms);
            item.remaining_ms := acts.restart(known, item.ttl_ms, is_asked AND NOT completed, item.credential,
                                              item.credential_ends_us, p_now);
        END IF;
        item.unconfirmed := item.ttl_ms = acts.infinite_ms() AND EXISTS (
            SELECT FROM fencegate.fences f
            WHERE f.resource = ANY (item.names) AND f.lock_id = known.id AND f.ttl_ms <> item.ttl_ms);
    END IF;
    item.token := known.token;
    item.acquired_at := known.acquired_at;
    item.hold_until := known.hold_until;
    item.metadata := known.metadata;
    item.writers := known.writers;
    RETURN item;
END $$;

-- Who or what keeps a lock from being sealed on its resources, which are locked; no verdict if nothing does. The first
-- resource in name order on which one of these is so decides: frozen, held by somebody else, an order that does not
-- rise; then somebody ahead in the queue; then a number that does not rise; then something of older tokens under way,
-- unless its caller waits for that.
CREATE FUNCTION acts.obstructed(
    p_item acts.sealing, p_ticket bigint, p_may_drain boolean, p_floor bigint, p_now timestamptz)
RETURNS acts.sealing LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    item  acts.sealing := p_item;
    fence record;
BEGIN
    SELECT f.resource, f.owner, f.frozen IS NOT NULL AS is_frozen, f.break_due, o.keeps_out,
           acts.is_draining(f.hold) AS is_draining, fencegate.millis(p_now - f.acquired_at) AS age_ms,
           fencegate.millis(least(f.deadline, f.break_due) - p_now) AS left_ms
    INTO fence
    FROM fencegate.fences f
    CROSS JOIN LATERAL (
        SELECT acts.keeps_out(f.hold, f.token, f.deadline, p_floor, p_now) AND item.force IS NOT TRUE AS keeps_out) o
    WHERE f.resource = ANY (item.names)
      AND (f.frozen IS NOT NULL OR f.fence_order > item.fence_order
           OR (f.fence_order = item.fence_order AND NOT acts.is_void(f.token, p_floor))
           OR (o.keeps_out AND f.lock_id IS DISTINCT FROM item.predecessor))
    ORDER BY f.resource LIMIT 1;
    IF FOUND THEN
        item.verdict := CASE WHEN fence.is_frozen THEN 'frozen'
                             WHEN NOT fence.keeps_out THEN 'order_stale'
                             WHEN fence.break_due IS NOT NULL THEN 'held_breaking'
                             WHEN fence.is_draining THEN 'held_draining'
                             ELSE 'held' END;
        item.resource := fence.resource; item.blocker := fence.owner;
        item.age_ms := fence.age_ms; item.remaining_ms := fence.left_ms;
    ELSIF item.predecessor IS NULL AND item.force IS NULL AND acts.is_ahead(item.names, p_ticket, p_now) THEN
        item.verdict := 'queued';
    ELSIF acts.is_high_enough(item.token, p_floor, item.names) IS NOT TRUE THEN
        item.verdict := 'too_low';
    ELSIF p_may_drain THEN
        item.resource := acts.drains(item.names, p_now);
        IF item.resource IS NOT NULL AND item.gateway IS NULL THEN
            item.verdict := 'draining';
        END IF;
    END IF;
    RETURN item;
END $$;

-- Decides what is not as simple as nearly all seals are, on resources that are locked. The first that applies decides:
-- 1. A buried id. A known id: that lock again, or a refusal. But a fence without a lock that a re-fence voided is
--    set anew, since the lock elsewhere is still held.
-- 2. An id that waits for something else. An id that is to be buried, unless it is known.
-- 3. A lock that is to be handed over, and cannot be.
-- 4. Who or what is in the way. A rerun that is refused is buried, unless it waits in line for a lock of its own.
-- 5. It is sealed: in force, or once nothing is under way any more. What held the resources before is superseded. A
--    successor has the longest hold and the metadata of its predecessor, and its ttl if the caller names none.
CREATE FUNCTION acts.sealed_further(p_item acts.sealing, p_may_drain boolean, p_floor bigint, p_now timestamptz)
RETURNS acts.sealing LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    item   acts.sealing := p_item;
    waiter fencegate.waiters;
    known  fencegate.locks;
    former fencegate.locks;
BEGIN
    PERFORM acts.settle(item.names, p_now);

    -- Step 1.
    IF EXISTS (SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = item.lock) THEN
        item.verdict := 'released';
        RETURN item;
    END IF;
    SELECT * INTO known FROM fencegate.locks l WHERE l.id = item.lock;
    IF FOUND AND NOT (known.fence AND item.force IS NOT NULL AND known.ended IS NULL
                      AND acts.is_void(known.token, p_floor) AND known.resources = item.names
                      AND known.owner = item.owner AND known.principal IS NOT DISTINCT FROM item.principal) THEN
        RETURN acts.seal_again(item, known, p_floor, p_now);
    END IF;

    -- Step 2.
    SELECT * INTO waiter FROM fencegate.waiters w WHERE w.lock_id = item.lock;
    IF waiter.resources <> item.names OR waiter.owner <> item.owner
       OR (waiter.ticket IS NOT NULL AND waiter.principal IS DISTINCT FROM item.principal)
       OR (waiter.ticket IS NOT NULL AND item.force IS NOT NULL) THEN
        item.verdict := 'conflict';
        RETURN item;
    ELSIF item.attempt = 2 THEN
        PERFORM acts.leave(item.lock);
        PERFORM acts.bury('lock', item.lock, p_now);
        item.verdict := 'released';
        RETURN item;
    END IF;

    -- Step 3.
    IF item.predecessor IS NOT NULL THEN
        SELECT * INTO former FROM fencegate.locks l WHERE l.id = item.predecessor;
        item.verdict := CASE WHEN former.id IS NULL OR former.fence OR former.principal IS DISTINCT FROM item.asker
                                 THEN 'not_found'
                             WHEN former.resources <> item.names THEN 'conflict'
                             ELSE acts.not_renewable(former, p_floor, p_now) END;
        item.resource := CASE WHEN item.verdict = 'draining' THEN item.names[1] END;
    END IF;

    -- Step 4.
    IF item.verdict IS NULL THEN
        item := acts.obstructed(item, waiter.ticket, p_may_drain, p_floor, p_now);
        IF item.verdict <> 'too_low' AND waiter.called_at IS NOT NULL THEN
            -- It came: its turn is not over.
            UPDATE fencegate.waiters w SET called_at = NULL WHERE w.ticket = waiter.ticket;
        END IF;
    END IF;
    IF item.verdict IS NOT NULL THEN
        IF item.attempt > 0 AND (waiter.ticket IS NULL OR item.predecessor IS NOT NULL) THEN
            PERFORM acts.bury('lock', item.lock, p_now);
        END IF;
        RETURN item;
    END IF;

    -- Step 5.
    item.verdict := CASE WHEN item.resource IS NULL THEN 'sealed' ELSE 'drains' END;
    IF waiter.ticket IS NOT NULL THEN
        PERFORM acts.leave(item.lock);
    END IF;
    DELETE FROM fencegate.locks l WHERE l.id = known.id;
    SELECT array_agg(f.resource ORDER BY f.resource) FILTER (WHERE l.fence IS NOT TRUE),
           array_agg(fencegate.millis(p_now - f.acquired_at) ORDER BY f.resource) FILTER (WHERE l.fence IS NOT TRUE)
    INTO item.taken_resources, item.taken_held_ms
    FROM fencegate.fences f LEFT JOIN fencegate.locks l ON l.id = f.lock_id
    WHERE f.resource = ANY (item.names) AND acts.stands(f.hold) AND NOT acts.is_draining(f.hold);
    UPDATE fencegate.locks l SET ended = 'superseded', ended_at = acts.stamp(p_now)
    FROM fencegate.fences f
    WHERE f.resource = ANY (item.names) AND l.id = f.lock_id AND l.ended IS NULL AND acts.stands(f.hold);
    IF former.id IS NOT NULL THEN
        item.metadata := former.metadata;
        item.hold_until := former.hold_until;
        SELECT d.ttl_ms, d.ahead_ms, d.due INTO item.ttl_ms, item.ahead_ms, item.due
        FROM acts.terms(coalesce(item.asked_ms, former.ttl_ms), former.hold_until, p_now) d;
        item.unconfirmed := item.ahead_ms <> item.ttl_ms;
        item.remaining_ms := fencegate.millis(item.due - p_now);
    END IF;
    RETURN item;
END $$;

