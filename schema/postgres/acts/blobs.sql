-- Uploads, versions that were replaced, and garbage.

-- Locks the intents of these blobs, as far as there are any, and returns which; with p_wait_ms = 0 those
-- that somebody else has locked are skipped.
CREATE FUNCTION acts.lock_intents(p_blobs uuid[], p_wait_ms int)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    got uuid[];
BEGIN
    IF p_wait_ms = 0 THEN
        SELECT array_agg(l.blob) INTO got FROM (
            SELECT i.blob FROM fencegate.blob_intents i WHERE i.blob = ANY (p_blobs)
            ORDER BY i.blob FOR UPDATE SKIP LOCKED) l;
    ELSE
        SELECT array_agg(l.blob) INTO got FROM (
            SELECT i.blob FROM fencegate.blob_intents i WHERE i.blob = ANY (p_blobs)
            ORDER BY i.blob FOR UPDATE) l;
    END IF;
    RETURN coalesce(got, '{}');
END $$;

-- Begin upload: store the intent, unless the write is refused for good.
--
-- Takes no lock: what is refused here can never be admitted later, and nothing is admitted here. Key and fence are
-- of one snapshot.
-- 1. A known idempotency key: 'known_key', and no intent.
-- 2. Void, never granted here, stale, released, broken: refused. Whoever was given a token asks after its seal had
--    committed (I5), so it is in the snapshot, and so is a key that took effect.
-- 3. The intent, if there is a blob.
CREATE FUNCTION acts.begin_upload(
    p_seen bigint, p_blob uuid, p_resource text, p_token bigint, p_key text, p_space text, p_names text)
RETURNS TABLE (verdict text, superseded_by text, at_us bigint, owner text, behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    seen  record;
    old   record;
BEGIN
    guard := acts.begin_write(p_seen);
    SELECT f.token, f.hold, f.grants, acts.is_yours(p_names, f.principal, f.writers) AS is_yours,
           EXISTS (SELECT FROM fencegate.idempotency_keys k
                   WHERE k.resource = p_resource AND k.key = p_key AND k.space = p_space) AS known_key
    INTO seen
    FROM (SELECT) one
    LEFT JOIN fencegate.fences f ON f.resource = p_resource;

    verdict := CASE WHEN seen.known_key THEN 'known_key'
        ELSE acts.judge(p_token, NULL, NULL, guard.floor, seen.token, NULL, seen.hold, false, NULL,
                        seen.is_yours) END;
    IF verdict = 'older' THEN
        old := acts.older(p_resource, p_token, seen.grants, p_names);
        verdict := old.verdict; superseded_by := old.superseded_by;
        at_us := fencegate.micros(old.at); owner := old.owner; behind := old.behind;
    ELSIF verdict IS NULL OR verdict = 'draining' THEN
        verdict := 'begun';
    END IF;
    IF verdict = 'begun' AND p_blob IS NOT NULL THEN
        INSERT INTO fencegate.blob_intents (blob, begun_at) VALUES (p_blob, acts.stamp(clock_timestamp()));
    END IF;
    RETURN NEXT;
END $$;

-- Tidies blobs, by the ledger's own time: a clock that is ahead deletes nothing early. Rows that somebody is using are left to the next pass.
-- 1. Uploads that take too long are given up. What an older copy of the ledger may have in an upload in parts that goes
--    on stays for p_horizon_s (I9).
-- 2. Replaced versions are forgotten. The blob of one stays for p_forgotten_s: a reader may have begun just before, and
--    may pin it.
-- 3. Garbage is handed out, and not again for p_claim_s. For p_horizon_s after a re-fence none is: whoever restored this
--    ledger may still decide otherwise. The parts of an upload become garbage before it is handed out (I19): 10,000 in
--    an act, however many it has, so that no upload is too large for the time of one.
CREATE FUNCTION acts.tidy_blobs(
    p_seen bigint, p_upload_s double precision, p_multipart_s double precision, p_versions_s double precision,
    p_replaced_blobs_s double precision, p_forgotten_s double precision, p_horizon_s double precision,
    p_claim_s double precision, p_rows bigint, p_hand_out boolean)
RETURNS TABLE (uploads bigint, versions bigint, blob uuid, handle text, again boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard      fencegate.write_guard;
    t          timestamptz := (SELECT w.at FROM fencegate.own_time w);
    given_up   bigint;
    inline     bigint;
    forgotten  bigint;
BEGIN
    guard := acts.begin_write(p_seen);

    WITH old AS (
        SELECT i.blob, EXISTS (SELECT FROM fencegate.uploads u WHERE u.id = i.blob) AS in_parts
        FROM fencegate.blob_intents i
        WHERE i.begun_at <= t - least(p_upload_s, p_multipart_s) * interval '1 second'
          AND i.begun_at <= t - CASE WHEN EXISTS (SELECT FROM fencegate.uploads u WHERE u.id = i.blob)
                                     THEN p_multipart_s ELSE p_upload_s END * interval '1 second'
        ORDER BY i.begun_at LIMIT p_rows FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM fencegate.blob_intents i USING old WHERE i.blob = old.blob
             RETURNING i.blob, i.handle, old.in_parts),
    garbage AS (INSERT INTO fencegate.blob_garbage (blob, handle, due_at, may_return)
                SELECT g.blob, g.handle, t, g.in_parts FROM gone g)
    SELECT count(*) INTO given_up FROM gone;

    DELETE FROM fencegate.replaced_versions r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM fencegate.replaced_versions o
        WHERE o.blob IS NULL AND o.replaced_at <= t - p_versions_s * interval '1 second'
        ORDER BY o.replaced_at LIMIT p_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS inline = ROW_COUNT;

    -- A synchronous standby that has not got as far as the replacement may be promoted without it. A standby whose
    -- progress this role may not see counts as not there yet, and so does one that has just connected.
    WITH old AS (
        SELECT r.resource, r.key, r.version, r.generation FROM fencegate.replaced_versions r
        WHERE r.blob IS NOT NULL AND r.replaced_at <= t - p_replaced_blobs_s * interval '1 second'
          AND NOT EXISTS (SELECT FROM fencegate.blob_pins p
                          WHERE p.blob = r.blob AND p.keep_until > t)
          AND NOT EXISTS (SELECT FROM pg_stat_replication s
                          WHERE coalesce(s.sync_state, 'sync') IN ('sync', 'quorum')
                            AND coalesce(s.flush_lsn, '0/0') < r.replaced_lsn
                            AND current_setting('synchronous_standby_names') <> '')
        ORDER BY r.replaced_at LIMIT p_rows FOR UPDATE SKIP LOCKED),
    gone AS (DELETE FROM fencegate.replaced_versions r USING old
             WHERE r.resource = old.resource AND r.key = old.key AND r.version = old.version
               AND r.generation = old.generation
             RETURNING r.blob),
    garbage AS (INSERT INTO fencegate.blob_garbage (blob, due_at)
                SELECT g.blob, acts.due(p_forgotten_s) FROM gone g
                WHERE g.blob IS NOT NULL)
    SELECT count(*) INTO forgotten FROM gone;

    UPDATE fencegate.blob_garbage g SET due_at = acts.due(p_horizon_s), may_return = false
    WHERE g.blob IN (SELECT o.blob FROM fencegate.blob_garbage o WHERE o.may_return LIMIT p_rows FOR UPDATE SKIP LOCKED);

    DELETE FROM fencegate.blob_pins p WHERE p.blob IN (
        SELECT o.blob FROM fencegate.blob_pins o WHERE o.keep_until <= t
        LIMIT p_rows FOR UPDATE SKIP LOCKED);

    RETURN QUERY SELECT given_up, inline + forgotten, NULL::uuid, NULL::text, NULL::boolean;
    IF NOT p_hand_out OR guard.refenced_at > t - p_horizon_s * interval '1 second' THEN
        RETURN;
    END IF;
    WITH parts AS (
        DELETE FROM fencegate.upload_parts p WHERE p.ctid = ANY (ARRAY(
            SELECT o.ctid FROM (
                SELECT g.blob FROM fencegate.blob_garbage g WHERE g.due_at <= t AND NOT g.may_return
                  AND EXISTS (SELECT FROM fencegate.upload_parts u WHERE u.upload = g.blob)
                  AND NOT EXISTS (SELECT FROM fencegate.blob_pins p
                                  WHERE p.blob = g.blob AND t < p.keep_until)
                ORDER BY g.due_at LIMIT p_rows FOR UPDATE SKIP LOCKED) due
            JOIN fencegate.upload_parts o ON o.upload = due.blob
            LIMIT 10000))
        RETURNING p.blob)
    -- Handed out by the next pass, not by this one.
    INSERT INTO fencegate.blob_garbage (blob, due_at) SELECT p.blob, t + interval '1 microsecond' FROM parts p;
    RETURN QUERY
    WITH due AS (
        SELECT g.blob FROM fencegate.blob_garbage g WHERE g.due_at <= t AND NOT g.may_return
          AND NOT EXISTS (SELECT FROM fencegate.upload_parts u WHERE u.upload = g.blob)
          AND NOT EXISTS (SELECT FROM fencegate.blob_pins p
                          WHERE p.blob = g.blob AND t < p.keep_until)
        ORDER BY g.due_at LIMIT p_rows FOR UPDATE SKIP LOCKED)
    UPDATE fencegate.blob_garbage g SET due_at = t + p_claim_s * interval '1 second'
    FROM due WHERE g.blob = due.blob
    RETURNING NULL::bigint, NULL::bigint, g.blob, g.handle, g.deleted;
END $$;

-- Notes that blobs were deleted: the first time, or for good if they were handed out again. If two gateways delete
-- a blob for the first time, only one deletion is noted, so that the time before the second deletion is never cut
-- short.
CREATE FUNCTION acts.blobs_deleted(
    p_seen bigint, p_blobs uuid[], p_again boolean[], p_redelete_s double precision)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    guard := acts.begin_write(p_seen);
    PERFORM 1 FROM fencegate.blob_garbage g WHERE g.blob = ANY (p_blobs) ORDER BY g.blob FOR UPDATE;
    DELETE FROM fencegate.blob_garbage g USING unnest(p_blobs, p_again) d (blob, again)
    WHERE g.blob = d.blob AND g.deleted AND d.again;
    UPDATE fencegate.blob_garbage g
    SET deleted = true, due_at = acts.due(p_redelete_s)
    WHERE g.blob = ANY (p_blobs) AND NOT g.deleted;
END $$;

-- Whether blobs that the ledger does not know of may be deleted: not for p_horizon_s after a re-fence.
CREATE FUNCTION acts.may_delete(p_seen bigint, p_horizon_s double precision)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    guard := acts.begin_write(p_seen);
    -- Leaves a trace, so that the end of this waits for a synchronous standby: a primary that was replaced never
    -- says yes.
    PERFORM FROM fencegate.write_guard FOR KEY SHARE;
    RETURN guard.refenced_at IS NULL OR p_horizon_s = 0
        OR guard.refenced_at <= (SELECT w.at FROM fencegate.own_time w) - p_horizon_s * interval '1 second';
END $$;

-- Everything that points at a blob.
CREATE VIEW acts.blob_pointers AS
SELECT b.blob, b.resource, b.key, b.version, b.size, b.sha256, true AS current
FROM fencegate.objects b WHERE b.blob IS NOT NULL AND b.parts IS NULL
UNION ALL
SELECT r.blob, r.resource, r.key, r.version, r.size, r.sha256, false
FROM fencegate.replaced_versions r WHERE r.blob IS NOT NULL AND r.parts IS NULL
UNION ALL
SELECT p.blob, b.resource, b.key, b.version, p.size, p.sha256, true
FROM fencegate.upload_parts p JOIN fencegate.objects b ON b.blob = p.upload
UNION ALL
SELECT p.blob, r.resource, r.key, r.version, p.size, p.sha256, false
FROM fencegate.upload_parts p JOIN fencegate.replaced_versions r ON r.blob = p.upload;
