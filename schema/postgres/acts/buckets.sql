-- Buckets of S3.

-- How long a call waits for another that makes or deletes the same bucket.
CREATE FUNCTION acts.bucket_patience_ms() RETURNS int LANGUAGE sql IMMUTABLE AS $$
    SELECT 1000
$$;

-- Makes a bucket.
--
-- 1. The guard, and the rules under which it was allowed (I17).
-- 2. The row, if there is none: 'made'. Who makes the same bucket at the same time is waited for.
-- 3. A bucket of another depth, also one that was deleted: 'other_depth', and nothing changes. With another depth its
--    objects would be other resources', under other locks.
-- 4. One that is there: 'exists'; one that was deleted is there again: 'made'.
CREATE FUNCTION acts.make_bucket(p_seen bigint, p_name text, p_depth int, p_rules bigint)
RETURNS TABLE (verdict text, depth int, created_us bigint, flushed bigint) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard  fencegate.write_guard;
    bucket fencegate.s3_buckets;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.assert_rules(p_rules, guard.access);
    PERFORM acts.limit_wait(acts.bucket_patience_ms());

    -- Step 2.
    INSERT INTO fencegate.s3_buckets (name, depth, created_at) VALUES (p_name, p_depth, clock_timestamp())
    ON CONFLICT DO NOTHING;
    verdict := CASE WHEN FOUND THEN 'made' END;
    SELECT * INTO bucket FROM fencegate.s3_buckets b WHERE b.name = p_name FOR NO KEY UPDATE;

    -- Steps 3 and 4.
    IF bucket.depth <> p_depth THEN
        verdict := 'other_depth';
    ELSIF verdict IS NULL AND NOT bucket.deleted THEN
        verdict := 'exists';
    ELSIF verdict IS NULL THEN
        verdict := 'made';
        UPDATE fencegate.s3_buckets b SET deleted = false, created_at = clock_timestamp()
        WHERE b.name = p_name RETURNING b.* INTO bucket;
    END IF;
    depth := bucket.depth;
    created_us := fencegate.micros(bucket.created_at);
    flushed := acts.flushed();
    RETURN NEXT;
END $$;

-- Deletes a bucket that has no object: the resource with its name has none, nor has any whose name begins with that and
-- a colon. A write at the same time may come into it afterwards; the bucket's depth stays, so it will be seen again.
--
-- 1. The guard, and the rules under which it was allowed (I17).
-- 2. None of this name, or one that was deleted: 'unknown'.
-- 3. In a later statement: an object, 'not_empty'; none, 'dropped'.
CREATE FUNCTION acts.drop_bucket(p_seen bigint, p_name text, p_rules bigint)
RETURNS TABLE (verdict text, flushed bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    guard fencegate.write_guard;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.assert_rules(p_rules, guard.access);
    PERFORM acts.limit_wait(acts.bucket_patience_ms());

    -- Step 2.
    PERFORM FROM fencegate.s3_buckets b WHERE b.name = p_name AND NOT b.deleted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        verdict := 'unknown';
    -- Step 3.
    ELSIF EXISTS (SELECT FROM fencegate.objects o WHERE o.resource = p_name)
       OR EXISTS (SELECT FROM fencegate.objects o WHERE o.resource >= p_name || ':' AND o.resource < p_name || ';') THEN
        verdict := 'not_empty';
    ELSE
        verdict := 'dropped';
        UPDATE fencegate.s3_buckets b SET deleted = true WHERE b.name = p_name;
    END IF;
    flushed := acts.flushed();
    RETURN NEXT;
END $$;
