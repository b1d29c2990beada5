-- The act on data: puts and deletes (I3, I4, I6, I7, I8).
--
-- A row is one put or one delete, or all deletes of a resource. It is a write of its own; or, with p_commit, all rows
-- are those of one commit, which takes effect as a whole or not at all; a row without a kind only demands a version.
--
-- What depends on others of its batch is decided in a later round than they are. In one round no two writes have a
-- resource in common, but for puts of bytes under one token that demand nothing: p_nth counts those of a resource,
-- p_again says that one before it puts the same object, p_last that none behind it does (NULL: each is the only one).
-- Whoever makes the batch sees to that. The tables refuse one version twice, and one object twice in a round.

-- Makes room for what these rows put, and deletes what they delete: keeps of that what has to be kept.
CREATE FUNCTION acts.make_room(
    p_keep boolean, p_now timestamptz, p_why text[], p_did text[], p_kind text[], p_resource text[], p_object text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencegate.replaced_versions
           (resource, key, version, generation, content_type, size, sha256, written_at, body, blob, about, parts,
            replaced_at, replaced_lsn)
    SELECT o.resource, o.key, o.version, o.generation, o.content_type, o.size, o.sha256, o.written_at,
           o.body, o.blob, o.about, o.parts, p_now, pg_current_wal_insert_lsn()
    FROM (SELECT DISTINCT r.resource, r.object
          FROM unnest(p_why, p_did, p_resource, p_object) r (why, did, resource, object)
          WHERE r.why IS NULL AND r.did IN ('r', 'd')) r
    CROSS JOIN LATERAL (
        SELECT o.* FROM fencegate.objects o WHERE o.resource = r.resource AND o.key = r.object
        UNION ALL
        SELECT o.* FROM fencegate.objects o WHERE r.object IS NULL AND o.resource = r.resource) o
    WHERE p_keep OR o.blob IS NOT NULL;
    DELETE FROM fencegate.objects o
    USING unnest(p_why, p_did, p_resource, p_object) r (why, did, resource, object)
    WHERE r.why IS NULL AND r.did = 'd' AND o.resource = r.resource AND o.key = r.object;
    DELETE FROM fencegate.objects o WHERE o.resource = ANY (ARRAY(
        SELECT r.resource FROM unnest(p_why, p_kind, p_resource) r (why, kind, resource)
        WHERE r.why IS NULL AND r.kind = 'delete_all'));
END $$;

-- Stores the operations of a commit, and answers it.
CREATE FUNCTION acts.record_commit(
    p_generation bigint, p_now timestamptz, p_operation uuid, p_token bigint, p_seq bigint, p_resource text[],
    p_kind text[], p_version bigint[], p_did text[], p_owner text[], p_highest bigint[])
RETURNS SETOF acts.written LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH place AS (
        SELECT min(r.i) AS i, r.resource, max(r.version) AS version, min(r.owner) AS owner, max(r.highest) AS highest,
               coalesce(string_agg(r.did, '' ORDER BY r.i) FILTER (WHERE r.kind IS NOT NULL), '') AS did
        FROM unnest(p_resource, p_kind, p_version, p_did, p_owner, p_highest)
             WITH ORDINALITY r (resource, kind, version, did, owner, highest, i)
        GROUP BY r.resource),
    stored AS (
        INSERT INTO fencegate.operations (id, resource, version, kind, generation, token, seq, highest_seq, created,
                                          size, owner, committed_at, did)
        SELECT p_operation, p.resource, p.version, 'commit', p_generation, p_token, p_seq, p.highest, false, 0,
               p.owner, p_now, p.did
        FROM place p)
    SELECT p.i, p.resource, 'applied', NULL::uuid, p.version, p.did, p_generation, fencegate.micros(p_now), p.owner,
           NULL::text, NULL::bigint, acts.flushed()
    FROM place p;
END $$;

-- Decides a round and stores what is admitted.
--
-- 1. Guard, then the fences in name order, then the intents of blobs. What somebody else has locked is skipped: busy.
-- 2. In later statements, each with a fresh snapshot, what is so of each row (`judged`); where it matters, what
--    operations, keys, demands and intents say (`judged_further`). Whose p_attempt is NULL was not sent before, and is
--    not looked up if it is admitted: should it have been after all, or be buried, the key of the table refuses it, the
--    act is rolled back, and its caller comes again.
-- 3. What is refused is answered.
-- 4. What was admitted is stored: operations, one for each resource of a commit; keys; objects; and on the fences how
--    many of those there are, and numbers that no version has.
--
-- Whose rules of access have moved is not decided, as if busy (I17); unless all that is asked is what became of it.
--
-- p_names: who writes, as is_yours() has it; p_rules: the generation of the rules under which that was allowed.
-- p_resources: all resources, each once. p_attempt: 0 first, 1 rerun, 2 bury. p_kept_ms: how long a key is remembered,
-- NULL: as long as the settings say. p_kind: put, delete, delete_all. A put has p_body or p_blob. p_keep: whether
-- replaced versions are kept that have no blob. p_now: the time since which the fences are locked; NULL: they are not
-- yet. p_space: NULL: native. p_parts: of a put that completes an upload in parts the blobs of these, separated by commas.
-- p_taken_us: the ledger's own time when the oldest of those that are not sent for the first time was taken. Columns of NULLs
-- alone may be NULL.
CREATE FUNCTION acts.write(
    p_seen bigint, p_wait_ms int, p_keep boolean, p_now timestamptz, p_commit boolean, p_resources text[],
    p_operation uuid[], p_resource text[], p_token bigint[], p_lock uuid[], p_seq bigint[], p_if_version bigint[],
    p_attempt int[], p_key text[], p_fingerprint bytea[], p_kept_ms bigint[], p_nth int[], p_kind text[],
    p_object text[], p_if_object text[], p_again boolean[], p_last boolean[], p_content_type text[], p_size bigint[],
    p_sha256 bytea[], p_body bytea[], p_blob uuid[], p_names text[], p_rules bigint[], p_space text[],
    p_about text[], p_parts text[], p_taken_us bigint)
RETURNS SETOF acts.written LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    guard      fencegate.write_guard;
    t          timestamptz;
    stamp      timestamptz;               -- by the ledger's own time
    got        text[];
    mine       uuid[];
    ignored    text;
    -- By row: why it is refused, the operation that took effect in its place, the version it takes, what it does,
    -- whose token it is, the highest number under that, how many more objects there are then.
    r_why      text[];
    r_original uuid[];
    r_version  bigint[];
    r_did      text[];
    r_owner    text[];
    r_highest  bigint[];
    r_more     bigint[];
    replaces   boolean; counts boolean;
BEGIN
    -- Step 1.
    guard := acts.begin_write(p_seen);
    ignored := acts.limit_wait(p_wait_ms);
    got := acts.lock_fences(p_resources, p_wait_ms);
    IF p_blob IS NOT NULL THEN
        mine := acts.lock_intents(p_blob, p_wait_ms);
    END IF;
    t := coalesce(p_now, clock_timestamp());
    stamp := acts.stamp(t);

    -- Step 2. One row is read without aggregates, which would cost it more than all else that is read.
    IF cardinality(p_resource) = 1 THEN
        SELECT ARRAY[j.why], ARRAY[j.version], ARRAY[j.did], ARRAY[j.owner], ARRAY[j.highest], ARRAY[j.more],
               j.replaces, j.did <> 'r'
        INTO r_why, r_version, r_did, r_owner, r_highest, r_more, replaces, counts
        FROM acts.judged(guard.floor, got, t, p_keep, p_resource, p_token, p_lock, p_seq, p_if_version, p_nth, p_kind,
                         p_object, p_again, p_names, p_rules, guard.access) j;
    ELSE
        SELECT array_agg(j.why), array_agg(j.version), array_agg(j.did), array_agg(j.owner), array_agg(j.highest),
               array_agg(j.more), bool_or(j.replaces), bool_or(j.did <> 'r')
        INTO r_why, r_version, r_did, r_owner, r_highest, r_more, replaces, counts
        FROM acts.judged(guard.floor, CASE WHEN cardinality(got) < cardinality(p_resources) THEN got END, t, p_keep,
                         p_resource, p_token, p_lock, p_seq, p_if_version, p_nth, p_kind, p_object, p_again,
                         p_names, p_rules, guard.access) j;
    END IF;
    IF p_attempt IS NOT NULL OR p_key IS NOT NULL OR p_if_object IS NOT NULL OR p_blob IS NOT NULL THEN
        SELECT j.why, j.original INTO r_why, r_original FROM acts.judged_further(
            p_commit, mine, r_why, p_operation, p_resource, p_attempt, p_key, p_fingerprint, p_object, p_if_object,
            p_blob, p_space, p_parts, p_taken_us) j;
    END IF;

    -- Step 3.
    IF cardinality(array_remove(r_why, NULL)) > 0 THEN
        RETURN QUERY SELECT * FROM acts.refuse(
            p_commit, guard.generation, t, r_why, r_original, p_operation, p_resource, p_token, p_attempt, p_names);
        IF p_commit OR array_position(r_why, NULL) IS NULL THEN
            RETURN;
        END IF;
    END IF;

    -- Step 4.
    IF p_commit THEN
        RETURN QUERY SELECT * FROM acts.record_commit(
            guard.generation, stamp, p_operation[1], p_token[1], p_seq[1], p_resource, p_kind, r_version, r_did, r_owner,
            r_highest);
    ELSE
        INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token, seq, highest_seq,
                                          created, size, sha256, owner, committed_at)
        SELECT p_operation[i], p_resource[i], r_version[i], p_kind[i], p_object[i], guard.generation, p_token[i],
               p_seq[i], r_highest[i], r_did[i] = 'c', coalesce(p_size[i], 0),
               CASE WHEN p_parts[i] IS NULL THEN p_sha256[i] END, r_owner[i], stamp
        FROM (SELECT generate_series(1, cardinality(p_resource)) AS i) r WHERE r_why[i] IS NULL;
    END IF;
    IF p_key IS NOT NULL THEN
        INSERT INTO fencegate.idempotency_keys (resource, key, space, fingerprint, operation, stored_at, kept_until)
        SELECT DISTINCT ON (r.resource, r.key, r.space) r.resource, r.key, coalesce(r.space, 'native'), r.fingerprint,
               r.operation, stamp, stamp + r.kept_ms * interval '1 millisecond'
        FROM unnest(p_resource, p_key, p_space, p_fingerprint, p_operation, p_kept_ms, r_why)
             r (resource, key, space, fingerprint, operation, kept_ms, why)
        WHERE r.why IS NULL AND r.key IS NOT NULL;
    END IF;
    IF p_blob IS NOT NULL THEN
        DELETE FROM fencegate.blob_intents b WHERE b.blob = ANY (ARRAY(
            SELECT r.blob FROM unnest(p_blob, r_why) r (blob, why) WHERE r.why IS NULL));
    END IF;
    IF p_parts IS NOT NULL THEN PERFORM acts.drop_other_parts(r_why, p_blob, p_parts); END IF;
    IF replaces THEN PERFORM acts.make_room(p_keep, stamp, r_why, r_did, p_kind, p_resource, p_object); END IF;
    INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256, written_at,
                                   body, blob, principal, about, parts)
    SELECT p_resource[i], p_object[i], r_version[i], guard.generation, p_content_type[i], p_size[i], p_sha256[i], stamp,
           p_body[i], p_blob[i], split_part(p_names[i], ' ', 1), p_about[i],
           cardinality(string_to_array(p_parts[i], ','))
    FROM (SELECT generate_series(1, cardinality(p_resource)) AS i) r
    WHERE p_kind[i] = 'put' AND r_why[i] IS NULL AND p_last[i] IS NOT FALSE
    ON CONFLICT (resource, key) DO UPDATE
    SET version = excluded.version, generation = excluded.generation, content_type = excluded.content_type,
        size = excluded.size, sha256 = excluded.sha256, written_at = excluded.written_at,
        body = excluded.body, blob = excluded.blob, principal = excluded.principal, about = excluded.about,
        parts = excluded.parts;
    IF counts THEN
        UPDATE fencegate.fences f SET objects = f.objects + x.objects, last_seq = coalesce(x.seq, f.last_seq)
        FROM (SELECT r.resource, sum(r.objects) AS objects, CASE WHEN count(r.version) = 0 THEN max(r.seq) END AS seq
              FROM unnest(p_resource, r_more, r_version, p_seq, r_why) r (resource, objects, version, seq, why)
              WHERE r.why IS NULL GROUP BY r.resource) x
        WHERE f.resource = x.resource AND f.resource = ANY (p_resources) AND (x.objects <> 0 OR x.seq IS NOT NULL);
    END IF;
    IF NOT p_commit THEN
        RETURN QUERY
        SELECT i::bigint, p_resource[i], 'applied', NULL::uuid, r_version[i], r_did[i], guard.generation,
               fencegate.micros(stamp), r_owner[i], NULL::text, NULL::bigint, acts.flushed()
        FROM (SELECT generate_series(1, cardinality(p_resource)) AS i) r WHERE r_why[i] IS NULL;
    END IF;
END $$;

-- Decides a batch round by round: p_ends has the last row of each. All fences are locked first, in their order.
CREATE FUNCTION acts.write_rounds(
    p_ends int[], p_seen bigint, p_wait_ms int, p_keep boolean, p_resources text[],
    p_operation uuid[], p_resource text[], p_token bigint[], p_lock uuid[], p_seq bigint[], p_if_version bigint[],
    p_attempt int[], p_key text[], p_fingerprint bytea[], p_kept_ms bigint[], p_nth int[], p_kind text[],
    p_object text[], p_if_object text[], p_again boolean[], p_last boolean[], p_content_type text[], p_size bigint[],
    p_sha256 bytea[], p_body bytea[], p_blob uuid[], p_names text[], p_rules bigint[], p_space text[],
    p_about text[], p_parts text[], p_taken_us bigint)
RETURNS SETOF acts.written LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a      int := 1;
    z      int;
    t      timestamptz;
    answer acts.written;
BEGIN
    PERFORM acts.begin_write(p_seen);
    PERFORM acts.limit_wait(p_wait_ms);
    PERFORM acts.lock_fences(p_resources, p_wait_ms);
    t := clock_timestamp();
    FOREACH z IN ARRAY p_ends LOOP
        FOR answer IN SELECT * FROM acts.write(
            p_seen, p_wait_ms, p_keep, t, false, ARRAY(SELECT DISTINCT r FROM unnest(p_resource[a:z]) r),
            p_operation[a:z], p_resource[a:z], p_token[a:z], p_lock[a:z], p_seq[a:z], p_if_version[a:z],
            p_attempt[a:z], p_key[a:z], p_fingerprint[a:z], p_kept_ms[a:z], p_nth[a:z], p_kind[a:z], p_object[a:z],
            p_if_object[a:z], p_again[a:z], p_last[a:z], p_content_type[a:z], p_size[a:z], p_sha256[a:z],
            p_body[a:z], p_blob[a:z], p_names[a:z], p_rules[a:z], p_space[a:z], p_about[a:z],
            CASE WHEN cardinality(array_remove(p_parts[a:z], NULL)) > 0 THEN p_parts[a:z] END, p_taken_us)
        LOOP
            answer.row := answer.row + a - 1;
            RETURN NEXT answer;
        END LOOP;
        a := z + 1;
    END LOOP;
END $$;
