-- What stays in schema `fencegate`, because users and the triggers of its tables call it by that name. The newest
-- acts replace the ones before.
--
-- Fenced writes to users' own tables in the database of the ledger; docs/tables.md tells users how.
--
-- guard() applies the rule to a token inside a transaction of the user's, and keeps the fence until that
-- transaction ends: whoever seals, releases, breaks or freezes waits for it, so what it wrote is visible
-- before anybody holds a newer token. Its lock on the fence is FOR SHARE: guarded transactions of one
-- holder run side by side. FOR KEY SHARE would not keep a seal out.
--
-- It takes no lock on write_guard: an idle transaction of a user must not hold up a re-fence, behind
-- which all writes would queue. A re-fence seals nothing, and the next seal waits for the fence.

-- Why guard() refuses: raises it. Nothing tells the current token.
CREATE OR REPLACE FUNCTION fencegate.refuse(p_code text, p_message text, p_detail text, p_hint text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = p_code, MESSAGE = p_message, DETAIL = coalesce(p_detail, ''),
        HINT = p_hint;
END $$;

-- Refuses a transaction for what the rule says of one of its resources; nothing if it says nothing.
CREATE OR REPLACE FUNCTION fencegate.refuse_for(
    p_why text, p_resource text, p_frozen text, p_superseded_by text, p_superseded_at timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    again constant text := 'Roll back, forget what was read, take the lock again.';
BEGIN
    CASE p_why
    WHEN 'void' THEN
        PERFORM fencegate.refuse('FG401', 'fence-token-void: the ledger was re-fenced since',
            format('resource %s', p_resource), again);
    WHEN 'unknown', 'foreign' THEN
        PERFORM fencegate.refuse('FG402', 'fence-token-unknown: never granted on this resource',
            format('resource %s', p_resource),
            'Take the lock before the transaction begins, and use its token.');
    WHEN 'stale' THEN
        PERFORM fencegate.refuse('FG403', 'fence-token-stale: a newer token has been granted',
            format('resource %s, superseded %s', p_resource,
                coalesce(format('by %s at %s', p_superseded_by, p_superseded_at), 'long ago')),
            again);
    WHEN 'released' THEN
        PERFORM fencegate.refuse('FG404', 'fence-token-released: its lock was released',
            format('resource %s', p_resource), again);
    WHEN 'broken' THEN
        PERFORM fencegate.refuse('FG405', 'fence-token-broken: its lock was broken by an operator',
            format('resource %s', p_resource), again);
    WHEN 'lock_id_mismatch' THEN
        PERFORM fencegate.refuse('FG411', 'lock-id-mismatch: the token is not that of this lock',
            format('resource %s', p_resource),
            'Use id and token of the same answer.');
    WHEN 'frozen' THEN
        PERFORM fencegate.refuse('FG406', 'resource-frozen: an operator has stopped all writers',
            format('resource %s: %s', p_resource, p_frozen),
            'The token stays good: try again later.');
    WHEN 'draining' THEN
        PERFORM fencegate.refuse('FG410', 'resource-draining: effects of older tokens are under way',
            format('resource %s', p_resource), 'Wait until the lock has been granted.');
    ELSE
        IF p_why IS NOT NULL THEN
            RAISE EXCEPTION 'a verdict that nobody knows: %', p_why;
        END IF;
    END CASE;
END $$;

-- Checks that each of these tokens is good on its resource, and keeps it so until the transaction ends. With the ids of
-- the locks, each token must be that of its lock: a token is a number that can be guessed, an id is known to nobody but
-- the holder. In the order of the acts:
-- 1. An incomplete call is refused, and a call without ids where ids are required.
-- 2. The fences are locked, in name order.
-- 3. In later statements the guards are read.
-- 4. The rule decides on each. Where rules of access are in force, a token is good only with the role of the database
--    that is its principal, or one of its writers (I16).
-- 5. What the transaction is guarded for is left for require_guard().
CREATE OR REPLACE FUNCTION fencegate.guard_all(
    resources text[], tokens bigint[], lock_ids uuid[] DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    names   text[] := guard_all.resources;
    got     text[];
    gate    int;
    floor   bigint;
    whose   text;
    halted  text;
    is_new  boolean;
    t       timestamptz;
    item    record;
    why     text;
    former  text;
    since   timestamptz;
    mark    text[] := string_to_array(current_setting('fencegate.guarded', true), ' ');
    ids     uuid[] := coalesce(guard_all.lock_ids,
                              array_fill(NULL::uuid, ARRAY[coalesce(cardinality(guard_all.tokens), 0)]));
BEGIN
    -- Step 1.
    IF cardinality(names) <> cardinality(guard_all.tokens) OR cardinality(names) NOT BETWEEN 1 AND 100
       OR names IS NULL OR guard_all.tokens IS NULL OR array_ndims(names) <> 1
       OR array_position(names, NULL) IS NOT NULL OR array_position(guard_all.tokens, NULL) IS NOT NULL
       OR 1 > ANY (guard_all.tokens) OR cardinality(ids) <> cardinality(names) THEN
        PERFORM fencegate.refuse('FG400', 'request-malformed: guard() needs resources and their tokens',
            'One token, a positive number, for each resource, of which there are 1 to 100; no NULL. '
            'With ids of locks, one for each of them.',
            'Use the token of the answer that granted the lock.');
    END IF;

    IF array_position(ids, NULL) IS NOT NULL
       AND EXISTS (SELECT FROM fencegate.agreed a WHERE a.name = 'require_lock_id' AND a.value = 'on') THEN
        PERFORM fencegate.refuse('FG412', 'lock-id-missing: the ids of the locks are needed beside their tokens',
            'The gateways of this ledger refuse writes without X-Lock-Id (require_lock_id), and so does this.',
            'Give the id of the answer that granted the lock.');
    END IF;

    -- Step 2. The mark that require_guard() looks for: this transaction, and what it is guarded for. It goes
    -- with the transaction, and with a savepoint that is rolled back, as the locks do.
    IF mark[1] IS DISTINCT FROM pg_current_xact_id()::text THEN
        mark := ARRAY[pg_current_xact_id()::text];
    END IF;

    -- First through the gates, one by one, each let go by rolling back: an act that waits for a fence on a lane,
    -- 250 ms at a time, is not overtaken by transactions that share it with each other. The wait is a little longer
    -- than that, so that acts that follow each other keep no transaction out. If this transaction shares the fence
    -- already, it does not go through the gate once more: an act would be waiting for it there.
    FOR gate IN SELECT DISTINCT acts.gate(name) FROM unnest(names) name
                WHERE name <> ALL (mark[2:]) ORDER BY 1 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '300ms', true);
            PERFORM FROM fencegate.gates g WHERE g.slot = gate FOR UPDATE;
            RAISE EXCEPTION USING ERRCODE = 'FG4ZZ';
        EXCEPTION WHEN SQLSTATE 'FG4ZZ' OR lock_not_available THEN
            NULL;
        END;
    END LOOP;
    SELECT coalesce(array_agg(l.resource), '{}') INTO got FROM (
        SELECT f.resource FROM fencegate.fences f WHERE f.resource = ANY (names)
        ORDER BY f.resource FOR SHARE) l;
    t := clock_timestamp();

    -- Step 3. Under READ COMMITTED these statements see the present. Elsewhere they see the transaction's
    -- snapshot: then the row of the write guard is locked, which fails with 40001 if it was changed since,
    -- and let go again by rolling that back.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        BEGIN
            PERFORM FROM fencegate.write_guard FOR SHARE;
            RAISE EXCEPTION USING ERRCODE = 'FG4ZZ';
        EXCEPTION WHEN SQLSTATE 'FG4ZZ' THEN
            NULL;
        END;
    END IF;
    halted := acts.refence_called_for();
    IF halted IS NOT NULL THEN
        PERFORM fencegate.refuse('FG407', 'refence-required: ' || halted, NULL,
            'Nothing is written until the ledger has been re-fenced, which voids all tokens.');
    END IF;
    -- Under rules of access a role that they do not name is nobody, whose no token is: not one of before the rules either.
    SELECT greatest(s.floor, w.floor),
           coalesce((SELECT r.names FROM fencegate.access_roles r WHERE r.role = session_user),
                    CASE WHEN w.access > 0 THEN '' END),
           pg_postmaster_start_time() <> s.started OR pg_postmaster_start_time() <> w.started
    INTO floor, whose, is_new
    FROM fencegate.seal_guard s CROSS JOIN fencegate.write_guard w;
    IF is_new THEN
        PERFORM fencegate.refuse('FG407', 'ledger-unavailable: the Postgres server was started a moment ago',
            'A gateway looks whether the server lost anything, and has not done so yet.',
            'Roll back and try again: the token stays good if nothing was lost.');
    END IF;

    -- Step 4. A fence that was born since is not locked, and not looked at.
    FOR item IN
        SELECT p.resource, p.token, p.lock_id, f.token AS sealed, f.lock_id AS sealed_lock, f.frozen,
               acts.hold_at(f.hold, f.break_due, t) AS hold, acts.is_yours(whose, f.principal, f.writers) AS is_yours
        FROM unnest(names, guard_all.tokens, ids) p (resource, token, lock_id)
        LEFT JOIN fencegate.fences f
               ON f.resource = p.resource AND f.resource = ANY (got)
        ORDER BY p.resource COLLATE "C"
    LOOP
        why := acts.judge(item.token, item.lock_id, NULL, floor, item.sealed, item.sealed_lock,
                          item.hold, item.frozen IS NOT NULL, NULL, item.is_yours);
        IF why = 'older' THEN
            SELECT o.verdict, o.superseded_by, o.at INTO why, former, since
            FROM acts.older(item.resource, item.token, NULL, whose) o;
        END IF;
        PERFORM fencegate.refuse_for(why, item.resource, item.frozen, former, since);
    END LOOP;

    -- Step 5.
    SELECT mark || coalesce(array_agg(DISTINCT name), '{}') INTO mark FROM unnest(names) name
    WHERE name <> ALL (mark[2:]);
    PERFORM set_config('fencegate.guarded', array_to_string(mark, ' '), true);
END $$;

-- The same for one resource. Another name, so that a token may be given as text, as JSON has it.
CREATE OR REPLACE FUNCTION fencegate.guard(resource text, token bigint, lock_id uuid DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM fencegate.guard_all(ARRAY[guard.resource], ARRAY[guard.token], ARRAY[guard.lock_id]);
END $$;

-- Refuses what was written to a table unless this very transaction is guarded; with the name of a column,
-- guarded for the resource that this column names, before the change and after it. Runs after each row:
-- only then are generated columns and what other triggers did to the row settled. Needs no right on
-- anything, and sets no search_path, which would cost as much as the rest.
CREATE OR REPLACE FUNCTION fencegate.refuse_unguarded() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mark   text[] := string_to_array(current_setting('fencegate.guarded', true), ' ');
    named  text := TG_ARGV[0];
    wanted text;
BEGIN
    IF mark[1] IS DISTINCT FROM pg_current_xact_id()::text THEN
        RAISE EXCEPTION USING ERRCODE = 'FG408', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
            MESSAGE = format('this transaction is not guarded: %s of %I refused', TG_OP, TG_TABLE_NAME),
            HINT = 'Call fencegate.guard(resource, token) first, in the same transaction. '
                   'A rolled-back savepoint takes the guards back that were called in it.';
    END IF;
    IF named IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION USING ERRCODE = 'FG409', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
            MESSAGE = format('TRUNCATE of %I refused: it is about the rows of all resources',
                             TG_TABLE_NAME),
            HINT = 'DELETE the rows of one resource.';
    END IF;
    FOREACH wanted IN ARRAY CASE TG_OP
        WHEN 'INSERT' THEN ARRAY[to_jsonb(NEW) ->> named]
        WHEN 'DELETE' THEN ARRAY[to_jsonb(OLD) ->> named]
        ELSE ARRAY[to_jsonb(OLD) ->> named, to_jsonb(NEW) ->> named] END
    LOOP
        IF wanted IS NULL OR wanted <> ALL (mark[2:]) THEN
            RAISE EXCEPTION USING ERRCODE = 'FG409', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
                COLUMN = named, MESSAGE = format('this transaction is not guarded for %s: %s of %I refused',
                    coalesce(quote_literal(wanted), 'NULL'), TG_OP, TG_TABLE_NAME),
                HINT = format('Call fencegate.guard() for the resource in column %I of each row.', named);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Makes a table refuse unguarded writes, for whoever owns it. Again: with the new column, or none.
CREATE OR REPLACE FUNCTION fencegate.require_guard(target regclass, resource_column name DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part regclass;
    args text := coalesce(quote_literal(resource_column), '');
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = target AND c.relkind IN ('r', 'p')
                   AND c.relnamespace <> 'fencegate'::regnamespace) THEN
        RAISE EXCEPTION '% is not a table of yours', target USING ERRCODE = '42809';
    END IF;
    -- Triggers for rows are inherited by partitions alone.
    IF EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = target AND NOT c.relispartition) THEN
        RAISE EXCEPTION 'tables inherit from %, and their rows would be changed without a guard', target
            USING ERRCODE = '42809', HINT = 'Make them partitions.';
    END IF;
    IF resource_column IS NOT NULL AND NOT EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = target AND a.attname = resource_column
            AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION '% has no column %', target, resource_column USING ERRCODE = '42703';
    END IF;
    EXECUTE format(
        'CREATE OR REPLACE TRIGGER fencegate_guard AFTER INSERT OR UPDATE OR DELETE ON %s
         FOR EACH ROW EXECUTE FUNCTION fencegate.refuse_unguarded(%s)', target, args);
    -- The partitions, now and later, have that one by themselves. This one they do not.
    FOR part IN SELECT target UNION SELECT p.relid FROM pg_partition_tree(target) p LOOP
        EXECUTE format(
            'CREATE OR REPLACE TRIGGER fencegate_guard_truncate BEFORE TRUNCATE ON %s
             FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_unguarded(%s)', part, args);
    END LOOP;
END $$;

-- Numbers what was committed since the last step, and returns how much that was. The caller has taken
-- the lock of the numbering in an earlier statement, so that this sees what the last step did; it is
-- held to commit. Within a resource the order is that of the versions, and as far as that allows the
-- order of time; what has a lower version is never missing, for it was committed before.
CREATE OR REPLACE FUNCTION fencegate.number_committed() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mark    fencegate.events_mark;
    began   xid8;
    running xid8[];
    added   bigint;
BEGIN
    SELECT * INTO mark FROM fencegate.events_mark;
    began := pg_snapshot_xmax(mark.seen);
    running := ARRAY(SELECT pg_snapshot_xip(mark.seen));
    -- One statement, whose snapshot is both what it finds and what it stores. Materialized, so that no
    -- plan goes through all operations for the sake of their order.
    WITH fresh AS MATERIALIZED (
        SELECT o.id, o.resource, o.version, o.committed_at, o.kind FROM fencegate.operations o
        WHERE o.generation = mark.generation AND o.version IS NOT NULL AND o.act >= began
        UNION ALL
        SELECT o.id, o.resource, o.version, o.committed_at, o.kind FROM fencegate.operations o
        WHERE o.generation = mark.generation AND o.version IS NOT NULL AND o.act = ANY (running)),
    timed AS (
        SELECT f.id, f.resource, f.version, f.kind,
               max(f.committed_at) OVER (PARTITION BY f.resource ORDER BY f.version) AS at
        FROM fresh f),
    numbered AS (
        INSERT INTO fencegate.events (number, operation, resource)
        SELECT mark.number + row_number() OVER (ORDER BY d.at, d.resource, d.version), d.id,
               CASE WHEN d.kind = 'commit' THEN d.resource END
        FROM timed d
        RETURNING number),
    counted AS (SELECT count(*) AS events FROM numbered)
    UPDATE fencegate.events_mark m
    SET number = m.number + c.events, seen = pg_current_snapshot()
    FROM counted c WHERE c.events > 0
    RETURNING c.events INTO added;
    RETURN coalesce(added, 0);
END $$;

-- A re-fence begins a generation. It has waited for all writes under way, so that every operation of
-- the old one is numbered here, and counts as new.
CREATE OR REPLACE FUNCTION fencegate.begin_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE fencegate.events_turn IN EXCLUSIVE MODE;
    INSERT INTO fencegate.events_rewound (generation, number)
    SELECT NEW.generation, m.number FROM fencegate.events_mark m;
    PERFORM fencegate.number_committed();
    UPDATE fencegate.events_mark m SET generation = NEW.generation, seen = pg_current_snapshot();
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER write_guard_begins_generation AFTER UPDATE ON fencegate.write_guard
    FOR EACH ROW WHEN (NEW.generation > OLD.generation)
    EXECUTE FUNCTION fencegate.begin_generation();

-- For operators: where the ledger stands.
CREATE OR REPLACE FUNCTION fencegate.place()
RETURNS TABLE (
    epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid, generation bigint, adoptions bigint,
    adopted_at bigint, left_at bigint, floor bigint, highest bigint, system_id bigint, timeline text,
    known_timeline text, inserted bigint, flushed bigint, called_for text, halted text, standbys text, agreed text)
LANGUAGE sql VOLATILE AS $$
    SELECT p.epoch, p.nonce, p.base, p.open, p.ledger, p.generation, p.adoptions, p.adopted_at, p.left_at, p.floor, p.highest,
           p.system_id, p.timeline, p.known_timeline, p.inserted, p.flushed, p.called_for, p.halted, p.standbys, p.agreed
    FROM acts.place() p
$$;
