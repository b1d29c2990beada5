-- What operators do to resources besides breaking locks, and what they agree on.

-- What keeps history is agreed: the role that serves changes nothing of it but through these two, of which the second leaves
-- an entry in the audit.

-- Returns what is agreed. A setting that is not agreed yet is from now on as the caller has it; if several callers
-- come at once, one of them is first.
CREATE FUNCTION acts.agree_first(p_names text[], p_values text[])
RETURNS TABLE (name text, value text) LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF (SELECT count(*) FROM fencegate.agreed a WHERE a.name = ANY (p_names)) < cardinality(p_names) THEN
        LOCK TABLE fencegate.agreed IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO fencegate.agreed (name, value) SELECT u.name, u.value FROM unnest(p_names, p_values) u (name, value)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT a.name, a.value FROM fencegate.agreed a ORDER BY a.name;
END $$;

-- Names the operator of a command that came to the database itself, for the audit.
CREATE FUNCTION acts.at_the_database() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('database role %s', session_user)
$$;

-- Sets what is agreed, at an operator's wish; returns what changed by that. Within the bounds that the settings have.
--
-- 1. A time that cannot be read, or is above ten years, is refused: by it everything would be removed, or nothing.
-- 2. A time that becomes shorter goes on for what is there: what was agreed before is kept in mind until all that was made by now has
--    outlived it. Clocks stamp with the later one of theirs and the own time, and so does this.
-- 3. The new ones are stored. History is kept for a day at least, and no shorter than what it tells of.
-- 4. What changed is in the audit, in front and whole: it is never cut off by a long reason.
CREATE FUNCTION acts.agree(p_names text[], p_values text[], p_reason text)
RETURNS TABLE (name text, former text, value text) LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    times     text[] := '{keys_kept,ended_locks_kept,buried_kept,history_kept}';
    now       timestamptz;
    changes   text;
    history_s double precision;
    others_s  double precision;
BEGIN
    -- Step 1.
    IF EXISTS (SELECT FROM unnest(p_names, p_values) u (name, value)
               WHERE u.name = ANY (times) AND (u.name <> 'history_kept' OR u.value <> 'for ever')
                 AND (acts.seconds(u.value) <= 10 * 31557600) IS NOT TRUE) THEN
        RAISE EXCEPTION 'a time that is agreed is one that can be read, and ten years at most' USING ERRCODE = 'FG010';
    END IF;
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
    -- Step 2.
    now := acts.stamp(clock_timestamp());
    DELETE FROM fencegate.agreed_before b WHERE b.until <= (SELECT o.at FROM fencegate.own_time o);
    INSERT INTO fencegate.agreed_before AS b (name, value, until)
    SELECT a.name, a.value,
           CASE a.value WHEN 'for ever' THEN 'infinity' ELSE now + acts.seconds(a.value) * interval '1 second' END
    FROM fencegate.agreed a JOIN unnest(p_names, p_values) u (name, value) ON u.name = a.name
    WHERE a.name = ANY (times) AND acts.seconds(u.value) < acts.seconds(a.value)
    ON CONFLICT (name, value) DO UPDATE SET until = greatest(b.until, excluded.until);
    -- Step 3.
    INSERT INTO fencegate.agreed AS a (name, value)
    SELECT u.name, u.value FROM unnest(p_names, p_values) u (name, value)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value;
    SELECT max(acts.seconds(a.value)) FILTER (WHERE a.name = 'history_kept'),
           greatest(86400, max(acts.seconds(a.value)) FILTER (WHERE a.name <> 'history_kept'))
    INTO history_s, others_s FROM fencegate.agreed a WHERE a.name = ANY (times);
    IF history_s < others_s THEN
        RAISE EXCEPTION 'history is kept for a day at least, and for as long as keys, ended locks and burials'
            USING ERRCODE = 'FG010';
    END IF;
    -- Step 4.
    PERFORM acts.audit(clock_timestamp(), 'agree', NULL, acts.at_the_database(), NULL,
                       left(p_reason, greatest(256 - length(changes), 16)) || ': ' || left(changes, 640), NULL, NULL);
END $$;

-- Mark: freeze or protect a resource, or lift that, at an operator's wish. Its lock stays what it is.
-- The latest reason counts; what is marked so already, for the same reason, stays as it is.
CREATE FUNCTION acts.mark(
    p_seen bigint, p_wait_ms int, p_resource text[], p_mark text[], p_reason text[],
    p_request_id text[], p_asked text[], p_rules bigint[])
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
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resource, p_wait_ms);
    PERFORM acts.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_resource) LOOP
        PERFORM acts.settle(ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);
        SELECT * INTO fence FROM fencegate.fences f WHERE f.resource = p_resource[i];
        IF acts.rules_moved(p_rules[i], guard.access) THEN
            verdict := 'rules_moved';
        ELSIF NOT acts.all_locked(p_resource[i:i], got) THEN
            verdict := 'busy';
        ELSIF fence.resource IS NULL OR NOT acts.was_granted(fence.hold) THEN
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
                PERFORM acts.audit(t, p_mark[i], fence.resource, NULL, NULL,
                                        p_reason[i], p_request_id[i], p_asked[i]);
            END IF;
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
