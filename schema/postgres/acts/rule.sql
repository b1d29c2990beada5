-- The rule, for all acts that admit something. It is that of gateway/core/src/rule.rs; a test compares them, case by case.

-- Judges what a writer presents on a fence whose row it has locked (I3, I4, I6): why it is refused, NULL if it is admitted.
-- The first row that applies decides. f_token is NULL where nothing was ever sealed.
--
-- 'older' is no verdict yet: the token is below the one sealed last, and whether it was ever sealed here is for `older`
-- to find. All others would pay for that look.
CREATE FUNCTION acts.judge(
    p_token bigint, p_lock uuid, p_seq bigint, p_floor bigint,
    f_token bigint, f_lock uuid, f_hold text, f_frozen boolean, f_seq bigint)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN (p_token > p_floor) IS NOT TRUE THEN 'void'
        WHEN f_token IS NULL OR p_token > f_token THEN 'unknown'
        WHEN p_token < f_token THEN 'older'
        WHEN f_hold NOT IN ('held', 'draining') THEN f_hold
        WHEN p_lock IS NOT NULL AND p_lock IS DISTINCT FROM f_lock THEN 'lock_id_mismatch'
        WHEN f_frozen THEN 'frozen'
        WHEN f_hold = 'draining' THEN 'draining'
        WHEN p_seq <= f_seq THEN 'sequence_out_of_order'
    END
$$;

-- The verdict on a token below the one sealed last: 'stale' if it was sealed here once, with what superseded it, when,
-- whose it was and how many grants ago; else 'unknown'.
CREATE FUNCTION acts.older(
    p_resource text, p_token bigint, p_grants bigint, OUT verdict text, OUT superseded_by text,
    OUT at timestamptz, OUT owner text, OUT behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    SELECT 'stale', g.superseded_by, g.superseded_at, g.owner, p_grants - g.ordinal
    INTO verdict, superseded_by, at, owner, behind
    FROM fencegate.grants g WHERE g.resource = p_resource AND g.token = p_token;
    verdict := coalesce(verdict, 'unknown');
END $$;
