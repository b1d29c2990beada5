-- Disasters: a mint that lost its place (a new epoch), and a ledger that may have lost commits (a
-- re-fence). Both raise the base above every token that was ever sealed.

-- Asked for about once a second, and by both acts.
CREATE FUNCTION fencegate.highest_token() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce((SELECT max(g.token) FROM fencegate.grants g WHERE g.leads), 0);
END $$;

-- Why this ledger must be re-fenced before anything is sealed or written; NULL if nothing calls for it.
CREATE FUNCTION fencegate.refence_called_for() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
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
    END;
END $$;

-- Where the ledger stands, also when it must be re-fenced. A position that was inserted once and is
-- flushed later ends with a whole record, so no crash takes it back.
CREATE FUNCTION fencegate.place()
RETURNS TABLE (
    epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid, generation bigint, floor bigint,
    highest bigint, system_id bigint, timeline text, inserted bigint, flushed bigint, called_for text,
    halted text, standbys text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT s.epoch, s.nonce, s.base, s.open, s.ledger, w.generation, greatest(s.floor, w.floor),
           fencegate.highest_token(), fencegate.current_system_id(), fencegate.current_timeline(),
           (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
           (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint,
           fencegate.refence_called_for(), coalesce(s.halted, w.halted),
           current_setting('synchronous_standby_names')
    FROM fencegate.seal_guard s CROSS JOIN fencegate.write_guard w;
END $$;

-- Keeps that this server lost commits, unless it was re-fenced since: what was seen in an earlier
-- generation says nothing about this one.
CREATE FUNCTION fencegate.halt_at(p_generation bigint, p_why text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM fencegate.assert_session();
    -- Waits for acts and for a re-fence that are under way; the next statement sees what they did.
    LOCK TABLE fencegate.seal_guard, fencegate.write_guard IN EXCLUSIVE MODE;
    IF p_generation = (SELECT w.generation FROM fencegate.write_guard w) THEN
        PERFORM fencegate.halt(p_why);
    END IF;
END $$;

-- Begins a new epoch: the mint has lost its place. Waits for every seal under way, so all seals of the
-- old epoch are before it or fail after it; writes are not delayed. The base is no lower than p_above. If
-- the epoch has moved on already, nothing changes. Returns the epoch as it stands then.
CREATE FUNCTION fencegate.switch_epoch(
    p_seen bigint, p_expected bigint, p_nonce uuid, p_above bigint, p_why text)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE fencegate.seal_guard IN EXCLUSIVE MODE;
    PERFORM fencegate.assert_place(g.timeline, g.system_id, g.halted, p_seen)
    FROM fencegate.seal_guard g;
    UPDATE fencegate.seal_guard g
    SET epoch = g.epoch + 1, nonce = p_nonce, open = false,
        base = greatest(g.base, g.floor, fencegate.highest_token(), p_above)
    WHERE g.epoch = p_expected;
    IF FOUND THEN
        PERFORM fencegate.audit(clock_timestamp(), 'epoch', NULL, NULL, NULL, NULL,
                                nullif(left(p_why, 256), ''), NULL);
    END IF;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;

-- Takes this server as it is, and voids every token that may ever have been sealed: those that this
-- ledger knows (base, highest), those that it may have forgotten but the mint counted (p_number), and,
-- should the mint have forgotten them too, 2^36 more. Waits for everything under way. If nothing calls
-- for it (any more), nothing changes unless forced; nor if this server is not where it was seen before the
-- mint was asked (p_generation, p_system_id, p_timeline): what the mint said then may be older than a
-- re-fence that this server has forgotten. Returns the epoch as it stands then.
CREATE FUNCTION fencegate.refence(
    p_nonce uuid, p_number bigint, p_known_base bigint, p_known_generation bigint, p_why text,
    p_forced boolean, p_generation bigint DEFAULT NULL, p_system_id bigint DEFAULT NULL,
    p_timeline text DEFAULT NULL)
RETURNS TABLE (epoch bigint, nonce uuid, base bigint, open boolean, ledger uuid)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    raised bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the acts need READ COMMITTED' USING ERRCODE = 'FG003';
    END IF;
    PERFORM fencegate.assert_session();
    LOCK TABLE fencegate.seal_guard, fencegate.write_guard IN EXCLUSIVE MODE;
    IF (p_forced OR fencegate.refence_called_for() IS NOT NULL)
       AND (SELECT w.generation FROM fencegate.write_guard w)
           = coalesce(p_generation, (SELECT w.generation FROM fencegate.write_guard w))
       AND fencegate.current_system_id() = coalesce(p_system_id, fencegate.current_system_id())
       AND fencegate.current_timeline() = coalesce(p_timeline, fencegate.current_timeline())
    THEN
        SELECT greatest(s.floor, w.floor, s.base + p_number, p_known_base + p_number,
                        fencegate.highest_token()) + 68719476736
        INTO raised
        FROM fencegate.seal_guard s CROSS JOIN fencegate.write_guard w;
        UPDATE fencegate.seal_guard g
        SET epoch = g.epoch + 1, nonce = p_nonce, open = false, base = raised, floor = raised,
            timeline = fencegate.current_timeline(), system_id = fencegate.current_system_id(),
            halted = NULL;
        UPDATE fencegate.write_guard g
        SET floor = raised, generation = greatest(g.generation, p_known_generation) + 1,
            timeline = fencegate.current_timeline(), system_id = fencegate.current_system_id(),
            halted = NULL, refenced_at = clock_timestamp();
        UPDATE fencegate.drained_upstreams d
        SET doubt_floor = raised, doubt_since = clock_timestamp();
        PERFORM fencegate.audit(clock_timestamp(), 'refence', NULL, NULL, NULL, NULL,
                                nullif(left(p_why, 256), ''), NULL);
    END IF;
    RETURN QUERY SELECT g.epoch, g.nonce, g.base, g.open, g.ledger FROM fencegate.seal_guard g;
END $$;
