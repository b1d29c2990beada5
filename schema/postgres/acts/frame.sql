-- What all acts have in common. Each act is one call of one VOLATILE function, whose statements each see a fresh
-- snapshot: what is not on a locked row is read in a statement begun after the lock was taken, so that it cannot show
-- the past.
--
-- SQLSTATE FG001: the ledger must be re-fenced, by what its own guard says. FG002: the epoch moved.
-- FG003: wrong isolation. FG004: the ledger must be re-fenced, by what only the caller knows. FG005: a session that
-- no gateway has prepared. FG006: the server may forget what it acknowledges. FG007: what
-- the caller knows is of another timeline. FG013: the rules of access have moved. FG014: these acts are retired.
-- FG015: the server was started since a gateway has looked whether it lost anything.

-- Refuses an act in a transaction that does not see the present. Also in a session that is not as a gateway has
-- prepared it: a pooler that moves sessions may hand an act to somebody else's session, whose commits do not wait
-- for the disk. And on a server whose settings were changed since, so that it may forget what it acknowledges.
CREATE FUNCTION acts.assert_session() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
    IF current_setting('synchronous_commit') IN ('local', 'remote_write')
       AND current_setting('synchronous_standby_names') <> '' THEN
        RAISE EXCEPTION 'synchronous_commit is % on a Postgres server with synchronous standbys: acknowledged writes could be lost',
            current_setting('synchronous_commit') USING ERRCODE = 'FG006';
    END IF;
END $$;

-- Which acts these are. Those of several gateways stand beside each other until the older ones are retired.
CREATE FUNCTION acts.number() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT NUMBER_OF_THESE_ACTS::bigint
$$;

CREATE FUNCTION acts.refuse_retired() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'the acts of this gateway (%) have been retired: run a newer fencegate', acts.number()
        USING ERRCODE = 'FG014';
END $$;

-- Refuses to act on a server that may have lost acknowledged commits: another timeline, another
-- system, other tables, another start, or a position behind one that this gateway has seen flushed (I12).
CREATE FUNCTION acts.assert_place(
    p_timeline text, p_system_id bigint, p_halted text, p_acts_min bigint, p_tables bigint,
    p_started timestamptz, p_seen bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- assert_session() says what is wrong, and is called only if something is wrong: the call would take 10 us of
    -- each act, this look takes 3.
    IF current_setting('transaction_isolation') <> 'read committed'
       OR current_setting('synchronous_commit') IS DISTINCT FROM current_setting('fencegate.session', true)
       OR current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
       OR current_setting('fsync') = 'off' OR current_setting('full_page_writes') = 'off' THEN
        PERFORM acts.assert_session();
    END IF;
    IF p_acts_min > acts.number() THEN
        PERFORM acts.refuse_retired();
    END IF;
    IF p_halted IS NOT NULL THEN
        RAISE EXCEPTION '%', p_halted USING ERRCODE = 'FG001';
    END IF;
    -- As current_timeline() has it.
    IF p_timeline <> substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) THEN
        RAISE EXCEPTION 'the ledger is on timeline %, not %: it was promoted or restored',
            fencegate.current_timeline(), p_timeline USING ERRCODE = 'FG001';
    END IF;
    -- What the caller has seen of the previous timeline must be compared with the position at which that timeline
    -- ended, not with a position of this one. Each session of a gateway says which timeline it knows.
    IF coalesce(current_setting('fencegate.timeline', true), '') NOT IN ('', p_timeline) THEN
        RAISE EXCEPTION 'the ledger has passed to timeline % since this session began', p_timeline
            USING ERRCODE = 'FG007';
    END IF;
    IF p_system_id <> fencegate.current_system_id() THEN
        RAISE EXCEPTION 'the ledger was moved to another database system'
            USING ERRCODE = 'FG001';
    END IF;
    IF p_tables <> fencegate.current_tables() THEN
        RAISE EXCEPTION 'the ledger was restored or copied into other tables'
            USING ERRCODE = 'FG001';
    END IF;
    -- A copy of the files, once it has caught up, differs in nothing else.
    IF p_started <> pg_postmaster_start_time() THEN
        RAISE EXCEPTION 'the Postgres server was started at %: a gateway looks whether it lost anything',
            pg_postmaster_start_time() USING ERRCODE = 'FG015';
    END IF;
    IF pg_current_wal_insert_lsn() - '0/0'::pg_lsn < p_seen THEN
        RAISE EXCEPTION 'the ledger has fallen behind what it had flushed'
            USING ERRCODE = 'FG004';
    END IF;
END $$;

-- For acts on one thing alone: refuses what was allowed under other rules of access than those in force (I17).
CREATE FUNCTION acts.assert_rules(p_rules bigint, p_in_force bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF acts.rules_moved(p_rules, p_in_force) THEN
        RAISE EXCEPTION 'the rules of access are those of generation %, not %', p_in_force, p_rules
            USING ERRCODE = 'FG013';
    END IF;
END $$;

-- Begins an act that may write. The lock on the table keeps out whoever wants to change the guard: they wait for
-- this act. The guard is read in a later statement, so that it is as it stands under the lock.
CREATE FUNCTION acts.begin_write(p_seen bigint) RETURNS fencegate.write_guard LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM acts.assert_place(guard.timeline, guard.system_id, guard.halted, guard.acts_min, guard.tables,
                              guard.started, p_seen);
    RETURN guard;
END $$;

-- Begins an act that grants.
CREATE FUNCTION acts.begin_seal(p_seen bigint) RETURNS fencegate.seal_guard LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.seal_guard;
BEGIN
    LOCK TABLE fencegate.seal_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.seal_guard;
    PERFORM acts.assert_place(guard.timeline, guard.system_id, guard.halted, guard.acts_min, guard.tables,
                              guard.started, p_seen);
    RETURN guard;
END $$;

-- Begins an act that changes both guards: waits for all acts under way, and keeps others out. The caller judges
-- where the ledger is.
CREATE FUNCTION acts.begin_alone() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM acts.assert_session();
    LOCK TABLE fencegate.seal_guard, fencegate.write_guard IN EXCLUSIVE MODE;
    IF (SELECT g.acts_min FROM fencegate.write_guard g) > acts.number() THEN
        PERFORM acts.refuse_retired();
    END IF;
END $$;

-- Stores that this server lost commits: it will soon reach again the position that it had fallen behind, and other
-- gateways may not have seen how far it had been.
CREATE FUNCTION acts.halt(p_why text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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
CREATE FUNCTION acts.flushed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- An act that has written nothing makes nothing durable: what others inserted may still be lost.
    RETURN CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN 0
                ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END;
END $$;

CREATE FUNCTION acts.gate(p_resource text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtext(p_resource) & 4095
$$;

-- Locks fences in name order and returns the names it got. With p_wait_ms = 0 rows that somebody
-- else has locked are skipped; else it waits that long, for each gate and row, and then fails with 55P03.
CREATE FUNCTION acts.lock_fences(p_names text[], p_wait_ms int)
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
        WHERE g.slot = ANY (ARRAY(SELECT acts.gate(name) FROM unnest(p_names) name))
        ORDER BY g.slot FOR KEY SHARE;
        SELECT array_agg(l.resource) INTO got FROM (
            SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (p_names)
            ORDER BY f.resource FOR NO KEY UPDATE) l;
    END IF;
    RETURN coalesce(got, '{}');
END $$;

-- Whether all of these names are among the locked ones, or have no fence at all.
CREATE FUNCTION acts.all_locked(p_names text[], p_got text[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN p_names <@ p_got OR NOT EXISTS (
        SELECT FROM fencegate.fences f
        WHERE f.resource = ANY (p_names) AND f.resource <> ALL (p_got));
END $$;

-- Locks ids of locks and returns those it got, so that a seal and a release of an id that no lock has
-- yet see each other, and so that ids are buried in one order. Always after the fences; ends with the
-- act.
CREATE FUNCTION acts.lock_ids(p_ids uuid[], p_wait_ms int)
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
CREATE FUNCTION acts.lock_locks(p_names text[], p_ids uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM fencegate.locks l
    WHERE l.id = ANY (p_ids || ARRAY(
        SELECT f.lock_id FROM fencegate.fences f
        WHERE f.resource = ANY (p_names) AND f.lock_id IS NOT NULL))
    ORDER BY l.id FOR NO KEY UPDATE;
END $$;

-- How long the locks of an act may wait. Even with p_wait_ms = 0 the act has to wait briefly for a row that is
-- being inserted.
CREATE FUNCTION acts.limit_wait(p_wait_ms int) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest(p_wait_ms, 50) || 'ms', true)
$$;

CREATE FUNCTION acts.bury(p_kind text, p_id uuid, p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.buried (kind, id, buried_at) VALUES (p_kind, p_id, acts.stamp(p_now))
    ON CONFLICT DO NOTHING;
END $$;

-- Stores breaks that have come due on these locked fences, so that no clock step un-breaks them.
CREATE FUNCTION acts.settle(p_names text[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    due uuid[];
BEGIN
    SELECT array_agg(f.lock_id) INTO due FROM fencegate.fences f
    WHERE f.resource = ANY (p_names) AND acts.stands(f.hold) AND f.break_due <= p_now;
    IF due IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO fencegate.audit (at, action, resource, owner, token)
    SELECT p_now, 'broken', f.resource, f.owner, f.token FROM fencegate.fences f
    WHERE f.resource = ANY (p_names) AND acts.stands(f.hold) AND f.break_due <= p_now
    ORDER BY f.resource;
    UPDATE fencegate.fences f SET hold = 'broken', ended_at = p_now
    WHERE f.resource = ANY (p_names) AND acts.stands(f.hold) AND f.break_due <= p_now;
    UPDATE fencegate.locks l SET ended = 'broken', ended_at = acts.stamp(p_now)
    WHERE l.id = ANY (due) AND l.ended IS NULL;
END $$;

-- The ttl of a lock whose caller names none; that of a lock that lasts until it is released or broken: 100
-- years; and how long such a lock lasts until its holder shows that it knows of it.
CREATE FUNCTION acts.default_ttl_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 30000::bigint
$$;

CREATE FUNCTION acts.infinite_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 3153600000000
$$;

CREATE FUNCTION acts.unconfirmed_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT 60000::bigint
$$;

-- The newest operation of a resource: its version is that of the resource, and `highest_seq` the highest under its token.
CREATE FUNCTION acts.newest(p_resource text) RETURNS fencegate.operations LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest fencegate.operations;
BEGIN
    SELECT * INTO newest FROM fencegate.operations o WHERE o.resource = p_resource AND o.version > 0
    ORDER BY o.version DESC LIMIT 1;
    RETURN newest;
END $$;

CREATE FUNCTION acts.version(p_resource text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((
        SELECT o.version FROM fencegate.operations o WHERE o.resource = p_resource AND o.version > 0
        ORDER BY o.version DESC LIMIT 1), 0);
END $$;

CREATE FUNCTION acts.versions(p_names text[]) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT array_agg(acts.version(n.name) ORDER BY n.position)
    FROM unnest(p_names) WITH ORDINALITY n (name, position));
END $$;

-- Locks the fences of these locks, by id: reads their names, locks the rows.
CREATE FUNCTION acts.lock_fences_of(p_locks uuid[], p_wait_ms int)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[];
BEGIN
    SELECT array_agg(DISTINCT name) INTO names
    FROM fencegate.locks l, unnest(l.resources) name WHERE l.id = ANY (p_locks);
    RETURN acts.lock_fences(coalesce(names, '{}'), p_wait_ms);
END $$;

-- Records what an act did, in the same transaction. Acts that have many rows at once insert them.
CREATE FUNCTION acts.audit(
    p_at timestamptz, p_action text, p_resource text, p_owner text, p_token bigint, p_reason text,
    p_request_id text, p_asked text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.audit (at, action, resource, owner, token, reason, request_id, asked)
    VALUES (p_at, p_action, p_resource, p_owner, p_token, p_reason, p_request_id, p_asked);
END $$;
