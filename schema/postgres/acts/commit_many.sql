-- The act on data over several resources: many puts and deletes, all or nothing (I3, I4, I6, I7, I8).
--
-- The shape and the words are those of `commit`, with one item per call:
-- 1. Guard, then all fences in name order. If somebody else has one locked: busy, nothing is decided.
-- 2. In later statements the operation, known or buried; then its key, on all resources.
-- 3. On each resource in name order the rule, then its version; then what the steps demand of their
--    objects, as they were before; then the intents of all blobs. The first that refuses decides.
-- 4. The effects of all steps. A resource on which anything changed takes one version; each gets an
--    operation, all with the same id, and the key.
--
-- p_resources is distinct and sorted; steps name their resource by position, and no object twice. A
-- step without a size is a delete, else it is a put with p_body or p_blob. p_if_object, p_attempt and
-- p_keep are those of `commit`.
--
-- Returns a row per resource if it took effect, else one row. Positions begin with 1.
CREATE FUNCTION acts.commit_many(
    p_seen bigint, p_wait_ms int, p_resources text[], p_if_version bigint[],
    p_operation uuid, p_attempt int, p_token bigint, p_lock uuid, p_seq bigint,
    p_key text, p_fingerprint bytea, p_kept_ms bigint,
    p_resource int[], p_object text[], p_if_object text[], p_content_type text[], p_size bigint[],
    p_sha256 bytea[], p_body bytea[], p_blob uuid[], p_keep boolean)
RETURNS TABLE (
    verdict text, resource int, step int, original uuid, version bigint, did text, generation bigint,
    at_us bigint, owner text, superseded_by text, behind bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard       fencegate.write_guard;
    t           timestamptz;
    got         text[];
    known       record;
    old         record;
    why         text;
    -- Fences, by position in p_resources; a NULL token: never sealed.
    f_token     bigint[];
    f_lock      uuid[];
    f_owner     text[];
    f_hold      text[];
    f_frozen    boolean[];
    f_version   bigint[];
    f_seq       bigint[];
    f_grants    bigint[];
    f_busy      boolean;
    -- What the steps on each resource come to.
    f_changed   boolean[];
    f_objects   bigint[];
    f_did       text[];
    -- Objects, by step: the tag before, NULL if it was absent; and whether it had a blob.
    o_tag       text[];
    o_blob      boolean[];
    any_blob    boolean := cardinality(array_remove(p_blob, NULL)) > 0;
    b_mine      uuid[] := '{}';
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resources, p_wait_ms);
    t := clock_timestamp();
    generation := guard.generation;

    -- Step 2. Whether a fence is locked and what it says come from one snapshot: a row that is born
    -- in between counts as busy, never as read.
    SELECT array_agg(CASE WHEN f.hold <> 'none' THEN f.token END ORDER BY p.i),
           array_agg(f.lock_id ORDER BY p.i), array_agg(f.owner ORDER BY p.i),
           array_agg(CASE WHEN f.hold NOT IN ('released', 'broken') AND f.break_due <= t THEN 'due'
                          ELSE f.hold END ORDER BY p.i),
           array_agg(f.frozen IS NOT NULL ORDER BY p.i), array_agg(f.version ORDER BY p.i),
           array_agg(f.last_seq ORDER BY p.i), array_agg(f.grants ORDER BY p.i),
           bool_or(f.resource IS NOT NULL AND f.resource <> ALL (got))
    INTO f_token, f_lock, f_owner, f_hold, f_frozen, f_version, f_seq, f_grants, f_busy
    FROM unnest(p_resources) WITH ORDINALITY p (name, i)
    LEFT JOIN fencegate.fences f ON f.resource = p.name;
    IF f_busy THEN
        verdict := 'busy';
        flushed := acts.flushed();
        RETURN NEXT;
        RETURN;
    END IF;

    SELECT x.verdict INTO verdict FROM (
        SELECT 'known', 1 FROM fencegate.operations op WHERE op.id = p_operation
        UNION ALL
        SELECT 'buried', 2 FROM fencegate.buried b
        WHERE b.kind = 'operation' AND b.id = p_operation) x (verdict, i) ORDER BY x.i LIMIT 1;
    IF FOUND THEN
        original := p_operation;
        flushed := acts.flushed();
        RETURN NEXT;
        RETURN;
    END IF;

    -- The key: whatever became of the token since.
    IF p_key IS NOT NULL THEN
        SELECT p.i, s.operation, s.fingerprint INTO known
        FROM unnest(p_resources) WITH ORDINALITY p (name, i)
        JOIN fencegate.idempotency_keys s ON s.resource = p.name AND s.key = p_key
        ORDER BY p.i LIMIT 1;
        IF FOUND THEN
            verdict := CASE WHEN known.fingerprint = p_fingerprint THEN 'replayed' ELSE 'key_reused' END;
            resource := known.i;
            original := known.operation;
            -- Another operation took effect under it: this one never does, also once the key is forgotten.
            IF p_attempt > 0 AND known.operation <> p_operation THEN
                PERFORM acts.bury('operation', p_operation, t);
            END IF;
            flushed := acts.flushed();
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    IF p_attempt = 2 THEN
        PERFORM acts.bury('operation', p_operation, t);
        verdict := 'buried';
        flushed := acts.flushed();
        RETURN NEXT;
        RETURN;
    END IF;

    -- Step 3. A break that has come due is stored by whoever acts on the row.
    IF 'due' = ANY (f_hold) THEN
        PERFORM acts.settle(p_resources, t);
        f_hold := array_replace(f_hold, 'due', 'broken');
    END IF;
    FOR r IN 1 .. cardinality(p_resources) LOOP
        why := acts.judge(p_token, p_lock, p_seq, guard.floor, f_token[r], f_lock[r], f_hold[r],
                          f_frozen[r], f_seq[r]);
        IF why = 'older' THEN
            old := acts.older(p_resources[r], p_token, f_grants[r]);
            why := old.verdict; superseded_by := old.superseded_by;
            at_us := fencegate.micros(old.at); owner := old.owner; behind := old.behind;
        ELSIF why IS NOT NULL THEN
            NULL;
        -- A belt: a token is of one lock (I15).
        ELSIF f_lock[r] <> f_lock[1] THEN
            why := 'lock_id_mismatch';
        ELSIF p_if_version[r] <> f_version[r] THEN
            why := 'version_mismatch';
        END IF;
        IF why IS NOT NULL THEN
            resource := r;
            EXIT;
        END IF;
    END LOOP;

    IF why IS NULL AND cardinality(p_object) > 0 THEN
        SELECT array_agg('g' || b.generation || '-v' || b.version ORDER BY p.i),
               array_agg(b.blob IS NOT NULL ORDER BY p.i)
        INTO o_tag, o_blob
        FROM unnest(p_object, p_resource) WITH ORDINALITY p (key, resource, i)
        LEFT JOIN fencegate.objects b
               ON b.resource = p_resources[p.resource] AND b.key = p.key;
        SELECT p.i, p.resource INTO step, resource
        FROM unnest(p_if_object, o_tag, p_resource) WITH ORDINALITY p (demand, tag, resource, i)
        WHERE NOT (CASE p.demand
                WHEN '*' THEN p.tag IS NOT NULL
                WHEN '-' THEN p.tag IS NULL
                ELSE coalesce(p.tag = ANY (string_to_array(p.demand, ',')), p.demand IS NULL) END)
        ORDER BY p.i LIMIT 1;
        IF FOUND THEN
            why := 'version_mismatch';
        END IF;
    END IF;

    -- The sweeper takes intents by the same rows. One that it is just looking at is busy.
    IF why IS NULL AND any_blob THEN
        b_mine := acts.lock_intents(p_blob, p_wait_ms);
        SELECT CASE WHEN s.blob IS NULL THEN 'upload_expired' ELSE 'busy' END, p.i, p.resource
        INTO why, step, resource
        FROM unnest(p_blob, p_resource) WITH ORDINALITY p (blob, resource, i)
        LEFT JOIN fencegate.blob_intents s ON s.blob = p.blob
        WHERE p.blob IS NOT NULL AND p.blob <> ALL (b_mine)
        ORDER BY s.blob IS NOT NULL, p.i LIMIT 1;
    END IF;

    IF why IS NOT NULL THEN
        IF p_attempt = 1 AND why <> 'busy' THEN
            PERFORM acts.bury('operation', p_operation, t);
        END IF;
        verdict := why;
        flushed := acts.flushed();
        RETURN NEXT;
        RETURN;
    END IF;

    -- Step 4. Operations before fences: the trigger on fences counts them.
    SELECT array_agg(coalesce(d.changed, false) ORDER BY p.i),
           array_agg(coalesce(d.objects, 0) ORDER BY p.i), array_agg(coalesce(d.did, '') ORDER BY p.i)
    INTO f_changed, f_objects, f_did
    FROM unnest(p_resources) WITH ORDINALITY p (name, i)
    LEFT JOIN (
        SELECT s.resource, bool_or(s.size IS NOT NULL OR s.tag IS NOT NULL) AS changed,
               count(*) FILTER (WHERE s.size IS NOT NULL AND s.tag IS NULL)
               - count(*) FILTER (WHERE s.size IS NULL AND s.tag IS NOT NULL) AS objects,
               string_agg(CASE WHEN s.size IS NOT NULL THEN CASE WHEN s.tag IS NULL THEN 'c' ELSE 'r' END
                               ELSE CASE WHEN s.tag IS NULL THEN 'n' ELSE 'd' END END,
                          '' ORDER BY s.i) AS did
        FROM unnest(p_resource, p_size, o_tag) WITH ORDINALITY s (resource, size, tag, i)
        GROUP BY s.resource) d ON d.resource = p.i;
    SELECT array_agg(CASE WHEN p.changed THEN p.version + 1 END ORDER BY p.i) INTO f_version
    FROM unnest(f_version, f_changed) WITH ORDINALITY p (version, changed, i);

    INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token, seq,
                                      created, size, owner, committed_at, did)
    SELECT p_operation, p.name, p.version, 'commit', NULL, guard.generation, p_token, p_seq, false, 0,
           p.owner, t, p.did
    FROM unnest(p_resources, f_version, f_owner, f_did) p (name, version, owner, did);
    IF any_blob THEN
        DELETE FROM fencegate.blob_intents s WHERE s.blob = ANY (p_blob);
    END IF;
    IF p_keep OR true = ANY (o_blob) THEN
        INSERT INTO fencegate.replaced_versions
               (resource, key, version, generation, content_type, size, sha256, written_at, body, blob,
                replaced_at, replaced_lsn)
        SELECT b.resource, b.key, b.version, b.generation, b.content_type, b.size, b.sha256,
               b.written_at, b.body, b.blob, t, pg_current_wal_insert_lsn()
        FROM unnest(p_object, p_resource) p (key, resource)
        JOIN fencegate.objects b ON b.resource = p_resources[p.resource] AND b.key = p.key
        WHERE p_keep OR b.blob IS NOT NULL;
    END IF;
    DELETE FROM fencegate.objects b USING unnest(p_object, p_resource, p_size, o_tag)
                                          p (key, resource, size, tag)
    WHERE p.size IS NULL AND p.tag IS NOT NULL
      AND b.resource = p_resources[p.resource] AND b.key = p.key;
    INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256,
                                   written_at, body, blob)
    SELECT p_resources[p.resource], p.key, f_version[p.resource], guard.generation, p.content_type,
           p.size, p.sha256, t, p.body, p.blob
    FROM unnest(p_resource, p_object, p_content_type, p_size, p_sha256, p_body, p_blob)
         p (resource, key, content_type, size, sha256, body, blob)
    WHERE p.size IS NOT NULL
    ON CONFLICT (resource, key) DO UPDATE
    SET version = excluded.version, generation = excluded.generation,
        content_type = excluded.content_type, size = excluded.size, sha256 = excluded.sha256,
        written_at = excluded.written_at, body = excluded.body, blob = excluded.blob;
    IF p_key IS NOT NULL THEN
        INSERT INTO fencegate.idempotency_keys (resource, key, fingerprint, operation, stored_at,
                                                kept_until)
        SELECT name, p_key, p_fingerprint, p_operation, t, t + p_kept_ms * interval '1 millisecond'
        FROM unnest(p_resources) name;
    END IF;
    UPDATE fencegate.fences f
    SET version = coalesce(c.version, f.version), last_seq = coalesce(p_seq, f.last_seq),
        objects = f.objects + c.objects
    FROM unnest(p_resources, f_version, f_objects) c (name, version, objects)
    WHERE f.resource = c.name AND (c.version IS NOT NULL OR p_seq IS NOT NULL);

    RETURN QUERY
    SELECT 'applied', p.i::int, NULL::int, p_operation, p.version, p.did, guard.generation,
           fencegate.micros(t), p.owner, NULL::text, NULL::bigint, acts.flushed()
    FROM unnest(f_version, f_did, f_owner) WITH ORDINALITY p (version, did, owner, i)
    ORDER BY p.i;
END $$;
