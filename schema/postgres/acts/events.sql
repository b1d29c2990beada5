-- The feed of committed writes: one step of its numbering. What a step does is in shared.sql, for a re-fence takes
-- one, too.

-- One step of the numbering, unless another gateway is at it (not whole). Returns how far it has come.
-- Takes no row lock and writes nothing if nothing was committed.
CREATE FUNCTION acts.number_events(p_seen bigint)
RETURNS TABLE (generation bigint, last bigint, whole boolean) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    turn boolean := true;
BEGIN
    BEGIN
        LOCK TABLE fencegate.events_turn IN EXCLUSIVE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        turn := false;
    END;
    IF turn THEN
        -- Not on a ledger that may have lost commits: the re-fence says which numbers are new.
        PERFORM acts.assert_place(g.timeline, g.system_id, g.halted, g.acts_min, g.tables, g.started, p_seen)
        FROM fencegate.write_guard g;
        PERFORM fencegate.number_committed();
    END IF;
    RETURN QUERY SELECT m.generation, m.number, turn FROM fencegate.events_mark m;
END $$;
