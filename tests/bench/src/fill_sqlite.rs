//! Fills an embedded ledger with resources that are locked and were written once, as the acts leave them.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, SqliteConnection};

/// Resources in one transaction.
const CHUNK: u64 = 100_000;

/// The numbers of one transaction, from ?1 to ?2, and what is made of each: names and ids in the shapes of the
/// gateway's.
const NUMBERS: &str = "
CREATE TEMP TABLE made (
    n INTEGER PRIMARY KEY, name TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL);";
const NUMBER: &str = "
INSERT INTO made
WITH RECURSIVE numbers (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
SELECT n, printf('r%09d', n), printf('%08x-0000-7000-8000-%012x', n, n),
       CAST(unixepoch('subsec') * 1000000 AS INTEGER)
FROM numbers";

/// All that a grant and a put insert, with all triggers and constraints on.
const ROWS: [&str; 7] = [
    "INSERT INTO fences (resource, token, lock_id, owner, hold, ttl_ms, deadline_ms, acquired_at, renewed_at,
                         version, last_seq, objects, grants, live_token)
     SELECT name, n, id, 'fill', 'held', 86400000, 9000000000000, at, at, 1, 0, 1, 1, n FROM made ORDER BY n",
    "INSERT INTO grants (resource, token, lock_id, owner, ordinal) SELECT name, n, id, 'fill', 1 FROM made ORDER BY n",
    "INSERT INTO audit (at, action, resource, owner, token) SELECT at, 'grant', name, 'fill', n FROM made ORDER BY n",
    "INSERT INTO locks (id, resources, token, owner, ttl_ms, acquired_at, metadata, fence)
     SELECT id, json_array(name), n, 'fill', 86400000, at, '{}', 0 FROM made ORDER BY n",
    "INSERT INTO objects (resource, key, version, generation, content_type, size, sha256, written_at, body)
     SELECT name, 'k', 1, 0, 'application/octet-stream', 100, zeroblob(32), at, zeroblob(100) FROM made ORDER BY n",
    "INSERT INTO operations (id, resource, version, kind, key, generation, created, size, sha256, owner, committed_at)
     SELECT id, name, 1, 'put', 'k', 0, 1, 100, zeroblob(32), 'fill', at FROM made ORDER BY n",
    "INSERT INTO events (operation) SELECT id FROM made ORDER BY n",
];

/// Makes so many resources in a ledger that no gateway has open.
///
/// # Errors
/// Whatever SQLite refuses.
pub async fn fill(ledger: &Path, resources: u64) -> Result<()> {
    let begun = Instant::now();
    let mut connection = SqliteConnectOptions::new().filename(ledger).connect().await?;
    connection.execute("PRAGMA synchronous = OFF").await?;
    connection.execute("PRAGMA cache_size = -262144").await?;
    connection.execute(NUMBERS).await?;
    let mut said = 0;
    for from in (1..=resources).step_by(CHUNK as usize) {
        let to = (from + CHUNK - 1).min(resources);
        let mut transaction = connection.begin().await?;
        transaction.execute("DELETE FROM made").await?;
        let numbers = sqlx::query(NUMBER).bind(from as i64).bind(to as i64);
        numbers.execute(&mut *transaction).await?;
        for rows in ROWS {
            transaction.execute(rows).await?;
        }
        transaction.commit().await?;
        if to * 10 / resources > said {
            said = to * 10 / resources;
            let seconds = begun.elapsed().as_secs();
            println!("filling an embedded ledger: {to} of {resources} resources after {seconds} s");
        }
    }
    // What the mint hands out next is above all these.
    let base = sqlx::query("UPDATE guard SET base = ?1").bind(resources as i64);
    base.execute(&mut connection).await?;
    close(connection).await?;
    Ok(())
}

async fn close(mut connection: SqliteConnection) -> Result<()> {
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").await?;
    connection.close().await?;
    Ok(())
}
