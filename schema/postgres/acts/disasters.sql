-- A re-fence, for a ledger that may have lost commits: it raises the base above every token that was ever sealed.
-- And an adoption, for a ledger on a new timeline that has lost nothing: it raises nothing.

-- Why this ledger must be re-fenced before anything is sealed or written; NULL if nothing calls for it.
CREATE FUNCTION acts.refence_called_for() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seals    fencegate.seal_guard;
    writes   fencegate.write_guard;
    timeline text := fencegate.current_timeline();
BEGIN
    SELECT * INTO seals FROM fencegate.seal_guard;
    SELECT * INTO writes FROM fencegate.write_guard;
    RETURN CASE
        WHEN seals.halted IS NOT NULL THEN seals.halted
        WHEN writes.halted IS NOT NULL THEN writes.halted
        WHEN timeline <> seals.timeline OR timeline <> writes.timeline THEN
            format('the ledger is on timeline %s, not %s: it was promoted or restored', timeline,
                   CASE WHEN timeline <> seals.timeline THEN seals.timeline ELSE writes.timeline END)
        WHEN fencegate.current_system_id() <> seals.system_id
          OR fencegate.current_system_id() <> writes.system_id THEN
            'the ledger was moved to another database system'
        WHEN fencegate.current_tables() <> seals.tables OR fencegate.current_tables() <> writes.tables THEN
            'the ledger was restored or copied into other tables'
    END;
END $$;

-- Tells whether this server was started since a gateway has looked whether it lost anything.
CREATE FUNCTION acts.is_restarted() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM fencegate.seal_guard g WHERE g.started <> pg_postmaster_start_time())
        OR EXISTS (SELECT FROM fencegate.write_guard g WHERE g.started <> pg_postmaster_start_time());
END $$;

-- Tells whether the ledger has this milestone; NULL for one that is so old that it was let go.
CREATE FUNCTION acts.has_milestone(p_number bigint, p_milestone uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN CASE
        WHEN EXISTS (SELECT FROM fencegate.milestones m WHERE m.number = p_number AND m.id = p_milestone) THEN true
        WHEN p_number < (SELECT min(m.number) FROM fencegate.milestones m) THEN NULL
        ELSE false
    END;
END $$;

-- Leaves a milestone, which the caller makes known outside of the ledger: only once this act is answered, so that no crash
-- takes it back. Returns the newest one, unless the outside knows that one (p_witnessed is its number there, 0 for none):
-- of gateways that come at once, each can make it known. None is left if another one was a moment ago, unless this is the
-- last one (p_last); nor if nothing was committed since the newest one and the outside knows that one. Milestones below
-- p_witnessed are let go, but for the newest day of them.
CREATE FUNCTION acts.leave_milestone(p_seen bigint, p_witnessed bigint, p_last boolean)
RETURNS TABLE (number bigint, id uuid) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard  fencegate.write_guard := acts.begin_write(p_seen);
    newest fencegate.milestones;
    t      timestamptz := clock_timestamp();
BEGIN
    SELECT * INTO newest FROM fencegate.milestones m ORDER BY m.number DESC LIMIT 1;
    IF newest.number <= p_witnessed
       AND pg_snapshot_xmax(pg_current_snapshot())::text::bigint = newest.xid + 1 THEN
        RETURN;
    END IF;
    IF p_last OR newest.at IS NULL OR newest.at NOT BETWEEN t - interval '900 ms' AND t THEN
        DELETE FROM fencegate.milestones m WHERE m.number < least(p_witnessed, newest.number - 86400);
        -- Waits for another gateway that leaves this number just now, and takes its milestone: both are behind all that
        -- was committed before.
        INSERT INTO fencegate.milestones (number, id, xid, at)
        VALUES (coalesce(newest.number, 0) + 1, gen_random_uuid(), pg_current_xact_id()::text::bigint, t)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY
    SELECT m.number, m.id FROM fencegate.milestones m WHERE m.number > p_witnessed ORDER BY m.number DESC LIMIT 1;
END $$;

-- Takes note that this server, which was started since, has lost nothing: it has the newest milestone that is known outside.
-- Where no milestone was ever made known (p_number is NULL), only a ledger on which nothing was granted yet.
--
-- 1. It waits for everything under way.
-- 2. false if this server is not the one that was looked at, or has lost the milestone; nothing has changed then.
-- 3. true: the guards know its start.
CREATE FUNCTION acts.confirm_start(
    p_generation bigint, p_adoptions bigint, p_system_id bigint, p_timeline text, p_started bigint,
    p_number bigint, p_milestone uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM acts.begin_alone();
    IF acts.refence_called_for() IS NOT NULL
       OR NOT EXISTS (SELECT FROM fencegate.write_guard w
                      WHERE w.generation = p_generation AND w.adoptions = p_adoptions)
       OR fencegate.current_system_id() <> p_system_id OR fencegate.current_timeline() <> p_timeline
       OR acts.started_us() <> p_started
       -- In brackets, or its THEN would be that of IF.
       OR NOT (CASE WHEN p_number IS NULL THEN acts.highest_token() = 0
                    ELSE coalesce(acts.has_milestone(p_number, p_milestone), false) END) THEN
        RETURN false;
    END IF;
    UPDATE fencegate.seal_guard SET started = pg_postmaster_start_time();
    UPDATE fencegate.write_guard SET started = pg_postmaster_start_time();
    RETURN true;
END $$;

-- The start of this server, in microseconds of Unix time.
CREATE FUNCTION acts.started_us() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;
END $$;

-- Where the ledger stands, also when it must be re-fenced. A position that was inserted once and is flushed later
-- ends with a whole record, so no crash takes it back. left_at is where the timeline ended that the caller knew
-- (the one with p_adoptions adoptions): what was seen of that timeline beyond left_at is not here. has_milestone tells
-- whether it has the milestone that the caller asks for.
CREATE FUNCTION acts.place(
    p_adoptions bigint DEFAULT NULL, p_number bigint DEFAULT NULL, p_milestone uuid DEFAULT NULL)
RETURNS TABLE (
    epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid, generation bigint, adoptions bigint,
    adopted_at bigint, left_at bigint, floor bigint, highest bigint, system_id bigint, timeline text,
    known_timeline text, inserted bigint, flushed bigint, called_for text, halted text, started bigint,
    restarted boolean, has_milestone boolean, standbys text, agreed text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.epoch, s.nonce, s.base, s.open, s.ledger, w.generation, w.adoptions,
           coalesce((SELECT a.left_at FROM fencegate.adoptions a
                     WHERE a.number = w.adoptions AND a.generation = w.generation), 0),
           (SELECT a.left_at FROM fencegate.adoptions a WHERE a.number = p_adoptions + 1),
           greatest(s.floor, w.floor), acts.highest_token(), fencegate.current_system_id(),
           fencegate.current_timeline(), w.timeline, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
           (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
           acts.refence_called_for(), coalesce(s.halted, w.halted), acts.started_us(), acts.is_restarted(),
           CASE WHEN p_number IS NOT NULL THEN acts.has_milestone(p_number, p_milestone) END,
           current_setting('synchronous_standby_names'),
           (SELECT coalesce(jsonb_object_agg(a.name, a.value), '{}')::text FROM fencegate.agreed a)
    FROM fencegate.seal_guard s CROSS JOIN fencegate.write_guard w;
END $$;

-- Stores that this server lost commits, unless it was re-fenced or adopted since: what was seen of an earlier line
-- says nothing about this one.
CREATE FUNCTION acts.halt_at(p_generation bigint, p_adoptions bigint, p_why text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Waits for acts and for a re-fence that are under way; the next statement sees what they did.
    PERFORM acts.begin_alone();
    IF EXISTS (SELECT FROM fencegate.write_guard w
               WHERE w.generation = p_generation AND w.adoptions = p_adoptions) THEN
        PERFORM acts.halt(p_why);
    END IF;
END $$;

-- Takes this server as it is, and voids every token that may ever have been sealed: those that this ledger knows
-- (base, highest), those that it may have forgotten but the mint counted (p_number), and 2^36 more, in case the
-- mint has forgotten some too. Waits for everything under way. Nothing changes if nothing calls for a re-fence (any
-- more) and it is not forced. Nothing changes either if this server is not where it was seen before the mint was
-- asked (p_generation, p_system_id, p_timeline): what the mint said then may be older than a re-fence that this
-- server has forgotten. Returns the epoch as it stands then.
CREATE FUNCTION acts.refence(
    p_nonce uuid, p_number bigint, p_known_base bigint, p_known_generation bigint, p_why text,
    p_forced boolean, p_generation bigint DEFAULT NULL, p_system_id bigint DEFAULT NULL,
    p_timeline text DEFAULT NULL)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    raised bigint;
BEGIN
    PERFORM acts.begin_alone();
    IF (p_forced OR acts.refence_called_for() IS NOT NULL)
       AND (SELECT w.generation FROM fencegate.write_guard w)
           = coalesce(p_generation, (SELECT w.generation FROM fencegate.write_guard w))
       AND fencegate.current_system_id() = coalesce(p_system_id, fencegate.current_system_id())
       AND fencegate.current_timeline() = coalesce(p_timeline, fencegate.current_timeline())
    THEN
        SELECT greatest(s.floor, w.floor, s.base + p_number, p_known_base + p_number,
                        acts.highest_token()) + 68719476736
        INTO raised
        FROM fencegate.seal_guard s CROSS JOIN fencegate.write_guard w;
        UPDATE fencegate.seal_guard g
        SET epoch = g.epoch + 1, nonce = p_nonce, open = false, base = raised, floor = raised,
            timeline = fencegate.current_timeline(), system_id = fencegate.current_system_id(),
            tables = fencegate.current_tables(), started = pg_postmaster_start_time(),
            halted = NULL;
        UPDATE fencegate.write_guard g
        SET floor = raised, generation = greatest(g.generation, p_known_generation) + 1,
            timeline = fencegate.current_timeline(), system_id = fencegate.current_system_id(),
            tables = fencegate.current_tables(), started = pg_postmaster_start_time(),
            halted = NULL, refenced_at = acts.stamp(clock_timestamp());
        UPDATE fencegate.drained_upstreams d
        SET doubt_floor = raised, doubt_since = clock_timestamp();
        PERFORM acts.skip_numbers();
        PERFORM acts.audit(clock_timestamp(), 'refence', NULL, NULL, NULL,
                                nullif(left(p_why, 256), ''), NULL, NULL);
    END IF;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;

-- Where the history of this server left a timeline; NULL if the history does not come from that timeline. The
-- result is a position to insert at, which is what everybody remembers: behind the header of a page if the last
-- record ended with the page before.
CREATE FUNCTION acts.left_at(p_timeline text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    block   bigint := current_setting('wal_block_size')::bigint;
    segment bigint := pg_size_bytes(current_setting('wal_segment_size'));
    ended   bigint;
BEGIN
    -- Lines of a timeline in decimal, a position, and a reason for people.
    SELECT (l.parts[2]::pg_lsn - '0/0'::pg_lsn)::bigint INTO ended
    FROM regexp_matches(fencegate.timeline_history(),
                        '^[ \t]*([0-9]+)[ \t]+([0-9A-Fa-f]+/[0-9A-Fa-f]+)', 'gn') l (parts)
    WHERE lpad(upper(to_hex(l.parts[1]::bigint)), 8, '0') = p_timeline;
    RETURN ended + CASE WHEN ended % segment = 0 THEN 40 WHEN ended % block = 0 THEN 24 ELSE 0 END;
END $$;

-- Adopts a new timeline that has lost nothing of the one before: the guards know it from here on, and nothing else
-- changes. Only where the operators have declared that a failover loses nothing (failover = lossless), and only if
-- nothing known speaks against it. The server must be of the same system, and have the newest milestone that the mint knows
-- (p_number, p_milestone). Its history must come from the timeline
-- that the guards know, and that timeline must have ended no earlier than the position up to which the mint
-- (p_witnessed) and this gateway (p_seen) have seen the ledger flushed. Where the server is now does not count: it
-- goes on from where it was promoted, and is soon beyond.
--
-- 1. It waits for everything under way, as a re-fence does: of the two, the one that comes second finds nothing to do.
-- 2. 'moved' if nothing calls for it any more, or if this server is not the one that was looked at before the mint
--    was asked; 'unproven', and why, if it is not proven that nothing was lost. Nothing has changed in either case.
-- 3. 'adopted': the guards know the timeline.
CREATE FUNCTION acts.adopt(
    p_seen bigint, p_witnessed bigint, p_generation bigint, p_adoptions bigint, p_system_id bigint,
    p_former text, p_timeline text, p_number bigint, p_milestone uuid)
RETURNS TABLE (verdict text, why text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seals   fencegate.seal_guard;
    writes  fencegate.write_guard;
    ended   bigint;
    known   bigint := greatest(p_witnessed, p_seen);
BEGIN
    PERFORM acts.begin_alone();
    SELECT * INTO seals FROM fencegate.seal_guard;
    SELECT * INTO writes FROM fencegate.write_guard;

    verdict := 'moved';
    IF acts.refence_called_for() IS NULL
       OR (writes.generation, writes.adoptions) <> (p_generation, p_adoptions)
       OR (writes.timeline, fencegate.current_timeline()) <> (p_former, p_timeline)
       OR fencegate.current_system_id() <> p_system_id THEN
        RETURN NEXT;
        RETURN;
    END IF;

    verdict := 'unproven';
    IF NOT EXISTS (SELECT FROM fencegate.agreed a WHERE a.name = 'failover' AND a.value = 'lossless') THEN
        why := 'nobody has declared that a failover loses nothing';
    ELSIF seals.halted IS NOT NULL OR writes.halted IS NOT NULL THEN
        why := coalesce(seals.halted, writes.halted);
    ELSIF p_system_id <> seals.system_id OR p_system_id <> writes.system_id THEN
        why := 'the ledger was moved to another database system';
    ELSIF seals.timeline <> p_former THEN
        why := format('its guards know timelines %s and %s', seals.timeline, p_former);
    ELSE
        BEGIN
            ended := acts.left_at(p_former);
            IF ended IS NULL THEN
                why := format('timeline %s does not come from timeline %s', p_timeline, p_former);
            ELSIF ended < known THEN
                why := format('it left timeline %s at position %s, but %s was seen flushed: it has lost commits',
                              p_former, ended, known);
            END IF;
        EXCEPTION WHEN insufficient_privilege THEN
            why := 'the gateways'' role may not read the history of the timeline (docs/postgres.md tells how to let it)';
        END;
    END IF;
    IF why IS NULL AND NOT coalesce(acts.has_milestone(p_number, p_milestone), false) THEN
        why := format('it lacks milestone %s, which is known outside: it has lost commits', p_number);
    END IF;
    IF why IS NULL THEN
        verdict := 'adopted';
        UPDATE fencegate.seal_guard SET timeline = p_timeline, started = pg_postmaster_start_time();
        UPDATE fencegate.write_guard g
        SET timeline = p_timeline, started = pg_postmaster_start_time(), adoptions = g.adoptions + 1;
        INSERT INTO fencegate.adoptions (number, generation, former, timeline, left_at, adopted_at)
        VALUES (p_adoptions + 1, p_generation, p_former, p_timeline, ended, clock_timestamp());
        PERFORM acts.audit(clock_timestamp(), 'adopt', NULL, NULL, NULL,
            format('timeline %s ended at position %s; %s was seen flushed', p_former, ended, known), NULL, NULL);
    END IF;
    RETURN NEXT;
END $$;
