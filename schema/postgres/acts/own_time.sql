-- The ledger's own time: whatever decides how long something is kept is stamped and forgotten by it.

-- The time to stamp with what is kept for a while from now on: never below the own time, so that what is stamped by a clock that
-- went back is not forgotten early.
CREATE FUNCTION acts.stamp(p_now timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT greatest(p_now, (SELECT o.at FROM fencegate.own_time o))
$$;

-- The own time at which something is due that is to be kept for p_kept_s more: counted from the stamp, so that no setting of the own
-- time by the clock cuts it short. What is kept for no time is due at once.
CREATE FUNCTION acts.due(p_kept_s double precision) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN p_kept_s > 0 THEN acts.stamp(clock_timestamp()) + p_kept_s * interval '1 second'
                ELSE (SELECT o.at FROM fencegate.own_time o) END
$$;

-- A pass: the own time goes on by what has passed since the last one, never by what a clock says.
--
-- 1. By proof: the last pass was made on the same boot of the same machine, which had been up for up_us then.
-- 2. Else by p_since_us, for which this gateway has known pass p_pass, if that is the last one still. Of several gateways that
--    come at once, one makes the pass: their times do not add up.
-- 3. Else nothing: the gateway knows this pass from now on.
CREATE FUNCTION acts.pass_time(p_seen bigint, p_pass bigint, p_since_us bigint, p_boot text, p_up_us bigint)
RETURNS TABLE (pass bigint, at_us bigint, behind_us bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
BEGIN
    guard := acts.begin_write(p_seen);
    UPDATE fencegate.own_time o
    SET at = o.at + interval '1 microsecond' * least(
            greatest(CASE WHEN o.boot = p_boot THEN p_up_us - o.up_us ELSE p_since_us END, 0), 1000000000000000),
        pass = o.pass + 1, boot = p_boot, up_us = greatest(p_up_us, CASE WHEN o.boot = p_boot THEN o.up_us END)
    WHERE o.boot = p_boot OR o.pass = p_pass;
    RETURN QUERY
    SELECT o.pass, fencegate.micros(o.at), greatest(fencegate.micros(clock_timestamp()) - fencegate.micros(o.at), 0)
    FROM fencegate.own_time o;
END $$;

-- Sets the own time by the ledger's clock, at an operator's word that this is right: where no gateway ran for long, nothing else
-- tells what has passed. Returns the own time before, and the clock: it was set exactly if the clock is ahead.
--
-- 1. Passes wait from here on. The clock is read after the own time, so that it is no older.
-- 2. Set: a pass that no gateway knows, and on no boot. What has passed until then nobody adds again.
-- 3. The audit says from when to when, in front: a long reason cuts nothing of that off.
-- 4. Not ahead: nothing changes, since the own time never falls.
CREATE FUNCTION acts.trust_clock(p_seen bigint, p_reason text)
RETURNS TABLE (own_us bigint, clock_us bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    seconds text := 'YYYY-MM-DD"T"HH24:MI:SS"Z"';
    own     timestamptz;
    clock   timestamptz;
BEGIN
    PERFORM acts.begin_write(p_seen);
    -- Step 1.
    SELECT o.at INTO own FROM fencegate.own_time o FOR UPDATE;
    clock := clock_timestamp();
    IF clock > own THEN
        -- Step 2.
        UPDATE fencegate.own_time o SET at = clock, pass = o.pass + 1, boot = NULL, up_us = NULL;
        -- Step 3.
        PERFORM acts.audit(clock, 'agree', NULL, acts.at_the_database(), NULL,
                           left(format('own time %s -> %s: %s', to_char(own AT TIME ZONE 'UTC', seconds),
                                       to_char(clock AT TIME ZONE 'UTC', seconds), p_reason), 256), NULL, NULL);
    END IF;
    RETURN QUERY SELECT fencegate.micros(own), fencegate.micros(clock);
END $$;
