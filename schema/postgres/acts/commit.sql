-- The act on data: commit. One call decides and applies a batch of writes (I3, I4, I6, I7, I8).
--
-- The shape is lock, read, decide, store:
-- 1. Guard, then fences in name order. Rows that somebody else has locked are skipped: busy.
-- 2. In later statements, each with a fresh snapshot, everything else that decides: operations,
--    buried ids, idempotency keys, tags of objects.
-- 3. Items are decided one after the other on what was read and on what the items before them did.
-- 4. What they did is stored: a few statements for the whole batch. Intents of blobs that items made
--    objects' are consumed, and versions that were replaced are kept as far as need be.
--
-- Items name their resource, object and key by position: p_resources is distinct and sorted,
-- p_objects and p_keys are distinct per resource. p_if_object: NULL, '*' exists, '-' absent, or tags
-- separated by commas. p_kept_ms: how long a key is remembered, NULL: as long as the settings say. p_attempt: 0 first, 1 rerun, 2 bury. A put has p_body or p_blob. p_keep: whether
-- replaced versions are kept that have no blob.
CREATE FUNCTION acts.commit(
    p_seen bigint, p_wait_ms int,
    p_resources text[],
    p_objects text[], p_object_resource int[],
    p_keys text[], p_key_resource int[],
    p_operation uuid[], p_attempt int[], p_resource int[], p_token bigint[], p_lock uuid[],
    p_seq bigint[], p_key int[], p_fingerprint bytea[], p_kept_ms bigint[], p_if_object text[],
    p_if_version bigint[],
    p_kind text[], p_object int[], p_content_type text[], p_size bigint[], p_sha256 bytea[],
    p_body bytea[], p_blob uuid[], p_keep boolean)
RETURNS TABLE (
    verdict text, original uuid, version bigint, generation bigint, created boolean, at_us bigint,
    owner text, superseded_by text, behind bigint, flushed bigint)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    n            int := cardinality(p_operation);
    -- Whether an operation comes more than once: then later items must see what earlier ones did.
    twice        boolean := (SELECT count(DISTINCT id) < n FROM unnest(p_operation) id);
    guard        fencegate.write_guard;
    t            timestamptz;
    t_us         bigint;
    position     bigint;
    got          text[];
    -- Fences, by position in p_resources; a NULL token: never sealed.
    f_busy       boolean[];
    f_token      bigint[];
    f_lock       uuid[];
    f_owner      text[];
    f_hold       text[];
    f_frozen     boolean[];
    f_protected  boolean[];
    f_version    bigint[];
    f_seq        bigint[];
    f_objects    bigint[];
    f_grants     bigint[];
    f_changed    boolean[] := array_fill(false, ARRAY[cardinality(p_resources)]);
    wiped        text[] := '{}';
    -- Objects, by position in p_objects: the tag (NULL: absent), and the item that put it last.
    o_tag        text[];
    o_put        int[] := array_fill(0, ARRAY[cardinality(p_objects)]);
    o_gone       int[] := '{}';
    o_blob       boolean[];
    -- Intents: those locked here, those there are, those consumed.
    b_mine       uuid[] := '{}';
    b_there      uuid[] := '{}';
    b_used       uuid[] := '{}';
    -- Keys, by position in p_keys.
    k_operation  uuid[];
    k_print      bytea[];
    -- Ids that were found, and whether they took effect.
    id_known     uuid[];
    id_applied   boolean[];
    -- Results, by item.
    v_verdict    text[] := array_fill(NULL::text, ARRAY[n]);
    v_original   uuid[] := array_fill(NULL::uuid, ARRAY[n]);
    v_version    bigint[] := array_fill(NULL::bigint, ARRAY[n]);
    v_created    boolean[] := array_fill(false, ARRAY[n]);
    v_at         bigint[] := array_fill(NULL::bigint, ARRAY[n]);
    v_owner      text[] := array_fill(NULL::text, ARRAY[n]);
    v_by         text[] := array_fill(NULL::text, ARRAY[n]);
    v_behind     bigint[] := array_fill(NULL::bigint, ARRAY[n]);
    any_applied  boolean := false;
    any_put      boolean := false;
    any_blob     boolean := cardinality(array_remove(p_blob, NULL)) > 0;
    any_key      boolean := false;
    r int; o int; k int; found_at int; why text; changed boolean; old record;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resources, p_wait_ms);
    t := clock_timestamp();
    t_us := fencegate.micros(t);

    -- Step 2. Whether a fence is locked and what it says come from one snapshot: a row that is born
    -- in between counts as busy, never as read.
    SELECT array_agg(CASE WHEN f.hold <> 'none' THEN f.token END ORDER BY p.i),
           array_agg(f.lock_id ORDER BY p.i), array_agg(f.owner ORDER BY p.i),
           array_agg(CASE WHEN f.hold IN ('held', 'draining') AND f.break_due <= t THEN 'due'
                          ELSE f.hold END ORDER BY p.i),
           array_agg(f.frozen IS NOT NULL ORDER BY p.i),
           array_agg(f.protected IS NOT NULL ORDER BY p.i),
           array_agg(f.version ORDER BY p.i), array_agg(f.last_seq ORDER BY p.i),
           array_agg(f.objects ORDER BY p.i), array_agg(f.grants ORDER BY p.i),
           array_agg(f.resource IS NOT NULL AND f.resource <> ALL (got) ORDER BY p.i)
    INTO f_token, f_lock, f_owner, f_hold, f_frozen, f_protected, f_version, f_seq, f_objects,
         f_grants, f_busy
    FROM unnest(p_resources) WITH ORDINALITY p (name, i)
    LEFT JOIN fencegate.fences f ON f.resource = p.name;

    SELECT array_agg(x.id), array_agg(x.applied) INTO id_known, id_applied FROM (
        SELECT op.id, true FROM fencegate.operations op WHERE op.id = ANY (p_operation)
        UNION ALL
        SELECT b.id, false FROM fencegate.buried b
        WHERE b.kind = 'operation' AND b.id = ANY (p_operation)) x (id, applied);

    IF cardinality(p_keys) > 0 THEN
        SELECT array_agg(s.operation ORDER BY p.i), array_agg(s.fingerprint ORDER BY p.i)
        INTO k_operation, k_print
        FROM unnest(p_keys, p_key_resource) WITH ORDINALITY p (key, resource, i)
        LEFT JOIN fencegate.idempotency_keys s
               ON s.resource = p_resources[p.resource] AND s.key = p.key;
    END IF;

    IF cardinality(p_objects) > 0 THEN
        SELECT array_agg('g' || b.generation || '-v' || b.version ORDER BY p.i),
               array_agg(b.blob IS NOT NULL ORDER BY p.i)
        INTO o_tag, o_blob
        FROM unnest(p_objects, p_object_resource) WITH ORDINALITY p (key, resource, i)
        LEFT JOIN fencegate.objects b
               ON b.resource = p_resources[p.resource] AND b.key = p.key;
    END IF;

    -- The sweeper takes intents by the same rows. One that it is just looking at is busy.
    IF any_blob THEN
        b_mine := acts.lock_intents(p_blob, p_wait_ms);
        SELECT coalesce(array_agg(s.blob), '{}') INTO b_there
        FROM fencegate.blob_intents s WHERE s.blob = ANY (p_blob);
    END IF;

    -- Step 3. The first that applies decides.
    FOR i IN 1 .. n LOOP
        r := p_resource[i]; o := p_object[i]; k := p_key[i];
        why := NULL;

        IF f_busy[r] THEN
            v_verdict[i] := 'busy';
            CONTINUE;
        END IF;
        -- The operation itself: buried, or applied by a sending whose answer was lost.
        IF id_known IS NOT NULL THEN
            found_at := array_position(id_known, p_operation[i]);
            IF found_at IS NOT NULL THEN
                v_verdict[i] := CASE WHEN id_applied[found_at] THEN 'known' ELSE 'buried' END;
                v_original[i] := p_operation[i];
                CONTINUE;
            END IF;
        END IF;
        -- The idempotency key: whatever became of the token since.
        IF k > 0 AND k_operation[k] IS NOT NULL THEN
            v_verdict[i] := CASE WHEN k_print[k] = p_fingerprint[i] THEN 'replayed'
                                 ELSE 'key_reused' END;
            v_original[i] := k_operation[k];
            -- Another operation took effect under it: this one never does, also once the key is forgotten.
            IF p_attempt[i] > 0 AND k_operation[k] <> p_operation[i] THEN
                PERFORM acts.bury('operation', p_operation[i], t);
                IF twice THEN
                    id_known := id_known || p_operation[i];
                    id_applied := id_applied || false;
                END IF;
            END IF;
            CONTINUE;
        END IF;
        IF p_attempt[i] = 2 THEN
            PERFORM acts.bury('operation', p_operation[i], t);
            v_verdict[i] := 'buried';
            IF twice THEN
                id_known := id_known || p_operation[i];
                id_applied := id_applied || false;
            END IF;
            CONTINUE;
        END IF;
        -- A break that has come due is stored by whoever acts on the row.
        IF f_hold[r] = 'due' THEN
            PERFORM acts.settle(ARRAY[p_resources[r]], t);
            f_hold[r] := 'broken';
        END IF;

        -- The rule.
        why := acts.judge(p_token[i], p_lock[i], p_seq[i], guard.floor, f_token[r], f_lock[r],
                          f_hold[r], f_frozen[r], f_seq[r]);
        IF why = 'older' THEN
            old := acts.older(p_resources[r], p_token[i], f_grants[r]);
            why := old.verdict;
            v_by[i] := old.superseded_by; v_at[i] := fencegate.micros(old.at);
            v_owner[i] := old.owner; v_behind[i] := old.behind;
        END IF;
        -- Preconditions.
        IF why IS NOT NULL THEN
            NULL;
        ELSIF p_if_version[i] <> f_version[r] THEN
            why := 'version_mismatch';
        ELSIF o > 0 AND NOT (CASE p_if_object[i]
                WHEN '*' THEN o_tag[o] IS NOT NULL
                WHEN '-' THEN o_tag[o] IS NULL
                ELSE coalesce(o_tag[o] = ANY (string_to_array(p_if_object[i], ',')),
                              p_if_object[i] IS NULL) END) THEN
            why := 'version_mismatch';
        ELSIF p_kind[i] = 'delete_all' AND f_protected[r] THEN
            why := 'protected';
        END IF;
        -- The intent of its blob.
        IF why IS NULL AND p_blob[i] IS NOT NULL AND p_blob[i] <> ALL (b_mine) THEN
            IF p_blob[i] = ANY (b_there) THEN
                f_busy[r] := true;
                v_verdict[i] := 'busy';
                CONTINUE;
            END IF;
            why := 'upload_expired';
        END IF;
        IF why IS NOT NULL THEN
            v_verdict[i] := why;
            IF p_attempt[i] = 1 THEN
                PERFORM acts.bury('operation', p_operation[i], t);
                IF twice THEN
                    id_known := id_known || p_operation[i];
                    id_applied := id_applied || false;
                END IF;
            END IF;
            CONTINUE;
        END IF;

        -- The effect, on what was read.
        IF p_kind[i] = 'put' THEN
            changed := true;
            IF o_tag[o] IS NULL THEN
                v_created[i] := true;
                f_objects[r] := f_objects[r] + 1;
            END IF;
            o_put[o] := i;
            IF p_blob[i] IS NOT NULL THEN
                b_used := b_used || p_blob[i];
                b_mine := array_remove(b_mine, p_blob[i]);
                b_there := array_remove(b_there, p_blob[i]);
            END IF;
            o_tag[o] := 'g' || guard.generation || '-v' || (f_version[r] + 1);
            any_put := true;
        ELSIF p_kind[i] = 'delete' THEN
            changed := o_tag[o] IS NOT NULL;
            IF changed THEN
                f_objects[r] := f_objects[r] - 1;
                o_tag[o] := NULL;
                o_put[o] := 0;
                o_gone := o_gone || o;
            END IF;
        ELSE
            changed := f_objects[r] > 0;
            IF changed THEN
                f_objects[r] := 0;
                wiped := wiped || p_resources[r];
                FOR j IN 1 .. cardinality(p_objects) LOOP
                    IF p_object_resource[j] = r THEN
                        o_tag[j] := NULL;
                        o_put[j] := 0;
                    END IF;
                END LOOP;
            END IF;
        END IF;
        IF changed THEN
            f_version[r] := f_version[r] + 1;
            v_version[i] := f_version[r];
            f_changed[r] := true;
        END IF;
        IF p_seq[i] IS NOT NULL THEN
            f_seq[r] := p_seq[i];
            f_changed[r] := true;
        END IF;
        IF k > 0 THEN
            k_operation[k] := p_operation[i];
            k_print[k] := p_fingerprint[i];
            any_key := true;
        END IF;
        v_verdict[i] := 'applied';
        v_owner[i] := f_owner[r];
        v_at[i] := t_us;
        any_applied := true;
        IF twice THEN
            id_known := id_known || p_operation[i];
            id_applied := id_applied || true;
        END IF;
    END LOOP;

    -- Step 4. Operations before fences: the trigger on fences counts them.
    IF any_applied THEN
        INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token, seq,
                                          created, size, sha256, owner, committed_at)
        SELECT a.id, p_resources[a.resource], a.version, a.kind, p_objects[a.object],
               guard.generation, a.token, a.seq, a.created, coalesce(a.size, 0),
               a.sha256, a.owner, t
        FROM unnest(p_operation, p_resource, v_version, p_kind, p_object, p_token, p_seq, v_created,
                    p_size, p_sha256, v_owner, v_verdict)
             a (id, resource, version, kind, object, token, seq, created, size, sha256, owner, verdict)
        WHERE a.verdict = 'applied';
        IF any_blob THEN
            DELETE FROM fencegate.blob_intents s WHERE s.blob = ANY (b_used);
        END IF;
        -- What was there before the batch, and what the batch itself replaced again.
        IF p_keep OR any_blob OR cardinality(wiped) > 0 OR true = ANY (o_blob) THEN
            INSERT INTO fencegate.replaced_versions
                   (resource, key, version, generation, content_type, size, sha256, written_at,
                    body, blob, replaced_at, replaced_lsn)
            SELECT b.resource, b.key, b.version, b.generation, b.content_type, b.size, b.sha256,
                   b.written_at, b.body, b.blob, t, pg_current_wal_insert_lsn()
            FROM (
                SELECT w.* FROM fencegate.objects w WHERE w.resource = ANY (wiped)
                UNION ALL
                SELECT o.* FROM unnest(p_objects, p_object_resource, o_put) WITH ORDINALITY
                                p (key, resource, put, i)
                JOIN fencegate.objects o ON o.resource = p_resources[p.resource] AND o.key = p.key
                WHERE (p.put > 0 OR p.i = ANY (o_gone)) AND o.resource <> ALL (wiped)) b
            WHERE p_keep OR b.blob IS NOT NULL;
            INSERT INTO fencegate.replaced_versions
                   (resource, key, version, generation, content_type, size, sha256, written_at,
                    body, blob, replaced_at, replaced_lsn)
            SELECT p_resources[a.resource], p_objects[a.object], a.version, guard.generation,
                   a.content_type, a.size, a.sha256, t, a.body, a.blob, t, pg_current_wal_insert_lsn()
            FROM unnest(p_resource, p_object, v_version, p_kind, p_content_type, p_size, p_sha256,
                        p_body, p_blob, v_verdict) WITH ORDINALITY
                 a (resource, object, version, kind, content_type, size, sha256, body, blob, verdict, i)
            WHERE a.verdict = 'applied' AND a.kind = 'put' AND (p_keep OR a.blob IS NOT NULL)
              AND o_put[nullif(a.object, 0)] <> a.i;
        END IF;
        IF cardinality(wiped) > 0 THEN
            DELETE FROM fencegate.objects b WHERE b.resource = ANY (wiped);
        END IF;
        IF cardinality(o_gone) > 0 THEN
            DELETE FROM fencegate.objects b USING unnest(o_gone) g (object)
            WHERE o_put[g.object] = 0 AND b.key = p_objects[g.object]
              AND b.resource = p_resources[p_object_resource[g.object]];
        END IF;
        IF any_put THEN
            INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size,
                                           sha256, written_at, body, blob)
            SELECT p_resources[a.resource], p_objects[a.object], a.version, guard.generation,
                   a.content_type, a.size, a.sha256, t, a.body, a.blob
            FROM unnest(p_resource, p_object, v_version, p_content_type, p_size, p_sha256, p_body,
                        p_blob, v_verdict) WITH ORDINALITY
                 a (resource, object, version, content_type, size, sha256, body, blob, verdict, i)
            WHERE a.verdict = 'applied' AND o_put[nullif(a.object, 0)] = a.i
            ON CONFLICT (resource, key) DO UPDATE
            SET version = excluded.version, generation = excluded.generation,
                content_type = excluded.content_type, size = excluded.size,
                sha256 = excluded.sha256, written_at = excluded.written_at, body = excluded.body,
                blob = excluded.blob;
        END IF;
        IF any_key THEN
            INSERT INTO fencegate.idempotency_keys (resource, key, fingerprint, operation, stored_at,
                                                    kept_until)
            SELECT p_resources[a.resource], p_keys[a.key], a.fingerprint, a.id, t,
                   t + a.kept_ms * interval '1 millisecond'
            FROM unnest(p_resource, p_key, p_fingerprint, p_kept_ms, p_operation, v_verdict)
                 a (resource, key, fingerprint, kept_ms, id, verdict)
            WHERE a.verdict = 'applied' AND a.key > 0;
        END IF;
        UPDATE fencegate.fences f
        SET version = c.version, last_seq = c.seq, objects = c.objects
        FROM unnest(p_resources, f_version, f_seq, f_objects, f_changed)
             c (resource, version, seq, objects, changed)
        -- Said twice, so that no plan reads all fences.
        WHERE f.resource = c.resource AND c.changed AND f.resource = ANY (p_resources);
    END IF;

    position := acts.flushed();
    RETURN QUERY
    SELECT a.verdict, a.original, a.version, guard.generation, a.created, a.at, a.owner, a.how,
           a.behind, position
    FROM unnest(v_verdict, v_original, v_version, v_created, v_at, v_owner, v_by, v_behind)
         a (verdict, original, version, created, at, owner, how, behind);
END $$;
