-- Break: an operator ends a lock.

-- Break: end the lock of a resource at an operator's wish, at the latest in p_after_ms, sooner if it expires sooner.
-- 1. The fences are locked; breaks that have come due are stored.
-- 2. Only under the token that was meant: a call whose answer was lost, and which runs late, must not hit the next holder.
-- 3. A second break can shorten, never extend. Of what is broken already nothing changes, but the audit keeps that it was asked for.
CREATE FUNCTION acts.break_locks(
    p_seen bigint, p_wait_ms int, p_resource text[], p_token bigint[], p_after_ms bigint[],
    p_reason text[], p_request_id text[], p_asked text[], p_rules bigint[])
RETURNS TABLE (verdict text, due_ms bigint, held_ms bigint, number bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    got   text[];
    fence fencegate.fences;
    due   timestamptz;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resource, p_wait_ms);
    PERFORM acts.lock_locks(got, '{}');
    t := clock_timestamp();

    FOR i IN 1 .. cardinality(p_resource) LOOP
        due_ms := NULL; held_ms := NULL; number := NULL;
        PERFORM acts.settle(ARRAY(SELECT n FROM unnest(p_resource[i:i]) n WHERE n = ANY (got)), t);
        SELECT * INTO fence FROM fencegate.fences f WHERE f.resource = p_resource[i];
        IF acts.rules_moved(p_rules[i], guard.access) THEN
            verdict := 'rules_moved';
        ELSIF NOT acts.all_locked(p_resource[i:i], got) THEN
            verdict := 'busy';
        ELSIF fence.resource IS NULL OR NOT acts.was_granted(fence.hold) THEN
            verdict := 'no_fence';
        ELSIF acts.is_another(p_token[i], fence.token) OR acts.was_released(fence.hold) THEN
            verdict := 'not_held';
        ELSIF NOT acts.stands(fence.hold) THEN
            verdict := 'broken';
            PERFORM acts.audit(t, 'break', fence.resource, fence.owner, fence.token,
                                    p_reason[i], p_request_id[i], p_asked[i]);
        ELSE
            due := least(fence.break_due, greatest(
                t, least(fence.deadline,
                         t + least(p_after_ms[i], 10000000000000) * interval '1 millisecond')));
            verdict := CASE WHEN due <= t THEN 'broken' ELSE 'breaking' END;
            IF fence.break_due IS NULL OR due <= t
                    OR fence.break_due - due >= interval '1 millisecond' THEN
                PERFORM acts.audit(t, 'break', fence.resource, fence.owner, fence.token,
                                        p_reason[i], p_request_id[i], p_asked[i]);
            END IF;
            UPDATE fencegate.fences f
            SET break_due = due, hold = acts.hold_at(f.hold, due, t), ended_at = CASE WHEN due <= t THEN t END
            WHERE f.resource = fence.resource;
            IF due <= t THEN
                UPDATE fencegate.locks l SET ended = 'broken', ended_at = acts.stamp(t)
                WHERE l.id = fence.lock_id AND l.ended IS NULL;
                held_ms := fencegate.millis(t - fence.acquired_at);
                SELECT fence.token - g.base INTO number FROM fencegate.seal_guard g;
            ELSE
                due_ms := fencegate.millis(due - t);
            END IF;
        END IF;
        flushed := acts.flushed();
        RETURN NEXT;
    END LOOP;
END $$;
