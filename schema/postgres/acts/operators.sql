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
CREATE FUNCTION acts.agree(p_names text[], p_values text[], p_reason text)
RETURNS TABLE (name text, former text, value text) LANGUAGE plpgsql VOLATILE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
    IF acts.agreed_s('history_kept') < greatest(
            86400, acts.agreed_s('keys_kept'), acts.agreed_s('ended_locks_kept'), acts.agreed_s('buried_kept')) THEN
        RAISE EXCEPTION 'history is kept for a day at least, and for as long as keys, ended locks and burials'
            USING ERRCODE = 'FG010';
    END IF;
    -- What changed is never cut off by a long reason.
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
