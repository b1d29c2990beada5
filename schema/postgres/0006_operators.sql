-- What operators do to resources besides breaking locks, and the audit of it.

CREATE DOMAIN fencegate.audit_action AS text CONSTRAINT audit_action_known CHECK (VALUE IN (
    'grant', 'transfer', 'break', 'broken', 'freeze', 'unfreeze', 'protect', 'unprotect', 'fence',
    'resolve', 'refence', 'epoch', 'adopt', 'agree'));
CREATE DOMAIN fencegate.audit_reason AS text CONSTRAINT audit_reason_short CHECK (
    octet_length(VALUE) BETWEEN 1 AND 1024);
CREATE DOMAIN fencegate.request_id AS text CONSTRAINT request_id_short CHECK (octet_length(VALUE) <= 128);

-- What was done to locks and resources. Written by the acts themselves, never changed, never removed.
CREATE TABLE fencegate.audit (
    number         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL,
    action         fencegate.audit_action NOT NULL,
    resource       text COLLATE "C",      -- NULL if it was to the whole ledger
    owner          text,                  -- whose lock was granted or broken
    previous_owner text,                  -- whose lock a grant put an end to
    token          bigint,                -- of the lock; not shown
    reason         fencegate.audit_reason,
    request_id     fencegate.request_id
);
CREATE INDEX audit_resource ON fencegate.audit (resource, number);
-- Most entries are grants; whoever asks for something else must not read through all of them.
CREATE INDEX audit_other_than_grants ON fencegate.audit (action, number) WHERE action <> 'grant';

CREATE FUNCTION fencegate.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed or removed', TG_TABLE_NAME USING ERRCODE = 'FG010';
END $$;

CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON fencegate.audit
    FOR EACH STATEMENT EXECUTE FUNCTION fencegate.refuse_change();

-- Records what an act did, in the same transaction. Acts that have many rows at once insert them.
CREATE FUNCTION fencegate.audit(
    p_at timestamptz, p_action text, p_resource text, p_owner text, p_previous_owner text,
    p_token bigint, p_reason text, p_request_id text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.audit (at, action, resource, owner, previous_owner, token, reason, request_id)
    VALUES (p_at, p_action, p_resource, p_owner, p_previous_owner, p_token, p_reason, p_request_id);
END $$;

-- Who may have entries under way in one of the operator's records: whoever inserts holds this lock on the table from
-- before it takes a number until its transaction has ended, and what it committed can be seen when it lets go.
CREATE FUNCTION fencegate.writers_of(p_log text) RETURNS text[] LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}')
    FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
      AND l.relation = ('fencegate.' || p_log)::regclass
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.pid IS DISTINCT FROM pg_backend_pid()
$$;

-- How far a record (audit, rejections) can be followed, knowing what was said of that before: up to p_upto; up to
-- p_reached, once all of p_writers are done. A number is taken before its entry is committed, so that entries become
-- visible in another order than that of their numbers. Whoever took one below the highest that can be seen
-- was writing when that was seen, or had ended; so when all who were writing then have ended, nothing up to it is
-- to come. This costs those who write nothing: no column, no index, no wait. And a transaction that stays open
-- for hours is in nobody's way unless it writes this very record.
CREATE FUNCTION fencegate.settled(p_log text, p_upto bigint, p_reached bigint, p_writers text[])
RETURNS TABLE (upto bigint, reached bigint, writers text[]) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    upto := p_upto; reached := p_reached; writers := p_writers;
    IF NOT writers && fencegate.writers_of(p_log) THEN
        upto := greatest(upto, reached);
        -- Each in a statement of its own: first what can be seen, then who is writing.
        IF p_log = 'audit' THEN
            reached := (SELECT max(a.number) FROM fencegate.audit a);
        ELSE
            reached := (SELECT max(r.number) FROM fencegate.rejections r);
        END IF;
        reached := greatest(upto, reached);
        writers := fencegate.writers_of(p_log);
        IF writers = '{}' THEN
            upto := reached;
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Goes far ahead with the numbers of both records. Of a ledger that is re-fenced some entries may be lost, which
-- somebody has read: their numbers are given to no others, or those would be taken for read.
CREATE FUNCTION fencegate.skip_numbers() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM setval('fencegate.audit_number_seq', s.last_value + 68719476736)
    FROM fencegate.audit_number_seq s;
    PERFORM setval('fencegate.rejections_number_seq', s.last_value + 68719476736)
    FROM fencegate.rejections_number_seq s;
END $$;

-- What all gateways of this ledger have alike, by the names of the settings. The values are theirs to read, but for
-- `failover` and `require_lock_id`, which the acts and guard() go by.
CREATE TABLE fencegate.agreed (
    name  text COLLATE "C" PRIMARY KEY CONSTRAINT agreed_name_short CHECK (octet_length(name) BETWEEN 1 AND 64),
    value text NOT NULL CONSTRAINT agreed_value_short CHECK (octet_length(value) <= 64)
);

-- Returns what is agreed. What is not yet, is from now on as the caller has it: of several that come first at once,
-- one is first.
CREATE FUNCTION fencegate.agree_first(p_names text[], p_values text[])
RETURNS TABLE (name text, value text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    IF (SELECT count(*) FROM fencegate.agreed a WHERE a.name = ANY (p_names)) < cardinality(p_names) THEN
        LOCK TABLE fencegate.agreed IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO fencegate.agreed (name, value) SELECT u.name, u.value FROM unnest(p_names, p_values) u (name, value)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT a.name, a.value FROM fencegate.agreed a ORDER BY a.name;
END $$;

-- Sets what is agreed, at an operator's wish; returns what changed by that.
CREATE FUNCTION fencegate.agree(p_names text[], p_values text[], p_reason text)
RETURNS TABLE (name text, former text, value text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    changes text;
BEGIN
    LOCK TABLE fencegate.agreed IN SHARE ROW EXCLUSIVE MODE;
    RETURN QUERY
    SELECT u.name, a.value, u.value FROM unnest(p_names, p_values) u (name, value)
    LEFT JOIN fencegate.agreed a ON a.name = u.name
    WHERE a.value IS DISTINCT FROM u.value ORDER BY u.name;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT string_agg(format('%s %s -> %s', u.name, coalesce(a.value, 'unset'), u.value), ', ' ORDER BY u.name)
    INTO changes FROM unnest(p_names, p_values) u (name, value)
    LEFT JOIN fencegate.agreed a ON a.name = u.name WHERE a.value IS DISTINCT FROM u.value;
    INSERT INTO fencegate.agreed AS a (name, value)
    SELECT u.name, u.value FROM unnest(p_names, p_values) u (name, value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
    PERFORM fencegate.audit(clock_timestamp(), 'agree', NULL, NULL, NULL, NULL,
                            left(p_reason || ': ' || changes, 256), NULL);
END $$;

-- Mark: freeze or protect a resource, or lift that, at an operator's wish. Its lock stays what it is.
-- The latest reason counts; what is marked so already, for the same reason, stays as it is.
CREATE FUNCTION fencegate.mark(
    p_seen bigint, p_wait_ms int, p_resource text[], p_mark text[], p_reason text[],
    p_request_id text[])
RETURNS TABLE (verdict text, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard        fencegate.write_guard;
    t            timestamptz;
    got          text[];
    fence        fencegate.fences;
    will_freeze  text;
    will_protect text;
BEGIN
    LOCK TABLE fencegate.write_guard IN ROW SHARE MODE;
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM fencegate.assert_place(guard.timeline, guard.system_id, guard.halted, p_seen);
    PERFORM fencegate.limit_wait(p_wait_ms);
    got := fencegate.lock_fences(p_resource, p_wait_ms);
    PERFORM fencegate.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_resource) LOOP
        PERFORM fencegate.settle(ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);
        SELECT * INTO fence FROM fencegate.fences f WHERE f.resource = p_resource[i];
        IF NOT fencegate.all_locked(p_resource[i:i], got) THEN
            verdict := 'busy';
        ELSIF fence.resource IS NULL OR fence.hold = 'none' THEN
            verdict := 'no_fence';
        ELSE
            will_freeze := CASE p_mark[i] WHEN 'freeze' THEN p_reason[i]
                                          WHEN 'unfreeze' THEN NULL ELSE fence.frozen END;
            will_protect := CASE p_mark[i] WHEN 'protect' THEN p_reason[i]
                                           WHEN 'unprotect' THEN NULL ELSE fence.protected END;
            IF will_freeze IS NOT DISTINCT FROM fence.frozen
                    AND will_protect IS NOT DISTINCT FROM fence.protected THEN
                verdict := 'unchanged';
            ELSE
                verdict := 'changed';
                UPDATE fencegate.fences f SET frozen = will_freeze, protected = will_protect
                WHERE f.resource = fence.resource;
                PERFORM fencegate.audit(t, p_mark[i], fence.resource, NULL, NULL, NULL,
                                        p_reason[i], p_request_id[i]);
            END IF;
        END IF;
        flushed := fencegate.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
