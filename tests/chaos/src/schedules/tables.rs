//! What must not be in the tables at the end, whatever the schedule was: what no answer tells, and so no checker of
//! histories sees.

use anyhow::{Context as _, Result};
use sqlx::PgConnection;

/// What is wrong with the rows that a query finds, and the query.
const WRONG: [(&str, &str); 9] = [
    (
        "grants that are numbered in another order than that of their tokens",
        "SELECT g.resource || ' ' || g.token FROM (
             SELECT g.*, lag(g.number) OVER (PARTITION BY g.resource ORDER BY g.token) AS before
             FROM fencegate.grants g) g WHERE g.before > g.number",
    ),
    (
        "entries of the audit that have the number of a grant",
        "SELECT a.number::text FROM fencegate.audit a JOIN fencegate.grants g USING (number)",
    ),
    (
        "fences that are not where their last grant is",
        "SELECT f.resource FROM fencegate.fences f WHERE (f.token, f.grants) <> (
             SELECT coalesce(max(g.token), 0), count(*) FROM fencegate.grants g WHERE g.resource = f.resource)",
    ),
    (
        "grants that were not made in the order of their tokens",
        "SELECT g.resource || ' ' || g.token FROM (
             SELECT g.*, row_number() OVER (PARTITION BY g.resource ORDER BY g.token) AS place
             FROM fencegate.grants g) g WHERE g.ordinal <> g.place",
    ),
    (
        "fences that count other objects than there are",
        "SELECT f.resource FROM fencegate.fences f WHERE f.objects <> (
             SELECT count(*) FROM fencegate.objects o WHERE o.resource = f.resource)",
    ),
    (
        "operations that are buried and took effect",
        "SELECT o.id::text FROM fencegate.operations o JOIN fencegate.operations b ON b.id = o.id
         WHERE b.kind = 'buried' AND o.kind <> 'buried'",
    ),
    (
        "locks that are buried and were granted",
        "SELECT b.id::text FROM fencegate.buried b JOIN fencegate.grants g ON g.lock_id = b.id
         WHERE b.kind = 'lock'",
    ),
    (
        "keys of operations that are not there",
        "SELECT k.resource || ' ' || k.key FROM fencegate.idempotency_keys k WHERE NOT EXISTS (
             SELECT FROM fencegate.operations o
             WHERE o.id = k.operation AND o.resource = k.resource AND o.kind <> 'buried')",
    ),
    (
        "versions that are not once among the events, or in another order",
        "SELECT v.resource || ' ' || v.version FROM (
             SELECT o.resource, o.version, e.number, count(*) OVER (PARTITION BY o.resource, o.version) AS times,
                    lag(e.number) OVER (PARTITION BY o.resource ORDER BY o.version) AS before
             FROM fencegate.operations o
             LEFT JOIN fencegate.events e ON e.operation = o.id AND coalesce(e.resource, o.resource) = o.resource
             WHERE o.version IS NOT NULL) v
         WHERE v.number IS NULL OR v.times <> 1 OR v.before > v.number",
    ),
];

/// All of that; each with some rows.
///
/// # Errors
/// A table that cannot be read.
pub async fn wrong(connection: &mut PgConnection) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (what, query) in WRONG {
        let rows: Vec<String> =
            sqlx::query_scalar(query).fetch_all(&mut *connection).await.context(what)?;
        if !rows.is_empty() {
            let some = rows.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            found.push(format!("{} {what}: {some}", rows.len()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use fence_tests::postgres::Postgres;
    use fencegate::ledger::postgres::migrate;

    use super::*;

    /// Two grants in the wrong order, one of a buried lock, one with a number of the audit; a fence above them; and about the
    /// same resource what belongs to nothing.
    const ALL_WRONG: &str = "
        INSERT INTO fencegate.fences (resource, token, grants) VALUES ('r', 5, 2);
        INSERT INTO fencegate.grants (resource, token, lock_id, owner, ordinal, at, number) VALUES
            ('r', 1, '00000000-0000-0000-0000-000000000001', 'o', 2, now(), 20),
            ('r', 2, '00000000-0000-0000-0000-000000000002', 'o', 1, now(), 10);
        INSERT INTO fencegate.buried (kind, id, buried_at)
        VALUES ('lock', '00000000-0000-0000-0000-000000000001', now());
        INSERT INTO fencegate.audit (number, at, action) VALUES (10, now(), 'agree');
        INSERT INTO fencegate.objects
            (resource, key, version, generation, content_type, size, sha256, written_at, body)
        VALUES ('r', 'k', 1, 0, 't', 0, sha256(''), now(), '');
        INSERT INTO fencegate.operations
            (id, resource, version, kind, generation, token, created, size, owner, committed_at)
        VALUES ('00000000-0000-0000-0000-000000000003', 'r', 1, 'put', 0, 1, true, 0, 'o', now()),
               ('00000000-0000-0000-0000-000000000003', 'q', NULL, 'buried', 0, 1, false, 0, '', now());
        INSERT INTO fencegate.idempotency_keys (resource, key, fingerprint, operation, stored_at)
        VALUES ('r', 'k', '', '00000000-0000-0000-0000-000000000004', now());";

    #[tokio::test]
    async fn whatever_must_not_be_there_is_found() {
        let server = Postgres::dedicated().await;
        let database = server.database_name().await;
        migrate(&server.url(&database).parse().unwrap()).await.unwrap();
        let mut connection = server.connect(&database).await;
        assert_eq!(wrong(&mut connection).await.unwrap(), [""; 0]);
        server.execute(&database, ALL_WRONG).await;
        let found = wrong(&mut connection).await.unwrap();
        assert_eq!(found.len(), WRONG.len(), "{found:#?}");
    }
}
