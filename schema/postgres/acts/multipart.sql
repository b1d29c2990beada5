-- Uploads in parts (I19). Whoever takes the intent of an upload decides over its parts.

-- Whether an upload has all of these parts, whose blobs are separated by commas. Its intent is locked.
CREATE FUNCTION acts.has_parts(p_upload uuid, p_parts text)
RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT count(*) = cardinality(string_to_array(p_parts, ',')) FROM fencegate.upload_parts p
    WHERE p.upload = p_upload AND p.blob = ANY (string_to_array(p_parts, ',')::uuid[])
$$;

-- Of uploads that were completed, the parts that were not named are garbage. Nobody has read them.
CREATE FUNCTION acts.drop_other_parts(p_why text[], p_uploads uuid[], p_parts text[])
RETURNS void LANGUAGE sql VOLATILE AS $$
    WITH gone AS (
        DELETE FROM fencegate.upload_parts p
        USING unnest(p_why, p_uploads, p_parts) r (why, upload, parts)
        WHERE r.why IS NULL AND r.parts IS NOT NULL AND p.upload = r.upload
          AND p.blob <> ALL (string_to_array(r.parts, ',')::uuid[])
        RETURNING p.blob)
    INSERT INTO fencegate.blob_garbage (blob, due_at, may_return) SELECT g.blob, (SELECT w.at FROM fencegate.own_time w), true FROM gone g
$$;

-- Begins an upload in parts, unless a write would be refused for good: as acts.begin_upload does.
CREATE FUNCTION acts.begin_multipart(
    p_seen bigint, p_upload uuid, p_resource text, p_token bigint, p_names text, p_object text, p_content_type text,
    p_about text)
RETURNS TABLE (verdict text, superseded_by text, at_us bigint, owner text, behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT * FROM acts.begin_upload(p_seen, p_upload, p_resource, p_token, NULL, 'native', p_names);
    INSERT INTO fencegate.uploads (id, resource, key, content_type, about, principal)
    SELECT b.blob, p_resource, p_object, p_content_type, p_about, split_part(p_names, ' ', 1)
    FROM fencegate.blob_intents b WHERE b.blob = p_upload;
END $$;

-- The time for which a part or an abort waits for the fence or the upload, in milliseconds.
CREATE FUNCTION acts.multipart_patience_ms() RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT 3000
$$;

-- The rule for an act on an upload in parts of a resource whose fence is locked: why it is refused, or no verdict. A break
-- that has come due is stored.
CREATE FUNCTION acts.judge_multipart(
    p_guard fencegate.write_guard, p_resource text, p_token bigint, p_lock uuid, p_names text, p_now timestamptz)
RETURNS TABLE (verdict text, superseded_by text, at_us bigint, owner text, behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    seen record;
    old  record;
BEGIN
    SELECT f.token, f.lock_id, acts.hold_at(f.hold, f.break_due, p_now) AS hold, f.frozen IS NOT NULL AS is_frozen,
           f.grants, acts.is_yours(p_names, f.principal, f.writers) AS is_yours
    INTO seen
    FROM (SELECT) one LEFT JOIN fencegate.fences f ON f.resource = p_resource;
    PERFORM acts.settle(ARRAY[p_resource], p_now);
    verdict := acts.judge(p_token, p_lock, NULL, p_guard.floor, seen.token, seen.lock_id, seen.hold, seen.is_frozen, NULL,
                          seen.is_yours);
    IF verdict = 'older' THEN
        old := acts.older(p_resource, p_token, seen.grants, p_names);
        verdict := old.verdict; superseded_by := old.superseded_by;
        at_us := fencegate.micros(old.at); owner := old.owner; behind := old.behind;
    END IF;
    RETURN NEXT;
END $$;

-- Makes a blob a part of an upload that goes on, under the rule, like a write.
--
-- 1. It is a part already: a sending whose answer was lost.
-- 2. The rules under which it was allowed (I17); then the fence.
-- 3. In a later statement the intent of the upload is locked: it is not given up meanwhile. If it is gone, or for another
--    resource: 'no_upload'.
-- 4. The rule: whoever's lock has passed on changes nothing of what its successor may complete (I3, I16). A void token is
--    among these: a ledger that went back may have the intent of a blob that was deleted since. A part that is refused
--    stays garbage by its own intent (I19).
-- 5. The part's own intent is consumed. If it is gone: 'expired'.
-- 6. Of two under one number the one counts that was begun last, whichever comes last: the other is garbage. So a
--    statement that was on its way for long does not take away what was stored since.
CREATE FUNCTION acts.put_part(
    p_seen bigint, p_upload uuid, p_resource text, p_token bigint, p_lock uuid, p_names text, p_rules bigint,
    p_number int, p_blob uuid, p_size bigint, p_sha256 bytea, p_checksum text)
RETURNS TABLE (verdict text, superseded_by text, at_us bigint, owner text, behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
    begun timestamptz;
    old   record;
BEGIN
    guard := acts.begin_write(p_seen);
    -- Step 1.
    IF EXISTS (SELECT FROM fencegate.upload_parts p
               WHERE p.upload = p_upload AND p.number = p_number AND p.blob = p_blob) THEN
        verdict := 'stored';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Step 2.
    PERFORM acts.assert_rules(p_rules, guard.access);
    PERFORM acts.limit_wait(acts.multipart_patience_ms());
    PERFORM acts.lock_fences(ARRAY[p_resource], acts.multipart_patience_ms());
    t := clock_timestamp();
    -- Step 3.
    PERFORM FROM fencegate.blob_intents b WHERE b.blob = p_upload FOR SHARE;
    IF NOT FOUND OR NOT EXISTS (SELECT FROM fencegate.uploads u WHERE u.id = p_upload AND u.resource = p_resource) THEN
        verdict := 'no_upload';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Step 4.
    SELECT j.* INTO verdict, superseded_by, at_us, owner, behind
    FROM acts.judge_multipart(guard, p_resource, p_token, p_lock, p_names, t) j;
    IF verdict IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- Step 5.
    DELETE FROM fencegate.blob_intents b WHERE b.blob = p_blob RETURNING b.begun_at INTO begun;
    IF NOT FOUND THEN
        verdict := 'expired';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Step 6.
    SELECT p.blob, p.begun_at INTO old FROM fencegate.upload_parts p
    WHERE p.upload = p_upload AND p.number = p_number FOR UPDATE;
    IF FOUND THEN
        INSERT INTO fencegate.blob_garbage (blob, due_at, may_return)
        VALUES (CASE WHEN old.begun_at > begun THEN p_blob ELSE old.blob END,
                (SELECT w.at FROM fencegate.own_time w), true);
    END IF;
    verdict := CASE WHEN old.begun_at > begun THEN 'overtaken' ELSE 'stored' END;
    IF verdict = 'stored' THEN
        INSERT INTO fencegate.upload_parts AS p
            (upload, number, blob, size, sha256, checksum, begun_at, stored_at)
        VALUES (p_upload, p_number, p_blob, p_size, p_sha256, p_checksum, begun, t)
        ON CONFLICT (upload, number) DO UPDATE
        SET blob = excluded.blob, size = excluded.size, sha256 = excluded.sha256, checksum = excluded.checksum,
            begun_at = excluded.begun_at, stored_at = excluded.stored_at;
    END IF;
    RETURN NEXT;
END $$;

-- Ends an upload in parts, under the rule, like a write.
--
-- 1. The guard, and the rules under which it was allowed (I17); then the fence.
-- 2. In a later statement: an upload that does not go on, or is for another resource: 'no_upload'.
-- 3. The rule: whoever's lock has passed on takes nothing from its successor (I3, I16). A break that has come due is
--    stored.
-- 4. Its intent is consumed: 'aborted'. It is garbage, and so are its parts (I19). If it went meanwhile: 'no_upload'.
CREATE FUNCTION acts.abort_multipart(
    p_seen bigint, p_upload uuid, p_resource text, p_token bigint, p_lock uuid, p_names text, p_rules bigint)
RETURNS TABLE (verdict text, superseded_by text, at_us bigint, owner text, behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard fencegate.write_guard;
    t     timestamptz;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.assert_rules(p_rules, guard.access);
    PERFORM acts.limit_wait(acts.multipart_patience_ms());
    PERFORM acts.lock_fences(ARRAY[p_resource], acts.multipart_patience_ms());
    t := clock_timestamp();
    -- Step 2.
    IF NOT EXISTS (SELECT FROM fencegate.uploads u WHERE u.id = p_upload AND u.resource = p_resource) THEN
        verdict := 'no_upload';
        RETURN NEXT;
        RETURN;
    END IF;
    -- Step 3.
    SELECT j.* INTO verdict, superseded_by, at_us, owner, behind
    FROM acts.judge_multipart(guard, p_resource, p_token, p_lock, p_names, t) j;
    IF verdict IS NULL THEN
        -- Step 4.
        DELETE FROM fencegate.blob_intents b WHERE b.blob = p_upload;
        verdict := CASE WHEN FOUND THEN 'aborted' ELSE 'no_upload' END;
        IF FOUND THEN
            INSERT INTO fencegate.blob_garbage (blob, due_at, may_return)
            VALUES (p_upload, (SELECT w.at FROM fencegate.own_time w), true);
        END IF;
    END IF;
    RETURN NEXT;
END $$;
