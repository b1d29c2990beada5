-- The epoch: which incarnation of the mint numbers are taken from.

-- The epoch, from a ledger that is where it should be.
CREATE FUNCTION acts.epoch(p_seen bigint)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    PERFORM acts.assert_place(g.timeline, g.system_id, g.halted, g.acts_min, g.tables, g.started, p_seen) FROM fencegate.seal_guard g;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;

-- Records that the mint carries this nonce. It replaces another nonce only while the epoch is not open and nothing
-- was ever sealed: then no number has been used yet.
CREATE FUNCTION acts.open_epoch(p_seen bigint, p_nonce uuid)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE;
    UPDATE fencegate.seal_guard g SET nonce = p_nonce, open = true
    WHERE NOT g.open AND (g.nonce = p_nonce OR NOT EXISTS (SELECT FROM fencegate.grants));
    RETURN QUERY SELECT * FROM acts.epoch(p_seen);
END $$;

-- Asked for about once a second, and by both acts.
CREATE FUNCTION acts.highest_token() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((SELECT max(g.token) FROM fencegate.grants g WHERE g.leads), 0);
END $$;

-- Begins a new epoch: the mint has lost its place. Waits for every seal under way, so all seals of the
-- old epoch are before it or fail after it; writes are not delayed. The base is no lower than p_above. If
-- the epoch has moved on already, nothing changes. Returns the epoch as it stands then.
CREATE FUNCTION acts.switch_epoch(
    p_seen bigint, p_expected bigint, p_nonce uuid, p_above bigint, p_why text)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE;
    PERFORM acts.assert_place(g.timeline, g.system_id, g.halted, g.acts_min, g.tables, g.started, p_seen)
    FROM fencegate.seal_guard g;
    UPDATE fencegate.seal_guard g
    SET epoch = g.epoch + 1, nonce = p_nonce, open = false,
        base = greatest(g.base, g.floor, acts.highest_token(), p_above)
    WHERE g.epoch = p_expected;
    IF FOUND THEN
        PERFORM acts.audit(clock_timestamp(), 'epoch', NULL, NULL, NULL,
                                nullif(left(p_why, 256), ''), NULL, NULL);
    END IF;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;
