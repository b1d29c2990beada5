-- Rules of access: which are in force, and putting others in their place.

-- Puts rules in force (I17).
--
-- 1. Both guards are kept to this act alone: it waits for all acts under way, and those that come later wait for it.
-- 2. If others were put in force in between, nothing changes: NULL for p_follows means whichever are.
-- 3. The rules, and which principals the roles of the database are to guard(); the generation, in both guards; why.
--    After a re-fence it is higher than any that the ledger had before it went back: no two rules share one.
--
-- Returns the generation that is in force, and whether it is that of these rules.
CREATE FUNCTION acts.apply_rules(
    p_seen bigint, p_follows bigint, p_rules text, p_sha256 bytea, p_role text[], p_names text[], p_by text,
    p_reason text, p_request_id text, p_asked text)
RETURNS TABLE (generation bigint, applied boolean, flushed bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
BEGIN
    -- Step 1.
    PERFORM acts.begin_alone();
    SELECT * INTO guard FROM fencegate.write_guard;
    PERFORM acts.assert_place(guard.timeline, guard.system_id, guard.halted, guard.acts_min, guard.tables,
                              guard.started, p_seen);

    -- Step 2.
    generation := guard.access;
    applied := p_follows IS NULL OR p_follows = guard.access;
    flushed := 0;
    IF NOT applied THEN
        RETURN NEXT;
        RETURN;
    END IF;

    -- Step 3.
    generation := greatest(guard.access + 1, guard.generation << 20);
    INSERT INTO fencegate.access (generation, rules, sha256, applied_at, applied_by, reason)
    VALUES (generation, p_rules, p_sha256, clock_timestamp(), p_by, p_reason);
    DELETE FROM fencegate.access_roles;
    INSERT INTO fencegate.access_roles (role, names) SELECT r.role, r.names FROM unnest(p_role, p_names) r (role, names);
    UPDATE fencegate.seal_guard g SET access = apply_rules.generation;
    UPDATE fencegate.write_guard g SET access = apply_rules.generation;
    PERFORM acts.audit(
        clock_timestamp(), 'access', NULL, coalesce(p_by, CASE WHEN p_asked IS NULL THEN acts.at_the_database() END),
        NULL, p_reason, p_request_id, p_asked);
    flushed := acts.flushed();
    RETURN NEXT;
END $$;

-- The rules that are in force.
CREATE FUNCTION acts.rules() RETURNS TABLE (generation bigint, rules text) LANGUAGE sql STABLE AS $$
    SELECT g.access, a.rules FROM fencegate.write_guard g LEFT JOIN fencegate.access a ON a.generation = g.access
$$;

-- Writes down who was refused what, by the rules or because nobody knows them.
CREATE FUNCTION acts.record_refused(
    p_action text[], p_owner text[], p_reason text[], p_request_id text[], p_asked text[])
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO fencegate.audit (at, action, owner, reason, request_id, asked)
    SELECT clock_timestamp(), r.action, r.owner, r.reason, r.request_id, r.asked
    FROM unnest(p_action, p_owner, p_reason, p_request_id, p_asked) r (action, owner, reason, request_id, asked)
$$;
