//! Stores what an act changed, and tidies.

use std::collections::BTreeMap;

use fence_core::ResourceName;
use fence_core::acts::{Buried, Change, FenceRow, Now, Rows};
use fence_core::ports::{Rejection, Retention, unknown_max};
use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::bulk::Script;
use super::tables;

/// Stores every row that the journal names, most of it when the script that this returns is run, in the order
/// of the journal: objects that were wiped before those put since, operations before the fences whose versions
/// they explain. `before` has the fences as they were loaded.
///
/// For the tables that acts change most, all rows of a table are stored together, and all tables in one trip.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    rows: &Rows,
    before: &BTreeMap<ResourceName, FenceRow>,
    now: Now,
) -> Result<Script, sqlx::Error> {
    super::versions::keep(connection, rows, now).await?;
    let (mut locks, mut grants, mut operations) = (Vec::new(), Vec::new(), Vec::new());
    let (mut keys, mut objects, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    let (mut fences, mut counted) = (Vec::new(), Vec::new());
    for change in &rows.journal {
        match change {
            Change::Wiped(resource) => {
                sqlx::query("DELETE FROM objects WHERE resource = ?1")
                    .bind(resource.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
            Change::Lock(id) => locks.extend(rows.locks.get_key_value(id)),
            Change::Grant(resource, token) => {
                grants.extend(rows.grants.get_key_value(&(resource.clone(), *token)));
            }
            Change::Buried(id) => buried(connection, rows, *id).await?,
            Change::Operation(id) => {
                operations.extend(rows.operations.get(id).into_iter().flatten())
            }
            Change::Key(resource, key) => {
                keys.extend(rows.keys.get_key_value(&(resource.clone(), key.clone())));
            }
            Change::Intent(blob) => {
                // Consumed, or begun.
                super::versions::intent(connection, *blob, rows.intents.get(blob)).await?;
            }
            Change::Part(upload, number) => {
                super::multipart::store_part(connection, rows, (*upload, *number)).await?;
            }
            Change::Forward(id) => super::upstreams::store_intent(connection, rows, *id).await?,
            Change::Upstream(name, prefix) => {
                super::upstreams::store_upstream(connection, rows, name, prefix).await?;
            }
            Change::Object(resource, key) => {
                match rows.objects.get_key_value(&(resource.clone(), key.clone())) {
                    Some(row) => objects.push(row),
                    None => gone.push((resource, key)),
                }
            }
            Change::Fence(resource) => {
                let Some(row) = rows.fences.get_key_value(resource) else { continue };
                match before.get(resource).is_some_and(|before| only_counted(before, row.1)) {
                    true => {
                        let FenceRow { version, last_sequence, objects, .. } = row.1;
                        counted.push((resource, version, last_sequence, objects));
                    }
                    false => fences.push(row),
                }
            }
        }
    }
    super::multipart::discard(connection, &rows.discarded).await?;
    let most =
        [locks.len(), grants.len(), operations.len(), keys.len(), objects.len(), fences.len()];
    let mut script = Script::new(most.into_iter().max().unwrap_or(0));
    script.store(&tables::LOCKS, &locks, tables::lock);
    script.store(&tables::GRANTS, &grants, tables::grant);
    script.store(&tables::OPERATIONS, &operations, tables::operation);
    script.store(&tables::KEYS, &keys, tables::key);
    script.list(REMOVE, &gone);
    script.store(&tables::OBJECTS, &objects, tables::object);
    script.store(&tables::FENCES, &fences, tables::fence);
    script.list(COUNT, &counted);
    super::events::append(&mut script, rows);
    super::audit::append(&mut script, &rows.audited);
    Ok(script)
}

/// Removes objects.
const REMOVE: &str = "DELETE FROM objects WHERE (resource, key) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each(?))";

/// Stores what writes did to the fences that admitted them.
const COUNT: &str = "UPDATE fences
    SET version = n.value ->> 1, last_seq = n.value ->> 2, objects = n.value ->> 3
    FROM json_each(?) n WHERE fences.resource = n.value ->> 0";

/// Whether no more changed than what a write does to the fence that admits it.
fn only_counted(before: &FenceRow, row: &FenceRow) -> bool {
    let FenceRow { version, last_sequence, objects, .. } = *row;
    FenceRow { version, last_sequence, objects, ..before.clone() } == *row
}

async fn buried(
    connection: &mut SqliteConnection,
    rows: &Rows,
    id: Buried,
) -> Result<(), sqlx::Error> {
    let Some(at) = rows.buried.get(&id) else { return Ok(()) };
    sqlx::query(
        "INSERT INTO buried (kind, id, buried_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )
    .bind(id.kind())
    .bind(id.id().to_string())
    .bind(at.as_microsecond())
    .execute(connection)
    .await?;
    Ok(())
}

/// Keeps refused writes, in one transaction.
pub(super) async fn rejections(
    connection: &mut SqliteConnection,
    rejections: &[Rejection],
) -> Result<(), sqlx::Error> {
    let rows: Vec<serde_json::Value> = Rejection::gathered(rejections)
        .iter()
        .map(|r| {
            serde_json::json!([
                r.at.as_microsecond(),
                r.resource,
                r.key,
                r.reason,
                r.token.map(|token| token.get()),
                r.grants_behind,
                r.superseded_ms,
                r.owner,
                r.request_id,
                r.times,
                r.minute()
            ])
        })
        .collect();
    sqlx::query(
        "INSERT INTO rejections (at, resource, key, reason, token, grants_behind, superseded_ms,
                                 owner, request_id, times, minute)
         SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10
         FROM json_each(?1) WHERE true
         ON CONFLICT (resource, minute) WHERE minute IS NOT NULL
         DO UPDATE SET times = times + excluded.times",
    )
    .bind(serde_json::Value::from(rows).to_string())
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes what has been kept long enough. Returns the number of rows.
pub(super) async fn prune(
    connection: &mut SqliteConnection,
    retention: &Retention,
    own: Timestamp,
) -> Result<u64, sqlx::Error> {
    let before = |keep: std::time::Duration| {
        let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
        own.as_microsecond().saturating_sub(keep)
    };
    let mut removed = 0;
    for (statement, bound) in [
        (
            "DELETE FROM idempotency_keys WHERE (resource, key) IN (
                 SELECT resource, key FROM idempotency_keys
                 WHERE kept_until IS NULL AND stored_at < ?1 ORDER BY stored_at LIMIT ?2)",
            before(retention.keys),
        ),
        (
            "DELETE FROM idempotency_keys WHERE (resource, key) IN (
                 SELECT resource, key FROM idempotency_keys WHERE kept_until < ?1
                 ORDER BY kept_until LIMIT ?2)",
            own.as_microsecond(),
        ),
        (
            "DELETE FROM locks WHERE id IN (
                 SELECT id FROM locks WHERE ended_at < ?1 ORDER BY ended_at LIMIT ?2)",
            before(retention.ended_locks),
        ),
        (
            "DELETE FROM rejections WHERE number IN (
                 SELECT number FROM rejections
                 WHERE minute IS NULL AND number <= (
                     SELECT number FROM rejections WHERE minute IS NULL
                     ORDER BY number DESC LIMIT 1 OFFSET ?1)
                 ORDER BY number LIMIT ?2)",
            retention.rejections_max,
        ),
        (
            "DELETE FROM rejections WHERE number IN (
                 SELECT number FROM rejections
                 WHERE minute IS NOT NULL AND reason = 'fence-token-unknown' AND number <= (
                     SELECT number FROM rejections WHERE reason = 'fence-token-unknown'
                     ORDER BY number DESC LIMIT 1 OFFSET ?1)
                 ORDER BY number LIMIT ?2)",
            unknown_max(retention.rejections_max),
        ),
    ] {
        let done = sqlx::query(statement)
            .bind(bound)
            .bind(retention.rows_per_pass)
            .execute(&mut *connection)
            .await?;
        removed += done.rows_affected();
    }
    removed += super::history::forget_burials(
        connection,
        before(retention.buried),
        retention.rows_per_pass,
    )
    .await?;
    if let Some(kept) = retention.history {
        removed += super::history::prune(connection, before(kept), retention.rows_per_pass).await?;
    }
    Ok(removed)
}
