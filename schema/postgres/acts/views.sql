-- What the ledger shows of resources and locks.

-- Resources as everybody may see them. A break that has come due shows as broken only once it is
-- stored, so that it never un-breaks.
CREATE VIEW acts.views AS
SELECT f.resource,
       CASE WHEN NOT acts.stands(f.hold) THEN f.hold
            WHEN f.deadline <= clock_timestamp() THEN 'expired'
            WHEN acts.is_void(f.token, (SELECT g.floor FROM fencegate.seal_guard g)) THEN 'expired'
            WHEN f.break_due IS NOT NULL THEN 'breaking'
            WHEN acts.is_draining(f.hold) THEN 'draining'
            ELSE 'leased' END AS state,
       f.owner,
       f.principal,
       f.lock_id,
       fencegate.micros(f.acquired_at) AS acquired_us,
       fencegate.micros(f.renewed_at) AS renewed_us,
       fencegate.micros(f.ended_at) AS ended_us,
       fencegate.millis(clock_timestamp() - f.acquired_at) AS age_ms,
       fencegate.millis(clock_timestamp() - f.renewed_at) AS renewed_ms,
       f.ttl_ms,
       fencegate.millis(least(f.deadline, f.break_due) - clock_timestamp()) AS remaining_ms,
       fencegate.millis(f.break_due - clock_timestamp()) AS breaks_in_ms,
       coalesce((SELECT o.version FROM fencegate.operations o
                 WHERE o.resource = f.resource AND o.version > 0
                 ORDER BY o.version DESC LIMIT 1), 0) AS version, f.objects, f.grants, f.token, f.frozen, f.protected,
       (SELECT count(*) FROM fencegate.waiter_resources q WHERE q.resource = f.resource) AS waiting
FROM fencegate.fences f
WHERE acts.was_granted(f.hold);

-- How much there is in the whole ledger. Reads the fences that are taken, also those whose locks have expired, by the index
-- of those; and the frozen ones by theirs. A deadline is in no index: a renewal could not update its row in place. Locks are
-- told apart by their tokens, which are smaller than their ids: a token names one grant (I15).
CREATE VIEW acts.totals AS
SELECT (SELECT count(DISTINCT f.token)
        FROM fencegate.fences f CROSS JOIN fencegate.seal_guard g
        WHERE acts.is_taken(f.hold)
          AND acts.keeps_out(acts.hold_at(f.hold, f.break_due, statement_timestamp()), f.token, f.deadline, g.floor,
                             statement_timestamp())) AS locks_held,
       (SELECT count(*) FROM fencegate.fences f WHERE f.frozen IS NOT NULL) AS frozen_resources;

-- Locks by their ids.
CREATE FUNCTION acts.lock_records(p_locks uuid[])
RETURNS TABLE (
    resources text[], token bigint, owner text, ttl_ms bigint, acquired_us bigint,
    hold_until_us bigint, metadata text, ended text, ended_us bigint, state text,
    remaining_ms bigint, versions bigint[], id uuid, superseded_by text, renewed_us bigint,
    break_due_us bigint, break_in_ms bigint, unconfirmed boolean, frozen text, principal text, writers text[],
    credential text, credential_ends_us bigint)
LANGUAGE sql VOLATILE AS $$
    SELECT l.resources, l.token, l.owner, l.ttl_ms, fencegate.micros(l.acquired_at),
           fencegate.micros(l.hold_until), nullif(l.metadata, '{}')::text,
           CASE WHEN l.ended IS NULL AND acts.is_void(l.token, g.floor) THEN 'void' ELSE l.ended END,
           CASE WHEN l.ended IS NULL AND acts.is_void(l.token, g.floor) THEN fencegate.micros(clock_timestamp())
                ELSE fencegate.micros(l.ended_at) END,
           v.state, v.remaining_ms, acts.versions(l.resources), l.id,
           (SELECT n.how FROM fencegate.grants r
            CROSS JOIN LATERAL (
                SELECT n.how, n.at FROM fencegate.grants n
                WHERE n.resource = r.resource AND n.number > r.number ORDER BY n.number LIMIT 1) n
            WHERE r.resource = ANY (l.resources) AND r.token = l.token
            ORDER BY n.at, r.resource LIMIT 1),
           fencegate.micros(coalesce(v.renewed_at, l.acquired_at)),
           fencegate.micros(v.break_due), fencegate.millis(v.break_due - clock_timestamp()),
           l.ended IS NULL AND NOT acts.is_void(l.token, g.floor) AND l.ttl_ms = acts.infinite_ms()
               AND v.ttl_ms < l.ttl_ms,
           (SELECT f.frozen FROM fencegate.fences f
            WHERE f.resource = ANY (l.resources) AND f.frozen IS NOT NULL
            ORDER BY f.resource LIMIT 1), l.principal, l.writers, l.credential, l.credential_ends_us
    FROM fencegate.locks l
    CROSS JOIN fencegate.seal_guard g
    LEFT JOIN LATERAL (
        SELECT v.state, v.remaining_ms, f.renewed_at, f.break_due, f.ttl_ms
        FROM acts.views v JOIN fencegate.fences f USING (resource)
        WHERE v.resource = ANY (l.resources) AND f.lock_id = l.id
        ORDER BY f.break_due NULLS LAST, f.deadline, v.resource LIMIT 1) v ON true
    WHERE l.id = ANY (p_locks)
$$;
