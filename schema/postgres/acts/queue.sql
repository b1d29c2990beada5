-- The queue: who waits for which resources, in which order, and whose turn it is. All of this is about
-- liveness: whatever the queue says, only a seal grants, on the locked fence.

-- The first waiter in line for a resource, between these tickets, that is present, has not been passed over
-- and does not wait in vain: nobody behind it may have the resource.
--
-- Present: its gateway is alive and can have numbers minted, and its caller is there or may still come back. Passed
-- over: it was called 1 s ago and has not come, and nothing of what it waits for was granted or renewed since. In
-- vain: its caller is gone, and something else that it waits for is not free. Without that, callers that never come
-- back would keep what is free from all others, each for a while.
CREATE FUNCTION acts.first_in_line(
    p_resource text, p_after bigint, p_before bigint, p_now timestamptz)
RETURNS fencegate.waiters LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter fencegate.waiters;
BEGIN
    -- LIMIT in the inner query keeps it from being joined with the whole line: it runs for one waiter
    -- after the other, and nearly always for the first alone.
    SELECT present.* INTO waiter
    FROM fencegate.waiter_resources q
    CROSS JOIN LATERAL (
        SELECT w.* FROM fencegate.waiters w JOIN fencegate.gateways g ON g.id = w.gateway
        WHERE w.ticket = q.ticket
          AND g.able AND g.seen_at > p_now - interval '5 seconds'
          AND (w.kept_until IS NULL OR w.kept_until > p_now)
          AND (w.kept_until IS NULL OR (acts.in_the_way(
                   w.resources, (SELECT u.floor FROM fencegate.write_guard u), p_now)).number = 0)
          AND (w.called_at IS NULL OR w.called_at > p_now - interval '1 second'
               OR EXISTS (SELECT FROM fencegate.fences f
                          WHERE f.resource = ANY (w.resources) AND f.renewed_at > w.called_at))
        LIMIT 1) present
    WHERE q.resource = p_resource AND q.ticket > p_after AND q.ticket < p_before
    ORDER BY q.ticket LIMIT 1;
    RETURN waiter;
END $$;

-- The first waiter in line for a resource that is present and whose caller is there, although it was
-- passed over.
CREATE FUNCTION acts.first_present(p_resource text, p_now timestamptz)
RETURNS fencegate.waiters LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter fencegate.waiters;
BEGIN
    SELECT present.* INTO waiter
    FROM fencegate.waiter_resources q
    CROSS JOIN LATERAL (
        SELECT w.* FROM fencegate.waiters w JOIN fencegate.gateways g ON g.id = w.gateway
        WHERE w.ticket = q.ticket AND w.kept_until IS NULL
          AND g.able AND g.seen_at > p_now - interval '5 seconds'
        LIMIT 1) present
    WHERE q.resource = p_resource
    ORDER BY q.ticket LIMIT 1;
    RETURN waiter;
END $$;

-- Whether somebody in line before this ticket keeps one of these resources from those behind. Without
-- a ticket: from everybody who is not in line.
CREATE FUNCTION acts.is_ahead(p_names text[], p_before bigint, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before bigint := coalesce(p_before, 9223372036854775807);
    name   text;
BEGIN
    -- Nearly always nobody waits.
    IF NOT EXISTS (SELECT FROM fencegate.waiter_resources q
                   WHERE q.resource = ANY (p_names) AND q.ticket < before) THEN
        RETURN false;
    END IF;
    FOREACH name IN ARRAY p_names LOOP
        IF (acts.first_in_line(name, 0, before, p_now)).ticket IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;

-- What keeps these resources from being granted now, the queue aside: how many of them, and in how many
-- milliseconds the first of them ends by itself, if one does.
CREATE FUNCTION acts.in_the_way(
    p_names text[], p_floor bigint, p_now timestamptz, OUT number bigint, OUT ends_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT count(*), min(fencegate.millis(least(f.deadline, f.break_due) - p_now))
                         FILTER (WHERE f.frozen IS NULL)
    INTO number, ends_ms
    FROM fencegate.fences f
    WHERE f.resource = ANY (p_names)
      AND (f.frozen IS NOT NULL
           OR (acts.keeps_out(f.hold, f.token, f.deadline, p_floor, p_now)
               AND (f.break_due IS NULL OR f.break_due > p_now)));
END $$;

-- Whether so many wait for a resource. Counted only if it may be: those who left from within the line
-- leave gaps between the places.
CREATE FUNCTION acts.is_full(p_resource text, p_max bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    span bigint;
BEGIN
    span := (SELECT q.place FROM fencegate.waiter_resources q WHERE q.resource = p_resource
             ORDER BY q.ticket DESC LIMIT 1)
          - (SELECT q.place FROM fencegate.waiter_resources q WHERE q.resource = p_resource
             ORDER BY q.ticket LIMIT 1) + 1;
    RETURN span >= p_max AND p_max <= (
        SELECT count(*) FROM fencegate.waiter_resources q WHERE q.resource = p_resource);
END $$;

-- Removes a waiter; returns what it waited for, or NULL if the id does not wait.
CREATE FUNCTION acts.leave(p_lock uuid) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter fencegate.waiters;
BEGIN
    DELETE FROM fencegate.waiters w WHERE w.lock_id = p_lock RETURNING w.* INTO waiter;
    IF waiter.ticket IS NULL THEN
        RETURN NULL;
    END IF;
    DELETE FROM fencegate.waiter_resources q
    WHERE q.resource = ANY (waiter.resources) AND q.ticket = waiter.ticket;
    RETURN waiter.resources;
END $$;

-- Join: put callers into the queue, unless they could have their resources now. Item i waits for the resources whose
-- p_item is i; the verdicts are those of the act in Rust.
-- 1. The fences are locked, then the ids: whoever frees one of the resources afterwards sees the waiter, so that no
--    wake-up is lost.
-- 2. Per item: rules of access that have moved (I17); an id that is known, given up, or waits already; a line that is full; resources that are free.
-- 3. The waiter is put behind all others in line for any of its resources.
CREATE FUNCTION acts.join(
    p_seen bigint, p_wait_ms int, p_resources text[], p_item int[],
    p_lock uuid[], p_owner text[], p_gateway uuid[], p_waiters_max bigint[], p_principal text[], p_rules bigint[])
RETURNS TABLE (verdict text, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard   fencegate.write_guard;
    t       timestamptz;
    got     text[];
    got_ids uuid[];
    names   text[];
    waiter  fencegate.waiters;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resources, p_wait_ms);
    got_ids := acts.lock_ids(p_lock, p_wait_ms);
    PERFORM acts.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_lock) LOOP
        verdict := NULL;
        SELECT array_agg(r.name ORDER BY r.name COLLATE "C") INTO names
        FROM unnest(p_resources, p_item) r (name, item) WHERE r.item = i;
        SELECT * INTO waiter FROM fencegate.waiters w WHERE w.lock_id = p_lock[i];

        IF acts.rules_moved(p_rules[i], guard.access) THEN
            verdict := 'rules_moved';
        ELSIF p_lock[i] <> ALL (got_ids) OR NOT acts.all_locked(names, got) THEN
            verdict := 'busy';
        ELSE
            PERFORM acts.settle(names, t);
        END IF;
        IF verdict IS NOT NULL THEN
            NULL;
        ELSIF EXISTS (
                SELECT FROM fencegate.buried b WHERE b.kind = 'lock' AND b.id = p_lock[i]) THEN
            verdict := 'released';
        ELSIF EXISTS (SELECT FROM fencegate.locks l WHERE l.id = p_lock[i]) THEN
            verdict := 'known';
        ELSIF waiter.ticket IS NOT NULL THEN
            IF waiter.resources <> names OR waiter.owner <> p_owner[i]
               OR waiter.principal IS DISTINCT FROM p_principal[i] THEN
                verdict := 'conflict';
            ELSE
                UPDATE fencegate.waiters w
                SET gateway = p_gateway[i], kept_until = NULL, called_at = NULL
                WHERE w.ticket = waiter.ticket;
                -- Just swept: it joins anew.
                verdict := CASE WHEN FOUND THEN 'waiting' ELSE 'busy' END;
            END IF;
        ELSIF (acts.in_the_way(names, guard.floor, t)).number = 0
              AND NOT acts.is_ahead(names, NULL, t) THEN
            verdict := 'free';
        ELSIF EXISTS (
                SELECT FROM unnest(names) n (name)
                WHERE acts.is_full(n.name, p_waiters_max[i])) THEN
            verdict := 'full';
        ELSE
            verdict := 'waiting';
            INSERT INTO fencegate.waiters (ticket, lock_id, resources, owner, principal, gateway, joined_at)
            VALUES (nextval('fencegate.tickets'), p_lock[i], names, p_owner[i], p_principal[i], p_gateway[i], t)
            RETURNING * INTO waiter;
            INSERT INTO fencegate.waiter_resources (resource, ticket, place)
            SELECT n.name, waiter.ticket, 1 + coalesce(
                (SELECT q.place FROM fencegate.waiter_resources q WHERE q.resource = n.name
                 ORDER BY q.ticket DESC LIMIT 1), 0)
            FROM unnest(names) n (name);
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;

-- Keeps the places of waiters whose callers are gone for 10 s. Only by the gateway that serves them: a
-- caller may be back at another one.
CREATE FUNCTION acts.keep_places(p_gateway uuid, p_locks uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE fencegate.waiters w SET kept_until = clock_timestamp() + interval '10 seconds'
    WHERE w.ticket IN (
        SELECT o.ticket FROM fencegate.waiters o
        WHERE o.lock_id = ANY (p_locks) AND o.gateway = p_gateway AND o.kept_until IS NULL
        ORDER BY o.ticket FOR NO KEY UPDATE);
END $$;

-- Gives this waiter its turn: stores since when it has it, unless that is stored already, and returns that time.
-- NULL if somebody has locked its row: the waiter is being sealed or called already.
CREATE FUNCTION acts.call_waiter(p_waiter fencegate.waiters, p_now timestamptz)
RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_waiter.called_at > p_now - interval '1 second' AND NOT EXISTS (
            SELECT FROM fencegate.fences f
            WHERE f.resource = ANY (p_waiter.resources) AND f.renewed_at > p_waiter.called_at) THEN
        RETURN p_waiter.called_at;
    END IF;
    PERFORM FROM fencegate.waiters w
    WHERE w.ticket = p_waiter.ticket FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE fencegate.waiters w SET called_at = p_now WHERE w.ticket = p_waiter.ticket;
    RETURN p_now;
END $$;

-- Calls the next in line for each of these resources, if all it waits for is free and nobody is ahead of it for
-- the rest. Those before it whose callers are gone have their turns at the same time. When all who are there have
-- been passed over, it begins again with the first.
--
-- Other gateways hear of calls to their waiters by NOTIFY. With p_able this is also a heartbeat of the gateway. It
-- is not an act, but a statement of its own after one, because NOTIFY takes a lock on the whole database until the
-- commit.
CREATE FUNCTION acts.call_next(p_gateway uuid, p_able boolean, p_resources text[])
RETURNS TABLE (resource text, called uuid, gateway uuid, next_ms bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    t        timestamptz := clock_timestamp();
    floor    bigint;
    name     text;
    waiter   fencegate.waiters;
    obstacle record;
    since    timestamptz;
BEGIN
    IF p_able IS NOT NULL THEN
        INSERT INTO fencegate.gateways AS g (id, seen_at, able) VALUES (p_gateway, t, p_able)
        ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, able = excluded.able;
    END IF;
    SELECT g.floor INTO floor FROM fencegate.write_guard g;
    FOREACH name IN ARRAY p_resources LOOP
        waiter := acts.first_in_line(name, 0, 9223372036854775807, t);
        WHILE waiter.kept_until IS NOT NULL LOOP
            PERFORM acts.call_waiter(waiter, t);
            waiter := acts.first_in_line(name, waiter.ticket, 9223372036854775807, t);
        END LOOP;
        IF waiter.ticket IS NULL THEN
            waiter := acts.first_present(name, t);
        END IF;
        CONTINUE WHEN waiter.ticket IS NULL;
        resource := name; called := NULL; gateway := waiter.gateway; next_ms := NULL;
        obstacle := acts.in_the_way(waiter.resources, floor, t);
        IF obstacle.number > 0 THEN
            next_ms := obstacle.ends_ms;
        ELSIF NOT acts.is_ahead(waiter.resources, waiter.ticket, t) THEN
            since := acts.call_waiter(waiter, t);
            CONTINUE WHEN since IS NULL;
            called := waiter.lock_id;
            next_ms := 1000 - fencegate.millis(t - since);
            IF since = t AND waiter.gateway <> p_gateway THEN
                PERFORM pg_notify('fencegate_' || replace(waiter.gateway::text, '-', ''),
                                  waiter.lock_id::text);
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- How many are ahead of a waiter of this principal, and itself; NULL if the id does not wait. Counted up to 1000; beyond
-- that the places tell, which count those who have left from within the line, too.
CREATE FUNCTION acts.queue_position(p_lock uuid, p_principal text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiter fencegate.waiters;
    ahead  bigint;
BEGIN
    SELECT * INTO waiter FROM fencegate.waiters w WHERE w.lock_id = p_lock;
    IF waiter.ticket IS NULL OR waiter.principal IS DISTINCT FROM p_principal THEN
        RETURN NULL;
    END IF;
    ahead := (SELECT count(DISTINCT a.ticket) FROM (
        SELECT q.ticket FROM fencegate.waiter_resources q
        WHERE q.resource = ANY (waiter.resources) AND q.ticket < waiter.ticket LIMIT 1000) a);
    IF ahead >= 1000 THEN
        ahead := (SELECT max(mine.place - (
                SELECT q.place FROM fencegate.waiter_resources q WHERE q.resource = mine.resource
                ORDER BY q.ticket LIMIT 1))
            FROM fencegate.waiter_resources mine
            WHERE mine.resource = ANY (waiter.resources) AND mine.ticket = waiter.ticket);
    END IF;
    RETURN 1 + ahead;
END $$;

-- Who is in line for a resource behind this ticket, in order, at most so many. A waiter is present if its call is
-- waiting at a gateway that is alive; the place of any other waiter is only kept. Those before the page are counted
-- by the index alone.
CREATE FUNCTION acts.waiters_of(p_resource text, p_after bigint, p_limit bigint)
RETURNS TABLE (ticket bigint, owner text, since_us bigint, "position" bigint, present boolean)
LANGUAGE sql VOLATILE AS $$
    SELECT q.ticket, w.owner, fencegate.micros(w.joined_at),
           (SELECT count(*) FROM fencegate.waiter_resources a
            WHERE a.resource = p_resource AND a.ticket <= p_after) + row_number() OVER (ORDER BY q.ticket),
           w.kept_until IS NULL AND EXISTS (
               SELECT FROM fencegate.gateways g
               WHERE g.id = w.gateway AND g.seen_at > clock_timestamp() - interval '5 seconds')
    FROM (SELECT r.ticket FROM fencegate.waiter_resources r
          WHERE r.resource = p_resource AND r.ticket > p_after
          ORDER BY r.ticket LIMIT p_limit) q
    CROSS JOIN LATERAL (SELECT * FROM fencegate.waiters o WHERE o.ticket = q.ticket LIMIT 1) w
    ORDER BY q.ticket
$$;

-- Removes waiters whose place was kept long enough, at most p_rows of them, and those whose gateway is gone: all at
-- once, up to far more, since each act on what they wait for walks past all of them. Says how many.
CREATE FUNCTION acts.sweep_queue(p_rows bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t       timestamptz := clock_timestamp();
    silent  uuid[];
    kept    bigint[];
    left_by bigint[];
    gone    bigint[];
BEGIN
    DELETE FROM fencegate.gateways g WHERE g.seen_at < t - interval '10 seconds';
    -- Those that have waiters, from one to the next by the index: as many steps as there are gateways.
    WITH RECURSIVE serving (id) AS (
        (SELECT w.gateway FROM fencegate.waiters w ORDER BY w.gateway LIMIT 1)
        UNION ALL
        SELECT (SELECT w.gateway FROM fencegate.waiters w WHERE w.gateway > s.id
                ORDER BY w.gateway LIMIT 1)
        FROM serving s WHERE s.id IS NOT NULL)
    SELECT array_agg(s.id) INTO silent FROM serving s
    WHERE s.id IS NOT NULL AND NOT EXISTS (SELECT FROM fencegate.gateways g WHERE g.id = s.id);
    IF silent IS NOT NULL THEN
        SELECT array_agg(l.ticket) INTO left_by FROM (
            SELECT w.ticket FROM fencegate.waiters w WHERE w.gateway = ANY (silent)
            ORDER BY w.ticket LIMIT p_rows * 50 FOR UPDATE SKIP LOCKED) l;
    END IF;
    SELECT array_agg(k.ticket) INTO kept FROM (
        SELECT w.ticket FROM fencegate.waiters w WHERE w.kept_until <= t
        ORDER BY w.ticket LIMIT p_rows FOR UPDATE SKIP LOCKED) k;
    gone := ARRAY(SELECT DISTINCT g.ticket FROM unnest(left_by || kept) g (ticket));
    IF cardinality(gone) = 0 THEN
        RETURN 0;
    END IF;
    DELETE FROM fencegate.waiter_resources q USING fencegate.waiters w
    WHERE w.ticket = ANY (gone) AND q.resource = ANY (w.resources) AND q.ticket = w.ticket;
    DELETE FROM fencegate.waiters w WHERE w.ticket = ANY (gone);
    RETURN cardinality(gone);
END $$;
