//! Fills a ledger with resources that are locked and were written once, as the acts leave them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use futures::future::try_join_all;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

/// Resources in one transaction.
const CHUNK: u64 = 50_000;
/// Transactions at a time.
const SIDE_BY_SIDE: u64 = 2;

/// The rows of resources $1 to $2 but for each $3rd, which are left to the gateway. All that a grant and a
/// put insert, with all triggers and constraints on: ids in the shapes of the gateway's, each token another.
const ROWS: &str = "
WITH made AS MATERIALIZED (
    SELECT n, 'r' || lpad(n::text, 9, '0') AS name, gen_random_uuid() AS lock,
           (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS operation
    FROM generate_series($1::bigint, $2::bigint) n WHERE n % $3::bigint <> 0),
bytes AS MATERIALIZED (
    SELECT b AS body, length(b) AS size, sha256(b) AS sha256
    FROM (SELECT decode(repeat('ab', 100), 'hex')) made (b)),
fences AS (
    INSERT INTO fencegate.fences (resource, token, lock_id, owner, hold, ttl_ms, deadline, acquired_at,
                                  renewed_at, objects, grants, live_token)
    SELECT name, n, lock, 'fill', 'held', 86400000, now() + interval '24 hours', now(), now(), 1, 1, n
    FROM made ORDER BY n),
grants AS (
    INSERT INTO fencegate.grants (resource, token, lock_id, owner, ordinal, at)
    SELECT name, n, lock, 'fill', 1, now() FROM made ORDER BY n),
locks AS (
    INSERT INTO fencegate.locks (id, resources, token, owner, ttl_ms, acquired_at)
    SELECT lock, ARRAY[name], n, 'fill', 86400000, now() FROM made ORDER BY lock),
objects AS (
    INSERT INTO fencegate.objects (resource, key, version, generation, content_type, size, sha256,
                                   written_at, body)
    SELECT name, 'k', 1, 0, 'application/octet-stream', b.size, b.sha256, now(), b.body
    FROM made, bytes b ORDER BY n),
operations AS (
    INSERT INTO fencegate.operations (id, resource, version, kind, key, generation, token, created, size,
                                      sha256, owner, committed_at)
    SELECT operation, name, 1, 'put', 'k', 0, n, true, b.size, b.sha256, 'fill', now()
    FROM made, bytes b ORDER BY n)
INSERT INTO fencegate.events (number, operation)
SELECT n - n / $3::bigint, operation FROM made ORDER BY n";

/// What the numbering of events and the mint have to know of them: both have come so far.
const MARKS: &str = "
UPDATE fencegate.events_mark
SET number = (SELECT max(e.number) FROM fencegate.events e), seen = pg_current_snapshot();
UPDATE fencegate.seal_guard SET base = (SELECT max(g.token) FROM fencegate.grants g)";

/// Leaves nothing to vacuum that would come in between later, and tells the planner what there is.
pub const TIDY: &str = "VACUUM (ANALYZE)";

/// The name of a resource.
pub fn name(number: u64) -> String {
    format!("r{number:09}")
}

/// Makes so many resources but for each `stride`th in the tables at this URL, which is that of a superuser; no gateway may
/// be running.
///
/// # Errors
/// Whatever Postgres refuses.
pub async fn fill(url: &str, resources: u64, stride: u64) -> Result<()> {
    let begun = Instant::now();
    let mut server = PgConnection::connect(url).await?;
    // Checkpoints and vacuums in between would write everything twice.
    let meanwhile = ["max_wal_size = '4GB'", "autovacuum = off"];
    for setting in meanwhile {
        server.execute(AssertSqlSafe(format!("ALTER SYSTEM SET {setting}"))).await?;
    }
    server.execute("SELECT pg_reload_conf()").await?;
    let chunks: Vec<u64> = (0..resources).step_by(CHUNK as usize).collect();
    let done = AtomicU64::new(0);
    let workers = (0..SIDE_BY_SIDE).map(async |worker| {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute("SET synchronous_commit = off").await?;
        for from in chunks.iter().skip(worker as usize).step_by(SIDE_BY_SIDE as usize) {
            let to = (from + CHUNK).min(resources) - 1;
            let rows = sqlx::query(ROWS).bind(*from as i64).bind(to as i64).bind(stride as i64);
            rows.execute(&mut connection).await?;
            let before = done.fetch_add(to + 1 - from, Ordering::Relaxed);
            let (tenth, after) = (resources.div_ceil(10), before + to + 1 - from);
            if before / tenth < after / tenth {
                let seconds = begun.elapsed().as_secs();
                println!("filling a ledger: {after} of {resources} resources after {seconds} s");
            }
        }
        connection.close().await?;
        anyhow::Ok(())
    });
    try_join_all(workers).await?;
    server.execute(MARKS).await?;
    for setting in ["max_wal_size", "autovacuum"] {
        server.execute(AssertSqlSafe(format!("ALTER SYSTEM RESET {setting}"))).await?;
    }
    server.execute("SELECT pg_reload_conf()").await?;
    server.execute(TIDY).await?;
    server.close().await?;
    println!("filling a ledger: done after {} s", begun.elapsed().as_secs());
    Ok(())
}
