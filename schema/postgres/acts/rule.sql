-- The rule, for all acts that admit something, and whatever else is judged by a token or by how a lock stands: no other
-- file compares tokens or reads `hold`. The rule is that of gateway/core/src/rule.rs; a test compares them, case by case.

-- Judges what a writer presents on a fence whose row it has locked (I3, I4, I6): why it is refused, NULL if it is
-- admitted. The first row that applies decides. f_token is NULL where nothing was ever sealed.
--
-- 'older' is no verdict yet: the token is below the one sealed last, and the function `older` finds out whether it
-- was ever sealed here. Otherwise every write would pay for that look.
--
-- f_yours: whether the fence was sealed to whoever presents the token (I16).
CREATE FUNCTION acts.judge(
    p_token bigint, p_lock uuid, p_seq bigint, p_floor bigint,
    f_token bigint, f_lock uuid, f_hold text, f_frozen boolean, f_seq bigint, f_yours boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN (p_token > p_floor) IS NOT TRUE THEN 'void'
        WHEN f_token IS NULL OR p_token > f_token THEN 'unknown'
        WHEN p_token < f_token THEN 'older'
        WHEN NOT f_yours THEN 'foreign'
        WHEN f_hold NOT IN ('held', 'draining') THEN f_hold
        WHEN p_lock IS NOT NULL AND p_lock IS DISTINCT FROM f_lock THEN 'lock_id_mismatch'
        WHEN f_frozen THEN 'frozen'
        WHEN f_hold = 'draining' THEN 'draining'
        WHEN p_seq <= f_seq THEN 'sequence_out_of_order'
    END
$$;

-- Whether something is sealed to whoever this is: to that principal, or with it, or a role of it, among the writers.
-- p_names: the principal, then role:NAME for each of its roles, apart by spaces; NULL where no rules are in force.
CREATE FUNCTION acts.is_yours(p_names text, f_principal text, f_writers text[])
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(p_names, ' ', 1) IS NOT DISTINCT FROM f_principal
        OR coalesce(f_writers && string_to_array(p_names, ' '), false)
$$;

-- Whether the rules of access are others than those under which something was allowed: then nothing is decided (I17).
-- NULL for p_rules: nobody had to allow it.
CREATE FUNCTION acts.rules_moved(p_rules bigint, p_in_force bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(p_rules <> p_in_force, false)
$$;

-- The verdict on a token below the one sealed last: 'stale' if it was sealed here once, with what superseded it (the next
-- grant here), when, whose it was and how many grants ago; 'foreign' if it was to somebody else (I16); else 'unknown'. Of those that may have been let go, nobody knows
-- which were sealed: all are stale.
CREATE FUNCTION acts.older(
    p_resource text, p_token bigint, p_grants bigint, p_names text, OUT verdict text, OUT superseded_by text,
    OUT at timestamptz, OUT owner text, OUT behind bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    is_yours boolean;
BEGIN
    SELECT 'stale', n.how, n.at, g.owner, p_grants - g.ordinal, acts.is_yours(p_names, g.principal, g.writers)
    INTO verdict, superseded_by, at, owner, behind, is_yours
    FROM fencegate.grants g
    LEFT JOIN LATERAL (
        SELECT n.how, n.at FROM fencegate.grants n
        WHERE n.resource = g.resource AND n.number > g.number ORDER BY n.number LIMIT 1) n ON true
    WHERE g.resource = p_resource AND g.token = p_token;
    IF NOT is_yours THEN
        verdict := 'foreign'; superseded_by := NULL; at := NULL; owner := NULL; behind := NULL;
        RETURN;
    END IF;
    IF verdict IS NULL THEN
        -- Of each resource one grant up to that number is kept.
        SELECT 'stale' INTO verdict FROM fencegate.history h
        JOIN fencegate.grants o ON o.resource = p_resource AND o.number <= h.grants
        WHERE p_token < o.token AND o.ordinal > 1 AND NOT acts.is_kept(p_token, h.token);
    END IF;
    verdict := coalesce(verdict, 'unknown');
END $$;

-- Whether a token is void: a re-fence has put the floor above it.
CREATE FUNCTION acts.is_void(p_token bigint, p_floor bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_token <= p_floor
$$;

-- Whether a token is not the one sealed last.
CREATE FUNCTION acts.is_another(p_token bigint, f_token bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_token <> f_token
$$;

-- Whether a fence ever had a lock.
CREATE FUNCTION acts.was_granted(p_hold text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold <> 'none'
$$;

CREATE FUNCTION acts.was_released(p_hold text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold = 'released'
$$;

-- Whether its lock stands: also if it has expired, or is not in force yet.
CREATE FUNCTION acts.stands(p_hold text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold IN ('held', 'draining')
$$;

-- Whether it stands, but is not in force before nothing of older tokens is under way.
CREATE FUNCTION acts.is_draining(p_hold text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold = 'draining'
$$;

-- How a lock stands, taking into account a break that has come due, whether the break is stored yet or not.
CREATE FUNCTION acts.hold_at(p_hold text, p_break_due timestamptz, p_now timestamptz)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_hold IN ('held', 'draining') AND p_break_due <= p_now THEN 'broken' ELSE p_hold END
$$;

-- Whether somebody had its lock and has not given it back: the condition of an index.
CREATE FUNCTION acts.is_taken(p_hold text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold <> 'released' AND p_hold <> 'none'
$$;

-- Whether it keeps others out.
CREATE FUNCTION acts.keeps_out(
    p_hold text, p_token bigint, p_deadline timestamptz, p_floor bigint, p_now timestamptz)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_hold IN ('held', 'draining') AND p_deadline > p_now AND p_token > p_floor
$$;

-- Whether a fence can be sealed with this token, as far as its row tells: nobody has it.
CREATE FUNCTION acts.is_free(p_fence fencegate.fences, p_token bigint, p_floor bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_fence.hold IN ('none', 'released', 'broken') AND p_fence.frozen IS NULL
       AND p_fence.token < p_token AND p_token > p_floor
$$;

-- Whether a fence is held by this lock, and nothing is about to end that.
CREATE FUNCTION acts.is_in_force(p_fence fencegate.fences, p_lock uuid, p_floor bigint)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_fence.lock_id = p_lock AND p_fence.hold = 'held' AND p_fence.break_due IS NULL
       AND p_fence.token > p_floor
$$;

-- Tells the end of a fence's lock, once another is sealed there: it was given back or broken; or it stood until then, void,
-- handed over, past its deadline, or in the way of a fence that was set by force. Nothing else is sealed over a lock that
-- stands (`obstructed`).
CREATE FUNCTION acts.ended_how(
    p_hold text, p_token bigint, p_lock uuid, p_deadline timestamptz, p_predecessor uuid, p_force boolean, p_floor bigint,
    p_now timestamptz)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_hold IN ('released', 'broken') THEN p_hold
                WHEN p_hold = 'none' THEN NULL
                WHEN p_token <= p_floor THEN 'void'
                WHEN p_lock = p_predecessor THEN 'transferred'
                WHEN p_deadline <= p_now THEN 'lapsed'
                WHEN p_force THEN 'fenced' END
$$;

-- Whether history would still have a grant of this token, had there been one.
CREATE FUNCTION acts.is_kept(p_token bigint, p_gone bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_token > p_gone
$$;

-- Whether a number can be sealed as this token on these fences, which are locked: it is above all that was sealed there,
-- it is not void, and it names no other grant anywhere (I15), nor did it name one that history has let go.
CREATE FUNCTION acts.is_high_enough(p_token bigint, p_floor bigint, p_names text[])
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN p_token > p_floor AND acts.is_kept(p_token, (SELECT h.token FROM fencegate.history h))
       AND NOT EXISTS (SELECT FROM fencegate.fences f WHERE f.resource = ANY (p_names) AND f.token >= p_token)
       AND NOT EXISTS (SELECT FROM fencegate.grants g WHERE g.leads AND g.token = p_token);
END $$;
