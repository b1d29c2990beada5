-- The common case of commit, a fraction of its cost: small puts, each to a resource of its own, sent for the
-- first time, without idempotency key, sequence number or condition. If all of them are admitted, a handful of
-- statements store them. If any is not, nothing has been stored yet, and `commit` decides them all in
-- the same act: what it refuses, and why, is written once, there.
--
-- 1. Guard, then fences in name order, as in commit. A fence counts that is locked and admits its writer, and
--    what it says is of the locked row: a row that changed meanwhile is judged again as it is then.
-- 2. In a later statement, whether one of the ids is buried: by a gateway that lost the answer to this very
--    sending. Ids are made by gateways, one for each write, and one that is sent again does not come here: so
--    none is on its way elsewhere, and none has to be locked. One that is applied already is stopped by the key
--    of operations.
-- 3. What they do is stored. Operations before fences: the trigger on fences counts them.
--
-- p_resources is distinct and sorted; all arrays are in its order.
--
-- Plans are kept, and made when the tables may still be empty. So no statement joins a table to the batch in
-- a way that the planner could turn around, to read the whole table each time. Arrays are unnested among the
-- columns of a subselect: a function in FROM puts all its rows aside, bodies and all, before the first is read.
CREATE FUNCTION acts.admits(
    p_fence fencegate.fences, p_token bigint, p_lock uuid, p_floor bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_fence.break_due IS NULL
       AND acts.judge(p_token, p_lock, NULL, p_floor, p_fence.token, p_fence.lock_id, p_fence.hold,
                      p_fence.frozen IS NOT NULL, NULL) IS NULL
$$;

CREATE FUNCTION acts.commit_plain(
    p_seen bigint, p_resources text[], p_objects text[], p_operation uuid[], p_token bigint[],
    p_lock uuid[], p_content_type text[], p_size bigint[], p_sha256 bytea[], p_body bytea[])
RETURNS TABLE (
    verdict text, original uuid, version bigint, generation bigint, created boolean, at_us bigint,
    owner text, superseded_by text, behind bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    n          int := cardinality(p_resources);
    guard      fencegate.write_guard;
    t          timestamptz;
    t_us       bigint;
    f_version  bigint[];
    f_owner    text[];
    f_at       tid[];
    o_stored   text[];
    o_created  text[];
    o_blobs    text[];
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(0);
    SELECT array_agg(l.version + 1), array_agg(l.owner), array_agg(l.at)
    INTO f_version, f_owner, f_at
    FROM (
        SELECT f.version, f.owner, f.at
        FROM unnest(p_resources, p_token, p_lock) WITH ORDINALITY a (resource, token, lock, i)
        CROSS JOIN LATERAL (
            SELECT f.version, f.owner, f.ctid AS at FROM fencegate.fences f
            WHERE f.resource = a.resource AND acts.admits(f, a.token, a.lock, guard.floor)
            FOR NO KEY UPDATE SKIP LOCKED) f
        ORDER BY a.i) l;
    t := clock_timestamp();
    t_us := fencegate.micros(t);

    -- Step 2.
    IF coalesce(cardinality(f_version), 0) < n OR EXISTS (
        SELECT FROM fencegate.buried b WHERE b.kind = 'operation' AND b.id = ANY (p_operation))
    THEN
        RETURN QUERY SELECT * FROM acts.commit_all_plain(
            p_seen, p_resources, p_objects, p_operation, p_token, p_lock, p_content_type, p_size,
            p_sha256, p_body);
        RETURN;
    END IF;

    -- Step 3. A row that was inserted, and not updated, has never been locked.
    WITH stored AS (
        INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size,
                                       sha256, written_at, body)
        SELECT a.resource, a.key, a.version, guard.generation, a.content_type, a.size, a.sha256, t,
               a.body
        FROM (SELECT unnest(p_resources) AS resource, unnest(p_objects) AS key,
                     unnest(f_version) AS version, unnest(p_content_type) AS content_type,
                     unnest(p_size) AS size, unnest(p_sha256) AS sha256, unnest(p_body) AS body) a
        ON CONFLICT (resource, key) DO UPDATE
        SET version = excluded.version, generation = excluded.generation,
            content_type = excluded.content_type, size = excluded.size,
            sha256 = excluded.sha256, written_at = excluded.written_at, body = excluded.body
        WHERE objects.blob IS NULL
        RETURNING objects.resource, objects.xmax = 0 AS created)
    SELECT array_agg(s.resource), coalesce(array_agg(s.resource) FILTER (WHERE s.created), '{}')
    INTO o_stored, o_created FROM stored s;
    -- The bytes of the others were in blobs, which are kept for a while.
    IF coalesce(cardinality(o_stored), 0) < n THEN
        o_blobs := ARRAY(SELECT unnest(p_resources) EXCEPT SELECT unnest(o_stored));
        PERFORM acts.replace_blobs(o_blobs, p_resources, p_objects, f_version, p_content_type,
                                        p_size, p_sha256, p_body, guard.generation, t);
    END IF;
    INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token,
                                      created, size, sha256, owner, committed_at)
    SELECT a.id, a.resource, a.version, 'put', a.key, guard.generation, a.token,
           a.resource = ANY (o_created), a.size, a.sha256, a.owner, t
    FROM (SELECT unnest(p_operation) AS id, unnest(p_resources) AS resource,
                 unnest(f_version) AS version, unnest(p_objects) AS key, unnest(p_token) AS token,
                 unnest(p_size) AS size, unnest(p_sha256) AS sha256, unnest(f_owner) AS owner) a;
    -- By place: nobody moves a row that is locked here.
    UPDATE fencegate.fences f
    SET version = f.version + 1, objects = f.objects + (f.resource = ANY (o_created))::int
    WHERE f.ctid = ANY (f_at);

    RETURN QUERY
    SELECT 'applied', NULL::uuid, a.version, guard.generation, a.resource = ANY (o_created), t_us,
           a.owner, NULL::text, NULL::bigint, acts.flushed()
    FROM (SELECT unnest(p_resources) AS resource, unnest(f_version) AS version,
                 unnest(f_owner) AS owner) a;
END $$;

-- The same for one put, without arrays.
CREATE FUNCTION acts.commit_lone(
    p_seen bigint, p_resource text, p_object text, p_operation uuid, p_token bigint, p_lock uuid,
    p_content_type text, p_size bigint, p_sha256 bytea, p_body bytea)
RETURNS TABLE (
    verdict text, original uuid, version bigint, generation bigint, created boolean, at_us bigint,
    owner text, superseded_by text, behind bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard     fencegate.write_guard;
    t         timestamptz;
    f_version bigint;
    f_owner   text;
    o_created boolean;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(0);
    SELECT f.version + 1, f.owner INTO f_version, f_owner FROM fencegate.fences f
    WHERE f.resource = p_resource AND acts.admits(f, p_token, p_lock, guard.floor)
    FOR NO KEY UPDATE SKIP LOCKED;
    t := clock_timestamp();

    -- Step 2.
    IF f_version IS NULL OR EXISTS (
        SELECT FROM fencegate.buried b WHERE b.kind = 'operation' AND b.id = p_operation)
    THEN
        RETURN QUERY SELECT * FROM acts.commit_all_plain(
            p_seen, ARRAY[p_resource], ARRAY[p_object], ARRAY[p_operation], ARRAY[p_token],
            ARRAY[p_lock], ARRAY[p_content_type], ARRAY[p_size], ARRAY[p_sha256], ARRAY[p_body]);
        RETURN;
    END IF;

    -- Step 3.
    INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256,
                                   written_at, body)
    VALUES (p_resource, p_object, f_version, guard.generation, p_content_type, p_size, p_sha256, t,
            p_body)
    ON CONFLICT (resource, key) DO UPDATE
    SET version = excluded.version, generation = excluded.generation,
        content_type = excluded.content_type, size = excluded.size, sha256 = excluded.sha256,
        written_at = excluded.written_at, body = excluded.body
    WHERE objects.blob IS NULL
    RETURNING objects.xmax = 0 INTO o_created;
    IF o_created IS NULL THEN
        o_created := false;
        PERFORM acts.replace_blobs(
            ARRAY[p_resource], ARRAY[p_resource], ARRAY[p_object], ARRAY[f_version],
            ARRAY[p_content_type], ARRAY[p_size], ARRAY[p_sha256], ARRAY[p_body], guard.generation, t);
    END IF;
    INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token, created,
                                      size, sha256, owner, committed_at)
    VALUES (p_operation, p_resource, f_version, 'put', p_object, guard.generation, p_token,
            o_created, p_size, p_sha256, f_owner, t);
    UPDATE fencegate.fences f
    SET version = f_version, objects = f.objects + o_created::int
    WHERE f.resource = p_resource;

    verdict := 'applied';
    version := f_version;
    generation := guard.generation;
    created := o_created;
    at_us := fencegate.micros(t);
    owner := f_owner;
    flushed := acts.flushed();
    RETURN NEXT;
END $$;

-- Puts of these batches whose objects have their bytes in blobs.
CREATE FUNCTION acts.replace_blobs(
    p_names text[], p_resources text[], p_objects text[], p_version bigint[], p_content_type text[],
    p_size bigint[], p_sha256 bytea[], p_body bytea[], p_generation bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.replaced_versions
           (resource, key, version, generation, content_type, size, sha256, written_at,
            body, blob, replaced_at, replaced_lsn)
    SELECT o.resource, o.key, o.version, o.generation, o.content_type, o.size, o.sha256,
           o.written_at, o.body, o.blob, p_now, pg_current_wal_insert_lsn()
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_objects) AS key) a
    JOIN fencegate.objects o ON o.resource = a.resource AND o.key = a.key
    WHERE a.resource = ANY (p_names);
    UPDATE fencegate.objects o
    SET version = a.version, generation = p_generation, content_type = a.content_type,
        size = a.size, sha256 = a.sha256, written_at = p_now, body = a.body, blob = NULL
    FROM (SELECT unnest(p_resources) AS resource, unnest(p_objects) AS key,
                 unnest(p_version) AS version, unnest(p_content_type) AS content_type,
                 unnest(p_size) AS size, unnest(p_sha256) AS sha256, unnest(p_body) AS body) a
    WHERE o.resource = a.resource AND o.key = a.key AND a.resource = ANY (p_names);
END $$;

-- The same writes, decided by `commit`.
CREATE FUNCTION acts.commit_all_plain(
    p_seen bigint, p_resources text[], p_objects text[], p_operation uuid[], p_token bigint[],
    p_lock uuid[], p_content_type text[], p_size bigint[], p_sha256 bytea[], p_body bytea[])
RETURNS TABLE (
    verdict text, original uuid, version bigint, generation bigint, created boolean, at_us bigint,
    owner text, superseded_by text, behind bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    each  int[] := ARRAY[cardinality(p_resources)];
    place int[] := ARRAY(SELECT generate_series(1, cardinality(p_resources)));
    zero  int[] := array_fill(0, each);
    no_id uuid[] := array_fill(NULL::uuid, each);
    no_number bigint[] := array_fill(NULL::bigint, each);
BEGIN
    RETURN QUERY SELECT * FROM acts.commit(
        p_seen, 0, p_resources, p_objects, place, '{}', '{}', p_operation, zero, place, p_token,
        p_lock, no_number, zero, array_fill(NULL::bytea, each), no_number,
        array_fill(NULL::text, each), no_number, array_fill('put'::text, each), place,
        p_content_type, p_size, p_sha256, p_body, no_id, false);
END $$;
