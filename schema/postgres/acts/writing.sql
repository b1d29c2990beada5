-- What a write decides of each of its rows.

-- What became of a write; of a commit that took effect, on one of its resources.
CREATE TYPE acts.written AS (
    row           bigint,                 -- the first of its rows; of a refused commit, the one that was
    resource      text,
    verdict       text,
    original      uuid,                   -- the operation that took effect earlier, or used the key first
    version       bigint,
    did           text,                   -- a letter for each row: created, replaced, deleted, nothing
    generation    bigint,
    at_us         bigint,
    owner         text,
    superseded_by text,
    behind        bigint,
    flushed       bigint
);

-- Whether an object is as demanded: '*' there, '-' absent, else with one of these tags, which commas separate. NULL
-- demands nothing.
CREATE FUNCTION acts.is_as_demanded(p_demand text, p_generation bigint, p_version bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_demand
        WHEN '*' THEN p_version IS NOT NULL
        WHEN '-' THEN p_version IS NULL
        ELSE p_demand IS NULL
             OR coalesce('g' || p_generation || '-v' || p_version = ANY (string_to_array(p_demand, ',')), false) END
$$;

-- What the fence, the newest operation and the object say of each row: why it is refused, and what it does. The version
-- of a resource is that of its newest operation, and so is the highest number under its token, unless one was used that
-- no version has: the fence has that. p_got: the fences that are locked; NULL: all.
CREATE FUNCTION acts.judged(
    p_floor bigint, p_got text[], p_now timestamptz, p_keep boolean, p_resource text[], p_token bigint[], p_lock uuid[],
    p_seq bigint[], p_if_version bigint[], p_nth int[], p_kind text[], p_object text[], p_again boolean[],
    p_names text[], p_rules bigint[], p_in_force bigint)
RETURNS TABLE (
    why text, version bigint, did text, owner text, highest bigint, more bigint, replaces boolean)
LANGUAGE sql STABLE AS $$
    SELECT w.why, CASE WHEN w.did <> 'n' THEN w.version + coalesce(p_nth[w.i], 1) END, w.did, w.owner, w.highest,
           CASE w.did WHEN 'c' THEN 1 WHEN 'd' THEN -w.there ELSE 0 END,
           w.did = 'd' OR w.did = 'r' AND (p_keep OR w.has_blob)
    FROM (
        SELECT i, coalesce(n.version, 0) AS version, f.owner::text, o.blob IS NOT NULL AS has_blob,
               CASE WHEN acts.rules_moved(p_rules[i], p_in_force) THEN 'rules_moved'
                    WHEN f.resource IS NOT NULL AND f.resource <> ALL (p_got) THEN 'busy'
                    ELSE coalesce(
                        acts.judge(p_token[i], p_lock[i], p_seq[i], p_floor, f.token, f.lock_id, f.stands, f.is_frozen,
                                   greatest(f.last_seq, CASE WHEN n.token = f.token THEN n.seq END),
                                   acts.is_yours(p_names[i], f.principal, f.writers)),
                        CASE WHEN p_if_version[i] <> coalesce(n.version, 0) THEN 'version_mismatch'
                             WHEN p_kind[i] = 'delete_all'
                                 THEN coalesce(f.is_protected, CASE WHEN f.objects > 10000 THEN 'too_many_objects' END)
                             END) END AS why,
               greatest(p_seq[i], f.last_seq, CASE WHEN n.token = f.token THEN n.seq END) AS highest,
               CASE WHEN p_kind[i] = 'delete_all' THEN f.objects WHEN o.resource IS NULL THEN 0 ELSE 1 END AS there,
               CASE WHEN p_kind[i] = 'put'
                        THEN CASE WHEN o.resource IS NULL AND p_again[i] IS NOT TRUE THEN 'c' ELSE 'r' END
                    WHEN o.resource IS NOT NULL OR p_kind[i] = 'delete_all' AND f.objects > 0 THEN 'd'
                    ELSE 'n' END AS did
        FROM (SELECT generate_series(1, cardinality(p_resource)) AS i) r
        -- OFFSET 0 and LIMIT keep the planner from reading a whole table for the sake of a batch, and from working out
        -- the same more than once. What is joined so is looked up row by row, and their order stays.
        LEFT JOIN LATERAL (
            SELECT f.resource, f.token, f.lock_id, f.owner, f.last_seq, f.objects, f.principal, f.writers,
                   f.frozen IS NOT NULL AS is_frozen,
                   CASE WHEN f.protected IS NOT NULL THEN 'protected' END AS is_protected,
                   acts.hold_at(f.hold, f.break_due, p_now) AS stands
            FROM fencegate.fences f WHERE f.resource = p_resource[i] OFFSET 0) f ON true
        LEFT JOIN LATERAL (
            SELECT o.resource, o.version, o.blob FROM fencegate.objects o
            WHERE o.resource = p_resource[i] AND o.key = p_object[i] OFFSET 0) o ON true
        -- The newest is not older than the object: the search ends there, and need not read a page of the index.
        LEFT JOIN LATERAL (
            SELECT n.version, n.token, n.highest_seq AS seq FROM fencegate.operations n
            WHERE n.resource = p_resource[i] AND n.version >= coalesce(o.version, 1)
            ORDER BY n.version DESC LIMIT 1) n ON true
        OFFSET 0) w
$$;

-- The same as p_why, with what operations, keys, demands of objects and the intents of blobs say: why each row is
-- refused, and which operation took effect in its place. p_mine: the intents that are locked. While that of an upload in
-- parts is, no part comes or goes. p_taken_us: the ledger's own time when the oldest rerun among them was taken.
CREATE FUNCTION acts.judged_further(
    p_commit boolean, p_mine uuid[], p_why text[], p_operation uuid[], p_resource text[], p_attempt int[],
    p_key text[], p_fingerprint bytea[], p_object text[], p_if_object text[], p_blob uuid[], p_space text[],
    p_parts text[], p_taken_us bigint, OUT why text[], OUT original uuid[])
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT array_agg(CASE WHEN r.why = 'busy' OR r.why = 'rules_moved' AND r.attempt IS DISTINCT FROM 2 THEN r.why
                          WHEN o.kind <> 'buried' THEN 'known'
                          -- Before a burial: of a key that had its effect no caller is told that there was none.
                          WHEN k.fingerprint = r.fingerprint THEN 'replayed'
                          WHEN k.fingerprint IS NOT NULL THEN 'key_reused'
                          WHEN o.kind = 'buried' THEN 'buried'
                          -- In one snapshot with the look at operations: what is removed is said to be gone in one act.
                          WHEN r.attempt > 0 AND p_taken_us < (
                              SELECT fencegate.micros(w.let_go_before) FROM fencegate.own_time w) THEN 'forgotten'
                          WHEN r.attempt = 2 THEN 'given_up'
                          WHEN r.why IS NOT NULL THEN r.why
                          -- A belt: a token is of one lock (I15).
                          WHEN p_commit AND cardinality(array_remove(p_why, NULL)) = 0 AND (
                              SELECT count(DISTINCT f.lock_id) FROM fencegate.fences f
                              WHERE f.resource = ANY (p_resource)) > 1 THEN 'lock_id_mismatch'
                          WHEN r.object IS NOT NULL AND NOT (
                              SELECT acts.is_as_demanded(r.demand, max(b.generation), max(b.version))
                              FROM fencegate.objects b WHERE b.resource = r.resource AND b.key = r.object)
                              THEN 'object_mismatch'
                          WHEN r.blob IS NULL THEN NULL
                          WHEN (SELECT b.blob FROM fencegate.blob_intents b WHERE b.blob = r.blob) IS NULL
                              THEN 'upload_expired'
                          -- The sweeper takes intents by the same rows: it is just looking at this one.
                          WHEN r.blob <> ALL (p_mine) THEN 'intent_busy'
                          WHEN r.parts IS NOT NULL AND NOT acts.has_parts(r.blob, r.parts) THEN 'parts_differ'
                          END ORDER BY r.i),
           array_agg(CASE WHEN o.kind <> 'buried' THEN r.operation ELSE k.operation END ORDER BY r.i)
    INTO why, original
    FROM unnest(p_why, p_operation, p_resource, p_attempt, p_key, p_fingerprint, p_object, p_if_object, p_blob, p_space,
                p_parts)
         WITH ORDINALITY r (why, operation, resource, attempt, key, fingerprint, object, demand, blob, space, parts, i)
    LEFT JOIN LATERAL (
        SELECT o.kind FROM fencegate.operations o WHERE r.attempt IS NOT NULL AND o.id = r.operation LIMIT 1) o ON true
    LEFT JOIN LATERAL (
        SELECT s.operation, s.fingerprint FROM fencegate.idempotency_keys s
        WHERE s.resource = r.resource AND s.key = r.key AND s.space = coalesce(r.space, 'native') OFFSET 0) k ON true;
END $$;

-- Answers the writes that are refused.
-- 1. Of a commit the reason that counts before the others: what is so of the operation, its key, its resources in name
--    order, its steps, its blobs.
-- 2. What was not looked for because nearly all writes do not need it: an operation that took effect, what superseded
--    the token.
-- 3. A break that has come due is stored.
-- 4. A rerun that is refused is buried: a row among the operations says so, and a sending that comes late would have to
--    store one with the same id, which the key of the table refuses.
CREATE FUNCTION acts.refuse(
    p_commit boolean, p_generation bigint, p_now timestamptz, p_why text[], p_original uuid[],
    p_operation uuid[], p_resource text[], p_token bigint[], p_attempt int[], p_names text[])
RETURNS SETOF acts.written LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    answer acts.written;
    item   record;
    known  text;
    old    record;
    places text[];
BEGIN
    FOR item IN
        SELECT r.* FROM unnest(p_why, p_operation, p_resource, p_token, p_attempt, p_original, p_names)
                        WITH ORDINALITY r (why, operation, resource, token, attempt, original, names, i)
        WHERE r.why IS NOT NULL
        ORDER BY CASE WHEN p_commit THEN CASE r.why
                     WHEN 'rules_moved' THEN 0 WHEN 'busy' THEN 1 WHEN 'known' THEN 2 WHEN 'replayed' THEN 3
                     WHEN 'key_reused' THEN 3 WHEN 'buried' THEN 4 WHEN 'forgotten' THEN 5 WHEN 'given_up' THEN 5 WHEN 'object_mismatch' THEN 7
                     WHEN 'upload_expired' THEN 8 WHEN 'parts_differ' THEN 8 WHEN 'intent_busy' THEN 9 ELSE 6 END END,
                 CASE WHEN p_commit AND r.why NOT IN ('object_mismatch', 'upload_expired', 'parts_differ', 'intent_busy')
                     THEN r.resource END COLLATE "C", r.i
        LIMIT CASE WHEN p_commit THEN 1 END
    LOOP
        answer := NULL;
        answer.row := item.i; answer.resource := item.resource; answer.verdict := item.why;
        answer.original := item.original;
        answer.generation := p_generation;
        IF item.attempt IS NULL AND item.why NOT IN ('busy', 'rules_moved') THEN
            SELECT CASE o.kind WHEN 'buried' THEN 'buried' ELSE 'known' END INTO known
            FROM fencegate.operations o WHERE o.id = item.operation LIMIT 1;
            IF known = 'known' OR known = 'buried' AND item.why NOT IN ('replayed', 'key_reused') THEN
                answer.verdict := known; answer.original := item.operation;
            END IF;
        END IF;
        IF answer.verdict = 'older' THEN
            old := acts.older(item.resource, item.token, (
                SELECT f.grants FROM fencegate.fences f WHERE f.resource = item.resource), item.names);
            answer.verdict := old.verdict; answer.superseded_by := old.superseded_by;
            answer.at_us := fencegate.micros(old.at); answer.owner := old.owner; answer.behind := old.behind;
        END IF;
        places := CASE WHEN p_commit THEN p_resource ELSE ARRAY[item.resource] END;
        IF answer.verdict NOT IN (
            'busy', 'rules_moved', 'known', 'buried', 'replayed', 'key_reused', 'given_up', 'forgotten') THEN
            PERFORM acts.settle(places, p_now);
        END IF;
        -- Of one that is replayed another operation took effect: this one never does, also once the key is forgotten.
        IF answer.verdict NOT IN ('busy', 'rules_moved', 'intent_busy', 'known', 'buried', 'forgotten') AND item.attempt > 0
           AND answer.original IS DISTINCT FROM item.operation THEN
            INSERT INTO fencegate.operations
                (id, resource, kind, generation, token, created, size, owner, committed_at)
            VALUES (item.operation, (SELECT min(r COLLATE "C") FROM unnest(places) r),
                    'buried', p_generation, item.token, false, 0, '', acts.stamp(p_now))
            ON CONFLICT (id, resource) DO NOTHING;
        END IF;
        answer.verdict := CASE answer.verdict WHEN 'given_up' THEN 'buried' WHEN 'intent_busy' THEN 'busy'
                                              ELSE answer.verdict END;
        answer.flushed := acts.flushed();
        RETURN NEXT answer;
    END LOOP;
END $$;
