-- Lists of buckets, in the order of bytes of whole keys: across resources, with common prefixes told as one.

-- The first text after all that begin so; NULL if there is none. Between the two halves of the code points are those that
-- no text has.
CREATE FUNCTION acts.after_all(p_text text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE ascii(right(t.text, 1))
        WHEN 0 THEN NULL
        WHEN 55295 THEN left(t.text, -1) || chr(57344)
        ELSE left(t.text, -1) || chr(ascii(right(t.text, 1)) + 1) END
    FROM (SELECT rtrim(p_text, chr(1114111))) t (text)
$$;

-- Whether a key that begins so names a resource: these are its segments.
CREATE FUNCTION acts.names_resource(p_segments text[])
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT NOT EXISTS (SELECT FROM unnest(p_segments) s (segment) WHERE s.segment IN ('', '.', '..') OR s.segment LIKE '%:%')
$$;

-- Lists a bucket, in runs: objects of one resource that lie together, from `at` on.
-- 1. Has `at` enough segments to name a resource, the run is in that.
-- 2. Else it is in the bucket's own resource, up to the next resource that keys name: keys with too few segments lie
--    between those of other resources, and never within one of them.
-- 3. Its objects are told one after the other, of those with a common prefix that alone. How many are read at once: one
--    where such a prefix may come, more where objects did.
-- 4. The list goes on behind what was told, or behind the run if that has no more.
--
-- p_from: only keys from here on. p_depth: how many leading segments of a key name its resource.
CREATE FUNCTION acts.list_page(
    p_bucket text, p_depth int, p_prefix text, p_delimiter text, p_from text, p_limit int)
RETURNS TABLE (name text, is_prefix boolean, version bigint, generation bigint, size bigint, at_us bigint, about text,
               parts int)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    root     text := p_bucket || '/';
    at       text := greatest(p_from COLLATE "C", p_prefix COLLATE "C", chr(1) COLLATE "C");
    step     int  := CASE WHEN p_delimiter IS NULL THEN p_limit ELSE 1 END;
    ahead    int  := step;
    told     int  := 0;
    segments text[];
    place    text;
    source   text;   -- the resource of the run
    begins   text;   -- what whole keys in it begin with
    below    text;   -- the key that ends the run
    behind   text;   -- where the list goes on behind the run
    upto     text;   -- and where it goes on behind what was told
    want     int;
    got      int;
    cut      int;
    o        record;
BEGIN
    WHILE told < p_limit AND at IS NOT NULL LOOP
        -- Step 1.
        segments := (string_to_array(at, '/'))[:p_depth + 1];
        below := NULL;
        IF p_depth = 0 OR cardinality(segments) > p_depth AND acts.names_resource(segments[:p_depth]) THEN
            begins := CASE p_depth WHEN 0 THEN '' ELSE array_to_string(segments[:p_depth], '/') || '/' END;
            source := array_to_string(p_bucket || segments[:p_depth], ':');
            behind := acts.after_all(begins);
        ELSE
            -- Step 2.
            begins := ''; source := p_bucket; behind := NULL; place := root || at;
            LOOP
                SELECT translate(f.resource, ':', '/') || '/' INTO place FROM fencegate.fences f
                WHERE (translate(f.resource, ':', '/') || '/') COLLATE "C" > place
                  AND position(':' IN f.resource) > 0 AND f.objects > 0
                ORDER BY (translate(f.resource, ':', '/') || '/') COLLATE "C" LIMIT 1;
                EXIT WHEN place IS NULL OR NOT starts_with(place, root);
                segments := string_to_array(rtrim(substr(place, length(root) + 1), '/'), '/');
                IF cardinality(segments) = p_depth AND acts.names_resource(segments)
                   AND root || array_to_string(segments, '/') || '/' = place THEN
                    behind := substr(place, length(root) + 1); below := behind;
                    EXIT;
                END IF;
            END LOOP;
        END IF;
        -- Step 3.
        want := least(ahead, p_limit - told);
        ahead := least(ahead * 2, p_limit);
        got := 0; upto := NULL; cut := 0;
        FOR o IN
            SELECT b.key, b.version, b.generation, b.size, b.written_at, b.about, b.parts FROM fencegate.objects b
            WHERE b.resource = source AND b.key >= substr(at, length(begins) + 1) AND (below IS NULL OR b.key < below)
              AND (source <> p_bucket OR p_depth = 0
                   OR length(b.key) - length(replace(b.key, '/', '')) < p_depth)
            ORDER BY b.key LIMIT want
        LOOP
            name := begins || o.key;
            IF NOT starts_with(name, p_prefix) THEN
                RETURN;
            END IF;
            got := got + 1; told := told + 1;
            cut := coalesce(position(p_delimiter IN substr(name, length(p_prefix) + 1)), 0);
            IF cut > 0 THEN
                name := left(name, length(p_prefix) + cut - 1 + length(p_delimiter));
                is_prefix := true; version := NULL; generation := NULL; size := NULL; at_us := NULL; about := NULL;
                parts := NULL;
                RETURN NEXT;
                upto := acts.after_all(name); ahead := step;
                EXIT;
            END IF;
            is_prefix := false; version := o.version; generation := o.generation; size := o.size;
            at_us := fencegate.micros(o.written_at); about := o.about; parts := o.parts;
            RETURN NEXT;
            upto := name || chr(1);
        END LOOP;
        -- Step 4.
        at := CASE WHEN cut > 0 OR got = want THEN upto ELSE behind END;
    END LOOP;
END $$;
